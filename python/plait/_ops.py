"""JAX primitives of the operations of the C core, made in a loop over its table.

Each operation has three primitives: one with the ordered effect, one with an explicit token
as last operand and result, and one with both: in a region, where the effect costs nothing,
calls by token keep their place among those by effect. Otherwise XLA might run them in one order
on one rank and in another on its peer, each waiting for the other. Derivative and batching rules
are written once, on a `Chain`.

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
    plain: how many trailing operands and results are no payload: never differentiated, packed
        or batched.
    reduces: computes with the elements, so that different dtypes are different messages.
    is_invariant: the result is equal on all ranks.
    is_matched: a transfer between two ranks, matched by rank and tag.
    """

    transpose: Callable[["Chain", Sequence, Sequence, dict], list] | None
    frame: Callable[[dict], tuple[int, tuple[int, ...]]] = lambda params: (0, ())
    results: Callable[[Sequence, dict], list] | None = None
    jvp: Callable[..., tuple[list, list]] | None = None
    joins: Callable[["Chain", Sequence, dict], list] | None = None
    plain: tuple[int, int] = (0, 0)
    reduces: bool = False
    is_invariant: bool = False
    is_matched: bool = False


class Chain:
    """A sequence of operations: by the effect (token None) or by an explicit token.

    after: arrays that every operation waits for, as operands that it does not use.
    site: the line that what has none of its own is called for; None: the line now.
    has_both: operations by token have the effect as well; None: in a region.
    """

    def __init__(
        self,
        token: Any = None,
        after: Sequence = (),
        site: int | None = None,
        has_both: bool | None = None,
    ):
        self.token, self.after, self.site = token, tuple(after), site
        self.has_both = _jax.is_in_region() if has_both is None else has_both

    def call(self, name: str, *args: Any, **params: Any) -> list:
        """Binds the operation and moves the token on."""
        operation = operations()[name]
        if "site" not in params:
            params["site"] = _sites.here() if self.site is None else self.site
        params["n_after"] = len(self.after)
        if self.token is None:
            return operation.effect_p.bind(*args, *self.after, **params)
        primitive = operation.both_p if self.has_both else operation.token_p
        *results, self.token = primitive.bind(*args, self.token, *self.after, **params)
        return results


class _TangentChain(Chain):
    """The tangents of an operation on a chain.

    Nothing orders two chains by token, and a receive from any source takes what comes: there
    the messages of tangents and adjoints, on a communicator of their own, do not meet those of
    the primal operations. Tangents of a chain by token wait for the primal operation, since an
    adjoint that runs before it could wait for a partner who waits for its message; where the
    token has no derivative, the effect orders them.
    """

    def __init__(self, primal: Chain, token: Any, is_matched: bool):
        super().__init__(token, primal.after, primal.site, primal.has_both)
        self._primal, self._is_matched = primal, is_matched

    def call(self, name: str, *args: Any, **params: Any) -> list:
        group = params["group"]
        if self._primal.token is not None:
            self.after = (self._primal.token,)
            group = group.by_effect() if self.token is None else group
        if self.token is not None or self._is_matched:
            group = group.of_tangents()
        return super().call(name, *args, **(params | {"group": group}))


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row of the C table with its primitives and its rules; row None: no such row."""

    name: str
    row: _core.Row | None
    rules: Rules
    effect_p: Any
    token_p: Any
    both_p: Any


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


@dataclasses.dataclass(frozen=True)
class _Form:
    """One of the primitives of an operation.

    Its operands are those of the operation, then the token, then what is only waited for; its
    results are those of the operation, then the token.
    """

    operation: Operation
    has_token: bool
    has_effect: bool

    @property
    def primitive(self) -> Any:
        """The primitive of this form."""
        if not self.has_token:
            return self.operation.effect_p
        return self.operation.both_p if self.has_effect else self.operation.token_p

    def chain(self, token: Any, after: Any, site: int | None = None) -> Chain:
        """A chain whose operations have this form."""
        return Chain(token, after, site, self.has_token and self.has_effect)

    def split(self, args: Sequence, params: dict) -> tuple[Sequence, Any, Sequence]:
        """The operands proper, the token or None, and what is waited for."""
        n = len(args) - params["n_after"]
        if not self.has_token:
            return args[:n], None, args[n:]
        return args[: n - 1], args[n - 1], args[n:]

    def join(self, results: Sequence, token: Any) -> list:
        """The primitive's results."""
        return [*results, token] if self.has_token else list(results)


