"""Small programs around an 8 B allreduce, in loops of XLA and in loops of Python."""

import jax
import jax.numpy as jnp
from _rounds import Case


def loop_of(jit, allreduce, n_calls):
    """A jitted loop of allreduces."""
    return jit(lambda x: jax.lax.fori_loop(0, n_calls, lambda _, x: allreduce(x), x))


def step_of(allreduce):
    """The step that Python calls: some arithmetic around an allreduce."""
    return lambda x: allreduce(x + 1.0) * 0.5


def queued(step, n_calls):
    """The step, repeated on its own result, with one wait at the end."""
    zero = jnp.zeros(1)

    def run():
        x = zero
        for _ in range(n_calls):
            x = step(x)
        x.block_until_ready()

    return Case(run, n_calls)


def awaited(step, n_calls):
    """The step, repeated with a wait for each result."""
    zero = jnp.zeros(1)

    def run():
        for _ in range(n_calls):
            step(zero).block_until_ready()

    return Case(run, n_calls)
