"""Solutions with a factor in single precision, refined in double.

x ← x + f⁻¹ (b - op(a) x) until ‖b - op(a) x‖ ≤ √n ε (‖a‖ ‖x‖ + ‖b‖) for every column, ten times at
most; what has not converged then is factored in double precision.
Source: LAPACK dsgesv; Langou and others, 2006.

With the largest element of a some p², columns of b are scaled to p, all by powers of two: their
solutions are some 1 / p, and no product, residual or square leaves the range of numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from plait._dealt import Matrix
from plait._dense import by_lower, by_parts, cholesky, power_of_two
from plait._dense_lu import lu
from plait._dense_rules import gemm
from plait._dense_solve import SOLVERS, solve

MOST_STEPS = 10
SINGLE = {"float64": "float32", "complex128": "complex64"}


def _most(x: Any) -> Any:
    """A power of two near the largest magnitude of every column; 1 for columns of zeros."""
    return power_of_two(jnp.max(jnp.abs(x), axis=1, keepdims=True, initial=0))


def _squares(x: Any) -> Any:
    """The squared norm of every column."""
    return jnp.sum(jnp.real(x * jnp.conj(x)), axis=1, keepdims=True)


def _over(x: Any, scale: Any) -> Any:
    return by_parts(lambda x: x / scale, x)


def _sizes(a: Matrix) -> Any:
    """A power of two near the largest magnitude, and the norm of the matrix divided by it."""
    most = a.columns(lambda rows, columns, x: jnp.max(jnp.abs(x), axis=1, initial=0))
    scale = power_of_two(jnp.max(most, initial=0))

    def squares(rows: Any, columns: Any, x: Any, scale: Any) -> Any:
        return _squares(_over(x, scale))

    return jnp.stack([scale, jnp.sqrt(a.total(squares, whole=(scale,)))])


def _low(rows: Any, columns: Any, r: Any) -> Any:
    """Columns scaled to numbers around 1, which fit single precision."""
    return _over(r, _most(r))


def _corrected(rows: Any, columns: Any, x: Any, y: Any, r: Any, scale: Any) -> Any:
    """x, corrected with a solution for `_low` of r and the matrix divided by its scale."""
    by = _most(r) / scale
    return x + by_parts(lambda y: y * by, y)


def _in_range(rows: Any, columns: Any, b: Any, root: Any) -> Any:
    return by_parts(lambda b: b * root, _low(rows, columns, b))


def _as_given(rows: Any, columns: Any, x: Any, b: Any, root: Any) -> Any:
    """The solution, scaled back from `_in_range`."""
    most = _most(b)
    return by_parts(lambda x: x * most / root, x)


def _is_rough(rows: Any, columns: Any, r: Any, x: Any, b: Any, root: Any, size: Any) -> Any:
    """1 for columns that have not converged, or have NaN."""
    around_one = (_over(r, root), by_parts(lambda x: x * root, x), _over(b, root))
    of_r, of_x, of_b = (jnp.sqrt(_squares(y)) for y in around_one)
    most = float(jnp.finfo(x.dtype).eps) * max(1, x.shape[1]) ** 0.5
    return (~(of_r <= most * (size * of_x + of_b))).astype(of_r.dtype)


def _by_refinement(kind: str, again: Callable) -> Callable:
    """The solver of a kind of factor; again: factors the matrix in the matrix's own precision."""

    def solver(factor: Sequence, b: Matrix, way: int) -> Matrix:
        data, *low, sizes = factor
        a, scale = Matrix(data, b.deal.dealt, b.m, b.m), sizes[0]
        root = power_of_two(jnp.sqrt(scale))
        scaled = b.map(_in_range, whole=(root,))

        def corrected(x: Matrix, r: Matrix) -> Matrix:
            y = r.map(_low)
            y = SOLVERS[kind](low, y.with_data(y.data.astype(low[0].dtype)), way)
            y = y.with_data(y.data.astype(a.dtype))
            return x.map(_corrected, y, r, whole=(scale,))

        def rest(x: Matrix) -> tuple[Matrix, Any]:
            r = scaled - gemm(a, x, trans=way)
            return r, r.total(_is_rough, x, scaled, whole=(root, sizes[1]))

        def more(state: tuple) -> Any:
            return (state[2] > 0) & (state[3] < MOST_STEPS)

        def step(state: tuple) -> tuple:
            x, r, _, i = state
            x = corrected(x, r)
            return (x, *rest(x), i + 1)

        x = corrected(scaled.with_data(jnp.zeros_like(scaled.data)), scaled)
        x, _, n_rough, _ = lax.while_loop(more, step, (x, *rest(x), jnp.int32(0)))
        x = x.map(_as_given, b, whole=(root,))
        return lax.cond(n_rough > 0, lambda: SOLVERS[kind](again(a), b, way), lambda: x)

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
    """The matrix, kept for the residuals, and its factor in single precision."""
    a = by_lower(a) if kind == "cholesky" else a
    known = jax.tree.map(lax.stop_gradient, a)
    sizes = _sizes(known)
    low = known.with_data(_over(known.data, sizes[0]).astype(SINGLE[a.dtype.name]))
    return a, (*_FACTORS[kind](low), sizes)


def refined(kind: str, a: Matrix, factor: tuple, b: Matrix) -> Matrix:
    """a⁻¹ b, from what `factored` returns for a."""
    return solve("refined_" + kind, (a.data, *factor), b)
