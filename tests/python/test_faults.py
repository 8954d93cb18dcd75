"""Real processes: every fault ends in the named error, in time, on every rank that is left.

docs/guard.md has the table of what MPI itself does on these faults: hangs, and wrong results
reported as success.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys

import faulty
import platforms
import pytest
from plait import _launch, _mpi_find

HERE = pathlib.Path(__file__).parent
TIMEOUT_S = 2
SLACK_S = 8  # for a busy machine
# MPICH pretends that there are two nodes.
TWO_NODES = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CH4_NETMOD": "ofi"}
WAYS = {"shared memory": {}, "messages": {"PLAIT_SHARED": "off"}, "two nodes": TWO_NODES}
JAX_PLATFORMS = "cpu" if platforms.CHOSEN == "cpu" else f"{platforms.CHOSEN},cpu"
BOTH_WAYS = pytest.mark.parametrize("way", ["shared memory", "messages"])

# The error on the ranks that are left, a part of its text, and the seconds until it comes.
WANT = {
    **dict.fromkeys(
        ("counts", "counts again", "large counts"), ("MismatchError", "allreduce(float", 1)
    ),
    "counts, one late": ("MismatchError", "allreduce(float", 3),
    "reductions": ("MismatchError", "allreduce(float32[4], MAX) at faulty.py:", 1),
    "dtypes": ("MismatchError", "allreduce(float32[4], SUM) at faulty.py:", 1),
    "roots": ("MismatchError", "bcast(float32[4], root 1) at faulty.py:", 1),
    "bcast counts": ("MismatchError", "root 0) at faulty.py:", 1),
    "alltoall counts": ("MismatchError", "alltoall(float", 1),
    "barrier": ("MismatchError", "barrier() at faulty.py:", 1),
    "allgather": ("MismatchError", "allgather(float32(4,)) at faulty.py:", 1),
    "permutations": ("MismatchError", "call this operation with different arguments", 1),
    "tables": ("MismatchError", "call this operation with different arguments", 1),
    "known calls": ("MismatchError", "different operations", 1),
    "known counts": ("MismatchError", "bytes came", 1),
    "known calls in a loop": ("MismatchError", "call this operation with different arguments", 1),
    "truncation": ("TruncationError", "it has 32 bytes of float32, the receiver expects 12", 1),
    "message dtypes": ("MismatchError", "int32", 1),
    "half of a ring": (
        "MismatchError",
        "sendrecv(float32[4] -> PROC_NULL, tag 0; float32[4] <- ",
        1,
    ),
    "receives": ("MismatchError", "recv(float32[4] <- ", 1),
    **dict.fromkeys(
        ("own receive", "own tags", "lone receive"), ("MismatchError", "waits for itself", 1)
    ),
    "crossed": ("MismatchError", "allreduce(float32[4], SUM) at faulty.py:", 1),
    "started receives": ("none", "", 4),
    "computes": ("none", "", 6),
    "values": ("none", "", 6),
    "raise": ("PeerError", "raised ValueError: boom", 2),
    "raise in a loop": ("PeerError", "raised ValueError: after 50 steps", 2),
    "exit": ("PeerError", "has left its program", 2),
    "exit with 3": ("PeerError", "raised SystemExit: 3", 2),
    "_exit": ("PeerError", "has ended", 2),
    "kill": ("PeerError", "has ended", 2),
    "stop": ("TimeoutError", "no other rank came for 2", TIMEOUT_S + 2),
    "early exit": ("PeerError", "rank 1 of MPI_COMM_WORLD has left its program", 2),
    "early raise": ("PeerError", "rank 1 of MPI_COMM_WORLD raised ValueError: boom", 2),
    "early exit with 3": ("PeerError", "rank 1 of MPI_COMM_WORLD raised SystemExit: 3", 2),
    "early _exit": ("PeerError", "rank 1 of MPI_COMM_WORLD has ended", 2),
    "early exit, unused": ("PeerError", "has left its program", 2),
    "late": ("TimeoutError", "in no operation; its last, ", TIMEOUT_S + 2),
    "counts, one too late": ("MismatchError", "the ranks call different operations", TIMEOUT_S + 2),
}
OF_THREE = ("late", "counts, one too late")


@functools.cache
def job(names, n_ranks, way, program="faulty.py", timeout_s=TIMEOUT_S):
    """Run a job once: its rows by fault, its exit code, all its output."""
    if _launch.find_launcher is None or _mpi_find.find_mpi() is None:
        pytest.skip("no MPI")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PRTE"))}
    done = subprocess.run(
        [sys.executable, "-m", "plait", "run", "-n", str(n_ranks), "--timeout", "200"]
        + [str(HERE / program), *names],
        env=env | {"PLAIT_TIMEOUT": str(timeout_s), "JAX_PLATFORMS": JAX_PLATFORMS, **WAYS[way]},
        capture_output=True,
        text=True,
        timeout=230,
    )
    output = done.stdout + done.stderr
    rows = {}
    for line in done.stdout.splitlines():
        _, brace, rest = line.partition("{")
        if brace:
            row = json.loads(brace + rest)
            rows.setdefault(row["fault"], {})[row["rank"]] = row
    return rows, done.returncode, output


def judge(name, rows, ranks, output, text=None):
    """Every rank of ``ranks`` has the expected error, in time."""
    kind, usual_text, bound_s = WANT[name]
    text = usual_text if text is None else text
    assert sorted(rows) == sorted(ranks), output
    for rank, row in rows.items():
        assert row["kind"] == kind, (name, rank, row, output)
        assert text in row["text"], (name, rank, row)
        assert row["took"] < bound_s + SLACK_S, (name, rank, row)


# Messages compare known calls later, when it is no longer known which calls they were.
AT_ONCE = dict.fromkeys(
    (("known calls", "shared memory"), ("known counts", "shared memory")),
    "call this operation with different arguments",
)
SURVIVED = {
    2: tuple(name for name in faulty.TOGETHER if name in WANT),
    3: ("counts", "counts, one late", "roots", "receives", "crossed"),
}


@pytest.mark.long(keep=1)
@BOTH_WAYS
@pytest.mark.parametrize("n_ranks", SURVIVED)
def test_faults_that_all_ranks_survive(way, n_ranks):
    names = SURVIVED[n_ranks]
    rows, code, output = job(names, n_ranks, way)
    for name in names:
        judge(name, rows.get(name, {}), range(n_ranks), output, AT_ONCE.get((name, way)))
    assert [row["total"] for row in rows["none"].values()] == [n_ranks] * n_ranks
    assert code == 0, output


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("name", ["kill", "late"])
def test_faults_of_one_rank_of_two_nodes(name):
    rows, code, output = job((name,), 4, "two nodes")  # with 3, MPICH may hang in MPI_Init
    mine = rows.get(name, {})
    ranks = [0, 1, 2]
    if name == "late":  # the rank that gave up first has the table
        name = "stop"
    judge(name, {rank: row for rank, row in mine.items() if rank in ranks}, ranks, output)
    assert code != 0, output


@pytest.mark.parametrize("name", OF_THREE)
def test_one_of_three_does_not_come(name):
    """By messages, where waiting ranks poll: polling is no progress of the rank they wait for."""
    rows, code, output = job((name,), 3, "messages")
    mine = rows.get(name, {})
    judge(name, {rank: row for rank, row in mine.items() if rank < 2}, [0, 1], output)
    assert (code == 0) == (name != "late"), output  # a rank ends the job because others are missing
    assert all(row["took"] > TIMEOUT_S for row in mine.values())


# All faults where ranks see each other. By messages one fault of each kind: a rank that announces
# its end, a rank that leaves silently, a rank that is killed, and a rank that hangs.
GONE = [(name, "shared memory") for name in WANT if name not in (*faulty.TOGETHER, OF_THREE[1])]
GONE += [(name, "messages") for name in ("raise in a loop", "exit", "kill", "stop")]


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("name, way", GONE)
def test_faults_of_one_rank(name, way):
    rows, code, output = job((name,), 2, way)
    mine = rows.get(name, {})
    judge(name, {rank: row for rank, row in mine.items() if rank == 0}, [0], output)
    if name == "late" and way == "shared memory":  # rank 0 lives on
        assert "rank 0 ends with code 1, since it gave up waiting for other ranks" in output
    if name == "late" or (name == "stop" and 1 in mine):  # rank 1 comes when nobody waits any more
        assert mine[1]["kind"] in ("TimeoutError", "PeerError", "none"), output
    else:
        assert 1 not in mine, output
    assert (code == 0) == (name in ("exit", "early exit", "early exit, unused")), output


def test_a_first_use_without_all_ranks_says_that_it_needs_them():
    rows, code, output = job(("early message", "early again"), 2, "shared memory", timeout_s=0.4)
    row = rows["early message"][0]
    assert row["kind"] == "TimeoutError", output
    assert "duplicate the communicator: no other rank came for 2." in row["text"]
    assert (
        "needs all of its ranks, even if it is a message: first call plait.Comm(comm)"
        in row["text"]
    )
    assert rows["early message"][1]["kind"] == "none" and code != 0, output
    # Rank 0 does not restart what it gave up: rank 1 would be left with halves.
    again = rows["early again"]
    assert again[0]["kind"] == "CommError", output
    assert "has given up this communicator: other ranks were missing" in again[0]["text"]
    assert again[1]["kind"] in ("PeerError", "TimeoutError"), output
    assert again[1]["took"] < 5 * 0.4 + 2 + SLACK_S, output


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("name, way", [("raise", "messages"), ("kill", "shared memory")])
def test_a_process_with_several_devices_of_a_mesh_ends(name, way):
    rows, code, output = job((name,), 2, way, "faulty_mesh.py")
    judge(name, rows.get(name, {}), [0], output)
    assert code != 0, output


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "name, text",
    [("busy kill one", "has ended"), ("busy raise one", "raised ValueError: boom")],
)
def test_a_process_ends_with_an_operation_begun(name, text):
    """On a GPU the other process's stream waits, and a thread of plait reports that."""
    _, code, output = job((name,), 2, "shared memory", "faulty_mesh.py")
    assert "PeerError" in output and text in output and code != 0, output


