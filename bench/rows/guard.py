"""What the guard costs: plait with PLAIT_CHECK=first, its default, beside PLAIT_CHECK=off."""

from _jobs import N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, absent

LIMIT_NS, LIMIT_US = 50.0, 50.0


def measure(jobs):
    """The rows of this group: both settings in turn in one job."""
    group = f"guard, {N_RANKS} MPI ranks"
    try:
        arguments = {"raw": jobs.raw_mpi(), "loop": jobs.scale.n_loop}
        [record] = jobs.worker("guard", arguments, N_RANKS)
    except (Absent, RuntimeError) as error:
        return [absent(group, "all rows", JAX_FRESH, "PLAIT_CHECK=off", str(error))]
    rounds = Rounds(record, jobs.scale.n_rounds)
    group += f", {rounds.facts['mpi']}"
    name, bound = "8 B allreduce in a jitted fori_loop", Bound("<=", LIMIT_NS)
    loop = rounds.row(group, name, JAX_FRESH, "loop", "off", "PLAIT_CHECK=off", bound)
    more_ns = 1e9 * rounds.median(lambda r: r["loop"] - r["off"])
    name, bound = "first execution of a call site", Bound("<=", LIMIT_US)
    first = rounds.row(group, name, JAX_FRESH, "first", "loop", "later ones, in a loop", bound)
    first_us = 1e6 * rounds.median("first")
    return [
        loop.judge(f"{more_ns:+.1f} ns", more_ns),
        first.judge(f"{first_us:.1f} us", first_us),
    ]
