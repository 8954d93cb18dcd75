"""The rows, a module for each group: `measure(jobs)` returns them."""

from _jobs import Absent
from _peers import with_this_jax
from _result import absent


def under_each_mpi(jobs, group, way, measure):
    """The rows of `measure(jobs, python)` for each MPI in turn; a failing MPI becomes a row."""
    rows = []
    for python in jobs.pythons():
        try:
            rows += measure(jobs, with_this_jax(jobs, python))
        except (Absent, RuntimeError) as error:
            rows.append(absent(group, "all rows", way, f"MPI of {python}", str(error)))
    return rows


LEVELS = ("multiple", "serialized")  # mpi4py's default first; plait works at either level


def at_level(level):
    """The environment in which mpi4py asks MPI for this thread level."""
    return {"MPI4PY_RC_THREAD_LEVEL": level}
