"""Starts the workers, compiles the C programs, and finds what plait is compared with."""

import contextlib
import dataclasses
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from plait import _core, _launch, _mpi_find, _rank, cli

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
N_RANKS = 2
# Computations of a single process may use all cores, also where ranks run, which by default have a
# share each. plait's calls take one thread of BLAS a rank, whatever is set here.
ALL_CORES = dict.fromkeys(_rank.THREAD_VARIABLES, str(N_RANKS))
JOB_LIMIT_S = 1800
END_LIMIT_S = 15  # for a job that is told to end; `plait run` spends some of it on its ranks
SETUP = "see bench/setup"
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", f"-I{ROOT / 'include'}"]
SINGLE = ["-DBENCH_C64"]


def cpu_name():
    """The machine's CPU, by /proc."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return "unknown"


class Absent(Exception):
    """Something to compare or to measure with is missing; the text says what."""


def with_setup(error):
    """The text of an error, with a single mention of where the missing part comes from."""
    text = str(error)
    return text if SETUP in text else f"{text}; {SETUP}"


class Others:
    """The cores of this machine that other programs keep busy while a job runs.

    The kernel counts busy cores in all, including those that a host of virtual machines takes away.
    Subtracted are the times of this process and of the children that it has waited for, with
    theirs.
    """

    def __init__(self):
        self._began = time.monotonic(), self._busy_s()

    @staticmethod
    def _busy_s():
        """Seconds of all cores that are not this run's; None if the kernel does not tell."""
        try:
            line = Path("/proc/stat").read_text().split("\n", 1)[0]
        except OSError:
            return None
        user, nice, system, _, _, irq, softirq, steal = map(int, line.split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return busy - sum(usage.ru_utime + usage.ru_stime for usage in own)

    def cores(self):
        """The mean number of cores that they have kept busy since then, or None."""
        (began, before), after = self._began, self._busy_s()
        if before is None or after is None:
            return None
        return max(0.0, after - before) / max(1e-3, time.monotonic() - began)


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is measured."""

    n_rounds: int = 15
    n_limit: int = 60
    limit_s: float = 60.0
    sizes: tuple[int, ...] = (256, 128, 64)
    fft_sizes: tuple[int, ...] = (384, 256, 128, 64)  # compared with FFTW-MPI
    n_redist: int = 256
    n_loop: int = 20000
    is_quick: bool = False
    mib: tuple[int, ...] = (4, 16, 64, 256)


QUICK = Scale(
    n_rounds=5,
    n_limit=10,
    limit_s=10.0,
    sizes=(128, 64),
    fft_sizes=(128, 64),
    n_redist=128,
    n_loop=2000,
    is_quick=True,
    mib=(4, 64),
)


def last_error(text):
    """The last output line that mentions an error, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line] or lines
    return errors[-1] if errors else "no output"


def _compiler_error(text):
    lines = [line for line in text.splitlines() if "error:" in line or "cannot find" in line]
    line = lines[0] if lines else last_error(text)
    return line.split("error:")[-1].split("ld: ")[-1].strip()


