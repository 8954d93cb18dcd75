"""BLAS and LAPACK for the C core: SciPy's, as JAX's own linear algebra on CPUs uses them.

SciPy is imported when the first function needs them, not with plait.
"""

import ctypes
import dataclasses
import importlib
import os
import threading
from collections.abc import Iterator

from plait._core import check, lib

_MODULES = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")
_lock = threading.Lock()

lib.plait_blas_name.restype = ctypes.c_char_p
lib.plait_blas_fill.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
lib.plait_blas_load.argtypes = [ctypes.c_char_p]
lib.plait_blas_is_complete.restype = ctypes.c_bool
lib.plait_blas_library.restype = ctypes.c_char_p
lib.plait_blas_core.restype = ctypes.c_char_p
lib.plait_blas_fits.argtypes = [ctypes.c_int64]
for _name in ("clear", "enter", "leave"):
    getattr(lib, "plait_blas_" + _name).restype = None


@dataclasses.dataclass(frozen=True)
class Library:
    """What the table is filled with."""

    path: str
    core: str  # kernels that OpenBLAS chose, or ""
    int_bytes: int


def names() -> tuple[str, ...]:
    """All functions of the table."""
    return tuple(lib.plait_blas_name(i).decode() for i in range(lib.plait_blas_count()))


def _pointer(capsule: object) -> int:
    """The pointer in a capsule, whatever the capsule's name."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return get_pointer(capsule, get_name(capsule))


def _of_scipy() -> Iterator[tuple[str, int]]:
    """Names and pointers; none without SciPy, or if its modules lack a function."""
    capsules: dict = {}
    try:
        for module in _MODULES:
            capsules |= importlib.import_module(module).__pyx_capi__
    except (ImportError, AttributeError):
        return
    if all(name in capsules for name in names()):
        for name in names():
            yield name, _pointer(capsules[name])


def require() -> Library:
    """Fills the table once: from PLAIT_BLAS, else from SciPy, else as the C library does."""
    with _lock:
        if not lib.plait_blas_is_complete():
            if not os.environ.get("PLAIT_BLAS"):
                for name, pointer in _of_scipy():
                    check(lib.plait_blas_fill(name.encode(), pointer))
            check(lib.plait_blas_require())
    return Library(
        path=lib.plait_blas_library().decode(),
        core=lib.plait_blas_core().decode(),
        int_bytes=lib.plait_blas_int_bytes(),
    )
