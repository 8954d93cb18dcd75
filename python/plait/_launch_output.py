"""The output of ``plait run``: labelled lines, and what rank 0 draws on a terminal."""

import fcntl
import math
import os
import pty
import re
import resource
import select
import selectors
import shutil
import stat
import struct
import tempfile
import termios
import time
import tty
from pathlib import Path

from plait._rank import MARK, leave_note

LATE_S = 1.0  # for late output of processes that ranks have left behind, when the launcher is gone
ROUNDS = 32  # enough to read all that was printed before; a terminal gives 4 KiB in each
FILES_OF_A_RANK = 8  # pipes of several of its processes to a launcher
OTHER_FILES = 64  # already open ones, and those of a trace


class LimitError(Exception):
    """More ranks than this process may have files for, or too little room for their pipes."""


class Patience:
    """How long to wait for a reader of the output, and what goes on meanwhile.

    While the job runs, for ever: `less` or ^S stop the ranks when their pipes are full. A job that
    is ending does not wait for a reader that may never read again.
    """

    LOOK_EVERY_S = 0.1

    def __init__(self):
        self.end = math.inf  # in time.monotonic()
        self.look = lambda: None  # what the job must do meanwhile; it does not print
        self.hold = lambda is_held: None  # tells ranks, which wait for each other, that it goes on

    def end_within(self, seconds):
        """Sets the end of patience from now on, unless it is set already."""
        self.end = min(self.end, time.monotonic() + seconds)

    def wait(self, poll):
        """Waits until the polled stream takes something; False when patience ends."""
        if poll.poll(1000 * self.LOOK_EVERY_S):
            return True
        self.hold(True)
        takes = []
        while not takes and time.monotonic() <= self.end:
            self.look()
            takes = poll.poll(1000 * self.LOOK_EVERY_S)
        self.hold(False)
        return bool(takes)


class Sink:
    """A stream of this process, to which bytes are written whatever its state.

    It may be non-blocking, as others may have opened it, and full. The wait is not in write(),
    which a signal would not end.
    """

    def __init__(self, fd, patience):
        self.fd = fd
        self.patience = patience
        self.waiting = []
        self.is_given_up = False
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        self.at_once = None if is_file else select.PIPE_BUF  # what a writable stream takes at once
        self.poll = select.poll()
        self.poll.register(fd, select.POLLOUT)

    def isatty(self):
        """Whether it is a terminal."""
        return os.isatty(self.fd)

    def write(self, data):
        """Takes bytes, for flush() to write."""
        self.waiting.append(data)

    def flush(self):
        """Writes what was taken; drops what is not read in time, and everything after it.

        Raises OSError if it cannot be written.
        """
        left = memoryview(b"".join(self.waiting))
        self.waiting.clear()
        while left and not self.is_given_up:
            self.is_given_up = not self.patience.wait(self.poll)
            try:
                left = (
                    left[os.write(self.fd, left[: self.at_once]) :] if not self.is_given_up else b""
                )
            except BlockingIOError:
                pass  # another process has filled the stream first


class Lines:
    """Splits bytes that come in pieces into lines, however many.

    An endless line is cut, rather than kept until memory runs out.
    """

    LONGEST = 1 << 20

    def __init__(self):
        self.pieces = []
        self.n_bytes = 0

    def take(self, data):
        """The lines completed by these bytes, without their ends."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = self.rest() + lines[0]
        if rest:
            self.pieces.append(rest)
            self.n_bytes += len(rest)
        if self.n_bytes > self.LONGEST:
            lines.append(self.rest())
        return lines

    def rest(self):
        """What has no end of line yet; forgets it."""
        rest = b"".join(self.pieces)
        self.pieces.clear()
        self.n_bytes = 0
        return rest


class Printer:
    """Writes the ranks' lines with their labels, whole, to one stream.

    On a terminal, rank 0 may draw: its bytes are passed on at once, and its unfinished line is
    drawn again below the lines of others.
    """

    TOKEN = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|[\r\n]|[^\r\n\x1b]+|\x1b")
    ERASE = b"\r\x1b[2K"

    def __init__(self, stream):
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.waiting = {}
        self.drawn = b""

    def write(self, label, data, live=False):
        """Take bytes of the source named by `label`."""
        if live:
            self._draw(label, data)
        else:
            for line in self.waiting.setdefault(label, Lines()).take(data):
                self._line(label, line)
        self.stream.flush()

    def say(self, line):
        """Write a line of the launcher's own."""
        self._line(b"", line)
        self.stream.flush()

    def finish(self):
        """Write what is left without an end of line."""
        for label, lines in self.waiting.items():
            if rest := lines.rest():
                self._line(label, rest)
        if self.is_terminal:
            self.stream.write((b"\n" if self.drawn else b"") + b"\x1b[?25h")
            self.drawn = b""
        self.stream.flush()

    def _line(self, label, line):
        if self.drawn:
            self.stream.write(self.ERASE + label + line + b"\n" + self.drawn)
        else:
            self.stream.write(label + line + b"\n")

    def _draw(self, label, data):
        for token in self.TOKEN.findall(data):
            if token in b"\r\n":
                self.drawn = b""
            elif token.startswith(b"\x1b[") and not token.endswith(b"m"):
                pass  # escapes that move and erase come before the label
            else:
                if not self.drawn:
                    self.stream.write(label)
                    self.drawn = label
                self.drawn += token
            self.stream.write(token)


