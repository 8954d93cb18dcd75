"""Eigendecompositions of dealt Hermitian matrices, with derivatives also for equal eigenvalues.

a = V diag(w) Vᴴ. With M = Vᴴ ȧ V, the derivative of w is diag(M) and that of V is V (F ∘ M), where
F_ij = 1 / (w_j - w_i). For equal eigenvalues F is infinite, and V is not a function of a: any
rotation of a cluster's vectors will do. A result that does not depend on this choice has
derivatives: those with zeros in place of F. So has a result that does not depend on the cluster's
vectors at all: an infinite F times a column of zeros leaves nothing.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir
from plait import _dealt, _dense, _jax
from plait._dealt import Deal, Matrix
from plait._dense import column_dots, hermitian, no_tangent, power_of_two, real, solved
from plait._dense_rules import ADJOINT, gemm, heevd, trsm

MODES = ("nan", "zero", "lorentzian", "check")


def _tolerance(w: Any) -> Any:
    """Eigenvalues that differ by less may be equal: the rounding for this size and norm."""
    return 10 * w.shape[0] * jnp.finfo(w.dtype).eps * jnp.max(jnp.abs(w), initial=0)


def _gap(rows: Any, columns: Any, w: Any) -> Any:
    return w[jnp.minimum(columns, w.shape[0] - 1)] - w[rows]


def _is_cluster(rows: Any, columns: Any, w: Any) -> Any:
    """Pairs of different columns whose eigenvalues are equal, as far as can be told."""
    is_other = (rows != columns) & (columns < w.shape[0])
    return (jnp.abs(_gap(rows, columns, w)) <= _tolerance(w)) & is_other


def _divided(m: Matrix, w: Any) -> Matrix:
    """F ∘ m, zero in columns where m is zero.

    Such columns belong to vectors that the loss does not depend on, or that do not move. Its
    derivatives are those of an equation that does not contain this choice.
    """

    def multiply(rows: Any, columns: Any, x: Any, w: Any) -> Any:
        return x * _gap(rows, columns, w).astype(x.dtype)

    def divide(rows: Any, columns: Any, x: Any, w: Any) -> Any:
        is_zero = (rows == columns) | jnp.all(x == 0, axis=1, keepdims=True)
        factor = 1 / jnp.where(is_zero, 1, _gap(rows, columns, w))
        return jnp.where(is_zero, 0, x * factor.astype(x.dtype))

    return solved(lambda x: x.map(multiply, whole=(w,)), lambda x: x.map(divide, whole=(w,)), m)


def _divided_finitely(m: Matrix, w: Any, mode: str) -> Matrix:
    """F ∘ m with another F where eigenvalues are equal."""

    def divide(rows: Any, columns: Any, x: Any, w: Any) -> Any:
        scale = power_of_two(jnp.max(jnp.abs(w), initial=0))
        gap = _gap(rows, columns, w)
        one, zero = jnp.ones((), gap.dtype), jnp.zeros((), gap.dtype)
        is_zero = (rows == columns) | (columns >= w.shape[0])
        if mode == "lorentzian":  # squares of unscaled numbers may leave the range
            gap, most = gap / scale, jnp.max(jnp.abs(w), initial=0) / scale
            width = jnp.sqrt(jnp.finfo(w.dtype).eps) * most
            factor = gap / (gap * gap + width * width + jnp.finfo(w.dtype).tiny)
        else:
            is_zero |= _is_cluster(rows, columns, w)
            factor, scale = one / jnp.where(is_zero, one, gap), one
        # scaled here: XLA merges two consecutive divisions into one
        return x * (jnp.where(is_zero, zero, factor) / scale).astype(x.dtype)

    return m.map(divide, whole=(w,))


def _marked(ct: Any, residual: Any, size: Any) -> Any:
    """The cotangent; NaN if numbers that should be zero are not, beside the cotangent's size.

    Both are largest magnitudes: squares may leave the range.
    """
    most = jnp.sqrt(jnp.finfo(size.dtype).eps)
    return ct * jnp.where(residual > most * size, jnp.nan, 1.0).astype(ct.dtype)


def _judge_values(w: Any, ct: Any, deal: Deal) -> Any:
    """The cotangent w̄ of diag(M); NaN if the loss depends on the choice of vectors.

    V diag(w̄) Vᴴ is the same for all rotations of a cluster's vectors if w̄ is the same there. The
    eigenvalues are sorted, so a cluster consists of neighbours.
    """
    every = deal.of_all(ct)
    is_one = jnp.abs(jnp.diff(w)) <= _tolerance(w)
    apart = jnp.where(is_one, jnp.abs(jnp.diff(every)), jnp.zeros((), ct.dtype))
    return _marked(ct, jnp.max(apart, initial=0), jnp.max(jnp.abs(every), initial=0))


def _judge_vectors(w: Any, ct: Any, like: tuple) -> Any:
    """The cotangent c of F ∘ M; NaN if the loss depends on the choice of vectors.

    Rotations of a cluster's vectors are V K with an anti-Hermitian K. They do not change the loss
    if c is Hermitian where eigenvalues are equal.
    """
    c = Matrix(ct, *like)

    def skew(rows: Any, columns: Any, x: Any, y: Any, w: Any) -> Any:
        apart = jnp.where(_is_cluster(rows, columns, w), jnp.abs(x - y), jnp.zeros((), w.dtype))
        return jnp.max(apart, axis=1, initial=0)

    residual = jnp.max(c.columns(skew, c.adjoint(), whole=(w,)), initial=0)
    size = c.columns(lambda rows, columns, x: jnp.max(jnp.abs(x), axis=1, initial=0))
    return _marked(ct, residual, jnp.max(size, initial=0))


def _judge(w: Any, ct: Any, like: tuple) -> Any:
    return _judge_values(w, ct, like[0]) if ct.ndim == 1 else _judge_vectors(w, ct, like)


def _judged_transpose(ct: Any, w: Any, x: Any, *, like: tuple, depth: int) -> list:
    judge = functools.partial(_judge, like=like)
    for _ in range(depth):
        judge = jax.vmap(judge)
    with _jax.mesh_of([jax.typeof(w)]):
        return [None, judge(w, ad.instantiate_zeros(ct))]


def _judged_batch(args: Sequence, dims: Sequence, *, like: tuple, depth: int) -> tuple:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    w, x = (
        jnp.broadcast_to(a, (size, *a.shape)) if d is None else jnp.moveaxis(a, d, 0)
        for a, d in zip(args, dims, strict=True)
    )
    return judged_p.bind(w, x, like=like, depth=depth + 1), 0


# x itself; cotangents of it are judged: those of F ∘ M, a matrix like this, or of eigenvalues.
judged_p = jex.Primitive("plait_judged")
judged_p.def_impl(lambda w, x, **params: x)
judged_p.def_abstract_eval(lambda w, x, **params: x)
mlir.register_lowering(judged_p, lambda ctx, w, x, **params: [x])
ad.defjvp(judged_p, None, lambda dx, w, x, **params: judged_p.bind(w, dx, **params))
ad.primitive_transposes[judged_p] = _judged_transpose
batching.primitive_batchers[judged_p] = _judged_batch


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def eigh(a: Matrix, mode: str) -> tuple[Any, Matrix, Any]:
    """Eigenvalues, eigenvectors dealt out as a, and 0 or LAPACK's info."""
    w, v, info = heevd(a, 0, a.n)
    return w, _dealt.with_block(v, a.deal.block), info


