"""Transforms through JAX with fresh results, beside those of a single process."""

import functools

import jax
import jax.numpy as jnp
import jax.scipy.fft
import numpy as np
import plait
import scipy
import scipy.fft
from _rounds import Case, arguments, copier, rounds
from jax.sharding import PartitionSpec as P

from workers.world import World

N_WORKERS = 2  # as many as plait has cores


def _rows(x):
    return plait.fft.fftn(x, axes=(-1,))


# Shape for a size n, dtype of the operand, and the transforms of plait, jnp and scipy. `real back`
# gets the spectrum of such an operand.
KINDS = {
    "c128": (lambda n: (n, n, n), "complex128", plait.fft.pfft3d, jnp.fft.fftn, scipy.fft.fftn),
    "c64": (lambda n: (n, n, n), "complex64", plait.fft.pfft3d, jnp.fft.fftn, scipy.fft.fftn),
    "real": (lambda n: (n, n, n), "float64", plait.fft.prfft3d, jnp.fft.rfftn, scipy.fft.rfftn),
    "real back": (
        lambda n: (n, n, n),
        "float64",
        plait.fft.pirfft3d,
        jnp.fft.irfftn,
        scipy.fft.irfftn,
    ),
    "cosines": (
        lambda n: (n, n, n),
        "float64",
        plait.fft.dctn,
        jax.scipy.fft.dctn,
        scipy.fft.dctn,
    ),
    "rows alone": (lambda n: (16 * n, 8 * n), "complex128", _rows, jnp.fft.fft, scipy.fft.fft),
    "rows of 21": (
        lambda n: (3 * n, 3 * n, 21),
        "complex128",
        plait.fft.pfft3d,
        jnp.fft.fftn,
        scipy.fft.fftn,
    ),
}
CUBES = ("c128", "c64")  # all sizes, and also NumPy; the others only the largest size


def random(shape, dtype):
    """The same on each rank."""
    rng = np.random.default_rng(0)
    parts = [rng.random(shape, np.dtype(dtype).type().real.dtype) - 0.5]
    if np.issubdtype(dtype, np.complexfloating):
        parts.append(rng.random(shape, parts[0].dtype) - 0.5)
        return (parts[0] + 1j * parts[1]).astype(dtype)
    return parts[0]


def by_hand(world):
    """As written by hand with shard_map alone; the result is split along y, as pfft3d's."""

    def parts(x):
        planes = jnp.fft.fftn(x, axes=(1, 2))
        lines = jax.lax.all_to_all(planes, "x", split_axis=1, concat_axis=0, tiled=True)
        return jnp.fft.fft(lines, axis=0)

    return jax.jit(jax.shard_map(parts, mesh=world.mesh, in_specs=P("x"), out_specs=P(None, "x")))


def measure(world, options, kind, n):
    """One kind of transform."""
    shape_of, dtype, ours, theirs, scipys = KINDS[kind]
    ours, theirs = plait.jit(ours), jax.jit(theirs)
    scipys = functools.partial(scipys, workers=N_WORKERS)
    shape = shape_of(n)
    whole = random(shape, dtype)
    x = world.put(whole)
    if kind == "real back":
        x, whole = plait.jit(plait.fft.prfft3d)(x), scipy.fft.rfftn(whole)
    y = jax.device_put(whole, jax.local_devices()[0])
    wrong = world.team.max(world.difference(ours(x), scipys(whole)))
    if not wrong < 100 * np.finfo(dtype).eps:
        raise RuntimeError(f"{kind} of {shape} {dtype} differs from scipy's by {wrong}")
    cases = {
        "plait": Case(lambda: ours(x).block_until_ready()),
        "jnp": Case(lambda: theirs(y).block_until_ready(), is_solo=True),
        "scipy": Case(lambda: scipys(whole), is_solo=True),
        "memcpy": Case(copier(whole.nbytes // world.size, world.team.copies)),
    }
    if kind in CUBES:
        cases["numpy"] = Case(lambda: np.fft.fftn(whole), is_solo=True)
    if kind in CUBES and options.where == "devices":
        mapped = by_hand(world)
        if not world.difference(mapped(x), scipys(whole)) < 100 * np.finfo(dtype).eps:
            raise RuntimeError(f"{kind} of {shape} {dtype} by shard_map differs from scipy's")
        cases["shard_map"] = Case(lambda: mapped(x).block_until_ready())
    facts = {"kind": kind, "n": n, "shape": "x".join(map(str, shape)), "dtype": dtype}
    facts |= {"difference": wrong, "jax": jax.__version__, "is_cube": kind in CUBES}
    facts |= {"numpy": np.__version__, "scipy": scipy.__version__}
    rounds(world.team, options, f"fft {kind} {options.where}", cases, facts)


def main():
    """Measure."""
    options = arguments("where", "sizes")
    world = World(options.where)
    sizes = list(map(int, options.sizes.split(",")))
    for kind, n in ((kind, n) for n in sizes for kind in CUBES):
        measure(world, options, kind, n)
    for kind in (kind for kind in KINDS if kind not in CUBES):
        measure(world, options, kind, max(sizes))


if __name__ == "__main__":
    main()
