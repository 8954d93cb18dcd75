"""By JAX: gradients in forward passes, tall and small matrices, few or no eigenvectors."""

from _jobs import ALL_CORES, N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, absent

GROUPS = {
    "devices": "log det A + b'A^-1 b through JAX, f64, 2 devices of one process",
    "ranks": "log det A + b'A^-1 b through JAX, f64, 2 MPI ranks",
}
N = {False: 2000, True: 500}
GRADIENT = Bound("<=", 4.0)  # in forward passes
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
SOME = {False: (2000, 10), True: (500, 10)}  # n, and the number of eigenvectors
OF_SOME = {
    "all": "plait's own, all eigenvectors",
    "scipy": "scipy.linalg.eigh, subset_by_index, scipy {scipy}",
    "jnp": OF_JNP,
}
VALUES_GROUPS = {
    "devices": "eigenvalues alone through JAX, f64, 2 devices of one process",
    "ranks": "eigenvalues alone through JAX, f64, 2 MPI ranks",
}
VALUES = {False: 2000, True: 600}
OF_VALUES = {"scipy": "scipy.linalg.eigh, eigvals_only, scipy {scipy}", "jnp": OF_JNP}

SMALL_GROUPS = {
    "devices": "singular values of a small matrix through JAX, f64, 2 devices of one process",
    "ranks": "singular values of a small matrix through JAX, f64, 2 MPI ranks",
}
SMALL = {False: 512, True: 128}
OF_SMALL = {"jnp": OF_JNP}
VECTOR_GROUPS = {
    "devices": "matrix times vector through JAX, f64, 2 devices of one process",
    "ranks": "matrix times vector through JAX, f64, 2 MPI ranks",
}
VECTOR = {False: 4000, True: 500}
OF_VECTOR = {
    "panels": "plait's own, in panels that move",
    "xla": "jnp.matmul over the same mesh, jax {jax}",
    "jnp": OF_JNP,
}


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
    """Busy cores: whether each side had the threads that it is said to have."""
    per = " a rank" if where == "ranks" else ""
    n_own, n_others = rounds.cores[ours], rounds.cores[theirs]
    note = f"cores at work: plait {n_own:.1f}{per}, other {n_others:.1f}"
    return f"{note}; BLAS threads {rounds.facts['blas_threads']}, within plait 1 a device"


def _beside(jobs, worker, where, group, arguments, names, comparators):
    """A row for each name: the worker's case of that name beside each comparator's.

    names: names of rows by case, which is "plait" or what follows the comparator's name in its
    case.
    """
    n_ranks = N_RANKS if where == "ranks" else 0
    [record] = jobs.worker(worker, arguments | {"where": where}, n_ranks, ALL_CORES)
    rounds, rows = Rounds(record, jobs.scale.n_rounds), []
    for ours, name in names.items():
        for comparator, text in comparators.items():
            theirs = comparator if ours == "plait" else f"{comparator} {ours}"
            row = rounds.row(group, name, JAX_FRESH, ours, theirs, text.format(**rounds.facts))
            row.note = _at_work(rounds, where, ours, theirs)
            rows.append(row.judge(f"{row.speed:.2f}x", row.speed))
    return rows


def _all_beside(jobs, worker, groups, arguments, names, comparators):
    """The same on devices and on ranks; groups: the groups of their rows."""
    rows = []
    for where, group in groups.items():
        try:
            rows += _beside(jobs, worker, where, group, arguments, names, comparators)
        except (Absent, RuntimeError) as error:
            [name, *_] = names.values()
            rows.append(absent(group, name, JAX_FRESH, "", str(error)))
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
    rows += _all_beside(jobs, "tall", TALL_GROUPS, tall, {"plait": f"qr {m} x {n}"}, OF_TALL)
    n, k = SOME[jobs.scale.is_quick]
    some = {"n": n, "k": k}
    rows += _all_beside(jobs, "some", SOME_GROUPS, some, {"plait": f"{k} of {n}"}, OF_SOME)
    n = VALUES[jobs.scale.is_quick]
    names = {"plait": f"eigenvalues of {n}"}
    rows += _all_beside(jobs, "values", VALUES_GROUPS, {"n": n}, names, OF_VALUES)
    n = SMALL[jobs.scale.is_quick]
    names = {"values": f"svdvals {n}", "vectors": f"svd {n}"}
    rows += _all_beside(jobs, "small", SMALL_GROUPS, {"n": n}, names, OF_SMALL)
    n = VECTOR[jobs.scale.is_quick]
    names = {"plait": f"matrix times vector {n}"}
    return rows + _all_beside(jobs, "vector", VECTOR_GROUPS, {"n": n}, names, OF_VECTOR)
