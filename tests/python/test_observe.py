"""Observing operations: lines, trace, flight recorder; and jobs as users start them."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _core, _errors, _exit, _launch, _mpi_find, _record, _trace, _trace_file

PACKAGE = str(pathlib.Path(plait.__file__).parents[1])
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"
)


def start(*command, **variables):
    """Run a command in a process of its own, without the launcher's variables around the tests."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "HYDI"))}
    path = os.pathsep.join(filter(None, (PACKAGE, os.environ.get("PYTHONPATH"))))
    env |= {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        list(map(str, command)),
        env=env | {k: str(v) for k, v in variables.items()},
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )


def start_ranks(*command, **variables):
    """Start two ranks by the launcher itself, as a batch system would."""
    launcher = _mpi_find.find_launcher(_mpi_find.find_mpi())
    settings = _launch.rank_environment(launcher, 2, {})
    return start(*_launch.launcher_command(launcher, 2), *command, **settings, **variables)


# ---- lines --------------------------------------------------------------------------------


@contextlib.contextmanager
def logging():
    plait.set_logging(True)
    try:
        yield
    finally:
        plait.set_logging(False)


def test_logging_is_on_or_off():
    with pytest.raises(TypeError, match="is_on is 'on'; expected True or False"):
        plait.set_logging("on")
    assert not plait.get_logging()


def test_lines_in_the_format_of_mpi4jax(capfd):
    x = jnp.ones((3, 2), jnp.float32)
    want = {
        "MPI_Allreduce with 6 items float32 SUM": lambda: plait.allreduce(x, plait.SUM),
        "MPI_Bcast (6 items, root=0)": lambda: plait.bcast(x, 0),
        "MPI_Sendrecv <- 0 (tag -1, 6 items) / -> 0 (tag 7, 6 items)": lambda: plait.sendrecv(
            x, x, 0, 0, sendtag=7
        ),
        "MPI_Barrier": plait.barrier,
    }
    for call in want.values():
        call()
    capfd.readouterr()
    with logging():
        assert plait.get_logging()
        for call in want.values():
            call()
    assert not plait.get_logging()
    plait.barrier()
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2 * len(want)
    first = int(lines[0].split(" | ")[1], 16)
    for i, text in enumerate(want):
        number = f"{first + i:08x}"
        at = r" at test_observe\.py:\d+"
        assert re.fullmatch(rf"r0 \| {number} \| {re.escape(text)}{at}", lines[2 * i])
        name = text.split()[0]
        done = rf"r0 \| {number} \| {name} done with code 0 \(\d\.\d\de[+-]\d+s\)"
        assert re.fullmatch(done, lines[2 * i + 1])


def test_lines_of_a_failure_and_of_devices(capfd):
    with logging():
        with pytest.raises(plait.TruncationError):
            plait.sendrecv(jnp.ones(3), jnp.ones(2), 0, 0)
        mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
        x = jax.device_put(jnp.ones((4, 4, 4), jnp.complex64), NamedSharding(mesh, P("x")))
        plait.block(plait.fft.pfft3d(x))
    lines = capfd.readouterr().out.splitlines()
    assert "MPI_Sendrecv done with code 7" in lines[1]
    for rank in range(2):
        mine = [line for line in lines[2:] if line.startswith(f"r{rank} | ")]
        assert len(mine) == 2 and "| fft complex64 forward 4x4x4" in mine[0]
        assert "| fft done with code 0" in mine[1]


def test_every_operation_has_a_line():
    """An operation of the rank model names its function of MPI."""
    for row in _core.rows().values():
        assert row.model != "rank" or (row.line or "").startswith("MPI_"), row.name


def test_support_for_other_devices():
    assert plait.has_cuda_support() is False and plait.has_sycl_support() is False


# ---- the flight recorder --------------------------------------------------------------------


def test_own_flight_recorder():
    plait.allreduce(jnp.ones(5), plait.SUM)
    flight = _record.own_flight()
    last = flight.operations[-1]
    assert flight.header.pid == os.getpid() and flight.header.is_alive
    assert last.title == "allreduce(float64[5], SUM)" and last.status == "ok"
    assert last.where.startswith("test_observe.py:") and last.n_bytes == 40
    assert abs(last.start_ns - time.monotonic_ns()) < 5e9
    path = _core.flight_path()
    if path:
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700


