"""Ten thousand calls leave nothing behind on ranks that reach each other by MPI messages alone."""

import os
import pathlib
import subprocess
import sys

import pytest
from plait import _mpi_find

HERE = pathlib.Path(__file__).parent


@pytest.mark.long
def test_messages():
    if _mpi_find.find_mpi() is None:
        pytest.skip("no MPI")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PRTE"))}
    command = [sys.executable, "-m", "plait", "run", "-n", "2", "--timeout", "200"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "mpi4py", str(HERE / "leaks.py")],
        env=env | {"PLAIT_SHARED": "off", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=230,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("mpi nothing is left") == 2
