"""Solutions with a factor in single precision, refined in double.

x ← x + f⁻¹ (b - op(a) x) until ‖b - op(a) x‖ ≤ √n ε (‖a‖ ‖x‖ + ‖b‖), ten times at most; what has
not converged then is factored in double precision. Source: LAPACK dsgesv; Langou and others, 2006.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from plait._dealt import Matrix
from plait._dense import cholesky, hermitian
from plait._dense_lu import lu
from plait._dense_rules import gemm
from plait._dense_solve import SOLVERS, solve

MOST_STEPS = 10
SINGLE = {"float64": "float32", "complex128": "complex64"}


def _size(a: Matrix) -> Any:
    return jnp.sqrt(a.total(lambda rows, columns, x: jnp.real(x * jnp.conj(x))))


def _most(a: Matrix) -> Any:
    """The largest magnitude, 1 for zeros."""
    most = jnp.max(a.columns(lambda rows, columns, x: jnp.max(jnp.abs(x), axis=1)))
    return jnp.where(most > 0, most, jnp.ones((), most.dtype))


def _scaled(a: Matrix, scale: Any) -> Matrix:
    return a.with_data(a.data / scale.astype(a.dtype))


def _by_refinement(kind: str, again: Callable) -> Callable:
    """The solver of a kind of factor; again: from the matrix, a factor in its own precision."""

    def solver(factor: Sequence, b: Matrix, way: int) -> Matrix:
        a = Matrix(factor[0], b.deal.dealt, b.m, b.m)
        scale, size_a, size_b = _most(a), _size(a), _size(b)
        eps = jnp.finfo(a.dtype).eps * max(1, b.m) ** 0.5

        def correction(r: Matrix) -> Matrix:
            """In single precision, with numbers around 1."""
            size = _most(r)
            low = _scaled(r, size)
            low = low.with_data(low.data.astype(factor[1].dtype))
            x = SOLVERS[kind](factor[1:], low, way)
            return x.with_data(x.data.astype(a.dtype) * (size / scale).astype(a.dtype))

        def rest(x: Matrix) -> tuple[Matrix, Any]:
            r = b - gemm(a, x, trans=way)
            return r, _size(r) <= eps * (size_a * _size(x) + size_b)

        def more(state: tuple) -> Any:
            return ~state[2] & (state[3] < MOST_STEPS)

        def step(state: tuple) -> tuple:
            x, r, _, i = state
            x = x + correction(r)
            return (x, *rest(x), i + 1)

        x = correction(b)
        x, _, is_done, _ = lax.while_loop(more, step, (x, *rest(x), jnp.int32(0)))
        return lax.cond(is_done, lambda: x, lambda: SOLVERS[kind](again(a), b, way))

    return solver


def _lu_factor(a: Matrix) -> tuple:
    factor, order, _ = lu(a)
    return factor.data, order


def _cholesky_factor(a: Matrix) -> tuple:
    return (cholesky(a)[0].data,)


_FACTORS = {"lu": _lu_factor, "cholesky": _cholesky_factor}
for _kind, _again in _FACTORS.items():
    SOLVERS["refined_" + _kind] = _by_refinement(_kind, _again)


def factored(kind: str, a: Matrix) -> tuple[Matrix, tuple]:
    """The matrix, which is kept for the residuals, and its factor in single precision."""
    a = hermitian(a) if kind == "cholesky" else a
    low = _scaled(a, _most(a))
    low = low.with_data(lax.stop_gradient(low.data.astype(SINGLE[a.dtype.name])))
    return a, jax.tree.map(lax.stop_gradient, _FACTORS[kind](low))


def refined(kind: str, a: Matrix, factor: tuple, b: Matrix) -> Matrix:
    """a⁻¹ b, with what `factored` made of a."""
    return solve("refined_" + kind, (a.data, *factor), b)