def _make(name: str, row: _core.Row | None, given: Rules) -> Operation:
    suffixes = ("", "_token", "_both")
    primitives = [jex.Primitive("plait_" + name + suffix) for suffix in suffixes]
    operation = Operation(name, row, given, *primitives)
    if row is not None:
        handler = jax.ffi.pycapsule(getattr(_core.lib, row.symbol))
        jax.ffi.register_ffi_target(row.target, handler, platform="cpu")
    for has_token, has_effect in ((False, True), (True, False), (True, True)):
        form = _Form(operation, has_token, has_effect)
        primitive = form.primitive
        primitive.multiple_results = True
        _jax.def_eager(primitive, functools.partial(_donated, row))
        _jax.needs_devices(primitive)
        mlir.register_lowering(primitive, functools.partial(_lower, form), platform="cpu")
        ad.primitive_jvps[primitive] = functools.partial(_jvp, form)
        ad.primitive_transposes[primitive] = functools.partial(_transpose, form)
        batching.primitive_batchers[primitive] = functools.partial(_batch, form)
        results = functools.partial(_results, form)
        if not has_effect or row is None:
            primitive.def_abstract_eval(results)
        else:
            _jax.saves_unless_complex(primitive)
            _jax.stays_in_loops(primitive)
            primitive.def_effectful_abstract_eval(
                lambda *avals, _results=results, **params: (
                    _results(*avals, **params),
                    {_jax.EFFECT},
                )
            )
    return operation


def _results(form: _Form, *args: Any, **params: Any) -> list:
    given = form.operation.rules
    avals, token, _ = form.split(args, params)
    if given.results is not None:
        return form.join(given.results(avals, params), token)
    n, lead = given.frame(params)
    results = [a.update(shape=(*lead, *a.shape[n:])) for a in avals]
    if given.is_invariant:
        over = frozenset(params["group"].over)
        results = [_jax.with_vma(a, _jax.vma_of_aval(a) - over) for a in results]
    return form.join(results, token)


def _donated(row: _core.Row | None, params: dict) -> tuple[int, ...]:
    return (row.alias,) if params.get("donate") and row is not None and row.alias >= 0 else ()


# ---- lowering ----------------------------------------------------------------------------------


def _lower(form: _Form, ctx: Any, *args: Any, **params: Any) -> Any:
    row = form.operation.row
    leaves, token, _ = form.split(args, params)
    if row is None:  # moves nothing
        return form.join(leaves, token)
    if len(leaves) > row.n_args:
        return _lower_joined(form, ctx, *args, **params)
    attrs: dict[str, Any] = {name: int(params[name]) for name in row.scalars}
    attrs |= {name: float(params[name]) for name in row.floats}
    attrs |= {name: np.asarray(params[name], np.int64) for name in row.arrays}
    attrs["comm"] = params["group"].number(_jax.lowering_devices(ctx))
    attrs["site"] = params["site"]
    aliases = {i: 0 for i in _donated(row, params)}
    if form.has_token:
        aliases[row.n_args] = row.n_rets
    rule = jax.ffi.ffi_lowering(
        row.target, has_side_effect=True, operand_output_aliases=aliases or None
    )
    if form.has_effect:
        return _jax.lower_ordered(ctx, rule, args, attrs)
    return rule(ctx, *args, **attrs)


def _lower_joined(form: _Form, ctx: Any, *args: Any, **params: Any) -> Any:
    """Several leaves: packs them, binds the operation on what is packed, and unpacks."""
    params |= {"donate": False} if "donate" in params else {}
    joins = form.operation.rules.joins or functools.partial(_call_joined, form.operation)

    def joined(*args: Any) -> list:
        leaves, token, after = form.split(args, params)
        chain = form.chain(token, after, params["site"])
        return form.join(joins(chain, leaves, params), chain.token)

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


