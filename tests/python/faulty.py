"""Programs in which ranks do wrong things, for test_faults.py: faulty.py FAULT [FAULT...].

Each rank prints a line of JSON for each of its faults: how its operation ended, and after how
long. The faults of a job follow each other, each on a communicator of its own.
"""

import json
import os
import signal
import sys
import time

import jax.numpy as jnp
import numpy as np
import plait
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
FIRST = RANK == 0
LAST = SIZE - 1
BEFORE, AFTER = (RANK - 1) % SIZE, (RANK + 1) % SIZE
X = jnp.arange(4, dtype=jnp.float32)


def allreduce(comm, x=X, op=plait.SUM):
    return plait.allreduce(x, op, comm=comm)


def twice_then_differ(comm):
    """The ranks differ in the third call, when both reductions are known calls."""
    for op in (plait.SUM, plait.MAX):
        plait.block(allreduce(comm, op=op))
    plait.block(allreduce(comm, op=plait.SUM if FIRST else plait.MAX))
    return allreduce(comm, op=plait.MIN)


def known_counts(comm):
    """Messages do not compare known calls again, but the data received has another length."""
    for n in (3, 4):
        plait.block(plait.allgather(jnp.ones(n), comm=comm))
    return plait.allgather(jnp.ones(3 + FIRST), comm=comm)


def known_calls_in_a_loop(comm):
    """Messages have the expected length and no call is new: ranks compare calls now and then."""
    from jax import lax

    def repeat(op):
        def step(i, x):
            return plait.allreduce(x, op, comm=comm) / SIZE

        return plait.jit(lambda x: lax.fori_loop(0, 1100, step, x))(X)

    for op in (plait.SUM, plait.PROD):  # all ranks the same
        plait.block(repeat(op))
    return repeat(plait.SUM if FIRST else plait.PROD)


def differ_again(comm):
    """A call in which the ranks once differed does not count as agreed."""
    x = jnp.ones(4 + RANK)
    try:
        allreduce(comm, x)
    except plait.MismatchError:
        pass
    return allreduce(comm, x)


def differ_and_wait(comm):
    """The last rank comes long after the others have seen the difference: all go on."""
    if RANK == LAST:
        time.sleep(1.5)
    try:
        return allreduce(comm, jnp.ones(4 + FIRST))
    except plait.MismatchError:
        assert allreduce(comm)[1] == SIZE
        raise


def differ_without_the_last(comm):
    """The last rank does not come within the limit: the error still tells what the others do."""
    allreduce(comm)
    if RANK == LAST:
        sleep_on()
    return allreduce(comm, jnp.ones(5 + FIRST))


def in_a_loop(comm):
    """One rank raises while the others are in a jitted loop."""
    from jax import lax

    def step(i, x):
        return plait.allreduce(x, plait.SUM, comm=comm) / SIZE

    if RANK == LAST:
        plait.block(plait.jit(lambda x: lax.fori_loop(0, 50, step, x))(X))
        raise ValueError("after 50 steps")
    return plait.jit(lambda x: lax.fori_loop(0, 100_000_000, step, x))(X)


def ignored_adjoint(comm):
    """The last rank receives and ignores: JAX drops its adjoint, for which the sender waits."""
    import jax

    def loss(x, token):
        if FIRST:
            token = plait.send(x, 1, comm=comm, token=token)
            return plait.depend(jnp.sum(x), token)
        plait.recv(jnp.zeros_like(x), 0, comm=comm, token=token)
        return jnp.sum(x)

    if RANK > 1:
        return X
    gradient = jax.grad(loss, argnums=(0, 1))(X, plait.create_token())
    plait.block(gradient)
    return plait.recv(X, 0, comm=comm, tag=3)  # a message that is never sent


def started_receives(comm):
    """No fault: every rank waits for its neighbour, and meanwhile sends, late."""
    receive = plait.start(plait.recv, X, BEFORE, comm=comm)
    time.sleep(0.8)  # longer than the guard takes to see a cycle, far below PLAIT_TIMEOUT
    plait.send(X, AFTER, comm=comm)
    return plait.wait(receive)


def values(comm):
    """No fault: the values that ranks get, by whichever way they reach each other."""
    for n in (3, 1 << 16):
        first = np.arange(SIZE * n, dtype=np.int32).reshape(SIZE, n) * 7
        everybody = [first + rank for rank in range(SIZE)]
        x = jnp.asarray(everybody[RANK])
        for got, want in (
            (plait.allreduce(x, plait.SUM, comm=comm), sum(everybody)),
            (plait.bcast(x, LAST, comm=comm), everybody[LAST]),
            (plait.sendrecv(x, x, BEFORE, AFTER, comm=comm), everybody[BEFORE]),
            (plait.alltoall(x, comm=comm), np.stack([each[RANK] for each in everybody])),
        ):
            np.testing.assert_array_equal(got, want)
    return x


def in_the_middle(comm):
    """The test takes the network down in the middle; rank 0 tells the test when."""
    for i in range(1_000_000):
        plait.block(allreduce(comm))
        if i == 20 and FIRST:
            sys.stdout.write(json.dumps({"fault": "begun", "rank": RANK}) + "\n")
            sys.stdout.flush()


def computes(comm):
    """No fault: one rank computes for longer than the others would wait for an idle rank."""
    if RANK == LAST:
        until = time.monotonic() + float(os.environ["PLAIT_TIMEOUT"]) + 1.5
        while time.monotonic() < until:
            pass
    return allreduce(comm)


