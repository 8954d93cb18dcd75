"""Run as ``PLAIT_TEST_DEVICES=4 plait run -n 2 python -m mpi4py -m pytest tests/python/hosts``.

Every process runs every test; the devices of all processes make one mesh. Any number of
processes, with two devices each or more.
"""

import os
import sys

import jax
import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import launched


def pytest_configure(config):
    launched.start()


def pytest_unconfigure():
    launched.wait_for_others()


def pytest_collection_modifyitems(items):
    if not launched.IS_LAUNCHED or jax.local_device_count() == 1:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs mpiexec and PLAIT_TEST_DEVICES"))


@pytest.fixture
def world():
    from mpi4py import MPI

    return MPI.COMM_WORLD
