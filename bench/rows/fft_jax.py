"""Transforms through JAX beside those of one process."""

from _jobs import N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, absent

GROUPS = {
    "devices": "FFT through JAX, 2 devices of one process",
    "ranks": "FFT through JAX, 2 MPI ranks",
}
FASTER = {256: 1.8, 128: 1.5}  # than jnp, at least
SHORT = {"complex128": "c128", "complex64": "c64"}


def _bound(n):
    return Bound(">=", FASTER[n]) if n in FASTER else None


def _comparators(facts):
    return {
        "jnp": f"jnp.fft.fftn, one device (2 cores), jax {facts['jax']}",
        "scipy": f"scipy.fft.fftn, 2 workers, scipy {facts['scipy']}",
        "numpy": f"numpy.fft.fftn, numpy {facts['numpy']}",
    }


def _rows(jobs, where):
    arguments = {"where": where, "sizes": ",".join(map(str, jobs.scale.sizes))}
    n_ranks = N_RANKS if where == "ranks" else 0
    # one device may use both cores, also where two ranks run
    records = jobs.worker("fft", arguments, n_ranks, {"NPROC": str(N_RANKS)})
    rows = []
    for record in records:
        rounds = Rounds(record, jobs.scale.n_rounds)
        facts = rounds.facts
        name = f"{facts['n']}^3 {SHORT[facts['dtype']]}"
        for key, comparator in _comparators(facts).items():
            bound = _bound(facts["n"]) if key == "jnp" else None
            row = rounds.row(GROUPS[where], name, JAX_FRESH, "plait", key, comparator, bound)
            copies = rounds.median(lambda r: r["plait"] / r["memcpy"])
            rows.append(row.judge(f"{row.speed:.2f}x, {copies:.1f} memcpys", row.speed))
    return rows


def _kinds(jobs, where):
    """Of real numbers, of rows alone, of short rows."""
    arguments = {"where": where, "n": jobs.scale.sizes[0]}
    n_ranks = N_RANKS if where == "ranks" else 0
    rows = []
    for record in jobs.worker("fft_kinds", arguments, n_ranks, {"NPROC": str(N_RANKS)}):
        rounds = Rounds(record, jobs.scale.n_rounds)
        facts = rounds.facts
        name = f"{facts['kind']}, {facts['shape']} {facts['dtype']}"
        comparators = {
            "jnp": f"jnp.fft, one device (2 cores), jax {facts['jax']}",
            "scipy": f"scipy.fft, 2 workers, scipy {facts['scipy']}",
        }
        for key, comparator in comparators.items():
            row = rounds.row(GROUPS[where], name, JAX_FRESH, "plait", key, comparator)
            copies = rounds.median(lambda r: r["plait"] / r["memcpy"])
            rows.append(row.judge(f"{row.speed:.2f}x, {copies:.1f} memcpys", row.speed))
    return rows


def measure(jobs):
    """The rows of this group."""
    rows = []
    for where, group in GROUPS.items():
        try:
            rows += _rows(jobs, where) + _kinds(jobs, where)
        except (Absent, RuntimeError) as error:
            rows += [
                absent(group, f"{n}^3", JAX_FRESH, "jnp.fft.fftn", str(error), _bound(n))
                for n in jobs.scale.sizes
            ]
    return rows
