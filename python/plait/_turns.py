"""Programs of a rank on several devices of its process: those of a thread, one after the other.

A program without JAX's token is ordered by its device's queue, and two devices have two. Where a
rank's operations are on one device, as nearly always, nothing is done here.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import jax

_devices: set[Any] = set()  # on which there are operations of ranks
are_several = False


class _Last(threading.local):
    """What the last program of this thread gave."""

    results: Any = None


_last = _Last()


def note(devices: Sequence | None) -> None:
    """A rank's operation is lowered for these devices."""
    global are_several
    if devices is not None and len(devices) == 1 and devices[0] not in _devices:
        _devices.add(devices[0])
        if len(_devices) == 2:
            are_several = True
            for x in jax.live_arrays():  # what runs by now was not noted
                _wait(x)


def begin() -> None:
    """Waits for the last program of this thread; who takes its results is told if it failed."""
    _wait(_last.results)
    _last.results = None


def end(results: Any) -> None:
    """Notes what a program gives."""
    _last.results = results


def _wait(results: Any) -> None:
    with contextlib.suppress(Exception):  # failed, deleted, or donated
        jax.block_until_ready(results)
