"""pfft3d through JAX with fresh results, beside the transforms of one process."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
import scipy
import scipy.fft
from _rounds import Case, arguments, copier, rounds

from workers.world import World, random

N_WORKERS = 2  # as many cores as plait has


def difference(world, y, want):
    """The largest error of this process's parts, relative to the largest coefficient."""
    largest = np.abs(want).max()
    return max(float(np.abs(part - want[index]).max() / largest) for index, part in world.parts(y))


def measure(world, options, n, dtype):
    """One size and type."""
    whole = random(n, dtype)
    x, y = world.put(whole), jax.device_put(whole, jax.local_devices()[0])
    ours, theirs = plait.jit(plait.fft.pfft3d), jax.jit(jnp.fft.fftn)
    wrong = difference(world, ours(x), scipy.fft.fftn(whole, workers=N_WORKERS))
    wrong = world.team.max(wrong)
    if not wrong < 100 * np.finfo(dtype).eps:
        raise RuntimeError(f"pfft3d of {n}^3 {dtype} differs from scipy's by {wrong}")
    cases = {
        "plait": Case(lambda: ours(x).block_until_ready()),
        "jnp": Case(lambda: theirs(y).block_until_ready(), is_solo=True),
        "scipy": Case(lambda: scipy.fft.fftn(whole, workers=N_WORKERS), is_solo=True),
        "numpy": Case(lambda: np.fft.fftn(whole), is_solo=True),
        "memcpy": Case(copier(whole.nbytes // world.size, world.team.copies)),
    }
    facts = {"n": n, "dtype": dtype, "difference": wrong, "jax": jax.__version__}
    facts |= {"numpy": np.__version__, "scipy": scipy.__version__}
    rounds(world.team, options, f"fft {options.where}", cases, facts)


def main():
    """Measure."""
    options = arguments("where", "sizes")
    world = World(options.where)
    for n in map(int, options.sizes.split(",")):
        for dtype in ("complex128", "complex64"):
            measure(world, options, n, dtype)


if __name__ == "__main__":
    main()
