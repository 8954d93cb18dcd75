"""Private names of JAX for whole programs: regions, loops, ahead-of-time compilation.

`_jax` has those for single operations.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import core as _core
from jax._src import dispatch as _dispatch
from jax._src import effects as _effects
from jax._src import xla_bridge as _bridge
from jax._src.interpreters import batching
from jax._src.interpreters import partial_eval as _pe
from jax._src.interpreters import pxla as _pxla
from jax._src.lax.control_flow import loops as _loops
from jax._src.state import types as _state
from jax.interpreters import mlir
from plait import _jax
from plait._asked import like

# ---- for regions (_region.py) --------------------------------------------------------------------


def inline(jaxpr: Any) -> Callable:
    """A closed jaxpr as a function."""
    return lambda *args: _core.eval_jaxpr(jaxpr.jaxpr, (), *args)


_MORE = (
    {"outer_traceback": None}
    if "outer_traceback" in inspect.signature(mlir.jaxpr_subcomp).parameters
    else {}
)


def lower_region(ctx: Any, *args: Any, jaxpr: Any) -> Sequence:
    """Lowers a jaxpr that hides the order effect from its surroundings, but not other effects."""
    others = {effect: ctx.tokens_in.get(effect) for effect in ctx.tokens_in.effects()}
    outside, _jax._lowering.is_region = _jax._lowering.is_region, True
    try:
        results, tokens = mlir.jaxpr_subcomp(
            ctx.module_context,
            jaxpr.jaxpr,
            ctx.name_stack,
            mlir.TokenSet(others | {_jax.EFFECT: _jax.fresh_token()}),
            [],
            *args,
            dim_var_values=ctx.dim_var_values,
            const_lowering=ctx.const_lowering,
            **_MORE,
        )
    finally:
        _jax._lowering.is_region = outside
    if others:
        ctx.set_tokens_out(mlir.TokenSet({effect: tokens.get(effect) for effect in others}))
    return results


def lowers_inside(primitive: Any) -> None:
    """For a primitive with a jaxpr: gives JAX another form of the primitive on request.

    JAX lowers some primitives before all others (hijax); from 0.12 on also some of jax.numpy.
    """
    if hasattr(_core.Primitive, "to_lojax"):
        primitive.is_high = lambda *avals, jaxpr: getattr(jaxpr, "is_high", False)
        primitive.to_lojax = lambda *args, jaxpr: primitive.bind(
            *args, jaxpr=_pe.lower_jaxpr2(jaxpr)
        )


def is_ref(x: Any) -> bool:
    """Whether x is a reference to a mutable array, as from jax.new_ref."""
    return isinstance(x, _core.Ref) or isinstance(getattr(x, "aval", None), _state.AbstractRef)


def has_refs(jaxpr: Any) -> bool:
    """Whether the jaxpr reads or writes references, including its own."""
    kinds = (_state.RefEffect, _core.InternalMutableArrayEffect)
    return any(isinstance(effect, kinds) for effect in jaxpr.effects)


def communicators(jaxpr: Any) -> set[int | None]:
    """The numbers of the communicators of its operations; None stands for all meshes."""
    found: set[int | None] = set()
    for eqn in jaxpr.eqns:
        if _jax.EFFECT in eqn.effects:
            inner = list(_core.jaxprs_in_params(eqn.params))
            for sub in inner:
                found |= communicators(getattr(sub, "jaxpr", sub))
            if not inner:
                found.add(getattr(eqn.params.get("group"), "comm", None))
    return found


def close_over_nothing(closed: Any) -> tuple[Any, Sequence]:
    """The jaxpr with its constants turned into leading arguments, and the constants."""
    jaxpr = _pe.convert_constvars_jaxpr(closed.jaxpr)
    if hasattr(_core, "ClosedJaxpr"):  # a single class since jax 0.12
        jaxpr = _core.ClosedJaxpr(jaxpr, ())
    return jaxpr, closed.consts


# ---- for primitives of other libraries (_foreign.py) ---------------------------------------------


def is_compiled_alone(primitive: Any) -> bool:
    """Whether JAX compiles the primitive as a program of its own in eager calls."""
    return getattr(primitive.impl, "func", None) is _dispatch.apply_primitive


def effects_in(impl: Callable, avals: Sequence, params: dict[str, Any]) -> set:
    """Effects of an eager call with operands of these types: those of a given jaxpr, or traced."""
    given = [e for jaxpr in _core.jaxprs_in_params(params) for e in jaxpr.effects]
    if _jax.EFFECT in given:
        return {_jax.EFFECT}
    return set(jax.make_jaxpr(functools.partial(impl, **params))(*like(avals)).effects)


# ---- tokens that JAX keeps of programs that were called ------------------------------------------


def forget_failed() -> None:
    """Drops the order's token if it comes from a failed program: all later ones would fail.

    JAX passes this token between programs of jax.jit; a region's token stays in the region.
    """
    tokens = _dispatch.runtime_tokens.current_tokens
    token = tokens.get(_jax.EFFECT)
    if token is None or not token._buf.is_ready():
        return
    try:
        token.block_until_ready()
    except Exception:  # whatever its kind, somebody else has been told
        tokens.pop(_jax.EFFECT, None)


def failed_tokens() -> list[Exception]:
    """Failures of this thread's last programs on each device, which JAX raises at its end.

    These are failures of programs without results, and other failures: those of callbacks. Waits
    for the programs.
    """
    tokens, failures = _dispatch.runtime_tokens, []
    for token in (*tokens.current_tokens.values(), *tokens.output_runtime_tokens.values()):
        try:
            token.block_until_ready()
        except Exception as error:
            failures.append(error)
    return failures


def forget_tokens() -> None:
    """Makes JAX wait for none of this thread's programs, nor raise their failures."""
    _dispatch.runtime_tokens.clear()


