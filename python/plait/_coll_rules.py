"""Shapes, derivatives and batching of the rank model's operations."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad
from plait import _core, _jax, _layout
from plait._comm import ANY_SOURCE, ANY_TAG, PROC_NULL, _effect_ids
from plait._ops import Chain, Rules, is_inexact, rules


def _code(name: str) -> int:
    return _core.reductions().index(name)


def _invariant(aval: Any, params: dict) -> Any:
    """The aval of a result that is equal on all devices of the axes it was reduced over."""
    axes = params["over"]
    vma = _jax.vma_of_aval(aval)
    return _jax.with_vma(aval, vma - frozenset(axes)) if axes and vma else aval


def _same(avals: Sequence, params: dict) -> list:
    return [_invariant(avals[0], params)]


def _aval_of(x: Any) -> Any:
    return x.aval if ad.is_undefined_primal(x) else jax.typeof(x)


def _spread(ct: Any, operand: Any, params: dict) -> Any:
    """Adjoint of a sum whose result counts once over the axes: no message is needed."""
    vma = _jax.vma_of_aval(_aval_of(operand))
    copies = params["copies"] if not vma else 1
    return _jax.pcast_varying(ct * copies if copies != 1 else ct, sorted(vma))


# ---- allreduce ---------------------------------------------------------------------------


def _allreduce_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    if params["reduce"] != _code("SUM"):
        name = _core.reductions()[params["reduce"]]
        raise TypeError(f"allreduce: {name} is not a linear function, only SUM is")
    if params["checks"]:
        return [_spread(cts[0], args[0], params)]
    return chain.call("allreduce", cts[0], **params)


def _sum(chain: Chain, x: Any, params: dict) -> Any:
    plain = params | {"reduce": _code("SUM"), "donate": False}
    return chain.call("allreduce", x, **plain)[0]


def _extreme_weight(chain: Chain, x: Any, y: Any, params: dict) -> Any:
    """1 / ties where this rank has the extreme value, 0 elsewhere, as in jnp.max."""
    has = (x == y).astype(x.dtype)
    return has / _sum(chain, has, params)


def _is_me(params: dict) -> Any:
    """One-hot vector of this rank, known at run time only: the program is equal on all ranks."""
    comm = params["comm"]
    if not isinstance(comm, int):
        names, sizes = params["over"], params["sizes"]
        index = jnp.zeros((), jnp.int32)
        for axis, size in zip(names, sizes, strict=True):
            index = index * size + jax.lax.axis_index(axis)
        return jnp.arange(params["copies"], dtype=jnp.int32) == index
    size = _effect_ids[comm].size
    own = Chain().call(
        "redistribute",
        jnp.eye(size, dtype=jnp.int8),
        **{"from": _layout.words((size, size), (size,), ((), ()))},
        to=_layout.words((size, size), (size,), ((0,), ())),
        comm=_effect_ids[comm].id("effect"),
        out_shape=(1, size),
        donate=False,
        site=params["site"],
    )[0]
    return own[0] == 1


def _product_of_others(chain: Chain, x: Any, params: dict) -> Any:
    """The product over the other ranks by prefix and suffix products: factors may be zero.

    Every rank's x is gathered by a sum of arrays that have one row each: P times the memory
    and traffic of the product itself.
    """
    me = _is_me(params).reshape(-1, *(1,) * jnp.ndim(x))
    every = _sum(chain, jnp.where(me, x[None], jnp.zeros((), x.dtype)), params)
    ones = jnp.ones_like(every[:1])
    before = jnp.cumprod(jnp.concatenate([ones, every[:-1]]), axis=0)
    after = jnp.cumprod(jnp.concatenate([ones, every[:0:-1]]), axis=0)[::-1]
    others = jnp.where(me, before * after, jnp.zeros((), x.dtype))
    return jnp.sum(others, axis=0, dtype=x.dtype)


def _allreduce_jvp(
    primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    [x], [dx] = args, tangents
    [y] = primal.call("allreduce", x, **params)
    if not is_inexact(x):
        return [y], [_jax.zero_tangent(y)]
    dx = ad.instantiate_zeros(dx)
    name = _core.reductions()[params["reduce"]]
    if name in ("MIN", "MAX"):
        dx = _extreme_weight(primal, x, y, params) * dx
    elif name == "PROD":
        dx = _product_of_others(primal, x, params) * dx
    return [y], [_sum(tangent, dx, params)]


rules("allreduce")(Rules(results=_same, transpose=_allreduce_transpose, jvp=_allreduce_jvp))

# ---- bcast and its adjoint -----------------------------------------------------------------


def _bcast_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    if params["checks"]:
        ct = _jax.pcast_varying(cts[0], sorted(_jax.vma_of_aval(_aval_of(args[0]))))
        at_root = _is_me(params)[params["at"]]
        return [jnp.where(at_root, ct, jnp.zeros_like(ct))]
    extra = {"reduce": _code("SUM"), "elsewhere": 0, "donate": False}
    return chain.call("reduce", cts[0], **(params | extra))


def _reduce_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    plain = {k: v for k, v in params.items() if k != "reduce"}
    return chain.call("bcast", cts[0], **(plain | {"donate": False}))


rules("bcast")(Rules(results=_same, transpose=_bcast_transpose))
rules("reduce")(Rules(results=lambda avals, params: [avals[0]], transpose=_reduce_transpose))

# ---- barrier ---------------------------------------------------------------------------------

rules("barrier")(
    Rules(
        results=lambda avals, params: [],
        transpose=lambda chain, cts, args, params: [],
        jvp=lambda primal, tangent, args, tangents, params: (
            primal.call("barrier", **params),
            [],
        ),
    )
)

# ---- sendrecv ---------------------------------------------------------------------------------


def _nothing() -> Any:
    return jnp.zeros((0,), jnp.float32)


def _sendrecv_jvp(
    primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    [y] = primal.call("sendrecv", *args, **params)
    plain = params | {"status": 0, "donate": False}
    dsend, dtemplate = tangents
    # A side without derivatives has no message; its partner knows that from the dtype.
    if is_inexact(args[0]):
        dsend = ad.instantiate_zeros(dsend)
    else:
        dsend, plain["dest"] = _nothing(), PROC_NULL
    if not is_inexact(y):
        if plain["dest"] != PROC_NULL:
            tangent.call("sendrecv", dsend, _nothing(), **(plain | {"source": PROC_NULL}))
        return [y], [_jax.zero_tangent(y)]
    dtemplate = ad.instantiate_zeros(dtemplate)
    return [y], tangent.call("sendrecv", dsend, dtemplate, **plain)


def _sendrecv_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    """The message goes back: source and dest, sendtag and recvtag change places."""
    if params["source"] == ANY_SOURCE:
        raise ValueError(
            "sendrecv: the adjoint of source=ANY_SOURCE needs to know who sent; give the rank"
        )
    sent = _aval_of(args[0])
    template = jnp.zeros(sent.shape, sent.dtype)
    back = params | {
        "source": params["dest"],
        "dest": params["source"],
        "sendtag": params["sendtag"] if params["recvtag"] == ANY_TAG else params["recvtag"],
        "recvtag": params["sendtag"],
        "status": 0,
        "donate": False,
    }
    if params["source"] == PROC_NULL:  # the template was the result
        [ct_sent] = chain.call("sendrecv", jnp.zeros_like(cts[0]), template, **back)
        return [ct_sent, cts[0]]
    [ct_sent] = chain.call("sendrecv", cts[0], template, **back)
    return [ct_sent, jnp.zeros_like(cts[0])]


rules("sendrecv")(
    Rules(
        results=lambda avals, params: [avals[1]],
        transpose=_sendrecv_transpose,
        jvp=_sendrecv_jvp,
    )
)
