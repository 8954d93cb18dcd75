"""``plait info``: what this installation and this machine offer, as a table."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from plait import _launch, _mpi_find

CPU_FEATURES = ("sse2", "avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "asimd", "sve")
THREAD_PROBE = """
from mpi4py import MPI
names = {MPI.THREAD_SINGLE: "SINGLE", MPI.THREAD_FUNNELED: "FUNNELED",
         MPI.THREAD_SERIALIZED: "SERIALIZED", MPI.THREAD_MULTIPLE: "MULTIPLE"}
print(names[MPI.Query_thread()])
"""
# A process of its own asks the library: importing JAX here would cost a second, and a package that
# cannot be imported must not keep the table from being printed.
LIBRARY_PROBE = """
import ctypes, json
from plait import _core
library = next(v for v in vars(_core).values() if isinstance(v, ctypes.CDLL))
facts = {"path": library._name}
for name in ("plait_fft1_isa", "plait_op_count"):
    function = getattr(library, name, None)
    if function:
        function.restype = ctypes.c_char_p if name.endswith("isa") else ctypes.c_int
        value = function()
        facts[name] = value.decode() if isinstance(value, bytes) else value
print(json.dumps(facts))
"""

# Names and texts of CUDA's libraries, a text for each device, and how ranks reach each other's
# memory.
CUDA_PROBE = """
import ctypes, json
from plait import _core
name, say, device = (getattr(_core.lib, "plait_cuda_" + f) for f in ("name", "say", "device_say"))
name.restype = say.restype = device.restype = ctypes.c_char_p
_core.tell_wheels()
libraries, devices = [], []
while name(len(libraries)):
    i = len(libraries)
    libraries.append((name(i).decode(), say(i).decode()))
while text := device(len(devices)):
    devices.append(text.decode())
link, links = _core.lib.plait_device_link_name, []
link.restype = ctypes.c_char_p
while text := link(len(links)):
    links.append(text.decode())
