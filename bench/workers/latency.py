"""8-byte allreduce in a jitted loop, and dispatch of a small jitted step, on 2 MPI ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, Ranks, arguments, rounds

from workers import raw

N_PLAIN, N_VISIBLE = 2000, 200


def loop_of(n_calls):
    """A jitted loop of allreduces of one float64."""

    def body(_, x):
        return plait.allreduce(x, plait.SUM)

    return plait.jit(lambda x: jax.lax.fori_loop(0, n_calls, body, x))


def step(x):
    """What is called from Python."""
    return plait.allreduce(x + 1.0, plait.SUM) * 0.5


def plain(x):
    """The same without communication."""
    return (x + 1.0) * 0.5


def calls_of(step, n_calls):
    """The step, called again and again on its own result."""
    zero = jnp.zeros(1)

    def run():
        x = zero
        for _ in range(n_calls):
            x = step(x)
        x.block_until_ready()

    return Case(run, n_calls)


def main():
    """Measure."""
    options = arguments("raw", "loop")
    jax.config.update("jax_enable_x64", True)
    team, mpi = Ranks(), raw.Raw(options.raw)
    n_loop = int(options.loop)
    x, y, zero = np.zeros(1), np.zeros(1), jnp.zeros(1)
    loop = loop_of(n_loop)
    cases = {
        "raw": Case(lambda: mpi.allreduce(n_loop, x, y), n_loop),
        "loop": Case(lambda: loop(zero).block_until_ready(), n_loop),
        "plait.jit": calls_of(plait.jit(step), N_PLAIN),
        "plain": calls_of(jax.jit(plain), N_PLAIN),
        "jax.jit": calls_of(jax.jit(step), N_VISIBLE),
    }
    comm = plait.Comm()
    facts = {"mpi": raw.version(), "transport": comm.transport, "direct": comm.direct}
    rounds(team, options, "latency", cases, facts | {"jax": jax.__version__})


if __name__ == "__main__":
    main()