def test_report_of_an_uncaught_failure_shows_the_last_operations(monkeypatch, capsys):
    monkeypatch.setattr(_exit, "_world", [(3, 4)])
    monkeypatch.setattr(_exit, "_failed", [])
    with pytest.raises(plait.TruncationError):
        plait.sendrecv(jnp.ones(3), jnp.ones(2), 0, 0)
    _exit._report(_errors.PeerError("gone"), lambda: None)
    text = capsys.readouterr().err
    assert "the last operations of rank 3:" in text and "<- TRUNCATION" in text
    _exit._report(ValueError("of the user's own"), lambda: None)
    assert "the last operations" not in capsys.readouterr().err


KILLED = """
import os, signal, sys, jax.numpy as jnp, plait
comm = plait.Comm()
x = jnp.ones(10)
for _ in range(3):
    x = plait.allreduce(x, plait.SUM)
    plait.bcast(x, 0)
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
plait.barrier()
"""


@needs_mpi
def test_a_killed_rank_leaves_its_trace_and_its_flight_recorder(tmp_path, monkeypatch):
    program, trace, flights = tmp_path / "killed.py", tmp_path / "out.json", tmp_path / "flights"
    program.write_text(KILLED)
    command = (sys.executable, "-m", "plait", "run", "-n", 2, "--timeout", 60, "--trace", trace)
    done = start(*command, program, PLAIT_FLIGHT=flights, PLAIT_TIMEOUT=5)
    assert done.returncode != 0
    assert "operations of 2 ranks in" in done.stderr and "at killed.py:6" in done.stderr
    events = check_trace(trace, n_ranks=2, n_least=6)
    assert {e["args"]["at"] for e in events} >= {"killed.py:6", "killed.py:7"}
    assert not list(tmp_path.glob("*.part"))
    monkeypatch.setenv("PLAIT_FLIGHT", str(flights))
    text = _record.report(4)
    assert re.search(r"rank 1 \(pid \d+\) did not end by itself", text)
    assert text.count("bcast(float32[10], root 0) at killed.py:7") >= 4
    assert _record.remove_dead() >= 1 and not list(flights.iterdir())
    assert "no flight recorder" in _record.report(4)


def test_behind_a_job_that_runs_comes_the_last_one_that_died(monkeypatch):
    """A running job, such as a notebook's process, may have started later."""
    found = [
        of_job(flight(0, "scan()"), "oldest", 1),
        of_job(flight(0, "bcast()"), "died", 2),
        of_job(flight(1, "barrier()"), "died", 2),
        of_job(flight(0, "gather()"), "notebook", 3, is_alive=True),
    ]
    monkeypatch.setattr(_record, "flights", lambda: found)
    text = _record.report(2)
    titles = [text.index(name) for name in ("gather()", "bcast()", "barrier()")]
    assert titles == sorted(titles) and "scan()" not in text
    found.pop()
    assert "gather()" not in _record.report(2) and "bcast()" in _record.report(2)


def of_job(one, job, hour, is_alive=False):
    """The same flight, in a job that started at this hour."""
    given = {"job": job, "wall_ns": hour * 3600 * 10**9, "is_alive": is_alive}
    return dataclasses.replace(one, header=dataclasses.replace(one.header, **given))


# ---- the trace ------------------------------------------------------------------------------


