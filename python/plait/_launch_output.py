"""What the ranks of ``plait run`` print: lines with labels, and what rank 0 draws on a terminal."""

import fcntl
import os
import pty
import re
import selectors
import struct
import sys
import termios
import tty
from pathlib import Path

from plait._rank import MARK


class Printer:
    """Writes the ranks' lines with their labels, whole, to one stream.

    On a terminal rank 0 may draw: its bytes are passed on at once, and a line that it has not
    finished is drawn again below the lines of others.
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
            *lines, rest = (self.waiting.get(label, b"") + data).split(b"\n")
            self.waiting[label] = rest
            for line in lines:
                self._line(label, line)
        self.stream.flush()

    def finish(self):
        """Write what was left without an end of line."""
        for label, rest in self.waiting.items():
            if rest:
                self._line(label, rest)
        self.waiting.clear()
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
                pass  # moving and erasing come before the label
            else:
                if not self.drawn:
                    self.stream.write(label)
                    self.drawn = label
                self.drawn += token
            self.stream.write(token)


class Carried:
    """What the launcher itself says, and in records what ranks on other hosts do."""

    RECORD = re.compile(MARK + rb"(\d+)\.(begun|ended|out|err)(\+?) (.*)", re.DOTALL)
    NOTE = re.compile(rb"-?\d*")

    def __init__(self, printers, folder):
        self.printers = printers
        self.folder = folder
        self.waiting = dict.fromkeys(printers, b"")

    def take(self, fd, data):
        """Take bytes of the launcher's output or errors."""
        *lines, self.waiting[fd] = (self.waiting[fd] + data).split(b"\n")
        for line in lines:
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
            Path(self.folder, f"{rank.decode()}.{kind.decode()}").write_bytes(text)

    def finish(self):
        """Print what has no end of line."""
        for fd, rest in self.waiting.items():
            self.printers[fd].write(b"", rest)
            self.waiting[fd] = b""


class Streams:
    """The ranks' outputs: a named pipe each, and a terminal for rank 0 where we have one."""

    def __init__(self, folder, n_ranks):
        streams = {1: sys.stdout.buffer, 2: sys.stderr.buffer}
        self.printers = {fd: Printer(stream) for fd, stream in streams.items()}
        self.carried = Carried(self.printers, folder)
        self.selector = selectors.DefaultSelector()
        for rank in range(n_ranks):
            label = f"[{rank}] ".encode()
            for fd, name in ((1, "out"), (2, "err")):
                path = f"{folder}/{rank}.{name}"
                live = rank == 0 and self.printers[fd].is_terminal
                source = self._terminal(path, fd, len(label)) if live else self._pipe(path)
                self.selector.register(source, selectors.EVENT_READ, (fd, label, live))

    @staticmethod
    def _pipe(path):
        os.mkfifo(path)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)  # never at an end while we hold it

    @staticmethod
    def _terminal(path, like, n_label):
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
        rows, columns = os.get_terminal_size(like).lines, os.get_terminal_size(like).columns
        size = struct.pack("HHHH", rows, max(20, columns - n_label), 0, 0)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        os.set_blocking(ours, False)
        os.symlink(os.ttyname(theirs), path)  # held open, so that it never hangs up
        return ours

    def add(self, source, fd):
        """Also print what the launcher itself says."""
        os.set_blocking(source.fileno(), False)
        self.selector.register(source, selectors.EVENT_READ, (fd, b"", False))

    def pump(self, seconds):
        """Print what arrives, waiting up to `seconds` for it; whether there was anything."""
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
        """Print everything that is still under way."""
        while self.pump(0):
            pass
        self.carried.finish()
        for printer in self.printers.values():
            printer.finish()
