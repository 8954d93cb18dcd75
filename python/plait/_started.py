"""Operations in two halves: primitives that start them and primitives that wait for them.

Every operation of the rank model has four more primitives, ``start`` and ``wait`` by effect and by
token, with its own parameters and operands. ``start`` has one result, the *slot*: for each message
a pair of floats that holds the number of the started operation. ``wait`` takes the slot before the
operands, and returns the operation's results. It does not use the operands' values unless a
derivative needs them.

What flows from start to wait is linear in the operands, so the slot has tangents and cotangents:
the numbers of started tangents and adjoints. Transposing ``wait`` starts the adjoint; transposing
``start`` waits for it. This takes rules that are one operation on (co)tangents only
(`_ops.Rules.overlaps`). The derivatives of other operations are carried out whole at the place of
``wait``, with its operands.

The rules of an operation are written for a `Chain` that carries it out. Here they run on chains
whose `binder` starts an operation instead (`_Begin`), waits for one (`_Await`), or gives existing
results (`_Given`).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching
from plait import _coll_rules, _core, _eager, _jax, _ops, _pack, _platforms, _vmap
from plait._asked import Asked
from plait._ops import Chain, Form, Operation, TangentChain

PAIR = 2  # floats that hold a number, as in ffi/start.c


class Ticket:
    """One call of `plait.start`, as a parameter of its primitives."""

    def __init__(self, name: str, site: int):
        self.name, self.site, self.is_waited = name, site, False

    def __repr__(self) -> str:
        return f"{self.name}, started at {_core.site_text(self.site)}"


@dataclasses.dataclass(frozen=True)
class _Halves:
    """The primitives of an operation's halves, by `_ops.KINDS`."""

    start: tuple
    wait: tuple


@functools.cache
def _halves(name: str) -> _Halves:
    operation = _ops.operations()[name]
    _platforms.register(f"plait_start_{name}", _platforms.symbols(operation.row, "start_"))
    _register_wait()
    return _Halves(_make_start(operation), _make_wait(operation))


@functools.cache
def _register_wait() -> None:
    _platforms.register("plait_wait", {"cpu": "plait_ffi_wait", "cuda": "plait_ffi_cuda_wait"})


def _make(operation: Operation, half: str, **rules: Callable) -> tuple:
    made = _ops.primitives_of(f"plait_{half}_{operation.name}")
    for form, primitive in zip(_ops.forms(operation), made, strict=True):
        given = {name: functools.partial(rule, form) for name, rule in rules.items()}
        _eager.define(primitive, lambda args, params: (), {"ticket": None})
        _jax.needs_devices(primitive)
        _platforms.lower(primitive, given["lower"], operation.name)
        ad.primitive_jvps[primitive] = given["jvp"]
        ad.primitive_transposes[primitive] = given["transpose"]
        batching.primitive_batchers[primitive] = given["batch"]
        if form.has_effect:
            _jax.def_ordered(primitive, given["results"])
        else:
            primitive.def_abstract_eval(given["results"])
    return made


def _make_start(operation: Operation) -> tuple:
    return _make(
        operation,
        "start",
        results=_start_results,
        lower=_start_lower,
        jvp=_start_jvp,
        transpose=_start_transpose,
        batch=_start_batch,
    )


def _make_wait(operation: Operation) -> tuple:
    return _make(
        operation,
        "wait",
        results=_wait_results,
        lower=_wait_lower,
        jvp=_wait_jvp,
        transpose=_wait_transpose,
        batch=_wait_batch,
    )


# ---- binders -------------------------------------------------------------------------------------


class Begun(BaseException):
    """Leaves a function after starting its operation; the rest runs in the wait."""


def _bind_start(chain: Chain, name: str, args: Sequence, params: dict, ticket: Any) -> Any:
    start = _halves(name).start
    [slot] = chain.bind(start, args, _ops.undonated(params) | {"ticket": ticket})
    return slot


