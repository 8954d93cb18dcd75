"""Where processes may not read each other's memory, as in containers, results are the same."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import refusing
from test_cli import needs_mpi

REFUSING = Path(refusing.__file__)
PROGRAM = """
import numpy as np
import plait

from mpi4py import MPI

comm = plait.Comm()
pair = plait.Comm(MPI.COMM_WORLD.Split(comm.rank // 2))
for n in (3, 5000, 300_000):
    x = np.arange(n, dtype="float64") + comm.rank
    every = [np.arange(n) + r for r in range(comm.size)]
    other = every[(comm.rank + 1) % comm.size]
    to, source = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    assert np.array_equal(plait.allreduce(x, plait.SUM), sum(every)), n
    assert np.array_equal(plait.sendrecv(x, x, source, to), other), n
    assert np.array_equal(plait.bcast(x, 1), every[1]), n
    assert np.array_equal(plait.allgather(x), every), n
    both = every[comm.rank // 2 * 2 :][: pair.size]
    assert np.array_equal(plait.allreduce(x, plait.SUM, comm=pair), sum(both)), n
print("all right")
"""


def run(tmp_path, n_ranks, **environment):
    """Run the program's ranks under the refusal."""
    if not refusing.IS_KNOWN:
        pytest.skip("the numbers of this machine's system calls are not known")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, REFUSING, sys.executable, "-m", "plait"]
    command += ["run", "-n", n_ranks, "--timeout", 100, sys.executable, program]
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=150,
        env=os.environ | environment,
        check=False,
    )


@needs_mpi
@pytest.mark.long(keep=3)
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
@pytest.mark.parametrize(
    "given",
    [{}, {"PLAIT_SHARED": "off"}, {"PLAIT_DIRECT": "off"}, {"MPIR_CVAR_NUM_CLIQUES": "2"}],
)
def test_the_launcher_has_mpi_do_without(tmp_path, n_ranks, given):
    done = run(tmp_path, n_ranks, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all right") == n_ranks


@needs_mpi
@pytest.mark.parametrize("given", [{}, {"PLAIT_SHARED": "off"}, {"PLAIT_DIRECT": "off"}])
def test_an_mpi_that_does_not_see_it_is_refused(tmp_path, given):
    """Its allreduces would return one rank's numbers, without an error."""
    done = run(tmp_path, 2, MPIR_CVAR_CH4_CMA_ENABLE="1", **given)
    if done.returncode == 0:  # this MPI sees the refusal
        assert done.stdout.count("all right") == 2
        return
    for rank in range(2):
        assert re.search(
            rf"(?m)^\[{rank}\] plait.TransportError: MPI cannot carry an allreduce of 131072 "
            r"bytes: on rank 0 it fails or is wrong. .*: for MPICH, set MPIR_CVAR_CH4_CMA_ENABLE=0",
            done.stderr,
        ), done.stderr
