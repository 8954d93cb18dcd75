"""JAX primitives of the operations of the C core, made in a loop over its table.

Each operation has three primitives: one with the ordered effect, one with an explicit token as last
operand and result, and one with both. The last is for regions, where the effect costs nothing:
there calls by token keep their place among those by effect. Otherwise XLA might run them in one
order on one rank and in another on its peer, each waiting for the other. Derivative and batching
rules are written once, on a `Chain`.

An operation of the rank model takes any number of arrays, the leaves of a pytree. JAX
differentiates and batches each array with its own dtype. Only the lowering packs them into the one
message that the core sees (`_pack`). Packing outside the primitive would have to hide
floating-point numbers in bytes, which have no derivatives.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir
from plait import _comm, _core, _eager, _jax, _pack, _platforms, _region, _sites, _turns, _vmap
from plait._asked import Asked


@dataclasses.dataclass(frozen=True)
class Rules:
    """What JAX needs to know of an operation; the defaults fit a linear elementwise operation.

    frame: from the parameters, how many leading axes of an operand have a meaning, and the
        leading axes that replace them in a result. All other axes are payload: they are
        packed together, and vmap puts its axis first among them.
    results: result avals from operand avals and parameters, if the frame does not say.
    transpose: operand cotangents from (chain, result cotangents, operands, parameters);
        None: not a linear operation.
    jvp: (primal chain, tangent chain, operands, tangents, parameters) to both results.
    joins: results from (chain, operands, parameters) for several leaves.
    fits: from operand avals and parameters, the parameters that describe leading axes, including
        those that vmap adds; called when the operation is lowered.
    plain: how many trailing operands and results are no payload: never differentiated, packed
        or batched.
    overlaps: from the parameters, whether tangent and adjoint are one operation each, on tangents
        or cotangents only, and so are the derivatives of the adjoint: then a started operation
        has derivatives that are started, too (`_started`).
    reduces: computes with the elements, so different dtypes are different messages.
    is_invariant: the result is equal on all ranks.
    is_matched: a transfer between two ranks, matched by rank and tag.
    general: for eager calls whose parameters keep changing, see `_eager.define`.
    """

    transpose: Callable[["Chain", Sequence, Sequence, dict], list] | None
    frame: Callable[[dict], tuple[int, tuple[int, ...]]] = lambda params: (0, ())
    results: Callable[[Sequence, dict], list] | None = None
    jvp: Callable[..., tuple[list, list]] | None = None
    joins: Callable[["Chain", Sequence, dict], list] | None = None
    fits: Callable[[Sequence, dict], dict] = lambda avals, params: {}
    plain: tuple[int, int] = (0, 0)
    overlaps: Callable[[dict], bool] = lambda params: True
    reduces: bool = False
    is_invariant: bool = False
    is_matched: bool = False
    general: Callable[[Sequence, dict], tuple[Any, list, dict, int]] | None = None


# Whether a primitive takes and returns a token, and whether it has the ordered effect.
KINDS = ((False, True), (True, False), (True, True))


class Chain:
    """A sequence of operations: by the effect (token None) or by an explicit token.

    after: arrays that every operation waits for, as operands that it does not use.
    site: the line for operations without a line of their own; None: the current line.
    binder: called instead of carrying the operation out, as ``binder(chain, name,
        operands, parameters)``: starts the operation, or waits for it (`_started`).
    has_both: operations by token have the effect as well; None: in a region.
    """

    def __init__(
        self,
        token: Any = None,
        after: Sequence = (),
        site: int | None = None,
        binder: Callable[..., list] | None = None,
        has_both: bool | None = None,
    ):
        self.token, self.after, self.site, self.binder = token, tuple(after), site, binder
        self.has_both = _region.is_in_region() if has_both is None else has_both

    def call(self, name: str, *args: Any, **params: Any) -> list:
        """Binds the operation and moves the token on."""
        if "site" not in params:
            params["site"] = _sites.here() if self.site is None else self.site
        params["n_after"] = len(self.after)
        if self.binder is not None:
            return self.binder(self, name, args, params)
        return self.carry_out(name, args, params)

    def carry_out(self, name: str, args: Sequence, params: dict) -> list:
        """Binds the operation itself, ignoring the binder."""
        return self.bind(operations()[name].primitives, args, params)

    def bind(self, primitives: Sequence, args: Sequence, params: dict) -> list:
        """Binds the primitive of the chain's kind among those of `KINDS`."""
        effect_p, token_p, both_p = primitives
        if self.token is None:
            return effect_p.bind(*args, *self.after, **params)
        primitive = both_p if self.has_both else token_p
        *results, self.token = primitive.bind(*args, self.token, *self.after, **params)
        return results


