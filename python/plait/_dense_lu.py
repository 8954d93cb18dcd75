"""LU factorizations of dealt matrices, and solutions with them.

As in `_dense`, a factor stands for its matrix: its tangent is that of the matrix.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from plait._dealt import Matrix, identity
from plait._dense import no_tangent
from plait._dense_rules import (
    ADJOINT,
    IS_LOWER,
    IS_UPPER,
    NONE,
    PLAIN,
    UNIT,
    UPPER,
    gemm,
    getrf,
    keep,
    trsm,
)
from plait._dense_solve import SOLVERS, solve


@jax.custom_jvp
def lu(a: Matrix) -> tuple[Matrix, Any, Any]:
    """The factor of a; the order of its rows; 0 or the order of the first bad pivot."""
    factor, pivots, info = getrf(a)
    return factor, lax.linalg.lu_pivots_to_permutation(pivots, a.m), info


@lu.defjvp
def _lu_jvp(primals: tuple, tangents: tuple) -> tuple:
    factor, order, info = lu(*primals)
    return (factor, order, info), (tangents[0], no_tangent(order), no_tangent(info))


def rows(a: Matrix, order: Any) -> Matrix:
    """a[order]."""
    return a.map(lambda rows, columns, x, order: jnp.take(x, order, axis=1), whole=(order,))


@jax.custom_jvp
def parts(factor: Matrix, order: Any) -> tuple[Matrix, Matrix]:
    """L, with a diagonal of 1, and U, as matrices with a[order] = L U."""

    def lower(rows: Any, columns: Any, x: Any) -> Any:
        below = jnp.where(rows > columns, x, jnp.zeros((), x.dtype))
        return jnp.where(rows == columns, jnp.ones((), x.dtype), below)

    return factor.map(lower), keep(factor, IS_UPPER)


@parts.defjvp
def _parts_jvp(primals: tuple, tangents: tuple) -> tuple:
    """With M = L⁻¹ ȧ[order] U⁻¹: L tril(M, -1) and triu(M) U."""
    (factor, order), da = primals, tangents[0]
    low, up = parts(factor, order)
    left = trsm(low, rows(da, order))
    m = trsm(up, left.turned(), uplo=UPPER, trans=PLAIN).turned()
    strict = m.map(lambda r, c, x: jnp.where(r > c, x, jnp.zeros((), x.dtype)))
    d_low = gemm(low, strict, form_a=IS_LOWER, form_c=IS_LOWER)
    return (low, up), (d_low, gemm(keep(m, IS_UPPER), up, form_a=IS_UPPER))


def _by_lu(factor: Sequence, b: Matrix, way: int) -> Matrix:
    """U⁻¹ L⁻¹ b[order], or the way back for the adjoint."""
    f, order = Matrix(factor[0], b.deal.dealt, b.m, b.m), factor[1]
    if way == NONE:
        x = trsm(f, rows(b, order), diag=UNIT, donate=True)
        return trsm(f, x, uplo=UPPER, donate=True)
    x = trsm(f, b, uplo=UPPER, trans=ADJOINT)
    return rows(trsm(f, x, trans=ADJOINT, diag=UNIT, donate=True), jnp.argsort(order))


SOLVERS["lu"] = _by_lu


def lu_solve(factor: Matrix, order: Any, b: Matrix, way: int = NONE) -> Matrix:
    """op(a)⁻¹ b."""
    return solve("lu", (factor.data, order), b, way)


def lu_inverse(factor: Matrix, order: Any) -> Matrix:
    """a⁻¹."""
    return lu_solve(factor, order, identity(factor, factor.m, factor.n))


def _parity(order: Any) -> Any:
    """1 or -1: the determinant of a permutation, by the least members of its cycles."""
    n = order.shape[0]
    n_steps = max(1, (n - 1).bit_length())

    def double(_: Any, state: tuple) -> tuple:
        least, jump = state
        return jnp.minimum(least, least[jump]), jump[jump]

    index = jnp.sort(order)  # one for each of a batch: JAX has no type for a row that all share
    least, _ = lax.fori_loop(0, n_steps, double, (index, order))
    n_cycles = jnp.sum(least == index)
    return 1 - 2 * ((n - n_cycles) % 2)


@jax.custom_jvp
def lu_slogdet(factor: Matrix, order: Any) -> tuple[Any, Any]:
    """Sign, or phase, of the determinant, and the logarithm of its magnitude."""
    diagonal = factor.diagonal()
    sign = jnp.prod(jnp.sign(diagonal)) * _parity(order).astype(factor.dtype)
    return sign, jnp.sum(jnp.log(jnp.abs(diagonal)))


@lu_slogdet.defjvp
def _lu_slogdet_jvp(primals: tuple, tangents: tuple) -> tuple:
    """tr(a⁻¹ ȧ): its real part for the logarithm, its imaginary part for the phase."""
    factor, order = primals
    sign, log = lu_slogdet(factor, order)
    turned = lu_solve(factor, order, identity(factor, factor.m, factor.n), PLAIN)  # a⁻ᵀ
    trace = turned.total(lambda rows, columns, x, y: x * y, tangents[0])
    if not jnp.issubdtype(factor.dtype, jnp.complexfloating):
        return (sign, log), (jnp.zeros_like(sign), trace)
    return (sign, log), (sign * (trace - jnp.conj(trace)) / 2, jnp.real(trace))
