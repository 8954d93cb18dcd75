"""The effect, and every private name of JAX that plait uses.

Only `_jax_programs` imports ``jax._src`` as well. Run on 0.10.2, and on the oldest and newest JAX
of `_versions`.
"""

import contextlib
import inspect
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import array as _array
from jax._src import config as _config
from jax._src import core as _core
from jax._src import custom_derivatives as _custom
from jax._src import dispatch as _dispatch
from jax._src import effects as _effects
from jax._src import mesh as _mesh
from jax._src import source_info_util as _source_info
from jax._src.interpreters import partial_eval as _pe
from jax.interpreters import ad, mlir
from plait._asked import Asked

trace_state_clean = _core.trace_state_clean
ArrayImpl = _array.ArrayImpl  # concrete arrays, not tracers
bool_state = _config.bool_state
use_abstract_mesh = _mesh.use_abstract_mesh
NO_ABSTRACT_MESH = _mesh.empty_abstract_mesh
no_trace = _core.eval_trace


class _Traces:
    """Fallback if JAX hides its own variable, which takes half the time to read."""

    value = property(lambda _: _core.trace_ctx.trace)


traces = getattr(_core, "trace_state_strong_ref", _Traces())


def is_staging() -> bool:
    """Whether a call made here runs later, in a program that is being traced."""
    return isinstance(traces.value, _pe.DynamicJaxprTrace)


def is_splitting() -> bool:
    """Whether JAX splits off what depends on unknown operands, as for jax.linear_transpose.

    What does not depend on them is computed at once, where nothing may say on which devices.
    """
    return isinstance(traces.value, _pe.JaxprTrace)


# ---- the effect ------------------------------------------------------------------------


_TELL = (
    "call plait.keep_order(PRIMITIVE) for the primitive that lowers it by itself (for lineax: "
    "lineax.internal.linear_solve_p), or wrap the function that contains the operations in "
    "plait.region before the primitive gets it"
)
CURES = f"{_TELL}, or, under jax.jit, call the operations with token="
NO_DEVICES = f"JAX does not say for which devices this is compiled: {_TELL}"


class Ordered(_effects.Effect):
    """The one effect of all operations: program order."""

    def __str__(self) -> str:
        return "plait"

    def __repr__(self) -> str:  # shown in JAX's errors about unsupported effects
        return f"plait's order of operations, which is lost here: {CURES}"

    def __hash__(self) -> int:
        return hash("plait")

    def __eq__(self, other: object) -> bool:
        return type(other) is Ordered


EFFECT = Ordered()
for _registry in (
    _effects.lowerable_effects,
    _effects.ordered_effects,
    _effects.control_flow_allowed_effects,
    _effects.custom_derivatives_allowed_effects,
    _effects.remat_allowed_effects,
    _effects.shardable_ordered_effects,
    _effects.partial_eval_kept_effects,  # kept even if nobody uses the result, as of a send
):
    _registry.add_type(Ordered)


def is_lost_order(error: Exception) -> bool:
    """Whether JAX missed the token because the surrounding lowering passes none."""
    return type(error) is KeyError and error.args == (EFFECT,)


def fresh_token() -> Any:
    """A new HLO token."""
    from jax.extend.mlir.dialects import stablehlo

    return stablehlo.create_token()


def barrier(values: Sequence[Any]) -> list[Any]:
    """The same values; XLA fuses nothing across the barrier."""
    from jax.extend.mlir.dialects import stablehlo

    if not values:
        return []
    made = stablehlo.optimization_barrier(values)
    return list(made) if len(values) > 1 else [getattr(made, "result", made)]


def _token_in(ctx: Any) -> tuple[Any, bool]:
    """The incoming HLO token; a fresh one if the surrounding lowering passes none."""
    if EFFECT in ctx.tokens_in.effects():
        return ctx.tokens_in.get(EFFECT), True
    return fresh_token(), False


class _Lowering(threading.local):
    """What is being lowered by this thread."""

    is_region = False


_lowering = _Lowering()


def _never_called(*args: Any) -> Any:
    raise AssertionError("plait: no program calls this")


def _keep_out_of_cache(ctx: Any) -> None:
    """Keeps a program with tokens among its results out of the persistent compilation cache.

    Jaxlib before 0.11 crashes when it writes such a program. The cache skips programs with host
    callbacks.
    """
    is_region = _lowering.is_region
    if jax.__version_info__ < (0, 11) and not is_region and not ctx.module_context.host_callbacks:
        ctx.module_context.add_host_callback(_never_called)


