"""The test matrix on one GPU: what runs on it alone, and by two processes that share it.

test_gpu.py [STAGE...]     these stages, or each, in their order:

c      the C tests of the device, also by ranks that share it, and by compute-sanitizer
one    every test of Python that passes on one CPU device, on the GPU
two    those of two processes
ways   those of redistributions, transforms and halos by each way that memory can take from one
       process to the other: staged, by messages, through memory of XLA's other allocators, NCCL
       and NVSHMEM; MPI with addresses of GPUs where PLAIT_TEST_UCX is a folder of UCX's libraries
       with CUDA, for an MPI that goes by UCX
ends   processes that do wrong things, or end while the other one's stream waits for them

It needs a Python with plait, the packages of its tests and jax[cuda13] or [cuda12]; C tests come
from the folder --programs. It runs --jobs jobs at once; logs are in build/gpu. Ends with 1 if
anything failed.

NCCL and NVSHMEM want a GPU for each process. With only one GPU, NCCL is told that the two processes
are on different hosts, so it uses sockets. NVSHMEM is told that they share the GPU by a server for
several processes. Then the results are right, but say nothing about speed.
"""

import argparse
import concurrent.futures
import dataclasses
import glob
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import run_tests
from outcomes import ROOT

LOGS = ROOT / "build" / "gpu"
MPI_TESTS = ROOT / "tests" / "python" / "mpi"
C_TESTS = "load api device share fft reduce tile solver mg coll exec".split()
C_FAMILIES = "dense factor heevd potrf potrs tsqr".split()
# Tests of a CPU, of the command line or of several devices are left out.
MODULES = (
    "async checkpoint collectives contexts dealt deblur eager explain fft* foreign generated halo "
    "io jax* kriging linalg* manual many_steps nbody observe order persistent_cache rank "
    "redistribute region shapes spectral start taylor_green trigonometric tune"
).split()
TWO = (
    "collectives compat generated gradients io linalg mesh neighbor observe p2p rank start".split()
)
BY_MPI = {"PLAIT_TRANSPOSE_COMM_BACKEND": "MPI", "PLAIT_HALO_COMM_BACKEND": "MPI"}
PYTEST = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
SKIPPED = 77  # exit code of skipped C tests
BEHIND_SERVER = "#!/bin/sh\ncat >/dev/null\necho 1\n"  # a server's answer to get_server_list
telling = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Job:
    """A command with its time limit."""

    name: str
    command: list
    limit_s: int = 200
    environment: dict = dataclasses.field(default_factory=dict)

    def run(self):
        """Runs the command, reports how it ended, and returns whether it failed."""
        start = time.monotonic()
        code, log = run_tests.run(self.name, self.command, self.limit_s, self.environment, LOGS)
        word = {0: "passed", SKIPPED: "skipped", None: "NOT FINISHED"}.get(code, f"FAILED ({code})")
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        with telling:
            took, last = time.monotonic() - start, (lines or [""])[-1]
            print(f"{self.name:24} {word:13} {took:4.0f} s  {last[:120]}", flush=True)
            if code not in (0, SKIPPED):
                print("\n".join(f"    {line[:200]}" for line in lines[-12:]), flush=True)
        return code not in (0, SKIPPED)


def on_two(name, *tests, limit_s=300, **environment):
    """A job of two processes, each of which runs every test."""
    launcher = [sys.executable, "-m", "plait", "run", "-n", 2, sys.executable, "-m", "mpi4py"]
    files = [MPI_TESTS / f"test_{test}_mpi.py" for test in tests]
    environment = {"PLAIT_LOG": "info", **environment}  # shows which way was taken
    return Job(f"two_{name}", [*launcher, *PYTEST, *files], limit_s, environment)


def stage_c(options):
    """Programs of tests/c."""
    folder, quick = options.programs, {"OPENBLAS_NUM_THREADS": "1", "PLAIT_TEST_QUICK": "1"}
    jobs = [Job(f"c_{name}", [folder / f"test_cuda_{name}"]) for name in C_TESTS]
    jobs += [Job(f"c_{name}", [folder / f"test_{name}", "cuda"], 300, quick) for name in C_FAMILIES]
    if shutil.which("compute-sanitizer"):
        judge = ["compute-sanitizer", "--error-exitcode", "1", "--tool"]
        jobs += [
            Job(f"{tool}_{name}", [*judge, tool, folder / f"test_cuda_{name}"], 300, quick)
            for tool in ("memcheck", "racecheck")
            for name in ("device", "reduce", "tile", "solver")
        ]
    return [job for job in jobs if next(p for p in job.command if "test_" in str(p)).exists()]


def modules():
    """The test files for one process."""
    found = [glob.glob(f"tests/python/test_{name}.py", root_dir=ROOT) for name in MODULES]
    return sorted({file for files in found for file in files})


def spread(n):
    """Arguments of pytest for so many processes, if it supports them."""
    has_xdist = importlib.util.find_spec("xdist") is not None
    return ["-n", n, "--dist", "worksteal"] if has_xdist else []


