"""An operation of 16 MiB beside a computation of the same length, on 2 MPI ranks.

Rank 1 only communicates. If the partner is *late*, it comes to every call too late, by the length
of the computation. Then the operation's time is waiting, as with a network, and needs no core.
"""

import time

import jax
import jax.numpy as jnp
import plait
from _rounds import Case, Ranks, arguments, rounds

LATE_S = 0.05
LIMIT_S = 0.002  # how closely the computation's length has to fit
N_PARTS = 16  # XLA runs programs of up to eight parts in sequence, whatever their dependencies


def computation(n_turns):
    """Sines of a few numbers, one after the other: one core, no memory."""
    body = lambda _, v: jnp.sin(v) + 1  # noqa: E731

    def run(v):
        for _ in range(N_PARTS):
            v = jax.lax.fori_loop(0, n_turns, body, v)
        return v

    return run


def seconds(run):
    """Seconds of one call."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def turns_for(wanted_s, v):
    """The number of turns for which the computation takes so long."""
    n_turns = 100
    for _ in range(20):
        f = jax.jit(computation(n_turns))
        f(v).block_until_ready()
        took_s = min(seconds(lambda f=f: f(v).block_until_ready()) for _ in range(5))
        if abs(took_s - wanted_s) < LIMIT_S:
            break
        n_turns = max(1, int(n_turns * wanted_s / took_s))
    return n_turns


def programs(compute):
    """The ways to write both in one program; each returns both results."""

    def sequence(x, v):
        y = plait.allreduce(x, plait.SUM)
        return y, compute(v + 0 * y[: v.size])

    def implicit(x, v):
        return plait.allreduce(x, plait.SUM), compute(v)

    def started(x, v):
        handle = plait.start(plait.allreduce, x, plait.SUM)
        z = compute(v)
        return plait.wait(handle, after=z), z

    return {"sequence": sequence, "implicit": implicit, "started": started}


def timed(team, program, operands, late_s):
    """A case; a late partner computes nothing."""
    f = plait.jit(program)

    def run():
        if team.rank == 1 and late_s:
            time.sleep(late_s)
        jax.block_until_ready(f(*operands))

    return Case(run)


def main():
    """Measure."""
    options = arguments("mib")
    team = Ranks()
    n = (int(options.mib) << 20) // 4
    x, v = jnp.zeros(n, jnp.float32), jnp.ones(512, jnp.float32)
    alone = plait.jit(lambda x: plait.allreduce(x, plait.SUM))
    alone(x).block_until_ready()
    own_s = min(team.max(seconds(lambda: alone(x).block_until_ready())) for _ in range(7))
    facts = {"bytes": 4 * n, "transport": plait.Comm().transport}
    for name, wanted_s, late_s in (("late", LATE_S, LATE_S), ("busy", own_s, 0.0)):
        n_turns = turns_for(wanted_s, v)
        is_idle = team.rank == 1 and late_s > 0
        compute = (lambda v: v) if is_idle else computation(n_turns)
        cases = {
            key: timed(team, program, (x, v), late_s) for key, program in programs(compute).items()
        }
        cases["communication"] = timed(team, lambda x, v: alone(x), (x, v), late_s)
        rounds(team, options, name, cases, facts)


if __name__ == "__main__":
    main()
