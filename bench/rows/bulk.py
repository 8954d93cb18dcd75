"""64 MiB through JAX beside raw MPI."""

from _jobs import N_RANKS
from _result import JAX_DONATED, JAX_FRESH, Bound, Rounds

GROUP = "64 MiB f32, 2 MPI ranks"
MIB = 64
WAYS = {"donated": (JAX_DONATED, Bound(">=", 0.95)), "fresh": (JAX_FRESH, Bound(">=", 0.8))}


def measure(jobs):
    """The rows of this group."""
    rows = []
    for record in jobs.worker("bulk", {"raw": jobs.raw_mpi(), "mib": MIB}, N_RANKS):
        rounds = Rounds(record, jobs.scale.n_rounds)
        name = record["name"]
        for key, (way, bound) in WAYS.items():
            comparator = f"MPI_{name.capitalize()} in C, reused buffers, {rounds.facts['mpi']}"
            row = rounds.row(GROUP, name, way, key, "raw", comparator, bound)
            copies = rounds.median(lambda r, key=key: r[key] / r["memcpy"])
            row.note = f"{copies:.2f} memcpys"
            rows.append(row.judge(f"{row.speed:.2f} of its bandwidth", row.speed))
    return rows
