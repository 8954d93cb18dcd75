"""How a process ends: queued work first, and an exception on one rank ends the whole job."""

import _sitebuiltins
import atexit
import builtins
import contextlib
import ctypes
import functools
import gc
import io
import os
import pathlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, ModuleType, TracebackType
from typing import NoReturn

from jax.errors import JaxRuntimeError
from plait import _core, _errors, _jax_programs, _queues, _rank, _record, _trace

_LIMIT_S = 10.0
_LEAVE_NS = 1_000_000_000  # for others to see why this rank ends
_FAREWELL_NS = 2_000_000_000
_PASS_ON_S = 2.0
_DISPATCHING = "Error dispatching computation: "
_AGAIN = re.compile(f"({_DISPATCHING})+")  # JAX adds one for each waiting step
_SHOWN = 8  # operations in the report of a failure; `plait doctor --last` shows more
_pid = os.getpid()
_bind: list[Callable[[], object]] = []  # calls install()
_mpi: list[ModuleType] = []
_world: list[tuple[int, int]] = []  # this process's rank and their number, also when MPI is over
_failed: list[bool] = []
_exit_code: list[int] = []
_child_code: list[int] = []  # exit code of a forked child that leaves its program
_raised_before: list[object] = []  # in a forked child, if its parent had begun MPI
_why: list[str] = []
_former: dict[str, Callable] = {}  # the program's own hooks, without the one that is running


def is_forked() -> bool:
    """Whether this process was forked from one that had imported plait."""
    return os.getpid() != _pid


def _say(text: str) -> None:
    """To standard error, if there is one: a rank that cannot say why it ends still ends alike."""
    stream = sys.stderr or sys.__stderr__
    if stream is not None:
        with contextlib.suppress(Exception):
            stream.write(text)
            stream.flush()


def _flush_streams() -> None:
    """Flushes what has been printed, as far as possible: a disk may be full, a stream closed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _report(value: BaseException, show: Callable[[], None]) -> None:
    """Reports that this rank ends the job, and then why; show: prints the traceback."""
    _failed.append(True)
    rank, _ = _world[0]
    _say(f"plait: rank {rank} ends the job after an uncaught exception\n")
    try:
        show()
        if isinstance(_errors.named(value), _errors.Error):
            last = _record.last_lines(_SHOWN)
            _say(f"plait: the last operations of rank {rank}:\n{last}" if last else "")
            advice = _errors.advice(value)
            _say(f"plait: {advice}\n" if advice else "")
    except Exception as error:
        _say(f"plait: the exception cannot be shown: {type(error).__qualname__}\n")
    _set_why(_in_a_line(value))


def _in_a_line(value: BaseException) -> str:
    """The exception without the notes that JAX adds to what is raised through it."""
    kind = type(value)
    try:
        said = str(value).strip().partition("\n")[0]
    except Exception:  # a class of the program's own
        said = ""
    home = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    name = home + kind.__qualname__
    return f"{name}: {said}" if said else name


def _set_why(why: str) -> None:
    """Stores the reason for others to read, and to send to those who cannot."""
    text = why.encode(errors="backslashreplace")  # parts of a file's name may be no characters
    _why.append(text.decode())
    _core.lib.plait_trace_set_why(text)


def _is_of_a_job() -> bool:
    """Whether other ranks may wait for this one, also before it has used plait."""
    if not _mpi and "mpi4py.MPI" in sys.modules and not is_forked():
        with contextlib.suppress(Exception):  # the launcher may belong to another MPI
            _bind[0]()
    return bool(_mpi) and not is_forked()


def _shown(name: str, default: Callable, args: Sequence) -> None:
    """Calls the program's own hook, if any; that hook may in turn call the one that it found."""
    former = _former.pop(name, default)
    try:
        former(*args)
    except Exception as error:
        _say(f"plait: the program's own excepthook failed: {error!r}\n")
        default(*args)
    finally:
        _former[name] = former


def _folded(value: BaseException) -> BaseException:
    """Says once what JAX repeats for each step of a loop that waited for the failed step."""
    text = str(value) if isinstance(value, JaxRuntimeError) else ""
    if 2 * _DISPATCHING not in text:
        return value
    other = type(value)(_AGAIN.sub(_DISPATCHING, text))
    other.__cause__, other.__context__ = value.__cause__, value.__context__
    other.__suppress_context__ = value.__suppress_context__
    return other.with_traceback(value.__traceback__)


