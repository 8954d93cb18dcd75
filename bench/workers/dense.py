"""Log-determinant and solution through JAX, and their gradient, beside jnp on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
import scipy.linalg
from _rounds import Case, arguments, rounds
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from workers.world import World, blas_threads


def of_jnp(a, b):
    """The sum of log det A and b^T A^-1 b."""
    factor = jnp.linalg.cholesky(a)
    x = jax.scipy.linalg.cho_solve((factor, True), b)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) + jnp.vdot(b, x)


def of_plait(mesh):
    """The same for a matrix whose rows are split over the mesh."""

    def value(a, b):
        factor = plait.linalg.cholesky(a, mesh=mesh, spec=P("x"))
        return factor.logdet() + jnp.vdot(b, factor.solve(b, spec=P()))

    return value


def problem(n):
    """A positive definite matrix and a vector; the same on each rank."""
    rng = np.random.default_rng(0)
    a = rng.random((n, n)) - 0.5
    return a + a.T + n * np.eye(n), rng.random(n) - 0.5


def difference(world, got, a, b):
    """The largest error of value and gradients, each relative to its largest number."""
    factor = scipy.linalg.cho_factor(a, lower=True)
    x = scipy.linalg.cho_solve(factor, b)
    value = 2 * np.log(np.diagonal(factor[0])).sum() + b @ x
    gradients = scipy.linalg.cho_solve(factor, np.eye(len(a))) - np.outer(x, x), 2 * x
    wants = [np.array(value), *gradients]
    return max(
        float(np.abs(part - want[index]).max() / np.abs(want).max())
        for result, want in zip([got[0], *got[1]], wants, strict=True)
        for index, part in world.parts(result)
    )


def main():
    """Measure."""
    options = arguments("where", "n")
    world, n = World(options.where), int(options.n)
    whole, vector = problem(n)
    device = jax.local_devices()[0]
    ours = world.put(whole), jax.device_put(vector, NamedSharding(world.mesh, P()))
    theirs = jax.device_put(whole, device), jax.device_put(vector, device)
    value = of_plait(world.mesh)
    slope = jax.value_and_grad(value, argnums=(0, 1))
    runs = {
        "forward": (plait.jit(value), ours),
        "gradient": (plait.jit(slope), ours),
        "jnp forward": (jax.jit(of_jnp), theirs),
        "jnp gradient": (jax.jit(jax.value_and_grad(of_jnp, argnums=(0, 1))), theirs),
    }
    wrong = world.team.max(difference(world, runs["gradient"][0](*ours), whole, vector))
    if not wrong < n * np.finfo("float64").eps:
        raise RuntimeError(f"the gradient of n = {n} differs from scipy's by {wrong}")
    cases = {
        name: Case(
            lambda run=run, operands=operands: jax.block_until_ready(run(*operands)),
            is_solo=name.startswith("jnp"),
        )
        for name, (run, operands) in runs.items()
    }
    facts = {"n": n, "difference": wrong, "jax": jax.__version__}
    facts["blas_threads"] = blas_threads()
    rounds(world.team, options, f"dense {options.where}", cases, facts)


if __name__ == "__main__":
    main()
