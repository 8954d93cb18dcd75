"""Reads the files of src/base/record.h: flight recorders, and parts of a trace."""

import dataclasses
import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from plait import _core

_VERSION = 2
_HEADER_BYTES = 4096
_UNDER_WAY = -1
_STATES = ("did not end by itself", "ended well", "failed")

_HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "i4"),
        ("header_bytes", "i4"),
        ("entry_bytes", "i4"),
        ("n_rings", "i4"),
        ("ring_room", "i4"),
        ("text_offset", "i4"),
        ("text_bytes", "i4"),
        ("pid", "i4"),
        ("rank", "i4"),
        ("size", "i4"),
        ("state", "i4"),
        ("has_offset", "i4"),
        ("offset_ns", "i8"),
        ("wall_ns", "i8"),
        ("start_ns", "i8"),
        ("clock", "S96"),
        ("host", "S64"),
        ("job", "S128"),
        ("program", "S256"),
        ("guard", "S76"),  # see src/base/record.h
        ("has_why", "i4"),
        ("why", "S256"),
    ]
)
_COMMON = [("comm", "i4"), ("sequence", "u4"), ("rank", "i4")]
_FLIGHT_ENTRY = np.dtype(
    [
        ("number", "u8"),
        ("start_ns", "i8"),
        ("n_bytes", "i8"),
        *_COMMON,
        ("track", "i2"),
        ("is_collective", "u1"),
        ("is_started", "u1"),
        ("peer", "i4"),
        ("thread", "i4"),
        ("title", "u4"),
        ("where", "u4"),
        ("status", "i4"),
        ("n_collectives", "u4"),
        ("wait", "S64"),  # only the guard reads it
    ]
)
_RING = np.dtype([("n", "u8"), ("unused", "S56"), ("entries", _FLIGHT_ENTRY, (256,))])
TRACE_ENTRY = np.dtype(
    [
        ("number", "u8"),
        ("start_ns", "i8"),
        ("end_ns", "i8"),
        ("wait_ns", "i8"),
        ("copy_ns", "i8"),
        ("n_bytes", "i8"),
        *_COMMON,
        ("track", "i4"),
        ("peer", "i4"),
        ("thread", "i4"),
        ("status", "i4"),
        ("is_collective", "i4"),
        ("title", "S112"),
        ("where", "S64"),
    ]
)


class UnreadableError(Exception):
    """A file is not one of plait's records, or is of another version."""


@dataclasses.dataclass(frozen=True)
class Header:
    """Which process wrote a file, and how it ended; why: the exception that ended it."""

    path: str
    pid: int
    rank: int
    size: int
    state: int
    offset_ns: int | None
    wall_ns: int
    start_ns: int
    clock: str
    host: str
    job: str
    program: str
    why: str
    is_alive: bool

    @property
    def end(self) -> str:
        """How the process ended, in words."""
        if self.why:
            return f"raised {self.why}"
        return "is running" if self.is_alive else _STATES[self.state]


@dataclasses.dataclass(frozen=True)
class Operation:
    """An entry of a flight recorder; start_ns: on the monotonic clock, to some ms."""

    number: int
    start_ns: int
    n_bytes: int
    comm: int
    sequence: int
    rank: int
    track: int
    title: str
    where: str
    status: str
    is_collective: bool


@dataclasses.dataclass(frozen=True)
class Flight:
    """A flight recorder: the last operations of each rank of a process, oldest first."""

    header: Header
    operations: list[Operation]


def _is_locked(file: int) -> bool:
    """Whether the process that made a file still lives: then it holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _text(value: bytes) -> str:
    return bytes(value).decode(errors="replace")


def read_header(data: bytes, path: str = "", is_alive: bool = False) -> tuple[Header, np.void]:
    """The header of a file's bytes, checked; and as it is in the file."""
    if len(data) < _HEADER.itemsize:
        raise UnreadableError(f"{path}: too short for a record of plait")
    raw = np.frombuffer(data, _HEADER, 1)[0]
    if raw["magic"] != b"plaitrec" or raw["version"] != _VERSION:
        raise UnreadableError(f"{path}: no record of this version of plait")
    numbers = {name: int(raw[name]) for name in ("pid", "rank", "size", "wall_ns", "start_ns")}
    texts = {name: _text(raw[name]) for name in ("clock", "host", "job", "program", "why")}
    state = int(raw["state"]) if 0 <= raw["state"] < len(_STATES) else 0
    offset = int(raw["offset_ns"]) if raw["has_offset"] else None
    header = Header(path=path, state=state, offset_ns=offset, is_alive=is_alive, **numbers, **texts)
    return header, raw


