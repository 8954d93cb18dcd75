"""Two hosts: every fault ends on both hosts in a named error; and `plait run` on two hosts.

Ranks on another host cannot be seen. Two ranks, one on each host, have messages alone. With four
ranks, two share a host, and all meet by the transport ``cluster``.
"""

import json
import os
import re
import subprocess
import sys

import pytest
import two_hosts
from plait import _launch, _mpi_find
from test_faults import HERE, TIMEOUT_S, judge

LIMIT_S = 150  # for a job; the guard's bound is far below


@pytest.fixture(scope="module")
def hosts():
    try:
        if _mpi_find.find_launcher(_mpi_find.find_mpi()).family == "intel":
            pytest.skip("the launcher of MPICH or Open MPI is not here")
    except _mpi_find.NoMpiError as error:
        pytest.skip(str(error))
    try:
        with two_hosts.TwoHosts() as made:
            yield made
    except two_hosts.Unavailable as reason:
        pytest.skip(f"no namespaces can be made here: {reason}")


@pytest.fixture
def has_hydra(is_open_mpi):
    if is_open_mpi:
        pytest.skip("faults are tried with MPICH")


@pytest.fixture(autouse=True)
def nothing_is_left(hosts):
    yield
    assert two_hosts.wait_until(lambda: not hosts.processes(), 10), hosts.processes()


@pytest.fixture(scope="module")
def is_open_mpi(hosts):
    return _mpi_find.find_launcher(_mpi_find.find_mpi()).family == "openmpi"


def environment_of(placed):
    """The environment of a job over both hosts, with what the launcher is told of them."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PRTE"))}
    return env | {"PLAIT_TIMEOUT": str(TIMEOUT_S), "JAX_PLATFORMS": "cpu"} | placed


class Job:
    """A job of faulty.py over both hosts."""

    def __init__(self, hosts, names, n_ranks):
        env = environment_of(hosts.hydra(n_ranks))
        command = [sys.executable, "-m", "plait", "run", "-n", n_ranks, "--timeout", LIMIT_S]
        self.process = hosts.start(
            [*command, HERE / "faulty.py", *names],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.output = ""

    def until(self, word):
        """Read the job's output, up to a line with this word."""
        for line in self.process.stdout:
            self.output += line
            if word in line:
                return
        raise AssertionError(self.output)

    def end(self):
        """The job's rows by fault and rank, and its exit code."""
        self.output += self.process.communicate(timeout=LIMIT_S + 30)[0]
        rows = {}
        for line in self.output.splitlines():
            label, _, said = line.partition(" ")
            if said.startswith('{"fault"'):
                row = json.loads(said)
                assert label == f"[{row['rank']}]"
                rows.setdefault(row["fault"], {})[row["rank"]] = row
        return rows, self.process.returncode


@pytest.mark.long
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_faults_that_all_ranks_survive(hosts, has_hydra, n_ranks):
    names = ["values", "counts", "large counts", "reductions", "roots", "truncation"]
    job = Job(hosts, names, n_ranks)
    rows, code = job.end()
    for name in names:
        judge(name, rows.get(name, {}), range(n_ranks), job.output)
    assert [row["total"] for row in rows["none"].values()] == [n_ranks] * n_ranks
    assert code == 0, job.output


# With two ranks neither sees the other be killed, and the launcher ends the job.
@pytest.mark.long
@pytest.mark.parametrize(("name", "sizes"), [("raise", (2, 4)), ("kill", (4,)), ("late", (4,))])
def test_faults_of_one_rank(hosts, has_hydra, name, sizes):
    jobs = {n_ranks: Job(hosts, [name], n_ranks) for n_ranks in sizes}
    text = "no other rank came for 2" if name == "late" else None  # the other host has it
    for n_ranks, job in jobs.items():
        rows, code = job.end()
        left = range(n_ranks - 1)
        found = {rank: row for rank, row in rows.get(name, {}).items() if rank in left}
        judge(name, found, left, job.output, text)
        assert code not in (0, _launch.TIME_LIMIT_CODE), job.output


def test_the_network_is_cut(hosts, has_hydra):
    """No more data comes, and MPI reports nothing: the time limit ends all waits."""
    jobs = {n_ranks: Job(hosts, ["cut"], n_ranks) for n_ranks in (2, 4)}
    for job in jobs.values():
        job.until("begun")
    hosts.cut()
    try:
        for n_ranks, job in jobs.items():
            rows, code = job.end()
            assert sorted(rows.get("cut", {})) == list(range(n_ranks)), job.output
            for row in rows["cut"].values():
                assert row["kind"] in ("TimeoutError", "TransportError", "PeerError"), job.output
            assert code not in (0, _launch.TIME_LIMIT_CODE), job.output
    finally:
        hosts.restore()


# ---- plait run -----------------------------------------------------------------------------------

