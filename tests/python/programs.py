"""Small programs that tests run in processes of their own."""

import os
import pathlib
import subprocess
import sys

import plait
import pytest

PACKAGE = str(pathlib.Path(plait.__file__).parents[1])
START = "import sys, time, jax, jax.numpy as jnp, plait\n"


def run(program, *before, **variables):
    """Run a program in a process of its own: (exit code, output)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "HYDI"))}
    env |= {"PYTHONPATH": PACKAGE, "JAX_PLATFORMS": "cpu", **variables}
    done = subprocess.run(
        [*before, sys.executable, "-c", START + program],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout + done.stderr


def run_on_two(program, folder, *by, **variables):
    """The same on two ranks of `plait run`, of `python -m mpi4py` or plain Python."""
    pytest.importorskip("mpi4py")
    path = folder / "program.py"
    path.write_text(START + program)
    env = os.environ | {"PYTHONPATH": PACKAGE, "JAX_PLATFORMS": "cpu", **variables}
    command = [sys.executable, "-m", "plait", "run", "-n", "2", sys.executable, *by]
    done = subprocess.run(
        [*command, str(path)], env=env, capture_output=True, text=True, timeout=100
    )
    return done.returncode, done.stdout + done.stderr
