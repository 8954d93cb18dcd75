"""QR factorizations of dealt matrices, and least squares."""

from typing import Any

import jax
import jax.numpy as jnp
from plait._dealt import Matrix, identity, on_parts
from plait._dense_rules import ADJOINT, IS_UPPER, NONE, PLAIN, UPPER, gemm, geqrf, keep, ormqr, trsm


def first_rows(a: Matrix, n: int) -> Matrix:
    """Rows 0 to n - 1."""
    return Matrix(a.data[:, :n], a.deal, n, a.n)


def first_columns(a: Matrix, n: int) -> Matrix:
    """Columns 0 to n - 1, which are the first ones of every device."""
    stored = a.deal.stored(n)
    data = on_parts(a.deal, lambda x: x[:stored], a.data)
    return Matrix(data, a.deal, a.m, n).map(lambda rows, columns, x: x)


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
    """Ω of C = x and Cᴴ = y: skew, with the strict lower triangle of C; see `_qr_jvp`."""
    below = jnp.where(rows > columns, x, jnp.zeros((), x.dtype))
    above = jnp.where(rows < columns, -y, jnp.zeros((), x.dtype))
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        return below + above
    turn = jnp.where(rows == columns, jnp.imag(x), jnp.zeros((), jnp.imag(x).dtype))
    return below + above + 1j * turn.astype(x.dtype)


def _slope(a: Matrix, da: Matrix) -> tuple:
    """Q and R, ȧ R⁻¹, and C - Ω; see `_qr_jvp`."""
    if a.m < a.n:
        raise TypeError(
            f"plait.linalg.qr: of a {a.m} x {a.n} matrix it has no derivative; expected as many "
            "rows as columns, or more"
        )
    q, r = qr(a)
    da_r = trsm(r, da.turned(), uplo=UPPER, trans=PLAIN).turned()
    c = gemm(q, da_r, trans=ADJOINT)
    return q, r, da_r, c - c.map(skew, c.adjoint())


@qr.defjvp
def _qr_jvp(primals: tuple, tangents: tuple) -> tuple:
    """With C = Qᴴ ȧ R⁻¹ and a skew Ω with its strict lower triangle: Q (Ω - C) + ȧ R⁻¹; (C - Ω) R.

    The diagonal of R stays real: that of Ω is the imaginary part of C's.
    """
    q, r, da_r, rest = _slope(*primals, *tangents)
    return (q, r), (da_r - gemm(q, rest), gemm(rest, r))


@jax.custom_jvp
def r_alone(a: Matrix) -> Matrix:
    """R of `qr`, without Q."""
    return keep(first_rows(geqrf(a)[0], min(a.m, a.n)), IS_UPPER)


@r_alone.defjvp
def _r_alone_jvp(primals: tuple, tangents: tuple) -> tuple:
    _, r, _, rest = _slope(*primals, *tangents)
    return r, gemm(rest, r)


def lstsq(a: Matrix, b: Matrix) -> Matrix:
    """The x of least ‖a x - b‖, of a matrix of full rank with as many rows as columns or more."""
    q, r = qr(a)
    return trsm(r, gemm(q, b, trans=ADJOINT), uplo=UPPER)