@pytest.mark.parametrize("name", ["busy exit one", "busy exit"])
def test_a_process_that_has_dropped_what_it_has_begun_leaves_when_that_is_done(name):
    rows, code, output = job((name,), 2, "shared memory", "faulty_mesh.py")
    [row] = rows[name].values()
    assert (row["rank"], row["kind"], code) == (0, "none", 0), output


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    "name, text",
    [
        ("early raise", "raised ValueError: boom"),
        ("early kill", "has ended"),
        ("early exit one", "has left its program"),
        ("early exit turned", "has left its program"),
        ("early exit second", "has left its program"),
    ],
)
def test_a_process_ends_before_the_first_operation_on_a_mesh(name, text):
    rows, code, output = job((name,), 2, "shared memory", "faulty_mesh.py")
    [row] = rows[name].values()
    assert (row["rank"], row["kind"]) == (0, "PeerError") and text in row["text"], output
    assert row["took"] < 2 + SLACK_S, output


def test_an_adjoint_that_one_rank_has_dropped():
    """Messages of tangents have their own communicator: the time limit ends the wait."""
    rows, code, output = job(("ignored adjoint",), 2, "shared memory")
    mine = rows["ignored adjoint"]
    assert [mine[rank]["kind"] for rank in range(2)] == ["TimeoutError"] * 2, output
    assert any("see plait.depend" in row["text"] for row in mine.values()), output
    assert all(row["took"] < TIMEOUT_S + 2 + SLACK_S for row in mine.values()), output
    assert code == 1, output


@pytest.mark.long(keep=1)
@BOTH_WAYS
def test_messages_name_both_calls(way):
    rows, code, output = job(SURVIVED[2], 2, way)
    assert code == 0, output
    for row in rows["truncation"].values():
        assert row["text"].count("at faulty.py:") == 2, output
    for name in ("counts", "receives", "permutations", "tables"):
        for row in rows[name].values():
            lines = row["text"].splitlines()
            assert [line[:10] for line in lines[1:]] == ["  rank 0: ", "  rank 1: "], output
            assert all("at faulty.py:" in line for line in lines), output
