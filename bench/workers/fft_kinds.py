"""Real numbers, rows alone and short rows through JAX, beside the transforms of one process."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
import scipy
import scipy.fft
from _rounds import Case, arguments, copier, rounds

from workers.fft import difference
from workers.world import World

N_WORKERS = 2  # as many cores as plait has


def _scipy(name, **axes):
    return lambda x: getattr(scipy.fft, name)(x, workers=N_WORKERS, **axes)


def _rows(x):
    return plait.fft.fftn(x, axes=(-1,))


# Shape for a size n, dtype of the operand, plait's, jnp's and scipy's transform; `real back` is
# given the spectrum of such an operand.
KINDS = {
    "real": (lambda n: (n, n, n), "float64", plait.fft.prfft3d, jnp.fft.rfftn, _scipy("rfftn")),
    "real back": (
        lambda n: (n, n, n),
        "float64",
        plait.fft.pirfft3d,
        jnp.fft.irfftn,
        _scipy("irfftn"),
    ),
    "rows alone": (
        lambda n: (16 * n, 8 * n),
        "complex128",
        _rows,
        jnp.fft.fft,
        _scipy("fftn", axes=(-1,)),
    ),
    "rows of 21": (
        lambda n: (3 * n, 3 * n, 21),
        "complex128",
        plait.fft.pfft3d,
        jnp.fft.fftn,
        _scipy("fftn"),
    ),
}


def random(shape, dtype):
    """The same on each rank."""
    rng = np.random.default_rng(0)
    x = rng.random(shape) - 0.5
    return x if dtype == "float64" else x + 1j * (rng.random(shape) - 0.5)


def measure(world, options, kind, n):
    """One kind of transform."""
    shape_of, dtype, ours, theirs, scipys = KINDS[kind]
    ours, theirs = plait.jit(ours), jax.jit(theirs)
    shape = shape_of(n)
    whole = random(shape, dtype)
    x = world.put(whole)
    if kind == "real back":
        x, whole = plait.jit(plait.fft.prfft3d)(x), scipy.fft.rfftn(whole)
    y = jax.device_put(whole, jax.local_devices()[0])
    wrong = world.team.max(difference(world, ours(x), scipys(whole)))
    if not wrong < 1000 * np.finfo(dtype).eps:
        raise RuntimeError(f"{kind} of {shape} {dtype} differs from scipy's by {wrong}")
    cases = {
        "plait": Case(lambda: ours(x).block_until_ready()),
        "jnp": Case(lambda: theirs(y).block_until_ready(), is_solo=True),
        "scipy": Case(lambda: scipys(whole), is_solo=True),
        "memcpy": Case(copier(whole.nbytes // world.size, world.team.copies)),
    }
    facts = {"kind": kind, "shape": "x".join(map(str, shape)), "dtype": dtype}
    facts |= {"difference": wrong, "jax": jax.__version__, "scipy": scipy.__version__}
    rounds(world.team, options, f"fft {kind} {options.where}", cases, facts)


def main():
    """Measure."""
    options = arguments("where", "n")
    world = World(options.where)
    for kind in KINDS:
        measure(world, options, kind, int(options.n))


if __name__ == "__main__":
    main()
