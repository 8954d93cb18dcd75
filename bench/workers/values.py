"""Eigenvalues alone: by plait, by scipy and by jnp."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
import scipy.linalg
from _rounds import Case, arguments, rounds
from jax.sharding import PartitionSpec as P

from workers.world import World, blas_threads


def main():
    """Measure."""
    options = arguments("where", "n")
    world, n = World(options.where), int(options.n)
    whole = np.random.default_rng(0).random((n, n)) - 0.5
    whole = whole + whole.T
    ours, theirs = world.put(whole), jax.device_put(whole, jax.local_devices()[0])
    given = {"mesh": world.mesh, "spec": P("x", None)}
    by_plait = plait.jit(lambda a: plait.linalg.eigvalsh(a, **given))
    by_jnp = jax.jit(jnp.linalg.eigvalsh)
    runs = {
        "plait": lambda: jax.block_until_ready(by_plait(ours)),
        "scipy": lambda: scipy.linalg.eigh(whole, eigvals_only=True),
        "jnp": lambda: jax.block_until_ready(by_jnp(theirs)),
    }
    [(_, found), *_] = world.parts(runs["plait"]())
    want = runs["scipy"]()
    wrong = world.team.max(float(np.abs(found - want).max() / np.abs(want).max()))
    if not wrong < n * np.finfo("float64").eps:
        raise RuntimeError(f"{n} eigenvalues differ from scipy's by {wrong}")
    cases = {name: Case(run, is_solo=name != "plait") for name, run in runs.items()}
    facts = {"difference": wrong, "jax": jax.__version__, "scipy": scipy.__version__}
    facts["blas_threads"] = blas_threads()
    rounds(world.team, options, f"values {options.where}", cases, facts)


if __name__ == "__main__":
    main()
