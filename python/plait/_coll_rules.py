"""Shapes and derivatives of the collectives.

Adjoints are those of the linear map on the arrays of all ranks, unless a result counts as one value
(`_is_one_value`). Then a cotangent belongs to that value and is equal on all ranks, so that no
message is needed to take each rank's part of it. The formulas are in docs/gradients.md.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad
from plait import _core, _errors, _jax, _layout, _sites
from plait._ops import Chain, Rules, active, aval_of, rules, spread, undonated

EXACT, REPLICATED, CHECKED = 0, 1, 2  # the parameter `replicated`


def code(name: str) -> int:
    """The core's number of a reduction."""
    return _core.reductions().index(name)


SUM = code("SUM")


def my_rank(chain: Chain, group: Any) -> Any:
    """This rank's number, known only at run time: the program is equal on all ranks."""
    if group.size == 1:
        return jnp.zeros((), jnp.int32)
    if group.over:
        sizes, rank = dict(group.mesh), jnp.zeros((), jnp.int32)
        for axis in group.over:
            rank = rank * sizes[axis] + jax.lax.axis_index(axis)
        return rank
    n = group.size
    [own] = chain.call(
        "redistribute",
        jnp.arange(n, dtype=jnp.int32),
        **{"from": _layout.words((n,), (n,), ((),))},
        to=_layout.words((n,), (n,), ((0,),)),
        turn=0,
        out_shape=(1,),
        donate=False,
        group=group,
    )
    return own[0]


def _check_sum(name: str, cts: Sequence) -> None:
    """An adjoint that adds up needs a dtype that can be added."""
    for ct in cts:
        if not _core.reduce_is_defined(SUM, ct.dtype.name):
            raise TypeError(f"{name}: its adjoint is a SUM, which {ct.dtype.name} does not have")


def _here(group: Any) -> int:
    """A rank to take shapes from; in a manual region all ranks are alike."""
    return 0 if group.rank is None else group.rank


def _sum(chain: Chain, xs: Sequence, params: dict) -> list:
    """The sum over the ranks, in the convention of the parameters."""
    given = {name: params[name] for name in ("group", "replicated")}
    return chain.call("allreduce", *xs, reduce=SUM, donate=False, **given)


# ---- results that are one value, with a copy on each rank ------------------------------------


def _is_one_value(params: dict) -> bool:
    return params["group"].checks or params["replicated"] != EXACT


def _raise_if(is_different: Any, name: str, site: int) -> np.ndarray:
    if np.any(is_different):
        line = _core.site_text(site)
        raise _errors.ReplicationError(
            f"plait.ReplicationError: {name}: replicated=True, but the cotangents of its result "
            "differ between the ranks: one of them uses the value in its own way. Pass the value "
            "through plait.pvary there, or leave replicated=True away"
            + (f" at {line}" if line else "")
        )
    return np.zeros(np.shape(is_different), np.float32)


def _differs(mine: Any, first: Any) -> Any:
    """Whether an array differs from that of rank 0 by more than rounding."""
    sizes = jnp.where(jnp.isfinite(first), jnp.abs(first), 0)
    room = math.sqrt(jnp.finfo(mine.dtype).eps) * jnp.max(sizes, initial=0)
    is_near = (mine == first) | (jnp.abs(mine - first) <= room)
    return jnp.any(~is_near & ~(jnp.isnan(mine) & jnp.isnan(first)))


def _checked(name: str, chain: Chain, cts: Sequence, group: Any) -> list:
    """The cotangents, or a ReplicationError on all ranks."""
    site = _sites.here() if chain.site is None else chain.site
    mine = [jax.lax.stop_gradient(ct) for ct in cts]
    first = chain.call("bcast", *mine, root=0, replicated=EXACT, donate=False, group=group)
    differs = [_differs(a, b) for a, b in zip(mine, first, strict=True)]
    [differs] = chain.call(
        "allreduce",
        jnp.any(jnp.stack(differs)).astype(jnp.int32),
        reduce=code("MAX"),
        replicated=EXACT,
        donate=False,
        group=group,
    )
    zero = jax.pure_callback(
        lambda d: _raise_if(d, name, site),
        jax.ShapeDtypeStruct((), jnp.float32),
        differs,
        vmap_method="expand_dims",
    )
    return [ct + zero.astype(ct.dtype) for ct in cts]


