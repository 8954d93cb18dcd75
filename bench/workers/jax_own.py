"""Collectives on 2 devices of one process, and functions of global arrays: plait's, and JAX's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, arguments, copier, rounds
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from workers.world import World

N_COLUMNS = 4096  # of the matrix whose norm is taken
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


def measure_global(world, options, n_bytes):
    """Functions of global arrays with so many bytes on each device."""
    n = n_bytes // 4
    row = np.arange(n, dtype=np.float32) % 7
    stacked = np.stack([row + i for i in range(world.size)])
    rows, matrix = world.put(stacked), world.put(stacked.reshape(-1, N_COLUMNS))
    whole = NamedSharding(world.mesh, P())
    given = {"mesh": world.mesh, "spec": P("x")}
    for name, x, sides in [
        (
            "sum",
            rows,
            [
                plait.jit(lambda x: plait.sum(x, axis=0, **given)),
                jax.jit(lambda x: jnp.sum(x, axis=0), out_shardings=whole),
            ],
        ),
        (
            "matrix_norm",
            matrix,
            [
                plait.jit(lambda x: plait.linalg.matrix_norm(x, **given)),
                jax.jit(jnp.linalg.norm, out_shardings=whole),
            ],
        ),
        (
            "gather_to_host",
            rows,
            [lambda x: plait.gather_to_host(anew(x)), lambda x: np.asarray(anew(x))],
        ),
    ]:
        tolerance = 1e-5 if name == "matrix_norm" else 0
        compare(world, options, name, n_bytes, x, sides, sides, 1, tolerance)


def anew(x):
    """The array as another object: JAX keeps what numpy.asarray gave for the first."""
    parts = [shard.data for shard in x.addressable_shards]
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, parts)


def compare(world, options, name, n_bytes, x, once, often, n_calls, tolerance=0):
    """Both sides' programs on x, first each of them once; tolerance: relative, of their results."""
    if not np.allclose(*(np.asarray(f(x)) for f in once), rtol=tolerance, atol=0):
        raise RuntimeError(f"{name} of {n_bytes} B differs from JAX's")
    cases = {"memcpy": Case(copier(n_bytes, world.team.copies))}
    for key, run in zip(JITS, often, strict=True):
        cases[key] = Case(lambda run=run: jax.block_until_ready(run(x)), n_calls)
    facts = {"jax": jax.__version__, "bytes": n_bytes, "n_calls": n_calls}
    rounds(world.team, options, name, cases, facts)


def main():
    """Measure."""
    options = arguments("loop", "mib")
    world = World("devices")
    measure(world, options, 8, int(options.loop))
    measure(world, options, int(options.mib) << 20, 1)
    measure_global(world, options, int(options.mib) << 20)


if __name__ == "__main__":
    main()