def _status(code: int) -> str:
    if code == _UNDER_WAY:
        return "under way"
    name = _core.lib.plait_status_name(code).decode()
    return "ok" if name == "OK" else name


def parse_flight(data: bytes, path: str = "", is_alive: bool = False) -> Flight:
    """The operations in the bytes of a flight recorder, without half-written ones."""
    header, raw = read_header(data, path, is_alive)
    if len(data) < _HEADER_BYTES:
        raise UnreadableError(f"{path}: too short for a flight recorder")
    if raw["entry_bytes"] != _FLIGHT_ENTRY.itemsize or raw["ring_room"] != 256:
        raise UnreadableError(f"{path}: no flight recorder of this version of plait")
    texts = bytes(data[raw["text_offset"] : raw["text_offset"] + raw["text_bytes"]])

    def text(number: int) -> str:
        return texts[number : max(texts.find(b"\0", number), number)].decode(errors="replace")

    n_rings = max(0, min(int(raw["n_rings"]), (len(data) - _HEADER_BYTES) // _RING.itemsize))
    rings = np.frombuffer(data, _RING, n_rings, _HEADER_BYTES)
    operations = []
    for ring in rings:
        for e in ring["entries"][ring["entries"]["number"] > 0]:
            if e["number"] <= ring["n"]:
                operations.append(
                    Operation(
                        **{k: int(e[k]) for k in ("number", "start_ns", "n_bytes", "comm")},
                        **{k: int(e[k]) for k in ("sequence", "rank", "track")},
                        title=text(int(e["title"])),
                        where=text(int(e["where"])),
                        status=_status(int(e["status"])),
                        is_collective=bool(e["is_collective"]),
                    )
                )
    operations.sort(key=lambda o: (o.start_ns, o.track, o.number))
    return Flight(header, operations)


def read_flight(path: str) -> Flight:
    """A flight recorder's file."""
    with open(path, "rb") as file:
        return parse_flight(file.read(), path, _is_locked(file.fileno()))


def own_flight() -> Flight | None:
    """The flight recorder of this process."""
    path = _core.flight_path()
    if path:
        return read_flight(path)
    header, n_bytes = _core.flight_memory()
    return None if header == 0 else parse_flight(_core.memory(header, n_bytes), is_alive=True)


def flights() -> list[Flight]:
    """All readable flight recorders of this user on this machine."""
    found = []
    for folder in _core.record_folders():
        for path in Path(folder).glob("*.flight"):
            try:
                found.append(read_flight(str(path)))
            except (OSError, UnreadableError):
                continue  # it ended well in the meantime, or is of another version
    return found


def last_job(found: Sequence[Flight]) -> list[Flight]:
    """The flights of the job that was started last, by rank.

    Processes belong to one job if they say so and are on one host or were started together.
    """
    if not found:
        return []
    newest = max(found, key=lambda f: f.header.wall_ns).header
    one_minute = 60 * 10**9
    mine = [
        f
        for f in found
        if f.header.job == newest.job and newest.wall_ns - f.header.wall_ns < one_minute
    ]
    return sorted(mine, key=lambda f: (f.header.rank, f.header.wall_ns))


def table(operations: Sequence[Operation], start_ns: int) -> list[str]:
    """Operations as lines of text, with times in seconds since start_ns."""
    rows = [
        (
            f"{(o.start_ns - start_ns) / 1e9:.3f} s",
            f"#{o.comm}",
            f"{o.sequence:08x}",
            o.title + (f" at {o.where}" if o.where else ""),
            "" if o.status == "ok" else o.status.upper().replace("_", " "),
        )
        for o in operations
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    return [
        f"  {a:>{widths[0]}}  {b:<{widths[1]}}  {c}  {text}{'   <- ' + s if s else ''}"
        for a, b, c, text, s in rows
    ]


def last_lines(n: int) -> str:
    """The last n operations of this process, for a report of a failure; "" if there are none."""
    flight = own_flight()
    if flight is None or not flight.operations:
        return ""
    lines = table(flight.operations[-n:], flight.header.start_ns)
    return "\n".join(lines) + "\n"


def _on_comm(flight: Flight, comm: int) -> dict[int, Operation]:
    return {o.sequence: o for o in flight.operations if o.comm == comm}


def divergence(found: Sequence[Flight]) -> list[str]:
    """Where ranks of a job did different things, or one is behind; a line for each finding.

    Only communicators in which all ranks take part in all operations can be compared, and only if
    each process has a rank of its own in them.
    """
    lines = []
    for comm in sorted({o.comm for f in found for o in f.operations}):
        calls = [(f, _on_comm(f, comm)) for f in found]
        calls = [(f, mine) for f, mine in calls if mine]
        ranks = {next(iter(mine.values())).rank for _, mine in calls}
        everything = [o for _, mine in calls for o in mine.values()]
        if len(calls) < 2 or len(ranks) < len(calls) or comm == 0:
            continue
        if all(o.is_collective for o in everything):
            lines += _first_difference(comm, calls) or _behind(comm, calls)
    return lines


def _first_difference(comm: int, calls: list) -> list[str]:
    shared = set.intersection(*(set(mine) for _, mine in calls))
    for sequence in sorted(shared):
        if len({mine[sequence].title for _, mine in calls}) > 1:
            lines = [f"communicator #{comm}, operation {sequence:08x} differs:"]
            for flight, mine in calls:
                o = mine[sequence]
                lines.append(f"  rank {flight.header.rank}: {o.title} at {o.where or 'unknown'}")
            return lines
    return []


def _behind(comm: int, calls: list) -> list[str]:
    last = {flight.header.rank: max(mine.items()) for flight, mine in calls}
    newest = max(sequence for sequence, _ in last.values())
    lines = []
    for rank, (sequence, o) in sorted(last.items()):
        if sequence < newest:
            lines.append(
                f"communicator #{comm}: rank {rank} is {newest - sequence} behind; its last is "
                f"{sequence:08x} {o.title} at {o.where or 'unknown'} ({o.status})"
            )
    return lines


def report(n: int) -> str:
    """The last n operations of every rank of the last job, for ``plait doctor --last``.

    If that job still runs, those of the last job that did not end well follow: some process of
    plait, say of a notebook, may run all day.
    """
    found = flights()
    job = last_job(found)
    if not job:
        folders = ", ".join(_core.record_folders()) or "no folder"
        return (
            f"no flight recorder in {folders}: no job of plait has run, or the last one ended "
            "well (then its recorder is removed)"
        )
    lines = _report_of(job, n)
    if any(flight.header.is_alive for flight in job):
        dead = last_job([f for f in found if f not in job and not f.header.is_alive])
        lines += ["", *_report_of(dead, n)] if dead else []
    return "\n".join(lines)


def _report_of(job: Sequence[Flight], n: int) -> list[str]:
    head = job[0].header
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(head.wall_ns / 1e9))
    lines = [f"{head.program or 'unknown program'}", f"started {when} on {head.host}"]
    for flight in job:
        h = flight.header
        name = f"rank {h.rank}" if h.rank >= 0 else "process"
        lines += ["", f"{name} (pid {h.pid}) {h.end}"]
        lines += table(flight.operations[-n:], head.start_ns) or ["  no operation"]
    found = divergence(job)
    return [*lines, *([""] if found else []), *found]


def remove_dead() -> int:
    """Removes the flight recorders of ended processes; returns how many there were."""
    n = 0
    for flight in flights():
        if not flight.header.is_alive:
            os.unlink(flight.header.path)
            n += 1
    return n