class TangentChain(Chain):
    """The tangents of an operation on a chain.

    Nothing orders two chains by token, and a receive from any source takes whatever comes. So the
    messages of tangents and adjoints have a communicator of their own, and do not meet those of the
    primal operations. Tangents of a chain by token wait for the primal operation: an adjoint that
    runs first could wait for a partner that waits for its message. If the token has no derivative,
    the effect orders them.
    """

    def __init__(
        self,
        primal: Chain,
        token: Any,
        is_matched: bool,
        binder: Callable[..., list] | None = None,
    ):
        super().__init__(token, primal.after, primal.site, binder, primal.has_both)
        self._primal, self._is_matched = primal, is_matched

    def call(self, name: str, *args: Any, **params: Any) -> list:
        group = params["group"]
        if self._primal.token is not None:
            self.after = (self._primal.token,)
            group = group.by_effect() if self.token is None else group
        if self.token is not None or self._is_matched:
            group = group.of_tangents()
        return super().call(name, *args, **(undonated(params) | {"group": group}))


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row of the C table with its primitives and its rules; row None: no row in the table."""

    name: str
    row: _core.Row | None
    rules: Rules
    primitives: tuple  # by `KINDS`


_RULES: dict[str, Rules] = {}


def rules(name: str, given: Rules) -> None:
    """Registers the rules of an operation; called by the module of its family."""
    _RULES[name] = given


@functools.cache
def operations() -> dict[str, Operation]:
    """All operations with rules, by name: those of the core, and `pvary`."""
    # they register rules
    from plait import _coll_rules, _dense_rules, _layout_rules, _p2p_rules, _tall  # noqa: F401

    rows = _core.rows()
    return {name: _make(name, rows.get(name), given) for name, given in _RULES.items()}


@dataclasses.dataclass(frozen=True)
class Form:
    """One of the primitives of an operation, a kind of `KINDS`.

    Its operands are those of the operation, then the token, then arrays that are only waited for.
    Its results are those of the operation, then the token.
    """

    operation: Operation
    has_token: bool
    has_effect: bool

    @property
    def primitive(self) -> Any:
        """The primitive of this form."""
        return self.operation.primitives[KINDS.index((self.has_token, self.has_effect))]

    def chain(
        self,
        token: Any,
        after: Any,
        site: int | None = None,
        binder: Callable[..., list] | None = None,
    ) -> Chain:
        """A chain whose operations have this form."""
        return Chain(token, after, site, binder, self.has_token and self.has_effect)

    def split(self, args: Sequence, params: dict) -> tuple[Sequence, Any, Sequence]:
        """The operands proper, the token or None, and the arrays that are only waited for."""
        n = len(args) - params["n_after"]
        if not self.has_token:
            return args[:n], None, args[n:]
        return args[: n - 1], args[n - 1], args[n:]

    def join(self, results: Sequence, token: Any) -> list:
        """The primitive's results."""
        return [*results, token] if self.has_token else list(results)


def forms(operation: Operation) -> list[Form]:
    """The forms of all kinds."""
    return [Form(operation, *kind) for kind in KINDS]


def primitives_of(name: str) -> tuple:
    """A primitive of each kind."""
    made = tuple(jex.Primitive(name + suffix) for suffix in ("", "_token", "_both"))
    for primitive in made:
        primitive.multiple_results = True
    return made


def _make(name: str, row: _core.Row | None, given: Rules) -> Operation:
    operation = Operation(name, row, given, primitives_of("plait_" + name))
    if row is not None:
        _platforms.register(row.target, _platforms.symbols(row))
    for form in forms(operation):
        primitive = form.primitive
        general = None if form.has_token else given.general
        _eager.define(primitive, functools.partial(_donated, form), general=general)
        _jax.needs_devices(primitive)
        lower = functools.partial(_lower, form)
        if row is None:
            mlir.register_lowering(primitive, lower)
        else:
            _platforms.lower(primitive, lower, name)
        ad.primitive_jvps[primitive] = functools.partial(_jvp, form)
        ad.primitive_transposes[primitive] = functools.partial(_transpose, form)
        batching.primitive_batchers[primitive] = functools.partial(_batch, form)
        abstract = functools.partial(results, form)
        if not form.has_effect or row is None:
            primitive.def_abstract_eval(abstract)
        else:
            _jax.def_ordered(primitive, abstract)
    return operation


