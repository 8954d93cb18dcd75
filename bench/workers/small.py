"""Singular values, and vectors, of a small matrix: by plait, and by jnp on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, arguments, rounds
from jax.sharding import PartitionSpec as P

from workers.world import World, blas_threads


def main():
    """Measure."""
    options = arguments("where", "n")
    world, n = World(options.where), int(options.n)
    whole = np.random.default_rng(0).random((n, n)) - 0.5
    ours, theirs = world.put(whole), jax.device_put(whole, jax.local_devices()[0])
    given = {"mesh": world.mesh, "spec": P("x", None)}
    functions = {
        "values": (plait.jit(lambda a: plait.linalg.svdvals(a, **given)), ours),
        "vectors": (plait.jit(lambda a: plait.linalg.svd(a, **given)), ours),
        "jnp values": (jax.jit(lambda a: jnp.linalg.svd(a, compute_uv=False)), theirs),
        "jnp vectors": (jax.jit(jnp.linalg.svd), theirs),
    }
    runs = {k: lambda f=f, a=a: jax.block_until_ready(f(a)) for k, (f, a) in functions.items()}
    want = np.asarray(runs["jnp values"]())
    found = (runs["values"](), runs["vectors"]()[1])
    wrong = max(float(np.abs(world.parts(s)[0][1] - want).max() / want[0]) for s in found)
    wrong = world.team.max(wrong)
    if not wrong < n * np.finfo("float64").eps:
        raise RuntimeError(f"singular values of {n} x {n} differ from LAPACK's by {wrong}")
    cases = {name: Case(run, is_solo=name.startswith("jnp")) for name, run in runs.items()}
    facts = {"difference": wrong, "jax": jax.__version__, "blas_threads": blas_threads()}
    rounds(world.team, options, f"small {options.where}", cases, facts)


if __name__ == "__main__":
    main()
