"""How `plait.fft.autotune` works: candidates, measurements, and the choice that all ranks make."""

import dataclasses
import functools
import json
import math
import operator
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import (
    _comm,
    _config,
    _core,
    _errors,
    _fourier,
    _jax,
    _mesh_rules,
    _region,
    _split,
    _team,
    _tune_file,
)
from plait import fft as _fft

OPERATIONS = ("pfft3d", "pifft3d", "prfft3d", "pirfft3d")
LAYOUTS = ("transposed", "natural")
AXES = (0, 1, 2)
HOPELESS = 2.0  # candidates this many times slower than the best are dropped after TRIED
TRIED = 2  # rounds
NEAR = 1.02  # ratio of times below which differences are chance
DEFAULTS = {"transpose_comm_backend": "auto", "transpose_exchange": "fused"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One candidate of `autotune`, and what was measured of it.

    Attributes:
        grid: devices along the first and the second axis.
        layout: how spectra are split, as the transforms take it.
        settings: what `plait.config.set` takes.
        seconds: the median for each operation; empty if it was not measured.
        total: the sum over the operations asked for; infinite if it was not measured.
        rounds: how many times it was measured.
        reason: why it was not measured, or not as often as others.
    """

    grid: tuple[int, int]
    layout: str
    settings: dict[str, str]
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    total: float = math.inf
    rounds: int = 0
    reason: str = ""


class TunedMesh(Mesh):
    """The mesh that `autotune` chose: a `jax.sharding.Mesh`, and how to use it.

    Attributes:
        spec: the PartitionSpec of arrays to transform.
        layout: the ``layout=`` of the transforms.
        settings: the choices of `plait.config`: ``with plait.config.set(**mesh.settings):``.
        table: a `Row` for each candidate, the best one first.
        padded_shape: extents that arrays need: the shape, or more where no grid divides it.
        is_remembered: whether the file had it, so that nothing was measured.
    """

    spec: P
    layout: str
    settings: dict[str, str]
    table: tuple[Row, ...]
    padded_shape: tuple[int, ...]
    is_remembered: bool
    _plain: Mesh

    @classmethod
    def _make(cls, mesh: Mesh, **more: Any) -> "TunedMesh":
        # Equal arguments give the same Mesh object, which is no place for measurements.
        made = object.__new__(cls)
        made.__dict__.update(mesh.__dict__)
        made.__dict__.update(more, _plain=mesh)
        return made

    def __eq__(self, other: object) -> bool:
        return self._plain == (other._plain if isinstance(other, TunedMesh) else other)

    def __hash__(self) -> int:
        return hash(self._plain)

    def report(self) -> str:
        """The table as text."""
        return report(self.table)


# ---- arguments -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is to be tuned."""

    shape: tuple[int, int, int]
    is_double: bool
    operations: tuple[str, ...]
    layouts: tuple[str, ...]
    devices: tuple
    names: tuple[str, str]


def _shape_of(shape: Any) -> tuple[int, int, int]:
    try:
        found = tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(f"autotune: shape is {shape!r}; expected three integers") from None
    if len(found) != 3 or min(found) < 1:
        raise ValueError(f"autotune: shape is {found}; expected three extents of 1 or more")
    return found


def _is_double(dtype: Any) -> bool:
    known = (*_fourier.SINGLE, *_fourier.DOUBLE)
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in known:
        raise ValueError(f"autotune: dtype is {name}; expected one of {', '.join(sorted(known))}")
    if name in _fourier.DOUBLE and not jax.config.jax_enable_x64:
        raise ValueError(
            f"autotune: dtype is {name}, which JAX has switched off; call "
            'jax.config.update("jax_enable_x64", True) first'
        )
    return name in _fourier.DOUBLE


def _some_of(given: Any, known: Sequence[str], argument: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    bad = [name for name in names if name not in known]
    if bad or not names:
        raise ValueError(
            f"autotune: {argument} has {bad[0]!r}; expected some of {', '.join(known)}"
            if bad
            else f"autotune: {argument} is empty; expected some of {', '.join(known)}"
        )
    return names


def _names_of(axis_names: Any) -> tuple[str, str]:
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    if len(names) != 2 or names[0] == names[1] or not all(isinstance(n, str) for n in names):
        raise ValueError(f"autotune: axis_names is {axis_names!r}; expected two names")
    return names


def problem_of(
    shape: Any, dtype: Any, operations: Any, layouts: Any, devices: Any, axis_names: Any
) -> Problem:
    """Checks the arguments."""
    if _jax.is_tracing():
        raise TypeError(
            "autotune: it measures, so call it outside jax.jit and other transformations"
        )
    found = tuple(jax.devices() if devices is None else devices)
    if {d.platform for d in found} not in ({"cpu"}, {"gpu"}):
        what = " and ".join(sorted({d.platform for d in found})) or "none"
        raise ValueError(f"autotune: devices are {what}; expected all CPUs or all GPUs")
    return Problem(
        shape=_shape_of(shape),
        is_double=_is_double(dtype),
        operations=_some_of(operations, OPERATIONS, "operations"),
        layouts=tuple(dict.fromkeys(_some_of(layouts, LAYOUTS, "layouts"))),
        devices=found,
        names=_names_of(axis_names),
    )


# ---- the processes -------------------------------------------------------------------------------


def _check_alike(team: _team.Team, key: str) -> None:
    keys = team.gather(key.encode())
    differing = [i for i, other in enumerate(keys) if other != keys[0]]
    if differing:
        raise _errors.MismatchError(
            f"autotune: the ranks call it differently:\n  rank 0: {keys[0].decode()}\n"
            f"  rank {differing[0]}: {keys[differing[0]].decode()}"
        )


# ---- candidates ----------------------------------------------------------------------------------


def grids(n: int) -> list[tuple[int, int]]:
    """All pairs with the product n; slabs along the first axis first."""
    return [(n // k, k) for k in range(1, n + 1) if n % k == 0]


def _mesh(problem: Problem, grid: tuple[int, int]) -> Mesh:
    return Mesh(np.array(problem.devices, dtype=object).reshape(grid), problem.names)


def _spectrum(problem: Problem, layout: str) -> _mesh_rules.Spec:
    names = _natural(problem)
    return names if layout == "natural" else _fourier.turned(names, AXES, -1, "autotune")


def _natural(problem: Problem) -> _mesh_rules.Spec:
    return ((problem.names[0],), (problem.names[1],), ())


def _too_small(problem: Problem, grid: tuple[int, int], layout: str) -> str:
    """Why a grid is impossible: more ranks along an axis than the axis has planes."""
    mesh = _mesh(problem, grid)
    for what, spec in (("x", _natural(problem)), ("its spectrum", _spectrum(problem, layout))):
        for axis, (n, names) in enumerate(zip(problem.shape, spec, strict=True)):
            k = _split.parts(mesh, names)
            if k > n:
                return f"{k} ranks along axis {axis} of {what}, which has {n} planes"
    return ""


def _padding(problem: Problem, grid: tuple[int, int], layout: str) -> tuple[int, ...]:
    """Extents that a grid needs, for both operand and complex result."""
    mesh = _mesh(problem, grid)
    operand = _mesh_rules.padded(mesh, problem.shape, _natural(problem))
    spectrum = _mesh_rules.padded(mesh, problem.shape, _spectrum(problem, layout))
    return tuple(map(max, operand, spectrum))


def _settings(problem: Problem, has_direct: bool) -> list[dict[str, str]]:
    """On GPUs messages are dense anyway, and a missing NCCL shows when it is tried."""
    is_lone = len(problem.devices) == 1
    if problem.devices[0].platform == "gpu":
        return [DEFAULTS] if is_lone else [DEFAULTS, DEFAULTS | {"transpose_comm_backend": "NCCL"}]
    if is_lone or not has_direct:
        return [DEFAULTS]
    return [
        DEFAULTS,
        DEFAULTS | {"transpose_exchange": "separate"},
        DEFAULTS | {"transpose_comm_backend": "MPI"},
    ]


def candidates(problem: Problem, has_direct: bool) -> list[Row]:
    """All candidates; those with a reason are not measured."""
    rows = []
    pairs = [(g, layout) for g in grids(len(problem.devices)) for layout in problem.layouts]
    fits = [
        not _too_small(problem, g, layout) and _padding(problem, g, layout) == problem.shape
        for g, layout in pairs
    ]
    for (grid, layout), is_fit in zip(pairs, fits, strict=True):
        reason = _too_small(problem, grid, layout)
        padding = _padding(problem, grid, layout)
        if not reason and not is_fit and any(fits):
            reason = f"does not divide the shape; pads it to {'x'.join(map(str, padding))}"
        for settings in [DEFAULTS] if reason else _settings(problem, has_direct):
            rows.append(Row(grid, layout, dict(settings), reason=reason))
    if not any(not row.reason for row in rows):
        raise ValueError(
            f"autotune: {len(problem.devices)} devices are too many for shape {problem.shape} in "
            f"every grid ({rows[0].reason}); pass fewer devices"
        )
    return rows


# ---- measuring -----------------------------------------------------------------------------------


class Trial:
    """The operations on one grid in one layout, compiled once for all settings."""

    def __init__(self, problem: Problem, grid: tuple[int, int], layout: str):
        self.problem, self.layout = problem, layout
        self.mesh = _mesh(problem, grid)
        self.is_padded = _padding(problem, grid, layout) != problem.shape
        self.programs = {op: self._program(op) for op in dict.fromkeys(problem.operations)}

    def _operand(self, op: str) -> tuple[tuple[int, ...], _mesh_rules.Spec, Any]:
        shape, spec = self.problem.shape, _natural(self.problem)
        if op in ("pifft3d", "pirfft3d"):
            spec = _spectrum(self.problem, self.layout)
        if op == "pirfft3d":
            shape = (*shape[:2], shape[2] // 2 + 1)
        pair = _fourier.DOUBLE if self.problem.is_double else _fourier.SINGLE
        dims = _mesh_rules.padded(self.mesh, shape, spec)
        return dims, spec, jnp.dtype(pair[op != "prfft3d"])

    def _program(self, op: str) -> tuple[Callable, Callable]:
        """A function that makes an operand, and the function that is timed."""
        dims, names, dtype = self._operand(op)
        spec = _split.to_partition_spec(names)
        real = jnp.float64 if self.problem.is_double else jnp.float32

        def fill() -> jax.Array:
            return jnp.cos(jax.lax.broadcasted_iota(real, dims, 0)).astype(dtype)

        given = {"layout": self.layout, "mesh": self.mesh, "spec": spec}
        if self.is_padded or op in ("prfft3d", "pirfft3d"):  # halved axes may be padded
            given["shape"] = self.problem.shape
        function = functools.partial(getattr(_fft, op), **given)
        return (
            jax.jit(fill, out_shardings=NamedSharding(self.mesh, spec)),
            _region.jit(lambda x: function(x)),
        )

    def seconds(self, op: str, team: _team.Team) -> float:
        """Time of one call in this process, with a fresh result, as in programs."""
        fill, run = self.programs[op]
        x = jax.block_until_ready(fill())
        team.meet()
        start = time.perf_counter()
        _errors.block(run(x))
        return time.perf_counter() - start


def _visit(trials: dict, row: Row, team: _team.Team) -> list[float]:
    trial = trials[row.grid, row.layout]
    with _config.config.set(**row.settings):
        return [trial.seconds(op, team) for op in trial.programs]


def _why_not(trials: dict, row: Row, team: _team.Team) -> str:
    """Tries a candidate, which compiles and plans it; returns, alike on all, why one cannot."""
    reason = ""
    try:
        _visit(trials, row, team)
    except _errors.Error as error:
        if row.settings["transpose_comm_backend"] == "auto":
            raise
        reason = str(error).splitlines()[0]
    reasons = [part.decode() for part in team.gather(reason.encode())]
    return next((text for text in reasons if text), "")


def _total(problem: Problem, medians: dict[str, float]) -> float:
    return sum(medians[op] for op in problem.operations)


def measure(problem: Problem, rows: list[Row], team: _team.Team, repeats: int) -> list[Row]:
    """Measures all candidates in rounds; the slowest process counts, hopeless ones are dropped."""
    trials = {(r.grid, r.layout): None for r in rows if not r.reason}
    trials = {pair: Trial(problem, *pair) for pair in trials}
    ops = list(dict.fromkeys(problem.operations))
    rows = [
        dataclasses.replace(row, reason=row.reason or _why_not(trials, row, team)) for row in rows
    ]
    going = [i for i, row in enumerate(rows) if not row.reason]
    times: dict[int, list[np.ndarray]] = {i: [] for i in going}
    for turn in range(repeats):
        order = going[turn % len(going) :] + going[: turn % len(going)]
        mine = np.array([_visit(trials, rows[i], team) for i in order])
        worst = team.largest(mine.ravel()).reshape(mine.shape)
        for i, row in zip(order, worst, strict=True):
            times[i].append(row)
        if turn == TRIED - 1:
            going = _hopeful(problem, ops, {i: times[i] for i in going})
    return [_with_times(problem, row, ops, times.get(i, []), repeats) for i, row in enumerate(rows)]


def _hopeful(problem: Problem, ops: list[str], times: dict[int, list[np.ndarray]]) -> list[int]:
    """Without the candidates whose best times so far are far from the best."""
    least = {i: np.min(rounds, axis=0) for i, rounds in times.items()}
    totals = {i: _total(problem, dict(zip(ops, row, strict=True))) for i, row in least.items()}
    return [i for i, total in totals.items() if total <= HOPELESS * min(totals.values())]


def _with_times(
    problem: Problem, row: Row, ops: list[str], times: list[np.ndarray], repeats: int
) -> Row:
    if not times:
        return row
    medians = {op: float(statistics.median(t[k] for t in times)) for k, op in enumerate(ops)}
    reason = "" if len(times) == repeats else f"takes more than {HOPELESS:g} times the best"
    total = _total(problem, medians)
    return dataclasses.replace(row, seconds=medians, total=total, rounds=len(times), reason=reason)


def _ranked(rows: list[Row]) -> tuple[Row, ...]:
    """Best first; a dropped candidate does not rank above one that was measured often.

    Among candidates as good as the best, the first is chosen: slabs and defaults come first.
    """
    most = max(row.rounds for row in rows)
    best = min(row.total for row in rows if row.rounds == most)
    chosen = next(row for row in rows if row.rounds == most and row.total <= NEAR * best)
    others = sorted(
        (row for row in rows if row is not chosen), key=lambda row: (row.rounds < most, row.total)
    )
    return (chosen, *others)


# ---- the whole -----------------------------------------------------------------------------------


def report(table: Sequence[Row]) -> str:
    """A table of measurements as text."""
    ops = list(next(row for row in table if row.seconds).seconds)
    lines = [["grid", "layout", "backend", "exchange", *(f"{op} ms" for op in ops), "sum ms", ""]]
    for row in table:
        cells = ["x".join(map(str, row.grid)), row.layout]
        if row.seconds:
            cells += list(row.settings.values())
            cells += [f"{1e3 * row.seconds[op]:.3f}" for op in ops] + [f"{1e3 * row.total:.3f}"]
        else:
            cells += ["-"] * (len(ops) + 3)
        lines.append([*cells, row.reason])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    made = []
    for line in lines:
        texts = [
            cell.ljust(w) if i < 4 or i == len(line) - 1 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        made.append("  ".join(texts).rstrip())
    return "\n".join(made)


def _kind(device: Any) -> dict[str, str]:
    """The kind of GPUs; the machine's text has the CPUs."""
    return {} if device.platform == "cpu" else {"kind": device.device_kind}


def _key(problem: Problem, direct: str) -> str:
    return _tune_file.key_of(
        shape=problem.shape,
        precision="double" if problem.is_double else "single",
        operations=problem.operations,
        layouts=problem.layouts,
        devices=len(problem.devices),
        access=direct,
        **_kind(problem.devices[0]),
    )


def _tuned(problem: Problem, table: tuple[Row, ...], is_remembered: bool) -> TunedMesh:
    best = table[0]
    return TunedMesh._make(
        _mesh(problem, best.grid),
        spec=P(*problem.names),
        layout=best.layout,
        settings=dict(best.settings),
        table=table,
        padded_shape=_padding(problem, best.grid, best.layout),
        is_remembered=is_remembered,
    )


def _remembered(
    team: _team.Team,
    kept: _tune_file.Kept,
    key: str,
    problem: Problem,
    rows: list[Row],
    repeats: int,
) -> tuple[Row, ...] | None:
    """What the first process finds in its file about these candidates; all get it."""
    operations = problem.operations
    text = team.gather(kept.find(key, rows, operations, repeats))[0]
    found = _tune_file.rows_of(json.loads(text), rows, operations) if text else None
    return None if found is None else _ranked(found)


def tune(problem: Problem, repeats: int, file: Any, is_fresh: bool, verbose: bool) -> TunedMesh:
    """See `plait.fft.autotune`."""
    _config.config.read()  # raises for a missing backend, as transforms do
    file = None if file is None else os.fsdecode(file)  # a TypeError comes on every process
    team = _team.Team(problem.devices, "autotune")
    comm = _comm.over_devices((problem.devices,))
    direct = _core.comm_texts(comm)[1]
    has_direct = not direct.startswith("off")
    _check_alike(team, f"{_key(problem, '')} {problem.names} {repeats} {is_fresh}")
    machines = [part.decode() for part in team.gather(_tune_file.machine().encode())]
    key = _tune_file.with_machines(_key(problem, direct), machines)
    rows = candidates(problem, has_direct)
    kept = _tune_file.look(file) if team.is_first else _tune_file.Kept()
    table = None if is_fresh else _remembered(team, kept, key, problem, rows, repeats)
    is_remembered = table is not None
    if table is None:
        table = _ranked(measure(problem, rows, team, repeats))
        kept.save(key, table)
    made = _tuned(problem, table, is_remembered)
    if verbose and team.is_first:
        print(f"{'x'.join(map(str, problem.shape))}, {len(problem.devices)} devices, {direct}")
        print(made.report(), flush=True)
    return made
