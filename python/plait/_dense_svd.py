"""Polar decompositions of dealt matrices by QDWH, and singular values by way of these.

a = U H with orthonormal columns of U and a Hermitian H ≥ 0; H = V S Vᴴ gives a = (U V) S Vᴴ. The
iteration is X ← X (a I + b XᴴX) (I + c XᴴX)⁻¹, with weights that bring singular values from ε on to
1 in six steps at most. They are the same for all matrices, so a program has a fixed number of
steps: by QR where c is large, else by Cholesky.

QR of [√c X; I] has to keep the digits of I beside much larger numbers. Without pivots it does not
where the first columns of X are nearly dependent while later ones are not, as of a smooth kernel.
So X is the matrix times a random unitary one, after which no columns are worse than others.
Source: Nakatsukasa, Bai, Gygi, SIAM J. Matrix Anal. Appl. 31, 2010; Nakatsukasa, Higham, SIAM J.
Sci. Comput. 35, 2013; Demmel, Dumitriu, Holtz, Numer. Math. 108, 2007.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax
from plait import _dense_batch, _dense_svd_alone, _jax, _mesh_rules, _sites
from plait._dealt import Deal, Matrix, identity
from plait._dense import around_one, by_parts, column_dots, hermitian, real, solved
from plait._dense_batch import KINDS, Kind, Part
from plait._dense_eigh import eigh, eigvalsh
from plait._dense_qr import first_rows, qr, r_alone, stacked
from plait._dense_rules import ADJOINT, IS_LOWER, NONE, gemm, ormqr, potrf, potrs

BY_QR = 100.0  # for weights c above this, Cholesky would lose digits
TALL = 2  # with this many times more rows than columns: QR first


def _weights(dtype: Any) -> Iterator[tuple[float, float, float]]:
    """a, b, c of every step, for singular values from ε to 1."""
    eps = float(jnp.finfo(dtype).eps)
    least = eps
    while abs(1 - least) > eps:
        d = (4 * (1 - least**2) / least**4) ** (1 / 3)
        a = math.sqrt(1 + d) + 0.5 * math.sqrt(
            8 - 4 * d + 8 * (2 - least**2) / (least**2 * math.sqrt(1 + d))
        )
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        yield a, b, c
        least = min(1.0, least * (a + b * least**2) / (1 + c * least**2))


def _step_by_qr(x: Matrix, kept: Any, turned: Any, root: Any) -> Matrix:
    """b/c X + (a - b/c)/√c Q₁ Q₂ᴴ with [√c X; I] = [Q₁; Q₂] R.

    ``numbers`` are the factors of both terms, and √c.
    """
    q, _ = qr(stacked(x * root, identity(x, x.n, x.n)))
    first = first_rows(q, x.m)
    second = Matrix(q.data[:, x.m :], q.deal, x.n, x.n)
    return x * kept + gemm(first, second.adjoint()) * turned


def _step_by_cholesky(x: Matrix, kept: Any, turned: Any, c: Any) -> Matrix:
    """b/c X + (a - b/c) X Z⁻¹ with Z = I + c XᴴX. The numbers are both factors, and c."""
    z = gemm(x, x, trans=ADJOINT, form_c=IS_LOWER) * c + identity(x, x.n, x.n)
    low, _ = potrf(z)
    y = potrs(low, x.adjoint()).adjoint()
    return x * kept + y * turned


def _noise(rows: Any, columns: Any, dtype: Any) -> Any:
    """Patternless numbers from -1 to 1, equal however a matrix is dealt out."""
    x = rows.astype(jnp.uint32) * np.uint32(0x9E3779B1)
    x = x + columns.astype(jnp.uint32) * np.uint32(0x85EBCA77)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return (x ^ (x >> np.uint32(16))).astype(dtype) / 2.0**31 - 1


def _random_unitary(like: Matrix) -> tuple[Matrix, Any]:
    """Reflectors and their factors, as of `geqrf`: one random matrix for each n.

    Source: Stewart, SIAM J. Numer. Anal. 17, 1980.
    """

    def reflect(rows: Any, columns: Any, x: Any) -> Any:
        g = _noise(rows, columns, real(x).dtype)
        first = jnp.sum(jnp.where(rows == columns, g, 0), axis=1, keepdims=True)
        size = jnp.sqrt(jnp.sum(jnp.where(rows >= columns, g * g, 0), axis=1, keepdims=True))
        v = g / (first + jnp.where(first < 0, -size, size))
        return jnp.where(rows > columns, v, 0).astype(x.dtype)

    def factor(rows: Any, columns: Any, x: Any) -> Any:
        return 2 / (1 + jnp.sum(x * x, axis=1))

    v = identity(like, like.n, like.n).map(reflect)
    return v, v.columns(factor)


def _unitary(x: Matrix) -> Matrix:
    size = jnp.sqrt(x.total(lambda rows, columns, y: jnp.abs(y) ** 2))
    x = x.with_data(x.data / jnp.where(size > 0, size, 1).astype(x.dtype))
    random = _random_unitary(x)
    x = ormqr(*random, x.adjoint(), ADJOINT).adjoint()
    every = [*_weights(x.dtype)]
    by_qr = [(b / c, (a - b / c) / c**0.5, c**0.5) for a, b, c in every if c > BY_QR]
    by_cholesky = [(b / c, a - b / c, c) for a, b, c in every if c <= BY_QR]
    for step, factors in ((_step_by_qr, by_qr), (_step_by_cholesky, by_cholesky)):
        factors = np.asarray(factors, jnp.finfo(x.dtype).dtype)
        x, _ = lax.scan(lambda x, f, step=step: (step(x, *f), None), x, factors)
    return ormqr(*random, x.adjoint(), NONE).adjoint()


def _of_column(columns: Any, s: Any) -> Any:
    """The number of each column; stored columns behind the last one may get any number."""
    return s[jnp.minimum(columns, s.shape[0] - 1)]


def _times_column(rows: Any, columns: Any, x: Any, s: Any) -> Any:
    return x * _of_column(columns, s).astype(x.dtype)


def _polar(x: Matrix) -> tuple[Matrix, Matrix]:
    """For numbers around one: products of smaller numbers would vanish in the sums of H."""
    if x.m >= max(1, TALL * x.n):
        q, r = qr(x)
        u, h = _polar(r)
        return gemm(q, u), h
    if _dense_svd_alone.is_for_one(x):
        u, s, v = _dense_svd_alone.svd(x)
        turned = v.adjoint()
        return gemm(u, turned), hermitian(gemm(v.map(_times_column, whole=(s,)), turned))
    u = _unitary(x)
    return u, hermitian(gemm(u, x, trans=ADJOINT))


@jax.custom_jvp
def polar(a: Matrix) -> tuple[Matrix, Matrix]:
    """U and H of a matrix with at least as many rows as columns."""
    x, scale = around_one(a)
    u, h = _polar(x)
    return u, h.with_data(by_parts(lambda y: y * scale, h.data))


class Balance:
    """Solves equations with h = V S Vᴴ by the eigenvectors of h, which have no derivatives."""

    def __init__(self, h: Matrix):
        self.h = h
        self.s, self.v, _ = eigh(jax.tree.map(lax.stop_gradient, h), "zero")

    def both(self, c: Matrix) -> Matrix:
        """The x with h x + x h = c: V (P_ij / (s_i + s_j)) Vᴴ with P = Vᴴ c V."""

        def divide(rows: Any, columns: Any, x: Any, s: Any) -> Any:
            both = s[rows] + _of_column(columns, s)
            return x / both.astype(x.dtype)

        def by_vectors(c: Matrix) -> Matrix:
            p = gemm(self.v, gemm(c, self.v), trans=ADJOINT).map(divide, whole=(self.s,))
            return gemm(gemm(self.v, p), self.v.adjoint())

        return solved(lambda x: gemm(self.h, x) + gemm(x, self.h), by_vectors, c)

    def right(self, c: Matrix) -> Matrix:
        """The x with x h = c."""

        def divide(rows: Any, columns: Any, x: Any, s: Any) -> Any:
            return x / _of_column(columns, s).astype(x.dtype)

        def by_vectors(c: Matrix) -> Matrix:
            return gemm(gemm(c, self.v).map(divide, whole=(self.s,)), self.v.adjoint())

        return solved(lambda x: gemm(x, self.h), by_vectors, c)


@polar.defjvp
def _polar_jvp(primals: tuple, tangents: tuple) -> tuple:
    """With h k + k h = Uᴴ ȧ - ȧᴴ U: U̇ = U k + (1 - U Uᴴ) ȧ h⁻¹ and ḣ = Uᴴ ȧ - k h."""
    (a,), (da,) = primals, tangents
    u, h = polar(a)
    solve = Balance(h)
    moved = gemm(u, da, trans=ADJOINT)  # Uᴴ ȧ
    k = solve.both(moved - moved.adjoint())
    du = gemm(u, k)
    if a.m > a.n:
        du = du + solve.right(da - gemm(u, moved))
    return (u, h), (du, moved - gemm(k, h))


def _completed(u: Matrix) -> Matrix:
    """U with orthonormal columns, from a U whose last columns may be too short, or zero.

    By QR. Of R only the phases of the diagonal count: 1 where columns were orthonormal.
    """
    q, r = qr(u)

    def turn(rows: Any, columns: Any, x: Any, d: Any) -> Any:
        d = _of_column(columns, d)
        size = jnp.abs(d).astype(d.dtype)
        return x * jnp.where(size == 0, 1, d / jnp.where(size == 0, 1, size))

    return q.map(turn, whole=(r.diagonal(),))


def _completed_if(is_singular: Any, u: Matrix) -> Matrix:
    """A primitive: in a batch the condition would be a selection, which has no place for a mesh."""
    given = {"deal": u.deal, "m": u.m, "n": u.n, "site": _sites.here()}
    [y] = _chosen().bind(is_singular, u.data, **given)
    return u.with_data(y)


def _choose(is_singular: Any, u: Any, *, deal: Deal, m: int, n: int, site: int) -> list:
    return [lax.cond(is_singular, _completed, lambda u: u, Matrix(u, deal, m, n)).data]


def _parts_of_chosen(avals: Sequence, params: dict) -> tuple:
    u = Part((params["m"], params["n"]), avals[1].dtype.name)
    return (Part((), "bool", False), u), (u,)


def _batch_of_chosen(axis: Any, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    return _dense_batch.batch("completed", axis, args, dims, params)


@functools.cache
def _chosen() -> Any:
    made = jex.Primitive("plait_mesh_completed")
    _mesh_rules.define(
        made,
        results=lambda *avals, **params: [avals[-1]],
        lower=lambda ctx, *args, **params: _jax.lower_traced(
            ctx, functools.partial(_choose, **params), args
        ),
        batch=_batch_of_chosen,
    )
    KINDS["completed"] = Kind(made, _parts_of_chosen, lambda deal, params: params | {"deal": deal})
    return made


def _svd(x: Matrix) -> tuple[Matrix, Any, Matrix]:
    if x.m >= max(1, TALL * x.n):
        q, r = qr(x)
        u, s, v = _svd(r)
        return gemm(q, u), s, v
    if _dense_svd_alone.is_for_one(x):
        return _dense_svd_alone.svd(x)
    u, h = _polar(x)
    w, v, _ = eigh(-h, "zero")
    u, s = gemm(u, v), jnp.maximum(-w, 0)
    if x.n > 0:
        # QDWH brings no singular value below ε to 1
        is_singular = s[-1] <= 10 * x.n * jnp.finfo(s.dtype).eps * s[0]
        u = _completed_if(is_singular, u)
    return u, s, v


@jax.custom_jvp
def svd(a: Matrix) -> tuple[Matrix, Any, Matrix]:
    """U, the singular values, descending, and V, of a matrix with m ≥ n."""
    x, scale = around_one(a)
    u, s, v = _svd(x)
    return u, s * scale, v


def _weights_of(rows: Any, columns: Any, s: Any) -> tuple:
    """F s_j and F s_i with F_ij = 1 / (s_j² - s_i²), by quotients of numbers of similar size.

    Squares may leave the range. Zero where values are equal.
    """
    first, second = s[rows], _of_column(columns, s)
    gap, both = second - first, second + first
    is_zero = (gap == 0) | (both == 0)
    gap, both = jnp.where(is_zero, 1, gap), jnp.where(is_zero, 1, both)
    return tuple(jnp.where(is_zero, 0, x / both) / gap for x in (second, first))


def of_left(rows: Any, columns: Any, x: Any, y: Any, s: Any) -> Any:
    """Uᴴ U̇, by elements of P = Uᴴ ȧ V and Pᴴ: F ∘ (P S + S Pᴴ), and the phases on the diagonal."""
    first, second = (w.astype(x.dtype) for w in _weights_of(rows, columns, s))
    value = _of_column(columns, s).astype(x.dtype)
    phase = (x - y) / 2 / jnp.where(value == 0, 1, value)
    return jnp.where(rows == columns, phase, x * first + y * second)


def of_right(rows: Any, columns: Any, x: Any, y: Any, s: Any) -> Any:
    """Vᴴ V̇: F ∘ (S P + Pᴴ S)."""
    first, second = (w.astype(x.dtype) for w in _weights_of(rows, columns, s))
    return x * second + y * first


def of_rest(rows: Any, columns: Any, x: Any, s: Any) -> Any:
    """The part of U̇ outside U, from that of ȧ V: each column divided by its singular value.

    Zero for a singular value of zero, as in `jax.numpy`: any such column of U will do.
    """
    value = _of_column(columns, s).astype(x.dtype)
    return jnp.where(value == 0, 0, x / jnp.where(value == 0, 1, value))


@svd.defjvp
def _svd_jvp(primals: tuple, tangents: tuple) -> tuple:
    (a,), (da,) = primals, tangents
    u, s, v = svd(a)
    da_v = gemm(da, v)
    p = gemm(u, da_v, trans=ADJOINT)
    other = p.adjoint()
    du = gemm(u, p.map(of_left, other, whole=(s,)))
    if a.m > a.n:
        du = du + (da_v - gemm(u, p)).map(of_rest, whole=(s,))
    dv = gemm(v, p.map(of_right, other, whole=(s,)))
    return (u, s, v), (du, real(p.diagonal()), dv)


@jax.custom_jvp
def _svdvals(a: Matrix) -> Any:
    """The singular values of a matrix with m ≥ n."""
    x, scale = around_one(a)
    x = r_alone(x) if a.m >= max(1, TALL * a.n) else x
    if _dense_svd_alone.is_for_one(x):
        return _dense_svd_alone.svdvals(x) * scale
    _, h = _polar(x)
    w, _ = eigvalsh(-h)
    return jnp.maximum(-w, 0) * scale


@_svdvals.defjvp
def _svdvals_jvp(primals: tuple, tangents: tuple) -> tuple:
    """Re(uᴴ ȧ v) for each pair of vectors, also for equal values."""
    u, s, v = svd(*primals)
    return s, real(column_dots(u, gemm(tangents[0], v)))


def svdvals(a: Matrix) -> Any:
    """The singular values of any matrix alone."""
    return _svdvals(a if a.m >= a.n else a.adjoint())
