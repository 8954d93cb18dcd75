"""Programs that mix collectives of XLA with operations of plait, in no order among each other.

Devices reach both at different times, because each has other work before. XLA hands ready work
even to threads that must first leave their current task. An operation that waited for its other
ranks on such a thread has kept a device from the collective in which those ranks waited for it.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import plait
import spread
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

N, DEPTH = 112, 8  # N x N x DEPTH, or less where devices do not divide it
N_STATEMENTS, N_EARLY = 24, 3  # statements read one of the first few values
N_LAUNCHES = 20


@dataclasses.dataclass(frozen=True)
class Statement:
    """A transform of plait or a sum of XLA, applied to an earlier value after some work."""

    is_ours: bool
    operand: int
    work: tuple


def draw(seed, n_devices, most_work):
    rng = np.random.default_rng(seed)
    return tuple(
        Statement(
            bool(rng.integers(2)),
            int(rng.integers(min(i, N_EARLY) + 1)),
            tuple(map(int, rng.integers(most_work + 1, size=n_devices))),
        )
        for i in range(N_STATEMENTS)
    )


def program(statements, mesh):
    """The sums of all values, for an array that is split along the first axis."""
    rows = P("a")

    def worked(v, work):
        @functools.partial(jax.shard_map, mesh=mesh, in_specs=rows, out_specs=rows)
        def part(v):
            n = jnp.asarray(work)[jax.lax.axis_index("a")]
            return jax.lax.fori_loop(0, n, lambda _, v: v + 1e-3 * jnp.sin(v), v)

        return part(v)

    @plait.jit
    def f(x):
        values = [x]
        for s in statements:
            v = worked(values[s.operand], s.work) if any(s.work) else values[s.operand]
            if s.is_ours:
                v = plait.fft.pfft3d(v.astype(complex), norm="ortho", mesh=mesh, spec=rows)
                v = jax.lax.with_sharding_constraint(jnp.real(v), NamedSharding(mesh, rows))
            else:
                v = v - jnp.sum(v * v) / v.size
            values.append(v)
        return jnp.stack([jnp.sum(v) for v in values])

    return f


def expected(statements, x):
    values = [x]
    for s in statements:
        v = values[s.operand].copy()
        for part, n in zip(np.split(v, len(s.work)), s.work, strict=True):
            for _ in range(n):
                part += 1e-3 * np.sin(part)
        values.append(np.fft.fftn(v, norm="ortho").real if s.is_ours else v - np.mean(v * v))
    return np.array([v.sum() for v in values])


def check(seeds, mesh, most_work):
    """The programs of these seeds, several launches at a time, give the results of NumPy."""
    n = N - N % mesh.size
    x = np.random.default_rng(0).standard_normal((n, n, DEPTH))
    for seed in seeds:
        statements = draw(seed, mesh.size, most_work)
        f, v = program(statements, mesh), spread.put(x, mesh, P("a"))
        results = [f(v) for _ in range(N_LAUNCHES)]
        want = expected(statements, x)
        for result in results:
            error = np.abs(np.asarray(result) - want).max() / np.abs(want).max()
            assert error < 1e-10, (seed, error)
