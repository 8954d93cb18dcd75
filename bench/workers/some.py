"""Eigenvectors of the largest eigenvalues: by plait, all by plait, by scipy and by jnp."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
import scipy.linalg
from _rounds import Case, arguments, rounds
from jax.sharding import PartitionSpec as P

from workers.world import World, blas_threads


def difference(world, w, v, whole):
    """The largest local element of A V - V diag(w), relative to the largest eigenvalue."""
    [(_, values), *_] = world.parts(w)
    [(_, vectors), *_] = world.parts(v)
    return float(np.abs(whole @ vectors - vectors * values).max() / np.abs(values).max())


def main():
    """Measure."""
    options = arguments("where", "n", "k")
    world, n, k = World(options.where), int(options.n), int(options.k)
    whole = np.random.default_rng(0).random((n, n)) - 0.5
    whole, largest = whole + whole.T, slice(n - k, None)
    ours, theirs = world.put(whole), jax.device_put(whole, jax.local_devices()[0])
    given = {"mesh": world.mesh, "spec": P("x", None)}
    some = plait.jit(lambda a: plait.linalg.eigh(a, subset=largest, **given))
    every, of_jnp = plait.jit(lambda a: plait.linalg.eigh(a, **given)), jax.jit(jnp.linalg.eigh)
    runs = {
        "plait": lambda: jax.block_until_ready(some(ours)),
        "all": lambda: jax.block_until_ready(every(ours)),
        "scipy": lambda: scipy.linalg.eigh(whole, subset_by_index=(n - k, n - 1)),
        "jnp": lambda: jax.block_until_ready(of_jnp(theirs)),
    }
    w, v = runs["plait"]()
    v = plait.redistribute(v, P(), mesh=world.mesh, spec=v.sharding.spec)
    wrong = world.team.max(difference(world, w, v, whole))
    if not wrong < n * np.finfo("float64").eps:
        raise RuntimeError(f"A V of {k} of {n} eigenvectors differs from V w by {wrong}")
    cases = {name: Case(run, is_solo=name in ("scipy", "jnp")) for name, run in runs.items()}
    facts = {"difference": wrong, "jax": jax.__version__, "scipy": scipy.__version__}
    facts["blas_threads"] = blas_threads()
    rounds(world.team, options, f"some {options.where}", cases, facts)


if __name__ == "__main__":
    main()