def _hook(kind: type, value: BaseException, tb: TracebackType | None) -> None:
    value = _folded(value)
    args = (kind, value, tb)
    show = functools.partial(_shown, "sys", sys.__excepthook__, args)
    if "sys" not in _former or not _is_of_a_job():
        show()
    else:
        _report(value, show)


def _thread_hook(args: threading.ExceptHookArgs) -> None:
    show = functools.partial(_shown, "threading", threading.__excepthook__, (args,))
    if args.exc_type is SystemExit or "threading" not in _former or not _is_of_a_job():
        show()
    else:
        try:
            _report(args.exc_value or args.exc_type(), show)
        finally:
            _abort()


def _abort() -> None:
    """Ends the process without MPI_Finalize, which could wait for ever.

    ``plait run`` lets the other ranks end by themselves; other launchers end them.
    """
    code = _exit_code[0] if _exit_code else 1
    aborts = "PLAIT_RUN_JOB" not in os.environ
    try:
        _flush_streams()
        how = f"raised {_why[-1]}" if _why else "has ended after a failure"
        _note_leaving(how)
        aborts = _say_farewell(how) and aborts
        _core.lib.plait_guard_leave(_LEAVE_NS)
        if aborts:
            _wait_for_the_launcher()
    finally:  # whatever has failed in it, others wait for this rank
        _leave(code, aborts)


def _leave(code: int, aborts: bool) -> None:
    """Ends the process at once."""
    try:
        if aborts and not _mpi[0].Is_finalized():
            _mpi[0].COMM_WORLD.Abort(code)
    finally:
        os._exit(code)


def _wait_for_the_launcher() -> None:
    """Waits some seconds until the launcher has read all output; at its end it drops the rest."""
    end = time.monotonic() + _PASS_ON_S
    with contextlib.suppress(OSError):  # one of the streams is closed
        while time.monotonic() < end and (_rank.n_unread(1) or _rank.n_unread(2)):
            time.sleep(0.005)
    time.sleep(0.1)


def _say_farewell(how: str) -> bool:
    """Tells ranks on other hosts how this rank ends; returns whether MPI came back from that."""
    say = getattr(_core.lib, "plait_mpi_say_farewell", None)
    if say is None:
        return True
    say.restype = ctypes.c_bool
    return say(how.encode(), ctypes.c_int64(_FAREWELL_NS))


def _record_abort_status(mpi: ModuleType) -> None:
    """Records the status that ``python -m mpi4py`` sets when the program ends with sys.exit(n).

    mpi4py would abort all ranks in its own handler at exit, before they have seen why.
    """
    ask = mpi._set_abort_status

    def asked(status: int) -> None:
        ask(status)
        if status and not _failed:
            _failed.append(True)
            _exit_code.append(status)
            # for a program whose own hook has replaced plait's
            raised = sys.exc_info()[1] or getattr(sys, "last_value", None)
            is_exit = raised is None or isinstance(raised, SystemExit)
            _set_why(f"SystemExit: {status}" if is_exit else _in_a_line(raised))

    mpi._set_abort_status = asked


def watch(bind: Callable[[], object]) -> None:
    """Called once, when a rank of a launcher imports plait; `bind`: called at plait's first use."""
    _bind.append(bind)
    if _set_hooks() and hasattr(sys.modules.get("mpi4py.run"), "set_abort_status"):
        _see_the_end(sys.modules["mpi4py.run"])


def _code_of(status: object) -> int:
    """The exit code of a process that ends with a status or an exception, by Python's rules."""
    given = status.code if isinstance(status, SystemExit) else status
    return given if isinstance(given, int) else int(given is not None)


def _see_the_end(run: ModuleType) -> None:
    """For a program run by ``python -m mpi4py``, before `mpi4py.MPI` is asked for anything."""
    ask = run.set_abort_status

    def asked(status: object) -> None:
        if is_forked():
            _child_code.append(_code_of(status))
        else:
            _is_of_a_job()
            ask(status)

    run.set_abort_status = asked


class _Exit(SystemExit):
    """The exception that sys.exit() raises in the main thread of a rank of ``plait run``.

    It notices that nobody catches it, which no hook of Python does: only then Python itself asks
    for the code, not from within a function.
    """

    @property
    def code(self) -> object:  # type: ignore[override]
        given = SystemExit.code.__get__(self)  # type: ignore[attr-defined]
        if sys._getframe().f_back is None:
            _note_exit(_code_of(given))
        return given

    @code.setter
    def code(self, value: object) -> None:
        SystemExit.code.__set__(self, value)  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple:
        return SystemExit, self.args  # a class that another process knows


