"""The platforms of JAX that programs with operations run on, and their handlers there."""

import jax
from plait import _core

_FFI_NAMES = {"cpu": "cpu", "cuda": "CUDA"}  # by that of lowerings


def names() -> tuple[str, ...]:
    """Those that programs are lowered for."""
    return ("cpu", "cuda") if _core.has_devices() else ("cpu",)


def register(row: _core.Row) -> None:
    """An operation's handlers, under one name on all platforms that have it."""
    symbols = {"cpu": row.symbol}
    if not row.host_only:
        symbols["cuda"] = row.device_symbol
    for platform in names():
        if platform in symbols:
            handler = jax.ffi.pycapsule(getattr(_core.lib, symbols[platform]))
            jax.ffi.register_ffi_target(row.target, handler, platform=_FFI_NAMES[platform])
