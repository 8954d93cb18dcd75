"""Where `plait.fft.autotune` keeps its measurements between runs of a program."""

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import platform
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
from plait import _core, _info, _launch

FORMAT = 1
WAIT_S = 10.0  # for other writers, which need milliseconds
MARK = '"plait": '  # in every key: the version
FIELDS = {"grid", "layout", "settings", "seconds", "total", "rounds", "reason"}  # of a row


def default_path() -> Path:
    """``PLAIT_TUNE_FILE``, or a file in the user's cache."""
    given = os.environ.get("PLAIT_TUNE_FILE")
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # accounts without a home, as in containers
        cache = None
    if not given and cache is None:
        raise OSError("there is no home directory; set PLAIT_TUNE_FILE to a file")
    return Path(given) if given else Path(cache) / "plait" / "tune.json"


def _path(file: str | None) -> Path | None:
    """None: nothing is kept. For a link, the file that it names is read and replaced."""
    given = default_path() if file is None else file
    return Path(os.path.realpath(given)) if os.fspath(given) else None


def machine() -> str:
    """What this process runs on: host, processor, cores, threads, kernels.

    With ``auto`` threads, the core derives their number from cores, devices and processes, which
    are in the key as well.
    """
    model = _info.cpu_facts().get("model name", platform.machine())
    cores = f"{_launch.n_cores()} of {os.cpu_count()} cores"
    threads = os.environ.get("PLAIT_THREADS", "").lower() or "auto"
    return json.dumps([platform.node(), f"{model}, {cores}, {threads} threads, {isa()}"])


def isa() -> str:
    """The instruction set of the kernels."""
    return _core.fft_isa()


def key_of(**given: Any) -> str:
    """The key of measurements."""
    versions = {"plait": _info.package("plait"), "jax": jax.__version__}
    return json.dumps(versions | given, sort_keys=True)


def with_machines(key: str, machines: Sequence[str]) -> str:
    """A key with the machines of all processes: how many hosts, and their kinds."""
    found = [json.loads(text) for text in machines]
    hosts = {host for host, _ in found}
    kinds = sorted({kind for _, kind in found})
    more = {"processes": len(found), "hosts": len(hosts), "machines": kinds}
    return json.dumps(json.loads(key) | more, sort_keys=True)


def _bytes(path: Path) -> bytes:
    """The bytes of a file, none if it does not exist; OSError for anything else, such as a fifo."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(f"{path} is no file")
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    return data


def _is_ours(content: Any) -> bool:
    """Whether plait, of this version or another, has written it."""
    return (
        isinstance(content, dict)
        and type(content.get("format")) is int
        and isinstance(content.get("entries"), dict)
        and (content["format"] != FORMAT or set(content) == {"format", "entries"})
        and (not content["entries"] or any(MARK in key for key in content["entries"]))
    )


def _read(path: Path) -> dict:
    """The entries of a file; OSError for a file that this version of plait has not written.

    Such a file may be anyone's, so nothing replaces it. An empty file counts as none.
    """
    data = _bytes(path)
    try:
        content = json.loads(data) if data else {"format": FORMAT, "entries": {}}
    except (ValueError, RecursionError):
        content = None
    if not _is_ours(content):
        raise OSError(
            f"{path} is not a file of plait's measurements, or it is damaged; "
            "remove it, or name another one"
        )
    if content["format"] != FORMAT:
        raise OSError(
            f"{path} was written by another version of plait; remove it, or name another one"
        )
    return content["entries"]


def _warn(error: Exception) -> None:
    warnings.warn(f"plait: measurements are not kept: {error}", stacklevel=3)


def _name(grid: Any, layout: Any, settings: Any) -> str:
    """A candidate as text that tells 2 from 2.0, and 1 from true."""
    return json.dumps([grid, layout, settings], sort_keys=True)


def _as_kept(row: Any) -> dict:
    """A row in the file's form: JSON has no infinity."""
    total = row.total if math.isfinite(row.total) else None
    return dataclasses.asdict(row) | {"total": total}


def _is_measured(row: dict, operations: Sequence[str]) -> bool:
    seconds, total = row["seconds"], row["total"]
    return (
        set(seconds) == set(operations)
        and all(type(value) is float and 0 < value < math.inf for value in seconds.values())
        and type(total) is float
        and math.isclose(total, sum(seconds[op] for op in operations))
        and row["rounds"] >= 1
    )


