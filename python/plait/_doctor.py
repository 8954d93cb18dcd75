"""``plait doctor``: what is slow or wrong on this machine, and how to fix it."""

import ctypes
import functools
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from plait import (
    _core,
    _finding,
    _gpu_aware,
    _info,
    _launch,
    _mpi_find,
    _trace_file,
    _variables,
    _versions,
    _world,
)
from plait._finding import ERROR, MARK, NOTE, OK, WARNING, Finding

TEST_S = 120
SMALL_BYTES = 8
SLOW_SMALL_S = 100e-6  # fifty times what two ranks on two idle cores take
SLOW_LARGE = 12.0  # in copies; direct access takes 2, MPI's own copies 6
SHARED_MIN = 256 << 20
SHARED_LEFT_OVER = 64 << 20
LOCK_MIN = 1 << 30
HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"

# OpenBLAS by the name of the kernels that it chose, the best last.
BLAS_PROBE = """
import ctypes
import scipy.linalg
paths = sorted({l.split(None, 5)[5].strip() for l in open("/proc/self/maps") if "openblas" in l})
names = [p + "openblas_get_corename" + s for p in ("scipy_", "") for s in ("", "64_")]
for path in [p for p in paths if "scipy.libs" in p] or paths:
    library = ctypes.CDLL(path)
    for name in names:
        function = getattr(library, name, None)
        if function:
            function.restype = ctypes.c_char_p
            print(function().decode())
            raise SystemExit
print("")
"""
BLAS_WITHOUT_AVX2 = ("prescott", "core2", "penryn", "nehalem", "sandybridge", "generic", "atom")


# ---- what is installed ---------------------------------------------------------------------


def check_library() -> Iterator[Finding]:
    """The C core, and the JAX that it is used with."""
    facts = _info.ask(_info.LIBRARY_PROBE)
    if facts is None:
        mend = f"{sys.executable} -c 'import plait'   # says why"
        yield Finding(ERROR, "C library", "a new process cannot load it", mend)
        return
    facts = json.loads(facts)
    yield Finding(OK, "C library", f"{facts['path']}, kernels {facts.get('plait_fft1_isa')}")
    lowered = os.environ.get("PLAIT_ISA", "")
    if lowered:
        seen = f"PLAIT_ISA={lowered} chooses slower kernels than the processor has"
        yield Finding(NOTE, "FFT kernels", seen, "unset PLAIT_ISA")
    jax, mend = _info.package("jax"), f"pip install '{_versions.SPEC}'"
    if _versions.numbers(jax) < _versions.numbers(_versions.OLDEST):
        yield Finding(ERROR, "JAX", f"{jax} is too old", mend)
    elif not _versions.is_tested(jax):
        seen = f"{jax} is newer than {_versions.NEWEST}, the newest that was tested"
        yield Finding(NOTE, "JAX", seen, mend)


def check_mpi() -> Iterator[Finding]:
    """One MPI, and a launcher that belongs to it."""
    try:
        _mpi_find.refuse_two(_mpi_find.installed_wheels())
    except _mpi_find.NoMpiError as error:
        seen, _, mend = str(error).partition("Keep one:\n  ")
        yield Finding(ERROR, "MPI", seen.strip(), mend)
        return
    try:
        mpi = _mpi_find.find_mpi()
    except _mpi_find.NoMpiError as error:
        seen, _, _ = str(error).partition("\n")
        variable = "MPI4PY_MPIABI" if os.environ.get("MPI4PY_MPIABI") else ""
        mend = f"unset {variable}" if variable else "pip install 'plait[mpi]'"
        is_wanted = "MPI4PY_LIBMPI" in os.environ or variable
        yield Finding(ERROR if is_wanted else NOTE, "MPI", seen, mend)
        return
    yield Finding(OK, "MPI", f"{_info.first_line(mpi.version)} through mpi4py {mpi.mpi4py}")
    yield from check_launcher(mpi)


def check_launcher(mpi: _mpi_find.Mpi) -> Iterator[Finding]:
    """The launcher that plait run takes, and the launcher that a user gets by its name."""
    try:
        launcher = _mpi_find.find_launcher(mpi)
    except _mpi_find.NoMpiError as error:
        seen, _, mend = str(error).partition("\n")
        yield Finding(ERROR, "launcher", seen, mend)
        return
    first = shutil.which("mpiexec")
    other = _mpi_find.identify(first) if first else None
    if other is not None and other.family != mpi.family:
        seen = f"mpiexec on PATH ({first}) is {other.family}'s, mpi4py loads {mpi.family}"
        mend = f"plait run -n N …   or   {launcher.path} -n N …"
        yield Finding(WARNING, "launcher", seen, mend)
    else:
        yield Finding(OK, "launcher", f"{launcher.path} ({launcher.family} {launcher.version})")


