"""By JAX: gradients in forward passes, QR of a tall matrix, a few eigenvectors, a small SVD."""

from _jobs import ALL_CORES, N_RANKS, Absent
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
OF_JNP = "jnp.linalg, one device (2 cores), jax {jax}"
OF_TALL = {"dealt out": "plait's own, dealt out in block columns", "jnp": OF_JNP}
SOME_GROUPS = {
    "devices": "eigenvectors of the largest eigenvalues through JAX, f64, 2 devices of one process",
    "ranks": "eigenvectors of the largest eigenvalues through JAX, f64, 2 MPI ranks",
}
SOME = {False: (2000, 10), True: (500, 10)}  # n, and of how many
OF_SOME = {
    "all": "plait's own, all eigenvectors",
    "scipy": "scipy.linalg.eigh, subset_by_index, scipy {scipy}",
    "jnp": OF_JNP,
}

SMALL_GROUPS = {
    "devices": "singular values of a small matrix through JAX, f64, 2 devices of one process",
    "ranks": "singular values of a small matrix through JAX, f64, 2 MPI ranks",
}
SMALL = {False: 512, True: 128}


def _rows(jobs, where, n):
    arguments = {"where": where, "n": n}
    n_ranks = N_RANKS if where == "ranks" else 0
    [record] = jobs.worker("dense", arguments, n_ranks, ALL_CORES)
    rounds, group = Rounds(record, jobs.scale.n_rounds), GROUPS[where]
    rows = []
    for name in ("forward", "gradient"):
        comparator = OF_JNP.format(**rounds.facts)
        row = rounds.row(group, f"{name} {n}", JAX_FRESH, name, f"jnp {name}", comparator)
        row.note = _at_work(rounds, where, name, f"jnp {name}")
        rows.append(row.judge(f"{row.speed:.2f}x", row.speed))
    row = rounds.row(group, f"gradient {n}", JAX_FRESH, "gradient", "forward", OWN, GRADIENT)
    passes = rounds.median(lambda r: r["gradient"] / r["forward"])
    return [*rows, row.judge(f"{passes:.2f} forward passes", passes)]


def _at_work(rounds, where, ours, theirs):
    """How many cores were busy: whether each side had the threads that it is said to have."""
    per = " a rank" if where == "ranks" else ""
    n_own, n_others = rounds.cores[ours], rounds.cores[theirs]
    note = f"cores at work: plait {n_own:.1f}{per}, other {n_others:.1f}"
    return f"{note}; BLAS threads {rounds.facts['blas_threads']}, within plait 1 a device"


def _beside(jobs, worker, group, name, arguments, comparators):
    """A row for each of the worker's cases that its case "plait" is compared with."""
    n_ranks = N_RANKS if arguments["where"] == "ranks" else 0
    [record] = jobs.worker(worker, arguments, n_ranks, ALL_CORES)
    rounds = Rounds(record, jobs.scale.n_rounds)
    rows = []
    for theirs, comparator in comparators.items():
        told = comparator.format(**rounds.facts)
        row = rounds.row(group, name, JAX_FRESH, "plait", theirs, told)
        row.note = _at_work(rounds, arguments["where"], "plait", theirs)
        rows.append(row.judge(f"{row.speed:.2f}x", row.speed))
    return rows


def _everywhere(groups, name, rows_of):
    """The rows of all groups, each by where its ranks are."""
    rows = []
    for where, group in groups.items():
        try:
            rows += rows_of(where)
        except (Absent, RuntimeError) as error:
            rows.append(absent(group, name, JAX_FRESH, "", str(error)))
    return rows


def _all_beside(jobs, worker, groups, name, arguments, comparators):
    def rows_of(where):
        return _beside(jobs, worker, groups[where], name, arguments | {"where": where}, comparators)

    return _everywhere(groups, name, rows_of)


def _small(jobs, where, n):
    n_ranks = N_RANKS if where == "ranks" else 0
    [record] = jobs.worker("small", {"where": where, "n": n}, n_ranks, ALL_CORES)
    rounds, rows = Rounds(record, jobs.scale.n_rounds), []
    for ours, name in (("values", f"svdvals {n}"), ("vectors", f"svd {n}")):
        told = OF_JNP.format(**rounds.facts)
        row = rounds.row(SMALL_GROUPS[where], name, JAX_FRESH, ours, f"jnp {ours}", told)
        row.note = _at_work(rounds, where, ours, f"jnp {ours}")
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
    tall = {"m": m, "n": n}
    rows += _all_beside(jobs, "tall", TALL_GROUPS, f"qr {m} x {n}", tall, OF_TALL)
    n, k = SOME[jobs.scale.is_quick]
    some = {"n": n, "k": k}
    rows += _all_beside(jobs, "some", SOME_GROUPS, f"{k} of {n}", some, OF_SOME)
    n = SMALL[jobs.scale.is_quick]
    return rows + _everywhere(SMALL_GROUPS, f"svd {n}", lambda where: _small(jobs, where, n))