def _is_left_alone(row: dict) -> bool:
    return row["seconds"] == {} and row["total"] is None and row["rounds"] == 0


def _filled(candidate: Any, row: dict, operations: Sequence[str]) -> Any:
    """A candidate completed from a row of the file; ValueError if they do not fit."""
    is_good = (
        set(row) == FIELDS
        and type(row["rounds"]) is int
        and type(row["reason"]) is str
        and (_is_left_alone(row) if candidate.reason else _is_measured(row, operations))
    )
    if not is_good:
        raise ValueError("a row is not as it was written")
    if candidate.reason:
        return candidate
    seconds = {op: row["seconds"][op] for op in operations}
    more = {name: row[name] for name in ("total", "rounds", "reason")}
    return dataclasses.replace(candidate, seconds=seconds, **more)


def rows_of(table: Any, candidates: Sequence, operations: Sequence[str]) -> list | None:
    """The candidates completed from an entry; None if `save` would not write it so.

    Only this function judges entries: whatever it returns can be used.
    """
    try:
        found = {_name(row["grid"], row["layout"], row["settings"]): row for row in table}
        names = [_name(c.grid, c.layout, c.settings) for c in candidates]
        if len(table) != len(names) or set(found) != set(names):
            raise ValueError("other candidates")
        rows = [_filled(c, found[n], operations) for c, n in zip(candidates, names, strict=True)]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        rows = None
    return rows


@dataclasses.dataclass(frozen=True)
class Kept:
    """A file of measurements, as one process has found it; without a path nothing is kept."""

    path: Path | None = None
    entries: dict = dataclasses.field(default_factory=dict)

    def find(
        self, key: str, candidates: Sequence, operations: Sequence[str], n_rounds: int
    ) -> bytes:
        """The entry of a key as text, for `rows_of` on every process.

        Empty if there is none, or none with so many rounds: the best candidate was in each round.
        """
        is_there = key in self.entries
        rows = rows_of(self.entries[key], candidates, operations) if is_there else None
        if is_there and rows is None:
            warnings.warn(f"plait: an entry of {self.path} is ignored, it is damaged", stacklevel=2)
        is_enough = rows is not None and max(row.rounds for row in rows) >= n_rounds
        return json.dumps([_as_kept(row) for row in rows]).encode() if is_enough else b""

    def save(self, key: str, table: Sequence) -> None:
        """Adds an entry; readers see the file before or after, never half of it."""
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(self.path) as mode:
                entries = _read(self.path) | {key: [_as_kept(row) for row in table]}
                text = json.dumps({"format": FORMAT, "entries": entries}, indent=1)
                _replace(self.path, text, mode)
        except (OSError, RecursionError) as error:
            _warn(error)


def look(file: str | None) -> Kept:
    """The contents of a file; an unusable file is reported before time is spent on measuring."""
    kept = Kept()
    try:
        path = _path(file)
        kept = Kept() if path is None else Kept(path, _read(path))
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        _warn(error)
    return kept


def _open(path: Path) -> BinaryIO:
    """Opens a file to lock, or makes it; does not wait for a fifo."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666), "rb")


def _has_lock(file: BinaryIO) -> bool:
    """Tries to lock a file; also True without support for locks, as on some network mounts."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_free = True
    except BlockingIOError:
        is_free = False
    except OSError:
        is_free = True
    return is_free


def _is_current(file: BinaryIO, path: Path) -> bool:
    """Whether a path still names the open file, which others may have replaced."""
    try:
        is_same = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        is_same = False
    return is_same


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Inside, no other process that locks here replaces a file; gives the file's mode.

    The lock is the file's own, so no other file is left behind. A process that does not get the
    lock in time continues: the holder was stopped, since nobody does more than read and write
    meanwhile.
    """
    end = time.monotonic() + WAIT_S
    file = _open(path)
    try:
        while not (_has_lock(file) and _is_current(file, path)) and time.monotonic() < end:
            file.close()
            time.sleep(0.01)
            file = _open(path)
        yield stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    finally:
        file.close()


def _replace(path: Path, text: str, mode: int) -> None:
    handle, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(handle, "w") as out:
            out.write(text)
            with contextlib.suppress(OSError):  # some systems have no modes
                os.fchmod(out.fileno(), mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
