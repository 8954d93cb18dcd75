"""64 MiB allreduce and sendrecv through JAX beside raw MPI, on 2 MPI ranks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, Ranks, arguments, copier, rounds

from workers import raw


class Chain:
    """A program whose last operand is its own last result, to be overwritten."""

    def __init__(self, program, *operands):
        self.program, self.others, self.x = program, operands[:-1], operands[-1]

    def __call__(self):
        """Once more, to the end."""
        self.x = self.program(*self.others, self.x)
        self.x.block_until_ready()


def fresh(program, *operands):
    """A program whose result is new memory, freed before the next call."""
    return lambda: program(*operands).block_until_ready()


def allreduce_cases(mpi, n):
    """Reductions of n float32."""
    x, y = np.full(n, 0, np.float32), np.full(n, 0, np.float32)
    z = jnp.zeros(n, jnp.float32)
    reduce = functools.partial(plait.allreduce, op=plait.SUM)
    donated = plait.jit(functools.partial(reduce, donate=True), donate_argnums=0)
    return {
        "raw": Case(lambda: mpi.allreduce(1, x, y)),
        "donated": Case(Chain(donated, z + 0)),
        "fresh": Case(fresh(plait.jit(reduce), z)),
    }


def sendrecv_cases(mpi, n, peer):
    """Exchanges of n float32 with the peer."""
    x, y = np.full(n, 0, np.float32), np.full(n, 0, np.float32)
    send, place = jnp.zeros(n, jnp.float32), jnp.zeros(n, jnp.float32)

    def exchange(x, like, donate=False):
        return plait.sendrecv(x, like, peer, peer, donate=donate)

    donated = plait.jit(functools.partial(exchange, donate=True), donate_argnums=1)
    return {
        "raw": Case(lambda: mpi.sendrecv(1, x, y)),
        "donated": Case(Chain(donated, send, place + 0)),
        "fresh": Case(fresh(plait.jit(exchange), send, place)),
    }


def main():
    """Measure."""
    options = arguments("raw", "mib")
    team, mpi = Ranks(), raw.Raw(options.raw)
    n = (int(options.mib) << 20) // 4
    comm = plait.Comm()
    facts = {"mpi": raw.version(), "transport": comm.transport, "direct": comm.direct}
    facts |= {"jax": jax.__version__, "bytes": 4 * n}
    for name, cases in (
        ("allreduce", allreduce_cases(mpi, n)),
        ("sendrecv", sendrecv_cases(mpi, n, 1 - team.rank)),
    ):
        memcpy = {"memcpy": Case(copier(4 * n))}
        rounds(team, options, name, cases | memcpy, facts)


if __name__ == "__main__":
    main()
