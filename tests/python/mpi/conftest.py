"""Run as ``plait run -n N python -m mpi4py -m pytest tests/python/mpi``, N from 1 to 3 or more.

Every rank runs every test. JAX is started over the same ranks, with one device each, for the mesh
model.
"""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import launched


def pytest_configure(config):
    launched.start()


def pytest_unconfigure():
    launched.wait_for_others()


def pytest_collection_modifyitems(items):
    if not launched.IS_LAUNCHED:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs mpiexec"))


@pytest.fixture
def world():
    from mpi4py import MPI

    return MPI.COMM_WORLD
