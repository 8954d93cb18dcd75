"""Dense operations of the core as JAX primitives on dealt matrices, with exact rules.

A global primitive has several operands and results. Each is either dealt out to all devices or
whole on each. The primitive is lowered to a manual region around the operation of the core on the
local arrays. The linear operations, gemm and trsm, have their derivatives here; those of the
factorizations are in `_dense`, written with gemm and trsm.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import ad
from plait import _blas, _dense_batch, _groups, _jax, _mesh_rules, _sites, _split
from plait._dealt import Deal, Matrix, Whole, moved, on_parts
from plait._dense_batch import KINDS, Kind, Part
from plait._ops import Chain, Rules, rules

NONE, PLAIN, ADJOINT = 0, 1, 2  # plait_trans_t
LOWER, UPPER = 0, 1  # plait_uplo_t
NON_UNIT, UNIT = 0, 1  # plait_diag_t
GENERAL, IS_LOWER, IS_UPPER, IS_UNIT_LOWER, IS_UNIT_UPPER = range(5)  # plait_form_t


NAMES = ("potrf", "potri", "potrs", "getrf", "geqrf", "ormqr", "trsm", "gemm", "heevd")

for _name in NAMES:
    rules(
        _name,
        Rules(
            results=lambda avals, params: [
                avals[0].update(shape=out.local(params["deal"]), dtype=jnp.dtype(out.dtype))
                for out in params["outs"]
            ],
            transpose=None,  # the global primitive has the derivatives
        ),
    )


def _results(*avals: Any, deal: Deal, outs: Sequence[Part], **params: Any) -> list:
    return [_split.typed(avals[0], out.whole(deal), out.dtype, out.spec(deal)) for out in outs]


def _lower(name: str, ctx: Any, *args: Any, deal: Deal, ins: tuple, outs: tuple, **params: Any):
    _blas.require()
    is_inside = deal.group is not None
    group = deal.group if is_inside else group_for(name, ctx, deal)
    attrs = dict(params["attrs"])

    def local(*parts: Any) -> list:
        return Chain().call(
            name,
            *parts,
            group=group,
            deal=deal,
            outs=outs,
            donate=params["donate"],
            site=params["site"],
            **attrs,
        )

    is_local = is_inside or deal.n_devices == 1

    def whole(*args: Any) -> list:
        if is_local:
            return local(*args)
        specs = ([part.spec(deal) for part in parts] for parts in (ins, outs))
        return _mesh_rules.on_parts(local, deal.mesh, *specs)(*args)

    return _jax.lower_traced(ctx, whole, args, is_local)


def group_for(name: str, ctx: Any, deal: Deal) -> _groups.Group:
    """The group of the devices that a program is compiled for, which are those of the mesh."""
    devices = _groups.devices_of(name, ctx, deal.n_devices)
    if not deal.batch:
        return _groups.of_devices(devices)
    return _groups.along(tuple(deal.mesh.shape.items()), deal.axes, devices)


def side_by_side(deal: Deal, b: Any, dim: int, out: Part) -> tuple:
    """A batch of matrices as one matrix with the columns of all, and back; out: one result.

    Returns the matrix, a function from its result to the batch of results, and that result.
    """
    b = _split.with_front(jnp.moveaxis(b, dim, 0), ())
    n_batch, n_stored, m = b.shape
    each = n_stored // deal.n_parts
    n_rows = out.shape[0]
    one, many = deal.spec, ((), *deal.spec)
    joined = on_parts(deal, lambda x: x.reshape(n_batch * each, m), b, many, one)

    def split(y: Any) -> Any:
        return on_parts(deal, lambda x: x.reshape(n_batch, each, n_rows), y, one, many)

    wide = dataclasses.replace(out, shape=(n_rows, deal.n_ranks * n_batch * each))
    return joined, split, wide


def _batch(name: str, axis: Any, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    return _dense_batch.batch(name, axis, args, dims, params)


def _batch_columns(name: str, axis: Any, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    """Right-hand sides of one matrix are done together."""
    attrs = dict(params["attrs"])
    is_general = not attrs.get("form") and not attrs.get("form_c")
    if dims[0] is not None or not is_general:
        return _batch(name, axis, args, dims, **params)
    if front := _dense_batch.front_of(axis, params["deal"]):
        return _dense_batch.by_front(name, axis, front, args, dims, params)
    [out] = params["outs"]
    deal, is_whole = params["deal"], attrs.get("whole")
    if is_whole:
        deal, out = deal.whole, dataclasses.replace(out, shape=out.shape[::-1])
    joined, split, wide = side_by_side(deal, args[1], dims[1], out)
    attrs["n_rhs" if name == "trsm" else "n"] = wide.shape[1]
    first, second = params["ins"]
    ins = (first, dataclasses.replace(second, shape=(second.shape[0], wide.shape[1])))
    if is_whole:
        ins = (first, dataclasses.replace(second, shape=(wide.shape[1], second.shape[1])))
        wide = dataclasses.replace(wide, shape=wide.shape[::-1])
    given = {"attrs": tuple(sorted(attrs.items())), "outs": (wide,), "donate": False, "ins": ins}
    [y] = primitives()[name].bind(args[0], joined, **(params | given))
    return [split(y)], [0]


def _parts(avals: Sequence, params: dict) -> tuple:
    return params["ins"], params["outs"]


def _inside(deal: Deal, params: dict) -> dict:
    outs, attrs = params["outs"], dict(params["attrs"]) | {"block": deal.block}
    outs = tuple(part.alone() for part in outs) if deal.n_ranks == 1 else outs
    return params | {"deal": deal, "outs": outs, "attrs": tuple(sorted(attrs.items()))}


@functools.cache
def primitives() -> dict[str, Any]:
    """The global primitives by the name of the core's operation."""
    return {name: _make(name) for name in NAMES}


