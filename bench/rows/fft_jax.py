"""Transforms through JAX beside those of a single process."""

from _jobs import ALL_CORES, N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, absent

GROUPS = {
    "devices": "FFT through JAX, 2 devices of one process",
    "ranks": "FFT through JAX, 2 MPI ranks",
}
FASTER = {256: 1.8, 128: 1.5}  # at least this many times faster than jnp


def _bound(n):
    return Bound(">=", FASTER[n]) if n in FASTER else None


def _comparators(facts, cases):
    jax_s = "jax.scipy.fft" if facts["kind"] == "cosines" else "jnp.fft"
    found = {
        "shard_map": f"jnp.fft, lax.all_to_all in shard_map, 2 devices, jax {facts['jax']}",
        "jnp": f"{jax_s}, one device (2 cores), jax {facts['jax']}",
        "scipy": f"scipy.fft, 2 workers, scipy {facts['scipy']}",
        "numpy": f"numpy.fft, numpy {facts['numpy']}",
    }
    return {key: text for key, text in found.items() if key in cases}


def _rows(jobs, where):
    arguments = {"where": where, "sizes": ",".join(map(str, jobs.scale.sizes))}
    n_ranks = N_RANKS if where == "ranks" else 0
    records = jobs.worker("fft", arguments, n_ranks, ALL_CORES)
    rows = []
    for record in records:
        rounds = Rounds(record, jobs.scale.n_rounds)
        facts = rounds.facts
        name = f"{facts['kind']}, {facts['shape']} {facts['dtype']}"
        if facts["is_cube"]:
            name = f"{facts['n']}^3 {facts['kind']}"
        for key, comparator in _comparators(facts, rounds.cases).items():
            bound = _bound(facts["n"]) if facts["is_cube"] and key == "jnp" else None
            row = rounds.row(GROUPS[where], name, JAX_FRESH, "plait", key, comparator, bound)
            copies = rounds.median(lambda r: r["plait"] / r["memcpy"])
            rows.append(row.judge(f"{row.speed:.2f}x, {copies:.1f} memcpys", row.speed))
    return rows


def measure(jobs):
    """The rows of this group."""
    rows = []
    for where, group in GROUPS.items():
        try:
            rows += _rows(jobs, where)
        except (Absent, RuntimeError) as error:
            rows += [
                absent(group, f"{n}^3", JAX_FRESH, "jnp.fft.fftn", str(error), _bound(n))
                for n in jobs.scale.sizes
            ]
    return rows
