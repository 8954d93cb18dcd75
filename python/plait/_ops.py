"""JAX primitives of the operations of the C core, made in a loop over its table.

Each operation has two primitives: one with the ordered effect, one with an explicit token
as last operand and result. Derivative and batching rules are written once, on a `Chain`.
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
from plait import _core, _jax, _sites

MESH = "mesh"  # comm=MESH: the ranks are the devices of the program, in the mesh's order


@dataclasses.dataclass(frozen=True)
class Rules:
    """What JAX needs to know of an operation; the defaults fit a linear elementwise one.

    results: result avals of operand avals and parameters.
    transpose: operand cotangents from (chain, result cotangents, operands, parameters);
        None: not a linear operation.
    batch: parameters with a batch axis in front, from (operand avals with it, parameters).
    jvp: (primal chain, tangent chain, operands, tangents, parameters) to both results.
    """

    results: Callable[[Sequence, dict], list]
    transpose: Callable[["Chain", Sequence, Sequence, dict], list] | None
    batch: Callable[[Sequence, dict], dict] = lambda avals, params: params
    jvp: Callable[..., tuple[list, list]] | None = None


class Chain:
    """A sequence of operations: by the effect (token None) or by an explicit token."""

    def __init__(self, token: Any = None):
        self.token = token

    def call(self, name: str, *args: Any, **params: Any) -> list:
        """Binds the operation and moves the token on; rules pass the site of the forward call."""
        operation = operations()[name]
        if "site" not in params:
            params["site"] = _sites.here()
        if self.token is None:
            return operation.effect_p.bind(*args, **params)
        *results, self.token = operation.token_p.bind(*args, self.token, **params)
        return results


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row of the C table with its two primitives and its rules."""

    row: _core.Row
    rules: Rules
    effect_p: Any
    token_p: Any


_RULES: dict[str, Rules] = {}
_SIBLING: list[Callable[[Any], Any]] = []  # effect communicator of a token's: set by _comm
_FIND: list[Callable[[tuple, str], int]] = []  # communicator over devices: set by _comm


def rules(name: str) -> Callable[[Rules], Rules]:
    """Registers the rules of an operation; done by the module of its family."""

    def put(given: Rules) -> Rules:
        _RULES[name] = given
        return given

    return put


@functools.cache
def operations() -> dict[str, Operation]:
    """All operations of the core that have rules, by name."""
    from plait import _coll_rules, _mesh_rules  # noqa: F401 - they register rules

    return {name: _make(row, _RULES[name]) for name, row in _core.rows().items() if name in _RULES}


def _make(row: _core.Row, given: Rules) -> Operation:
    jax.ffi.register_ffi_target(
        row.target, jax.ffi.pycapsule(getattr(_core.lib, row.symbol)), platform="cpu"
    )
    effect_p = jex.Primitive(row.target)
    token_p = jex.Primitive(row.target + "_token")
    operation = Operation(row, given, effect_p, token_p)
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
    _jax.saves_unless_complex(effect_p)
    effect_p.def_effectful_abstract_eval(
        lambda *avals, **params: (given.results(avals, params), {_jax.EFFECT})
    )
    token_p.def_abstract_eval(
        lambda *avals, **params: [*given.results(avals[:-1], params), avals[-1]]
    )
    return operation


def _donated(row: _core.Row, params: dict) -> tuple[int, ...]:
    return (row.alias,) if params.get("donate") and row.alias >= 0 else ()


def _comm_id(ctx: Any, comm: Any) -> int:
    """The registry's number: known, or of the devices that the program is lowered for."""
    if isinstance(comm, int):
        return comm
    devices = _jax.lowering_devices(ctx)
    if devices is None:
        raise TypeError(
            "plait: the devices of this shard_map's mesh are not known while the program is "
            "compiled; give shard_map the mesh itself (mesh=) or use jax.set_mesh"
        )
    return _FIND[0](devices, comm)


