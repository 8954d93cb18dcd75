"""Run as ``plait run -n N python -m mpi4py -m pytest tests/python/mpi``, N from 1 to 3 or more.

Every rank runs every test; JAX itself is started over the same ranks, one device each, for
the mesh model.
"""

import os
import sys
import time

import jax
import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_LAUNCHED = any(name in os.environ for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
OTHERS_S = 90


def pytest_configure(config):
    if _LAUNCHED:
        jax.distributed.initialize(cluster_detection_method="mpi4py", heartbeat_timeout_seconds=100)


def pytest_unconfigure():
    """A rank that leaves with failures ends the job: others may still have results to write."""
    if _LAUNCHED:
        from mpi4py import MPI

        others, limit = MPI.COMM_WORLD.Ibarrier(), time.monotonic() + OTHERS_S
        while not others.Test() and time.monotonic() < limit:
            time.sleep(0.05)


def pytest_collection_modifyitems(items):
    if not _LAUNCHED:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs mpiexec"))


@pytest.fixture
def world():
    from mpi4py import MPI

    return MPI.COMM_WORLD
