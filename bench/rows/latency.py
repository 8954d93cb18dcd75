"""Short messages and dispatch."""

from _jobs import N_RANKS
from _result import JAX_FRESH, Bound, Rounds

GROUP = "short messages, 2 MPI ranks"
LIMIT_US = 1.2
LIMIT_DISPATCH = 2.0


def measure(jobs):
    """The rows of this group."""
    arguments = {"raw": jobs.raw_mpi(), "loop": jobs.scale.n_loop}
    [record] = jobs.worker("latency", arguments, N_RANKS)
    rounds = Rounds(record, jobs.scale.n_rounds)
    facts = rounds.facts
    loop = rounds.row(
        GROUP,
        "8 B allreduce in a jitted fori_loop",
        JAX_FRESH,
        "loop",
        "raw",
        f"MPI_Allreduce in a C loop, {facts['mpi']}",
        Bound("<=", LIMIT_US),
    )
    beyond_us = rounds.median(lambda r: r["loop"] - r["raw"]) * 1e6
    loop.judge(f"{beyond_us:+.2f} us", beyond_us)
    return [
        loop,
        _dispatch(rounds, "plait.jit", Bound("<=", LIMIT_DISPATCH)),
        _dispatch(rounds, "jax.jit", None),
    ]


def _dispatch(rounds, key, bound):
    """The whole call beside the same function without communication, jitted by jax.jit."""
    row = rounds.row(
        GROUP,
        f"call of a {key} step with one 8 B allreduce",
        JAX_FRESH,
        key,
        "plain",
        f"jax.jit without the allreduce, jax {rounds.facts['jax']}",
        bound,
    )
    value = rounds.median(lambda r: (r[key] - r["loop"]) / r["plain"])
    row.note = "judged: the call less one allreduce of the loop above, in calls without it"
    return row.judge(f"{value:.2f} calls", value)
