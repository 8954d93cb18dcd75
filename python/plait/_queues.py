"""What this process's devices have still to do: whoever holds its results, and if nobody does.

JAX knows programs by their results and, where they carry an effect, by tokens. One of `plait.jit`
has hidden its effect: when its results are dropped, at the end of a function say, nothing tells
that it has not run yet. But a device does the programs of a thread in turn, those on one device
and those on several each for themselves, so another one of each kind is done when all are.
"""

import contextlib
import functools
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _jax_programs

_hidden: list[bool] = []  # an effect was


def note_hidden() -> None:
    """There may be programs that JAX does not know by tokens."""
    _hidden[:] = [True]


def forget_hidden() -> None:
    """Nobody waits for what nobody holds; JAX does when it ends."""
    _hidden.clear()


def arrays() -> list[jax.Array]:
    """When these are ready, so is all that this thread has called."""
    if not _jax_programs.have_devices():  # asked for arrays JAX would make them
        return []
    return [*jax.live_arrays(), *(_last() if _hidden else ())]


def is_idle_within(limit: float | None) -> bool:
    """Waits for queued work without asking how it ended; False if some is left after the limit."""
    end = math.inf if limit is None else time.monotonic() + limit
    pause = 20e-6
    for array in arrays():
        while is_pending(array):
            if time.monotonic() > end:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
    return True


def is_pending(array: jax.Array) -> bool:
    """Whether it is still to be computed; not of one that is gone."""
    try:
        return not array.is_ready()
    except RuntimeError:  # deleted, or donated to a program
        return False


def _last() -> list[jax.Array]:
    """Of each device's queues, behind all that this thread has given them; none where JAX fails."""
    devices = jax.local_devices()
    groups = [[device] for device in devices] + ([devices] if len(devices) > 1 else [])
    made = []
    with contextlib.suppress(Exception):
        for group in groups:
            mesh = Mesh(np.array(group), ("devices",))
            with jax.set_mesh(mesh):  # the program may have chosen another one for all
                made.append(_product(len(group), mesh)())
    return made


@functools.cache
def _product(n: int, mesh: Mesh) -> jax.stages.Wrapped:
    """Enough to be queued: JAX does at once what are a few operations (XLA's cpu_client.cc)."""

    def run() -> jax.Array:
        m = jax.lax.optimization_barrier(jnp.ones((n, 32, 32), jnp.float32))
        return jax.lax.dot_general(m, m, (((2,), (1,)), ((0,), (0,))))

    return jax.jit(run, out_shardings=NamedSharding(mesh, P("devices")))