class Jobs:
    """Runs programs for the rows; keeps all records."""

    _numbers = itertools.count(1)  # for file names

    def __init__(self, folder, scale):
        self.folder, self.scale = Path(folder), scale
        self.records = []
        self.n_running = 0
        self._programs = {}
        library = Path(_core.lib._name).resolve()
        self._links = self.folder / "lib"
        self._links.mkdir(parents=True, exist_ok=True)
        for name in ("libplait.so", "libplait.so.0"):
            self._replaced(self._links / name, lambda link: link.symlink_to(library))

    @staticmethod
    def _replaced(path, make):
        """Makes a file under a name of this run's own, then atomically replaces the other one."""
        own = path.with_name(f".{path.name}.{os.getpid()}")
        own.unlink(missing_ok=True)
        made = make(own)
        with contextlib.suppress(FileNotFoundError):  # nothing was made
            own.replace(path)
        return made

    # ---- compiling ---------------------------------------------------------------------------

    def compile(self, compiler, program, sources, flags, libraries):
        """Path of the program, compiled now or earlier in this run; Absent with the error."""
        key = f"{program}-{Path(compiler).name}"
        if key not in self._programs:
            path = self.folder / key
            command = [compiler, *FLAGS, *flags, *(str(BENCH / "c" / s) for s in sources)]

            def make(out, command=(*command, "-o"), libraries=tuple(libraries)):
                command = [*command, str(out), *libraries]
                return subprocess.run(command, capture_output=True, text=True, check=False)

            try:
                done = self._replaced(path, make)
            except OSError as error:
                raise Absent(f"no compiler {compiler}") from error
            reason = "" if done.returncode == 0 else _compiler_error(done.stderr)
            self._programs[key] = (path, reason)
        path, reason = self._programs[key]
        if reason:
            raise Absent(reason)
        return path

    def c_program(self, compiler, name, is_single, fftw=()):
        """A program of c/ linked with plait, and with these libraries of FFTW, if any."""
        suffix = ("-c64" if is_single else "-c128") + ("-fftw" if fftw else "")
        flags = (SINGLE if is_single else []) + (["-DBENCH_FFTW"] if fftw else [])
        kind = "f" if is_single else ""
        libraries = [f"-lfftw3{kind}{part}" for part in fftw] + ["-lpthread", "-lm"]
        sources = (name, "rounds", "problems")
        return self.linked(compiler, name + suffix, sources, flags, libraries)

    def linked(self, compiler, program, names, flags, libraries):
        """A program from these files of c/, linked with plait."""
        plait = [f"-L{self._links}", f"-Wl,-rpath,{self._links}", "-lplait"]
        sources = [f"{name}.c" for name in names]
        return self.compile(compiler, program, sources, flags, [*plait, *libraries])

    def kernels(self, program, n, limit_s):
        """The records of a program of c/CMakeLists.txt, each limited to `limit_s`."""
        folder = self.folder / "kernels"
        beside = Path(sys.executable).parent / "cmake"
        cmake = str(beside) if beside.exists() else shutil.which("cmake")
        if cmake is None:
            raise Absent("no cmake")
        build = [cmake, "--build", str(folder), "--target", program, "--parallel"]
        for command in ([cmake, "-S", str(BENCH / "c"), "-B", str(folder)], build):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Absent(_compiler_error(done.stdout + done.stderr))
        limit_s = min(limit_s, self.scale.limit_s)
        options = [*self._c_options("fft", n)[:-1], f"seconds={limit_s:g}"]
        return self._run([str(folder / program), *options], "out=", {})

    def raw_mpi(self):
        """The library with MPI's own calls in a loop, as a path."""
        flags = ["-shared", "-fPIC"]
        return self.compile(os.environ.get("CC", "cc"), "raw_mpi.so", ["raw_mpi.c"], flags, [])

    # ---- running -----------------------------------------------------------------------------

    def pythons(self):
        """This interpreter, and that of the environment with another MPI, if there is one."""
        other = ROOT / f"{Path(sys.prefix).name}-openmpi" / "bin" / "python"
        return [sys.executable, *([str(other)] if other.exists() else [])]

    def worker(
        self, module, arguments, n_ranks, environment=(), python=sys.executable, n_cores=None
    ):
        """The records of a module of workers/, on MPI ranks or (n_ranks 0) in one process.

        n_cores: uses only so many of the cores.
        """
        scale = self.scale
        command = [python, "-m"]
        if n_ranks:
            command += ["plait", "run", "-n", str(n_ranks), "--timeout", str(JOB_LIMIT_S), "-m"]
        options = {"rounds": scale.n_rounds, "limit": scale.n_limit, "seconds": scale.limit_s}
        command += [f"workers.{module}"]
        command += [f"--{k}={v}" for k, v in (options | arguments).items()]
        return self._run(command, "--out=", dict(environment), n_cores)

    def threads(self, program, op, n):
        """The records of a C program whose ranks are threads."""
        return self._run([str(program), *self._c_options(op, n)], "out=", {})

    def ranks(self, program, launcher, op, n):
        """The records of a C program on MPI ranks; launcher None: the one of `plait run`."""
        if launcher is None:
            command = [sys.executable, "-m", "plait", "run", "-n", str(N_RANKS)]
            command += ["--timeout", str(JOB_LIMIT_S), str(program)]
            return self._run(command + self._c_options(op, n), "out=", {})
        environment = _launch.rank_environment(launcher, N_RANKS, os.environ)
        command = [*_launch.launcher_command(launcher, N_RANKS), str(program)]
        return self._run(command + self._c_options(op, n), "out=", environment)

    def _c_options(self, op, n):
        scale = self.scale
        options = [f"op={op}", f"n={n}", f"rounds={scale.n_rounds}", f"limit={scale.n_limit}"]
        return [*options, f"seconds={scale.limit_s:g}"]

    def _run(self, command, out, extra, n_cores=None):
        file = self.folder / f"records-{os.getpid()}-{next(self._numbers)}.jsonl"
        others = Others()
        try:
            text, code = self._ended([*command, f"{out}{file}"], extra, n_cores)
            if code == cli.USAGE_CODE and "run" in command:  # MPI is missing
                raise Absent(last_error(text))
            if code != 0 or not file.exists():
                raise RuntimeError(f"failed: {last_error(text)}")
            records = [json.loads(line) for line in file.read_text().splitlines()]
        except (OSError, json.JSONDecodeError) as error:
            raise RuntimeError(f"failed: {type(error).__name__}: {error}") from error
        finally:
            file.unlink(missing_ok=True)
        taken = others.cores()
        self.records += [record | {"others": taken} for record in records]
        return self.records[len(self.records) - len(records) :]

    def _ended(self, command, extra, n_cores):
        """A program's output and exit code; the program does not outlive this call."""
        cores = sorted(os.sched_getaffinity(0))[:n_cores]
        package = Path(_core.__file__).resolve().parents[1]
        paths = [str(BENCH), str(package), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, paths))
        environment = os.environ | {"PYTHONPATH": path, "MPIEXEC_TIMEOUT": str(JOB_LIMIT_S)}
        environment |= {"PLAIT_LIBRARY": str(Path(_core.lib._name).resolve())}
        environment |= {"GLIBC_TUNABLES": _launch.tunables(os.environ.get("GLIBC_TUNABLES", ""))}
        job = subprocess.Popen(
            command,
            env=environment | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self.n_running += 1
        try:
            text, _ = job.communicate(timeout=JOB_LIMIT_S + 60)
        except subprocess.TimeoutExpired:
            text = f"error: no end after {JOB_LIMIT_S} s"
        finally:
            self._end(job)
        return text, job.returncode

    def _end(self, job):
        """Tells a running job to end, and kills it if it does not."""
        if job.poll() is None:
            job.terminate()
            try:
                job.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()
        self.n_running -= 1


def debian_openmpi():
    """Compiler and launcher of Debian's Open MPI, for which its FFTW-MPI is built."""
    compiler, path = shutil.which("mpicc.openmpi"), shutil.which("mpirun.openmpi")
    if compiler is None or path is None:
        raise Absent("no mpicc.openmpi and mpirun.openmpi; " + SETUP)
    launcher = _mpi_find.identify(path)
    if launcher is None or launcher.family != "openmpi":
        raise Absent("mpirun.openmpi is not Open MPI's")
    return compiler, launcher


def any_mpi(jobs):
    """Compiler and launcher (None: `plait run`) of an MPI for building C programs."""
    beside = Path(sys.executable).parent / "mpicc"
    try:
        jobs.c_program(str(beside), "ranks", False)
    except Absent:
        return debian_openmpi()
    return str(beside), None
