"""Call sites: the line of the user's program that calls an operation, as a number.

The number enters compiled programs, so it must not depend on the order in which ranks trace,
nor change when another part of the file is edited: it is a hash of the file's name, the
function, and the line within the function. The C core keeps the text for messages.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import jax
from plait import _core

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
_PYTHON = (contextlib.__file__, functools.__file__)  # JAX uses their decorators
_ROOM = 10_000

_is_inside: dict[str, bool] = {}  # by file name: whether it is plait's, JAX's or Python's start
_known: dict[tuple[int, int], tuple[CodeType, int]] = {}  # by code object and instruction
_SLOTS = 1024
_eager = memoryview(
    (ctypes.c_int64 * _SLOTS).from_address(ctypes.addressof(_core.lib.plait_site_eager().contents))
)
_eager = _eager.cast("B").cast("q")  # makes an assignment take 40 ns


def _inside(name: str) -> bool:
    found = name.startswith((_PACKAGE, _JAX, "<frozen")) or name in _PYTHON
    _is_inside[name] = found
    return found


def _user_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame outside plait and JAX, from this one outwards."""
    while frame is not None:
        name = frame.f_code.co_filename
        inside = _is_inside.get(name)
        if not (_inside(name) if inside is None else inside):
            break
        frame = frame.f_back
    return frame


def _text(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def text() -> str:
    """``file:line`` of the first frame outside plait and JAX."""
    frame = _user_frame(sys._getframe(1))
    return "unknown" if frame is None else _text(frame)


class _Kept(threading.local):
    """The line for this thread's calls without a line of their own."""

    site: int | None = None


_kept = _Kept()


@contextlib.contextmanager
def at(site: int) -> Iterator[None]:
    """Inside the ``with`` block, calls of this thread are for that line.

    While a program is lowered, nothing else says for which of its lines.
    """
    before, _kept.site = _kept.site, site
    try:
        yield
    finally:
        _kept.site = before


def here() -> int:
    """The number of the line that calls plait; 0 if there is none. 0.5 us."""
    if _kept.site is not None:
        return _kept.site
    frame = _user_frame(sys._getframe(1))
    if frame is None:
        return 0
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    known = _known.get(key)
    if known is None:
        known = (code, _core.put_site(_number(frame), _text(frame)))
        if len(_known) >= _ROOM:
            _known.clear()
        _known[key] = known  # keeps the code object, so that its id stays unique
    return known[1]


def _number(frame: FrameType) -> int:
    code = frame.f_code
    line = frame.f_lineno
    if not code.co_name.startswith("<"):  # lambdas and the like have no name of their own
        line -= code.co_firstlineno
    words = f"{os.path.basename(code.co_filename)}\0{code.co_qualname}\0{line}"
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=6).digest(), "little")


def enter_eager(comm: Any, site: int) -> None:
    """Sets the line for which the next program without a site of its own runs."""
    _eager[comm % _SLOTS if isinstance(comm, int) else 0] = site