def check_trace(path, n_ranks, n_least):
    """Check the rules of Perfetto for a trace; returns the operations' events."""
    content = json.loads(pathlib.Path(path).read_text())
    events = [e for e in content["traceEvents"] if e["ph"] == "X"]
    names = [e for e in content["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"]
    assert {e["pid"] for e in names} == set(range(1, n_ranks + 1))  # 0 is Perfetto's idle process
    for rank in range(n_ranks):
        mine = [e for e in events if e["pid"] == rank + 1]
        assert len(mine) >= n_least
        for e in mine:
            assert e["tid"] > 0 and e["ts"] >= 0 and e["dur"] >= 0
            assert 0 <= e["args"]["wait_us"] + e["args"]["copy_us"] <= e["dur"] * 1.01 + 1
            assert e["args"]["communicator"].startswith("#")
        ends = [e["ts"] for e in mine]
        assert ends == sorted(ends)
    return events


def overlaps(events, slack_us=50):
    """Operations in which all ranks must meet were under way on all ranks at the same time."""
    by_number = {}
    for e in [e for e in events if e["name"] in ("allreduce", "barrier")]:
        key = (e["args"]["communicator"], e["args"]["sequence"])
        by_number.setdefault(key, []).append(e)
    for same in by_number.values():
        assert max(e["ts"] for e in same) <= min(e["ts"] + e["dur"] for e in same) + slack_us, same
    return len(by_number)


PLAIN = """
import jax, jax.numpy as jnp, plait, sys
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
comm = plait.Comm()

@plait.jit
def f(x):
    return plait.bcast(plait.allreduce(x, plait.SUM), 0)

for _ in range(4):
    x = f(jnp.ones(1000))
plait.barrier()
assert float(x[0]) == comm.size, x
if len(sys.argv) > 1:
    print(f"cache of rank {comm.rank}", flush=True)
"""


@needs_mpi
def test_mpiexec_without_plait_run_and_a_shared_compilation_cache(tmp_path):
    """Ranks know each other by the launcher's variables. Both ranks take the same programs from the
    cache, and so does a second job.
    """  # noqa: D205, D415
    program, cache, flights = tmp_path / "plain.py", tmp_path / "cache", tmp_path / "flights"
    program.write_text(PLAIN)
    cached = []
    for attempt in range(2):
        trace = tmp_path / f"out{attempt}.json"
        done = start_ranks(
            *(sys.executable, program),
            PLAIT_TRACE=trace,
            PLAIT_DEBUG=1 - attempt,
            PLAIT_FLIGHT=flights,
            JAX_COMPILATION_CACHE_DIR=cache,
        )
        assert done.returncode == 0, done.stderr
        events = check_trace(trace, n_ranks=2, n_least=9)
        assert overlaps(events) == 5
        assert {e["args"]["at"] for e in events} == {"plain.py:9", "plain.py:13"}
        lines = [line for line in done.stdout.splitlines() if re.match(r"r[01] \| 0000", line)]
        assert len(lines) == (0 if attempt else 2 * 2 * 9)
        cached.append({p.name for p in cache.iterdir() if p.name.endswith("-cache")})
    assert cached[0] == cached[1] and any("plait" in name or "jit" in name for name in cached[0])
    assert not list(flights.iterdir()) and not list(tmp_path.glob("*.part"))


SHIFTED = """#!/bin/sh
if [ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 1 ]; then
  exec unshare --time --monotonic 100000 --fork "$@"
fi
exec "$@"
"""


@needs_mpi
def test_ranks_whose_flight_recorders_have_no_file(tmp_path):
    """No file is wanted, or the folder is open to others."""
    tmp_path.chmod(0o755)
    code = "import plait; plait.barrier(); print('met')"
    command = (sys.executable, "-m", "plait", "run", "-n", "2", sys.executable, "-m", "mpi4py")
    for flights in ("0", tmp_path):
        done = start(*command, "-c", code, PLAIT_FLIGHT=flights)
        assert done.returncode == 0 and done.stdout.count("met") == 2, done.stdout + done.stderr


@needs_mpi
def test_clocks_of_other_nodes_are_measured(tmp_path):
    """Rank 1 in a time namespace: its monotonic clock is a day ahead, as on another node."""
    able = shutil.which("unshare") and start("unshare", "--time", "--monotonic", "9", "true")
    if not able or able.returncode != 0:
        pytest.skip("time namespaces cannot be made here")
    program, shift, trace = tmp_path / "plain.py", tmp_path / "shift.sh", tmp_path / "out.json"
    program.write_text(PLAIN)
    shift.write_text(SHIFTED)
    done = start_ranks("sh", shift, sys.executable, program, PLAIT_TRACE=trace)
    assert done.returncode == 0, done.stderr
    clocks = json.loads(trace.read_text())["otherData"]["clocks"]
    assert clocks == {"rank 0": "same clock", "rank 1": "measured by messages"}
    # Under load even the fastest of the round trips that measure the offset may be slow.
    assert overlaps(check_trace(trace, n_ranks=2, n_least=9), slack_us=1000) == 5


def part(path, rank, clock, times, *, job="job", wall=10**18, offset=None, torn=False, state=1):
    """Write a part of a trace as the C core does."""
    header = np.zeros(1, _record._HEADER)
    header["magic"], header["version"] = b"plaitrec", _record._VERSION
    header["header_bytes"] = _record._HEADER_BYTES
    header["entry_bytes"] = _record.TRACE_ENTRY.itemsize
    header["rank"], header["size"], header["state"] = rank, 2, state
    header["wall_ns"], header["start_ns"] = wall, 1000
    header["clock"], header["job"], header["host"] = clock, job, b"h"
    if offset is not None:
        header["offset_ns"], header["has_offset"] = offset, 1
    entries = np.zeros(len(times), _record.TRACE_ENTRY)
    entries["number"] = np.arange(len(times)) + 1
    entries["start_ns"], entries["end_ns"] = times, np.asarray(times) + 500
    entries["title"], entries["where"], entries["peer"] = b"bcast(x)", b"a.py:1", -1
    data = header.tobytes().ljust(4096, b"\0") + entries.tobytes()
    if torn:
        half = np.zeros(1, _record.TRACE_ENTRY)  # number 0: not complete
        half["start_ns"] = 5
        data += half.tobytes() + entries.tobytes()[:100]
    path.write_bytes(data)


def test_merging_aligns_clocks_and_skips_torn_tails(tmp_path):
    target = str(tmp_path / "t[1].json")  # the name is a glob pattern itself
    part(tmp_path / "t[1].json.1-a.part", 0, b"A", [2000, 4000], torn=True, state=0)
    part(tmp_path / "t[1].json.2-b.part", 1, b"B", [9000], offset=-6000)
    part(tmp_path / "t[1].json.3-c.part", 0, b"A", [1], job="earlier", wall=10**17)
    part(tmp_path / "t[1].json.4-d.part", 2, b"C", [2500])
    (tmp_path / "t[1].json.5-e.part").write_bytes(b"not one of ours")
    n, parts = _trace.merge(target, keeps_parts=True)
    assert n == 4 and len(parts) == 3
    content = json.loads(pathlib.Path(target).read_text())
    times = [(e["pid"], e["ts"]) for e in content["traceEvents"] if e["ph"] == "X"]
    assert times == [(1, 0.0), (1, 2.0), (2, 1.0), (3, 0.5)]
    assert content["otherData"]["clocks"]["rank 2"] == "time of day"
    assert _trace.summary(parts)[1].split()[0] == "4"
    assert _trace.merge(target)[0] == 4 and len(_trace.part_paths(target)) == 1
    assert _trace.target_of(target + ".1-a.part") == target


def test_a_job_merges_its_own_parts(tmp_path):
    """Another job with the same name of its trace may be under way."""
    target = tmp_path / "t.json"
    part(tmp_path / "t.json.1-a.part", 0, b"A", [2000, 4000], job="run a on h", wall=10**18)
    part(tmp_path / "t.json.2-b.part", 1, b"A", [3000], job="run a", wall=10**18)  # killed early
    part(tmp_path / "t.json.3-c.part", 0, b"A", [5000], job="run ab", wall=2 * 10**18)
    assert _trace.merge(str(target), job="run a")[0] == 3
    assert [path.name for path in tmp_path.glob("*.part")] == ["t.json.3-c.part"]
    part(tmp_path / "t.json.1-a.part", 0, b"A", [2000, 4000], job="parent 3", wall=10**18)
    _trace.merge_at_exit(str(tmp_path / "t.json.1-a.part"), 1)
    assert [path.name for path in tmp_path.glob("*.part")] == ["t.json.3-c.part"]
    events = json.loads(target.read_text())["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == 2


def test_a_trace_replaces_what_a_link_leads_to_and_no_device(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "t.json").symlink_to("folder/real.json")
    part(tmp_path / "t.json.1-a.part", 0, b"A", [2000])
    assert _trace.merge(str(tmp_path / "t.json"))[0] == 1
    assert (tmp_path / "t.json").is_symlink() and (tmp_path / "folder/real.json").is_file()
    os.mkfifo(tmp_path / "pipe")
    part(tmp_path / "pipe.1-a.part", 0, b"A", [2000])
    with pytest.raises(OSError, match="Not a regular file"):
        _trace.merge(str(tmp_path / "pipe"))
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "pipe.1-a.part").exists()


def test_a_trace_that_cannot_be_made_at_exit_is_said(tmp_path):
    """The other work at exit is still done."""
    path = str(tmp_path / "folder")
    code = f"import os, plait\nplait.barrier()\nos.mkdir({path!r})"
    done = start(sys.executable, "-c", code, PLAIT_TRACE=tmp_path / "folder")
    assert "plait: the trace cannot be made: [Errno 21] Is a directory" in done.stderr
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert len(list(tmp_path.glob("folder.*.part"))) == 1


def test_names_in_a_folder_that_the_program_leaves(tmp_path):
    """A trace named off is no trace."""
    code = (
        f"import os\nos.chdir({str(tmp_path)!r})\nimport plait\nplait.barrier()\n"
        "print(os.listdir('flights'))\nos.chdir('/')"
    )
    done = start(sys.executable, "-c", code, PLAIT_FLIGHT="flights", PLAIT_TRACE="Off")
    assert done.returncode == 0 and ".flight" in done.stdout, done.stderr
    assert os.listdir(tmp_path) == ["flights"] and not os.listdir(tmp_path / "flights")
    for name in ("0", "off", "FALSE", ""):
        assert _trace_file.asked_for({"PLAIT_TRACE": name}) == _trace_file.asked_for({}) == ""
    assert _trace_file.asked_for({"PLAIT_TRACE": "t"}) == "t"


def test_merging_where_there_is_nothing(tmp_path, capsys):
    from plait import cli

    assert cli.main(["trace", "merge", str(tmp_path / "none.json")]) == 1
    assert "no parts of" in capsys.readouterr().err


def test_one_process_with_several_devices(tmp_path):
    """A track for each device, even if devices are ranks of two groups."""
    code = (
        "import jax, jax.numpy as jnp, plait\n"
        "from jax.sharding import PartitionSpec as P\n"
        "jax.config.update('jax_num_cpu_devices', 4)\n"
        "auto = (jax.sharding.AxisType.Auto,) * 2\n"
        "mesh = jax.make_mesh((2, 2), ('x', 'y'), axis_types=auto)\n"
        "f = jax.shard_map(lambda x: plait.allreduce(x, plait.SUM, comm='x'), mesh=mesh,\n"
        "                  in_specs=P(('x', 'y')), out_specs=P('y'))\n"
        "plait.block(plait.jit(f)(jnp.ones(4)))\n"
    )
    done = start(sys.executable, "-c", code, PLAIT_TRACE="sub/t.json", PLAIT_FLIGHT=tmp_path)
    assert "no trace" in done.stderr  # the folder does not exist: said once only
    done = start(sys.executable, "-c", code, PLAIT_TRACE=tmp_path / "t.json", PLAIT_FLIGHT="0")
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "t.json").read_text())
    events = [e for e in content["traceEvents"] if e["ph"] == "X"]
    ranks = sorted((e["pid"], e["tid"], e["args"]["rank"]) for e in events)
    assert ranks == [(1, 1, 0), (1, 2, 0), (1, 3, 1), (1, 4, 1)]