# Shown under the names of the built-in class.
_Exit.__module__, _Exit.__name__, _Exit.__qualname__ = "builtins", "SystemExit", "SystemExit"


def _exit(status: object = None, /) -> NoReturn:
    """Exits as sys.exit() does."""
    if isinstance(status, SystemExit):
        raise status
    kind = _Exit if threading.current_thread() is threading.main_thread() else SystemExit
    raise kind(*(status if isinstance(status, tuple) else () if status is None else (status,)))


def _note_exit(code: int) -> None:
    """Notes the exit code of a program that mpi4py does not run."""
    if is_forked():
        _child_code.append(code)
    elif code and not _failed and _is_of_a_job():
        _failed.append(True)
        _exit_code.append(code)
        _set_why(f"SystemExit: {code}")


def _set_hooks() -> bool:
    """Makes an uncaught exception end the job, in all programs but interactive ones."""
    is_wanted = not _is_interactive() and "pytest" not in sys.modules
    for module, hook in ((sys, _hook), (threading, _thread_hook)) if is_wanted else ():
        if module.excepthook is not hook:
            _former[module.__name__] = module.excepthook
            module.excepthook = hook
    if is_wanted and "PLAIT_RUN_JOB" in os.environ and isinstance(sys.exit, BuiltinFunctionType):
        sys.exit = _exit
        _sitebuiltins.SystemExit = _Exit  # type: ignore[attr-defined]  # of exit() and quit()
    return is_wanted


def install(mpi: ModuleType) -> None:
    """Called once, when MPI is bound."""
    _mpi.append(mpi)
    _world.append((mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size))
    _core.settle_by(flush)
    if hasattr(mpi, "_set_abort_status"):
        _record_abort_status(mpi)
    if mpi.COMM_WORLD.size > 1 and _set_hooks() and _core.has_devices():
        threading.Thread(target=_keep_vigil, daemon=True).start()


def _keep_vigil() -> None:
    """Raises what no other thread can: all may be waiting for a device's stream, for ever."""
    raise _errors.PeerError(_core.keep_vigil())


def flush() -> list[Exception]:
    """Waits for queued work: for all results; returns the failures that nobody has seen.

    JAX's own waiting at exit does not know programs of plait.jit. It knows their results, also the
    hidden result of a function without results; if nobody holds these, it knows later programs.
    """
    failures = []
    for array in _queues.arrays():
        try:
            array.block_until_ready()
        except Exception as error:
            if _errors.is_of_plait(error) and not _errors.was_raised(error):
                failures.append(error)  # of other errors, nobody knows who has seen them
    if all(map(_errors.was_raised, _jax_programs.failed_tokens())):
        _jax_programs.forget_tokens()  # JAX would repeat what the program has seen
    return failures


def _unseen_of_tokens() -> list[Exception]:
    """The failures that JAX would raise at its end, which may end the process by a signal."""
    failures = [e for e in _jax_programs.failed_tokens() if not _errors.was_raised(e)]
    _jax_programs.forget_tokens()
    return failures


def time_limit() -> float | None:
    """PLAIT_TIMEOUT in seconds; None: for ever."""
    return _core.lib.plait_guard_limit_ns() / 1e9 or None


def _flush_at_exit() -> None:
    limit = time_limit()
    if not _world or _world[0][1] == 1:
        _queues.forget_hidden()
    if not _queues.is_idle_within(limit):  # computing; or waiting, which the guard ends
        _say(f"plait: at exit, work is still queued after {limit:g} s; waiting for it\n")
    found, latest = [*flush(), *_unseen_of_tokens()], _core.latest_failure()[0]
    failures = list(filter(_errors.is_of_plait, found))
    for text in dict.fromkeys(_AGAIN.sub("", str(error)) for error in failures):
        _say(f"plait: a failure that the program did not look at: {text}\n")
        _failed.append(True)
    for text in dict.fromkeys(str(error) for error in found if error not in failures):
        _say(f"plait: a failure in JAX, which may have reported it earlier: {text}\n")
    # The program may have seen it as an error of JAX's own.
    if latest and not failures and not _errors.was_raised(latest):
        text = "that was seen only as an error of JAX, or belongs to results that were dropped"
        _say(f"plait: a failure {text}: {latest}\n")


def _is_interactive() -> bool:
    return hasattr(builtins, "__IPYTHON__") or hasattr(sys, "ps1")


