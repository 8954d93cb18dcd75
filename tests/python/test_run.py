"""``plait run`` around the ranks: settings of launchers, signals, the way of output."""

import contextlib
import errno
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from plait import _launch, _launch_hosts, _launch_output, _launch_trace, _mpi_find, _rank, cli
from test_cli import RANKS, needs_mpi, plait


def write(folder, text):
    """Write a program for ranks; returns its path."""
    path = folder / "program.py"
    path.write_text(RANKS + text)
    return path


STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_JOB_NUM_NODES": "1"}
TWO_NODES = {"SLURM_JOB_NUM_NODES": "2"}


@pytest.mark.parametrize(
    ("family", "given", "expected"),
    [
        ("mpich", STEP, {"HYDRA_LAUNCHER": "fork"}),
        ("intel", STEP, {"I_MPI_HYDRA_BOOTSTRAP": "fork"}),
        ("openmpi", STEP, {}),  # Open MPI starts ranks of its own node itself
        ("mpich", STEP | TWO_NODES, {"SLURM_OVERLAP": "1"}),
        ("openmpi", STEP | TWO_NODES, {"SLURM_OVERLAP": "1"}),
        ("mpich", STEP | TWO_NODES | {"SLURM_OVERLAP": "0"}, {"SLURM_OVERLAP": "0"}),
        ("mpich", STEP | {"HYDRA_LAUNCHER": "ssh"}, {"HYDRA_LAUNCHER": "ssh"}),
        ("mpich", STEP | {"HYDRA_HOST_FILE": "hosts"}, {}),
        ("mpich", STEP | {"HYDRA_RMK": "user"}, {}),
        ("mpich", STEP | {"HYDRA_IFACE": "ib0"}, {"HYDRA_LAUNCHER": "fork"}),
        ("intel", STEP | {"I_MPI_HYDRA_RMK": "user"}, {}),
        ("mpich", {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}, {}),  # of sbatch or salloc
        ("mpich", STEP | {"SLURM_STEP_ID": str(0xFFFFFFFA)}, {}),  # of an interactive step
        ("mpich", {}, {}),
    ],
)
def test_no_launcher_waits_for_what_a_slurm_step_holds(family, given, expected):
    made = _launch.rank_environment(_mpi_find.Launcher("mpiexec", family, "5.0"), 2, given)
    names = ("HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP", "SLURM_OVERLAP")
    assert {name: made[name] for name in names if name in made} == expected


@pytest.mark.parametrize(
    ("given", "is_alone"),
    [
        ({}, True),
        ({"OMPI_MCA_pml": "ob1", "SLURM_NNODES": "1"}, True),
        ({"PRTE_MCA_prte_default_hostfile": "hosts"}, False),
        ({"OMPI_MCA_orte_default_hostfile": "hosts"}, False),
        ({"PRTE_MCA_prte_default_dash_host": "a,b"}, False),
        ({"SLURM_NNODES": "2"}, False),
        ({"SLURM_JOB_NUM_NODES": "3"}, False),
        ({"PBS_NODEFILE": "hosts"}, False),
        ({"LSB_DJOB_HOSTFILE": "hosts"}, False),
    ],
)
def test_open_mpi_has_a_network_where_hosts_are_named(given, is_alone):
    made = _launch.rank_environment(_mpi_find.Launcher("mpiexec", "openmpi", "5.0.1"), 2, given)
    assert made.get("OMPI_MCA_btl", "") == ("^ofi" if is_alone else "")
    flags = _launch_hosts.export_flags("openmpi", given | {"PLAIT_LOG": "info", "HOME": "/root"})
    assert flags == ([] if is_alone else ["-x", "PLAIT_LOG"])
    assert _launch_hosts.export_flags("mpich", given | {"PLAIT_LOG": "info"}) == []


def test_the_choice_of_a_settings_file_of_open_mpi_is_kept(tmp_path):
    """The settings file of the user or of the site."""
    launcher = _mpi_find.Launcher(f"{tmp_path}/bin/mpiexec", "openmpi", "5.0.1")
    for name in (".openmpi/mca-params.conf", "etc/openmpi-mca-params.conf"):
        file = tmp_path / name
        file.parent.mkdir()
        for text, is_chosen in (("pml = ob1\n# btl = tcp\n", False), ("btl=self,tcp\n", True)):
            file.write_text(text)
            made = _launch.rank_environment(launcher, 2, {"HOME": str(tmp_path)})
            assert ("OMPI_MCA_btl" not in made) == is_chosen, (name, text)
        file.unlink()