# ---- comparing ranks --------------------------------------------------------------------------


def flight(rank, *titles, comm=1, first=0, is_collective=True):
    header = _record.Header(
        **{k: "" for k in ("path", "clock", "host", "job", "program", "why")},
        **{k: 0 for k in ("pid", "size", "state", "wall_ns", "start_ns")},
        rank=rank,
        offset_ns=None,
        is_alive=False,
    )
    operations = [
        _record.Operation(i, i, 8, comm, first + i, rank, 0, t, "a.py:1", "ok", is_collective)
        for i, t in enumerate(titles)
    ]
    return _record.Flight(header, operations)


def test_the_first_difference_between_ranks():
    found = _record.divergence([flight(0, "a", "b", "c"), flight(1, "a", "x")])
    assert found[0] == "communicator #1, operation 00000001 differs:"
    assert found[2] == "  rank 1: x at a.py:1"
    found = _record.divergence([flight(0, "a", "b", "c"), flight(1, "a")])
    assert found == ["communicator #1: rank 1 is 2 behind; its last is 00000000 a at a.py:1 (ok)"]
    assert _record.divergence([flight(0, "a"), flight(1, "a")]) == []
    assert _record.divergence([flight(0, "a"), flight(1, "x", is_collective=False)]) == []
    assert _record.divergence([flight(0, "a"), flight(0, "x")]) == []  # two communicators