def _close_records() -> None:
    """Keeps the flight recorder after a failure; rank 0 makes the trace of a job that ended well.

    ``plait run`` makes the trace itself, when all ranks are gone.
    """
    if not _core.lib.plait_trace_is_open():
        return
    raised = getattr(sys, "last_value", None) is not None and not _is_interactive()
    part = _core.trace_part()
    _core.lib.plait_trace_close(int(not _failed and not raised))
    rank, size = _world[0] if _world else (0, 1)
    if part and rank == 0 and not _failed and "PLAIT_RUN_JOB" not in os.environ:
        try:
            _trace.merge_at_exit(part, size)
        except (OSError, _record.UnreadableError) as error:  # the rest must not wait for it
            _say(f"plait: the trace cannot be made: {error}\n")


def _why_not_finalize() -> str:
    """Why MPI_Finalize, which waits for all ranks, could wait for ever; or ""."""
    if _core.lib.plait_guard_lost():
        return "other ranks are lost"
    if _core.lib.plait_guard_late():
        return "it gave up waiting for other ranks, and MPI_Finalize would wait for them too"
    return ""


def _note_path(kind: str) -> str:
    """Path of this rank's note in the folder of ``plait run``; "" if there is none.

    A process that the rank has started has no note, though it may have MPI and the environment.
    """
    folder, wrapper = os.environ.get("PLAIT_RUN_FOLDER"), os.environ.get("PLAIT_RUN_WRAPPER")
    is_rank = folder and wrapper == str(os.getppid())
    return f"{folder}/{os.environ['PLAIT_RUN_RANK']}.{kind}" if is_rank else ""


def _note_leaving(how: str = "") -> None:
    """Tells ranks that wait to make a communicator with this one; MPI_Finalize waits for them.

    how: what has failed; empty: nothing has. Nobody sees a half-written note.
    """
    path = _note_path("left")
    if path and "mpi4py.MPI" in sys.modules:
        with contextlib.suppress(OSError):
            pathlib.Path(path + ".new").write_text(how, encoding="utf-8")
            os.replace(path + ".new", path)


@contextlib.contextmanager
def entering_mpi() -> Iterator[None]:
    """Lets ``plait run`` see that this rank waits in MPI_Init for all ranks, also for lost ones.

    Inside MPI_Init, plait cannot look itself.
    """
    path = _note_path("enters")
    with contextlib.suppress(OSError):
        pathlib.Path(path or os.devnull).write_text("")
    try:
        yield
    finally:
        if path:
            pathlib.Path(path).unlink(missing_ok=True)


def _see_the_raised() -> None:
    """Notes an uncaught exception that went to a hook which the program has set after plait's."""
    raised = getattr(sys, "last_value", None)
    if _former and sys.excepthook is not _hook and raised is not None and not _failed:
        _failed.append(True)
        _set_why(_in_a_line(raised))


def _in_a_child() -> None:
    """After fork(): notes whether MPI is there, which then belongs to the parent."""
    module = sys.modules.get("mpi4py.MPI")
    if _mpi or (module is not None and module.Is_initialized()):
        _raised_before.append(getattr(sys, "last_value", None))


os.register_at_fork(after_in_child=_in_a_child)


def _leave_child() -> None:
    """Skips mpi4py's own handlers, which would call MPI_Finalize or MPI_Abort for the parent.

    Also skips JAX's, which would wait for the parent's threads. sys.exit() and mpi4py tell the
    code.
    """
    if _raised_before:
        for file in gc.get_objects():  # open files, as the interpreter's end would flush them
            if issubclass(type(file), io.IOBase):
                with contextlib.suppress(Exception):
                    file.flush()
        raised = getattr(sys, "last_value", None)
        _child_code.insert(0, int(raised is not None and raised is not _raised_before[0]))
        _flush_streams()
        os._exit(_child_code[-1])


@atexit.register
def _at_exit() -> None:
    """Runs before JAX's and mpi4py's own handlers, since it was registered after them."""
    if is_forked():
        _leave_child()
        return
    _see_the_raised()
    if _failed and _mpi:
        _core.lib.plait_trace_close(0)
        _abort()
    _flush_at_exit()
    _core.shutdown(_LIMIT_S)
    _close_records()
    why = _why_not_finalize() if _mpi and not _failed else ""
    if why:
        _say(f"plait: rank {_world[0][0]} ends with code 1, since {why}\n")
        _failed.append(True)
    if _failed and _mpi:
        _abort()
    if _failed:
        _flush_streams()
        os._exit(1)
    _note_leaving()
    shutdown = getattr(_core.lib, "plait_mpi_shutdown", None)
    if shutdown is not None:
        shutdown()
