"""The trace of a job of ``plait run``: checked before, made when the ranks are gone."""

import contextlib
import os
import signal
import tempfile

from plait import _files

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
WAIT_S = 5.0  # for killed ranks to be gone


class TraceError(Exception):
    """A trace that could not be written; the text says where and why."""


class StoppedError(Exception):
    """A signal that came while the trace was made; its number."""


def absolute(trace):
    """The file's absolute path, for ranks that change their folder."""
    try:
        return os.path.abspath(trace)
    except FileNotFoundError:
        text = f"no trace can be written to {trace}: the current folder has been removed"
        raise TraceError(text) from None


def check_trace(trace):
    """Raises TraceError if ranks could not write beside the file, or it could not be replaced."""
    try:
        path = _files.replaceable(trace)
        for folder in {os.path.dirname(trace), os.path.dirname(path)}:
            with tempfile.NamedTemporaryFile(dir=folder, prefix="plait-trace-"):
                pass
    except OSError as error:
        raise TraceError(f"no trace can be written to {trace}: {error.strerror}") from None


@contextlib.contextmanager
def stoppable():
    """Inside, signals raise StoppedError: nobody must wait for a trace that is not wanted."""

    def stop(number, _frame):
        raise StoppedError(number)

    caught = [n for n in ENDING if signal.getsignal(n) not in (signal.SIG_IGN, signal.SIG_DFL)]
    former = {number: signal.signal(number, stop) for number in caught}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def merge_trace(trace, job, say):
    """Makes one file of what the ranks of a job have written, also of killed ranks.

    say: prints a line. Returns the number of the signal that stopped it; 0 if none did.
    """
    mend = f"make it from its parts with  plait trace merge {trace}"
    number = 0
    try:
        with stoppable():
            _merge(trace, job, say)
    except OSError as error:  # say, the disk is full
        say(f"the trace cannot be made: {error}; {mend}")
    except StoppedError as stopped:
        (number,) = stopped.args
        say(f"{signal.Signals(number).name}: the trace is not made; {mend}")
    return number


def _merge(trace, job, say):
    from plait import _trace  # which imports NumPy

    _trace.wait(trace, 0, WAIT_S, job)
    n, parts = _trace.merge(trace, keeps_parts=True, job=job)
    lines = [f"{n} operations of {len(parts)} ranks in {trace}"] if parts else []
    lines += ["  " + line for line in _trace.summary(parts)]
    for line in lines or [f"no operation was traced, {trace} is not written"]:
        say(line)
    _trace.remove([part.header.path for part in parts if part.is_done])  # last: the trace is made
