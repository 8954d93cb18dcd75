"""Halo exchange of width 2 along each axis, beside MPI with subarray datatypes."""

from _jobs import N_RANKS, Absent, any_mpi
from _result import C_REUSED, JAX_DONATED, JAX_FRESH, Bound, Rounds, absent

from rows import under_each_mpi

LIMIT_S = 15.0  # for each of many records
N_AXES = 3
BOUND = Bound(">=", 1.0, slack=0.03)


def _group(jobs):
    return f"halo exchange, width 2, {jobs.scale.n_redist}^3 f64, {N_RANKS} MPI ranks"


def _row(group, rounds, name, way, ours, theirs, call, bound):
    mpi = " ".join(rounds.facts["mpi"].replace("Version:", "").split())
    row = rounds.row(group, name, way, ours, theirs, f"{call} of subarrays in C, {mpi}", bound)
    row.note = f"{rounds.facts['face_bytes'] >> 10} KiB a face, memcpy of the local data "
    row.note += f"{rounds.median('memcpy') * 1e6:.0f} us"
    return row.judge(f"{row.speed:.2f} of MPI's speed", row.speed)


def _in_c(jobs, axis):
    group, name = _group(jobs), f"axis {axis}, in place"
    call = "MPI_Isend, MPI_Irecv"
    try:
        compiler, launcher = any_mpi(jobs)
        program = jobs.c_program(compiler, "halo", False)
        [record] = jobs.ranks(program, launcher, str(axis), jobs.scale.n_redist)
    except (Absent, RuntimeError) as error:
        return absent(group, name, C_REUSED, call, str(error), BOUND)
    rounds = Rounds(record, jobs.scale.n_rounds)
    return _row(group, rounds, name, C_REUSED, "plait", "mpi", call, BOUND)


def _through_jax(jobs, python):
    group, rows = _group(jobs), []
    given = {"raw": jobs.raw_mpi(), "n": jobs.scale.n_redist}
    given["seconds"] = min(LIMIT_S, jobs.scale.limit_s)
    for record in jobs.worker("halo", given, N_RANKS, python=python):
        rounds, name = Rounds(record, jobs.scale.n_rounds), record["name"]
        for way, ours, does in ((JAX_DONATED, "donated", "exchange"), (JAX_FRESH, "pad", "pad")):
            names = (f"{name}, {does}", way, ours, "raw", "MPI_Sendrecv")
            rows.append(_row(group, rounds, *names, None))
    return rows


def measure(jobs):
    """The rows of this group."""
    rows = [_in_c(jobs, axis) for axis in range(N_AXES)]
    return rows + under_each_mpi(jobs, _group(jobs), JAX_DONATED, _through_jax)