def _jvp(form: _Form, primals: Sequence, tangents: Sequence, **params: Any) -> tuple[list, list]:
    name = form.operation.name
    rule = form.operation.rules.jvp or functools.partial(_linear_jvp, name)
    args, token, after = form.split(primals, params)
    d_args, d_token, _ = form.split(tangents, params)
    primal = form.chain(token, after, params["site"])
    is_ordered = form.has_token and is_inexact(token)
    d_token = ad.instantiate_zeros(d_token) if is_ordered else None
    tangent = _TangentChain(primal, d_token, form.operation.rules.is_matched)
    results, d_results = rule(primal, tangent, args, d_args, params)
    if not form.has_token:
        return results, d_results
    d_token = tangent.token if is_ordered else _jax.zero_tangent(primal.token)
    return [*results, primal.token], [*d_results, d_token]


def aval_of(x: Any) -> Any:
    """The aval of an operand of a transpose rule, known or not."""
    return x.aval if ad.is_undefined_primal(x) else jax.typeof(x)


def _transpose(form: _Form, cotangents: Sequence, *args: Any, **params: Any) -> list:
    operation = form.operation
    if operation.rules.transpose is None:
        raise TypeError(f"{operation.name}: not a linear function of its operands")
    # A symbolic zero is not skipped: whether it is one may differ between ranks.
    cotangents = list(map(ad.instantiate_zeros, cotangents))
    leaves, token, after = form.split(args, params)
    token_ct = cotangents.pop() if form.has_token else None
    chain = form.chain(token_ct, after, params["site"])
    given = operation.rules.transpose(chain, cotangents, leaves, params)
    answer = [
        _jax.pcast_varying(ct, sorted(_jax.vma_of_aval(x.aval)))
        if ad.is_undefined_primal(x)
        else None
        for ct, x in zip(given, leaves, strict=True)
    ]
    if form.has_token:
        answer.append(chain.token if ad.is_undefined_primal(token) else None)
    return answer + [None] * len(after)


# ---- vmap ----------------------------------------------------------------------------------------


def _first(x: Any, dim: int | None) -> Any:
    """What the whole batch has in common."""
    return x if dim is None else jax.lax.index_in_dim(x, 0, dim, keepdims=False)


def _batch(form: _Form, args: Sequence, dims: Sequence, **params: Any) -> tuple[list, list]:
    n_plain, n_plain_results = form.operation.rules.plain
    leaves, token, after = form.split(args, params)
    dims, token_dim, after_dims = form.split(dims, params)
    n_payload = len(leaves) - n_plain
    payload, plain = leaves[:n_payload], map(_first, leaves[n_payload:], dims[n_payload:])
    dims = dims[:n_payload]
    is_batched = any(d is not None for d in dims)
    n, lead = form.operation.rules.frame(params)
    if is_batched:
        size = next(x.shape[d] for x, d in zip(payload, dims, strict=True) if d is not None)
        payload = [
            jnp.broadcast_to(jnp.expand_dims(x, n), (*x.shape[:n], size, *x.shape[n:]))
            if d is None
            else jnp.moveaxis(x, d, n)
            for x, d in zip(payload, dims, strict=True)
        ]
    chain = form.chain(_first(token, token_dim), map(_first, after, after_dims))
    results = chain.call(form.operation.name, *payload, *plain, **params)
    out_dims: list[int | None] = [len(lead) if is_batched else None] * len(results)
    out_dims[len(results) - n_plain_results :] = [None] * n_plain_results
    return form.join(results, chain.token), form.join(out_dims, None)


def call(name: str, *args: Any, token: Any = None, **params: Any) -> tuple[list, Any]:
    """Binds an operation; its results, and the next token if one was given."""
    chain = Chain(token)
    results = chain.call(name, *args, **params)
    return results, chain.token