def check_surroundings() -> Iterator[Finding]:
    """Whether a launcher started this very process, and switches that cost time."""
    size, variable = _world.launcher_size()
    if size > 1:
        seen = f"started as one of {size} ranks ({variable}); each of them prints this"
        yield Finding(NOTE, "started by", seen, "plait doctor   # alone, on the node")
        try:
            _world.check_environment()
        except RuntimeError as error:
            yield Finding(ERROR, "started by", str(error), "plait run -n N …")
    costly = {
        "PLAIT_DEBUG": ("two lines per operation", _core.is_on(b"PLAIT_DEBUG")),
        "PLAIT_TRACE": ("a trace", _trace_file.asked_for(os.environ)),
    }
    for name, (effect, is_set) in costly.items():
        if is_set:
            yield Finding(NOTE, name, f"is set: {effect} for every run", f"unset {name}")
    for name, meant in _variables.strange(os.environ):
        mend = f"export {meant}={os.environ[name]}" if meant else f"unset {name}"
        yield Finding(WARNING, name, "plait reads no variable of this name", mend)
    if not _core.record_folders():
        mend = "unset PLAIT_FLIGHT"
        yield Finding(NOTE, "flight recorder", "is in memory only, as PLAIT_FLIGHT says", mend)


# ---- the machine ---------------------------------------------------------------------------


def quota() -> float | None:
    """Cores that the control group allows, if it limits them."""
    limit, _, period = _info.read("/sys/fs/cgroup/cpu.max", "").partition(" ")
    return float(limit) / float(period) if limit.isdigit() and period.isdigit() else None


def check_cores() -> Iterator[Finding]:
    """How many ranks this machine has room for."""
    n, limit = _launch.n_cores(), quota()
    seen = f"{n} usable of {os.cpu_count()}"
    if limit is not None and limit < n:
        mend = f"at most {max(1, int(limit))} ranks, or a larger limit (docker run --cpus, cpu.max)"
        yield Finding(WARNING, "cores", f"{seen}, but a limit of {limit:g} cores' time", mend)
    elif n == 1:
        mend = "one rank; more ranks than cores wait for each other's time slices"
        yield Finding(WARNING, "cores", f"{seen}: ranks share it", mend)
    else:
        yield Finding(OK, "cores", f"{seen}: up to {n} ranks")
    governor = _info.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "")
    if governor == "powersave" and "intel_pstate" not in _info.read(
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", ""
    ):
        mend = "cpupower frequency-set -g performance"
        yield Finding(WARNING, "clock rate", "the governor is powersave", mend)


def in_container() -> bool:
    """Whether this looks like a container."""
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(map(os.path.exists, marks)) or "container" in os.environ


def check_direct() -> Iterator[Finding]:
    """Whether ranks can read each other's memory."""
    wanted = os.environ.get("PLAIT_DIRECT", "")
    if wanted.lower() == "off":
        seen = f"switched off by PLAIT_DIRECT={wanted}"
        yield Finding(WARNING, "direct access", seen, "unset PLAIT_DIRECT")
    elif _launch.peers_are_readable():
        yield Finding(OK, "direct access", "processes can read each other's memory")
    else:
        scope = _info.read("/proc/sys/kernel/yama/ptrace_scope", "none")
        seen = f"refused (ptrace_scope {scope}): large messages are copied twice or more"
        mends = []
        if scope.isdigit() and int(scope) > 1:
            mends.append("sysctl kernel.yama.ptrace_scope=1   # as root")
        if in_container() or not mends:
            mends.append("docker run --cap-add=SYS_PTRACE …   # in a container")
        mends.append("export MPIR_CVAR_CH4_CMA_ENABLE=0   # otherwise, for MPICH without plait run")
        yield Finding(WARNING, "direct access", seen, "\n".join(mends))


def has_no_huge_pages_here() -> bool:
    """Whether huge pages were switched off for this process (PR_GET_THP_DISABLE)."""
    return ctypes.CDLL(None).prctl(42, 0, 0, 0, 0) == 1


def check_huge_pages() -> Iterator[Finding]:
    """Without huge pages, fresh results of JAX are slower the more pages they have."""
    mode = _info.chosen(HUGE)
    if mode == "never":
        seen = "never: a new 64 MiB result costs 16384 page faults, up to ten times its copying"
        yield Finding(WARNING, "huge pages", seen, f"echo madvise > {HUGE}   # as root")
    elif mode == "unknown":
        yield Finding(NOTE, "huge pages", "this kernel has none, or does not show them")
    elif has_no_huge_pages_here():
        seen = "switched off for this process (PR_SET_THP_DISABLE), by a parent or a job system"
        yield Finding(WARNING, "huge pages", seen, "ask for a job without it")
    else:
        yield Finding(OK, "huge pages", mode)
    libc, number = platform.libc_ver()
    if libc == "glibc" and tuple(map(int, number.split(".")[:2])) < (2, 35):
        seen = (
            f"glibc {number} has no glibc.malloc.hugetlb: arrays of JAX's own stay in small pages"
        )
        yield Finding(NOTE, "malloc", seen)