def _make(name: str) -> Any:
    primitive = jex.Primitive("plait_mesh_" + name)
    linear = {
        "gemm": {"jvp": _gemm_jvp, "transpose": _gemm_transpose},
        "trsm": {"jvp": _trsm_jvp, "transpose": _trsm_transpose},
    }
    _mesh_rules.define(
        primitive,
        results=_results,
        lower=functools.partial(_lower, name),
        batch=functools.partial(_batch_columns if name in linear else _batch, name),
        **linear.get(name, {}),
    )
    KINDS[name] = Kind(primitive, _parts, _inside)
    return primitive


def bind(
    name: str,
    deal: Deal,
    args: Sequence,
    outs: Sequence[Part],
    donate: bool = False,
    **attrs: int,
) -> list:
    """Applies an operation to matrices, and arrays that all devices have; attrs: the core's."""
    given = tuple(sorted((attrs | {"block": deal.block}).items()))
    return primitives()[name].bind(
        *(x.data if isinstance(x, Matrix) else x for x in args),
        deal=deal,
        ins=tuple(map(Part.of, args)),
        outs=tuple(outs),
        attrs=given,
        donate=donate,
        site=_sites.here(),
    )


# ---- gemm ----------------------------------------------------------------------------------------


def gemm(
    a: Matrix, b: Matrix, trans: int = NONE, form_a: int = GENERAL, form_c: int = GENERAL
) -> Matrix:
    """op(a) b; form_a: which triangle of a is read, form_c: which part of the product is wanted."""
    deal = b.deal.dealt
    if deal != b.deal:
        given = {"trans": trans, "form_a": form_a, "form_c": form_c}
        return moved(gemm(a, moved(b, deal), **given), b.deal)
    if not jnp.issubdtype(a.dtype, jnp.complexfloating):
        trans = min(trans, PLAIN)
    m, k = (a.m, a.n) if trans == NONE else (a.n, a.m)
    out = Part((m, b.n), a.dtype.name)
    sizes = {"m": m, "n": b.n, "k": k}
    forms = {"trans": trans, "form_a": form_a, "form_c": form_c}
    [c] = bind("gemm", deal, (a, b), (out,), **sizes, **forms)
    return Matrix(c, deal, m, b.n)


def keep(a: Matrix, form: int) -> Matrix:
    """The part of a that a form reads, zero elsewhere."""
    if form == GENERAL:
        return a
    offset = 1 if form in (IS_UNIT_LOWER, IS_UNIT_UPPER) else 0
    is_lower = form in (IS_LOWER, IS_UNIT_LOWER)

    def part(rows: Any, columns: Any, x: Any) -> Any:
        below = rows - columns if is_lower else columns - rows
        return jnp.where(below >= offset, x, jnp.zeros((), x.dtype))

    return a.map(part)


def _tangent_form(a: Matrix, form: int) -> tuple[Matrix, int]:
    """The tangent that changes the matrix, and its form: a diagonal of 1 does not change."""
    if form in (IS_UNIT_LOWER, IS_UNIT_UPPER):
        return keep(a, form), form - 2
    return a, form


