"""JAX primitives of the operations of the C core, made in a loop over its table.

Each operation has two primitives: one with the ordered effect, one with an explicit token
as last operand and result. Derivative and batching rules are written once, on a `Chain`.

An operation of the rank model takes any number of arrays, the leaves of a pytree: JAX
differentiates and batches each with its own dtype, and only the lowering packs them into the
one message that the core sees (`_pack`). Packing outside of the primitive would have to hide
floating-point numbers in bytes, where they have no derivatives.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir
from plait import _core, _jax, _pack, _sites


@dataclasses.dataclass(frozen=True)
class Rules:
    """What JAX needs to know of an operation; the defaults fit a linear elementwise one.

    frame: from the parameters, how many leading axes of an operand have a meaning, and the
        leading axes that a result has in their place. All other axes are payload: they are
        packed together, and vmap puts its axis first among them.
    results: result avals from operand avals and parameters, where the frame does not say.
    transpose: operand cotangents from (chain, result cotangents, operands, parameters);
        None: not a linear operation.
    jvp: (primal chain, tangent chain, operands, tangents, parameters) to both results.
    joins: results from (chain, operands, parameters) for several leaves.
    reduces: computes with the elements, so that different dtypes are different messages.
    is_invariant: the result is equal on all ranks.
    """

    transpose: Callable[["Chain", Sequence, Sequence, dict], list] | None
    frame: Callable[[dict], tuple[int, tuple[int, ...]]] = lambda params: (0, ())
    results: Callable[[Sequence, dict], list] | None = None
    jvp: Callable[..., tuple[list, list]] | None = None
    joins: Callable[["Chain", Sequence, dict], list] | None = None
    reduces: bool = False
    is_invariant: bool = False


class Chain:
    """A sequence of operations: by the effect (token None) or by an explicit token.

    site: the line that what has none of its own is called for; None: the line now.
    """

    def __init__(self, token: Any = None, site: int | None = None):
        self.token, self.site = token, site

    def call(self, name: str, *args: Any, **params: Any) -> list:
        """Binds the operation and moves the token on."""
        operation = operations()[name]
        if "site" not in params:
            params["site"] = _sites.here() if self.site is None else self.site
        if self.token is None:
            return operation.effect_p.bind(*args, **params)
        *results, self.token = operation.token_p.bind(*args, self.token, **params)
        return results


class _SiblingChain(Chain):
    """The effect's chain for operations whose communicator is that of a token's chain."""

    def call(self, name: str, *args: Any, **params: Any) -> list:
        return super().call(name, *args, **(params | {"group": params["group"].by_effect()}))


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row of the C table with its two primitives and its rules; row None: no such row."""

    name: str
    row: _core.Row | None
    rules: Rules
    effect_p: Any
    token_p: Any


_RULES: dict[str, Rules] = {}


def rules(name: str, given: Rules) -> None:
    """Registers the rules of an operation; done by the module of its family."""
    _RULES[name] = given


@functools.cache
def operations() -> dict[str, Operation]:
    """All operations that have rules, by name: those of the core, and `pvary`."""
    from plait import _coll_rules, _mesh_rules, _p2p_rules  # noqa: F401 - they register rules

    rows = _core.rows()
    return {name: _make(name, rows.get(name), given) for name, given in _RULES.items()}


