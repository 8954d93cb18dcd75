"""The self-test of `plait doctor` on each rank; rank 0 prints the figures as JSON.

Every number is the best of a few rounds: enough to see what is wrong, not to compare.
"""

import json
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import plait
from jax import lax
from mpi4py import MPI
from plait._finding import MARK

CALLS = 200
ROUNDS = 5
LARGE = 64 << 20


def seconds(call, *args):
    """Time of a call, including the wait for its result."""
    plait.block(call(*args))
    times = []
    for _ in range(ROUNDS):
        plait.barrier()
        start = time.perf_counter()
        plait.block(call(*args))
        times.append(time.perf_counter() - start)
    return min(times)


@plait.jit
def many(x):
    """Small reductions in a compiled loop: excludes the time of Python and JAX."""
    return lax.fori_loop(0, CALLS, lambda _, y: plait.allreduce(y, plait.MAX), x)


@plait.jit
def large(x):
    """One large reduction."""
    return plait.allreduce(x, plait.SUM)


def copy_seconds(n_bytes):
    """Time to copy as much as the large reduction has, into existing memory."""
    x, y = np.ones(n_bytes, np.uint8), np.zeros(n_bytes, np.uint8)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        np.copyto(y, x)
        times.append(time.perf_counter() - start)
    return min(times)


def is_right(rank, size):
    """Compares values of each kind of operation with arithmetic."""
    x = jnp.arange(1000.0, dtype=jnp.float32) + rank
    total = plait.allreduce(x, plait.SUM)
    rows = [bool(jnp.all(total == size * jnp.arange(1000.0) + size * (size - 1) / 2))]
    rows.append(bool(jnp.all(plait.bcast(x, size - 1) == jnp.arange(1000.0) + size - 1)))
    near = plait.sendrecv(x, x, (rank - 1) % size, (rank + 1) % size)
    rows.append(bool(jnp.all(near == jnp.arange(1000.0) + (rank - 1) % size)))
    grad = plait.jit(jax.grad(lambda x: plait.allreduce(x, plait.SUM).sum()))(x)
    rows.append(bool(jnp.all(grad == size)))
    big = large(jnp.full(LARGE // 4, rank + 1.0, jnp.float32))
    rows.append(bool(jnp.all(big == size * (size + 1) / 2)))
    return all(rows)


def libraries():
    """The MPI libraries that are mapped into this process."""
    with open("/proc/self/maps") as file:
        mapped = [line.split(None, 5)[5].strip() for line in file if "/libmpi" in line]
    names = ("libmpi.so", "libmpi_abi.so", "libmpich.so")
    paths = set(map(os.path.realpath, mapped))
    return sorted(p for p in paths if os.path.basename(p).startswith(names))


def facts():
    """What only this rank knows."""
    return {
        "host": MPI.Get_processor_name(),
        "cores": sorted(os.sched_getaffinity(0)),
        "libraries": libraries(),
        "right": is_right(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size),
        "copy_s": copy_seconds(LARGE),
    }


def main():
    """Runs the test; the figures are rank 0's."""
    comm = MPI.COMM_WORLD
    world = plait.Comm()
    levels = {
        MPI.THREAD_SINGLE: "SINGLE",
        MPI.THREAD_FUNNELED: "FUNNELED",
        MPI.THREAD_SERIALIZED: "SERIALIZED",
        MPI.THREAD_MULTIPLE: "MULTIPLE",
    }
    ranks = comm.allgather(facts())
    report = {
        "size": comm.size,
        "thread": levels[MPI.Query_thread()],
        "transport": world.transport,
        "direct": world.direct,
        "small_s": seconds(many, jnp.float32(1.0) * jnp.ones(2)) / CALLS,
        "large_s": seconds(large, jnp.ones(LARGE // 4, jnp.float32)),
        "ranks": ranks,
    }
    if comm.rank == 0:
        print(MARK + json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