class _Begin:
    """Starts each operation; gives zeros as results, for callers that do not read them."""

    def __init__(self, ticket: Any):
        self.ticket, self.slots = ticket, []

    def __call__(self, chain: Chain, name: str, args: Sequence, params: dict) -> list:
        if not is_startable(name):
            return chain.carry_out(name, args, params)
        self.slots.append(_bind_start(chain, name, args, params, self.ticket))
        return _zeros(_results_of(name, args, params))


class BeginFirst(_Begin):
    """Starts the first operation and leaves the function that calls it.

    needs_operands: where there is no result, the operands take its place.
    """

    needs_operands = False

    def __call__(self, chain: Chain, name: str, args: Sequence, params: dict) -> list:
        if params.get("elsewhere"):
            self.needs_operands = params["group"].rank != params["root"]
            params = params | {"elsewhere": 0}
        results = super().__call__(chain, name, args, params)
        if self.slots:
            self.chain = chain
            raise Begun
        return results


class Await:
    """Waits for started operations in order; carries out those after them.

    after: arrays that must exist first.
    """

    def __init__(self, slots: Sequence, ticket: Any, after: Sequence = ()):
        self.slots, self.ticket, self.after = iter(slots), ticket, tuple(after)

    def __call__(self, chain: Chain, name: str, args: Sequence, params: dict) -> list:
        slot = next(self.slots, None) if is_startable(name) else None
        if slot is None:
            return chain.carry_out(name, args, params)
        if not params.get("elsewhere"):
            return self._wait(chain, name, slot, args, params)
        results = self._wait(chain, name, slot, args, params | {"elsewhere": 0})
        return _operands_elsewhere(chain, results, args, params)

    def _wait(self, chain: Chain, name: str, slot: Any, args: Sequence, params: dict) -> list:
        before, chain.after = chain.after, (*chain.after, *self.after)
        more = {"n_after": len(chain.after), "ticket": self.ticket}
        results = chain.bind(_halves(name).wait, (slot, *args), _ops.undonated(params) | more)
        chain.after = before
        return results


def _operands_elsewhere(chain: Chain, results: Sequence, args: Sequence, params: dict) -> Sequence:
    """The results on the root; elsewhere the operands, but with the results' derivatives."""
    group, root = params["group"], params["root"]
    if group.rank == root:
        return results
    rank = _coll_rules.my_rank(chain, group) if group.rank is None else jnp.int32(group.rank)
    return [jnp.where(rank == root, y, x) for y, x in zip(results, args, strict=True)]


class _Given:
    """Gives existing results of the operation."""

    def __init__(self, results: Sequence):
        self.results = results

    def __call__(self, chain: Chain, name: str, args: Sequence, params: dict) -> list:
        return list(self.results)


def is_startable(name: str) -> bool:
    """Whether the operation communicates."""
    return _ops.operations()[name].row is not None


# ---- avals ---------------------------------------------------------------------------------------


def _zeros(avals: Sequence) -> list:
    """Arrays of these types whose values nobody uses."""
    return [
        _jax.pcast_varying(jnp.zeros(a.shape, a.dtype), sorted(_jax.vma_of_aval(a))) for a in avals
    ]


def _results_of(name: str, args: Sequence, params: dict) -> list:
    """The avals of an operation's results."""
    form = Form(_ops.operations()[name], *_ops.KINDS[0])
    return _ops.results(form, *map(jax.typeof, args), **(params | {"n_after": 0}))


def _messages(operation: Operation, leaves: Sequence) -> int:
    is_one = len(leaves) <= operation.row.n_args or operation.rules.joins is not None
    return 1 if is_one else len(_pack.messages(leaves, operation.rules.reduces))


def _start_results(form: Form, *args: Any, **params: Any) -> list:
    leaves, token, _ = form.split(args, params)
    group = params["group"]
    slot = _jax.aval_here((_messages(form.operation, leaves), PAIR), jnp.dtype(jnp.float32))
    if group.checks:  # each device has a number of its own
        slot = _jax.with_vma(slot, frozenset(name for name, _ in group.mesh))
    return form.join([slot], token)


