"""An operation of 16 MiB beside an independent computation of equal length."""

import os

from _jobs import N_RANKS
from _result import JAX_FRESH, Bound, Rounds

MIB = 16
HIDDEN = 0.7
MOST = 1.03  # more than all of it cannot be hidden: then the times are wrong
WAYS = {"implicit": "one after the other in the program", "started": "start, compute, wait"}
GROUPS = {
    "late": f"{MIB} MiB allreduce with a partner who is late, beside a computation",
    "busy": f"{MIB} MiB allreduce beside a computation on both ranks",
}


def measure(jobs):
    """The rows of this group. Computing and communicating at once takes two cores a rank."""
    has_cores = len(os.sched_getaffinity(0)) >= 2 * N_RANKS
    rows = []
    for record in jobs.worker("overlap", {"mib": MIB}, N_RANKS):
        rounds, name = Rounds(record, jobs.scale.n_rounds), record["name"]
        is_judged = name == "late" or has_cores
        for key, text in WAYS.items():
            bound = Bound(">=", HIDDEN) if is_judged else None
            row = rounds.row(
                GROUPS[name], text, JAX_FRESH, key, "sequence", "the computation afterwards", bound
            )
            share = rounds.median(lambda r, key=key: (r["sequence"] - r[key]) / r["communication"])
            if not is_judged:
                row.note = f"no bound: a free core for each of {N_RANKS} ranks is missing"
            row.is_doubtful = share > MOST
            rows.append(row.judge(f"{share:.2f} of the communication hidden", share))
    return rows
