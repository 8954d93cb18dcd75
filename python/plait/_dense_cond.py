"""Conditions of dealt matrices in the 1-norm and the infinity norm, from a factor, without inverse.

‖b‖₁ = max ‖b x‖₁ over ‖x‖₁ = 1 is the largest column sum, at a column of the identity. Which
column it is, is guessed by the gradient: bᴴ sign(b x) is large where a column of b is. Every step
multiplies four vectors by b and by bᴴ, so that a program has a fixed number of products, and what
comes out is never too large. Here b is a⁻¹, and a product a solution with its factor.
Source: Higham, Tisseur, SIAM J. Matrix Anal. Appl. 21(4), 2000, algorithm 2.4, without its tests
for an early end; LAPACK's lacn2 for the second of the first vectors.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _dealt, _jax
from plait._dealt import Matrix
from plait._dense import largest
from plait._dense_lu import rows
from plait._dense_rules import ADJOINT, IS_LOWER, IS_UNIT_LOWER, IS_UPPER, NONE, gemm
from plait._dense_solve import solve

WIDTH, STEPS = 4, 3
ORDERS = (1, jnp.inf)
WHOLE = ((), ())

Apply = Callable[[Any, int], Any]  # of vectors that all devices have, and NONE or ADJOINT


def _by_cholesky(factor: tuple, x: Matrix, way: int) -> Matrix:
    """L Lᴴ x."""
    (low,) = factor
    return gemm(low, gemm(low, x, trans=ADJOINT, form_a=IS_LOWER), form_a=IS_LOWER)


def _by_lu(factor: tuple, x: Matrix, way: int) -> Matrix:
    """A x, with A[order] = L U, or Aᴴ x."""
    f, order = factor
    if way == NONE:
        y = gemm(f, gemm(f, x, form_a=IS_UPPER), form_a=IS_UNIT_LOWER)
        return rows(y, jnp.argsort(order))
    y = gemm(f, rows(x, order), trans=ADJOINT, form_a=IS_UNIT_LOWER)
    return gemm(f, y, trans=ADJOINT, form_a=IS_UPPER)


PRODUCTS: dict[str, Callable[[tuple, Matrix, int], Matrix]] = {
    "cholesky": _by_cholesky,
    "lu": _by_lu,
}


def _first(n: int, dtype: Any) -> Any:
    """Equal numbers, growing alternating ones, and two of random signs; magnitudes sum to 1."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (n, WIDTH - 2))
    grown = (1 + np.arange(n) / (n - 1)) * (-1.0) ** np.arange(n)
    x = np.concatenate([np.ones((n, 1)), grown[:, None], signs], axis=1)
    return jnp.asarray(x / np.abs(x).sum(axis=0), dtype)


def _signs(y: Any) -> Any:
    size = jnp.abs(y)
    return jnp.where(size > 0, y / jnp.where(size > 0, size, 1).astype(y.dtype), 1)


def _on_mesh(mesh: Any, x: Any) -> Any:
    """A value that all devices have alike; on Explicit axes its type says so."""
    if mesh is None or _jax.is_auto(mesh):
        return x
    return jax.sharding.reshard(x, NamedSharding(mesh, P()))


def _estimate(apply: Apply, n: int, dtype: Any, mesh: Any) -> Any:
    """A lower bound of ‖b‖₁, with apply(x, NONE) = b x."""

    def largest(x: Any) -> tuple[Any, Any]:
        y = apply(x, NONE)
        return y, jnp.max(jnp.sum(jnp.abs(y), axis=0))

    def step(_: Any, state: tuple) -> tuple:
        x, most, is_done = state
        y, size = largest(x)
        slope = jnp.max(jnp.abs(apply(_signs(y), ADJOINT)), axis=1)
        _, best = lax.top_k(jnp.where(is_done, -jnp.ones_like(slope), slope), WIDTH)
        x = (jnp.arange(n, dtype=best.dtype)[:, None] == best[None, :]).astype(x.dtype)
        return x, jnp.fmax(most, size), is_done.at[best].set(True)

    if n <= WIDTH:
        return largest(_on_mesh(mesh, jnp.eye(n, dtype=dtype)))[1]
    zero = jnp.zeros((), jnp.finfo(dtype).dtype)
    first = tuple(_on_mesh(mesh, x) for x in (_first(n, dtype), zero, jnp.zeros(n, bool)))
    x, most, _ = lax.fori_loop(0, STEPS, step, first)
    last = largest(x)[1]
    return jnp.where(jnp.isnan(last), last, jnp.fmax(most, last))


def _of_factor(kind: str, factor: tuple, order: Any, is_inverse: bool) -> Any:
    """‖a‖ or ‖a⁻¹‖; ‖b‖∞ = ‖bᴴ‖₁."""
    low, *others = factor

    def apply(x: Any, way: int) -> Any:
        way = way if order == 1 else ADJOINT - way
        b = _dealt.deal_out(x, WHOLE, low.deal)
        y = (
            solve(kind, (low.data, *others), b, way)
            if is_inverse
            else PRODUCTS[kind](factor, b, way)
        )
        return _dealt.collect(y, WHOLE)

    return _estimate(apply, low.n, low.dtype, low.deal.mesh)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def of_factor(kind: str, order: Any, factor: tuple) -> tuple:
    """Estimates of the norms of the matrix and of its inverse; the condition is their product."""
    return tuple(_of_factor(kind, factor, order, is_inverse) for is_inverse in (False, True))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def of_matrix(kind: str, order: Any, a: Matrix, factor: tuple) -> tuple:
    """The same, with the norm of the matrix computed exactly."""
    by_column = a if order == 1 else a.turned()
    size = largest(by_column.columns(lambda rows, columns, x: jnp.sum(jnp.abs(x), axis=1)))
    return size, _of_factor(kind, factor, order, is_inverse=True)


@of_factor.defjvp
def _of_factor_jvp(*args: Any) -> tuple:
    raise TypeError(
        "plait.linalg.cond: an estimate has no derivative; use p=2, which is computed from "
        "singular values and has one"
    )


of_matrix.defjvp(_of_factor_jvp)
