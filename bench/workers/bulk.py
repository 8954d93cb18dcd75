"""Large collectives and sendrecv through JAX beside raw MPI, on 2 MPI ranks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, Ranks, arguments, copier, rounds

from workers import raw

DONATED_MIB = 64


class Chain:
    """A program whose last operand is its own last result, to be overwritten."""

    def __init__(self, program, *operands):
        self.program, self.others, self.x = program, operands[:-1], operands[-1]

    def __call__(self):
        """Once more, to the end."""
        self.x = self.program(*self.others, self.x)
        self.x.block_until_ready()


def fresh(function, *operands):
    """A program whose result is new memory, freed before the next call."""
    program = plait.jit(function)
    return Case(lambda: program(*operands).block_until_ready())


def called(mpi, name, n, n_block):
    """MPI's own call on warm buffers of n float32, in blocks of so many."""
    x, y = np.full(n, 0, np.float32), np.full(n, 0, np.float32)
    return Case(lambda: mpi.call(name, 1, x, y, n_block))


def collectives(size):
    """Each with the shape of its operand where the result has n items, and of MPI's blocks."""
    reduce = functools.partial(plait.allreduce, op=plait.SUM)
    bcast = functools.partial(plait.bcast, root=0)
    return {
        "allreduce": (reduce, lambda n: (n,), lambda n: n),
        "allgather": (plait.allgather, lambda n: (n // size,), lambda n: n // size),
        "alltoall": (plait.alltoall, lambda n: (size, n // size), lambda n: n // size),
        "bcast": (bcast, lambda n: (n,), lambda n: n),
    }


def collective_cases(mpi, size, name, n):
    """A collective whose result has n float32."""
    function, shape, block = collectives(size)[name]
    cases = {
        "raw": called(mpi, name, n, block(n)),
        "fresh": fresh(function, jnp.zeros(shape(n), jnp.float32)),
    }
    if name == "allreduce" and 4 * n == DONATED_MIB << 20:
        donated = plait.jit(functools.partial(function, donate=True), donate_argnums=0)
        cases["donated"] = Case(Chain(donated, jnp.zeros(n, jnp.float32)))
    return cases


def sendrecv_cases(mpi, n, peer):
    """Exchanges of n float32 with the peer."""
    send, place = jnp.zeros(n, jnp.float32), jnp.zeros(n, jnp.float32)

    def exchange(x, like, donate=False):
        return plait.sendrecv(x, like, peer, peer, donate=donate)

    donated = plait.jit(functools.partial(exchange, donate=True), donate_argnums=1)
    return {
        "raw": called(mpi, "sendrecv", n, n),
        "donated": Case(Chain(donated, send, place + 0)),
        "fresh": fresh(exchange, send, place),
    }


def main():
    """Measure."""
    options = arguments("raw", "mib")
    team, mpi = Ranks(), raw.Raw(options.raw)
    comm = plait.Comm()
    facts = {"mpi": raw.version(), "transport": comm.transport, "direct": comm.direct}
    facts |= {"jax": jax.__version__}

    def measure(name, mib, cases):
        memcpy = {"memcpy": Case(copier(mib << 20))}
        rounds(team, options, name, cases | memcpy, facts | {"mib": mib})

    for mib in map(int, options.mib.split(",")):
        n = (mib << 20) // 4
        for name in collectives(comm.size):
            measure(name, mib, collective_cases(mpi, comm.size, name, n))
        if mib == DONATED_MIB:
            measure("sendrecv", mib, sendrecv_cases(mpi, n, 1 - team.rank))


if __name__ == "__main__":
    main()