@needs_mpi
def test_ranks_are_those_of_their_own_launcher(tmp_path):
    """Ranks ignore a launcher that started the shell, as of a job of another MPI, or of Slurm."""
    left = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    left |= {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    left |= {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}
    text = "from plait import _world; print(comm.rank, _world.launcher_size()[0])"
    done = plait("run", "-n", 2, write(tmp_path, text), **left)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2", "[1] 1 2"]


@contextlib.contextmanager
def pipes(folder, rank):
    """The pipes of a rank's wrapper, as `plait run` makes them: readers of output and errors."""
    names = [f"{folder}/{rank}.{name}" for name in ("out", "err")]
    readers = [_launch_output.Streams._pipe(name) for name in names]
    try:
        yield readers
    finally:
        for fd in readers:
            os.close(fd)


def test_a_stream_that_nobody_reads_is_none(tmp_path):
    """As on another host, if hosts share the folder's file system."""
    for name in ("out", "err"):
        os.mkfifo(tmp_path / f"0.{name}")
    assert _rank.open_streams(str(tmp_path), "0") == []
    readers = [os.open(tmp_path / f"0.{n}", os.O_RDWR) for n in ("out", "err")]
    streams = _rank.open_streams(str(tmp_path), "0")
    assert len(streams) == 2 and all(os.get_blocking(stream) for stream in streams)
    for fd in readers + streams:
        os.close(fd)


@pytest.mark.parametrize("where", ["elsewhere:", _rank.host()])
def test_only_ranks_of_the_launchers_host_have_the_folder(tmp_path, where):
    """A rank elsewhere sends its output in records through the launcher, here this process."""
    text = 'echo "folder $PLAIT_RUN_FOLDER"; echo "error" >&2; exit 3'
    command = [sys.executable, "-I", "-S", _rank.__file__, tmp_path, "mpich", where, "2"]
    with pipes(tmp_path, 1) as readers:
        done = subprocess.run(
            [*command, "sh", "-c", text],
            env=os.environ | {"PMI_RANK": "1", "PLAIT_RUN_FOLDER": "of another job"},
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 3 and done.stdout == b""
        if where == _rank.host():
            assert (done.stderr, os.read(readers[0], 99)) == (b"", b"folder %s\n" % bytes(tmp_path))
            assert (tmp_path / "1.ended").read_text() == "3"
        else:
            sent = [b"begun ", b"out folder ", b"err error", b"ended 3"]
            assert sorted(done.stderr.splitlines()) == sorted(_rank.MARK + b"1." + t for t in sent)


def test_a_rank_that_cannot_be_started_says_so(tmp_path):
    """The rank leaves a note; without it the others would wait for the rank in MPI_Init."""
    script = (
        "import errno, os; from plait import _rank\n"
        "def fork(): raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))\n"
        "os.fork = fork\n"
        "_rank.main()\n"
    )
    with pipes(tmp_path, 1) as readers:
        done = subprocess.run(
            [sys.executable, "-c", script, tmp_path, "mpich", _rank.host(), "2", "true"],
            env=os.environ | {"PMI_RANK": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (126, "")
        said = b"plait run: rank 1 cannot be started: Resource temporarily unavailable\n"
        assert os.read(readers[1], 999) == said
    assert (tmp_path / "1.ended").read_text() == "126"


def test_a_signal_to_a_program_that_has_just_ended_is_none():
    script = (
        "import os, signal, sys; from plait import _rank; pid = os.fork()\n"
        "if not pid: os._exit(0)\n"
        "os.waitpid(pid, 0); _rank.pass_signals_on(pid)\n"
        "for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):\n"
        "    os.kill(os.getpid(), n)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("size", [0, 1, 5, _rank.PIECE_BYTES, 3 * _rank.PIECE_BYTES, 100_000])
def test_records_are_lines_again(tmp_path, size):
    """Lines of any length, cut anywhere, among lines of the launcher itself."""
    sent, way = [], _rank.Elsewhere.__new__(_rank.Elsewhere)
    way.rank, way.waiting, way._send = "1", {"out": b"", "err": b""}, sent.extend
    line = bytes(range(256)).replace(b"\n", b"") * (size // 255) + b"x" * (size % 255)
    for part in (line[: size // 2], line[size // 2 :] + b"\nsecond\n", b"\nlast", b"\n"):
        way._pass_on("out", part)
    assert all(len(record) <= _rank.RECORD_BYTES for record in sent)
    data = b"".join([b"said", *sent, _rank.MARK + b"1.ended -9\n", b"rest"])
    out, err = io.BytesIO(), io.BytesIO()
    printers = {1: _launch_output.Printer(out), 2: _launch_output.Printer(err)}
    carried = _launch_output.Carried(printers, tmp_path)
    for start in range(0, len(data), 4000):
        carried.take(2, data[start : start + 4000])
    carried.finish()
    printers[2].finish()
    assert out.getvalue() == b"[1] " + line + b"\n[1] second\n[1] \n[1] last\n"
    assert err.getvalue() == b"said\nrest\n"
    assert (tmp_path / "1.ended").read_text() == "-9"


WAITING = """
import signal
got = set()
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: got.add(signal.Signals(number).name))
print("ready", os.getpid(), flush=True)
while len(got) < 2:
    time.sleep(0.02)
time.sleep(3)  # for those that come twice, by the launcher and by plait run
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, signal.SIG_IGN)
print(sorted(got))
"""


def begin(tmp_path, n_ranks=2):
    """Start ranks that wait for two signals; the job, and the ranks' process numbers."""
    command = [sys.executable, "-m", "plait", "run", "-n", str(n_ranks), write(tmp_path, WAITING)]
    job = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # a killed job leaves its folder
    )
    pids = [int(job.stdout.readline().split()[-1]) for _ in range(n_ranks)]
    return job, pids


def relatives(pid):
    """This process and, recursively, all processes that it has started, at this moment."""
    found = [pid]
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"\nPPid:\t{pid}\n" in (folder / "status").read_text():
                found += relatives(int(folder.name))
    return found


def are_gone(pids):
    """Whether all processes end within some seconds."""
    end = time.monotonic() + 15
    left = pids
    while left and time.monotonic() < end:
        time.sleep(0.05)
        left = [pid for pid in left if is_running(pid)]
    return not left


def is_running(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.long(keep=1)
@needs_mpi
@pytest.mark.parametrize("to_all", [False, True])
def test_signals_of_users_are_for_the_ranks(tmp_path, to_all):
    """Even if a batch system sends signals to all processes of a job."""
    job, _ = begin(tmp_path)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        os.killpg(job.pid, number) if to_all else job.send_signal(number)
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert "SIGUSR1: passed on to 2 of 2 ranks" in err
    for rank in range(2):
        assert f"[{rank}] ['SIGUSR1', 'SIGUSR2']" in out.splitlines()


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_its_job(tmp_path, number):
    job, pids = begin(tmp_path)
    family = relatives(job.pid)
    assert set(pids) <= set(family)
    job.send_signal(number)
    job.communicate(timeout=30)
    assert job.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert are_gone(family)


def test_a_signal_is_not_for_who_has_the_number_of_a_wrapper_by_now(tmp_path):
    for rank, pid in enumerate((os.getpid(), "", 1 << 30)):
        (tmp_path / f"{rank}.begun").write_text(str(pid))
    assert _launch.Ends(str(tmp_path), 4).pass_on(signal.SIGUSR1) == 0


@pytest.mark.parametrize("end", ["", "-15"])
def test_who_ended_badly_where_the_launcher_went_on(tmp_path, capsys, end):
    """The launcher kills the wrapper of a rank that waits in MPI_Finalize, or has it end."""
    (tmp_path / "0.ended").write_text("3")
    (tmp_path / "1.left").write_text("")
    ends = _launch.Ends(str(tmp_path), 2)
    assert not ends.overdue(100) and not ends.overdue(101)
    assert ends.overdue(100 + _launch.FINALIZE_S + 1).startswith("rank 0, which the others wait")
    if end:
        (tmp_path / "1.ended").write_text(end)
    assert _launch.verdict(str(tmp_path), 2, ends.code(), True) == 3
    said = capsys.readouterr().err
    assert "rank 0 exited with code 3" in said and "rank 1 had left its program" in said
    assert "SIGTERM" not in said and "without saying how" not in said


def test_a_rank_that_says_why_it_fails_is_waited_for(tmp_path, capsys):
    (tmp_path / "0.ended").write_text("3")
    (tmp_path / "1.left").write_text("raised ValueError")
    ends = _launch.Ends(str(tmp_path), 2)
    assert not ends.overdue(100) and not ends.overdue(100 + _launch.LAUNCHER_S)
    assert ends.overdue(200) == "rank 0 has failed"
    (tmp_path / "1.ended").write_text("-15")
    assert _launch.verdict(str(tmp_path), 2, ends.code(), True) == 3
    assert "rank 1 was killed by SIGTERM" in capsys.readouterr().err


@needs_mpi
def test_a_trace_that_cannot_be_written_is_said_before_the_ranks_start(tmp_path):
    (tmp_path / "folder").mkdir()
    for trace in ("absent/t.json", "folder", "/proc/t.json"):
        done = plait("run", "-n", 1, "--trace", tmp_path / trace, "touch", tmp_path / "begun")
        assert done.returncode == cli.USAGE_CODE
        assert f"plait run: no trace can be written to {tmp_path / trace}: " in done.stderr
    done = plait("run", "-n", 1, "touch", tmp_path / "begun", PLAIT_TRACE=str(tmp_path / "folder"))
    assert done.returncode == cli.USAGE_CODE and "Is a directory" in done.stderr
    assert os.listdir(tmp_path) == ["folder"] and not os.listdir(tmp_path / "folder")


def test_a_trace_takes_the_place_of_files_alone(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "link"):
        with pytest.raises(_launch.TraceError, match=f"{name}: Not a regular file"):
            _launch_trace.check_trace(str(tmp_path / name))
    _launch_trace.check_trace(str(tmp_path / "t.json"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir("gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(_launch.TraceError, match="t.json: the current folder has been removed"):
        _launch_trace.absolute("t.json")
    assert _launch_trace.absolute("/t.json") == "/t.json"


@pytest.fixture
def handlers():
    """Restore this process's signal handlers after the test."""
    numbers = (*_launch.ENDING, *_launch.PASSED_ON)
    former = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def test_a_trace_is_made_for_nobody_who_does_not_wait(tmp_path, handlers):
    """The parts of the trace stay, and may be merged later."""
    trace = tmp_path / "t.json"
    settings = os.environ | {"PLAIT_TRACE": str(trace), "PLAIT_RUN_JOB": "one"}
    subprocess.run([sys.executable, "-c", TRACED], env=settings, check=True)
    said, signals = [], []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))

    def say(line):
        said.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    assert _launch_trace.merge_trace(str(trace), "run one", say) == signal.SIGTERM
    assert (
        said[1]
        == f"SIGTERM: the trace is not made; make it from its parts with  plait trace merge {trace}"
    )
    assert signals == [signal.SIGTERM]  # the former handler noted it: it is back
    assert len(list(tmp_path.glob("*.part"))) == 1 and not list(tmp_path.glob("*.tmp"))
    assert _launch_trace.merge_trace(str(trace), "run other", said.append) == 0
    assert said[-1] == f"no operation was traced, {trace} is not written"
    assert _launch_trace.merge_trace(str(trace), "run one", said.append) == 0
    assert os.listdir(tmp_path) == ["t.json"]


TRACED = """
import os, jax.numpy as jnp, plait
plait.allreduce(jnp.ones(2), op=plait.SUM).block_until_ready()
os._exit(0)
"""


def test_merging_says_why_it_cannot_and_ends_where_nobody_reads(tmp_path):
    trace = tmp_path / "t.json"
    settings = os.environ | {"PLAIT_TRACE": str(trace)}
    subprocess.run([sys.executable, "-c", TRACED], env=settings, check=True)
    trace.mkdir()
    done = plait("trace", "merge", trace)
    assert done.returncode == cli.USAGE_CODE
    assert done.stderr == f"plait trace: {trace} cannot be written: Is a directory\n"
    trace.rmdir()
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    command = [sys.executable, "-m", "plait", "trace", "merge", "--keep", trace]
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (cli.PIPE_CODE, b"")
    assert plait("trace", "merge", trace).stdout.startswith("1 operations of 1 ranks")


@needs_mpi
def test_a_job_ends_where_nobody_reads():
    command = f"{sys.executable} -m plait run -n 2 yes"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == cli.PIPE_CODE
    assert done.stdout in ("[0] y\n", "[1] y\n") and "Traceback" not in done.stderr


# ---- output --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_blocking", [True, False])
def test_all_is_written_to_a_slow_reader(is_blocking):
    """Even if the pipe is non-blocking, opened so by others, and takes less than it is given."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, is_blocking)
    sink = _launch_output.Sink(theirs, _launch_output.Patience())
    got, looks = [], []
    sink.patience.look = lambda: (looks.append(1), got.append(os.read(ours, 1 << 20)))
    data = os.urandom(1 << 18)
    sink.write(data[:9])
    sink.write(data[9:])
    sink.flush()
    got.append(os.read(ours, 1 << 20))
    assert b"".join(got) == data and looks and not sink.is_given_up
    os.close(ours)
    with pytest.raises(BrokenPipeError):
        sink.write(b"more")
        sink.flush()
    os.close(theirs)


def test_a_job_that_ends_does_not_wait_for_a_reader():
    ours, theirs = os.pipe()
    sink = _launch_output.Sink(theirs, _launch_output.Patience())
    sink.patience.look = lambda: sink.patience.end_within(0)  # as if a signal ended it
    sink.write(bytes(1 << 20))
    sink.flush()
    assert sink.is_given_up
    sink.write(b"more")
    sink.flush()
    os.close(theirs)
    with os.fdopen(ours, "rb") as rest:
        assert set(rest.read()) == {0}  # whole pieces only, and nothing after the gap


def test_lines_come_in_pieces():
    """Pieces are joined once: a line of many pieces does not cost the square of its length."""
    lines = _launch_output.Lines()
    assert [lines.take(b"ab"), lines.take(b""), lines.take(b"c")] == [[], [], []]
    assert lines.pieces == [b"ab", b"c"]
    assert lines.take(b"d\n\ne\nf") == [b"abcd", b"", b"e"]
    assert (lines.rest(), lines.rest(), lines.take(b"\n")) == (b"f", b"", [b""])


def test_no_room_for_what_a_job_needs(tmp_path, monkeypatch):
    """The error does not say that output cannot be written."""
    said = "absent/0.out: No such file or directory; set TMPDIR"
    with pytest.raises(_launch.LimitError, match=said):
        _launch_output.Streams(str(tmp_path / "absent"), 1)

    def mkdtemp(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/plait-run-x")

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    said = "/full/plait-run-x: No space left on device; set TMPDIR"
    with pytest.raises(_launch.LimitError, match=said):
        _launch_output.job_folder()


def test_folders_of_killed_jobs_are_removed_by_the_next(tmp_path, monkeypatch):
    """Not the folder of a running job, however old, nor that of a job that may just have begun."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, young, not_ours = (tmp_path / f"plait-run-{x}" for x in ("killed", "young", "link"))
    for folder in killed, young:
        folder.mkdir()
        (folder / "0.status").write_text("0")
    not_ours.symlink_to(tmp_path / "elsewhere")
    with _launch_output.job_folder() as running:
        for folder in killed, pathlib.Path(running):
            os.utime(folder, (1e9, 1e9))
        with _launch_output.job_folder() as second:
            assert all(os.path.isdir(folder) for folder in (running, second, young))
            assert not killed.exists() and not_ours.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plait-run-link", "plait-run-young"]


def test_what_a_rank_left_behind_is_not_read_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(_launch_output, "LATE_S", 0.1)
    streams = _launch_output.Streams(tmp_path, 1)
    printed = io.BytesIO()
    streams.printers[1] = _launch_output.Printer(printed)
    with open(tmp_path / "0.out", "wb") as pipe, subprocess.Popen("yes", stdout=pipe) as left:
        assert streams.pump(30)
        streams.finish()
        assert left.poll() is None
        left.kill()
    assert printed.getvalue().startswith(b"[0] y\n[0] y\n")


def test_a_terminal_of_unknown_size_is_one_for_ranks(tmp_path):
    ours, theirs = os.openpty()
    source = _launch_output.Streams._terminal(str(tmp_path / "0.out"), theirs, 4)
    fd = os.open(tmp_path / "0.out", os.O_RDWR | os.O_NOCTTY)
    assert os.get_terminal_size(fd) == (0, 0)
    for each in (ours, theirs, source, fd):
        os.close(each)


def test_more_ranks_than_files(monkeypatch):
    limits, now = [], (100, 400)
    monkeypatch.setattr(_launch_output.resource, "getrlimit", lambda _: now)
    monkeypatch.setattr(_launch_output.resource, "setrlimit", lambda _, both: limits.append(both))
    assert _launch_output.allow_files(2) == 0 and not limits
    assert _launch_output.allow_files(20) == 100 and limits == [(224, 400)]
    assert _launch_output.allow_files(150) == 100 and limits[1:] == [(400, 400)]
    with pytest.raises(_launch.LimitError, match="200 ranks need 464 open files, and the limit is"):
        _launch_output.allow_files(200)
    given = {"PLAIT_RUN_FILES": "90"}
    _rank.restore_files(given, False)
    assert not given and len(limits) == 2
    _rank.restore_files({"PLAIT_RUN_FILES": "90"}, True)
    assert limits[2:] == [(90, 400)]


# ---- around the launcher -------------------------------------------------------------------


def test_words_of_a_program_are_no_launchers(tmp_path):
    """To the launcher a colon would begin another program."""
    words = ["a", ":", "=:", "==:", "a:", "::", "=", ""]
    assert ":" not in _rank.guarded(words) and _rank.unguarded(_rank.guarded(words)) == words
    assert _rank.unguarded(["sh", "-c", "a : b"]) == ["sh", "-c", "a : b"]


def test_signals_that_were_ignored_stay_so(handlers):
    """As by nohup, and by shells for background jobs."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    job = _launch.Job()
    job.catch()
    assert {signal.getsignal(n) for n in (signal.SIGHUP, signal.SIGUSR1)} == {signal.SIG_IGN}
    assert signal.getsignal(signal.SIGTERM) == job.interrupt
    _rank.pass_signals_on(0)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    _rank.keep_signals()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    signal.signal(signal.SIGURG, signal.SIG_DFL)


def test_a_signal_before_the_launcher_is_started_ends_the_job(tmp_path, handlers, capfd):
    job = _launch.Job()
    job.catch()
    os.kill(os.getpid(), signal.SIGTERM)
    streams = _launch_output.Streams(tmp_path, 1)
    job.start(["touch", str(tmp_path / "begun")], None, streams, None)
    assert job.wait(0) == 128 + signal.SIGTERM
    assert not (tmp_path / "begun").exists()
    assert "plait run: SIGTERM: ending the job\n" in capfd.readouterr().err


def test_a_note_needs_no_room_on_the_disk(tmp_path, monkeypatch):
    def full(path, mode):
        pathlib.Path(path).touch()
        return open("/dev/full", mode)

    with monkeypatch.context() as patch:
        patch.setattr(_rank, "open", full, raising=False)
        _rank.leave_note(tmp_path, "0.ended", "0")
        _rank.leave_note(tmp_path, "1.ended", "-9")
    _rank.leave_note(tmp_path, "2.ended", "3")
    _rank.leave_note(tmp_path / "of a job that is over", "2.ended", "3")
    (tmp_path / "3.ended").touch()  # still empty
    ends = _launch.Ends(str(tmp_path), 5)
    ends.look()
    assert ends.known == {0: "0", 1: "-9", 2: "3"}


def test_the_first_to_fail_is_who_began_to_end_first(tmp_path):
    """Other ranks learn of its failure as soon as it leaves a note, and may end sooner."""
    for when, (name, text) in enumerate(
        [("2.left", "raised SystemExit: 3"), ("0.left", ""), ("1.ended", "1"), ("2.ended", "3")]
    ):
        _rank.leave_note(tmp_path, name, text)
        os.utime(tmp_path / name, (when, when))
    ends = _launch.Ends(str(tmp_path), 3)
    ends.look()
    assert ends.code() == 3


ABANDONED = """
import os, subprocess, sys, time
subprocess.Popen(sys.argv[1:], env=os.environ | {"PMI_RANK": "0"})
time.sleep(300)
"""


def test_a_rank_ends_with_its_launcher(tmp_path):
    """Open MPI's launcher leaves ranks behind when it is killed."""
    wrapper = [sys.executable, "-I", "-S", _rank.__file__, tmp_path, "mpich", _rank.host(), "1"]
    program = ["sh", "-c", "trap '' TERM; echo $$; while true; do sleep 0.1; done"]
    with pipes(tmp_path, 0) as readers:
        os.set_blocking(readers[0], True)
        launcher = subprocess.Popen([sys.executable, "-c", ABANDONED, *wrapper, *program])
        pid = int(os.read(readers[0], 99))
        while not (tmp_path / "0.begun").exists():
            time.sleep(0.01)
        launcher.kill()
        launcher.wait()
        assert are_gone([pid])