def end(how):
    """The last rank ends; the others wait for it."""

    def fault(comm):
        plait.block(allreduce(comm))
        if RANK == LAST:
            how()
        return allreduce(comm)

    return fault


def end_early(how):
    """The last rank ends before it has used plait; the others make a communicator with it."""

    def fault(_):
        if RANK == LAST:
            how()
        return allreduce(WORLD)

    return fault


def end_unused(how):
    """The last rank ends before the first operation on a communicator that it has created."""

    def fault(_):
        comm = plait.Comm(WORLD.Dup())
        if RANK == LAST:
            how()
        return allreduce(comm)

    return fault


def send_alone(_):
    """The last rank never uses plait on the communicator, and stays until nobody waits."""
    if RANK == LAST:
        time.sleep(5 * float(os.environ["PLAIT_TIMEOUT"]) + 2)
        return X
    return plait.send(X, LAST, comm=WORLD)


def sleep_on():
    time.sleep(float(os.environ["PLAIT_TIMEOUT"]) + 3)


def boom():
    raise ValueError("boom")


FAULTS = {
    # Ranks call different things.
    "counts": lambda c: allreduce(c, jnp.ones(4 + RANK)),
    "large counts": lambda c: allreduce(c, jnp.ones((1 << 18) + RANK)),
    "reductions": lambda c: allreduce(c, op=plait.SUM if FIRST else plait.MAX),
    "dtypes": lambda c: allreduce(c, jnp.ones(4, jnp.float32) if FIRST else jnp.ones(2, jnp.int64)),
    "roots": lambda c: plait.bcast(X, RANK, comm=c),
    "bcast counts": lambda c: plait.bcast(jnp.ones(4 + RANK), 0, comm=c),
    "alltoall counts": lambda c: plait.alltoall(jnp.ones((SIZE, 3 + RANK)), comm=c),
    "barrier": lambda c: allreduce(c) if FIRST else plait.barrier(comm=c),
    "allgather": lambda c: allreduce(c) if FIRST else plait.allgather(X, comm=c),
    "permutations": lambda c: plait.permute(X, [(RANK, AFTER)], comm=c),
    "tables": lambda c: plait.alltoallv(
        jnp.ones(SIZE),
        [[1] * SIZE if r == RANK else [SIZE] + [0] * (SIZE - 1) for r in range(SIZE)],
        comm=c,
    ),
    "known calls": twice_then_differ,
    "known counts": known_counts,
    "known calls in a loop": known_calls_in_a_loop,
    "counts again": differ_again,
    "counts, one late": differ_and_wait,
    # Messages that do not fit.
    "truncation": lambda c: plait.sendrecv(
        jnp.ones(8), jnp.ones(3), (RANK - 1) % SIZE, (RANK + 1) % SIZE, comm=c
    ),
    "message dtypes": lambda c: plait.sendrecv(
        jnp.ones(8, jnp.float32),
        jnp.ones(8, jnp.int32),
        (RANK - 1) % SIZE,
        (RANK + 1) % SIZE,
        comm=c,
    ),
    # No rank can go on.
    "half of a ring": lambda c: plait.sendrecv(X, X, AFTER, plait.PROC_NULL, comm=c),
    "receives": lambda c: plait.recv(X, AFTER, comm=c),
    "own receive": lambda c: plait.recv(X, RANK, comm=c),
    "own tags": lambda c: plait.sendrecv(X, X, RANK, RANK, sendtag=1, recvtag=2, comm=c),
    "lone receive": lambda c: plait.recv(X, comm=plait.Comm(MPI.COMM_SELF.Dup())),
    "crossed": lambda c: allreduce(c) if FIRST else plait.recv(X, 0, comm=c),
    # Nothing is wrong.
    "started receives": started_receives,
    "computes": computes,
    "values": values,
    # The last rank ends or stays away.
    "raise": end(boom),
    "raise in a loop": in_a_loop,
    "exit": end(lambda: sys.exit(0)),
    "exit with 3": end(lambda: sys.exit(3)),
    "_exit": end(lambda: os._exit(0)),
    "kill": end(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "stop": end(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "late": end(sleep_on),
    "counts, one too late": differ_without_the_last,
    "early exit": end_early(lambda: sys.exit(0)),
    "early raise": end_early(boom),
    "early exit with 3": end_early(lambda: sys.exit(3)),
    "early _exit": end_early(lambda: os._exit(0)),
    "early message": send_alone,
    "early again": lambda _: allreduce(WORLD),
    "early exit, unused": end_unused(lambda: sys.exit(0)),
    # No rank can go on; each fault uses communicators of its own.
    "ignored adjoint": ignored_adjoint,
    # The network is down.
    "cut": in_the_middle,
}


def main(names):
    for name in names:
        comm = None
        if not name.startswith("early"):
            comm = plait.Comm(WORLD.Dup())
            plait.barrier(comm=comm)
        start = time.monotonic()
        kind, text = "none", ""
        try:
            with plait.errors():
                plait.block(FAULTS[name](comm))
        except plait.Error as error:
            kind, text = type(error).__name__, str(error)
        took = time.monotonic() - start
        row = {"fault": name, "rank": RANK, "kind": kind, "text": text, "took": took}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    total = plait.block(plait.allreduce(jnp.ones(()), plait.SUM)) if names[0] in TOGETHER else 0
    if total:
        sys.stdout.write(json.dumps({"fault": "none", "rank": RANK, "total": float(total)}) + "\n")


# Faults after which all ranks are still there, and other communicators go on.
TOGETHER = list(FAULTS)[: list(FAULTS).index("raise")]

if __name__ == "__main__":
    main(sys.argv[1:])