# ---- vmap ----------------------------------------------------------------------------------------


def vmapped(axis: Any, f: Callable, dims: Sequence) -> Callable:
    """jax.vmap inside a rule that JAX passes the axis to, even if no operand is batched."""
    name = None if axis.name is _core.no_axis_name else axis.name
    given = {"axis_size": axis.size, "axis_name": name, "spmd_axis_name": axis.spmd_name}
    if any(dim is not None for dim in dims):
        return jax.vmap(f, in_axes=tuple(dims), **given)
    mapped = jax.vmap(lambda _, args: f(*args), in_axes=(0, None), **given)
    return lambda *args: mapped(jnp.zeros((axis.size,)), args)


def _has_lanes(axis: Any, dims: Sequence, cond: Any, body: Any, n_cond: int, n_body: int) -> bool:
    """Whether each lane of a loop under vmap has its own condition, by JAX's rule."""

    def batched(jaxpr: Any, given: list, instantiate: Any) -> list:
        return batching.batch_jaxpr(jaxpr, axis, given, instantiate=instantiate)[1]

    is_batched = [dim is not None for dim in dims]
    for_cond, for_body = is_batched[:n_cond], is_batched[n_cond : n_cond + n_body]
    carry, before = is_batched[n_cond + n_body :], None
    while carry != before:
        before = carry
        carry = [a or b for a, b in zip(carry, batched(body, for_body + carry, carry), strict=True)]
    return batched(cond, for_cond + carry, False)[0]


def _batch_while(rule: Callable, axis: Any, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    """JAX's rule for loops, applied to a loop whose condition does not communicate.

    For a condition with an ordered effect, JAX's lowering does not freeze lanes that are done. So
    the body computes the condition of the next round.
    """
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    if _jax.EFFECT not in cond.effects or not _has_lanes(axis, dims, cond, body, n_cond, n_body):
        return rule(axis, args, dims, **params)

    def loop(*args: Any) -> list:
        for_cond, for_body = args[:n_cond], args[n_cond : n_cond + n_body]

        def goes_on(state: Sequence) -> Any:
            return _core.jaxpr_as_fun(cond)(*for_cond, *state)[0]

        def step(carry: tuple) -> tuple:
            state = _core.jaxpr_as_fun(body)(*for_body, *carry[1])
            return goes_on(state), state

        init = list(args[n_cond + n_body :])
        return jax.lax.while_loop(lambda carry: carry[0], step, (goes_on(init), init))[1]

    results = vmapped(axis, loop, dims)(*args)
    return results, [0] * len(results)


batching.fancy_primitive_batchers[_loops.while_p] = functools.partial(
    _batch_while, batching.fancy_primitive_batchers[_loops.while_p]
)


# ---- derivatives of loops ------------------------------------------------------------------------


def _known_while(rule: Callable, trace: Any, *tracers: Any, **params: Any) -> Sequence:
    """JAX's rule for the parts of a loop that depend on tangents, for a loop where no part does.

    Because of the loop's effects, also those of a jax.debug.print, JAX treats all of the loop as
    dependent: its operations would run once more, and it would have no reverse derivative.
    """
    n_before = len(trace.effect_handles)
    results = rule(trace, *tracers, **params)
    unknowns, n_cond = [not t.is_known() for t in tracers], params["cond_nconsts"]
    body, cond = params["body_jaxpr"], params["cond_jaxpr"]
    carry = unknowns[n_cond + params["body_nconsts"] :]
    is_staged = len(trace.effect_handles) > n_before
    is_known = not any(isinstance(y, _pe.JaxprTracer) and not y.is_known() for y in results)
    if is_staged and is_known and _jax.EFFECT in body.effects | cond.effects:
        parts = (body, unknowns[n_cond:]), (cond, unknowns[:n_cond] + carry)
        left = [_pe.partial_eval_jaxpr_nounits(*part, instantiate=False)[1] for part in parts]
        if not any(_effects.partial_eval_kept_effects.filter_in(x.effects) for x in left):
            del trace.effect_handles[n_before:]
    return results


_pe.custom_partial_eval_rules[_loops.while_p] = functools.partial(
    _known_while, _pe.custom_partial_eval_rules[_loops.while_p]
)


# ---- ahead of time -------------------------------------------------------------------------------


def _fast_call(make: Callable, executable: Any, params: Any) -> Any:
    """JAX's own fast way to call ahead-of-time compiled programs, or None for the slow one.

    The fast way ignores an order's token, and complains of a missing operand.
    """
    is_ordered = _jax.EFFECT in getattr(executable.unsafe_call, "ordered_effects", ())
    return None if is_ordered else make(executable, params)


_make = _pxla.MeshExecutable.create_cpp_call
_pxla.MeshExecutable.create_cpp_call = lambda self, params: _fast_call(_make, self, params)


def have_devices() -> bool:
    """Whether JAX has created any devices; most queries create them."""
    return _bridge.backends_are_initialized()
