"""QR factorizations of global matrices, and least squares."""

import dataclasses
from typing import Any, Literal, NamedTuple, overload

import jax.numpy as jnp
from jax import Array
from plait import _dense_args, _dense_qr, _tall
from plait._dealt import Deal
from plait._dense_args import Lay
from plait._tall import Rows


class QR(NamedTuple):
    """a = q r, with orthonormal columns of q and an upper triangular r.

    For a of shape (m, n), q is (m, k) and r is (k, n), with k = min(m, n). With ``mode="complete"``
    they are (m, m) and (m, n).
    """

    q: Array
    r: Array


def _factors(a: Array, *, lay: Lay, deal: Deal) -> QR:
    q, r = _dense_qr.qr(_dense_args.deal_in(lay, a, deal))
    m, n = a.shape
    k = min(m, n)
    back = _dense_args.back
    return QR(back(q, lay.with_room(m, k)), back(r, lay.with_room(k, n)))


def _factors_of_tall(a: Array, *, lay: Lay, rows: Rows) -> QR:
    q, r = _tall.qr(rows, rows.split(a, lay))
    m, n = a.shape
    k = min(m, n)
    return QR(
        rows.back(q, lay.with_room(m, k)), _tall.whole_back(r, rows.deal, lay.with_room(k, n))
    )


def _complete_factors(a: Array, *, lay: Lay, deal: Deal) -> QR:
    q, r = _dense_qr.complete_qr(_dense_args.deal_in(lay, a, deal))
    m, n = a.shape
    back = _dense_args.back
    return QR(back(q, lay.with_room(m, m)), back(r, lay.with_room(m, n)))


def _r_alone(a: Array, *, lay: Lay, deal: Deal) -> Array:
    r = _dense_qr.r_alone(_dense_args.deal_in(lay, a, deal))
    m, n = a.shape
    return _dense_args.back(r, lay.with_room(min(m, n), n))


def _r_of_tall(a: Array, *, lay: Lay, rows: Rows) -> Array:
    m, n = a.shape
    r = _tall.r_alone(rows, rows.split(a, lay))
    return _tall.whole_back(r, rows.deal, lay.with_room(min(m, n), n))


def _least(a: Array, b: Array, *, lay: Lay, lay_b: Lay, deal: Deal) -> Array:
    rhs = _dense_args.deal_in(lay_b, b, deal)
    x = _dense_qr.lstsq(_dense_args.deal_in(lay, a, deal), rhs)
    return _dense_args.back(x, lay_b.with_room(a.shape[1], rhs.n), b.ndim)


def _least_of_tall(a: Array, b: Array, *, lay: Lay, lay_b: Lay, rows: Rows) -> Array:
    n_rhs = _dense_args.as_columns(b).shape[1] if lay_b.shape is None else lay_b.shape[1]
    rhs = rows.of_columns(n_rhs).split(b, lay_b)
    x = _tall.lstsq(rows, rows.split(a, lay), rhs)
    return _tall.whole_back(x, rows.deal, lay_b.with_room(a.shape[1], n_rhs), b.ndim)


def _least_norm(a: Array, b: Array, *, lay: Lay, lay_b: Lay, deal: Deal) -> Array:
    rhs = _dense_args.deal_in(lay_b, b, deal)
    x = _dense_qr.least_norm(_dense_args.deal_in(lay.turned, jnp.conj(a.T), deal), rhs)
    return _dense_args.back(x, lay_b.with_room(a.shape[1], rhs.n), b.ndim)


def _least_norm_of_wide(a: Array, b: Array, *, lay: Lay, lay_b: Lay, rows: Rows) -> Array:
    """By the adjoint, which is a tall matrix."""
    n_rhs = _dense_args.as_columns(b).shape[1] if lay_b.shape is None else lay_b.shape[1]
    rhs = _tall.whole_rhs(rows, b, lay_b, n_rhs)
    x = _tall.least_norm(rows, rows.split(jnp.conj(a.T), lay.turned), rhs)
    x = rows.of_columns(n_rhs).back(x, lay_b.with_room(a.shape[1], n_rhs))
    return jnp.squeeze(x, 1) if b.ndim == 1 else x