def lower_ordered(ctx: Any, rule: Callable, args: Sequence, attrs: dict) -> list:
    """Applies an FFI lowering rule with the program's token as last operand and result."""
    token, is_threaded = _token_in(ctx)
    sub = ctx.replace(
        avals_in=(*ctx.avals_in, _core.abstract_token),
        avals_out=(*ctx.avals_out, _core.abstract_token),
    )
    *results, token = rule(sub, *args, token, **attrs)
    if is_threaded:
        _keep_out_of_cache(ctx)
        ctx.set_tokens_out(mlir.TokenSet({EFFECT: token}))
    return results


def lower_traced(ctx: Any, fun: Callable, args: Sequence, is_local: bool = False) -> Sequence:
    """Traces ``fun`` and lowers it in place; operations inside continue the program's order.

    is_local: ``fun`` sees arrays of one device, whose types say nothing of a mesh.
    """
    avals = ctx.avals_in[: len(args)]
    if is_local:
        avals = [_core.ShapedArray(a.shape, a.dtype) for a in avals]
    with mesh_of(avals), beside(_core.get_axis_env().explicit_mesh_axis_names):
        if isinstance(ctx, Asked):
            return ctx.trace(fun, avals)
        token, is_threaded = _token_in(ctx)
        sub = ctx.replace(avals_in=avals, tokens_in=mlir.TokenSet({EFFECT: token}))
        results = mlir.lower_fun(fun, multiple_results=True)(sub, *args)
    if is_threaded:
        ctx.set_tokens_out(sub.tokens_out)
    return results


@contextlib.contextmanager
def beside(axes: Collection[str] | None) -> Iterator[None]:
    """As outside the jax.vmap of a batch that these Explicit mesh axes split.

    Then a jax.shard_map has all mesh axes. Used where an eager jax.vmap lowers a program, and in
    batching rules, around which newer JAX does the same.
    """
    env = _core.get_axis_env()
    rest = env.explicit_mesh_axis_names - frozenset(axes or ())
    if rest == env.explicit_mesh_axis_names:
        yield
        return
    _core.trace_ctx.set_axis_env(_core.AxisEnv(env.axis_sizes, env.spmd_axis_names, rest))
    try:
        yield
    finally:
        _core.trace_ctx.set_axis_env(env)


def mesh_of(avals: Sequence) -> Any:
    """The context in which `jax.jit` traces with operands of these types.

    In it, types of new arrays carry the mesh. While a program is lowered, or a derivative
    transposed, only jax.set_mesh sets a mesh.
    """
    meshes = (aval.sharding.mesh for aval in avals if isinstance(aval, _core.ShapedArray))
    mesh = next((mesh for mesh in meshes if not mesh.empty), None)
    is_set = not jax.sharding.get_abstract_mesh().empty
    return contextlib.nullcontext() if mesh is None or is_set else use_abstract_mesh(mesh)


# ---- devices and manual regions ----------------------------------------------------------


def needs_devices(primitive: Any) -> None:
    """Lowerings of ``primitive`` depend on the devices, so meshes do not share them."""
    _dispatch.prim_requires_devices_during_lowering.add(primitive)


def lowering_devices(ctx: Any) -> tuple | None:
    """Devices that a lowering is for, in the order of the mesh; None if JAX does not say."""
    if isinstance(ctx, Asked):
        return ctx.devices
    where = ctx.module_context.axis_context
    devices = getattr(where, "device_assignment", None)
    mesh = getattr(where, "mesh", None)
    if devices is None and isinstance(mesh, jax.sharding.Mesh):
        devices = tuple(mesh.devices.flat)
    return devices


def lowering_platforms(ctx: Any) -> Sequence[str]:
    """Platforms that a lowering is for, as JAX names them there."""
    return ctx.platforms or ctx.module_context.platforms


def n_partitioned(ctx: Any) -> int:
    """Among how many devices XLA partitions the program itself: 1 in a manual region."""
    where = ctx.module_context.axis_context
    return 1 if hasattr(where, "mesh") else getattr(where, "num_devices", 1)


