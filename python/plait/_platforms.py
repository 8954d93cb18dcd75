"""The platforms of JAX that programs with operations run on, and their handlers there."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.interpreters import mlir
from plait import _core, _errors, _jax, _sites, _split

_FFI_NAMES = {"cpu": "cpu", "cuda": "CUDA"}  # by the name that lowerings use
rules: dict[Any, Callable] = {}  # by primitive
NOT_CHOSEN = (
    "arrays are on a GPU, which plait does not use here: PLAIT_CUDA=0 is in the environment, or "
    "JAX has no CUDA plugin (docs/gpu.md)"
)


@functools.cache
def names() -> tuple[str, ...]:
    """The platforms that programs are lowered for."""
    if not _core.has_devices():
        return ("cpu",)
    _core.tell_wheels()
    return ("cpu", "cuda")


def register(target: str, symbols: Mapping[str, str]) -> None:
    """Registers handlers, the library's symbols by platform, under one name."""
    for platform in names():
        if platform in symbols:
            handler = jax.ffi.pycapsule(getattr(_core.lib, symbols[platform]))
            jax.ffi.register_ffi_target(target, handler, platform=_FFI_NAMES[platform])


def symbols(row: _core.Row, half: str = "") -> dict[str, str]:
    """The handlers of an operation's row, by platform; half: those that only start it."""
    return {"cpu": f"plait_ffi_{half}{row.name}", "cuda": f"plait_ffi_cuda_{half}{row.name}"}


def lower(primitive: Any, rule: Callable, what: str) -> None:
    """Lowers a primitive by ``rule`` where it has handlers; elsewhere ``what`` is an error."""
    rules[primitive] = rule
    mlir.register_lowering(primitive, functools.partial(_refuse, what))
    mlir.register_lowering(primitive, rule, platform="cpu")
    if "cuda" in names():
        mlir.register_lowering(primitive, functools.partial(_on_cuda, rule), platform="cuda")


def lower_global(rule: Callable, ctx: Any, *args: Any, **params: Any) -> Any:
    """Runs a rule of a primitive on global arrays: for operands on its mesh, and its call site.

    JAX reuses derivatives that it has made eagerly for operands on another mesh. The types of their
    results, cotangents on one device, still name that mesh.
    """
    mesh, site = mesh_in(params), params.get("site")
    avals = ctx.avals_in if mesh is None else [_split.retyped(a, mesh) for a in ctx.avals_in]
    sub = ctx.replace(avals_in=avals)
    with contextlib.nullcontext() if site is None else _sites.at(site):
        results = rule(sub, *args, **params)
    if sub.tokens_out is not None:
        ctx.set_tokens_out(sub.tokens_out)
    return results


def mesh_in(params: dict) -> Any:
    """The mesh in the parameters of a primitive on global arrays; None: one device."""
    params = params | dict(params.get("given", ()))  # of a batch
    deal = getattr(params.get("rows"), "deal", params.get("deal"))
    return getattr(deal, "mesh", params.get("mesh"))


def _on_cuda(rule: Callable, ctx: Any, *args: Any, **params: Any) -> Any:
    """Readies each device that a program is lowered for, before the program runs.

    Since 0.11 JAX's XLA merges a call with slices of its operands and updates by its results, and
    passes it addresses within arrays. Then a call with a token ends the process (shape_util.cc),
    and a result may lie in an operand. Barriers prevent that, and cost nothing at run time.
    """
    for device in _jax.lowering_devices(ctx) or ():
        if device.platform == "gpu" and device.process_index == jax.process_index():
            _core.ready_device(device.local_hardware_id)
    return _jax.barrier(rule(ctx, *_jax.barrier(args), **params))


def _refuse(what: str, ctx: Any, *args: Any, **params: Any) -> Any:
    platform = ", ".join(_jax.lowering_platforms(ctx))
    if platform == "cuda" and "cuda" not in names():
        raise _errors.Error(f"{what}: {NOT_CHOSEN}")
    raise _errors.Error(f"{what}: not available on {platform}, only on {' and '.join(_FFI_NAMES)}")
