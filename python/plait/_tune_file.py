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


def _is_row(row: dict, n_devices: int) -> bool:
    keys, settings, seconds = _core.keys(), row["settings"], row["seconds"]
    return (
        set(row) == FIELDS
        and len(row["grid"]) == 2
        and math.prod(row["grid"]) == n_devices
        and row["layout"] in ("transposed", "natural")
        and all(value in keys[name].choices for name, value in settings.items())
        and all(0 < value < math.inf for value in seconds.values())
        and (row["total"] is None or row["total"] > 0)
        and isinstance(row["rounds"], int)
        and isinstance(row["reason"], str)
    )


def _is_table(table: Any, n_devices: int) -> bool:
    """Whether an entry is as `save` writes it, and its best candidate was measured."""
    try:
        return all(_is_row(row, n_devices) for row in table) and bool(table[0]["seconds"])
    except (AttributeError, KeyError, IndexError, TypeError):
        return False


def find(file: Any, key: str, n_devices: int) -> bytes:
    """The measurements of a key as text; empty if there are none."""
    path = _path(file)
    table = None if path is None else _read(path).get(key)
    if table is None:
        return b""
    if not _is_table(table, n_devices):
        warnings.warn(f"plait: an entry of {path} is ignored, it is damaged", stacklevel=2)
        return b""
    return json.dumps(table).encode()


def table_of(text: bytes, kind: type) -> tuple | None:
    """The rows of a text from `find`."""
    if not text:
        return None
    rows = [row | {"grid": tuple(row["grid"])} for row in json.loads(text)]
    return tuple(kind(**row | {"total": row["total"] or math.inf}) for row in rows)


def save(file: Any, key: str, table: Sequence) -> None:
    """Adds an entry; readers see the file before or after, never half of it."""
    path = _path(file)
    if path is None:
        return
    rows = [dataclasses.asdict(row) for row in table]
    for row in rows:
        row["total"] = row["total"] if math.isfinite(row["total"]) else None
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