def _wait_results(form: Form, slot: Any, *args: Any, **params: Any) -> list:
    return _ops.results(form, *args, **params)


# ---- lowering ------------------------------------------------------------------------------------


def _words(avals: Sequence) -> np.ndarray:
    """The results in the form that the handler of start reads."""
    codes = _core.dtypes()
    words = [word for a in avals for word in (codes[a.dtype.name], a.ndim, *a.shape)]
    return np.asarray(words, np.int64)


def _start_lower(form: Form, ctx: Any, *args: Any, ticket: Any, **params: Any) -> Any:
    if ticket is not None and not ticket.is_waited:
        raise ValueError(
            f"plait.start: {ticket}: nobody waits for it; call plait.wait once. A jax.shard_map "
            "outside jax.jit runs each call in it alone: put jax.jit around it"
        )
    row = form.operation.row
    avals, _, _ = form.split(ctx.avals_in, params)
    if len(avals) > row.n_args:
        return _start_joined(form, ctx, *args, **params)
    results = _ops.results(
        Form(form.operation, *_ops.KINDS[0]), *avals, **(params | {"n_after": 0})
    )
    if isinstance(ctx, Asked):
        return ctx.call(row, params | form.operation.rules.fits(avals, params), results)
    attrs = _ops.attributes(row, ctx, params)
    attrs["results"] = _words(results)
    aliases = {row.n_args: 1} if form.has_token else None
    rule = jax.ffi.ffi_lowering(
        f"plait_start_{row.name}", has_side_effect=True, operand_output_aliases=aliases
    )
    if form.has_effect:
        return _jax.lower_ordered(ctx, rule, args, attrs)
    return rule(ctx, *args, **attrs)


def _start_joined(form: Form, ctx: Any, *args: Any, **params: Any) -> Any:
    """Several leaves: packs them and starts each message."""

    def joined(*args: Any) -> list:
        leaves, token, after = form.split(args, params)
        begin = _Begin(None)
        chain = form.chain(token, after, params["site"], begin)
        _ops.call_joined(form.operation, chain, leaves, _ops.undonated(params))
        return form.join([jnp.concatenate(begin.slots)], chain.token)

    return _jax.lower_traced(ctx, joined, args, is_local=True)


def _wait_lower(form: Form, ctx: Any, slot: Any, *args: Any, ticket: Any, **params: Any) -> Any:
    avals, _, _ = form.split(ctx.avals_in[1:], params)
    if len(avals) > form.operation.row.n_args:
        return _wait_joined(form, ctx, slot, *args, **params)
    if isinstance(ctx, Asked):  # the lowering of start has noted the operation
        return ctx.avals_out
    _, token, after = form.split(args, params)
    _, token_aval, after_avals = form.split(ctx.avals_in[1:], params)
    avals_in = [*form.join(ctx.avals_in[:1], token_aval), *after_avals]
    sub = ctx.replace(avals_in=avals_in)
    aliases = {1: len(ctx.avals_out) - 1} if form.has_token else None
    attrs = {"n_after": len(after)}
    rule = jax.ffi.ffi_lowering("plait_wait", has_side_effect=True, operand_output_aliases=aliases)
    given = [*form.join([slot], token), *after]
    if not form.has_effect:
        return rule(sub, *given, **attrs)
    results = _jax.lower_ordered(sub, rule, given, attrs)
    if sub.tokens_out is not None:
        ctx.set_tokens_out(sub.tokens_out)
    return results


def _wait_joined(form: Form, ctx: Any, *args: Any, **params: Any) -> Any:
    def joined(slot: Any, *args: Any) -> list:
        leaves, token, after = form.split(args, params)
        slots = [slot[i : i + 1] for i in range(slot.shape[0])]
        chain = form.chain(token, after, params["site"], Await(slots, None))
        results = _ops.call_joined(form.operation, chain, leaves, _ops.undonated(params))
        return form.join(results, chain.token)

    return _jax.lower_traced(ctx, joined, args, is_local=True)