N_LINES = 3000
OUTPUT = f"""
import os, subprocess, sys
me = os.environ["PLAIT_RUN_RANK"]
for i in range({N_LINES}):
    print(me, end=" ", file=sys.stderr if i % 3 == 0 else sys.stdout)  # by two calls of write
    print(i, "x" * (i % 300), file=sys.stderr if i % 3 == 0 else sys.stdout)
print(me, "long", me * 50000)
sys.stdout.flush()
sys.stdout.buffer.write(b"bytes \\xff\\x00\\r\\x1eplait run: 0.ended 3\\n")
subprocess.Popen(["sh", "-c", 'until [ -e "$0" ]; do sleep 0.2; done', sys.argv[1]])  # keeps them
print("no end", end="")
"""
SETTINGS = """
import json, os, socket
names = ["PLAIT_RUN_FOLDER", "PLAIT_RUN_WRAPPER", "OMP_NUM_THREADS", "NPROC", "PLAIT_TIMEOUT"]
print(json.dumps([socket.gethostname(), *(os.environ.get(name) for name in names)]))
"""
SUM = """
import jax.numpy as jnp, plait
print(plait.allreduce(jnp.ones(2), op=plait.SUM))
"""


def run(hosts, is_open_mpi, n_ranks, *program, folder=None, **settings):
    """Run a job over both hosts; its lines by rank, the output first.

    Open MPI's launcher sometimes prints lines of its own.
    """
    placed = (hosts.open_mpi if is_open_mpi else hosts.hydra)(n_ranks)
    command = [sys.executable, "-m", "plait", "run", "-n", n_ranks, "--timeout", LIMIT_S, *program]
    done = hosts.run(
        ["env", f"TMPDIR={folder}", *command] if folder else command,
        env=environment_of(placed) | settings,
        timeout=LIMIT_S + 30,
        text=False,
    )
    assert done.returncode == 0, done.stderr
    lines = (done.stdout + done.stderr).decode("latin-1").split("\n")[:-1]
    said = {rank: [] for rank in range(n_ranks)}
    for line in lines:
        labelled = re.fullmatch(r"\[(\d+)\] (.*)", line, re.DOTALL)
        assert labelled or is_open_mpi, line
        if labelled:
            said[int(labelled[1])].append(labelled[2])
    return said


def write(folder, text):
    path = folder / "program.py"
    path.write_text(text)
    return path


def test_run_prints_whole_lines_with_labels(hosts, is_open_mpi, tmp_path):
    said = run(hosts, is_open_mpi, 4, write(tmp_path, OUTPUT), tmp_path / "end")
    (tmp_path / "end").touch()
    for rank, lines in said.items():
        numbered = [f"{rank} {i} {'x' * (i % 300)}" for i in range(N_LINES)]
        others = [f"{rank} long {str(rank) * 50000}", "bytes \xff\x00\r\x1eplait run: 0.ended 3"]
        errors = numbered[::3]
        del numbered[::3]
        assert lines == [*numbered, *others, "no end", *errors]


def test_run_takes_no_folder_that_hosts_share_for_one_host(hosts, is_open_mpi, tmp_path):
    """A named pipe opens for writing on each host, but only one host reads it."""
    given = {"PLAIT_RUN_FOLDER": "of another job", "PLAIT_RUN_WRAPPER": "1"}
    program = write(tmp_path, SETTINGS)
    said = run(hosts, is_open_mpi, 2, program, folder=tmp_path, **given)
    found = [json.loads(line) for lines in said.values() for line in lines]
    assert sorted(settings[:3] for settings in found) == [[h, None, None] for h in two_hosts.NAMES]


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_run_divides_the_cores_of_a_host_by_its_ranks(hosts, is_open_mpi, tmp_path, n_ranks):
    program = write(tmp_path, SETTINGS)
    said = run(hosts, is_open_mpi, n_ranks, program, NPROC="7")
    threads = str(max(1, 2 * _launch.n_cores() // n_ranks))
    found = [json.loads(line)[3:] for lines in said.values() for line in lines]
    assert found == [[threads, "7", str(TIMEOUT_S)]] * n_ranks


def test_run_starts_ranks_that_compute(hosts, is_open_mpi, tmp_path):
    said = run(hosts, is_open_mpi, 2, write(tmp_path, SUM))
    assert said == {0: ["[2. 2.]"], 1: ["[2. 2.]"]}


UNENDING = """
import pathlib, sys, time
from mpi4py import MPI
pathlib.Path(sys.argv[1], str(MPI.COMM_WORLD.rank)).touch()
time.sleep(100)
"""
KILLED = '"$@" "$0" & until [ -e "$0/0" ] && [ -e "$0/1" ]; do sleep 0.1; done; kill -9 $!'


def test_run_that_is_killed_leaves_nothing(hosts, is_open_mpi, tmp_path):
    """A check after every test looks at what is left."""
    placed = (hosts.open_mpi if is_open_mpi else hosts.hydra)(2)
    command = [sys.executable, "-m", "plait", "run", "-n", 2, write(tmp_path, UNENDING)]
    script = ["sh", "-c", KILLED, tmp_path, *command]
    assert hosts.run(script, env=environment_of(placed), timeout=LIMIT_S).returncode == 0
