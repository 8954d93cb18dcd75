"""Short messages and dispatch."""

from _jobs import N_RANKS
from _result import JAX_FRESH, Bound, Rounds

from rows import LEVELS, at_level, under_each_mpi

LIMIT_US = 1.2
LIMIT_DISPATCH = 2.0
LIMIT_AWAITED = 1.4
LIMIT_EAGER = 2.0
N_CROWD, N_CORES, CROWD_US = 4, 2, 20.0
CROWD_LOOPS = {"loop": 2000, "raw_loop": 200}  # MPICH: up to 2 ms a call


def measure(jobs):
    """The rows of this group."""
    group = f"short messages, {N_RANKS} MPI ranks"
    return under_each_mpi(jobs, group, JAX_FRESH, _pair) + under_each_mpi(
        jobs, f"{N_CROWD} ranks on {N_CORES} cores", JAX_FRESH, _crowd
    )


def _pair(jobs, python):
    arguments = {"raw": jobs.raw_mpi(), "loop": jobs.scale.n_loop}
    at = {}
    for level, only in zip(LEVELS, ("", "loop"), strict=True):
        given = arguments | {"only": only}
        [record] = jobs.worker("latency", given, N_RANKS, at_level(level), python)
        at[level] = Rounds(record, jobs.scale.n_rounds)
    rounds = at[LEVELS[0]]
    group = f"short messages, {N_RANKS} MPI ranks, {rounds.facts['mpi']}"
    return [
        *(_loop(group, at[level]) for level in LEVELS),
        _alone(group, rounds),
        _queued(group, rounds, "plait.jit", Bound("<=", LIMIT_DISPATCH)),
        _queued(group, rounds, "jax.jit", None),
        _awaited(group, rounds, "plait.jit", Bound("<=", LIMIT_AWAITED)),
        _awaited(group, rounds, "jax.jit", None),
        _awaited(group, rounds, "alone", None),
        _eager(group, rounds),
    ]


def _loop(group, rounds):
    """Both in the same processes, at the stated thread level."""
    row = rounds.row(
        group,
        f"8 B allreduce in a jitted fori_loop, {rounds.facts['level']}",
        JAX_FRESH,
        "loop",
        "raw",
        f"MPI_Allreduce in a C loop, {_mpi(rounds)}",
        Bound("<=", LIMIT_US),
    )
    beyond_us = rounds.median(lambda r: r["loop"] - r["raw"]) * 1e6
    return row.judge(f"{beyond_us:+.2f} us", beyond_us)


def _mpi(rounds):
    return f"{rounds.facts['mpi']}, THREAD_{rounds.facts['level']}"


def _alone(group, rounds):
    """The cost of a call that sends nothing: XLA's part, and the handler's."""
    row = rounds.row(
        group,
        "the same on a communicator of one rank",
        JAX_FRESH,
        "alone",
        "raw",
        f"MPI_Allreduce of {N_RANKS} ranks in a C loop, {_mpi(rounds)}",
    )
    us = rounds.median(lambda r: r["alone"]) * 1e6
    return row.judge(f"{us:.2f} us", us)


def _queued(group, rounds, key, bound):
    """The whole call beside the same function without communication, jitted by jax.jit."""
    row = rounds.row(
        group,
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


def _awaited(group, rounds, key, bound):
    """The whole call, including the wait for its result."""
    of = "plait.jit step on one rank" if key == "alone" else f"{key} step"
    row = rounds.row(
        group,
        f"the same {of}, each result awaited",
        JAX_FRESH,
        f"{key} awaited",
        "plain awaited",
        f"jax.jit without the allreduce, awaited, jax {rounds.facts['jax']}",
        bound,
    )
    value = rounds.median(lambda r: r[f"{key} awaited"] / r["plain awaited"])
    return row.judge(f"{value:.2f} calls", value)


def _eager(group, rounds):
    """Eager calls; compiling again after the first call is a failure, however fast."""
    row = rounds.row(
        group,
        "eager 8 B allreduce, second time on",
        JAX_FRESH,
        "eager",
        "jitted",
        "the same allreduce in plait.jit, awaited",
        Bound("<=", LIMIT_EAGER),
    )
    value = rounds.median(lambda r: r["eager"] / r["jitted"])
    n_compiled = rounds.facts["n_compiled"]
    row.note = f"{n_compiled} compilations after the first call"
    row.judge(f"{value:.2f} jitted calls", value)
    if n_compiled > 0:
        row.verdict = "FAILED"
    return row


def _crowd(jobs, python):
    """More ranks than cores."""
    arguments = {"raw": jobs.raw_mpi(), "only": "allreduce"} | CROWD_LOOPS
    [record] = jobs.worker("calls", arguments, N_CROWD, python=python, n_cores=N_CORES)
    rounds = Rounds(record, jobs.scale.n_rounds)
    mpi = rounds.facts["mpi"]
    row = rounds.row(
        f"{N_CROWD} ranks on {N_CORES} cores",
        f"8 B allreduce in a jitted fori_loop, {mpi}",
        JAX_FRESH,
        "plait",
        "raw",
        f"MPI_Allreduce in a C loop, {_mpi(rounds)}",
        Bound("<=", CROWD_US),
    )
    us = row.plait_s * 1e6
    return [row.judge(f"{us:.1f} us", us)]
