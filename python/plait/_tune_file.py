"""Where `plait.fft.autotune` keeps what it measured, from one run of a program to the next."""

import dataclasses
import json
import math
import os
import platform
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from plait import _core, _info, _launch

FORMAT = 1
FIELDS = {"grid", "layout", "settings", "seconds", "total", "rounds", "reason"}  # of a row


def default_path() -> Path:
    """``PLAIT_TUNE_FILE``, or a file in the user's cache."""
    given = os.environ.get("PLAIT_TUNE_FILE")
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "plait" / "tune.json"


def _path(file: Any) -> Path | None:
    """None: nothing is kept."""
    if file is None:
        return default_path()
    return Path(file) if os.fspath(file) else None


def machine() -> str:
    """What this process runs on: host, processor, cores, kernels."""
    model = _info.cpu_facts().get("model name", platform.machine())
    cores = f"{_launch.n_cores()} of {os.cpu_count()} cores"
    return json.dumps([platform.node(), f"{model}, {cores}, {isa()}"])


def isa() -> str:
    """The instruction set of the kernels."""
    return _core.fft_isa()


def key_of(**given: Any) -> str:
    """What measurements are found by."""
    versions = {"plait": _info.package("plait"), "jax": jax.__version__}
    return json.dumps(versions | given, sort_keys=True)


def with_machines(key: str, machines: Sequence[str]) -> str:
    """A key with the machines of all processes: how many hosts, and of which kinds."""
    found = [json.loads(text) for text in machines]
    hosts = {host for host, _ in found}
    kinds = sorted({kind for _, kind in found})
    more = {"processes": len(found), "hosts": len(hosts), "machines": kinds}
    return json.dumps(json.loads(key) | more, sort_keys=True)


def _read(path: Path) -> dict:
    """The entries of a file; none, with a warning, if it is damaged."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT or not isinstance(content["entries"], dict):
            raise ValueError(f"format {content['format']}")
        return content["entries"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"plait: {path} is ignored, it is damaged: {error!r}", stacklevel=2)
        return {}


def _name(grid: Any, layout: Any, settings: Any) -> str:
    """A candidate as text, which tells 2 from 2.0, and 1 from true."""
    return json.dumps([grid, layout, settings], sort_keys=True)


def _as_kept(row: Any) -> dict:
    """A row as the file has it: JSON knows no infinity."""
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
    """A candidate with what a row of the file says of it; ValueError if that cannot be."""
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
    """The candidates with what an entry says of them; None if it is not as `save` writes it.

    The only place where entries are judged: whatever comes from here can be used.
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


def find(file: Any, key: str, candidates: Sequence, operations: Sequence[str]) -> bytes:
    """The entry of a key as text, for `rows_of` on every process; empty if there is none."""
    path = _path(file)
    entries = {} if path is None else _read(path)
    if key not in entries:
        return b""
    rows = rows_of(entries[key], candidates, operations)
    if rows is None:
        warnings.warn(f"plait: an entry of {path} is ignored, it is damaged", stacklevel=2)
        return b""
    return json.dumps([_as_kept(row) for row in rows]).encode()


def save(file: Any, key: str, table: Sequence) -> None:
    """Adds an entry; readers see the file before or after, never half of it."""
    path = _path(file)
    if path is None:
        return
    rows = [_as_kept(row) for row in table]
    try:
        if path.exists() and not path.is_file():
            raise OSError(f"{path} is no file")
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has been said when it was read
            entries = _read(path) | {key: rows}
        handle, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)
        with os.fdopen(handle, "w") as out:
            json.dump({"format": FORMAT, "entries": entries}, out, indent=1)
        os.replace(temporary, path)
    except OSError as error:
        warnings.warn(f"plait: measurements are not kept: {error}", stacklevel=2)
