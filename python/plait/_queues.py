"""The work that this process's devices still have to do, whether or not anybody holds its results.

JAX knows programs by their results and, if they carry an effect, by tokens. A program of
`plait.jit` has hidden its effect: when its results are dropped, say at the end of a function,
nothing tells that it has not run yet. But a device runs the programs of a thread in turn, those on
one device and those on several in separate queues. So when a further program of each kind is done,
all programs are.
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

_hidden: list[bool] = []  # non-empty if an effect was hidden


def note_hidden() -> None:
    """Notes that there may be programs that JAX does not know by tokens."""
    _hidden[:] = [True]


def forget_hidden() -> None:
    """Nobody waits for results that nobody holds any more; JAX waits at its end."""
    _hidden.clear()


def arrays() -> list[jax.Array]:
    """Arrays that are ready only when all calls of this thread are done."""
    if not _jax_programs.have_devices():  # asking for arrays would make JAX create devices
        return []
    return [*jax.live_arrays(), *(_last() if _hidden else ())]


def is_idle_within(limit: float | None) -> bool:
    """Waits for queued work, however it ends; False if some is left after the limit."""
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
    """Whether an array is still to be computed; False for a deleted array."""
    try:
        return not array.is_ready()
    except RuntimeError:  # deleted, or donated to a program
        return False


def _last() -> list[jax.Array]:
    """A result from each device queue, behind all work of this thread; none if JAX fails."""
    devices = jax.local_devices()
    groups = [[device] for device in devices] + ([devices] if len(devices) > 1 else [])
    made = []
    with contextlib.suppress(Exception):
        for group in groups:
            mesh = Mesh(np.array(group), ("devices",))
            with jax.set_mesh(mesh):  # the program may have set another mesh for everything
                made.append(_product(len(group), mesh)())
    return made


@functools.cache
def _product(n: int, mesh: Mesh) -> jax.stages.Wrapped:
    """Enough work to be queued: JAX runs a few operations at once (XLA's cpu_client.cc)."""

    def run() -> jax.Array:
        m = jax.lax.optimization_barrier(jnp.ones((n, 32, 32), jnp.float32))
        return jax.lax.dot_general(m, m, (((2,), (1,)), ((0,), (0,))))

    return jax.jit(run, out_shardings=NamedSharding(mesh, P("devices")))