def stage_one(options):
    """Tests that pass on one CPU device; meshes of several then have one along each axis."""
    fitted = {"PLAIT_TEST_FIT": "1"}
    if not options.passed.exists():
        cpu = {"PLAIT_TEST_DEVICES": "1", "PLAIT_TEST_PLATFORM": "cpu", "JAX_PLATFORMS": "cpu"}
        cpu |= fitted | {"PLAIT_TEST_PASSED": str(options.passed)}
        command = [sys.executable, *PYTEST, "--tb=no", *spread(os.cpu_count()), *modules()]
        Job("one_cpu", command, 2400, cpu).run()  # most failures need more devices
    only = fitted | {"PLAIT_TEST_ONLY": str(options.passed)}
    n = max(1, os.cpu_count() - 2 * options.jobs)
    return [Job("one_gpu", [sys.executable, *PYTEST, *spread(n), *modules()], 1200, only)]


def stage_two(_):
    """One GPU, two processes."""
    return [on_two(name, name) for name in TWO]


def stage_ways(options):
    """Each way except the usual one."""
    jobs = [
        on_two("staged", "mesh", **BY_MPI),
        on_two("messages", "p2p", "gradients", PLAIT_DIRECT="off"),
        on_two("virtual_memory", "mesh", "collectives", XLA_PYTHON_CLIENT_ALLOCATOR="vmm"),
        on_two("async_memory", "mesh", "collectives", XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async"),
    ]
    for backend, environment in (("NCCL", apart()), ("NVSHMEM", sharing(options.folder))):
        chosen = dict.fromkeys(BY_MPI, backend)
        if n_gpus() > 1:
            environment = {"PLAIT_TEST_DEVICE": "own"}
        jobs.append(on_two(backend.lower(), "mesh", **chosen, **environment))
        jobs.append(ends(f"by_{backend.lower()}", "begun", **chosen, **environment))
    if "PLAIT_TEST_UCX" in os.environ:
        by_ucx = {"LD_LIBRARY_PATH": os.environ["PLAIT_TEST_UCX"], "PLAIT_GPU_AWARE": "force"}
        by_ucx |= {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx"}
        jobs.append(Job("ucx_doctor", [sys.executable, "-m", "plait", "doctor"], 200, by_ucx))
        jobs.append(on_two("ucx", "mesh", **BY_MPI, **by_ucx))
        jobs.append(on_two("ucx_messages", "p2p", **by_ucx, PLAIT_DIRECT="off"))
    return jobs


def ends(name, chosen, **environment):
    """A job of test_faults.py."""
    command = [sys.executable, *PYTEST, "tests/python/test_faults.py", "-k", chosen]
    return Job(f"ends_{name}", command, 400, environment)


def stage_ends(_):
    """By the usual way."""
    return [ends("begun", "begun"), ends("faults", "survive or one_rank"), ends("mesh", "mesh")]


def n_gpus():
    """The number of GPUs that `plait info` has found."""
    return len(re.findall(r"^CUDA device .*, sm_", (LOGS / "info.log").read_text(), re.MULTILINE))


def apart():
    """Makes NCCL accept two processes on one GPU."""
    return {"PLAIT_TEST_DEVICE": "apart", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}


def sharing(folder):
    """Makes NVSHMEM accept them; folder: for the command with which it looks for a server."""
    asked = Path(folder) / "nvidia-cuda-mps-control"
    asked.write_text(BEHIND_SERVER)
    asked.chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "NVSHMEM_IGNORE_CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "1",
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
        "NVSHMEM_REMOTE_TRANSPORT": "none",
        "NVSHMEM_DISABLE_NVLS": "1",  # before 3.8 it ends if a GPU is in a multicast twice
    }


STAGES = {"c": stage_c, "one": stage_one, "two": stage_two, "ways": stage_ways, "ends": stage_ends}


def prepare(options):
    """Variables of all jobs."""
    LOGS.mkdir(parents=True, exist_ok=True)
    paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    os.environ |= {
        "PLAIT_CUDA": "1",
        "PLAIT_TEST_PLATFORM": "cuda",
        "PYTHONPATH": ":".join(filter(None, paths)),
        # each process takes what it needs, not most of the memory
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if options.library.exists():
        os.environ.setdefault("PLAIT_LIBRARY", str(options.library))


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stages", nargs="*", choices=[*STAGES, []], metavar="STAGE")
    parser.add_argument("--programs", type=Path, default=ROOT / "build" / "tests" / "c")
    parser.add_argument("--library", type=Path, default=ROOT / "build" / "libplait.so")
    parser.add_argument(
        "--passed", type=Path, default=LOGS / "passed", help="made if it is not there"
    )
    parser.add_argument("--jobs", type=int, default=min(4, max(1, os.cpu_count() // 4)))
    options = parser.parse_args()
    for name in ("programs", "library", "passed"):
        setattr(options, name, getattr(options, name).resolve())
    return options


def main():
    """Runs the requested stages."""
    options = parse()
    prepare(options)
    with tempfile.TemporaryDirectory() as options.folder:
        Job("info", [sys.executable, "-m", "plait", "info"], 100).run()
        jobs = [job for name in options.stages or STAGES for job in STAGES[name](options)]
        jobs.sort(key=lambda job: job.name != "one_gpu")  # it takes longest
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            n_failed = sum(pool.map(Job.run, jobs))
    print(f"{len(jobs) - n_failed} passed or skipped, {n_failed} failed; logs in {LOGS}")
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
