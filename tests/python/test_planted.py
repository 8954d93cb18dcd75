"""Generated programs in which one rank does something else somewhere; `make fuzz` runs more."""

import os
import pathlib
import subprocess
import sys

import pytest
from plait import _mpi_find

HERE = pathlib.Path(__file__).parent
N_PROGRAMS = 16


@pytest.mark.long
def test_programs_with_one_difference():
    if _mpi_find.find_mpi() is None:
        pytest.skip("no MPI")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PRTE"))}
    command = [sys.executable, "-m", "plait", "run", "-n", "2", "--timeout", "200", sys.executable]
    program = [str(HERE / "fuzz_programs.py"), "--kind", "planted", "--count", str(N_PROGRAMS)]
    done = subprocess.run(
        [*command, "-m", "mpi4py", *program],
        env=env | {"PLAIT_TIMEOUT": "2", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=230,
    )
    output = done.stdout + done.stderr
    # The exit code is not 0 if some rank waited in vain.
    assert f"{N_PROGRAMS} programs from seed 0 on, 2 ranks: no difference" in output, output
    [n_errors] = [line.split()[1] for line in output.splitlines() if "ended with error" in line]
    assert int(n_errors) > N_PROGRAMS / 2, output