# ---- derivatives ---------------------------------------------------------------------------------


def _start_whole_rule(
    form: Form, chain: Chain, args: Sequence, tangents: Sequence, params: dict
) -> Any:
    """Starts the first operation of the rule; returns the slot."""
    tangent = TangentChain(chain, None, form.operation.rules.is_matched)
    try:
        _ops.jvp_rule(form.operation)(chain, tangent, args, tangents, params)
    except Begun:
        pass
    return chain.binder.slots[0]


def _start_jvp(
    form: Form, primals: Sequence, tangents: Sequence, *, ticket: Any, **params: Any
) -> tuple[list, list]:
    operation = form.operation
    args, token, after = form.split(primals, params)
    d_args, d_token, _ = form.split(tangents, params)
    is_ordered = form.has_token and _ops.is_inexact(token)
    d_token = ad.instantiate_zeros(d_token) if is_ordered else None
    if not operation.rules.overlaps(params):
        chain = form.chain(token, after, params["site"], BeginFirst(ticket))
        slot = _start_whole_rule(form, chain, args, d_args, params)
        d_slot, d_token_out = None, d_token
    else:
        chain = form.chain(token, after, params["site"], _Begin(ticket))
        placeholders = chain.call(operation.name, *args, **params)
        [slot] = chain.binder.slots
        tangent = TangentChain(chain, d_token, operation.rules.is_matched, _Begin(ticket))
        given = Chain(binder=_Given(placeholders))
        _ops.jvp_rule(operation)(given, tangent, args, d_args, params)
        [d_slot] = tangent.binder.slots or [None]
        d_token_out = tangent.token
    d_slot = _jax.zero_tangent(slot) if d_slot is None else d_slot
    if form.has_token and not is_ordered:
        d_token_out = _jax.zero_tangent(chain.token)
    return form.join([slot], chain.token), form.join([d_slot], d_token_out)


def _wait_jvp(
    form: Form, primals: Sequence, tangents: Sequence, *, ticket: Any, **params: Any
) -> tuple[list, list]:
    operation = form.operation
    slot, d_slot = primals[0], tangents[0]
    args, token, after = form.split(primals[1:], params)
    d_args, d_token, _ = form.split(tangents[1:], params)
    is_ordered = form.has_token and _ops.is_inexact(token)
    d_token = ad.instantiate_zeros(d_token) if is_ordered else None
    chain = form.chain(token, after, params["site"], Await([slot], ticket))
    rule, is_matched = _ops.jvp_rule(operation), operation.rules.is_matched
    if not operation.rules.overlaps(params):
        tangent = TangentChain(chain, d_token, is_matched)
        results, d_results = rule(chain, tangent, args, d_args, params)
    else:
        results = chain.call(operation.name, *args, **params)
        has_begun = type(d_slot) is not ad.Zero  # else only `after` has a derivative
        tangent = TangentChain(chain, d_token, is_matched, Await([d_slot], ticket))
        unused = _zeros([jax.typeof(x).to_tangent_aval() for x in args])
        given = Chain(binder=_Given(results))
        if has_begun:
            results, d_results = rule(given, tangent, args, unused, params)
        else:
            d_results = [_jax.zero_tangent(x) for x in results]
    if not form.has_token:
        return results, d_results
    d_token = tangent.token if is_ordered else _jax.zero_tangent(chain.token)
    return [*results, chain.token], [*d_results, d_token]


