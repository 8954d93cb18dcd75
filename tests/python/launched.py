"""Begin and end of test sessions in which every rank runs every test."""

import os
import time

import jax
import platforms

IS_LAUNCHED = any(name in os.environ for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
OTHERS_S = 90


def start():
    """Start JAX over the same ranks as MPI, with one shared device or one device for each rank."""
    if IS_LAUNCHED:
        each_has_one = platforms.CHOSEN == "cpu" or platforms.HAS_OWN
        jax.distributed.initialize(
            cluster_detection_method="mpi4py",
            heartbeat_timeout_seconds=100,
            local_device_ids=None if each_has_one else [0],
        )


def as_the_first(value):
    """The first rank's value, which all ranks use."""
    if not IS_LAUNCHED:
        return value
    from mpi4py import MPI

    return MPI.COMM_WORLD.bcast(value)


def wait_for_others():
    """Wait: a rank that leaves with failures ends the job, and others may have results to write."""
    if IS_LAUNCHED:
        from mpi4py import MPI

        others, limit = MPI.COMM_WORLD.Ibarrier(), time.monotonic() + OTHERS_S
        while not others.Test() and time.monotonic() < limit:
            time.sleep(0.05)
