"""A mesh of two devices of each process, until the last process ends: faulty_mesh.py FAULT.

Words before the fault: "early": before the first operation; "busy": with an operation begun whose
operand is still computed. Words behind it: "one": one device of each process; "turned": the same
devices in reverse order; "second": a second mesh, used after another mesh. For test_faults.py; the
other processes print how their operation ended, as in faulty.py.
PLAIT_TEST_PLATFORM=cuda: all on the first GPU.
"""

import json
import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import platforms
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

IS_TURNED = "turned" in sys.argv[1]
jax.config.update("jax_num_cpu_devices", 1 if "one" in sys.argv[1] or IS_TURNED else 2)
platforms.choose()
jax.distributed.initialize(
    cluster_detection_method="mpi4py",
    local_device_ids=None if platforms.CHOSEN == "cpu" else [0],
)

import plait  # noqa: E402 - after JAX knows of its processes

# A GPU's queue takes some hundred launches before JAX waits for it: few steps, and long ones.
N_STEPS, WIDTH, DEPTH = (300_000, 1024, 1) if platforms.CHOSEN == "cpu" else (400, 1 << 25, 16)
RANK, LAST = jax.process_index(), jax.process_count() - 1


def boom():
    raise ValueError("boom")


@jax.jit
def long_work(x):
    """About a second of work, so much in each step that JAX does not wait even on a CPU."""

    def step(_, v):
        for _ in range(DEPTH):
            v = v / 2 + jnp.cos(v)
        return v

    return jax.lax.fori_loop(0, N_STEPS, step, x[..., None] * jnp.ones(WIDTH)).max(-1)


HOW = {
    "raise": boom,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: sys.exit(0),
}


def main(name):
    mesh = Mesh(np.array(jax.devices()[:: -1 if IS_TURNED else 1]), ("a",))
    if "second" in name:
        first = Mesh(np.array(jax.devices()).reshape(-1, 2).T.ravel(), ("a",))
        sharding = NamedSharding(first, P("a"))
        y = jax.make_array_from_callback((first.size,), sharding, lambda i: np.ones(1))
        plait.block(plait.jit(lambda v: plait.sum(v, mesh=first, spec=P("a")))(y))
    n = mesh.size
    a = np.arange(float(n * n)).reshape(n, n)
    x = jax.make_array_from_callback(a.shape, NamedSharding(mesh, P("a")), lambda i: a[i])
    turn = plait.jit(lambda v: plait.redistribute(v, P(None, "a"), mesh=mesh, spec=P("a")))
    how = HOW[next(word for word in name.split() if word in HOW)]
    if not name.startswith("early"):
        plait.block(turn(x))
    if RANK == LAST and "busy" in name:
        begun = turn(long_work(x))
        time.sleep(0.3)
        is_done = begun.is_ready()
        del begun
        if is_done and jax.local_device_count() == 1:  # with several, plait.jit awaits operands
            sys.exit("what was begun is done: the test shows nothing")
    if RANK == LAST:
        how()
    start = time.monotonic()
    kind, text = "none", ""
    try:
        with plait.errors():
            plait.block(turn(x))
    except plait.Error as error:
        kind, text = type(error).__name__, str(error)
    took = time.monotonic() - start
    row = {"fault": name, "rank": RANK, "kind": kind, "text": text, "took": took}
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


main(sys.argv[1])
