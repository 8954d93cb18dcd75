"""`plait doctor` judges two ranks that try whether MPI reads GPUs' memory.

In whole jobs, stand-ins of tests/c replace the GPUs. Their memory is host memory, which any MPI
reads, or has addresses outside the host's, which end an MPI that tries.
"""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from plait import _doctor, _gpu_aware, _info, cli
from plait._finding import ERROR, NOTE, OK, WARNING

ROOT = Path(__file__).parents[2]
KEY = "host here; MPI /lib/libmpi.so"


def said(**facts):
    return f"[0] {_gpu_aware.MARK}{json.dumps(facts)}\n"


@pytest.fixture
def job(monkeypatch, tmp_path):
    """A job that a test describes: its outcome in place of the ranks, and what is kept."""
    file = tmp_path / "cache" / "gpu-aware" / "0123"
    places = said(distance=1, places=[[KEY, str(file)]] * 2)
    monkeypatch.setattr(_info, "gpus", lambda: ["stand-in, 1.0 GiB, sm_90"])
    monkeypatch.delenv("PLAIT_GPU_AWARE", raising=False)

    def run(code, output, errors=""):
        monkeypatch.setattr(_gpu_aware, "run_job", lambda _: (code, output, errors))
        [finding] = _gpu_aware.check()
        kept = file.read_text().splitlines() if file.exists() else []
        assert len(list(file.parent.glob("*"))) <= 1, "something unfinished is left"
        return finding, kept

    run.places = places
    run.parent = file.parent
    return run


def test_bytes_that_are_right(job):
    finding, kept = job(0, job.places + said(answer="yes", why="right bytes"))
    assert finding.severity == OK and "proved between ranks of one node" in finding.seen
    assert kept == [KEY, "yes", "right bytes"]


@pytest.mark.parametrize(
    ("code", "output", "errors", "why"),
    [
        (0, said(answer="no", why="3 of 64 bytes\nare wrong"), "", "3 of 64 bytes"),
        (139, "", "plait run: rank 1 was killed by SIGSEGV\n", "rank 1 was killed by SIGSEGV"),
        (7, "", "", "it ended with code 7"),
        (None, "", "", "no end after 120 s"),
        (1, said(answer="yes", why="right bytes"), "", "it ended with code 1"),
        (1, f"{_gpu_aware.MARK}" + '{"answer": "y', "", "it ended with code 1"),
    ],
)
def test_every_other_end_is_a_no(job, monkeypatch, code, output, errors, why):
    finding, kept = job(code, job.places + output, errors)
    assert finding.severity == NOTE and why in finding.seen
    assert kept == [KEY, "no", why]
    monkeypatch.setenv("PLAIT_GPU_AWARE", "1")
    finding, _ = job(code, job.places + output, errors)
    assert finding.severity == ERROR and why in finding.seen and finding.mend


def test_a_later_answer_takes_the_place_of_an_earlier_one(job):
    job(0, job.places + said(answer="no", why="3 of 64 bytes are wrong"))
    _, kept = job(0, job.places + said(answer="yes", why="right bytes"))
    assert kept == [KEY, "yes", "right bytes"]


@pytest.mark.parametrize(
    ("output", "errors", "seen"),
    [
        (said(failed="3 ranks; expected 2"), "", "3 ranks; expected 2"),
        (said(distance=1, places=[[KEY, "/none"]]) + said(failed="no room"), "", "no room"),
        (said(distance=1, places=[]) + said(answer="no", why="no device"), "", "no device"),
        ("", "mpiexec: not found\n", "mpiexec: not found"),
        ("", "", "it ended with code 1"),
    ],
)
def test_what_could_not_be_tried_is_not_remembered(job, output, errors, seen):
    finding, kept = job(1, output, errors)
    assert finding.severity == WARNING and seen in finding.seen and finding.mend
    assert kept == []


def test_nothing_to_say(monkeypatch):
    monkeypatch.setattr(_gpu_aware, "run_job", lambda _: pytest.fail("there is no GPU"))
    monkeypatch.setattr(_info, "gpus", list)
    assert list(_gpu_aware.check()) == []
    monkeypatch.setattr(_info, "gpus", lambda: ["stand-in, 1.0 GiB, sm_90"])
    monkeypatch.setenv("PLAIT_GPU_AWARE", "0")
    [finding] = _gpu_aware.check()
    assert finding.severity == NOTE and "PLAIT_GPU_AWARE=0" in finding.seen


def test_a_launcher_of_the_user(monkeypatch):
    assert "run" in _gpu_aware.command("")
    command = _gpu_aware.command("srun -N 2 -n 2 --mpi='pmix v4'")
    assert command[:6] == ["srun", "-N", "2", "-n", "2", "--mpi=pmix v4"]
    assert command[-2:] == ["-m", "plait._gpu_aware"]
    given = []
    monkeypatch.setattr(_doctor, "run", lambda **options: given.append(options) or 0)
    assert cli.main(["doctor", "--launcher", "srun -n 2"]) == 0
    assert given == [{"has_test": True, "launcher": "srun -n 2"}]