def _make(name: str, row: _core.Row | None, given: Rules) -> Operation:
    effect_p = jex.Primitive("plait_" + name)
    token_p = jex.Primitive("plait_" + name + "_token")
    operation = Operation(name, row, given, effect_p, token_p)
    if row is not None:
        handler = jax.ffi.pycapsule(getattr(_core.lib, row.symbol))
        jax.ffi.register_ffi_target(row.target, handler, platform="cpu")
    for primitive, has_token in ((effect_p, False), (token_p, True)):
        primitive.multiple_results = True
        _jax.def_eager(primitive, functools.partial(_donated, row))
        _jax.needs_devices(primitive)
        mlir.register_lowering(
            primitive, functools.partial(_lower, operation, has_token), platform="cpu"
        )
        ad.primitive_jvps[primitive] = functools.partial(_jvp, operation, has_token)
        ad.primitive_transposes[primitive] = functools.partial(_transpose, operation, has_token)
        batching.primitive_batchers[primitive] = functools.partial(_batch, operation, has_token)
    if row is None:
        effect_p.def_abstract_eval(functools.partial(_results, given))
    else:
        _jax.saves_unless_complex(effect_p)
        effect_p.def_effectful_abstract_eval(
            lambda *avals, **params: (_results(given, *avals, **params), {_jax.EFFECT})
        )
    token_p.def_abstract_eval(
        lambda *avals, **params: [*_results(given, *avals[:-1], **params), avals[-1]]
    )
    return operation


def _results(given: Rules, *avals: Any, **params: Any) -> list:
    if given.results is not None:
        return given.results(avals, params)
    n, lead = given.frame(params)
    results = [a.update(shape=(*lead, *a.shape[n:])) for a in avals]
    if not given.is_invariant:
        return results
    over = frozenset(params["group"].over)
    return [_jax.with_vma(a, _jax.vma_of_aval(a) - over) for a in results]


def _donated(row: _core.Row | None, params: dict) -> tuple[int, ...]:
    return (row.alias,) if params.get("donate") and row is not None and row.alias >= 0 else ()


# ---- lowering ----------------------------------------------------------------------------------


def _lower(operation: Operation, has_token: bool, ctx: Any, *args: Any, **params: Any) -> Any:
    row = operation.row
    if row is None:  # moves nothing
        return args
    if len(args) - has_token > row.n_args:
        return _lower_joined(operation, has_token, ctx, *args, **params)
    attrs: dict[str, Any] = {name: int(params[name]) for name in row.scalars}
    attrs |= {name: float(params[name]) for name in row.floats}
    attrs |= {name: np.asarray(params[name], np.int64) for name in row.arrays}
    attrs["comm"] = params["group"].number(_jax.lowering_devices(ctx))
    attrs["site"] = params["site"]
    aliases = {i: 0 for i in _donated(row, params)}
    if has_token:
        aliases[row.n_args] = row.n_rets
    rule = jax.ffi.ffi_lowering(
        row.target, has_side_effect=True, operand_output_aliases=aliases or None
    )
    if has_token:
        return rule(ctx, *args, **attrs)
    return _jax.lower_ordered(ctx, rule, args, attrs)


def _lower_joined(
    operation: Operation, has_token: bool, ctx: Any, *args: Any, **params: Any
) -> Any:
    """Several leaves: packs them, binds the operation on what is packed, and unpacks."""
    params |= {"donate": False} if "donate" in params else {}

    def joined(*args: Any) -> list:
        chain = Chain(args[-1] if has_token else None, params["site"])
        leaves = args[: len(args) - has_token]
        if operation.rules.joins is not None:
            results = operation.rules.joins(chain, leaves, params)
        else:
            results = _call_joined(operation, chain, leaves, params)
        return [*results, chain.token] if has_token else results

    return _jax.lower_traced(ctx, joined, args, is_local=True)


def _call_joined(operation: Operation, chain: Chain, leaves: Sequence, params: dict) -> list:
    n, lead = operation.rules.frame(params)
    results: list[Any] = [None] * len(leaves)
    for places in _pack.messages(leaves, operation.rules.reduces):
        packed = _pack.Packed([leaves[i] for i in places], n)
        [y] = chain.call(operation.name, packed.buffer, **params)
        for i, part in zip(places, packed.unpack(y, lead), strict=True):
            results[i] = part
    return results


# ---- derivatives ---------------------------------------------------------------------------------


def is_inexact(x: Any) -> bool:
    """Whether a value has derivatives."""
    return jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)


def active(args: Sequence) -> list[int]:
    """The places of the operands that have derivatives."""
    return [i for i, x in enumerate(args) if is_inexact(x)]