def _gemm_matrices(attrs: dict, deal: Deal, a: Any, b: Any) -> tuple[Matrix, Matrix]:
    m, k = attrs["m"], attrs["k"]
    rows, columns = (m, k) if attrs["trans"] == NONE else (k, m)
    return Matrix(a, deal, rows, columns), Matrix(b, deal, k, attrs["n"])


def _gemm_forms(attrs: dict) -> dict:
    return {name: attrs[name] for name in ("trans", "form_a", "form_c")}


def _gemm_jvp(primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    attrs, deal = dict(params["attrs"]), params["deal"]
    a, b = _gemm_matrices(attrs, deal, *primals)
    forms = _gemm_forms(attrs)
    y = gemm(a, b, **forms)
    parts = []
    if type(tangents[0]) is not ad.Zero:
        da, form_a = _tangent_form(a.with_data(tangents[0]), attrs["form_a"])
        parts.append(gemm(da, b, **(forms | {"form_a": form_a})))
    if type(tangents[1]) is not ad.Zero:
        parts.append(gemm(a, b.with_data(tangents[1]), **forms))
    dy = functools.reduce(lambda x, z: x + z, parts) if parts else None
    return [y.data], [_jax.zero_tangent(y.data) if dy is None else dy.data]


def _product_transposed(c: Matrix, b: Matrix, trans: int, form_a: int) -> Matrix:
    """The cotangent of a in op(a) b: c bᵀ, or its transpose if op transposes."""
    is_square = form_a == IS_LOWER
    form = IS_LOWER if is_square else GENERAL
    if trans == NONE:
        y = gemm(c, b.turned(), form_c=form)
    else:
        y = gemm(b, c.turned(), form_c=form)
    y = y if is_square else keep(y, form_a)
    return y.conj() if trans == ADJOINT else y


def _gemm_transpose(cts: Sequence, a: Any, b: Any, **params: Any) -> list:
    attrs, deal = dict(params["attrs"]), params["deal"]
    trans, form_a = attrs["trans"], attrs["form_a"]
    ct = ad.instantiate_zeros(cts[0])
    c = keep(Matrix(ct, deal, attrs["m"], attrs["n"]), attrs["form_c"])
    first, second = _gemm_matrices(attrs, deal, a, b)
    if ad.is_undefined_primal(a):
        return [_product_transposed(c, second, trans, form_a).data, None]
    # op(a)ᵀ: a itself if op transposes, conjugated for the adjoint
    way = PLAIN if trans == NONE else NONE
    first = first.conj() if trans == ADJOINT else first
    return [None, gemm(first, c, trans=way, form_a=form_a).data]


# ---- trsm ----------------------------------------------------------------------------------------


def _solution(a: Matrix, b: Matrix) -> tuple[Part, dict]:
    """The solution for b, which may be whole on every device, and how the core is told so."""
    is_dealt = not isinstance(b.deal, Whole)
    out = Part((a.n, b.n) if is_dealt else (b.n, a.n), a.dtype.name, is_dealt)
    return out, {"n": a.n, "n_rhs": b.n, "whole": int(not is_dealt)}


def trsm(
    a: Matrix,
    b: Matrix,
    uplo: int = LOWER,
    trans: int = NONE,
    diag: int = NON_UNIT,
    form: int = GENERAL,
    donate: bool = False,
) -> Matrix:
    """op(a)⁻¹ b of a triangular a; form IS_LOWER: with a lower op(a), b is lower, too.

    If every device has b whole, the result is whole as well.
    """
    if not jnp.issubdtype(a.dtype, jnp.complexfloating):
        trans = min(trans, PLAIN)
    out, given = _solution(a, b)
    given |= {"uplo": uplo, "trans": trans, "diag": diag, "form": form}
    [x] = bind("trsm", b.deal.dealt, (a, b), (out,), donate, **given)
    return b.with_data(x)


def _trsm_ways(attrs: dict) -> dict:
    return {name: attrs[name] for name in ("uplo", "trans", "diag", "form")}


def _rhs(attrs: dict, deal: Deal, data: Any) -> Matrix:
    """The right-hand side, or the solution."""
    return Matrix(data, deal.whole if attrs["whole"] else deal, attrs["n"], attrs["n_rhs"])


def _triangle(attrs: dict) -> int:
    """The form of trsm's a in gemm's terms."""
    return 1 + attrs["uplo"] + 2 * attrs["diag"]


def _trsm_jvp(primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    attrs, deal = dict(params["attrs"]), params["deal"]
    n, ways = attrs["n"], _trsm_ways(attrs)
    a, b = Matrix(primals[0], deal, n, n), _rhs(attrs, deal, primals[1])
    x = trsm(a, b, **ways)
    rhs = None
    if type(tangents[1]) is not ad.Zero:
        rhs = b.with_data(tangents[1])
    if type(tangents[0]) is not ad.Zero:
        da, form_a = _tangent_form(a.with_data(tangents[0]), _triangle(attrs))
        moved = gemm(da, x, trans=ways["trans"], form_a=form_a, form_c=ways["form"])
        rhs = -moved if rhs is None else rhs - moved
    if rhs is None:
        return [x.data], [_jax.zero_tangent(x.data)]
    return [x.data], [trsm(a, rhs, **ways).data]


def _trsm_transpose(cts: Sequence, a: Any, b: Any, **params: Any) -> list:
    attrs, deal = dict(params["attrs"]), params["deal"]
    n, ways = attrs["n"], _trsm_ways(attrs)
    trans, form = ways.pop("trans"), ways.pop("form")
    x = _rhs(attrs, deal, ad.instantiate_zeros(cts[0]))
    a = Matrix(a, deal, n, n)
    a = a.conj() if trans == ADJOINT else a
    way = PLAIN if trans == NONE else NONE
    y = trsm(a, keep(x, form), trans=way, **ways)
    return [None, keep(y, form).data]


# ---- factorizations ------------------------------------------------------------------------------


def potrf(a: Matrix) -> tuple[Matrix, Any]:
    """The lower Cholesky factor, and 0 or the order of the leading minor that is not positive."""
    outs = (Part((a.n, a.n), a.dtype.name), Part((1,), "int32", False))
    low, info = bind("potrf", a.deal, (a,), outs, n=a.n, grid=0, donate=True)
    return a.with_data(low), a.deal.one_value(info[0])


def potrs(low: Matrix, b: Matrix) -> Matrix:
    """(low lowᴴ)⁻¹ b; if every device has b whole, the result is whole as well."""
    out, given = _solution(low, b)
    [x] = bind("potrs", b.deal.dealt, (low, b), (out,), **given)
    return b.with_data(x)


def potri(low: Matrix) -> Matrix:
    """The lower triangle of (low lowᴴ)⁻¹, zero above."""
    [y] = bind("potri", low.deal, (low,), (Part((low.n, low.n), low.dtype.name),), n=low.n)
    return low.with_data(y)


def getrf(a: Matrix) -> tuple[Matrix, Any, Any]:
    """L below the diagonal, and U; the row exchanges; 0 or the order of the first zero pivot."""
    m, n, kind = a.m, a.n, a.dtype.name
    outs = (Part((m, n), kind), Part((min(m, n),), "int32", False), Part((1,), "int32", False))
    lu, pivots, info = bind("getrf", a.deal, (a,), outs, donate=True, m=m, n=n)
    pivots, info = a.deal.one_value(pivots), a.deal.one_value(info[0])
    return a.with_data(lu), pivots, info


def geqrf(a: Matrix) -> tuple[Matrix, Any]:
    """R and the reflectors below it, and the factors of the reflectors."""
    m, n, kind = a.m, a.n, a.dtype.name
    outs = (Part((m, n), kind), Part((min(m, n),), kind, False))
    qr, tau = bind("geqrf", a.deal, (a,), outs, donate=True, m=m, n=n)
    return a.with_data(qr), a.deal.one_value(tau)


def ormqr(qr: Matrix, tau: Any, c: Matrix, trans: int) -> Matrix:
    """Q c, or Qᴴ c with ADJOINT."""
    out = Part((c.m, c.n), c.dtype.name)
    given = {"m": c.m, "k": tau.shape[0], "n": c.n, "trans": int(trans == ADJOINT)}
    [y] = bind("ormqr", c.deal, (qr, tau, c), (out,), **given)
    return c.with_data(y)


def real_of(dtype: Any) -> str:
    """The name of the dtype of real parts."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)


def heevd(a: Matrix, first: int, n_vectors: int) -> tuple[Any, Matrix, Any]:
    """Eigenvalues, a number of eigenvectors from a first one on, and 0 or LAPACK's info."""
    n, deal = a.n, a.deal
    at_once = deal.with_block(max(1, -(-n_vectors // deal.n_ranks)))
    outs = (
        Part((n,), real_of(a.dtype), False),
        Part((n, n_vectors), a.dtype.name, True, at_once.block),
        Part((1,), "int32", False),
    )
    w, v, info = bind("heevd", deal, (a,), outs, n=n, first=first, vectors=n_vectors)
    w, info = deal.one_value(w), deal.one_value(info[0])
    return w, Matrix(v, at_once, n, n_vectors), info
