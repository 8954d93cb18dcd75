"""JAX's own collectives and functions of global arrays: devices of one process need no MPI."""

from _jobs import N_RANKS
from _result import JAX_FRESH, Rounds

GROUP = f"inside jax.shard_map, and functions of global arrays, {N_RANKS} devices of one process"
THEIRS = {
    "allreduce": "jax.lax.psum",
    "alltoall": "jax.lax.all_to_all",
    "sum": "jnp.sum of the global array",
    "matrix_norm": "jnp.linalg.norm of the global array",
    "gather_to_host": "numpy.asarray of the global array",
}
MIB = 64
N_LOOP = 500  # turns; each of JAX's takes tens of microseconds


def measure(jobs):
    """The rows of this group."""
    arguments = {"loop": min(N_LOOP, jobs.scale.n_loop), "mib": MIB}
    return [
        _row(record["name"], Rounds(record, jobs.scale.n_rounds))
        for record in jobs.worker("jax_own", arguments, 0)
    ]


def _row(name, rounds):
    facts = rounds.facts
    is_large = facts["n_calls"] == 1
    what = (
        f"{facts['bytes'] >> 20} MiB" if is_large else f"{facts['bytes']} B in a jitted fori_loop"
    )
    comparator = f"{THEIRS[name]}, jax {facts['jax']}"
    row = rounds.row(GROUP, f"{name}, {what}", JAX_FRESH, "plait", "jax", comparator)
    if is_large:
        row.note = f"{rounds.median(lambda r: r['plait'] / r['memcpy']):.2f} memcpys"
    return row.judge(f"{row.speed:.2f} times as fast", row.speed)
