"""Operations on 8 bytes in a jitted loop, beside MPI's own call in a C loop."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, Ranks, arguments, rounds

from workers import raw

SUM = plait.SUM


def ping_pong(rank):
    """There and back: two messages."""
    peer = 1 - rank

    def run(x, _):
        if rank == 0:
            plait.send(x, peer)
            plait.recv(x, peer)
        else:
            plait.recv(x, peer)
            plait.send(x, peer)

    return run


def operations(rank):
    """What each turn of the loop does, on one item and on an item of each rank; how many calls.

    The transfers are between two ranks.
    """
    peer = 1 - rank
    mine = lambda x, rows, root: rows if rank == root else x  # noqa: E731
    return {
        "allreduce": (lambda x, rows: plait.allreduce(x, SUM), 1),
        "barrier": (lambda x, rows: plait.barrier(), 1),
        "bcast": (lambda x, rows: plait.bcast(plait.bcast(x, 0), 1), 2),
        "allgather": (lambda x, rows: plait.allgather(x), 1),
        "alltoall": (lambda x, rows: plait.alltoall(rows), 1),
        "reduce_scatter": (lambda x, rows: plait.reduce_scatter(rows, SUM), 1),
        "scan": (lambda x, rows: plait.scan(x, SUM), 1),
        "reduce": (lambda x, rows: [plait.reduce(x, SUM, root) for root in (0, 1)], 2),
        "gather": (lambda x, rows: [plait.gather(x, root) for root in (0, 1)], 2),
        "scatter": (lambda x, rows: [plait.scatter(mine(x, rows, r), r) for r in (0, 1)], 2),
        "sendrecv": (lambda x, rows: plait.sendrecv(x, x, peer, peer), 1),
        "send": (ping_pong(rank), 2),
    }


def loop_of(turn, n_turns):
    """A jitted loop that does nothing else."""

    def body(_, carry):
        turn(*carry)
        return carry

    return plait.jit(lambda *carry: jax.lax.fori_loop(0, n_turns, body, carry))


def main():
    """Measure."""
    options = arguments("raw", "loop", "raw_loop", "only")
    jax.config.update("jax_enable_x64", True)
    team, mpi = Ranks(), raw.Raw(options.raw)
    comm = plait.Comm()
    n_calls, n_raw = int(options.loop), int(options.raw_loop or options.loop)
    x, rows = jnp.zeros(1), jnp.zeros((comm.size, 1))
    a, b = np.zeros(comm.size), np.zeros(comm.size)
    facts = {"mpi": raw.version(), "level": raw.thread_level(), "transport": comm.transport}
    table = operations(team.rank)
    for name in [options.only] if options.only else table:
        turn, n_each = table[name]
        loop = loop_of(turn, n_calls // n_each)
        cases = {
            "raw": Case(lambda name=name: mpi.call(name, n_raw, a, b, 1), n_raw),
            "plait": Case(lambda loop=loop: jax.block_until_ready(loop(x, rows)), n_calls),
        }
        rounds(team, options, name, cases, facts)


if __name__ == "__main__":
    main()
