"""Collectives on 2 devices of one process, and a sum over them: plait's, and JAX's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, arguments, copier, rounds
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from workers.world import World

JITS = {"plait": plait.jit, "jax": jax.jit}


def operations(size):
    """Each by plait and by JAX, on a device's part of so many items; alltoall in equal blocks."""
    blocks = lambda x: x.reshape(size, -1)  # noqa: E731
    return {
        "allreduce": (
            functools.partial(plait.allreduce, op=plait.SUM, comm="x"),
            functools.partial(jax.lax.psum, axis_name="x"),
        ),
        "alltoall": (
            lambda x: plait.alltoall(blocks(x), comm="x").reshape(-1),
            lambda x: jax.lax.all_to_all(blocks(x), "x", 0, 0).reshape(-1),
        ),
    }


def program(world, jit, operation, n_calls):
    """The operation repeated so often on the devices' parts, in sequence."""

    def turn(_, x):
        return operation(x)

    def body(x):
        return operation(x) if n_calls == 1 else jax.lax.fori_loop(0, n_calls, turn, x)

    mapped = jax.shard_map(
        body, mesh=world.mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False
    )
    return jit(mapped)


def measure(world, options, n_bytes, n_calls):
    """Both operations with parts of so many bytes on each device."""
    whole = np.arange(n_bytes // 4 * world.size).astype(np.float32) % 7
    x = world.put(whole)
    for name, sides in operations(world.size).items():
        once, often = (
            [program(world, JITS[key], f, n) for key, f in zip(JITS, sides, strict=True)]
            for n in (1, n_calls)
        )
        compare(world, options, name, n_bytes, x, once, often, n_calls)


def measure_sum(world, options, n_bytes):
    """The sum over the split axis of an array with a row of so many bytes on each device."""
    row = np.arange(n_bytes // 4, dtype=np.float32) % 7
    x = world.put(np.stack([row + i for i in range(world.size)]))
    whole = NamedSharding(world.mesh, P())
    sums = [
        plait.jit(lambda x: plait.sum(x, axis=0, mesh=world.mesh, spec=P("x"))),
        jax.jit(lambda x: jnp.sum(x, axis=0), out_shardings=whole),
    ]
    compare(world, options, "sum", n_bytes, x, sums, sums, 1)


def compare(world, options, name, n_bytes, x, once, often, n_calls):
    """Both sides' programs on x, first each of them once."""
    if not np.array_equal(*(np.asarray(f(x)) for f in once)):
        raise RuntimeError(f"{name} of {n_bytes} B differs from JAX's")
    cases = {"memcpy": Case(copier(n_bytes, world.team.copies))}
    for key, run in zip(JITS, often, strict=True):
        cases[key] = Case(lambda run=run: run(x).block_until_ready(), n_calls)
    facts = {"jax": jax.__version__, "bytes": n_bytes, "n_calls": n_calls}
    rounds(world.team, options, name, cases, facts)


def main():
    """Measure."""
    options = arguments("loop", "mib")
    world = World("devices")
    measure(world, options, 8, int(options.loop))
    measure(world, options, int(options.mib) << 20, 1)
    measure_sum(world, options, int(options.mib) << 20)


if __name__ == "__main__":
    main()