# ---- interactive ------------------------------------------------------------------------------


def test_ipython(tmp_path):
    """Cells have their own names; a failure does not end the session."""
    if importlib.util.find_spec("IPython") is None:
        pytest.skip("IPython is not installed")
    code = (
        "import plait, jax.numpy as jnp\n"
        "try:\n"
        "    plait.sendrecv(jnp.ones(3), jnp.ones(2), 0, 0)\n"
        "except plait.TruncationError as error:\n"
        "    print('caught', str(error).splitlines()[0])\n"
        "print(plait.allreduce(jnp.ones(2), plait.SUM).tolist())\n"
    )
    command = (sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code)
    done = start(*command, PLAIT_FLIGHT=tmp_path / "flights", IPYTHONDIR=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"caught .* at <ipython-input-\S+>:3", done.stdout), done.stdout
    assert "[1.0, 1.0]" in done.stdout and not list((tmp_path / "flights").iterdir())


def test_a_flight_recorder_that_is_cut_is_left_out(tmp_path, monkeypatch):
    header = np.zeros(1, _record._HEADER)
    header["magic"], header["version"] = b"plaitrec", _record._VERSION
    with pytest.raises(_record.UnreadableError, match="too short for a flight recorder"):
        _record.parse_flight(header.tobytes())
    (tmp_path / "1-a.flight").write_bytes(header.tobytes())
    monkeypatch.setattr(_core, "record_folders", lambda: [str(tmp_path)])
    assert _record.flights() == []


