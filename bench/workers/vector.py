"""A matrix times a vector: by plait, by panels that move, by XLA on the mesh, on one device."""

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
    vector = whole[0]
    ours = (world.put(whole), world.put(vector))
    theirs = jax.device_put((whole, vector), jax.local_devices()[0])
    given = {"mesh": world.mesh, "spec": P("x", None), "spec_b": P("x")}
    panel = 128  # plait's own choice
    functions = {
        "plait": (plait.jit(lambda a, b: plait.linalg.matmul(a, b, **given)), ours),
        "panels": (plait.jit(lambda a, b: plait.linalg.matmul(a, b, block=panel, **given)), ours),
        "xla": (jax.jit(jnp.matmul), ours),
        "jnp": (jax.jit(jnp.matmul), theirs),
    }
    runs = {k: lambda f=f, x=x: jax.block_until_ready(f(*x)) for k, (f, x) in functions.items()}
    want = whole @ vector
    wrong = max(world.difference(runs[name](), want) for name in ("plait", "panels"))
    wrong = world.team.max(wrong)
    if not wrong < n * np.finfo("float64").eps:
        raise RuntimeError(f"A b of {n} x {n} differs from NumPy's by {wrong}")
    cases = {name: Case(run, is_solo=name == "jnp") for name, run in runs.items()}
    facts = {"difference": wrong, "jax": jax.__version__, "blas_threads": blas_threads()}
    rounds(world.team, options, f"vector {options.where}", cases, facts)


if __name__ == "__main__":
    main()
