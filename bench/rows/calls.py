"""Every operation on 8 bytes, under each MPI and at both thread levels."""

from _jobs import N_RANKS
from _result import JAX_FRESH, Bound, Rounds

from rows import LEVELS, at_level, under_each_mpi

LIMIT, BEYOND_US = 1.3, 0.05


def measure(jobs):
    """The rows of this group, for each MPI in turn."""
    return under_each_mpi(jobs, "8 B", JAX_FRESH, _under)


def _under(jobs, python):
    """Plait, at MPI's default level, is compared with the faster of the two levels."""
    arguments = {"raw": jobs.raw_mpi(), "loop": jobs.scale.n_loop}
    found = {}
    for level in LEVELS:
        for record in jobs.worker("calls", arguments, N_RANKS, at_level(level), python):
            found[record["name"], level] = Rounds(record, jobs.scale.n_rounds)
    rows = []
    for name in dict.fromkeys(name for name, _ in found):
        rounds = found[name, LEVELS[0]]
        raw_us = {level: found[name, level].median("raw") * 1e6 for level in LEVELS}
        mpi = rounds.facts["mpi"]
        group = f"8 B in a jitted loop, 2 ranks, {mpi}"
        comparator = f"MPI's {name} in a C loop, {mpi}, THREAD_MULTIPLE"
        row = rounds.row(group, name, JAX_FRESH, "plait", "raw", comparator, Bound("<=", LIMIT))
        value = (row.plait_s * 1e6 - BEYOND_US) / min(raw_us.values())
        row.note = ", ".join(f"raw {level} {us:.3f} us" for level, us in raw_us.items())
        rows.append(row.judge(f"{value:.2f} of the faster raw", value))
    return rows
