"""The trace of a job: the ranks' parts become one file that Perfetto opens."""

import collections
import contextlib
import dataclasses
import functools
import glob
import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from plait import _core, _files, _record

_PART = re.compile(r"\.\d+-[0-9a-f]+\.part$")
_WAIT_S = 5.0
_ROUNDS = 30
_AT_ONCE = 1 << 14  # entries held as Python objects
_json = json.JSONEncoder(separators=(",", ":")).encode


@dataclasses.dataclass
class Part:
    """The complete entries that one process wrote."""

    header: _record.Header
    entries: np.ndarray

    @property
    def is_done(self) -> bool:
        """Whether its process has reported that it writes no more, or is gone."""
        return self.header.state != 0 or not self.header.is_alive


def read_part(path: str, with_entries: bool = True) -> Part:
    """A part, without what a killed process left half written."""
    with open(path, "rb") as file:
        alive = _record._is_locked(file.fileno())
        data = file.read(-1 if with_entries else _record._HEADER_BYTES)
    header, raw = _record.read_header(data, path, alive)
    size = _record.TRACE_ENTRY.itemsize
    if raw["entry_bytes"] != size:
        raise _record.UnreadableError(f"{path}: no trace of this version of plait")
    offset = int(raw["header_bytes"])
    if with_entries and len(data) < offset:
        raise _record.UnreadableError(f"{path}: too short for a part of a trace")
    entries = np.frombuffer(data, _record.TRACE_ENTRY, max(0, len(data) - offset) // size, offset)
    return Part(header, entries[(entries["number"] > 0) & (entries["start_ns"] > 0)])


def target_of(part: str) -> str:
    """The trace that a part belongs to."""
    return _PART.sub("", part)


def part_paths(target: str) -> list[str]:
    """The existing parts of a trace."""
    return [p for p in glob.glob(glob.escape(target) + ".*.part") if _PART.search(p)]


def _parts_of_all(target: str, with_entries: bool) -> list[Part]:
    """All parts of a trace that can be read."""
    parts = []
    for path in part_paths(target):
        try:
            parts.append(read_part(path, with_entries))
        except (OSError, _record.UnreadableError) as error:
            print(f"plait trace: {error}", file=sys.stderr)
    return parts


def is_of_job(name: str, job: str) -> bool:
    """Whether a part belongs to this job; ranks that have met add the host to the job's name."""
    return name == job or name.startswith(f"{job} on ")


def parts_of_job(
    target: str, job: str = "", with_entries: bool = True
) -> tuple[list[Part], list[str]]:
    """The parts of a job, by rank; without a name, of the job that was started last.

    Also the parts left by earlier jobs, which, without a name, nobody needs any more.
    """
    every = _parts_of_all(target, with_entries)
    if not every:
        return [], []
    wanted = job or max(every, key=lambda p: p.header.wall_ns).header.job
    mine = [p for p in every if is_of_job(p.header.job, wanted)]
    left = [p.header.path for p in every if p.is_done and not is_of_job(p.header.job, wanted)]
    return sorted(mine, key=lambda p: (p.header.rank, p.header.wall_ns)), [] if job else left


def _offset(header: _record.Header, first: _record.Header) -> tuple[int, str]:
    """What to add to a part's times to get those of the first part, and how that is known."""
    if header.clock and header.clock == first.clock:
        return 0, "same clock"
    if header.offset_ns is not None and first.rank == 0:
        return header.offset_ns, "measured by messages"
    mine, there = header.wall_ns - header.start_ns, first.wall_ns - first.start_ns
    return mine - there, "time of day"


@functools.lru_cache(maxsize=4096)
def _name(title: str) -> str:
    return re.split(r"[ (]", title, maxsplit=1)[0] or "operation"


def rows(entries: np.ndarray) -> Iterator[dict]:
    """Entries as dictionaries of Python's own numbers and strings."""
    names = [name for name in entries.dtype.names if name != "number"]
    for begin in range(0, len(entries), _AT_ONCE):
        columns = [entries[name][begin : begin + _AT_ONCE].tolist() for name in names]
        for values in zip(*columns, strict=True):
            row = dict(zip(names, values, strict=True))
            row["title"] = row["title"].decode(errors="replace")
            row["where"] = row["where"].decode(errors="replace")
            yield row


def _event(e: dict, pid: int, ts_ns: int) -> dict:
    args = {
        "operation": e["title"],
        "bytes": e["n_bytes"],
        "communicator": f"#{e['comm']}",
        "sequence": f"{e['sequence']:08x}",
        "rank": e["rank"],
        "at": e["where"] or "unknown",
        "wait_us": e["wait_ns"] / 1000,
        "copy_us": e["copy_ns"] / 1000,
    }
    if e["peer"] >= 0:
        args["peer"] = e["peer"]
    event = {
        "name": _name(e["title"]),
        "cat": "plait",
        "ph": "X",
        "pid": pid,
        "tid": e["track"] + 1,
        "ts": ts_ns / 1000,
        "dur": max(0, e["end_ns"] - e["start_ns"]) / 1000,
        "args": args,
    }
    if e["status"] != 0:
        args["status"] = _core.lib.plait_status_name(e["status"]).decode()
        event["cname"] = "terrible"
    return event


def _metadata(part: Part, pid: int, rank: int) -> Iterator[dict]:
    """Names of the tracks. Numbers begin at 1: Perfetto takes process 0 for the idle process."""
    tracks = sorted({int(t) for t in part.entries["track"]}) or [0]
    about = {"name": "process_name", "args": {"name": f"rank {rank}, {part.header.host}"}}
    yield {"ph": "M", "pid": pid, **about}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": rank}}
    for track in tracks:
        name = "operations" if tracks == [0] else f"device {track}"
        yield {"ph": "M", "pid": pid, "tid": track + 1, "name": "thread_name"} | {
            "args": {"name": name}
        }


def events(parts: Sequence[Part]) -> Iterator[dict]:
    """The events of all parts in the Chrome trace event format, on one clock from 0."""
    offsets = [_offset(p.header, parts[0].header)[0] for p in parts]
    starts = [
        int(p.entries["start_ns"].min()) + o
        for p, o in zip(parts, offsets, strict=True)
        if len(p.entries) > 0
    ]
    zero = min(starts, default=0)
    for index, (part, offset) in enumerate(zip(parts, offsets, strict=True)):
        rank = part.header.rank if part.header.rank >= 0 else index
        yield from _metadata(part, rank + 1, rank)
        for e in rows(part.entries):
            yield _event(e, rank + 1, e["start_ns"] + offset - zero)


def write(target: str, parts: Sequence[Part]) -> int:
    """Writes the trace, whole or not at all; returns the number of operations in it."""
    head = parts[0].header
    clocks = {f"rank {p.header.rank}": _offset(p.header, head)[1] for p in parts}
    other = {"program": head.program, "job": head.job, "clocks": clocks}
    path = _files.replaceable(target)
    temporary = f"{path}.{os.getpid()}.tmp"
    n = 0
    try:
        with open(temporary, "w") as file:
            file.write('{"displayTimeUnit": "ns", "otherData": ' + json.dumps(other))
            file.write(', "traceEvents": [\n')
            for i, event in enumerate(events(parts)):
                file.write((",\n" if i else "") + _json(event))
                n += event["ph"] == "X"
            file.write("\n]}\n")
        os.replace(temporary, path)
    except BaseException:  # also if a user interrupts it
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return n


def summary(parts: Sequence[Part], n_rows: int = 8) -> list[str]:
    """Where the time went, by operation and line, over all ranks."""
    sums: dict[tuple[str, str], list[int]] = collections.defaultdict(lambda: [0, 0, 0, 0])
    for e in itertools.chain.from_iterable(rows(part.entries) for part in parts):
        values = (1, e["end_ns"] - e["start_ns"], e["wait_ns"], e["n_bytes"])
        old = sums[e["title"], e["where"]]
        sums[e["title"], e["where"]] = [a + b for a, b in zip(old, values, strict=True)]
    most = sorted(sums.items(), key=lambda item: -item[1][1])[:n_rows]
    lines = [f"{'calls':>8} {'time':>10} {'waiting':>8} {'GB/s':>7}  operation"] if most else []
    for (title, where), (n, time_ns, wait_ns, n_bytes) in most:
        rate = f"{n_bytes / time_ns:7.2f}" if time_ns else f"{'':7}"
        share = 100 * wait_ns / time_ns if time_ns else 0
        at = f" at {where}" if where else ""
        lines.append(f"{n:8} {time_ns / 1e6:7.1f} ms {share:6.0f} % {rate}  {title}{at}")
    return lines


def merge(target: str, keeps_parts: bool = False, job: str = "") -> tuple[int, list[Part]]:
    """Makes the trace from the parts of a job; returns its number of operations, and the parts.

    Parts whose process is done are removed. Without a job's name, it is the job that was started
    last, and what earlier jobs have left is removed, too.
    """
    parts, others = parts_of_job(target, job)
    if not parts:
        return 0, []
    n = write(target, parts)
    if not keeps_parts:
        remove([*others, *(p.header.path for p in parts if p.is_done)])
    return n, parts


def remove(paths: Sequence[str]) -> None:
    """Removes parts; another process may have removed them already."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def wait(target: str, n_ranks: int, limit_s: float, job: str = "") -> bool:
    """Waits until that many ranks of a job have finished writing; returns whether they have."""
    limit = time.monotonic() + limit_s
    while True:
        parts, _ = parts_of_job(target, job, with_entries=False)
        if len(parts) >= n_ranks and all(p.is_done for p in parts):
            return True
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)


def merge_at_exit(part: str, n_ranks: int) -> None:
    """Called on rank 0 at its end, after it closed its own part: waits for the other parts.

    Raises OSError if the trace cannot be written: then the parts stay.
    """
    target = target_of(part)
    job = read_part(part, with_entries=False).header.job
    if not wait(target, n_ranks, _WAIT_S, job):
        print(
            "plait: not all ranks have ended; for all of their operations run\n"
            f"  plait trace merge {target}",
            file=sys.stderr,
        )
    merge(target, job=job)


# ---- clocks --------------------------------------------------------------------------------


def _ping_pong(mpi: ModuleType, comm: Any, peer: int) -> int:
    """What to add to the peer's clock to get ours, by the fastest of some round trips."""
    best, offset = None, 0
    here, there = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for _ in range(_ROUNDS):
        start = time.monotonic_ns()
        comm.Send([here, mpi.INT64_T], peer, 1)
        comm.Recv([there, mpi.INT64_T], peer, 1)
        end = time.monotonic_ns()
        if best is None or end - start < best:
            best, offset = end - start, (start + end) // 2 - int(there[0])
    return offset


def _answer(mpi: ModuleType, comm: Any) -> None:
    buffer = np.zeros(1, np.int64)
    for _ in range(_ROUNDS):
        comm.Recv([buffer, mpi.INT64_T], 0, 1)
        buffer[0] = time.monotonic_ns()
        comm.Send([buffer, mpi.INT64_T], 0, 1)


def measure_offsets(mpi: ModuleType, comm: Any) -> int:
    """This rank's offset to rank 0's clock. Collective over ``comm``."""
    if comm.rank == 0:
        offsets = [0] + [_ping_pong(mpi, comm, peer) for peer in range(1, comm.size)]
    else:
        _answer(mpi, comm)
        offsets = None
    return comm.scatter(offsets, 0)


_introduced: list[bool] = []
_claiming = threading.Lock()


def introduce(mpi: ModuleType, comm: Any) -> None:
    """Makes the records of all ranks fit together: one name of the job, one clock.

    Collective over ``comm``; done once, when the first communicator of all ranks is made. If
    threads make several at once, ranks may differ in which one is the first: then none of them
    counts.
    """
    if comm.size != mpi.COMM_WORLD.size or comm.size == 1:
        return
    with _claiming:
        is_first = not _introduced
        if is_first:
            _introduced.append(True)
    # not allreduce: for it mpi4py duplicates the communicator, while other threads wait
    if not all(comm.allgather(is_first)):
        if is_first:
            _introduced.clear()
        return
    every = comm.allgather((mpi.COMM_WORLD.rank, *_own_names()))
    _core.lib.plait_trace_set_job(min(every)[1].encode())
    clocks = {clock for _, _, clock in every}
    if len(clocks) > 1 and "" not in clocks:
        own = mpi.COMM_WORLD.Dup()
        _core.lib.plait_trace_set_offset(measure_offsets(mpi, own))
        own.Free()


def _own_names() -> tuple[str, str]:
    """The job's name as this process knows it, and its clock; empty without a trace."""
    flight = _record.own_flight()
    header = None if flight is None else flight.header
    clock = header.clock if header is not None and _core.trace_part() else ""
    return ("" if header is None else f"{header.job} on {header.host}"), clock
