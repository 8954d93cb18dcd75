"""Programs of a rank in several queues: run one after the other if their order counts.

A program without JAX's token is ordered by its device's queue. Two devices have two queues, and
each Python thread has its own queue in each. A thread's programs on several devices wait for each
other, and so do the programs of several threads on one communicator. (Those on different
communicators do not: threads of other ranks may call them in another order.) Where one thread calls
operations on one device, as nearly always, nothing is done here.
"""

import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import jax
from plait import _queues, _xla

_PATIENCE_S = 1.0
_MOST_UNDER_WAY = 8  # for a thread: a device may have 32 (`_xla`), including JAX's own

are_kept = False  # if False, all programs are in one queue
_devices: set[Any] = set()  # devices with operations of ranks
callers: set[int] = set()  # Python threads that have called operations, and may live
_has_threads = False  # whether there have been two callers
_latest: dict[int | None, tuple[int, Any]] = {}  # by communicator: the calling thread, a result


class _Last(threading.local):
    """The results of this thread's last program, and one result of each of the last few."""

    results: Any = None

    def __init__(self) -> None:
        self.calls: list[weakref.ref] = []


_last = _Last()


def begin(communicators: Iterable[int | None]) -> None:
    """Called before a program with operations on these: waits for programs that come first.

    Failures go to those who take their results. None: the communicators of meshes.
    """
    wait(_last.results)
    _last.results = None
    if _has_threads:
        enter(communicators)


def enter(communicators: Iterable[int | None]) -> None:
    """Waits for what another thread has called on these communicators."""
    for comm in communicators:
        caller, result = _latest.get(comm, (0, None))
        if caller != threading.get_ident():
            wait(result)


def end(communicators: Iterable[int | None], results: Any) -> None:
    """Notes the results. All are ready at once, so for others the smallest one will do."""
    if len(_devices) > 1:
        _last.results = results
    if _has_threads:
        leaves = [x for x in jax.tree.leaves(results) if isinstance(x, jax.Array)]
        latest = min(leaves, key=lambda x: x.size, default=None)
        for comm in communicators:
            _latest[comm] = (threading.get_ident(), latest)


def pace(results: Any) -> None:
    """After a call, with few threads: now and then waits for it and the calls before.

    Calls whose operands are ready would otherwise get under way without limit. Results that nobody
    holds any more cannot be waited for, but a device runs its programs in turn.
    """
    arrays = [x for x in jax.tree.leaves(results) if isinstance(x, jax.Array)]
    _last.calls += map(weakref.ref, arrays[:1])
    if len(_last.calls) >= _MOST_UNDER_WAY:
        wait([results, *(call() for call in _last.calls)])
        _last.calls.clear()


def forget(comm: int | None) -> None:
    """The communicator was freed."""
    _latest.pop(comm, None)


def note(devices: Sequence | None) -> None:
    """A rank's operation is lowered for these devices."""
    global are_kept
    if devices is not None and len(devices) == 1 and devices[0] not in _devices:
        _devices.add(devices[0])
        if len(_devices) == 2:
            are_kept = True
            wait(jax.live_arrays())  # what runs by now was not noted


def note_caller() -> None:
    """Notes that this thread calls operations.

    Until there is a second caller, calls of the first were not noted by communicator. So they are
    waited for, but not for ever: they may themselves wait for calls that threads of other ranks
    make first.
    """
    global are_kept, _has_threads
    callers.intersection_update(sys._current_frames())
    callers.add(threading.get_ident())
    _xla.note_callers(len(callers))
    if len(callers) > 1 and not _has_threads:
        are_kept = _has_threads = True
        end = time.monotonic() + _PATIENCE_S
        for x in jax.live_arrays():
            while _queues.is_pending(x) and time.monotonic() < end:
                time.sleep(1e-4)


def wait(results: Any) -> None:
    """Waits, whatever has become of the arrays."""
    for x in jax.tree.leaves(results):
        with contextlib.suppress(Exception):  # failed, deleted, or donated
            jax.block_until_ready(x)
