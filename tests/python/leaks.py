"""Ten thousand calls, of all families of operations, leave nothing behind.

Run by tests/python/mpi/test_leaks_mpi.py in its own ranks, and by tests/python/test_leaks.py in
ranks that reach each other by messages only.
"""

import gc
import inspect
import os
import sys
import time

import jax.numpy as jnp
import plait
from plait import _args, _core, _eager

N_CALLS = 10000
# A leak of a kilobyte per call would be 10 MB; 3 MiB are the slack of the allocators.
MAX_GROWTH_BYTES = 3 << 20


def operations(world, mpi):
    """One call of each family on arrays of every rank; a fresh Status at every call."""
    n, rank = world.size, world.rank
    source, dest = (rank - 1) % n, (rank + 1) % n
    counts = [(r + 1) % 3 for r in range(n)]
    table = [[(i + j) % 3 for j in range(n)] for i in range(n)]
    ring = [(r, (r + 1) % n) for r in range(n)]
    sums = {"op": plait.SUM, "comm": world}
    x, many = jnp.ones((3,)), jnp.ones((n, 3))
    own, every = jnp.ones((counts[rank], 2)), jnp.ones((sum(counts), 2))
    sent = jnp.ones((sum(table[rank]), 2))
    token = plait.create_token()
    long = jnp.ones((9000,))

    def messages():
        plait.send(x, dest, comm=world)
        return plait.recv(x, source, comm=world, status=mpi.Status() if mpi else None)

    def long_messages():
        status = mpi.Status() if mpi else None
        return plait.sendrecv(long, long, plait.ANY_SOURCE, dest, comm=world, status=status)

    def by_token():
        t = plait.send(x, dest, comm=world, token=token)
        return plait.recv(x, source, comm=world, token=t)[0]

    return {
        "allreduce": lambda: plait.allreduce(x, **sums),
        "large allreduce": lambda: plait.allreduce(long, **sums),
        "reduce": lambda: plait.reduce(x, plait.MAX, 0, comm=world),
        "scan": lambda: plait.scan(x, **sums),
        "exscan": lambda: plait.exscan(x, **sums),
        "reduce_scatter": lambda: plait.reduce_scatter(many, **sums),
        "reduce_scatterv": lambda: plait.reduce_scatterv(every, plait.SUM, counts, comm=world),
        "minloc": lambda: plait.minloc(x, comm=world),
        "bcast": lambda: plait.bcast(x, n - 1, comm=world),
        "allgather": lambda: plait.allgather(x, comm=world),
        "allgatherv": lambda: plait.allgatherv(own, counts, comm=world),
        "gather": lambda: plait.gather(x, 0, comm=world),
        "scatter": lambda: plait.scatter(many if rank == 0 else x, 0, comm=world),
        "alltoall": lambda: plait.alltoall(many, comm=world),
        "alltoallv": lambda: plait.alltoallv(sent, table, comm=world),
        "permute": lambda: plait.permute(x, ring, comm=world),
        "barrier": lambda: plait.barrier(comm=world),
        "send, recv": messages,
        "sendrecv": long_messages,
        "tokens": by_token,
        "start, wait": lambda: plait.wait(plait.start(plait.allreduce, x, **sums)),
    }


def n_remembered():
    """Number of programs that eager calls remember."""
    functions = [f for f in vars(plait).values() if hasattr(f, "__wrapped__")]
    notes = [inspect.getclosurevars(f).nonlocals.get("programs") for f in functions]
    notes = [programs for programs in notes if isinstance(programs, dict)]
    assert notes
    return sum(map(len, notes)) + sum(map(len, _eager._programs.values()))


class State:
    """Resources of a process: resident bytes, open files, and counts of plait's objects."""

    def __init__(self, world):
        world.Barrier()
        gc.collect()
        with open("/proc/self/statm") as file:
            self.resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        self.files = len(os.listdir("/proc/self/fd"))
        self.allocations = _core.alloc_balance()
        self.in_flight = _core.lib.plait_in_flight() + _core.started()
        self.programs = n_remembered()
        self.statuses = len(_args._statuses)

    @classmethod
    def settled(cls, world, like=None):
        """The state once all sent messages have arrived; waits at most some seconds."""
        state = cls(world)
        for _ in range(50):
            is_settled = like is None or state.allocations <= like.allocations
            if world.allreduce(int(is_settled and state.in_flight == 0)) == world.size:
                break
            time.sleep(0.1)
            plait.barrier(comm=world)
            state = cls(world)
        return state


def check(world, mpi, way):
    """Raise if 10 000 calls of this way, "eager" or "jitted", leave anything behind."""
    calls = list(operations(world, mpi).values())
    n_rounds = N_CALLS // len(calls)
    program = plait.jit(lambda: [call() for call in calls])

    def run(n):
        result = None
        for _ in range(n):
            result = [call() for call in calls] if way == "eager" else program()
        plait.block(result)

    run(n_rounds // 4)
    before = State.settled(world)
    run(n_rounds)
    after = State.settled(world, before)
    text = f"before {vars(before)}\nafter {vars(after)}"
    assert after.in_flight == 0, text
    for name in ("allocations", "files", "programs", "statuses"):
        assert getattr(after, name) <= getattr(before, name), text
    assert after.resident - before.resident < MAX_GROWTH_BYTES, text


N_COMMS = 30
# Each communicator leaves what a message about it needs.
MAX_LEFT = 5


def n_segments():
    """Number of plait's shared memory segments mapped here."""
    with open("/proc/self/maps") as maps:
        return sum("plait-segment" in line for line in maps)


def check_communicators(world, mpi, frees):
    """Raise if communicators that "plait" or "MPI" frees leave anything behind."""
    x = jnp.ones(3)

    def make_and_free(n):
        for _ in range(n):
            comm = world.Dup()
            plait.block(plait.allreduce(x, plait.SUM, comm=comm))
            if frees == "plait":
                plait.Comm(comm).free()
            comm.Free()

    make_and_free(2)
    before, segments = State.settled(world), n_segments()
    make_and_free(N_COMMS)
    after = State.settled(world)
    text = f"{segments} segments, then {n_segments()}\nbefore {vars(before)}\nafter {vars(after)}"
    assert n_segments() <= segments, text
    assert after.files <= before.files, text
    assert after.programs <= before.programs, text
    assert after.allocations <= before.allocations + MAX_LEFT * N_COMMS, text


def main():
    from mpi4py import MPI

    for way in ("eager", "jitted"):
        check(MPI.COMM_WORLD, MPI, way)
    print(plait.Comm().transport, "nothing is left")


if __name__ == "__main__":
    sys.exit(main())
