"""pfft3d through JAX beside the transforms of other distributed libraries, c128."""

import sys

import _peers
from _jobs import N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, absent

BOUNDS = {"mpi4py-fft": Bound(">=", 3.0), "jaxdecomp": Bound(">=", 4.0)}
NAMES = {"ranks": f"{N_RANKS} MPI ranks", "devices": f"{N_RANKS} devices of one process"}
SIZES = (256, 128)
CASES = {
    "plait": "axes kept",
    "dropin": "plait.compat.jaxdecomp.pfft3d, axes 1, 2, 0 as jaxDecomp's",
}


def _runs(jobs):
    """Peer, place, and the Python with the MPI; jaxdecomp's own transport is XLA's."""
    for python in jobs.pythons():
        yield "mpi4py-fft", "ranks", python
    yield "jaxdecomp", "devices", sys.executable
    yield "jaxdecomp", "ranks", sys.executable


def _rows(jobs, peer, where, python):
    sizes = [n for n in SIZES if n in jobs.scale.sizes]
    arguments = {"peer": peer, "where": where, "sizes": ",".join(map(str, sizes))}
    python = _peers.environment(jobs, peer, python)
    n_ranks = N_RANKS if where == "ranks" else 0
    records = jobs.worker("fft_peers", arguments, n_ranks, python=python)
    found = [Rounds(record, jobs.scale.n_rounds) for record in records]
    return [
        _row(peer, where, rounds, case, kept)
        for rounds in found
        for case, kept in CASES.items()
        if case in rounds.cases
    ]


def _row(peer, where, rounds, case, kept):
    facts = rounds.facts
    group = ", ".join(filter(None, (f"pfft3d beside {peer}", NAMES[where], facts["mpi"])))
    comparator = f"{facts['peer']}, jax {facts['jax']}"
    name, bound = f"{facts['n']}^3 c128, {kept}", BOUNDS[peer] if case == "plait" else None
    row = rounds.row(group, name, JAX_FRESH, case, "peer", comparator, bound)
    row.note = f"{rounds.median(lambda r: r[case] / r['memcpy']):.1f} memcpys, "
    row.note += f"{peer} {rounds.median(lambda r: r['peer'] / r['memcpy']):.1f}"
    return row.judge(f"{row.speed:.2f}x", row.speed)


def measure(jobs):
    """The rows of this group; peers that cannot be installed are absent."""
    rows = []
    for peer, where, python in _runs(jobs):
        try:
            rows += _rows(jobs, peer, where, python)
        except (Absent, RuntimeError) as error:
            group = f"pfft3d beside {peer}, {NAMES[where]}, MPI of {python}"
            rows.append(absent(group, "all rows", JAX_FRESH, peer, str(error), BOUNDS[peer]))
    return rows
