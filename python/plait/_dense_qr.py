"""QR factorizations of dealt matrices, and least squares."""

from typing import Any

import jax
import jax.numpy as jnp
from plait._dealt import Matrix, identity, on_parts
from plait._dense_rules import ADJOINT, IS_UPPER, NONE, PLAIN, UPPER, gemm, geqrf, keep, ormqr, trsm


def first_rows(a: Matrix, n: int) -> Matrix:
    """Rows 0 to n - 1."""
    data = on_parts(a.deal, lambda x: x[:, :n], a.data)  # JAX 0.12 forgets an axis of extent 1
    return Matrix(data, a.deal, n, a.n)


def first_columns(a: Matrix, n: int) -> Matrix:
    """Columns 0 to n - 1, which are the first columns of every device."""
    stored = a.deal.stored(n)
    data = on_parts(a.deal, lambda x: x[:stored], a.data)
    return Matrix(data, a.deal, a.m, n).map(lambda rows, columns, x: x)


def with_columns(a: Matrix, n: int) -> Matrix:
    """More columns: zeros behind the existing ones."""
    more = a.deal.stored(n) - a.deal.stored(a.n)
    data = on_parts(a.deal, lambda x: jnp.pad(x, ((0, more), (0, 0))), a.data)
    return Matrix(data, a.deal, a.m, n)


def stacked(a: Matrix, b: Matrix) -> Matrix:
    """The rows of a, then those of b."""
    return Matrix(jnp.concatenate((a.data, b.data), axis=1), a.deal, a.m + b.m, a.n)


@jax.custom_jvp
def qr(a: Matrix) -> tuple[Matrix, Matrix]:
    """Q of min(m, n) columns, and R of as many rows."""
    factor, tau = geqrf(a)
    k = min(a.m, a.n)
    reflectors = factor if k == a.n else first_columns(factor, k)
    q = ormqr(reflectors, tau, identity(a, a.m, k), NONE)
    return q, keep(first_rows(factor, k), IS_UPPER)


def skew(rows: Any, columns: Any, x: Any, y: Any) -> Any:
    """Ω from C = x and Cᴴ = y: skew, with the strict lower triangle of C; see `_qr_jvp`."""
    below = jnp.where(rows > columns, x, jnp.zeros((), x.dtype))
    above = jnp.where(rows < columns, -y, jnp.zeros((), x.dtype))
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        return below + above
    turn = jnp.where(rows == columns, jnp.imag(x), jnp.zeros((), jnp.imag(x).dtype))
    return below + above + 1j * turn.astype(x.dtype)


def _slopes(a: Matrix, da: Matrix) -> tuple:
    """Q and R, and functions for their derivatives.

    With C = Qᴴ ȧ R⁻¹ and a skew Ω with the strict lower triangle of C: Q (Ω - C) + ȧ R⁻¹; (C - Ω)
    R. The diagonal of R stays real: the diagonal of Ω is the imaginary part of C's. For m < n, C is
    made of the first m columns, and Q C = ȧ R⁻¹: Q Ω; Qᴴ ȧ - Ω R.
    """
    q, r = qr(a)
    if a.m < a.n:
        p = gemm(q, da, trans=ADJOINT)
        first = (first_columns(x, a.m) for x in (r, p))
        omega = _skew_part(_divided(*first))
        return q, r, lambda: gemm(q, omega), lambda: keep(p - gemm(omega, r), IS_UPPER)
    da_r = _divided(r, da)
    c = gemm(q, da_r, trans=ADJOINT)
    rest = c - _skew_part(c)
    return q, r, lambda: da_r - gemm(q, rest), lambda: gemm(rest, r)


def _divided(r: Matrix, x: Matrix) -> Matrix:
    """X R⁻¹."""
    return trsm(r, x.turned(), uplo=UPPER, trans=PLAIN).turned()


def _skew_part(c: Matrix) -> Matrix:
    return c.map(skew, c.adjoint())


@qr.defjvp
def _qr_jvp(primals: tuple, tangents: tuple) -> tuple:
    q, r, slope_of_q, slope_of_r = _slopes(*primals, *tangents)
    return (q, r), (slope_of_q(), slope_of_r())


@jax.custom_jvp
def r_alone(a: Matrix) -> Matrix:
    """R of `qr`, without Q."""
    return keep(first_rows(geqrf(a)[0], min(a.m, a.n)), IS_UPPER)


@r_alone.defjvp
def _r_alone_jvp(primals: tuple, tangents: tuple) -> tuple:
    _, r, _, slope = _slopes(*primals, *tangents)
    return r, slope()


def complete_qr(a: Matrix) -> tuple[Matrix, Matrix]:
    """A square Q, and R of as many rows as a."""
    return qr(a) if a.m <= a.n else _complete_qr_of_tall(a)


@jax.custom_jvp
def _complete_qr_of_tall(a: Matrix) -> tuple[Matrix, Matrix]:
    factor, tau = geqrf(a)
    return ormqr(factor, tau, identity(a, a.m, a.m), NONE), keep(factor, IS_UPPER)


@_complete_qr_of_tall.defjvp
def _complete_qr_jvp(primals: tuple, tangents: tuple) -> tuple:
    [a] = primals
    raise TypeError(
        f'plait.linalg.qr: mode="complete" of a {a.m} x {a.n} matrix has no derivative, since the '
        f"last {a.m - a.n} columns of q are not unique; use mode='reduced', or a matrix with as "
        "many columns as rows or more"
    )


def completed(u: Matrix) -> Matrix:
    """A square unitary matrix that begins with the orthonormal columns of another one."""
    return u if u.m == u.n else _completed(u)


@jax.custom_jvp
def _completed(u: Matrix) -> Matrix:
    q, _ = _complete_qr_of_tall(u)
    return q.map(lambda rows, columns, x, y: jnp.where(columns < u.n, y, x), with_columns(u, u.m))


@_completed.defjvp
def _completed_jvp(primals: tuple, tangents: tuple) -> tuple:
    [u] = primals
    raise TypeError(
        f"plait.linalg.svd: full_matrices=True has no derivative here, since only {u.n} of {u.m} "
        "vectors belong to singular values and the others are not unique; use full_matrices=False"
    )


def lstsq(a: Matrix, b: Matrix) -> Matrix:
    """The x with the least ‖a x - b‖; a: of full rank, at least as many rows as columns."""
    q, r = qr(a)
    return trsm(r, gemm(q, b, trans=ADJOINT), uplo=UPPER)


def least_norm(a: Matrix, b: Matrix) -> Matrix:
    """The x with the least ‖x‖ and aᴴ x = b, for such a matrix."""
    q, r = qr(a)
    return gemm(q, trsm(r, b, uplo=UPPER, trans=ADJOINT))
