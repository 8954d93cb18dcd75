"""Factorizations and results computed from them, on dealt matrices, with derivatives.

A factor stands for its matrix: the tangent of ``cholesky(a)`` is the tangent of a, not that of the
triangle, and each function of a factor knows its derivative with respect to a. So derivatives of a
solution or a determinant cost a solve, not the derivative of a factorization, and only the factor
is kept. Derivatives of derivatives follow, since every rule is written with such functions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from plait._dealt import Matrix
from plait._dense_rules import IS_LOWER, gemm, potrf, potri, potrs, trsm
from plait._dense_solve import SOLVERS, solve


def no_tangent(x: Any) -> Any:
    """The tangent of integers."""
    return np.zeros(x.shape, jax.dtypes.float0)


def real(x: Any) -> Any:
    """The real part; real numbers stay as they are."""
    return jnp.real(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x


def power_of_two(x: Any) -> Any:
    """The largest power of two not above x; 1 for 0 and non-finite x. Without derivatives.

    Dividing by it rounds nothing. It is at most 1 / tiny: XLA turns a division into the product
    with the reciprocal, which becomes zero when it is subnormal.
    """
    x, info = lax.stop_gradient(x), jnp.finfo(x.dtype)
    kind = jnp.dtype(f"int{info.bits}")
    bits = lax.bitcast_convert_type(jnp.clip(x, info.tiny, 1 / info.tiny), kind)
    found = lax.bitcast_convert_type(bits & np.array(-1 << info.nmant, kind), x.dtype)
    return jnp.where((x > 0) & jnp.isfinite(x), found, jnp.ones((), x.dtype))


def largest(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """jnp.max of magnitudes, but NaN if one is NaN: XLA's leaves NaN out of large arrays on CPUs.

    The bits of magnitudes order as the magnitudes do, and those of NaN are above all others.
    """
    kind = jnp.dtype(f"int{jnp.finfo(x.dtype).bits}")
    bits = lax.bitcast_convert_type(x, kind) & np.array(np.iinfo(kind).max, kind)  # without sign
    for a in range(x.ndim) if axis is None else axis:  # XLA vectorizes all but the last
        bits = jnp.max(bits, axis=a, keepdims=True)
    bits = bits if keepdims else jnp.squeeze(bits, axis)
    return lax.bitcast_convert_type(bits, x.dtype)


def by_parts(function: Callable, x: Any) -> Any:
    """A real linear function of complex numbers, by parts: complex division squares its divisor."""
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        return function(x)
    return lax.complex(function(jnp.real(x)), function(jnp.imag(x)))


def around_one(a: Matrix) -> tuple[Matrix, Any]:
    """The matrix, divided by a power of two near its largest magnitude, and that power."""
    most = a.columns(lambda rows, columns, x: jnp.max(jnp.abs(x), axis=1, initial=0))
    scale = power_of_two(jnp.max(most, initial=0))
    return a.with_data(by_parts(lambda x: x / scale, a.data)), scale


def hermitian(a: Matrix) -> Matrix:
    """(a + aᴴ) / 2."""
    half = a * 0.5  # halved first: a sum of numbers near the largest one would overflow
    return half + half.adjoint()


def dot(a: Matrix, b: Matrix) -> Any:
    """The sum of conj(a) b over all elements."""
    return a.total(lambda rows, columns, x, y: jnp.conj(x) * y, b)


def column_dots(a: Matrix, b: Matrix) -> Any:
    """aⱼᴴ bⱼ of all columns."""
    return a.columns(lambda rows, columns, x, y: jnp.sum(jnp.conj(x) * y, axis=1), b)


def lower(a: Matrix) -> Matrix:
    """Its lower triangle, zero above."""
    return a.map(lambda rows, columns, x: jnp.where(rows >= columns, x, jnp.zeros((), x.dtype)))


def mirrored(a: Matrix) -> Matrix:
    """The Hermitian matrix with this lower triangle; of its diagonal the real part."""

    def join(rows: Any, columns: Any, x: Any, y: Any) -> Any:
        return jnp.where(rows == columns, real(x).astype(x.dtype), jnp.where(rows > columns, x, y))

    return a.map(join, a.adjoint())


@jax.custom_jvp
def by_lower(a: Matrix) -> Matrix:
    """The Hermitian matrix itself, of which only the lower triangle is read."""
    return mirrored(a)


@by_lower.defjvp
def _by_lower_jvp(primals: tuple, tangents: tuple) -> tuple:
    """As with a factor: derivatives are symmetrised."""
    return by_lower(*primals), hermitian(tangents[0])


def product(a: Matrix, b: Matrix, trans: int = 0) -> Matrix:
    """op(a) b."""
    return gemm(a, b, trans=trans)


def solved(operator: Callable, by: Callable, c: Any) -> Any:
    """The x with operator(x) = c, a multiplication by Hermitian matrices; by: the solver.

    Derivatives of any order are those of the equation, not of the solver.
    """
    return lax.custom_linear_solve(
        operator, c, lambda _, c: by(c), lambda _, c: by(c.conj()).conj()
    )


# ---- Cholesky ------------------------------------------------------------------------------------


@jax.custom_jvp
def cholesky(a: Matrix) -> tuple[Matrix, Any]:
    """The factor of a, from a's lower triangle; and the order of the minor that failed."""
    return potrf(a)