def check_blas() -> Iterator[Finding]:
    """OpenBLAS takes processors that it does not know for very old ones."""
    kernels = _info.ask(BLAS_PROBE)
    if not kernels:
        yield Finding(NOTE, "BLAS", "SciPy's is not OpenBLAS, or SciPy is not installed")
        return
    flags = _info.cpu_flags()
    if "avx2" in flags and kernels.lower() in BLAS_WITHOUT_AVX2:
        better = "SkylakeX" if "avx512f" in flags else "Haswell"
        seen = f"SciPy's OpenBLAS runs its {kernels} kernels, the processor has AVX2"
        yield Finding(WARNING, "BLAS", seen, f"export OPENBLAS_CORETYPE={better}")
    else:
        yield Finding(OK, "BLAS", f"SciPy's OpenBLAS with {kernels} kernels")


def check_limits() -> Iterator[Finding]:
    """Locked memory, which networks need, and shared memory, which ranks of a node need."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    text = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
    has_fabric = bool(list(Path("/sys/class/infiniband").glob("*")))
    is_small = soft != resource.RLIM_INFINITY and soft < LOCK_MIN
    if has_fabric and is_small:
        mend = "ulimit -l unlimited   # or: memlock in /etc/security/limits.conf"
        yield Finding(WARNING, "locked memory", f"{text}: the network cannot register it", mend)
    else:
        seen = text + (": enough without a fast network" if is_small else "")
        yield Finding(OK, "locked memory", seen)
    yield from check_shared_memory()


def mapped() -> set[str]:
    """Files in /dev/shm that processes of this user have mapped."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            found |= set(re.findall(r"(/dev/shm/\S+)", maps.read_text()))
        except OSError:
            continue  # another user's, or ended
    return found


def left_over() -> tuple[int, list[str]]:
    """Bytes and names of segments that MPI jobs of this user have left behind."""
    names = ("mpich_shm_*", "vader_segment.*", "sm_segment.*", "psm2_shm.*")
    files = [f for name in names for f in Path("/dev/shm").glob(name)]
    used, n_bytes, found = mapped(), 0, []
    for file in files:
        try:
            info = file.stat()
        except OSError:
            continue
        if info.st_uid == os.geteuid() and str(file) not in used:
            n_bytes += info.st_blocks * 512
            found.append(str(file))
    return n_bytes, found


def check_shared_memory() -> Iterator[Finding]:
    """The file system that ranks of one node share."""
    try:
        space = os.statvfs("/dev/shm")
    except OSError:
        yield Finding(
            ERROR, "shared memory", "there is no /dev/shm", "mount -t tmpfs tmpfs /dev/shm"
        )
        return
    free, whole = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    if not os.access("/dev/shm", os.W_OK):
        mend = "mount -o remount,rw /dev/shm   # as root"
        yield Finding(ERROR, "shared memory", "/dev/shm cannot be written", mend)
        return
    seen = f"{free >> 20} MiB free of {whole >> 20} MiB in /dev/shm"
    n_bytes, files = left_over()
    if n_bytes > SHARED_LEFT_OVER:
        kinds = sorted({re.sub(r"[_.][0-9a-f.]+.*$", "", os.path.basename(f)) for f in files})
        yield Finding(
            NOTE,
            "shared memory",
            f"{len(files)} files of {n_bytes >> 20} MiB in /dev/shm that killed jobs left behind",
            f"rm {' '.join(f'/dev/shm/{kind}*' for kind in kinds)}   # while no job runs",
        )
    if free < SHARED_MIN:
        mend = "docker run --shm-size=2g …   # or free some"
        yield Finding(WARNING, "shared memory", seen, mend)
    else:
        yield Finding(OK, "shared memory", seen)


# ---- the self-test -------------------------------------------------------------------------


def run_test(n_ranks: int) -> tuple[dict | None, str]:
    """The figures of `n_ranks` ranks, or their error text."""
    command = [sys.executable, "-m", "plait", "run", "-n", str(n_ranks)]
    command += ["--timeout", str(TEST_S), "-m", "plait._selftest"]
    done = _launch.run_captured(command, TEST_S + 30)
    for line in done.stdout.splitlines():
        _, mark, figures = line.partition(MARK)
        if mark and done.returncode == 0:
            return json.loads(figures), ""
    return None, done.stderr or done.stdout


