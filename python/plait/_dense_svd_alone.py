"""Singular value decompositions by LAPACK, on the device that has a matrix, or takes a small one.

QDWH (`_dense_svd`) takes some 44 n³ operations in tens of factorizations. For small n their fences
take longer than their arithmetic. Then the first device takes all columns, as one block, and the
others wait for their parts of the result: one message to the first device, and one from it.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax
from plait import _dense_batch, _jax, _mesh_rules, _sites, _split
from plait._dealt import Deal, Matrix, with_block
from plait._dense_batch import KINDS, Kind, Part
from plait._dense_rules import real_of

# Columns of the largest matrix that is small. docs/linalg.md has both ways on two devices.
SMALL = 1024


def is_for_one(x: Matrix) -> bool:
    """Whether one device decomposes the matrix."""
    return x.deal.n_ranks == 1 or 0 < x.n <= SMALL


def svd(x: Matrix) -> tuple[Matrix, Any, Matrix]:
    """U, the singular values, descending, and V, of a matrix with m ≥ n."""
    u, s, v = _bind(x, True)
    return x.with_data(u), x.deal.one_value(s), Matrix(v, x.deal, x.n, x.n)


def svdvals(x: Matrix) -> Any:
    """The singular values alone."""
    [s] = _bind(x, False)
    return x.deal.one_value(s)


def _bind(x: Matrix, has_vectors: bool) -> list:
    return _primitive().bind(
        x.data, deal=x.deal, m=x.m, n=x.n, has_vectors=has_vectors, site=_sites.here()
    )


def _of_part(n: int, n_ranks: int, has_vectors: bool, rank: Any, a: Any) -> Any:
    """The result of the first device: for each column its value, then its vectors of U and V.

    Zero behind the last column, and on other devices. NaN for non-finite input: for Inf, LAPACK may
    return numbers.
    """

    def decompose(a: Any) -> Any:
        if not has_vectors:
            return jnp.linalg.svd(a.T, compute_uv=False)[:, None]
        u, s, vh = jnp.linalg.svd(a.T, full_matrices=False)
        every = jnp.concatenate([s[:, None].astype(a.dtype), u.T, jnp.conj(vh)], axis=1)
        return jnp.where(jnp.isnan(jnp.sum(s)), jnp.nan, every)

    def nothing(a: Any) -> Any:
        return jnp.zeros(like.shape, like.dtype)

    like = jax.eval_shape(decompose, a[:n])
    is_alone = n_ranks == 1  # no condition then: a GPU would wait for its stream
    found = decompose(a[:n]) if is_alone else lax.cond(rank == 0, decompose, nothing, a[:n])
    return jnp.pad(found, ((0, a.shape[0] - n), (0, 0)))


def _decompose(a: Any, *, deal: Deal, m: int, n: int, has_vectors: bool, site: int) -> list:
    one = with_block(Matrix(a, deal, m, n), max(1, n) if deal.n_ranks > 1 else deal.block)
    of_part = functools.partial(_of_part, n, deal.n_ranks, has_vectors)
    found = one.deal.by_rank(of_part, (one.data,), (), one.deal.spec)
    every = with_block(Matrix(found, one.deal, found.shape[1], n), deal.block).data
    s = deal.in_order(jnp.real(every[:, 0]), n)
    return [every[:, 1 : 1 + m], s, every[:, 1 + m :]] if has_vectors else [s]


def _parts(avals: Sequence, params: dict) -> tuple:
    m, n, dtype = params["m"], params["n"], avals[0].dtype
    a, s = Part((m, n), dtype.name), Part((n,), real_of(dtype), False)
    outs = (a, s, Part((n, n), dtype.name)) if params["has_vectors"] else (s,)
    return (a,), outs


def _results(*avals: Any, deal: Deal, **params: Any) -> list:
    outs = _parts(avals, params)[1]
    return [_split.typed(avals[0], out.whole(deal), out.dtype, out.spec(deal)) for out in outs]


def _lower(ctx: Any, *args: Any, **params: Any) -> Any:
    is_inside = params["deal"].group is not None
    return _jax.lower_traced(ctx, functools.partial(_decompose, **params), args, is_inside)


def _batch(axis: Any, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    return _dense_batch.batch("svd", axis, args, dims, params)


@functools.cache
def _primitive() -> Any:
    made = jex.Primitive("plait_mesh_svd")
    _mesh_rules.define(made, results=_results, lower=_lower, batch=_batch)
    # Done one by one, all matrices of a batch would go to the first device: of up to 2 SMALL rows.
    KINDS["svd"] = Kind(made, _parts, lambda deal, params: params | {"deal": deal}, reach=4)
    return made