def test_what_a_killed_process_leaves_is_kept_from_when_it_is_found(tmp_path):
    """The file's time may be that of the process's start: a job may run for days."""
    flights = tmp_path / "flights"
    code = "import plait, os, signal\nplait.barrier()\nos.kill(os.getpid(), signal.SIGKILL)"
    start(sys.executable, "-c", code, PLAIT_FLIGHT=flights)
    [left] = flights.iterdir()
    is_there = []
    for _ in range(2):  # each a day later
        long_ago = time.time() - 25 * 3600
        os.utime(left, (long_ago, long_ago))
        done = start(sys.executable, "-c", "import plait\nplait.barrier()", PLAIT_FLIGHT=flights)
        assert done.returncode == 0, done.stderr
        is_there.append(left.exists())
        again = start(sys.executable, "-c", "import plait\nplait.barrier()", PLAIT_FLIGHT=flights)
        assert again.returncode == 0 and left.exists() == is_there[-1]
    assert is_there == [True, False]


def test_a_part_of_a_trace_that_is_cut_is_named(tmp_path):
    header = np.zeros(1, _record._HEADER)
    header["magic"], header["version"] = b"plaitrec", _record._VERSION
    header["entry_bytes"], header["header_bytes"] = _record.TRACE_ENTRY.itemsize, 4096
    (tmp_path / "t.json.0.part").write_bytes(header.tobytes() + bytes(1000))
    with pytest.raises(_record.UnreadableError, match="too short for a part of a trace"):
        _trace.read_part(str(tmp_path / "t.json.0.part"))


def test_a_folder_for_flight_recorders_that_is_none_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")
    path = tmp_path / "file"
    done = start(sys.executable, "-c", "import plait\nplait.barrier()", PLAIT_FLIGHT=path)
    assert done.returncode == 0 and "no flight recorder in" in done.stderr, done.stderr


def test_a_launcher_that_mpi_does_not_know():
    """As under srun with a library built without its interface: N worlds of one rank."""
    variables = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    code = "import plait\nplait.barrier()"
    done = start(sys.executable, "-c", code, **variables)
    assert done.returncode != 0
    assert re.search(r"2 ranks \(SLURM_STEP_NUM_TASKS|mpi4py is not installed", done.stderr)


def test_interrupt_keeps_the_flight_recorder(tmp_path):
    code = (  # started in the background, a program ignores interrupts
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import plait, time\nplait.barrier()\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    env = os.environ | {"PYTHONPATH": PACKAGE, "PLAIT_FLIGHT": str(tmp_path)}
    job = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert job.stdout.readline() == b"ready\n"
    [path] = tmp_path.iterdir()
    assert _record.read_flight(str(path)).header.end == "is running"
    for _ in range(8):  # Python drops an interrupt that arrives within a finalizer
        job.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(5)
            break
    job.stdout.close()
    assert _record.read_flight(str(path)).header.end == "failed"
