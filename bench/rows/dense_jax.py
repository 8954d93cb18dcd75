"""By JAX: gradients in forward passes, QR of a tall matrix, a few eigenvectors."""

from _jobs import N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, absent

GROUPS = {
    "devices": "log det A + b'A^-1 b through JAX, f64, 2 devices of one process",
    "ranks": "log det A + b'A^-1 b through JAX, f64, 2 MPI ranks",
}
N = {False: 2000, True: 500}
GRADIENT = Bound("<=", 4.0)  # forward passes
OWN = "plait's own forward pass"
TALL_GROUPS = {
    "devices": "QR of a tall matrix through JAX, f64, 2 devices of one process",
    "ranks": "QR of a tall matrix through JAX, f64, 2 MPI ranks",
}
TALL = {False: (200000, 32), True: (20000, 32)}
SOME_GROUPS = {
    "devices": "eigenvectors of the largest eigenvalues through JAX, f64, 2 devices of one process",
    "ranks": "eigenvectors of the largest eigenvalues through JAX, f64, 2 MPI ranks",
}
SOME = {False: (2000, 10), True: (500, 10)}  # n, and of how many


def _rows(jobs, where, n):
    arguments = {"where": where, "n": n}
    n_ranks = N_RANKS if where == "ranks" else 0
    # one device may use both cores, also where two ranks run
    [record] = jobs.worker("dense", arguments, n_ranks, {"NPROC": str(N_RANKS)})
    rounds, group = Rounds(record, jobs.scale.n_rounds), GROUPS[where]
    rows = []
    for name in ("forward", "gradient"):
        comparator = f"jnp.linalg, one device (2 cores), jax {rounds.facts['jax']}"
        row = rounds.row(group, f"{name} {n}", JAX_FRESH, name, f"jnp {name}", comparator)
        rows.append(row.judge(f"{row.speed:.2f}x", row.speed))
    row = rounds.row(group, f"gradient {n}", JAX_FRESH, "gradient", "forward", OWN, GRADIENT)
    passes = rounds.median(lambda r: r["gradient"] / r["forward"])
    return [*rows, row.judge(f"{passes:.2f} forward passes", passes)]


def _some_rows(jobs, where, n, k):
    arguments = {"where": where, "n": n, "k": k}
    n_ranks = N_RANKS if where == "ranks" else 0
    [record] = jobs.worker("some", arguments, n_ranks, {"NPROC": str(N_RANKS)})
    rounds, name = Rounds(record, jobs.scale.n_rounds), f"{k} of {n}"
    comparators = {
        "all": "plait's own, all eigenvectors",
        "scipy": f"scipy.linalg.eigh, subset_by_index, scipy {rounds.facts['scipy']}",
        "jnp": f"jnp.linalg, one device (2 cores), jax {rounds.facts['jax']}",
    }
    rows = []
    for theirs, comparator in comparators.items():
        row = rounds.row(SOME_GROUPS[where], name, JAX_FRESH, "some", theirs, comparator)
        rows.append(row.judge(f"{row.speed:.2f}x", row.speed))
    return rows


def _tall_rows(jobs, where, m, n):
    arguments = {"where": where, "m": m, "n": n}
    n_ranks = N_RANKS if where == "ranks" else 0
    [record] = jobs.worker("tall", arguments, n_ranks, {"NPROC": str(N_RANKS)})
    rounds, name = Rounds(record, jobs.scale.n_rounds), f"qr {m} x {n}"
    comparators = {
        "dealt out": "plait's own, dealt out in block columns",
        "jnp": f"jnp.linalg, one device (2 cores), jax {rounds.facts['jax']}",
    }
    rows = []
    for theirs, comparator in comparators.items():
        row = rounds.row(TALL_GROUPS[where], name, JAX_FRESH, "plait", theirs, comparator)
        rows.append(row.judge(f"{row.speed:.2f}x", row.speed))
    return rows


def measure(jobs):
    """The rows of this group."""
    rows, n = [], N[jobs.scale.is_quick]
    for where, group in GROUPS.items():
        try:
            rows += _rows(jobs, where, n)
        except (Absent, RuntimeError) as error:
            rows.append(absent(group, f"gradient {n}", JAX_FRESH, OWN, str(error), GRADIENT))
    m, n = TALL[jobs.scale.is_quick]
    for where, group in TALL_GROUPS.items():
        try:
            rows += _tall_rows(jobs, where, m, n)
        except (Absent, RuntimeError) as error:
            rows.append(absent(group, f"qr {m} x {n}", JAX_FRESH, "", str(error)))
    n, k = SOME[jobs.scale.is_quick]
    for where, group in SOME_GROUPS.items():
        try:
            rows += _some_rows(jobs, where, n, k)
        except (Absent, RuntimeError) as error:
            rows.append(absent(group, f"{k} of {n}", JAX_FRESH, "", str(error)))
    return rows
