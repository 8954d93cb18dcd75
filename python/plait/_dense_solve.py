"""Solutions with a factor that stands for its matrix: a primitive, linear in the right-hand side.

The tangent of a factor's array is that of the matrix (`_dense`). So x = op(a)⁻¹ b has the tangent
op(a)⁻¹ (ḃ - op(ȧ) x), which is again a solution with this factor.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import ad
from plait import _dense_args, _dense_batch, _dense_rules, _jax, _mesh_rules, _sites
from plait._dealt import Deal, Matrix, Whole, moved
from plait._dealt_inside import Inside
from plait._dense_batch import KINDS, Kind, Part
from plait._dense_rules import ADJOINT, NONE, PLAIN, gemm

CONJ = 3  # op(a) is the complex conjugate of a

# By kind of factor: the solver, from the factor's arrays, the right-hand side, and NONE or ADJOINT.
SOLVERS: dict[str, Callable[[Sequence, Matrix, int], Matrix]] = {}

_OPPOSITE = {NONE: PLAIN, PLAIN: NONE, ADJOINT: CONJ, CONJ: ADJOINT}  # of op(a)ᵀ


def solve(kind: str, factor: Sequence, b: Matrix, way: int = NONE) -> Matrix:
    """op(a)⁻¹ b; the factor's first array is dealt out, the others are the same on all devices."""
    if not jnp.issubdtype(b.dtype, jnp.complexfloating):
        way = ADJOINT if way in (PLAIN, ADJOINT) else NONE
    given = {"kind": kind, "deal": b.deal, "n": b.m, "n_rhs": b.n, "way": way}
    return b.with_data(primitive().bind(*factor, b.data, **given, site=_sites.here())[0])


def body(*args: Any, kind: str, deal: Deal, n: int, n_rhs: int, way: int, site: int) -> list:
    *factor, b = args
    rhs = Matrix(b, deal, n, n_rhs)
    is_conj = way in (PLAIN, CONJ)
    rhs = rhs.conj() if is_conj else rhs
    rhs = moved(rhs, _best(rhs))
    x = moved(SOLVERS[kind](factor, rhs, NONE if way in (NONE, CONJ) else ADJOINT), deal)
    return [(x.conj() if is_conj else x).data]


def _best(b: Matrix) -> Deal:
    """In a manual region right-hand sides come dealt out, even a few, which are better whole.

    There an array that all devices have counts as a separate array on each device, with derivatives
    of its own. Within the solution, and only here, it counts as one array, as on global arrays.
    """
    is_open = isinstance(b.deal, Inside) and b.deal.n_ranks > 1
    return _dense_args.deal_of_rhs(b.deal, (b.m, b.n), b.dtype) if is_open else b.deal


def _multiply(a: Matrix, x: Matrix, way: int) -> Matrix:
    """op(a) x."""
    return gemm(a, x.conj()).conj() if way == CONJ else gemm(a, x, trans=way)


def _jvp(primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    deal, n, way = params["deal"], params["n"], params["way"]
    *factor, b = primals
    [x] = primitive().bind(*primals, **params)
    rhs = None if type(tangents[-1]) is ad.Zero else tangents[-1]
    if type(tangents[0]) is not ad.Zero:
        y = Matrix(x, deal, n, params["n_rhs"])
        change = _multiply(Matrix(tangents[0], deal.dealt, n, n), y, way).data
        rhs = -change if rhs is None else rhs - change
    if rhs is None:
        return [x], [_jax.zero_tangent(x)]
    return [x], primitive().bind(*factor, rhs, **params)


def _transpose(cts: Sequence, *args: Any, **params: Any) -> list:
    *factor, _ = args
    params |= {"way": _OPPOSITE[params["way"]]}
    ct = ad.instantiate_zeros(cts[0])
    return [*[None] * len(factor), *primitive().bind(*factor, ct, **params)]


def _batch(axis: Any, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    deal, n = params["deal"], params["n"]
    if any(d is not None for d in dims[:-1]):
        return _dense_batch.batch("solve", axis, args, dims, params)
    if front := _dense_batch.front_of(axis, deal):
        return _dense_batch.by_front("solve", axis, front, args, dims, params)
    out = Part((n, params["n_rhs"]), args[-1].dtype.name)
    joined, split, wide = _dense_rules.side_by_side(deal, args[-1], dims[-1], out)
    [y] = primitive().bind(*args[:-1], joined, **(params | {"n_rhs": wide.shape[1]}))
    return [split(y)], [0]


def _parts(avals: Sequence, params: dict) -> tuple:
    """Of a factor's arrays, only the matrices are dealt out."""
    n = params["n"]
    *factor, b = avals
    kinds = [
        Part((n, n), x.dtype.name) if x.ndim == 2 else Part(x.shape, x.dtype.name, False)
        for x in factor
    ]
    is_whole = isinstance(params["deal"], Whole)
    shape = (params["n_rhs"], n) if is_whole else (n, params["n_rhs"])
    rhs = Part(shape, b.dtype.name, not is_whole)
    return (*kinds, rhs), (rhs,)


def _inside(deal: Deal, params: dict) -> dict:
    is_whole = isinstance(params["deal"], Whole)
    return params | {"deal": deal.whole if is_whole else deal}


def _lower(ctx: Any, *args: Any, **params: Any) -> Any:
    return _jax.lower_traced(ctx, functools.partial(body, **params), args)


@functools.cache
def primitive() -> Any:
    """The primitive of all kinds."""
    made = jex.Primitive("plait_mesh_solve")
    _mesh_rules.define(
        made,
        results=lambda *avals, **params: [avals[-1]],
        lower=_lower,
        batch=_batch,
        jvp=_jvp,
        transpose=_transpose,
    )
    KINDS["solve"] = Kind(made, _parts, _inside)
    return made