def _wait_transpose(
    form: Form, cotangents: Sequence, slot: Any, *args: Any, ticket: Any, **params: Any
) -> list:
    """Starts the adjoint; its number is the slot's cotangent."""
    cotangents = list(map(ad.instantiate_zeros, cotangents))
    leaves, token, after = form.split(args, params)
    ct_token = cotangents.pop() if form.has_token else None
    if form.operation.rules.overlaps(params):
        begin = _Begin(ticket)
        chain = form.chain(ct_token, after, params["site"], begin)
        _ops.transposed(form.operation, chain, cotangents, leaves, params)
        [ct_slot], answer = begin.slots, [None] * len(leaves)
    else:
        chain = form.chain(ct_token, after, params["site"])
        ct_slot, answer = None, _ops.transposed(form.operation, chain, cotangents, leaves, params)
    if form.has_token:
        answer.append(chain.token if ad.is_undefined_primal(token) else None)
    return [ct_slot, *answer, *[None] * len(after)]


def _start_transpose(
    form: Form, cotangents: Sequence, *args: Any, ticket: Any, **params: Any
) -> list:
    """Waits for the adjoint that the transpose of wait has started."""
    leaves, token, after = form.split(args, params)
    ct_slot = cotangents[0]
    ct_token = ad.instantiate_zeros(cotangents[1]) if form.has_token else None
    if type(ct_slot) is ad.Zero:  # nothing was started
        answer = [None] * len(leaves)
    else:
        avals = [jax.typeof(x) if not ad.is_undefined_primal(x) else x.aval for x in leaves]
        plain = Form(form.operation, *_ops.KINDS[0])
        unused = _zeros(_ops.results(plain, *avals, **(params | {"n_after": 0})))
        chain = form.chain(ct_token, after, params["site"], Await([ct_slot], ticket))
        answer = _ops.transposed(form.operation, chain, unused, leaves, params)
        ct_token = chain.token
    if form.has_token:
        answer.append(ct_token if ad.is_undefined_primal(token) else None)
    return answer + [None] * len(after)


# ---- vmap ----------------------------------------------------------------------------------------


def _start_batch(
    form: Form, args: Sequence, dims: Sequence, *, ticket: Any, **params: Any
) -> tuple[list, list]:
    """The slot of a batch has the batch's axis, which tells wait about the batch."""
    batch = _vmap.laid_out(form, args, dims, params)
    chain = form.chain(batch.token, batch.after, binder=_Begin(ticket))
    chain.call(form.operation.name, *batch.operands, **params)
    token, token_dim = batch.token_out(chain.token)
    [slot] = chain.binder.slots
    if batch.size is not None:
        slot = jnp.broadcast_to(slot, (batch.size, *slot.shape))
    dim = None if batch.size is None else 0
    return form.join([slot], token), form.join([dim], token_dim)


def _wait_batch(
    form: Form, args: Sequence, dims: Sequence, *, ticket: Any, **params: Any
) -> tuple[list, list]:
    slot, dim = args[0], dims[0]
    size = None if dim is None else slot.shape[dim]
    args, dims = args[1:], dims[1:]
    if dim is None:  # if operands are batched only since the start, the batch is not used
        (leaves, token, after), places = form.split(args, params), form.split(dims, params)
        leaves = list(map(_vmap.first, leaves, places[0]))
        args = [*form.join(leaves, token), *after]
        dims = [*form.join([None] * len(leaves), places[1]), *places[2]]
    else:
        slot = _vmap.first(slot, dim)
    batch = _vmap.laid_out(form, args, dims, params, size)
    chain = form.chain(batch.token, batch.after, binder=Await([slot], ticket))
    results = chain.call(form.operation.name, *batch.operands, **params)
    out_dims = _vmap.batched_results(form, batch, results, params)
    token, token_dim = batch.token_out(chain.token)
    return form.join(results, token), form.join(out_dims, token_dim)


# ---- what public functions call --------------------------------------------------------------


def numbers(slot: Any) -> Iterator[int]:
    """The started operations' numbers in the slot of an eager call."""
    for high, low in np.asarray(slot).reshape(-1, PAIR):
        yield int(high) * (1 << 20) + int(low)