def manual_mesh() -> Any | None:
    """The mesh of the manual region (shard_map) that is being traced; None outside one."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh if not mesh.empty and mesh.manual_axes else None


def axes_of_batches() -> frozenset[str]:
    """Mesh axes that split batches of surrounding jax.vmaps, by types or spmd_axis_name."""
    env = _core.get_axis_env()
    return frozenset(env.explicit_mesh_axis_names) | frozenset(env.spmd_axis_names)


def concrete_mesh() -> Any | None:
    """The mesh that jax.set_mesh set, with its devices; None if there is none."""
    mesh = _mesh.get_concrete_mesh()
    return None if mesh is None or mesh.empty else mesh


_NO_MESH = jax.sharding.Mesh(np.empty((), object), ())


# The mesh of jax.set_mesh, and its value if nobody has called that; JAX 0.12 changed both.
mesh_context = getattr(_config, "device_context", None) or _mesh.device_context
no_set_mesh = None if hasattr(_config, "device_context") else _mesh.empty_concrete_mesh


def alone() -> Any:
    """The context without a mesh, where new arrays are on one device; outside of traces."""
    return contextlib.nullcontext() if concrete_mesh() is None else jax.set_mesh(_NO_MESH)


def is_auto(mesh: Any) -> bool:
    """Whether no axis of a mesh appears in types."""
    return all(kind == jax.sharding.AxisType.Auto for kind in mesh.axis_types)


def entered_mesh() -> Any | None:
    """The mesh of the surrounding `with mesh:`, as programs before jax.set_mesh have it."""
    mesh = _mesh.thread_resources.env.physical_mesh
    return None if mesh.empty else mesh


def checks_vma() -> bool:
    """Whether the manual region being traced tracks what varies over its axes."""
    return bool(_config._check_vma.value)


def vma_of_aval(aval: Any) -> frozenset:
    """Mesh axes over which a value varies, if the manual region tracks that."""
    if hasattr(aval, "mat"):  # since jax 0.10
        return aval.mat.varying
    return getattr(aval, "vma", frozenset())


def vma_of(x: Any) -> frozenset:
    """As `vma_of_aval`, for a value."""
    return vma_of_aval(jax.typeof(x))


def with_vma(aval: Any, vma: frozenset) -> Any:
    """The aval of a value that varies over these axes."""
    if hasattr(aval, "mat"):
        return aval.update(manual_axis_type=aval.mat.update(varying=vma))
    return aval.update(vma=vma)


def aval_here(shape: Sequence[int], dtype: Any) -> Any:
    """The aval of a new value in the region that is being traced."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return _core.ShapedArray(tuple(shape), dtype)
    spec = jax.sharding.PartitionSpec(*[None] * len(shape))
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return _core.ShapedArray(tuple(shape), dtype, sharding=sharding)


def zero_tangent(x: Any) -> Any:
    """The symbolic zero for a result without derivative."""
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def pcast_varying(x: Any, axes: Sequence[str]) -> Any:
    """Marks ``x`` as varying over ``axes``, where it is not so marked already."""
    missing = tuple(a for a in axes if a not in vma_of(x))
    if not missing or not checks_vma():
        return x
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(x, missing, to="varying")
    return jax.lax.pvary(x, missing)


def _is_hoisting() -> bool:
    """Whether JAX is finding the parts of a scan that it can compute once, before the loop."""
    frame, called = inspect.currentframe(), ""
    while frame is not None:
        name = frame.f_code.co_name
        if name == "_scan_known_hoisting":
            return True
        if (name, called) == ("_scan_partial_eval_custom", "partial_eval_jaxpr_nounits"):
            return True  # under jax.checkpoint
        frame, called = frame.f_back, name
    return False


def _is_in_while() -> bool:
    """Whether JAX splits a loop of an unknown number of rounds, which can save nothing."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "_while_partial_eval_custom":
        frame = frame.f_back
    return frame is not None


def saves_unless_complex(primitive: Any) -> None:
    """Under jax.checkpoint results are saved, as those of all effects, so that the backward pass
    does not communicate again. Complex results are computed again, since JAX fails to save them,
    and so are those in a jax.lax.while_loop.
    """  # noqa: D205, D415
    _pe.partial_eval_jaxpr_custom_rules[primitive] = _save_unless_complex


def _saved(eqn: Any, is_saved: bool, unknown: Sequence, is_there: Sequence) -> tuple:
    """What JAX wants to know about an equation under jax.checkpoint."""
    n = len(eqn.outvars)
    missing = [
        v
        for v, there in zip(eqn.invars, is_there, strict=True)
        if isinstance(v, _core.Var) and not there
    ]
    if any(unknown):
        return None, eqn, [True] * n, [True] * n, missing
    if not is_saved:
        return eqn, eqn, [False] * n, [True] * n, missing
    return eqn, None, [False] * n, [False] * n, []


def _save_unless_complex(saveable: Any, unknown: Sequence, is_there: Sequence, eqn: Any) -> tuple:
    # Both partners of a transfer must do the same: one has the complex array as an operand.
    arrays = [*eqn.invars, *eqn.outvars]
    is_complex = any(jnp.issubdtype(v.aval.dtype, jnp.complexfloating) for v in arrays)
    unknown = [*unknown, _is_hoisting()]
    return _saved(eqn, not is_complex and not _is_in_while(), unknown, is_there)


def _save_rule(saveable: Any, unknown: Sequence, is_there: Sequence, eqn: Any) -> tuple:
    """For functions with rules of their own: plait's are treated as its operations, others as by
    JAX, except that what a policy moves to other memory stays where it is.
    """  # noqa: D205
    if EFFECT in eqn.effects:
        return _save_unless_complex(saveable, unknown, is_there, eqn)
    if any(unknown):
        return _saved(eqn, False, unknown, is_there)
    chosen = saveable(eqn.primitive, *(v.aval for v in eqn.invars), **eqn.params)
    has_effects = any(not isinstance(e, _core.NamedAxisEffect) for e in eqn.effects)
    is_saved = has_effects or _pe.ensure_enum(chosen) is not _pe.Recompute
    return _saved(eqn, is_saved, unknown, is_there)


_pe.partial_eval_jaxpr_custom_rules.setdefault(_custom.custom_jvp_call_p, _save_rule)


def def_ordered(primitive: Any, results: Callable) -> None:
    """Gives the primitive the effect; ``results`` makes the avals of its results."""
    saves_unless_complex(primitive)
    stays_in_loops(primitive)
    primitive.def_effectful_abstract_eval(
        lambda *avals, **params: (results(*avals, **params), {EFFECT})
    )


def is_tracing() -> bool:
    """Whether a program is being traced, so that nothing can be run and waited for."""
    return _core.trace_ctx.trace is not _core.eval_trace


def compiled() -> Any:
    """The context in which plait's own programs run, even if jax.disable_jit is on."""
    return jax.disable_jit(False) if jax.config.jax_disable_jit else contextlib.nullcontext()