print(json.dumps((libraries, devices, links, _core.has_devices())))
"""


GPUS_PROBE = """
import json
from plait import _core, _gpus
_core.tell_wheels()
print(json.dumps(_gpus.names()))
"""
AWARE_PROBE = """
import json
from mpi4py import MPI
from plait import _core, _gpus, _world
_world.mpi()
_core.tell_wheels()
print(json.dumps(_gpus.mpi_say(0)))
"""


def read(path, otherwise="unknown"):
    """A kernel file, joined to one line."""
    try:
        return " ".join(Path(path).read_text().split()) or otherwise
    except OSError:
        return otherwise


def package(name):
    """The installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def ask(code, environment=None):
    """The last output of a Python process for `code`, or None if the process fails."""
    try:
        done = subprocess.run(
            # -P: not the current folder's modules
            [sys.executable, "-P", "-c", _mpi_find.SPEAKER + code],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return _mpi_find.what_it_said(done.stdout) if done.returncode == 0 else None


def version_rows():
    """Plait, Python and JAX."""
    yield "plait", package("plait")
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    yield "JAX", f"{package('jax')} (jaxlib {package('jaxlib')}), numpy {package('numpy')}"


def library_rows():
    """The C core."""
    text = ask(LIBRARY_PROBE)
    if text is None:
        yield "C library", "cannot be loaded: try  python -c 'import plait'"
        return
    facts = json.loads(text)
    yield "C library", f"{facts['path']}, {facts.get('plait_op_count', 'unknown')} operations"
    yield "FFT kernels", facts.get("plait_fft1_isa", "unknown")


def first_line(text):
    """The name and number in the text of MPI_Get_library_version."""
    line = text.splitlines()[0] if text else "unknown"
    return " ".join(line.replace("MPICH Version:", "MPICH").split(",")[0].split())


def mpi_rows():
    """The MPI that mpi4py loads, and its launcher."""
    try:
        mpi = _mpi_find.find_mpi()
    except _mpi_find.NoMpiError as error:
        yield "MPI", str(error)
        return
    yield "MPI", f"{first_line(mpi.version)} through mpi4py {mpi.mpi4py}"
    yield "MPI library", mpi.library
    yield "MPI ABI", mpi.abi
    try:
        launcher = _mpi_find.find_launcher(mpi)
    except _mpi_find.NoMpiError as error:
        yield "launcher", str(error)
        return
    level = ask(THREAD_PROBE, _launch.rank_environment(launcher, 1, os.environ))
    yield "thread level", level or "unknown: MPI cannot be initialised outside a launcher"
    yield "launcher", f"{launcher.path} ({launcher.family} {launcher.version})"


def gpus():
    """The CUDA devices of this machine, in words."""
    return json.loads(ask(GPUS_PROBE) or "[]")


def gpu_aware():
    """What MPI does with the memory of CUDA devices."""
    try:
        launcher = _mpi_find.find_launcher(_mpi_find.find_mpi())
    except _mpi_find.NoMpiError:
        return "no MPI"
    environment = _launch.rank_environment(launcher, 1, os.environ) | {"PLAIT_CUDA": "1"}
    said = ask(AWARE_PROBE, environment)
    return json.loads(said) if said else "unknown: MPI cannot be initialised outside a launcher"


def cuda_rows():
    """CUDA's libraries, or where they were looked for; and the devices."""
    text = ask(CUDA_PROBE)
    if text is None:
        yield "CUDA", "unknown: the C library cannot be loaded"
        return
    libraries, devices, links, accepted = json.loads(text)
    is_absent = all("was not found" in said for _, said in libraries)
    if accepted or not is_absent:
        refused = "refused: PLAIT_CUDA=0, or JAX has no CUDA plugin; PLAIT_CUDA=1 accepts them"
        yield "CUDA arrays", "accepted; PLAIT_CUDA=0 refuses them" if accepted else refused
    if is_absent:
        yield "CUDA", libraries[0][1]  # one text is enough for a machine without CUDA
        return
    for name, said in libraries:
        yield f"CUDA {name}", said
    for i, said in enumerate(devices):
        yield f"CUDA device {i}", said
    asked_for = "; nvshmem where it is chosen" if "nvshmem" in links else ""
    yield "between GPUs", f"{', '.join(links)}: the first one that all ranks have{asked_for}"
    if any(", sm_" in said for said in devices):
        yield "memory of GPUs, MPI", gpu_aware()


def cache_sizes():
    """Sizes of the caches of the first core."""
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if read(index / "type") != "Instruction":
            shared = read(index / "shared_cpu_list")
            found.append(f"L{read(index / 'level')} {read(index / 'size')} (cores {shared})")
    return ", ".join(found) or "unknown"


def cpu_facts():
    """The kernel's facts about the first core."""
    facts = {}
    for line in read_lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return facts


def cpu_flags():
    """The instruction sets of the processor."""
    facts = cpu_facts()
    return facts.get("flags", facts.get("Features", "")).split()


def cpu_rows():
    """Cores, instruction sets, caches."""
    facts, flags = cpu_facts(), cpu_flags()
    yield "CPU", facts.get("model name", platform.machine())
    yield "CPU features", " ".join(f for f in CPU_FEATURES if f in flags) or "unknown"
    yield "cores", f"{_launch.n_cores()} usable of {os.cpu_count()}"
    yield "caches", cache_sizes()


def read_lines(path):
    """The lines of a file; none if it does not exist."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def chosen(path):
    """The mode in brackets of a kernel setting such as "always [madvise] never"."""
    text = read(path)
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else text


def memory_rows():
    """Huge pages, direct access between processes, malloc."""
    pages = "/sys/kernel/mm/transparent_hugepage"
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield "memory", f"{gib:.1f} GiB"
    yield "huge pages", f"{chosen(pages + '/enabled')}, defrag {chosen(pages + '/defrag')}"
    direct = os.environ.get("PLAIT_DIRECT", "")
    can = "one-copy reads work between processes" if _launch.peers_are_readable() else "refused"
    effects = {"off": ", switched off", "read": ", reads only"}
    effect = effects.get(direct.lower(), "")
    yield "direct access", can + (f"{effect} by PLAIT_DIRECT={direct}" if effect else "")
    yield "malloc here", os.environ.get("GLIBC_TUNABLES", "") or "defaults"
    yield "malloc in plait run", _launch.tunables(os.environ.get("GLIBC_TUNABLES", ""))


def config_rows():
    """The environment variables that plait reads and that are set."""
    names = [name for name in sorted(os.environ) if name.startswith(("PLAIT_", "MPI4PY_"))]
    yield "set in the environment", ", ".join(f"{n}={os.environ[n]}" for n in names) or "nothing"


def rows():
    """Every row of the table, a blank one between its parts."""
    parts = (
        *(version_rows, library_rows, mpi_rows, cuda_rows),
        *(cpu_rows, memory_rows, config_rows),
    )
    for part in parts:
        yield from part()
        yield "", ""


def report():
    """The whole table as text."""
    table = list(rows())[:-1]
    width = max(len(name) for name, _ in table)
    margin = "\n" + " " * (width + 2)
    lines = [f"{name:<{width}}  {value.replace(chr(10), margin)}" for name, value in table]
    return "\n".join(line.rstrip() for line in lines)
