"""Two hosts: what ranks compute, and that every fault ends on all of them, by an error with a name.

Ranks on another host cannot be seen. Two ranks, one a host, have messages alone; of four, two
share a host, and meet by the transport ``cluster``.
"""

import json
import os
import subprocess
import sys

import pytest
import two_hosts
from plait import _launch, _mpi_find
from test_faults import HERE, TIMEOUT_S, judge

LIMIT_S = 60  # of a job; the guard's bound is far below


@pytest.fixture(scope="module")
def hosts():
    mpi = _mpi_find.find_mpi()
    if mpi is None or _mpi_find.find_launcher(mpi).family != "mpich":
        pytest.skip("the launcher of MPICH is not here")
    try:
        with two_hosts.TwoHosts() as made:
            yield made
    except two_hosts.Unavailable as reason:
        pytest.skip(f"no namespaces can be made here: {reason}")


@pytest.fixture(autouse=True)
def nothing_is_left(hosts):
    yield
    assert two_hosts.wait_until(lambda: not hosts.processes(), 10), hosts.processes()


class Job:
    """A job of faulty.py over both hosts."""

    def __init__(self, hosts, names, n_ranks):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PRTE"))}
        env |= {"PLAIT_TIMEOUT": str(TIMEOUT_S), "JAX_PLATFORMS": "cpu", **hosts.hydra(n_ranks)}
        command = [sys.executable, "-m", "plait", "run", "-n", n_ranks, "--timeout", LIMIT_S]
        self.process = hosts.start(
            [*command, HERE / "faulty.py", *names],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.output = ""

    def until(self, word):
        """Reads what it prints, up to a line with this word."""
        for line in self.process.stdout:
            self.output += line
            if word in line:
                return
        raise AssertionError(self.output)

    def end(self):
        """Its rows by fault and rank, and its exit code."""
        self.output += self.process.communicate(timeout=LIMIT_S + 30)[0]
        rows = {}
        for start, letter in enumerate(self.output):  # the launcher may join lines
            if letter == "{" and self.output.startswith('{"fault"', start):
                row = json.JSONDecoder().raw_decode(self.output, start)[0]
                rows.setdefault(row["fault"], {})[row["rank"]] = row
        return rows, self.process.returncode


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_faults_that_all_ranks_survive(hosts, n_ranks):
    names = ["values", "counts", "large counts", "reductions", "roots", "truncation"]
    job = Job(hosts, names, n_ranks)
    rows, code = job.end()
    for name in names:
        judge(name, rows.get(name, {}), range(n_ranks), job.output)
    assert [row["total"] for row in rows["none"].values()] == [n_ranks] * n_ranks
    assert code == 0, job.output


# Of two ranks none sees the other be killed, and the launcher ends the job.
@pytest.mark.parametrize(("name", "sizes"), [("raise", (2, 4)), ("kill", (4,)), ("late", (4,))])
def test_faults_of_one_rank(hosts, name, sizes):
    jobs = {n_ranks: Job(hosts, [name], n_ranks) for n_ranks in sizes}
    text = "nobody came for 2" if name == "late" else None  # the table is on the other host
    for n_ranks, job in jobs.items():
        rows, code = job.end()
        left = range(n_ranks - 1)
        found = {rank: row for rank, row in rows.get(name, {}).items() if rank in left}
        judge(name, found, left, job.output, text)
        assert code not in (0, _launch.TIME_LIMIT_CODE), job.output


def test_the_network_is_cut(hosts):
    """Nothing comes any more, and MPI reports nothing: the limit of time ends all waits."""
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