def check_test() -> Iterator[Finding]:
    """Two ranks: right results, and figures."""
    n_ranks = 2
    try:
        report, said = run_test(n_ranks)
    except subprocess.TimeoutExpired:
        report, said = None, f"no end after {TEST_S} s"
    if report is None:
        last = "\n".join(said.strip().splitlines()[-6:])
        mend = f"plait run -n {n_ranks} -m plait._selftest   # shows all of it"
        yield Finding(ERROR, "self-test", f"{n_ranks} ranks failed:\n{last}", mend)
        return
    yield from judge_ranks(report)
    yield from judge_figures(report)


def judge_ranks(report: dict) -> Iterator[Finding]:
    """Judges what the ranks report about themselves."""
    ranks = report["ranks"]
    wrong = [r for r, facts in enumerate(ranks) if not facts["right"]]
    if wrong:
        seen = f"wrong results on rank {', '.join(map(str, wrong))}"
        mend = "please report it with the output of: plait info"
        yield Finding(ERROR, "self-test", seen, mend)
    else:
        way = f"{report['transport']}, {report['direct']}"
        yield Finding(OK, "self-test", f"{len(ranks)} ranks, right results; by {way}")
    if report["thread"] not in ("MULTIPLE", "SERIALIZED"):
        seen = f"{report['thread']}: plait calls MPI from XLA's threads"
        mend = "unset MPI4PY_RC_THREAD_LEVEL   # or mpi4py.rc.thread_level = 'multiple'"
        yield Finding(ERROR, "thread level", seen, mend)
    elif report["thread"] == "SERIALIZED":
        seen = "SERIALIZED: mpi4py calls of your own in other threads are unsafe"
        mend = "mpi4py.rc.thread_level = 'multiple'   # before importing mpi4py.MPI"
        yield Finding(NOTE, "thread level", seen, mend)
    else:
        yield Finding(OK, "thread level", report["thread"])
    for rank, facts in enumerate(ranks):
        if len(facts["libraries"]) > 1:
            seen = f"rank {rank} has two: {' and '.join(facts['libraries'])}"
            yield Finding(ERROR, "MPI libraries", seen, "unset LD_PRELOAD and LD_LIBRARY_PATH")
    cores = [facts["cores"] for facts in ranks]
    if all(c == cores[0] for c in cores) and len(cores[0]) == 1 and (os.cpu_count() or 1) > 1:
        seen = f"all ranks are bound to core {cores[0][0]}"
        mend = "mpiexec --bind-to none …   or   srun --cpu-bind=none …   or   plait run"
        yield Finding(ERROR, "binding", seen, mend)


def judge_figures(report: dict) -> Iterator[Finding]:
    """Compares times with what a machine of this kind should reach."""
    small, large = report["small_s"], report["large_s"]
    copies = large / min(facts["copy_s"] for facts in report["ranks"])
    rate = (64 << 20) / large / 1e9
    is_crowded = len(report["ranks"]) > _launch.n_cores()
    seen = f"{small * 1e6:.1f} us for an allreduce of {SMALL_BYTES} B in a compiled loop"
    mend = "one core for each rank, nothing else running; then again"
    slow = small > SLOW_SMALL_S
    yield Finding(WARNING if slow else OK, "latency", seen, mend if slow and not is_crowded else "")
    seen = f"{rate:.1f} GB/s for an allreduce of 64 MiB: {copies:.1f} times a copy of it"
    slow = copies > SLOW_LARGE
    mend = "see direct access and huge pages above" if slow else ""
    yield Finding(WARNING if slow else OK, "bandwidth", seen, mend)


CHECKS = (
    check_library,
    check_mpi,
    check_surroundings,
    check_cores,
    check_direct,
    check_huge_pages,
    check_blas,
    check_limits,
)


def run(has_test: bool = True, launcher: str = "") -> int:
    """Prints the findings as they come; 1 if there is an error among them.

    launcher: starts the ranks that prove what MPI does with GPUs; empty: `plait run`.
    """
    found: list[Finding] = []

    def show(check: Callable[[], Iterator[Finding]]) -> None:
        for finding in check():
            found.append(finding)
            print("\n".join(_finding.lines([finding])), flush=True)

    for check in CHECKS:
        show(check)
    has_launcher = any(f.subject == "launcher" for f in found)
    if has_test and has_launcher and not any(f.severity == ERROR for f in found):
        show(check_test)
        show(functools.partial(_gpu_aware.check, launcher))
    print()
    print(_finding.verdict(found))
    return int(any(f.severity == ERROR for f in found))