@cholesky.defjvp
def _cholesky_jvp(primals: tuple, tangents: tuple) -> tuple:
    low, info = cholesky(*primals)
    return (low, info), (hermitian(tangents[0]), no_tangent(info))


@jax.custom_jvp
def triangle(low: Matrix) -> Matrix:
    """The factor itself, as a lower triangular matrix L with a = L Lᴴ."""
    return low


@triangle.defjvp
def _triangle_jvp(primals: tuple, tangents: tuple) -> tuple:
    """With Φ the lower triangle with half the diagonal: L Φ(L⁻¹ ȧ L⁻ᴴ)."""
    (low,), (da,) = primals, tangents
    y = triangle(low)
    inner = trsm(y, trsm(y, da).adjoint())

    def half(rows: Any, columns: Any, x: Any) -> Any:
        below = jnp.where(rows == columns, x / 2, x)
        return jnp.where(rows >= columns, below, jnp.zeros((), x.dtype))

    return y, gemm(y, inner.map(half), form_a=IS_LOWER, form_c=IS_LOWER)


def _by_cholesky(factor: Sequence, b: Matrix, way: int) -> Matrix:
    """A Hermitian matrix: both ways are the same."""
    low = Matrix(factor[0], b.deal.dealt, b.m, b.m)
    return potrs(low, b)


SOLVERS["cholesky"] = _by_cholesky


def cholesky_solve(low: Matrix, b: Matrix) -> Matrix:
    """a⁻¹ b."""
    return solve("cholesky", (low.data,), b)


@jax.custom_jvp
def cholesky_inverse(low: Matrix) -> Matrix:
    """a⁻¹, both triangles."""
    return mirrored(potri(low))


@cholesky_inverse.defjvp
def _cholesky_inverse_jvp(primals: tuple, tangents: tuple) -> tuple:
    """-y ȧ y."""
    y = cholesky_inverse(*primals)
    return y, -product(y, product(tangents[0], y))


@jax.custom_jvp
def cholesky_logdet(low: Matrix) -> Any:
    """Log det a = 2 Σ log Lᵢᵢ."""

    def log(rows: Any, columns: Any, x: Any) -> Any:
        x = real(x)
        return jnp.where(rows == columns, jnp.log(jnp.where(rows == columns, x, 1)), 0)

    return 2 * low.total(log)


@cholesky_logdet.defjvp
def _cholesky_logdet_jvp(primals: tuple, tangents: tuple) -> tuple:
    """tr(a⁻¹ ȧ)."""
    y = cholesky_logdet(*primals)
    return y, real(dot(cholesky_inverse(*primals), tangents[0]))