def trace_state() -> Any:
    """A value that differs between functions being traced, and is equal within one of them."""
    return _core.get_opaque_trace_state(convention="plait")


def stays_in_loops(primitive: Any) -> None:
    """Derivatives of a scan keep operations inside the loop even if their operands do not change:
    which operands change may differ between ranks, and all must run the same number of
    operations.
    """  # noqa: D205, D415

    def rule(trace: Any, *tracers: Any, **params: Any) -> Any:
        if not all(t.is_known() for t in tracers) or not _is_hoisting():
            return trace.default_process_primitive(primitive, tracers, params)
        given = [trace.instantiate_const(t) for t in tracers]
        avals, effects = primitive.abstract_eval(*(t.aval for t in given), **params)
        results = [_pe.JaxprTracer(trace, _pe.PartialVal.unknown(a), None) for a in avals]
        source = _source_info.current()
        eqn = _pe.new_eqn_recipe(trace, given, results, primitive, params, effects, source)
        trace.effect_handles.append(_pe.EffectHandle(given, eqn))
        for result in results:
            result.recipe = eqn
        return results

    _pe.custom_partial_eval_rules[primitive] = rule


def is_constant(primitive: Any) -> None:
    """Results do not depend on some operands' values: if these are unknown, it runs without them.

    Except in loops, see `_is_hoisting`: there it stays as it is.
    """

    def rule(trace: Any, *tracers: Any, **params: Any) -> Any:
        if all(t.is_known() for t in tracers) or _is_hoisting():
            return trace.default_process_primitive(primitive, tracers, params)
        return primitive.bind(*[t.pval.get_known() for t in tracers if t.is_known()], **params)

    _pe.custom_partial_eval_rules[primitive] = rule


def underlying(x: Any) -> Any:
    """The array that an eager derivative is taken at, else ``x`` itself."""
    while isinstance(x, _core.Tracer) and hasattr(x, "primal"):
        x = x.primal
    return x


def eager_array(x: Any) -> ArrayImpl | None:
    """The array below all eager derivatives and batches; None in a program."""
    while isinstance(x, _core.Tracer):
        x = getattr(x, "val", getattr(x, "primal", None))
    return x if isinstance(x, ArrayImpl) else None


def is_batched(x: Any) -> bool:
    """Whether ``x`` has an axis that a jax.vmap around this call hides."""
    x = underlying(x)
    return isinstance(x, _core.Tracer) and type(getattr(x, "batch_dim", None)) is int


def eager_sharding(x: Any) -> tuple | None:
    """Mesh, and spec with an entry an axis, of the array that an eager call is made with.

    Under an eager jax.vmap, without the batch axis.
    """
    x, at = underlying(x), None
    if is_batched(x):
        x, at = underlying(x.val), x.batch_dim
    found = None if isinstance(x, _core.Tracer) else getattr(x, "sharding", None)
    if not isinstance(found, jax.sharding.NamedSharding):
        return None
    spec = (*found.spec, *(None,) * (x.ndim - len(found.spec)))
    return found.mesh, spec if at is None else (*spec[:at], *spec[at + 1 :])
