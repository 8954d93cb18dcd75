"""What holds a job of ``plait run`` up without running into a time limit: ^Z, and a slow reader."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import time

from test_cli import needs_mpi, plait
from test_run import begin, write


def state_of(pid):
    """The state in the letters of ps; "T" is stopped."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def are_in(pids, states):
    """Whether all processes reach one of these states within some seconds."""
    end = time.monotonic() + 15
    while any(state_of(pid) not in states for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    return all(state_of(pid) in states for pid in pids)


@needs_mpi
def test_ranks_stop_and_go_on_with_plait_run(tmp_path):
    """The ranks are in no process group of the terminal."""
    job, pids = begin(tmp_path)
    for _ in range(2):
        job.send_signal(signal.SIGTSTP)
        assert are_in([job.pid, *pids], "T")
        job.send_signal(signal.SIGCONT)
        assert are_in([job.pid, *pids], "SR")
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        job.send_signal(number)
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    assert "SIGTSTP" not in err and "SIGCONT" not in err
    assert [line for line in out.splitlines() if "['SIGUSR1', 'SIGUSR2']" in line]


TALKS = """
import jax.numpy as jnp, plait
add = plait.jit(lambda x: plait.allreduce(x, plait.SUM) / 2)
x = jnp.ones(3)
for i in range(600):
    x = add(x)
    x.block_until_ready()
    if comm.rank == 0:
        print("step", i, "x" * 2000)
print("finished")
"""


@needs_mpi
def test_who_reads_has_time(tmp_path):
    """More than PLAIT_TIMEOUT; meanwhile silent ranks wait for the rank that prints."""
    job = subprocess.Popen(
        [sys.executable, "-m", "plait", "run", "-n", "2", write(tmp_path, TALKS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PLAIT_TIMEOUT": "1.5", "JAX_PLATFORMS": "cpu"},
    )
    select.select([job.stdout], [], [], 60)  # the job has begun
    time.sleep(6)
    out, err = job.communicate(timeout=60)
    lines = out.decode().splitlines()
    assert job.returncode == 0, err.decode()
    assert {"[0] finished", "[1] finished"} <= set(lines), err.decode()
    steps = [line.split()[2] for line in lines if line.startswith("[0] step")]
    assert steps == [str(i) for i in range(600)]


@needs_mpi
def test_ranks_but_the_first_have_nothing_to_read(tmp_path):
    program = write(tmp_path, "print(comm.rank, repr(sys.stdin.read()))")
    done = plait("run", "-n", 3, program)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] {rank} ''" for rank in range(3)]