def _of_one_value(name: str, chain: Chain, cts: Sequence, params: dict) -> list:
    """The cotangents of one value, as arrays of which each rank has its own."""
    group = params["group"]
    if group.checks:
        return [_jax.pcast_varying(ct, group.over) for ct in cts]
    if params["replicated"] == CHECKED:
        cts = _checked(name, chain, cts, group)
    return chain.call("pvary", *cts, group=group)


def _pvary_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    return _sum(chain, cts, {"group": params["group"], "replicated": REPLICATED})


rules("pvary", Rules(transpose=_pvary_transpose))

# ---- allreduce -------------------------------------------------------------------------------


def _copies(operand: Any, group: Any) -> int:
    """How often a sum over the devices counts an operand that does not vary over all axes."""
    varying = _jax.vma_of_aval(aval_of(operand))
    sizes = dict(group.mesh)
    return math.prod(sizes[a] for a in group.over if a not in varying)


def _allreduce_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    group = params["group"]
    if params["reduce"] != SUM:
        name = _core.reductions()[params["reduce"]]
        raise TypeError(f"allreduce: {name} is not a linear function, only SUM is")
    if group.checks:
        copies = [_copies(x, group) for x in args]
        return [ct * n if n != 1 else ct for ct, n in zip(cts, copies, strict=True)]
    if _is_one_value(params):
        return _of_one_value("allreduce", chain, cts, params)
    return _sum(chain, cts, params)


def _weights(chain: Chain, xs: Sequence, ys: Sequence, group: Any) -> list:
    """1 / ties where this rank has the extreme value, 0 elsewhere, as in jnp.max."""
    has = [(x == y).astype(x.dtype) for x, y in zip(xs, ys, strict=True)]
    ties = _sum(chain, has, {"group": group, "replicated": EXACT})
    return [h / n for h, n in zip(has, ties, strict=True)]


def _products_of_others(chain: Chain, xs: Sequence, group: Any) -> list:
    """The product over the other ranks, by prefix and suffix products, since factors may be zero.

    Gathering every rank's operand takes P times the memory of the product, but gives derivatives of
    any order.
    """
    me = my_rank(chain, group)
    every = chain.call("allgather", *xs, counts=(), replicated=EXACT, group=group)
    others = []
    for x in every:
        ones = jnp.ones_like(x[:1])
        before = jnp.cumprod(jnp.concatenate([ones, x[:-1]]), axis=0)
        after = jnp.cumprod(jnp.concatenate([ones, x[:0:-1]]), axis=0)[::-1]
        others.append(jax.lax.dynamic_index_in_dim(before * after, me, 0, keepdims=False))
    return others


def _terms(chain: Chain, xs: Sequence, ys: Sequence, dxs: Sequence, params: dict) -> list:
    """The terms whose sum over the ranks is a reduction's tangent."""
    name, group = _core.reductions()[params["reduce"]], params["group"]
    if name == "SUM":
        return list(dxs)
    if name == "PROD":
        factors = _products_of_others(chain, xs, group)
    else:
        factors = _weights(chain, xs, ys, group)
    return [f * dx for f, dx in zip(factors, dxs, strict=True)]


