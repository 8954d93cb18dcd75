"""Holds interrupts (^C) until what the ranks make together is made and remembered."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """``KeyboardInterrupt`` comes at the end of the block.

    Inside the block, it could come between two of several steps that all ranks take in one order.
    On its next try an interrupted rank would begin with the first step again, and meet the others'
    second step. A handler that is not Python's (say, the process ends by the signal) is left alone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    usual = signal.getsignal(signal.SIGINT) if is_main else None
    if not callable(usual):
        yield
        return
    came = []

    def hold(number: int, frame: object) -> None:
        came.append(number)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is hold:
            signal.signal(signal.SIGINT, usual)
        if came:
            signal.raise_signal(signal.SIGINT)