# ---- whole jobs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """A folder with stand-ins of the driver and the toolkit."""
    folder = tmp_path_factory.mktemp("stand-ins")
    source = ROOT / "tests" / "c"
    toolkit = [source / f"fake_cuda_{part}.c" for part in ("toolkit", "blas", "solver")]
    options = ["-O0", "-fPIC", "-shared", "-D_GNU_SOURCE"]
    options += [f"-I{ROOT / name}" for name in ("src", "include")]
    names = ("libcublas.so.13", "libcufft.so.12", "libnvrtc.so.13", "libcusolver.so.12")
    driver = [source / f"fake_cuda_{part}.c" for part in ("driver", "memory", "virtual", "kernels")]
    sources = {"libcuda.so.1": driver, **dict.fromkeys(names, toolkit)}
    for name, files in sources.items():
        command = ["cc", *options, f"-Wl,-soname,{name}", *map(str, files)]
        subprocess.run([*command, "-o", str(folder / name), "-lm"], check=True)
    return folder


@pytest.fixture
def gpus(stand_ins, monkeypatch, tmp_path):
    """Two stand-ins of GPUs, with nothing remembered."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    monkeypatch.setenv("PLAIT_CUDA_DIR", str(stand_ins))
    monkeypatch.setenv("PLAIT_CUDA_CACHE", "0")
    monkeypatch.setenv("PLAIT_FAKE_DEVICES", "2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PLAIT_GPU_AWARE", raising=False)
    assert len(_info.gpus()) == 2

    def kept():
        [file] = (tmp_path / "plait" / "gpu-aware").iterdir()
        key, answer, why = file.read_text().splitlines()
        assert "; driver 13000;" in key and key.endswith("; ranks of one node")
        return answer, why

    return kept


@pytest.mark.long
def test_a_library_that_says_no_is_not_tried(gpus, monkeypatch):
    """The MPI says no, as the wheels of MPICH and Open MPI do, which are built without CUDA."""
    monkeypatch.setenv("PLAIT_FAKE_HIDDEN", "1")
    [finding] = _gpu_aware.check()
    assert finding.severity == NOTE and "MPI says that it does not read" in finding.seen
    answer, why = gpus()
    assert answer == "no" and "MPI says" in why


@pytest.mark.long
def test_two_ranks_that_can(gpus, monkeypatch):
    monkeypatch.setenv("PLAIT_GPU_AWARE", "force")
    [finding] = _gpu_aware.check()
    assert finding.severity == OK, finding.seen
    assert gpus() == ("yes", "right bytes")
    assert _info.gpu_aware() == "reads it"
    monkeypatch.delenv("PLAIT_GPU_AWARE")
    assert _info.gpu_aware().startswith("gets copies in host memory: MPI says that it does not")
    rows = dict(_info.cuda_rows())
    assert rows["memory of GPUs, MPI"] == _info.gpu_aware()
    assert rows["between GPUs"].startswith("peer, ipc, nccl, nvshmem, mpi, staged: ")
    assert rows["between GPUs"].endswith("; nvshmem where it is chosen")
    assert rows["CUDA NVSHMEM"].startswith("CUDA's NVSHMEM was not found")


@pytest.mark.long
def test_two_ranks_that_are_ended(gpus, monkeypatch):
    monkeypatch.setenv("PLAIT_GPU_AWARE", "force")
    monkeypatch.setenv("PLAIT_FAKE_HIDDEN", "1")
    [finding] = _gpu_aware.check()
    assert finding.severity == NOTE, finding.seen
    answer, why = gpus()
    assert answer == "no" and why in finding.seen and "wrong" not in why


def test_two_ranks_that_get_other_bytes(gpus, monkeypatch):
    monkeypatch.setenv("PLAIT_GPU_AWARE", "force")
    monkeypatch.setenv("PLAIT_FAKE_WRONG", "1")
    [finding] = _gpu_aware.check()
    assert finding.severity == NOTE
    answer, why = gpus()
    assert answer == "no" and why == "1 of 64 bytes from device memory of rank 1 are wrong"


@pytest.mark.long
def test_no_room_for_the_transfers(gpus, monkeypatch, tmp_path):
    monkeypatch.setenv("PLAIT_FAKE_FAIL", "cuMemAlloc_v2:2:0")
    monkeypatch.setenv("PLAIT_GPU_AWARE", "force")
    [finding] = _gpu_aware.check()
    assert finding.severity == WARNING and "CUDA_ERROR_OUT_OF_MEMORY" in finding.seen
    assert not (tmp_path / "plait").exists()
