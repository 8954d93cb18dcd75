"""Plans of the core in words and numbers, for any number of ranks, without a communicator."""

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from plait import _core

WAYS = ("threads", "shared memory", "messages")  # plait_describe_t


class _On(ctypes.Structure):
    _fields_ = [("n_ranks", ctypes.c_int), ("rank", ctypes.c_int), ("way", ctypes.c_int)]


class _Cost(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64) for name in ("messages", "bytes", "work", "scratch", "fences")
    ]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one rank does for one operation, and what that costs it.

    messages: ranks that data come from, counted in each step; n_bytes: bytes from them.
    work_bytes: buffers of the size of the data. scratch_bytes: for kernels, by the machine's
    caches, or for messages on their way. fences: how often all ranks wait for each other.
    """

    text: str
    messages: int
    n_bytes: int
    work_bytes: int
    scratch_bytes: int
    fences: int


def _params(name: str, values: Mapping[str, Any]) -> tuple[ctypes.Array, list]:
    """The params of an operation in the form that it reads, and the lists that they point to."""
    op = _core.lib.plait_op_at(list(_core.rows()).index(name)).contents
    memory, lists = ctypes.create_string_buffer(op.params_size), []
    for attr in op.attrs:
        if attr.name is None:
            break
        value = values[attr.name.decode()]
        if attr.kind in (_core.INT, _core.FLOAT):
            kind = ctypes.c_double if attr.kind == _core.FLOAT else ctypes.c_int64
            kind.from_buffer(memory, attr.offset).value = value
            continue
        words = (ctypes.c_int64 * len(value))(*value)
        ctypes.c_int64.from_buffer(memory, attr.count_offset).value = len(value)
        if attr.kind == _core.LIST:
            ctypes.c_void_p.from_buffer(memory, attr.offset).value = ctypes.addressof(words)
            lists.append(words)
        elif len(value) <= attr.n_max:
            ctypes.memmove(ctypes.addressof(memory) + attr.offset, words, ctypes.sizeof(words))
        else:
            raise ValueError(f"{attr.name.decode()} has {len(value)} words, room for {attr.n_max}")
    return memory, lists


def describe(
    name: str,
    values: Mapping[str, Any],
    n_ranks: int,
    rank: int,
    way: str,
    arrays: Sequence[tuple[str, Sequence[int]]],
) -> Plan:
    """The plan that a rank would make; arrays: dtypes and shapes, results last."""
    row = _core.rows()[name]
    if len(arrays) != row.n_args + row.n_rets:
        raise ValueError(f"{name}: {len(arrays)} arrays; expected {row.n_args + row.n_rets}")
    memory, lists = _params(name, values)
    words = [w for dtype, shape in arrays for w in (_core.dtypes()[dtype], len(shape), *shape)]
    on = _On(n_ranks, rank, WAYS.index(way))
    given = (ctypes.c_int64 * len(words))(*words)
    n_text, cost, room = ctypes.c_int64(1 << 16), _Cost(), 0
    while n_text.value >= room:  # a second time if the text is longer
        room = n_text.value + 1
        text = ctypes.create_string_buffer(room)
        told = (text, ctypes.c_int64(room), ctypes.byref(n_text), ctypes.byref(cost))
        call = _core.lib.plait_describe
        _core.check(call(name.encode(), memory, ctypes.byref(on), given, *told))
    del lists  # the core borrows them until here
    return Plan(
        text.value.decode(), cost.messages, cost.bytes, cost.work, cost.scratch, cost.fences
    )