def _lower(operation: Operation, has_token: bool, ctx: Any, *args: Any, **params: Any) -> Any:
    row = operation.row
    attrs: dict[str, Any] = {name: int(params[name]) for name in row.scalars}
    attrs |= {name: float(params[name]) for name in row.floats}
    attrs |= {name: np.asarray(params[name], np.int64) for name in row.arrays}
    attrs["comm"] = _comm_id(ctx, params["comm"])
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


def is_inexact(x: Any) -> bool:
    """Whether a value has derivatives."""
    return jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)


def _linear_jvp(
    name: str, primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    results = primal.call(name, *args, **params)
    if not all(map(is_inexact, (*args, *results))):
        return results, list(map(_jax.zero_tangent, results))
    return results, tangent.call(name, *map(ad.instantiate_zeros, tangents), **params)


def _jvp(
    operation: Operation, has_token: bool, primals: Sequence, tangents: Sequence, **params: Any
) -> tuple[list, list]:
    rule = operation.rules.jvp or functools.partial(_linear_jvp, operation.row.name)
    if not has_token:
        return rule(Chain(), Chain(), primals, tangents, params)
    *args, token = primals
    *tangents, token_tangent = tangents
    primal = Chain(token)
    if is_inexact(token):
        tangent = Chain(ad.instantiate_zeros(token_tangent))
        results, d_results = rule(primal, tangent, args, tangents, params)
        return [*results, primal.token], [*d_results, tangent.token]
    # A token without derivative cannot order the tangents: the effect does.
    results, d_results = rule(primal, _SiblingChain(), args, tangents, params)
    zero = _jax.zero_tangent(primal.token)
    return [*results, primal.token], [*d_results, zero]


class _SiblingChain(Chain):
    """The effect's chain for operations whose communicator is that of a token's chain."""

    def call(self, name: str, *args: Any, **params: Any) -> list:
        return super().call(name, *args, **(params | {"comm": _SIBLING[0](params["comm"])}))


def _transpose(
    operation: Operation, has_token: bool, cotangents: Sequence, *args: Any, **params: Any
) -> list:
    if operation.rules.transpose is None:
        raise TypeError(f"{operation.row.name}: not a linear function of its operands")
    # A symbolic zero is not skipped: whether it is one may differ between ranks.
    cotangents = list(map(ad.instantiate_zeros, cotangents))
    token = args[-1] if has_token else None
    chain = Chain(cotangents.pop() if has_token else None)
    args = args[: operation.row.n_args]
    given = operation.rules.transpose(chain, cotangents, args, params)
    answer = [ct if ad.is_undefined_primal(x) else None for ct, x in zip(given, args, strict=True)]
    if has_token:
        answer.append(chain.token if ad.is_undefined_primal(token) else None)
    return answer


def _batch(
    operation: Operation, has_token: bool, args: Sequence, dims: Sequence, **params: Any
) -> tuple[list, list]:
    n = operation.row.n_args
    token = None
    if has_token:
        token = args[-1]
        if dims[-1] is not None:  # the chain itself stays one
            token = jax.lax.index_in_dim(token, 0, dims[-1], keepdims=False)
    args, dims = args[:n], dims[:n]
    is_batched = [d is not None for d in dims]
    if any(is_batched):
        first = is_batched.index(True)
        size = args[first].shape[dims[first]]
        args = [
            jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
            for x, d in zip(args, dims, strict=True)
        ]
        params = operation.rules.batch([jax.typeof(x) for x in args], params)
    chain = Chain(token)
    results = chain.call(operation.row.name, *args, **params)
    out_dims = [0 if any(is_batched) else None] * len(results)
    if has_token:
        return [*results, chain.token], [*out_dims, None]
    return results, out_dims


def call(name: str, *args: Any, token: Any = None, **params: Any) -> tuple[list, Any]:
    """Binds an operation; its results, and the next token if one was given."""
    chain = Chain(token)
    results = chain.call(name, *args, **params)
    return results, chain.token
