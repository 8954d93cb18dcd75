"""Programs of a rank in several queues: one after the other, where order counts.

A program without JAX's token is ordered by its device's queue, and two devices have two, of which
each Python thread has one of its own. A thread's programs on several devices wait for each other,
and those of several threads on one communicator. (Not those on others, which threads of other ranks
may call in another order.) Where one thread calls operations on one device, as nearly always,
nothing is done here.
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
_MOST_UNDER_WAY = 8  # of a thread: a device may have 32 (`_xla`), JAX's own among them

are_kept = False  # else every program is in the queue of all others
_devices: set[Any] = set()  # on which there are operations of ranks
callers: set[int] = set()  # Python threads that have called operations, and may live
_has_threads = False  # there were two of them
_latest: dict[int | None, tuple[int, Any]] = {}  # by communicator: who called, a result


class _Last(threading.local):
    """What the last program of this thread gave, and one result of each of the last few."""

    results: Any = None

    def __init__(self) -> None:
        self.calls: list[weakref.ref] = []


_last = _Last()


def begin(communicators: Iterable[int | None]) -> None:
    """Before a program with operations on these is called: waits for those that come first.

    Who takes their results is told if they failed. None: the communicators of meshes.
    """
    wait(_last.results)
    _last.results = None
    if _has_threads:
        enter(communicators)


def enter(communicators: Iterable[int | None]) -> None:
    """Waits for what another thread has called there."""
    for comm in communicators:
        caller, result = _latest.get(comm, (0, None))
        if caller != threading.get_ident():
            wait(result)


def end(communicators: Iterable[int | None], results: Any) -> None:
    """Notes what the program gives. All of it is there at once: for others the smallest will do."""
    if len(_devices) > 1:
        _last.results = results
    if _has_threads:
        leaves = [x for x in jax.tree.leaves(results) if isinstance(x, jax.Array)]
        latest = min(leaves, key=lambda x: x.size, default=None)
        for comm in communicators:
            _latest[comm] = (threading.get_ident(), latest)


def pace(results: Any) -> None:
    """After a call, where threads are few: now and then waits for it and the ones before.

    Calls whose operands are there would else get under way without end. Of what nobody holds any
    more nothing can be asked, but a device does its programs in turn.
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
    """This thread calls operations.

    What the first one has called until there is a second one was not noted by communicators: that
    is waited for, but not for ever, as it may wait itself for what threads of other ranks call
    first.
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
    """Whatever has become of them."""
    for x in jax.tree.leaves(results):
        with contextlib.suppress(Exception):  # failed, deleted, or donated
            jax.block_until_ready(x)
