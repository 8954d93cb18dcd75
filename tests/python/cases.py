"""The collectives of the rank model, each with its oracle: one table for all their tests."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import meshes
import numpy as np
import oracle
import plait
from plait import _core

PAYLOAD = (2, 3)
# The reductions of each kind of dtype: the table of notes in docs, written a second time by hand.
_ORDERED, _LOGICAL = {"SUM", "PROD", "MIN", "MAX"}, {"LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR"}
KINDS = {
    "bool": _LOGICAL,
    "float": _ORDERED,
    "complex": {"SUM", "PROD"},
    "int": _ORDERED | _LOGICAL,
    "float8": set(),
}


def kind_of(dtype):
    """The row of `KINDS` for a dtype."""
    for kind in ("bool", "float8", "float", "complex"):
        if kind in dtype:
            return kind
    return "int" if "int" in dtype else "float"


DTYPES = list(_core.dtypes())
INEXACT = ["float32", "float64", "complex64", "complex128"]


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation on n ranks.

    call: computes the result of rank r from (operand, comm).
    want: computes all ranks' results from all ranks' operands.
    shape: the shape of rank r's operand.
    """

    name: str
    call: Callable[[Any, Any], Any]
    want: Callable[[list], list]
    shape: Callable[[int], tuple]
    reduction: str | None = None
    is_linear: bool = True

    def has(self, dtype):
        """Whether the operation's reduction takes this dtype."""
        return self.reduction is None or self.reduction in KINDS[kind_of(dtype)]

    def operands(self, n, dtype, seed=0):
        """Random operands of all ranks."""
        return [random(self.shape(r), dtype, seed + 10 * r) for r in range(n)]


def random(shape, dtype, seed):
    """Numbers that every dtype holds exactly, with small products."""
    if kind_of(dtype) in ("bool", "int"):
        return meshes.random(shape, "int64", seed).astype(dtype)
    whole = meshes.random(shape, "complex128" if "complex" in dtype else "float64", seed)
    return whole.astype(np.dtype(dtype))


def whole(r):
    """A payload without blocks."""
    return PAYLOAD


def reductions(n, names):
    """Cases of the operations that take a reduction."""
    return [case for name in names for case in _with(name, n)]


def _with(name, n):
    op, root, part = getattr(plait, name), n - 1, functools.partial
    rows = [
        ("allreduce", lambda x, c: plait.allreduce(x, op, comm=c), oracle.allreduce, whole),
        (
            "reduce",
            lambda x, c: plait.reduce(x, op, root, comm=c),
            part(oracle.reduce, root=root),
            whole,
        ),
        ("scan", lambda x, c: plait.scan(x, op, comm=c), oracle.scan, whole),
        (
            "exscan",
            lambda x, c: plait.exscan(x, op, comm=c),
            part(oracle.scan, exclusive=True),
            whole,
        ),
        (
            "reduce_scatter",
            lambda x, c: plait.reduce_scatter(x, op, comm=c),
            oracle.reduce_scatter,
            lambda r: (n, *PAYLOAD),
        ),
    ]
    return [
        Case(f"{row} {name}", call, part(want, op=name), shape, name, name == "SUM")
        for row, call, want, shape in rows
    ]


def ring(n, step=1):
    """A permutation that leaves nobody out."""
    return [(r, (r + step) % n) for r in range(n)]


def _route_of(pairs, n):
    edges = [(s, 0, d, 0) for s, d in pairs]
    return lambda xs: [y[0] for y in oracle.route([x[None] for x in xs], edges, [1] * n)]


def movements(n):
    """Cases that move arrays of any dtype and have the same shape on every rank."""
    root = n // 2
    circle = [[(j - i) % n % 3 for j in range(n)] for i in range(n)]
    even = [2] * n

    def rows(k):
        return lambda r: (k, *PAYLOAD)

    return [
        Case(
            "bcast",
            lambda x, c: plait.bcast(x, root, comm=c),
            functools.partial(oracle.bcast, root=root),
            whole,
        ),
        Case("allgather", lambda x, c: plait.allgather(x, comm=c), oracle.allgather, whole),
        Case(
            "allgatherv",
            lambda x, c: plait.allgatherv(x, even, comm=c),
            functools.partial(oracle.allgather, counts=even),
            rows(2),
        ),
        Case("alltoall", lambda x, c: plait.alltoall(x, comm=c), oracle.alltoall, rows(n)),
        Case(
            "alltoallv",
            lambda x, c: plait.alltoallv(x, circle, comm=c),
            functools.partial(oracle.alltoall, counts=circle),
            rows(sum(circle[0])),
        ),
        Case(
            "permute",
            lambda x, c: plait.permute(x, ring(n, 2), comm=c),
            _route_of(ring(n, 2), n),
            whole,
        ),
        Case(
            "permute, one pair",
            lambda x, c: plait.permute(x, [(0, n - 1)], comm=c),
            _route_of([(0, n - 1)], n),
            whole,
        ),
        Case("permute, none", lambda x, c: plait.permute(x, [], comm=c), _route_of([], n), whole),
        Case(
            "pvary",
            lambda x, c: plait.pvary(x, comm=c),
            oracle.pvary,
            whole,
            is_linear=False,  # its adjoint counts the operand once
        ),
        Case(
            "reduce_scatterv",
            lambda x, c: plait.reduce_scatterv(x, plait.SUM, even, comm=c),
            functools.partial(oracle.reduce_scatter, op="SUM", counts=even),
            rows(2 * n),
            "SUM",
        ),
    ]