def _allreduce_jvp(
    primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    keeps = params["reduce"] != SUM  # keeps the operands for their derivatives
    ys = primal.call("allreduce", *args, **(undonated(params) if keeps else params))
    places = active(args)
    if not places:
        return ys, spread(ys, (), ())
    xs, active_ys = [args[i] for i in places], [ys[i] for i in places]
    dxs = [ad.instantiate_zeros(tangents[i]) for i in places]
    terms = _terms(primal, xs, active_ys, dxs, params)
    return ys, spread(ys, places, _sum(tangent, terms, params))


rules(
    "allreduce",
    Rules(
        _allreduce_transpose,
        jvp=_allreduce_jvp,
        overlaps=lambda params: params["reduce"] == SUM and not _is_one_value(params),
        reduces=True,
        is_invariant=True,
    ),
)

# ---- bcast and reduce ------------------------------------------------------------------------


def _bcast_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    group, root = params["group"], params["root"]
    if _is_one_value(params):
        cts = _of_one_value("bcast", chain, cts, params)
        is_root = my_rank(chain, group) == root
        return [jnp.where(is_root, ct, jnp.zeros_like(ct)) for ct in cts]
    _check_sum("bcast", cts)
    return chain.call("reduce", *cts, reduce=SUM, root=root, elsewhere=0, group=group)


def _add_elsewhere(
    chain: Chain, results: Sequence, passed: Sequence, root: int, group: Any
) -> list:
    """On ranks other than the root, adds what was passed through."""
    if group.rank is not None:
        is_root = group.rank == root
        return [y if is_root else y + x for y, x in zip(results, passed, strict=True)]
    is_root = my_rank(chain, group) == root
    zeros = [jnp.where(is_root, jnp.zeros_like(x), x) for x in passed]
    return [y + z for y, z in zip(results, zeros, strict=True)]


def _reduce_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    group, root = params["group"], params["root"]
    if params["reduce"] != SUM:
        name = _core.reductions()[params["reduce"]]
        raise TypeError(f"reduce: {name} is not a linear function, only SUM is")
    plain = {"root": root, "replicated": EXACT, "donate": False, "group": group}
    results = chain.call("bcast", *cts, **plain)
    return _add_elsewhere(chain, results, cts, root, group) if params["elsewhere"] else results


def _reduce_jvp(
    primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    group, root = params["group"], params["root"]
    ys = primal.call("reduce", *args, **params)
    places = active(args)
    if not places:
        return ys, spread(ys, (), ())
    xs = [args[i] for i in places]
    dxs = [ad.instantiate_zeros(tangents[i]) for i in places]
    if params["reduce"] == SUM:
        return ys, spread(ys, places, tangent.call("reduce", *dxs, **params))
    extremes = [ys[i] for i in places]
    if params["reduce"] != code("PROD"):
        plain = {"root": root, "replicated": EXACT, "donate": False, "group": group}
        extremes = primal.call("bcast", *extremes, **plain)
    terms = _terms(primal, xs, extremes, dxs, params)
    plain = params | {"reduce": SUM, "elsewhere": 0}
    d_ys = tangent.call("reduce", *terms, **plain)
    if params["elsewhere"]:
        d_ys = _add_elsewhere(tangent, d_ys, dxs, root, group)
    return ys, spread(ys, places, d_ys)


def _overlaps_if_summed(params: dict) -> bool:
    """If the region tracks single values, the adjoint's result is one, and differs in kind."""
    return params["reduce"] == SUM and not params["group"].checks


rules(
    "bcast",
    Rules(_bcast_transpose, overlaps=lambda params: not _is_one_value(params), is_invariant=True),
)
rules(
    "reduce",
    Rules(
        _reduce_transpose,
        jvp=_reduce_jvp,
        overlaps=lambda params: _overlaps_if_summed(params) and not params["elsewhere"],
        reduces=True,
    ),
)

# ---- barrier ---------------------------------------------------------------------------------

rules(
    "barrier",
    Rules(
        transpose=lambda chain, cts, args, params: [],
        jvp=lambda primal, tangent, args, tangents, params: (
            primal.call("barrier", **params),
            [],
        ),
        overlaps=lambda params: False,
    ),
)

# ---- allgather and reduce_scatter -----------------------------------------------------------


def _allgather_frame(params: dict) -> tuple[int, tuple[int, ...]]:
    counts = params["counts"]
    return (1, (sum(counts),)) if counts else (0, (params["group"].size,))


def _reduce_scatter_frame(params: dict) -> tuple[int, tuple[int, ...]]:
    counts = params["counts"]
    return 1, (counts[_here(params["group"])],) if counts else ()


def _own_block(ct: Any, operand: Any, me: Any, counts: Sequence[int]) -> Any:
    if not counts:
        return jax.lax.dynamic_index_in_dim(ct, me, 0, keepdims=False)
    starts = jnp.asarray(np.cumsum([0, *counts[:-1]]), jnp.int32)
    n_rows = aval_of(operand).shape[0]
    return jax.lax.dynamic_slice_in_dim(ct, starts[me], n_rows, 0)


def _allgather_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    group, counts = params["group"], params["counts"]
    if _is_one_value(params):
        cts = _of_one_value("allgather", chain, cts, params)
        me = my_rank(chain, group)
        return [_own_block(ct, x, me, counts) for ct, x in zip(cts, args, strict=True)]
    _check_sum("allgather", cts)
    return chain.call("reduce_scatter", *cts, reduce=SUM, counts=counts, group=group)


def _only_sum(name: str, params: dict) -> None:
    if params["reduce"] != SUM:
        reduction = _core.reductions()[params["reduce"]]
        raise TypeError(
            f"{name}: {reduction} has no derivative here, only SUM has; stop_gradient the operand"
        )


def _linear_jvp_of_sum(row: str, name: Any) -> Any:
    """The jvp of a reduction that has derivatives only for SUM."""

    def jvp(
        primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
    ) -> tuple[list, list]:
        ys = primal.call(row, *args, **params)
        places = active(args)
        if places:
            _only_sum(name(params), params)
        dxs = [ad.instantiate_zeros(tangents[i]) for i in places]
        return ys, spread(ys, places, tangent.call(row, *dxs, **params) if places else ())

    return jvp


def _reduce_scatter_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    _only_sum("reduce_scatter", params)
    group, counts = params["group"], params["counts"]
    return chain.call("allgather", *cts, counts=counts, replicated=EXACT, group=group)


rules(
    "allgather",
    Rules(
        _allgather_transpose,
        frame=_allgather_frame,
        overlaps=lambda params: not _is_one_value(params),
        is_invariant=True,
    ),
)
rules(
    "reduce_scatter",
    Rules(
        _reduce_scatter_transpose,
        frame=_reduce_scatter_frame,
        jvp=_linear_jvp_of_sum(
            "reduce_scatter", lambda p: "reduce_scatterv" if p["counts"] else "reduce_scatter"
        ),
        overlaps=_overlaps_if_summed,
        reduces=True,
    ),
)

# ---- scan ------------------------------------------------------------------------------------


def _scan_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    _only_sum("scan", params)
    return chain.call("scan", *cts, **(params | {"reverse": 1 - params["reverse"]}))


rules(
    "scan",
    Rules(
        _scan_transpose,
        jvp=_linear_jvp_of_sum("scan", lambda p: "exscan" if p["exclusive"] else "scan"),
        overlaps=lambda params: params["reduce"] == SUM,
        reduces=True,
    ),
)

# ---- gather and scatter: the shapes of the root are its own -----------------------------------


def _part(params: dict) -> tuple[int, tuple[int, ...]]:
    """The frame if operand and result are one rank's block."""
    counts = params["counts"]
    return (1, (counts[params["group"].rank],)) if counts else (0, ())


def _gather_frame(params: dict) -> tuple[int, tuple[int, ...]]:
    group, counts = params["group"], params["counts"]
    if group.rank != params["root"]:
        return _part(params)
    return (1, (sum(counts),)) if counts else (0, (group.size,))


def _scatter_frame(params: dict) -> tuple[int, tuple[int, ...]]:
    if params["group"].rank != params["root"]:
        return _part(params)
    return 1, _part(params)[1]


def _gather_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    plain = {name: params[name] for name in ("root", "counts", "group")}
    results = chain.call("scatter", *cts, **plain)
    if not params["elsewhere"]:
        return results
    return _add_elsewhere(chain, results, cts, params["root"], params["group"])


def _scatter_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    return chain.call("gather", *cts, elsewhere=0, **params)


rules(
    "gather",
    Rules(_gather_transpose, frame=_gather_frame, overlaps=lambda params: not params["elsewhere"]),
)
rules("scatter", Rules(_scatter_transpose, frame=_scatter_frame))

# ---- alltoall --------------------------------------------------------------------------------


def _alltoall_frame(params: dict) -> tuple[int, tuple[int, ...]]:
    n, counts = params["group"].size, params["counts"]
    return 1, (sum(counts[_here(params["group"]) :: n]),) if counts else (n,)


def _alltoall_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    n, counts = params["group"].size, params["counts"]
    back = tuple(counts[j * n + i] for i in range(n) for j in range(n)) if counts else ()
    return chain.call("alltoall", *cts, counts=back, group=params["group"])


rules("alltoall", Rules(_alltoall_transpose, frame=_alltoall_frame))

# ---- route -----------------------------------------------------------------------------------


def _route_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    """Every block goes back along its edge; copies of one block are summed."""
    flat, group = params["edges"], params["group"]
    edges = [flat[i : i + 4] for i in range(0, len(flat), 4)]
    given = {"n_in": params["n_out"], "group": group}
    if len({(source, block) for source, block, _, _ in edges}) == len(edges):
        back = tuple(word for s, b, d, e in edges for word in (d, e, s, b))
        return chain.call("route", *cts, edges=back, n_out=params["n_in"], **given)
    me, sent, back = _here(group), [0] * group.size, ()
    places: list[list[int]] = [[] for _ in range(params["n_in"])]
    for source, block, dest, dest_block in edges:
        back += (dest, dest_block, source, sent[source])
        if source == me:
            places[block].append(sent[source])
        sent[source] += 1
    results = chain.call("route", *cts, edges=back, n_out=sent[me], **given)
    if not places:
        return results
    return [jnp.stack([jnp.sum(y[np.array(p, int)], 0) for p in places]) for y in results]


rules("route", Rules(_route_transpose, frame=lambda params: (1, (params["n_out"],))))