@eigh.defjvp
def _eigh_jvp(mode: str, primals: tuple, tangents: tuple) -> tuple:
    w, v, info = eigh(*primals, mode)
    m = gemm(v, gemm(hermitian(tangents[0]), v), trans=ADJOINT)
    moved = _divided(m, w) if mode == "nan" else _divided_finitely(m, w, mode)
    dw = real(m.diagonal())
    if mode == "check":
        like = (moved.deal, moved.m, moved.n)
        moved = moved.with_data(judged_p.bind(w, moved.data, like=like, depth=0))
        dw = judged_p.bind(w, dw, like=like, depth=0)
    return (w, v, info), (dw, gemm(v, moved), no_tangent(info))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def eigh_of_some(a: Matrix, first: int, n: int, mode: str) -> tuple[Any, Matrix, Any]:
    """The same for n consecutive eigenvalues."""
    w, v, info = heevd(a, first, n)
    return w[first : first + n], _dealt.with_block(v, a.deal.block), info


@eigh_of_some.defjvp
def _eigh_of_some_jvp(first: int, n: int, mode: str, primals: tuple, tangents: tuple) -> tuple:
    """Needs all vectors: those of one eigenvalue move towards those of all others."""

    def some(a: Matrix) -> tuple[Any, Matrix, Any]:
        w, v, info = eigh(a, mode)
        columns = _dealt.identity(v, v.m, n, first)
        return w[first : first + n], gemm(v, columns), info

    return jax.jvp(some, primals, tangents)


@jax.custom_jvp
def eigvalsh(a: Matrix) -> tuple[Any, Any]:
    """Eigenvalues alone, and 0 or LAPACK's info."""
    w, _, info = heevd(a, 0, 0)
    return w, info


@eigvalsh.defjvp
def _eigvalsh_jvp(primals: tuple, tangents: tuple) -> tuple:
    """Needs the vectors, but of them only the columns' projectors, whatever the choice."""
    w, v, info = eigh(*primals, "zero")
    dw = real(column_dots(v, gemm(hermitian(tangents[0]), v)))
    return (w, info), (dw, no_tangent(info))


def reduced(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix, Any]:
    """L⁻¹ a L⁻ᴴ and L with b = L Lᴴ, and 0 or the order of the minor of b that is not positive.

    With y = Lᴴ v, a v = w b v is the eigenproblem of L⁻¹ a L⁻ᴴ. Source: LAPACK hegst, by two
    solutions.
    """
    factor, info = _dense.cholesky(b)
    low = _dense.triangle(factor)
    return trsm(low, trsm(low, _dense.by_lower(a)).adjoint()), low, info


def of_pencil(y: Matrix, low: Matrix) -> Matrix:
    """L⁻ᴴ y, the pencil's eigenvectors."""
    return trsm(low, y, trans=ADJOINT)
