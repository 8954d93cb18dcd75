"""Halo exchange of width 2 along each axis, beside MPI with subarray datatypes."""

from _jobs import N_RANKS, Absent, any_mpi
from _result import C_REUSED, JAX_DONATED, JAX_FRESH, Bound, Rounds, absent

from rows import under_each_mpi

LIMIT_S = 15.0  # for each of many records
N_AXES = 3
BOUND = Bound(">=", 2.0)


def _group(jobs):
    return f"halo exchange, width 2, {jobs.scale.n_redist}^3 f64, {N_RANKS} MPI ranks"


def _mpi(rounds):
    return " ".join(rounds.facts["mpi"].replace("Version:", "").split())


def _row(group, rounds, name, way, ours, theirs, call, bound):
    """The exchange, which moves two faces, beside MPI's."""
    comparator = f"{call} of subarrays in C, {_mpi(rounds)}"
    row = rounds.row(group, name, way, ours, theirs, comparator, bound)
    row.note = f"{rounds.facts['face_bytes'] >> 10} KiB a face"
    return row.judge(f"{row.speed:.2f} of MPI's speed", row.speed)


def _pad_row(group, rounds, name):
    """A fresh array with ghosts: all cells are copied."""
    comparator = f"memcpy of the local data, by the same ranks, {_mpi(rounds)}"
    row = rounds.row(group, name, JAX_FRESH, "pad", "memcpy", comparator)
    return row.judge(f"{1 / row.speed:.2f} memcpys", 1 / row.speed)


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
        names = (f"{name}, exchange", JAX_DONATED, "donated", "raw", "MPI_Sendrecv")
        rows.append(_row(group, rounds, *names, None))
        rows.append(_pad_row(group, rounds, f"{name}, pad"))
    return rows


def measure(jobs):
    """The rows of this group."""
    rows = [_in_c(jobs, axis) for axis in range(N_AXES)]
    return rows + under_each_mpi(jobs, _group(jobs), JAX_DONATED, _through_jax)