@overload
def qr(
    a: Array,
    *,
    mode: Literal["reduced", "complete"] = "reduced",
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> QR: ...


@overload
def qr(
    a: Array,
    *,
    mode: Literal["r"],
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array: ...


def qr(
    a: Array,
    *,
    mode: str = "reduced",
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> QR | Array:
    """Factor a matrix that is distributed over a mesh into q with orthonormal columns and r.

    By default the form is reduced: q is (m, k) and r is (k, n) with k = min(m, n). Both are split
    as ``a``, along the axes whose extents the mesh divides. ``mode="r"`` gives r alone, in half of
    the time. ``mode="complete"`` gives a square q, whose further columns span the rest of the
    space, and an r of m rows.

    A matrix of far more rows than columns is factored by rows, along a tree, where that is cheaper.
    With ``block`` given, columns are dealt out in blocks of so many.

    ``shape`` is the shape of the data in an array with padding at its tail, for sizes that the mesh
    does not divide. Padding is not read, and is zero in results that are split as the matrix.

    Collective: over the mesh, in program order.
    Shapes: (m, n) to (m, k) and (k, n), complete to (m, m) and (m, n); any m and n.
    Raises: ValueError for an array that is not a matrix, an unknown mode, or a block that is not
    positive; TypeError for a dtype without solvers, and for derivatives of a complete q with m > n.
    Adjoint: by triangular solutions, if the first k columns are independent.
    Source: LAPACK geqrf, ormqr; Demmel, Grigori, Hoemmen, Langou, SIAM J. Sci. Comput. 34(1), 2012;
    oracle ``tests/python/oracle.py::qr``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> q, r = plait.linalg.qr(jnp.array([[3.0], [4.0]]))
        >>> abs(r).tolist()
        [[5.0]]
    """
    expected = "'reduced', 'complete' or 'r'"
    _dense_args.check_choice(mode, ("reduced", "complete", "r"), "mode", expected, "qr")
    found = _dense_args.located(a, "qr", mesh, spec, shape)
    deal = _dense_args.deal_of(found, block, "qr")
    if mode == "complete":
        return _dense_args.run(_complete_factors, found.x, lay=found.lay, deal=deal)
    rows = _tall.rows_of(found.shape, found.x.dtype, deal, block)
    if rows is not None:
        function = _r_of_tall if mode == "r" else _factors_of_tall
        return _dense_args.run(function, found.x, lay=found.lay, rows=rows)
    function = _r_alone if mode == "r" else _factors
    return _dense_args.run(function, found.x, lay=found.lay, deal=deal)


def lstsq(
    a: Array,
    b: Array,
    *,
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Find the x of least ‖a x - b‖ for a matrix of full rank, by `qr`.

    If m < n many x solve a x = b. Then the result is the x of least ‖x‖, by the factors of the
    adjoint. ``spec`` is that of ``a``. The solution is split as ``b``, along the axes whose extents
    the mesh divides.

    ``shape`` is the shape of the data in an ``a`` with padding at its tail, for sizes that the mesh
    does not divide. ``b`` has as many rows as the data, or as ``a``. Padding is not read. If ``b``
    is padded, the solution has as many rows as ``a`` has columns, with zeros behind the data.

    Collective: over the mesh, in program order.
    Shapes: (m, n) and (m,) or (m, k), to (n,) or (n, k), any m and n.
    Raises: as `qr`; ValueError for a b with another number of rows; TypeError for a b of another
    dtype.
    Adjoint: that of the factors.
    Source: LAPACK gels; oracle ``tests/python/oracle.py::lstsq``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> x = plait.linalg.lstsq(jnp.ones((2, 1)), jnp.array([1.0, 2.0]))
        >>> x.round(5).tolist()
        [1.5]
    """
    m, n = _dense_args.check_matrix(a, "lstsq", shape=shape)
    shapes = {"a": (m, n), "b": _dense_args.check_rhs(b, m, "lstsq", jnp.shape(a)[0])}
    found = _dense_args.operands({"a": a, "b": b}, mesh, {"a": spec}, "lstsq", shapes)
    a, b = found["a"], found["b"]
    tall = dataclasses.replace(a, shape=(max(m, n), min(m, n)))
    deal = _dense_args.deal_of(tall, block, "lstsq")
    rows = _tall.rows_of(tall.shape, a.x.dtype, deal, block)
    given = {"lay": a.lay, "lay_b": b.lay}
    if rows is not None and b.x.size:
        function = _least_of_tall if m >= n else _least_norm_of_wide
        return _dense_args.run(function, a.x, b.x, **given, rows=rows)
    return _dense_args.run(_least if m >= n else _least_norm, a.x, b.x, **given, deal=deal)
