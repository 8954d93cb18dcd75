#!/usr/bin/env python3
"""Build programs of tests/c and run them under each MPI of this machine.

    run_mpi.py [--build DIR] [--objects DIR] [--only NAME] [--ranks N ...] [--nodes N] [--quick]
               [--cc CC] [--flags ...] [program.c ...]

MPIs: the wheels in this interpreter's environment and in those that PLAIT_TEST_VENVS names
(separated by colons), both ABIs of each, and Debian's. The sources are compiled here, without
CMake, so that any compiler and sanitizer can be asked for; or their objects are taken from a build
folder of CMake (--objects). Exit code: the number of failures.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ["mpi_transport.c", "mpi_coll.c", "mpi_device.c", "mpi_started.c", "mpi_hosts.c"]
PROGRAMS += ["mpi_large.c", "mpi_guard.c", "mpi_left.c"]
# What is linked besides the transports, and how. With the guard only what is about it: others
# have waits which never end, or end them themselves.
WRAPPED = ("plait_exec_plan", "plait_mpi_exchange", "plait_mpi_sendrecv", "plait_mpi_symbol")
LINKED = ",".join(["-Wl", "-E", *(f"--wrap={w}" for w in WRAPPED)])  # -E: for stand-ins
WITH = {
    "mpi_device": ("tests/c/check_device*.c", LINKED),
    "mpi_started": ("tests/c/check_device*.c", "-Wl,-E"),
    "mpi_guard": ("src/guard/*.c", "-Wl,-E"),
    "mpi_left": ("src/guard/*.c", "-Wl,--wrap=plait_alloc"),
}
# Stand-ins of libraries that are opened at run time, in the folder PLAIT_TEST_FAKES.
FAKES = {"libnvshmem_host.so.3": "fake_nvshmem.c"}
ONLY = {
    "mpi_large": (2, 1),
    "mpi_guard": (3, 1),
    "mpi_left": (2, 1),
}  # ranks and nodes that programs are for
ONE_ABI = ["mpi_guard", "mpi_left"]  # whose time is waits, and nothing in them is the ABI's
NOT_ALIKE = ["mpi_device"]  # two nodes alike are among 2 ranks too, and two ranks of one on 3 nodes
ONLY_FEW = ["mpi_hosts", "mpi_started"]  # each of whose ranks is several threads
# A quick run: so many ranks and nodes, and what is then left to one ABI, or to one MPI.
QUICK = [(2, 1), (3, 1), (4, 3)]
QUICK_OF_FEW = [(2, 1), (2, 2)]  # of NOT_ALIKE and ONLY_FEW
ONE_ABI_QUICK = ["mpi_device", "mpi_started", "mpi_hosts", "mpi_large"]
ONE_MPI_QUICK = ["mpi_large"]
SOURCES = [
    "base/*.c",
    "kernel/blas*.c",
    "kernel/reduce*.c",
    "device/[!c]*.c",  # CUDA is the library's: its kernels are made a part of it by CMake
    "device/cuda_load.c",
    "device/cuda_nvshmem.c",
    "transport/*.c",
    "comm/comm.c",
    "comm/place.c",
    "plan/*.c",
    "coll/*.c",
    "dense/dealt.c",
    "dense/fan.c",
    "api/coll.c",
]
FLAGS = (
    "-std=c11 -O2 -g -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wconversion -Wshadow "
    "-Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror"
).split()
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
LIMIT_S = 300
STARTED = "MPI has started\n"  # what every rank says after MPI_Init_thread (mpi_host.h)
START_LIMIT_S = 60
LAUNCHES = 3


def mpis():
    """Yield (name, launcher, library, variables) of each MPI found."""
    venvs = [sys.prefix, *filter(None, os.environ.get("PLAIT_TEST_VENVS", "").split(":"))]
    for venv in map(Path, venvs):
        launcher = venv / "bin" / "mpiexec"
        for library in ("libmpi.so.12", "libmpi_abi.so.1", "libmpi.so.40"):
            path = venv / "lib" / library
            if launcher.exists() and path.exists():
                is_open = library == "libmpi.so.40"
                extra = OPEN_MPI | {"OMPI_MCA_btl": "self,sm"} if is_open else {}
                yield f"{venv.name}/{library}", launcher, path, extra
    for launcher, library, extra in (
        ("/usr/bin/mpirun.mpich", "libmpich.so.12", {}),
        (
            "/usr/bin/mpirun.openmpi",
            "libmpi.so.40",
            OPEN_MPI | {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"},
        ),
    ):
        for path in Path("/usr/lib").glob(f"*/{library}"):
            if Path(launcher).exists():
                yield f"debian/{library}", Path(launcher), path, extra


def is_left_out(name: str, library: Path, extra: dict, is_quick: bool) -> bool:
    """Whether a program is not run with this MPI: another has shown the same."""
    one_abi = ONE_ABI + (ONE_ABI_QUICK if is_quick else [])
    is_second = library.name == "libmpi_abi.so.1"
    return (is_second and name in one_abi) or bool(is_quick and extra and name in ONE_MPI_QUICK)


def runs(
    name: str, library: Path, extra: dict, ranks: list[int] | None, nodes: int | None
) -> list[tuple[int, int]]:
    """Return the pairs (ranks, nodes) to run; MPICH can pretend that there are several nodes."""
    if name in ONLY:
        n, on = ONLY[name]
        return [(n, on)] if (not ranks or n in ranks) and nodes in (None, on) else []
    if ranks:
        return [(n, nodes or 1) for n in ranks]
    # MPICH with more ranks than cores is a hundred times slower
    pairs = [(n, 1) for n in ([1, 2, 3, 5] if extra else [1, 2])]
    if not extra and library.name != "libmpi_abi.so.1":
        # not (3, 2): one launch of ten stays in MPI_Init_thread (MPICH 5.0.2)
        pairs += [(2, 2), (4, 2), (4, 3)]
    return [pair for pair in pairs if nodes in (None, pair[1])]


def sources() -> list[Path]:
    """The transports and what they need."""
    return [p for pattern in SOURCES for p in sorted((ROOT / "src").glob(pattern))]


def compiled_in(build: Path) -> list[str]:
    """Their objects in a build folder of CMake."""
    folder = build / "CMakeFiles" / "plait_objects.dir"
    return [str(folder / f"{p.relative_to(ROOT)}.o") for p in sources()]


def compile_all(folder: Path, compiler: str, flags: list[str]) -> list[str]:
    """Compile them, as many files at once as there are cores."""
    source = ROOT / "src"
    files = sources()
    objects = [str(folder / f"{p.parent.name}_{p.stem}.o") for p in files]
    command = [compiler, *FLAGS, *flags, f"-I{ROOT}/include", f"-I{source}", "-c"]

    def compile_one(file: Path, out: str) -> None:
        subprocess.run([*command, str(file), "-o", out], check=True)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, files, objects))
    return objects


def build(program: Path, folder: Path, compiler: str, flags: list[str], objects: list[str]) -> Path:
    """Compile the program and link it with the transports; return its path."""
    out = folder / program.stem
    folders = [f"-I{path}" for path in (ROOT / "include", ROOT / "src", program.parent)]
    libraries = ["-ldl", "-lpthread", "-lm"]
    sources = [str(program), str(program.parent / "no_cuda.c")]
    if program.stem in WITH:
        pattern, option = WITH[program.stem]
        sources += [option, *map(str, sorted(ROOT.glob(pattern)))]
    subprocess.run(
        [compiler, *FLAGS, *flags, *folders, *sources, *objects, "-o", str(out), *libraries],
        check=True,
    )
    return out


def build_fakes(folder: Path, compiler: str, flags: list[str]) -> Path:
    """Build the stand-ins; return where they are."""
    here, fakes = Path(__file__).parent, folder / "fakes"
    fakes.mkdir(exist_ok=True)
    for library, source in FAKES.items():
        folders = [f"-I{path}" for path in (ROOT / "include", ROOT / "src", here)]
        made = ["-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", str(fakes / library)]
        subprocess.run([compiler, *FLAGS, *flags, *folders, str(here / source), *made], check=True)
    return fakes


def show_stacks(program: str) -> None:
    """Print where each thread of each process of the program is, if there is a gdb."""
    gdb = shutil.which("gdb")
    for folder in Path("/proc").glob("[0-9]*") if gdb else []:
        try:
            is_one = os.readlink(folder / "exe") == program
        except OSError:
            is_one = False
        if is_one:
            look = [gdb, "-batch", "-nx", "-p", folder.name, "-ex", "thread apply all bt 12"]
            with contextlib.suppress(subprocess.TimeoutExpired):
                shown = subprocess.run(look, capture_output=True, timeout=60, check=False)
                print(f"process {folder.name}\n{shown.stdout.decode(errors='replace')}", flush=True)


def launch(command: list[str], env: dict[str, str], ranks: int) -> int | None:
    """Run the command; its exit code, or None where MPI itself did not start on all ranks."""
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    n_started = 0
    begun = time.monotonic()

    def end_late():
        while process.poll() is None:
            limit = LIMIT_S if n_started >= ranks else START_LIMIT_S
            if time.monotonic() - begun > limit:
                show_stacks(command[-1])
                os.killpg(process.pid, signal.SIGKILL)
                print(f"no end after {limit} s, MPI started on {n_started} ranks", flush=True)
                break
            time.sleep(0.1)

    watch = threading.Thread(target=end_late)
    watch.start()
    for line in process.stdout:
        text = line.decode(errors="replace")
        n_started += text.count(STARTED.strip())
        print(text.replace(STARTED, ""), end="", flush=True)
    process.wait()
    watch.join()
    return process.returncode if n_started >= ranks else None


def run(
    title: str, launcher: Path, library: Path, extra: dict, ranks: int, nodes: int, program: Path
) -> bool:
    """Run the program; print what it says. An MPI that did not start is launched again."""
    env = os.environ | extra | {"PLAIT_TEST_LIBMPI": str(library), "OMP_NUM_THREADS": "1"}
    if nodes > 1:
        # Receives from any source hang in MPICH 5.0.2 over UCX and shared memory together.
        env |= {"MPIR_CVAR_NUM_CLIQUES": str(nodes), "MPIR_CVAR_CH4_NETMOD": "ofi"}
        env["PLAIT_TEST_NODES"] = str(nodes)
    print(f"--- {title}, {ranks} ranks", flush=True)
    code, begun = None, time.monotonic()
    for _ in range(LAUNCHES):
        if code is None:
            code = launch([str(launcher), "-n", str(ranks), str(program)], env, ranks)
    print(f"    {time.monotonic() - begun:.1f} s", flush=True)
    return code == 0


def main() -> int:
    """Run all, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).parent
    default = [here / name for name in PROGRAMS]
    parser.add_argument("programs", nargs="*", default=default, type=Path)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--objects", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--ranks", type=int, nargs="*")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"))
    parser.add_argument("--flags", default="")
    options = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder, flags = options.build or Path(scratch), options.flags.split()
        objects = (
            compiled_in(options.objects)
            if options.objects
            else compile_all(folder, options.cc, flags)
        )
        fakes = build_fakes(folder, options.cc, flags)
        for source in options.programs:
            program = build(source.resolve(), folder, options.cc, flags, objects)
            for turn, (name, launcher, library, extra) in enumerate(mpis()):
                if options.only not in name or is_left_out(
                    program.name, library, extra, options.quick
                ):
                    continue
                variables = extra | {"PLAIT_TEST_TURN": str(turn), "PLAIT_TEST_FAKES": str(fakes)}
                asked = options.ranks, options.nodes
                is_few = program.name in NOT_ALIKE + ONLY_FEW
                for n, nodes in runs(program.name, library, extra, *asked):
                    is_asked = options.ranks is not None
                    if program.name in NOT_ALIKE and not is_asked and (n, nodes) == (4, 2):
                        continue
                    if program.name in ONLY_FEW and not is_asked and n not in (2, 3):
                        continue
                    some = QUICK_OF_FEW if is_few else QUICK
                    if options.quick and program.name not in ONLY and (n, nodes) not in some:
                        continue
                    title = f"{name} {program.name}" + (f" on {nodes} nodes" if nodes > 1 else "")
                    if not run(title, launcher, library, variables, n, nodes, program):
                        failed.append(f"{title} n{n}")
    print("failed: " + ", ".join(failed) if failed else "all passed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