class Carried:
    """The launcher's own output, and in it the records of ranks on other hosts."""

    RECORD = re.compile(MARK + rb"(\d+)\.(begun|ended|out|err)(\+?) (.*)", re.DOTALL)
    NOTE = re.compile(rb"-?\d*")

    def __init__(self, printers, folder):
        self.printers = printers
        self.folder = folder
        self.waiting = {fd: Lines() for fd in printers}

    def take(self, fd, data):
        """Take bytes of the launcher's output or errors."""
        for line in self.waiting[fd].take(data):
            record = self.RECORD.search(line)
            said = line[: record.start()] if record else line
            if said or not record:
                self.printers[fd].write(b"", said + b"\n")
            if record:
                self._open(*record.groups())

    def _open(self, rank, kind, more, text):
        if kind in (b"out", b"err"):
            end = b"" if more else b"\n"
            self.printers[1 if kind == b"out" else 2].write(b"[%s] " % rank, text + end)
        elif self.NOTE.fullmatch(text):
            leave_note(self.folder, f"{rank.decode()}.{kind.decode()}", text.decode())

    def finish(self):
        """Print what has no end of line yet."""
        for fd, lines in self.waiting.items():
            self.printers[fd].write(b"", lines.rest())


def hold(folder, is_held):
    """Notes whether ranks are held up because nobody takes their output."""
    if is_held:
        leave_note(folder, "held", "")
        return
    try:
        os.unlink(f"{folder}/held")
    except OSError:
        pass  # no room for the note


def no_room(path, error):
    """Why a job's files cannot be made in the folder of temporary files."""
    return LimitError(f"{path}: {error.strerror}; set TMPDIR to another folder")


class JobFolder(tempfile.TemporaryDirectory):
    """A folder for a job's pipes and notes, which removes itself, and those that killed jobs left.

    It is locked while its process lives, also against hosts that share the folder of temporary
    files, if the file system supports locks between hosts.
    """

    PREFIX = "plait-run-"
    LEFT_S = 3600.0  # a younger one may have ranks that are ending, or may not be locked yet

    def __init__(self):
        super().__init__(prefix=self.PREFIX)
        self.lock = self._locked(self.name)
        for left in Path(self.name).parent.glob(f"{self.PREFIX}*"):
            self._remove_left(left)

    def cleanup(self):
        super().cleanup()
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    @staticmethod
    def _locked(path):
        """The descriptor locking a folder; None: another process locks it, or nothing can lock."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def _remove_left(self, path):
        try:
            found = path.lstat()
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > self.LEFT_S:
                lock = self._locked(path)
                if lock is not None:
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(lock)
        except OSError:
            pass  # another job was faster


def job_folder():
    """The folder of a new job; raises LimitError if there is no room for it."""
    try:
        return JobFolder()
    except FileNotFoundError:
        raise  # no such folder; the error lists those tried
    except OSError as error:
        raise no_room(error.filename, error) from None


def allow_files(n_ranks):
    """Raises the limit of open files for this process and the launcher to what so many ranks need.

    Returns the earlier limit, which programs keep; 0: it stays. Raises LimitError if the system
    does not grant this process its own files; the launcher's need is left to the launcher.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_OF_A_RANK * n_ranks + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return 0
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if most < 2 * n_ranks + OTHER_FILES:
        raise LimitError(
            f"{n_ranks} ranks need {2 * n_ranks + OTHER_FILES} open files, and the limit is {hard} "
            "(ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft


class Streams:
    """The ranks' outputs: a named pipe each, and a terminal for rank 0 if this process has one."""

    def __init__(self, folder, n_ranks):
        self.files_before = allow_files(n_ranks)
        self.patience = Patience()
        self.patience.hold = lambda is_held: hold(folder, is_held)
        self.printers = {fd: Printer(Sink(fd, self.patience)) for fd in (1, 2)}
        self.carried = Carried(self.printers, folder)
        self.selector = selectors.DefaultSelector()
        for rank in range(n_ranks):
            label = f"[{rank}] ".encode()
            for fd, name in ((1, "out"), (2, "err")):
                path = f"{folder}/{rank}.{name}"
                live = rank == 0 and self.printers[fd].is_terminal
                source = self._terminal(path, fd, len(label)) if live else self._pipe(path)
                self.selector.register(source, selectors.EVENT_READ, (fd, label, live))

    def say(self, text):
        """Print a line of the launcher's own."""
        self.printers[2].say(f"plait run: {text}".encode(errors="backslashreplace"))

    @staticmethod
    def _pipe(path):
        try:
            os.mkfifo(path)
        except OSError as error:
            raise no_room(path, error) from None
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)  # our own write end keeps it from ending

    @staticmethod
    def _terminal(path, like, n_label):
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
        columns, rows = os.get_terminal_size(like)
        room = max(20, columns - n_label) if columns else 0  # 0 means unknown, and stays
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, room, 0, 0))
        os.set_blocking(ours, False)
        os.symlink(os.ttyname(theirs), path)  # the terminal is held open, so it never hangs up
        return ours

    def add(self, source, fd):
        """Also print a stream of the launcher's own."""
        os.set_blocking(source.fileno(), False)
        self.selector.register(source, selectors.EVENT_READ, (fd, b"", False))

    def pump(self, seconds):
        """Print what arrives, waiting up to `seconds`; returns whether there was anything."""
        ready = self.selector.select(seconds)
        busy = False
        for key, _ in ready:
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self.selector.unregister(key.fileobj)
                continue
            busy = True
            fd, label, live = key.data
            if label:
                self.printers[fd].write(label, data, live)
            else:
                self.carried.take(fd, data)
        return busy

    def finish(self):
        """Print all pending output, and for a moment what comes meanwhile.

        A process that a rank has started and left behind may print for ever.
        """
        end, n = time.monotonic() + LATE_S, 0
        while self.pump(0) and (n < ROUNDS or time.monotonic() < min(end, self.patience.end)):
            n += 1
        self.carried.finish()
        for printer in self.printers.values():
            printer.finish()
