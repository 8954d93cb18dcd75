"""Large collectives and sendrecv through JAX beside raw MPI, on 2 MPI ranks."""

import ctypes
import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, Ranks, arguments, copier, rounds

from workers import raw

DONATED_MIB = 64


class Chain:
    """A program whose last operand is its previous result, to be overwritten."""

    def __init__(self, program, *operands):
        self.program, self.others, self.x = program, operands[:-1], operands[-1]

    def __call__(self):
        """Runs it once more, to the end."""
        self.x = self.program(*self.others, self.x)
        self.x.block_until_ready()


class Span(ctypes.Structure):
    """An iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("n_bytes", ctypes.c_size_t))


class Copies:
    """The data movement of a collective on 2 ranks, done without it, to warm memory.

    Own bytes go by memcpy. The kernel moves the other rank's bytes, reading them in place.
    """

    def __init__(self, team, n):
        self.team, self.n_bytes = team, 4 * n
        self.here, self.there = np.full(n, 1, np.float32), np.full(n, 2, np.float32)
        addresses = team.comm.allgather((os.getpid(), self.here.ctypes.data))
        self.pid, self.address = addresses[1 - team.rank]
        self.read_memory = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self.read_memory.restype = ctypes.c_ssize_t

    def own(self, n_bytes):
        ctypes.memmove(self.there.ctypes.data, self.here.ctypes.data, n_bytes)

    def read(self, n_bytes):
        to = Span(self.there.ctypes.data + self.n_bytes - n_bytes, n_bytes)
        at = Span(self.address, n_bytes)
        n = self.read_memory(self.pid, ctypes.byref(to), 1, ctypes.byref(at), 1, 0)
        if n != n_bytes:
            raise OSError(ctypes.get_errno(), f"{n} of {n_bytes} bytes read from the other rank")

    def add(self, n):
        np.add(self.here[:n], self.there[:n], out=self.there[:n])

    def run(self, name):
        """One pass; half of the result comes from the other rank, except for bcast."""
        half = self.n_bytes // 2
        if name == "bcast":
            (self.read if self.team.rank else self.own)(self.n_bytes)
        elif name == "allreduce":
            self.read(half)
            self.add(half // 4)
            self.read(half)
        else:
            self.own(half)
            self.read(half)


def fresh(function, *operands):
    """A program whose result is new memory, freed before the next call."""
    program = plait.jit(function)
    return Case(lambda: program(*operands).block_until_ready())


def called(mpi, name, n, n_block):
    """MPI's own call on warm buffers of n float32, in blocks of n_block."""
    x, y = np.full(n, 0, np.float32), np.full(n, 0, np.float32)
    return Case(lambda: mpi.call(name, 1, x, y, n_block))


def collectives(size):
    """Each with the operand's shape for a result of n items, and with the size of MPI's blocks."""
    reduce = functools.partial(plait.allreduce, op=plait.SUM)
    bcast = functools.partial(plait.bcast, root=0)
    return {
        "allreduce": (reduce, lambda n: (n,), lambda n: n),
        "allgather": (plait.allgather, lambda n: (n // size,), lambda n: n // size),
        "alltoall": (plait.alltoall, lambda n: (size, n // size), lambda n: n // size),
        "bcast": (bcast, lambda n: (n,), lambda n: n),
    }


def collective_cases(mpi, team, comm, name, n):
    """A collective whose result has n float32."""
    function, shape, block = collectives(comm.size)[name]
    cases = {
        "raw": called(mpi, name, n, block(n)),
        "fresh": fresh(function, jnp.zeros(shape(n), jnp.float32)),
    }
    if name == "allreduce" and 4 * n == DONATED_MIB << 20:
        donated = plait.jit(functools.partial(function, donate=True), donate_argnums=0)
        cases["donated"] = Case(Chain(donated, jnp.zeros(n, jnp.float32)))
    if comm.direct.startswith("on"):
        copies = Copies(team, n)
        cases["copies"] = Case(lambda: copies.run(name))
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
        beside = {"memcpy": Case(copier(mib << 20)), "call": fresh(lambda x: x + 1, jnp.zeros(1))}
        rounds(team, options, name, cases | beside, facts | {"mib": mib})

    for mib in map(int, options.mib.split(",")):
        n = (mib << 20) // 4
        for name in collectives(comm.size):
            measure(name, mib, collective_cases(mpi, team, comm, name, n))
        if mib == DONATED_MIB:
            measure("sendrecv", mib, sendrecv_cases(mpi, n, 1 - team.rank))


if __name__ == "__main__":
    main()