def on_processes(n):
    """Cases whose shapes differ from rank to rank; some ranks have no rows at all."""
    root = n // 2
    counts = [(r + 2) % 3 for r in range(n)]
    table = [[(2 * i + j) % 3 for j in range(n)] for i in range(n)]

    def own(r):
        return (counts[r], *PAYLOAD)

    return [
        Case(
            "gather",
            lambda x, c: plait.gather(x, root, comm=c),
            functools.partial(oracle.gather, root=root),
            whole,
        ),
        Case(
            "gatherv",
            lambda x, c: plait.gatherv(x, counts, root, comm=c),
            functools.partial(oracle.gather, root=root, counts=counts),
            own,
        ),
        Case(
            "scatter",
            lambda x, c: plait.scatter(x, root, comm=c),
            functools.partial(oracle.scatter, root=root),
            lambda r: (n, *PAYLOAD) if r == root else PAYLOAD,
        ),
        Case(
            "scatterv",
            lambda x, c: plait.scatterv(x, counts, root, comm=c),
            functools.partial(oracle.scatter, root=root, counts=counts),
            lambda r: (sum(counts), *PAYLOAD) if r == root else own(r),
        ),
        Case(
            "allgatherv, uneven",
            lambda x, c: plait.allgatherv(x, counts, comm=c),
            functools.partial(oracle.allgather, counts=counts),
            own,
        ),
        Case(
            "reduce_scatterv, uneven",
            lambda x, c: plait.reduce_scatterv(x, plait.SUM, counts, comm=c),
            functools.partial(oracle.reduce_scatter, op="SUM", counts=counts),
            lambda r: (sum(counts), *PAYLOAD),
            "SUM",
        ),
        Case(
            "alltoallv, uneven",
            lambda x, c: plait.alltoallv(x, table, comm=c),
            functools.partial(oracle.alltoall, counts=table),
            lambda r: (sum(table[r]), *PAYLOAD),
        ),
    ]


def on_devices(n):
    """Cases that differ in a manual region, where all devices have the root's shape."""
    root = n // 2

    def only_root(ys):
        return [y if r == root else np.zeros_like(y) for r, y in enumerate(ys)]

    return [
        Case(
            "gather",
            lambda x, c: plait.gather(x, root, comm=c),
            lambda xs: only_root(oracle.allgather(xs)),
            whole,
        ),
        Case(
            "gatherv",
            lambda x, c: plait.gatherv(x, [2] * n, root, comm=c),
            lambda xs: only_root(oracle.allgather(xs, [2] * n)),
            whole,
        ),
        Case(
            "scatter",
            lambda x, c: plait.scatter(x, root, comm=c),
            functools.partial(oracle.scatter, root=root),
            lambda r: (n, *PAYLOAD),
        ),
        Case(
            "scatterv",
            lambda x, c: plait.scatterv(x, [2] * n, root, comm=c),
            functools.partial(oracle.scatter, root=root, counts=[2] * n),
            lambda r: (2 * n, *PAYLOAD),
        ),
    ]


def same(got, want, dtype, scale=1):
    """Compare whole arrays: exactly if the dtype is not rounded, else within its rounding."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype
    if kind_of(dtype) in ("bool", "int", "float8"):
        assert np.array_equal(got, want)
        return
    eps = float(meshes.eps(dtype))
    wide = complex if "complex" in dtype else float
    room = 8 * eps * scale
    assert np.allclose(got.astype(wide), want.astype(wide), rtol=room, atol=room, equal_nan=True)


def product(a, b):
    """Σ a·b, without conjugation, in double precision."""
    return complex(np.sum(np.asarray(a).astype(complex) * np.asarray(b).astype(complex)))


def same_products(left, right, scale, dtype):
    """Compare two sums of products of arrays with such norms, within the factors' rounding."""
    assert abs(left - right) <= 16 * float(meshes.eps(dtype)) * scale + 1e-300, (left, right)
