"""Redistribution of axis 0 to axis 1, in memcpys of the local data."""

import os
import platform

from _jobs import N_RANKS, Absent, any_mpi
from _result import C_REUSED, JAX_FRESH, Bound, Rounds, absent

BOUND = {"threads": 1.8, "ranks": 2.0}
THROUGH_JAX = 2.0  # memcpys more
COMPARATOR = "memcpy of the local data, by the same ranks at once"
NAMES = {"threads": "2 threads", "ranks": "2 MPI processes, one-copy reads"}


def _title(jobs):
    return f"redistribution of axis 0 to 1, {jobs.scale.n_redist}^3 c128"


def _in_c(jobs, where):
    n = jobs.scale.n_redist
    if where == "threads":
        program = jobs.c_program(os.environ.get("CC", "cc"), "threads", False)
        return jobs.threads(program, "redist", n)
    compiler, launcher = any_mpi(jobs)
    records = jobs.ranks(jobs.c_program(compiler, "ranks", False), launcher, "redist", n)
    _must_read(records[0]["facts"])
    return records


def _must_read(facts):
    if not facts["direct"].startswith("on"):
        raise Absent(f"no one-copy reads here: {facts['direct']}")


def _through_jax(jobs, where):
    is_ranks = where == "ranks"
    arguments = {"where": "ranks" if is_ranks else "devices", "n": jobs.scale.n_redist}
    return jobs.worker("redist", arguments, N_RANKS if is_ranks else 0)


def _row(jobs, where, way, run, limit):
    bound = Bound("<=", limit)
    place = NAMES[where]
    if way == JAX_FRESH:
        place = {"threads": "2 devices of one process", "ranks": "2 MPI ranks"}[where]
    try:
        rounds = Rounds(run(jobs, where)[0], jobs.scale.n_rounds)
    except (Absent, RuntimeError) as error:
        return absent(_title(jobs), place, way, COMPARATOR, str(error), bound)
    row = rounds.row(_title(jobs), place, way, "plait", "memcpy", COMPARATOR, bound)
    row.comparator += f", {' '.join(platform.libc_ver())}"
    value = rounds.median(lambda r: r["plait"] / r["memcpy"])
    return row.judge(f"{value:.2f} memcpys", value)


def measure(jobs):
    """The rows of this group."""
    rows = [_row(jobs, where, C_REUSED, _in_c, limit) for where, limit in BOUND.items()]
    for where, limit in BOUND.items():
        rows.append(_row(jobs, where, JAX_FRESH, _through_jax, limit + THROUGH_JAX))
    return rows
