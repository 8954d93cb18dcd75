"""Other libraries for MPI inside jax.jit, in the same processes as plait."""

import _peers
from _jobs import N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, absent

from rows import LEVELS, at_level

PEERS = ("mpi4jax", "jpi")
MIB = 64
BOUND = Bound(">=", 1.0, 0.05)


def measure(jobs):
    """The rows of this group, for each peer and MPI; what cannot be installed is absent."""
    rows = []
    for peer in PEERS:
        for python in jobs.pythons():
            try:
                rows += _beside(jobs, peer, _peers.environment(jobs, peer, python))
            except (Absent, RuntimeError) as error:
                group = f"{peer}, MPI of {python}"
                rows.append(absent(group, "all rows", JAX_FRESH, peer, str(error)))
    return rows


def _beside(jobs, peer, python):
    """The loop at both thread levels, since MPI's calls within take longer at one of them."""
    arguments = {"peer": peer, "loop": jobs.scale.n_loop, "mib": MIB}
    at = {}
    for level, only in zip(LEVELS, ("", "loop"), strict=True):
        given = arguments | {"only": only}
        [record] = jobs.worker("peers", given, N_RANKS, at_level(level), python)
        at[level] = Rounds(record, jobs.scale.n_rounds)
    rounds, name = at[LEVELS[0]], "8 B allreduce in a jitted fori_loop"
    return [
        *(_row(of, f"{name}, {of.facts['level']}", "loop") for of in at.values()),
        _row(rounds, "jitted step with one 8 B allreduce, awaited", "call"),
        _row(rounds, f"{MIB} MiB f32 allreduce", "large"),
    ]


def _row(rounds, name, key):
    facts = rounds.facts
    row = rounds.row(
        f"{facts['peer']}, {N_RANKS} MPI ranks, {facts['mpi']}",
        name,
        JAX_FRESH,
        f"plait {key}",
        f"peer {key}",
        f"the same with {facts['peer']}, jax {facts['jax']}, THREAD_{facts['level']}",
        BOUND,
    )
    if key == "call":
        calls = rounds.median(lambda r: r[f"peer {key}"] / r["plain"])
        row.note = f"{facts['peer']}: {calls:.1f} calls without communication"
    return row.judge(f"{row.speed:.2f} times faster", row.speed)
