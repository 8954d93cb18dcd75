"""Redistribution of axis 0 to axes 1 and 2, in memcpys of the local data."""

import os
import platform

from _jobs import N_RANKS, Absent, any_mpi
from _result import C_REUSED, JAX_FRESH, Bound, Rounds, absent

OPS = {1: "redist", 2: "redist_02"}
BOUNDS = {"threads": {1: 1.5, 2: 1.7}, "ranks": {1: 1.8, 2: 2.8}}
THROUGH_JAX = 2.0  # additional memcpys
COMPARATOR = "memcpy of the local data, by the same ranks at once"
NAMES = {"threads": "2 threads", "ranks": "2 MPI processes, one-copy reads"}
NAMES_IN_JAX = {"threads": "2 devices of one process", "ranks": "2 MPI ranks"}


def _group(jobs):
    return f"redistribution, {jobs.scale.n_redist}^3 c128"


def _in_c(jobs, where, axis):
    n = jobs.scale.n_redist
    if where == "threads":
        program = jobs.c_program(os.environ.get("CC", "cc"), "threads", False)
        return jobs.threads(program, OPS[axis], n)[0]
    compiler, launcher = any_mpi(jobs)
    [record] = jobs.ranks(jobs.c_program(compiler, "ranks", False), launcher, OPS[axis], n)
    _must_read(record["facts"])
    return record


def _must_read(facts):
    if not facts["direct"].startswith("on"):
        raise Absent(f"no one-copy reads here: {facts['direct']}")


def _row(jobs, way, where, axis, record):
    bound = Bound("<=", BOUNDS[where][axis] + (THROUGH_JAX if way == JAX_FRESH else 0))
    name = f"axis 0 to {axis}, {(NAMES_IN_JAX if way == JAX_FRESH else NAMES)[where]}"
    if isinstance(record, Exception):
        return absent(_group(jobs), name, way, COMPARATOR, str(record), bound)
    rounds, ours = Rounds(record, jobs.scale.n_rounds), "plait"
    if way == JAX_FRESH:
        ours = f"to {axis}"
    comparator = f"{COMPARATOR}, {' '.join(platform.libc_ver())}"
    row = rounds.row(_group(jobs), name, way, ours, "memcpy", comparator, bound)
    value = rounds.median(lambda r: r[ours] / r["memcpy"])
    return row.judge(f"{value:.2f} memcpys", value)


def _rows_in_c(jobs, where):
    rows = []
    for axis in OPS:
        try:
            record = _in_c(jobs, where, axis)
        except (Absent, RuntimeError) as error:
            record = error
        rows.append(_row(jobs, C_REUSED, where, axis, record))
    return rows


def _rows_through_jax(jobs, where):
    """A single job measures both axes."""
    is_ranks = where == "ranks"
    arguments = {"where": "ranks" if is_ranks else "devices", "n": jobs.scale.n_redist}
    try:
        [record] = jobs.worker("redist", arguments, N_RANKS if is_ranks else 0)
    except (Absent, RuntimeError) as error:
        record = error
    return [_row(jobs, JAX_FRESH, where, axis, record) for axis in OPS]


def measure(jobs):
    """The rows of this group."""
    rows = [row for where in BOUNDS for row in _rows_in_c(jobs, where)]
    return rows + [row for where in BOUNDS for row in _rows_through_jax(jobs, where)]