def spread(results: Sequence, places: Sequence[int], tangents: Sequence) -> list:
    """Tangents of all results: those given at ``places``, else zero."""
    known = dict(zip(places, tangents, strict=True))
    return [known[i] if i in known else _jax.zero_tangent(y) for i, y in enumerate(results)]


def _linear_jvp(
    name: str, primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    results = primal.call(name, *args, **params)
    places = active(args)
    if not places:
        return results, spread(results, (), ())
    dx = [ad.instantiate_zeros(tangents[i]) for i in places]
    return results, spread(results, places, tangent.call(name, *dx, **params))


def _jvp(
    operation: Operation, has_token: bool, primals: Sequence, tangents: Sequence, **params: Any
) -> tuple[list, list]:
    rule = operation.rules.jvp or functools.partial(_linear_jvp, operation.name)
    site = params["site"]
    if not has_token:
        return rule(Chain(site=site), Chain(site=site), primals, tangents, params)
    *args, token = primals
    *tangents, token_tangent = tangents
    primal = Chain(token, site)
    if is_inexact(token):
        tangent = Chain(ad.instantiate_zeros(token_tangent), site)
        results, d_results = rule(primal, tangent, args, tangents, params)
        return [*results, primal.token], [*d_results, tangent.token]
    # A token without derivative cannot order the tangents: the effect does.
    results, d_results = rule(primal, _SiblingChain(site=site), args, tangents, params)
    zero = _jax.zero_tangent(primal.token)
    return [*results, primal.token], [*d_results, zero]


def aval_of(x: Any) -> Any:
    """The aval of an operand of a transpose rule, known or not."""
    return x.aval if ad.is_undefined_primal(x) else jax.typeof(x)


def _transpose(
    operation: Operation, has_token: bool, cotangents: Sequence, *args: Any, **params: Any
) -> list:
    if operation.rules.transpose is None:
        raise TypeError(f"{operation.name}: not a linear function of its operands")
    # A symbolic zero is not skipped: whether it is one may differ between ranks.
    cotangents = list(map(ad.instantiate_zeros, cotangents))
    chain = Chain(cotangents.pop() if has_token else None, params["site"])
    leaves = args[: len(args) - has_token]
    given = operation.rules.transpose(chain, cotangents, leaves, params)
    answer = [
        _jax.pcast_varying(ct, sorted(_jax.vma_of_aval(x.aval)))
        if ad.is_undefined_primal(x)
        else None
        for ct, x in zip(given, leaves, strict=True)
    ]
    if has_token:
        answer.append(chain.token if ad.is_undefined_primal(args[-1]) else None)
    return answer


# ---- vmap ----------------------------------------------------------------------------------------


def _batch(
    operation: Operation, has_token: bool, args: Sequence, dims: Sequence, **params: Any
) -> tuple[list, list]:
    token = None
    if has_token:
        token = args[-1]
        if dims[-1] is not None:  # the chain itself stays one
            token = jax.lax.index_in_dim(token, 0, dims[-1], keepdims=False)
        args, dims = args[:-1], dims[:-1]
    is_batched = any(d is not None for d in dims)
    n, lead = operation.rules.frame(params)
    if is_batched:
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        args = [
            jnp.broadcast_to(jnp.expand_dims(x, n), (*x.shape[:n], size, *x.shape[n:]))
            if d is None
            else jnp.moveaxis(x, d, n)
            for x, d in zip(args, dims, strict=True)
        ]
    chain = Chain(token)
    results = chain.call(operation.name, *args, **params)
    out_dims = [len(lead) if is_batched else None] * len(results)
    if has_token:
        return [*results, chain.token], [*out_dims, None]
    return results, out_dims


def call(name: str, *args: Any, token: Any = None, **params: Any) -> tuple[list, Any]:
    """Binds an operation; its results, and the next token if one was given."""
    chain = Chain(token)
    results = chain.call(name, *args, **params)
    return results, chain.token
