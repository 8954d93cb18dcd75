"""Polar and singular value decompositions of global matrices."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from plait import _dense_args, _dense_qr, _dense_svd, _tall
from plait._dealt import Deal, Matrix
from plait._dense_args import Lay, Operand
from plait._tall import Rows


class SVD(NamedTuple):
    """a = u diag(s) vh, with orthonormal columns of u and rows of vh, and s descending.

    For a of shape (m, n), they are (m, k), (k,) and (k, n) with k = min(m, n); with
    ``full_matrices=True`` u is (m, m) and vh is (n, n).
    """

    u: Array
    s: Array
    vh: Array


class Polar(NamedTuple):
    """a = u h, with orthonormal columns of u and a Hermitian h ≥ 0.

    For a of shape (m, n), u is (m, n) and h is (n, n).
    """

    u: Array
    h: Array


def _polar(a: Array, *, lay: Lay, deal: Deal) -> Polar:
    u, h = _dense_svd.polar(_dense_args.deal_in(lay, a, deal))
    n = a.shape[1]
    return Polar(_dense_args.back(u, lay), _dense_args.back(h, lay.with_room(n, n)))


def _polar_of_tall(a: Array, *, lay: Lay, rows: Rows) -> Polar:
    u, h = _tall.polar(rows, rows.split(a, lay))
    n = a.shape[1]
    return Polar(rows.back(u, lay), _tall.whole_back(h, rows.deal, lay.with_room(n, n)))


def _vectors(x: Matrix) -> tuple[Matrix, Any, Matrix]:
    """U, the singular values, and V, of any matrix."""
    if x.m >= x.n:
        return _dense_svd.svd(x)
    v, s, u = _dense_svd.svd(x.adjoint())
    return u, s, v


def _full_svd(a: Array, *, lay: Lay, deal: Deal) -> SVD:
    u, s, v = _vectors(_dense_args.deal_in(lay, a, deal))
    u, v = _dense_qr.completed(u), _dense_qr.completed(v)
    m, n = a.shape
    back = _dense_args.back
    return SVD(back(u, lay.with_room(m, m)), s, back(v.adjoint(), lay.with_room(n, n)))


def _svd(a: Array, *, lay: Lay, deal: Deal) -> SVD:
    u, s, v = _vectors(_dense_args.deal_in(lay, a, deal))
    m, n = a.shape
    k, back = min(m, n), _dense_args.back
    return SVD(back(u, lay.with_room(m, k)), s, back(v.adjoint(), lay.with_room(k, n)))


def _svd_of_tall(a: Array, *, lay: Lay, rows: Rows) -> SVD:
    u, s, vh = _tall.svd(rows, rows.split(a, lay))
    m, n = a.shape
    k = min(m, n)
    vh = _tall.whole_back(vh, rows.deal, lay.with_room(k, n))
    return SVD(rows.back(u, lay.with_room(m, k)), s, vh)


def _svd_of_wide(a: Array, *, lay: Lay, rows: Rows) -> SVD:
    """By the decomposition of the adjoint, which is tall."""
    v, s, uh = _svd_of_tall(jnp.conj(a.T), lay=lay.turned, rows=rows)
    return SVD(jnp.conj(uh.T), s, jnp.conj(v.T))


def _values(a: Array, *, lay: Lay, deal: Deal) -> Array:
    return _dense_svd.svdvals(_dense_args.deal_in(lay, a, deal))


def _values_of_tall(a: Array, *, lay: Lay, rows: Rows) -> Array:
    return _tall.svdvals(rows, rows.split(a, lay))


def _values_of_wide(a: Array, *, lay: Lay, rows: Rows) -> Array:
    """The singular values of the adjoint, which is tall."""
    return _values_of_tall(jnp.conj(a.T), lay=lay.turned, rows=rows)


def _run(found: Operand, block: int | None, name: str, *, dealt: Any, tall: Any, wide: Any) -> Any:
    """By rows if the operand or its adjoint is tall enough, else dealt out."""
    m, n = found.shape
    shape = (max(m, n), min(m, n))
    deal = _dense_args.deal_of(dataclasses.replace(found, shape=shape), block, name)
    rows = _tall.rows_of(shape, found.x.dtype, deal, block)
    if rows is not None:
        return _dense_args.run(tall if m >= n else wide, found.x, lay=found.lay, rows=rows)
    deal = _dense_args.deal_of(found, block, name)
    return _dense_args.run(dealt, found.x, lay=found.lay, deal=deal)


def polar(
    a: Array,
    *,
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Polar:
    """Factor a matrix that is distributed over a mesh into u with orthonormal columns and h ≥ 0.

    u is the matrix with orthonormal columns that is nearest to ``a``. If singular values of ``a``
    are below ε of the largest, the columns of u for them are arbitrary ones that complete the
    others; for more than 1024 columns on several devices they are short, or zero. u and h are split
    as ``a``, along the axes whose extents the mesh divides. A matrix of far more rows than columns
    is first factored by rows, as in `qr`, unless ``block`` says in which blocks columns are dealt
    out.

    ``shape`` is the shape of the data in an array with padding at its tail, for sizes that the mesh
    does not divide. Padding is not read, and is zero in results that are split as the matrix.

    Collective: over the mesh, in program order.
    Shapes: (m, n) of full rank with m ≥ n to (m, n) and (n, n).
    Raises: ValueError for m < n, or a block that is not positive; TypeError for a dtype without
    solvers.
    Adjoint: by an eigendecomposition of h, of any order, also if singular values are equal.
    Source: LAPACK's gesdd on one device up to 1024 columns, else QDWH, Nakatsukasa, Bai, Gygi,
    2010; oracle ``tests/python/oracle.py::polar``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> u, h = plait.linalg.polar(jnp.array([[0.0, -2.0], [2.0, 0.0]]))
        >>> abs(h).round(5).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """
    found = _dense_args.located(a, "polar", mesh, spec, shape)
    m, n = found.shape
    if m < n:
        raise ValueError(f"polar: a is {m} x {n}; expected m >= n, take a.T")
    return _run(found, block, "polar", dealt=_polar, tall=_polar_of_tall, wide=None)


def svd(
    a: Array,
    *,
    full_matrices: bool = False,
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> SVD:
    """Singular values and vectors of a matrix that is distributed over a mesh.

    By default the form is reduced: u is (m, k), s is descending and the same on all devices, vh is
    (k, n), with k = min(m, n). u and vh are split as ``a``, along the axes whose extents the mesh
    divides. ``full_matrices=True`` gives square u and vh, whose further vectors span the rest of
    the space.

    Up to 1024 columns one device computes it by LAPACK. Larger matrices take the polar
    decomposition and an eigendecomposition of its Hermitian factor. If there are at least twice as
    many rows as columns, a QR factorization comes first. aᴴ a is never formed, since it has only
    half of the digits. The QR factorization goes along a tree, as in `qr`, where that is cheaper,
    unless ``block`` says in which blocks columns are dealt out.

    ``shape`` is the shape of the data in an array with padding at its tail, for sizes that the mesh
    does not divide. Padding is not read, and vectors are zero there. There are as many singular
    values as the data has.

    Collective: over the mesh, in program order.
    Shapes: (m, n) to (m, k), (k,) and (k, n), full to (m, m), (k,) and (n, n); any m and n.
    Raises: ValueError for an array that is not a matrix, or a block that is not positive; TypeError
    for a dtype without solvers, and for derivatives of full matrices if m ≠ n.
    Adjoint: as in ``jax.numpy``, for singular values that differ, some of which may be zero; if
    values are equal up to rounding, it is arbitrary, without a NaN: their gaps are rounding errors.
    Source: LAPACK's gesdd; Nakatsukasa, Higham, 2013; oracle ``tests/python/oracle.py::svd``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.svd(jnp.array([[0.0, -3.0], [2.0, 0.0]])).s.round(5).tolist()
        [3.0, 2.0]
    """
    found = _dense_args.located(a, "svd", mesh, spec, shape)
    if full_matrices:
        deal = _dense_args.deal_of(found, block, "svd")
        return _dense_args.run(_full_svd, found.x, lay=found.lay, deal=deal)
    return _run(found, block, "svd", dealt=_svd, tall=_svd_of_tall, wide=_svd_of_wide)


def svdvals(
    a: Array,
    *,
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Singular values of a matrix that is distributed over a mesh, descending.

    They are those of `svd`, without the vectors, and the same on all devices. ``shape`` is the
    shape of the data in an array with padding at its tail, which is not read.

    Collective: over the mesh, in program order.  Shapes: (m, n) to (min(m, n),), any m and n.
    Raises: as `svd`.
    Adjoint: U diag(s̄) Vᴴ; it needs the vectors, also of equal values. Further derivatives are like
    those of `svd`: arbitrary if values are equal up to rounding.
    Source: as `svd`; oracle ``tests/python/oracle.py::svd``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.svdvals(jnp.array([[0.0, -3.0], [2.0, 0.0]])).round(5).tolist()
        [3.0, 2.0]
    """
    found = _dense_args.located(a, "svdvals", mesh, spec, shape)
    by_rows = {"tall": _values_of_tall, "wide": _values_of_wide}
    return _run(found, block, "svdvals", dealt=_values, **by_rows)
