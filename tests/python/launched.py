"""For test sessions whose ranks each run every test: how they begin and end."""

import os
import time

import jax
import platforms

IS_LAUNCHED = any(name in os.environ for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
OTHERS_S = 90


def start():
    """JAX over the same ranks as MPI, all on one device or each on one of its own."""
    if IS_LAUNCHED:
        each_has_one = platforms.CHOSEN == "cpu" or platforms.HAS_OWN
        jax.distributed.initialize(
            cluster_detection_method="mpi4py",
            heartbeat_timeout_seconds=100,
            local_device_ids=None if each_has_one else [0],
        )


def as_the_first(value):
    """What the first rank says, which all go by."""
    if not IS_LAUNCHED:
        return value
    from mpi4py import MPI

    return MPI.COMM_WORLD.bcast(value)


def wait_for_others():
    """A rank that leaves with failures ends the job: others may still have results to write."""
    if IS_LAUNCHED:
        from mpi4py import MPI

        others, limit = MPI.COMM_WORLD.Ibarrier(), time.monotonic() + OTHERS_S
        while not others.Test() and time.monotonic() < limit:
            time.sleep(0.05)