def results(form: Form, /, *args: Any, **params: Any) -> list:
    """The results' avals. No dtype is weak: it might be weak on some ranks only."""
    given = form.operation.rules
    avals, token, _ = form.split(args, params)
    if given.results is not None:
        found = given.results(avals, params)
    else:
        n, lead = given.frame(params)
        found = [a.update(shape=(*lead, *a.shape[n:])) for a in avals]
        if given.is_invariant:
            over = frozenset(params["group"].over)
            found = [_jax.with_vma(a, _jax.vma_of_aval(a) - over) for a in found]
    return form.join([a.update(weak_type=False) for a in found], token)


def _donated(form: Form, args: Sequence, params: dict) -> tuple[int, ...]:
    """The operand whose memory the result takes; none if several leaves are packed."""
    row = form.operation.row
    is_one = row is not None and len(form.split(args, params)[0]) == row.n_args
    return (row.alias,) if is_one and row.alias >= 0 and params.get("donate") else ()


def undonated(params: dict) -> dict:
    """The same without donation: the operands are needed later, or are not the caller's."""
    return params | {"donate": False} if "donate" in params else params


# ---- lowering ----------------------------------------------------------------------------------


def _lower(form: Form, ctx: Any, /, *args: Any, **params: Any) -> Any:
    row = form.operation.row
    leaves, token, _ = form.split(args, params)
    if row is None:  # nothing to communicate
        return form.join(leaves, token)
    if len(leaves) > row.n_args:
        return _lower_joined(form, ctx, *args, **params)
    if isinstance(ctx, Asked):
        fits = form.operation.rules.fits(ctx.avals_in, params)
        return ctx.call(row, params | fits, ctx.avals_out)
    attrs = attributes(row, ctx, params)
    aliases = {i: 0 for i in _donated(form, args, params)}
    if form.has_token:
        aliases[row.n_args] = row.n_rets
    rule = jax.ffi.ffi_lowering(
        row.target, has_side_effect=True, operand_output_aliases=aliases or None
    )
    if form.has_effect:
        return _jax.lower_ordered(ctx, rule, args, attrs)
    return rule(ctx, *args, **attrs)


def attributes(row: _core.Row, ctx: Any, params: dict) -> dict[str, Any]:
    """The attributes that an operation's handler reads."""
    if (n := _jax.n_partitioned(ctx)) > 1:
        raise TypeError(
            f"{row.name}: an operand is on {n} devices, but the arrays of a rank are on one. "
            "(Under jax.set_mesh JAX makes new arrays on all devices, and all arrays in a jitted "
            "function of arrays on a mesh are on the devices of the mesh.) Call it inside "
            "jax.shard_map with mesh axes as comm=, call it in a program of its own, or use a "
            "function of global arrays, such as plait.sum or plait.redistribute"
        )
    params = params | _RULES[row.name].fits(ctx.avals_in, params)
    attrs: dict[str, Any] = {name: int(params[name]) for name in row.scalars}
    attrs |= {name: float(params[name]) for name in row.floats}
    attrs |= {name: np.asarray(params[name], np.int64) for name in row.arrays}
    devices = _jax.lowering_devices(ctx)
    if params["group"].comm is not None:
        _turns.note(devices)
    attrs["comm"] = _comm.in_programs(params["group"].number(devices))
    attrs["site"] = params["site"]
    if "trees" in params:
        attrs["trees"] = params["trees"]
    return attrs


def _lower_joined(form: Form, ctx: Any, /, *args: Any, **params: Any) -> Any:
    """Several leaves: packs them, binds the operation on the packed arrays, and unpacks."""
    params = undonated(params)

    def joined(*args: Any) -> list:
        leaves, token, after = form.split(args, params)
        chain = form.chain(token, after, params["site"])
        return form.join(call_joined(form.operation, chain, leaves, params), chain.token)

    return _jax.lower_traced(ctx, joined, args, is_local=True)


def call_joined(operation: Operation, chain: Chain, leaves: Sequence, params: dict) -> list:
    """An operation on more leaves than the core's operation has operands."""
    if operation.rules.joins is not None:
        return operation.rules.joins(chain, leaves, params)
    n, lead = operation.rules.frame(params)
    results: list[Any] = [None] * len(leaves)
    for places in _pack.messages(leaves, operation.rules.reduces):
        packed = _pack.Packed([leaves[i] for i in places], n)
        given = params | packed.trees(packed if operation.rules.is_matched else None)
        [y] = chain.call(operation.name, packed.buffer, **given)
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


def jvp_rule(operation: Operation) -> Callable[..., tuple[list, list]]:
    """The operation's own jvp rule, or that of a linear function."""
    return operation.rules.jvp or functools.partial(_linear_jvp, operation.name)


def _jvp(form: Form, /, primals: Sequence, tangents: Sequence, **params: Any) -> tuple[list, list]:
    rule = jvp_rule(form.operation)
    args, token, after = form.split(primals, params)
    d_args, d_token, _ = form.split(tangents, params)
    primal = form.chain(token, after, params["site"])
    is_ordered = form.has_token and is_inexact(token)
    d_token = ad.instantiate_zeros(d_token) if is_ordered else None
    tangent = TangentChain(primal, d_token, form.operation.rules.is_matched)
    results, d_results = rule(primal, tangent, args, d_args, params)
    if not form.has_token:
        return results, d_results
    d_token = tangent.token if is_ordered else _jax.zero_tangent(primal.token)
    return [*results, primal.token], [*d_results, d_token]


def aval_of(x: Any) -> Any:
    """The aval of an operand of a transpose rule, known or not."""
    return x.aval if ad.is_undefined_primal(x) else jax.typeof(x)


def _transpose(form: Form, /, cotangents: Sequence, *args: Any, **params: Any) -> list:
    # A symbolic zero is not skipped: it may be one on some ranks only.
    cotangents = list(map(ad.instantiate_zeros, cotangents))
    leaves, token, after = form.split(args, params)
    chain = form.chain(cotangents.pop() if form.has_token else None, after, params["site"])
    answer = transposed(form.operation, chain, cotangents, leaves, params)
    if form.has_token:
        answer.append(chain.token if ad.is_undefined_primal(token) else None)
    return answer + [None] * len(after)


def transposed(
    operation: Operation, chain: Chain, cotangents: Sequence, leaves: Sequence, params: dict
) -> list:
    """Cotangents of the operands, None for known operands."""
    if operation.rules.transpose is None:
        raise TypeError(f"{operation.name}: not a linear function of its operands")
    given = operation.rules.transpose(chain, cotangents, leaves, params)
    return [
        _jax.pcast_varying(ct, sorted(_jax.vma_of_aval(x.aval)))
        if ad.is_undefined_primal(x)
        else None
        for ct, x in zip(given, leaves, strict=True)
    ]


# ---- vmap ----------------------------------------------------------------------------------------


def _batch(form: Form, /, args: Sequence, dims: Sequence, **params: Any) -> tuple[list, list]:
    batch = _vmap.laid_out(form, args, dims, params)
    chain = form.chain(batch.token, batch.after)
    results = chain.call(form.operation.name, *batch.operands, **params)
    out_dims = _vmap.batched_results(form, batch, results, params)
    token, token_dim = batch.token_out(chain.token)
    return form.join(results, token), form.join(out_dims, token_dim)


@contextlib.contextmanager
def bound_by(binder: Callable[..., list]) -> Iterator[None]:
    """Inside the ``with`` block, public functions hand their operations to ``binder``."""
    before, _eager.now.binder = _eager.now.binder, binder
    try:
        yield
    finally:
        _eager.now.binder = before


def public_chain(token: Any) -> Chain:
    """The chain of a public function's operations."""
    return Chain(token, binder=_eager.now.binder)


def call(name: str, *args: Any, token: Any = None, **params: Any) -> tuple[list, Any]:
    """Binds an operation; returns its results, and the next token if a token was given."""
    chain = public_chain(token)
    results = chain.call(name, *args, **params)
    return results, chain.token
