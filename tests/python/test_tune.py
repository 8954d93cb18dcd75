"""plait.fft.autotune and `plait tune`: candidates, choice, memory, and that results stay."""

import collections
import doctest
import functools
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys

import jax
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import NamedSharding
from plait import _core, _tune, _tune_file

SHAPE = (8, 12, 16)
DEFAULTS = {"transpose_comm_backend": "auto", "transpose_exchange": "fused"}


NAME = "tune.json"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "folder" / NAME


def tune(shape=SHAPE, n=4, **given):
    given = {"repeats": 1, "file": "", "devices": jax.devices()[:n]} | given
    return plait.fft.autotune(shape, **given)


def small(**given):
    """Few candidates, for tests of what surrounds them."""
    given = {"n": 2, "layouts": "transposed", "operations": "pfft3d"} | given
    return tune(**given)


@pytest.fixture
def clock(monkeypatch):
    """Times that a test sets instead of measuring; notes what is asked for."""

    class Clock:
        asked: list
        times: dict  # by grid and layout

        def __init__(self):
            self.asked, self.times, self.spikes = [], collections.defaultdict(lambda: 1.0), {}

        def seconds(self, trial, op, team):
            place = (trial.mesh.devices.shape, trial.layout)
            settings = (*place, *plait.config.read().values())
            self.asked.append((settings, op))
            n = sum(asked == (settings, op) for asked in self.asked)
            return self.spikes.get((place, n), self.times[place])

    made = Clock()
    monkeypatch.setattr(_tune.Trial, "seconds", lambda *given: made.seconds(*given))
    return made


# ---- the mesh ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "dtype"), [(1, "complex64"), (2, "complex128"), (4, "complex128"), (8, "complex64")]
)
def test_mesh_is_one_for_shardings(n, dtype):
    mesh = tune(n=n, dtype=dtype)
    assert isinstance(mesh, jax.sharding.Mesh) and mesh.size == n
    assert list(mesh.devices.flat) == jax.devices()[:n] and mesh.axis_names == ("x", "y")
    a = meshes.random(SHAPE, dtype)
    x = jax.device_put(a, NamedSharding(mesh, mesh.spec))
    plain = jax.sharding.Mesh(mesh.devices, mesh.axis_names)
    assert mesh == plain == mesh and hash(mesh) == hash(plain) and mesh != 3
    assert x.sharding == NamedSharding(plain, mesh.spec)
    want, tolerance = np.fft.fftn(a), 1e4 * meshes.eps(dtype)
    forward = plait.jit(lambda v: plait.fft.pfft3d(v, layout=mesh.layout, spec=mesh.spec))
    with plait.config.set(**mesh.settings):
        for f in (lambda v: plait.fft.pfft3d(v, layout=mesh.layout), forward):
            y = f(x)
            assert np.allclose(y, want, rtol=0, atol=tolerance)
            back = plait.fft.pifft3d(y, layout=mesh.layout)
            assert np.allclose(back, a, rtol=0, atol=tolerance)
            assert back.sharding.is_equivalent_to(x.sharding, 3)
    with jax.set_mesh(mesh):
        assert np.allclose(jax.jit(lambda v: v * 2)(x), 2 * a)
    g = jax.grad(lambda v: plait.sum(abs(plait.fft.pfft3d(v, layout=mesh.layout)) ** 2))(x)
    assert np.allclose(g, 2 * a.conj() * a.size, rtol=1e3 * meshes.eps(dtype))


def test_every_candidate_gives_the_same():
    mesh = tune(operations=("prfft3d", "pirfft3d", "pfft3d"), dtype="float64")
    a = meshes.random(SHAPE)
    want, half = np.fft.fftn(a), np.fft.rfftn(a)
    measured = [row for row in mesh.table if row.seconds]
    assert len(measured) == 3 * 2 * 3 == len(mesh.table)
    for row in measured:
        on = meshes.Mesh(np.array(jax.devices()[:4]).reshape(row.grid), ("x", "y"))
        x = meshes.put(a, on, mesh.spec)
        with plait.config.set(**row.settings):
            y = plait.fft.pfft3d(x, layout=row.layout)
            z = plait.fft.prfft3d(x, layout=row.layout, shape=a.shape)
            back = plait.fft.pirfft3d(z, layout=row.layout, shape=SHAPE)
        assert np.allclose(y, want, rtol=0, atol=1e-11)
        assert np.allclose(z[:, :, : half.shape[2]], half, rtol=0, atol=1e-11)
        assert np.allclose(back, a, rtol=0, atol=1e-13)


def test_settings_stay_what_they_were():
    with plait.config.set(transpose_comm_backend="NODE", halo_comm_backend="MPI"):
        before = plait.config.read()
        tune()
        assert plait.config.read() == before


# ---- candidates ----------------------------------------------------------------------------------


def test_all_grids():
    assert _tune.grids(1) == [(1, 1)]
    assert _tune.grids(12) == [(12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12)]
    for n in range(1, 40):
        assert len(set(_tune.grids(n))) == sum(n % k == 0 for k in range(1, n + 1))
        assert all(math.prod(grid) == n for grid in _tune.grids(n))


def rows_of(mesh):
    return {(row.grid, row.layout): row for row in mesh.table}


def test_grids_with_more_ranks_than_planes_are_left_out():
    rows = rows_of(tune((2, 8, 4)))
    for layout in ("transposed", "natural"):
        row = rows[(4, 1), layout]
        assert not row.seconds and math.isinf(row.total)
        assert row.reason == "4 ranks along axis 0 of x, which has 2 planes"
        assert rows[(2, 2), layout].seconds
    rows = rows_of(tune((4, 4, 1)))
    reason = rows[(1, 4), "transposed"].reason
    assert reason == "4 ranks along axis 2 of its spectrum, which has 1 planes"
    assert rows[(1, 4), "natural"].seconds and rows[(4, 1), "transposed"].seconds


def test_grids_that_do_not_divide():
    rows = rows_of(tune((6, 8, 8)))
    assert "pads it to 8x8x8" in rows[(4, 1), "natural"].reason
    mesh = tune((5, 7, 9))  # none divides
    assert all(row.seconds for row in mesh.table)
    assert mesh.padded_shape != (5, 7, 9)
    a = meshes.random((5, 7, 9), "complex128")
    more = [(0, n - m) for n, m in zip(mesh.padded_shape, a.shape, strict=True)]
    x = jax.device_put(np.pad(a, more), NamedSharding(mesh, mesh.spec))
    y = plait.fft.pfft3d(x, shape=a.shape, layout=mesh.layout)
    assert np.allclose(y[:5, :7, :9], np.fft.fftn(a), rtol=0, atol=1e-11)


@pytest.mark.parametrize("off", [{"layouts": "natural"}, {"layouts": ["transposed"]}])
def test_layouts(off):
    assert {row.layout for row in tune(**off).table} == {"natural", "transposed"} & {
        *([off["layouts"]] if isinstance(off["layouts"], str) else off["layouts"])
    }


# ---- the choice ----------------------------------------------------------------------------------


def test_the_median_of_rounds_in_turns_decides(clock):
    good, spoilt = ((2, 2), "natural"), ((4, 1), "transposed")
    clock.times |= {good: 0.7, spoilt: 0.8}
    # Of 6 visits the first one compiles; the fifth one of both was disturbed.
    clock.spikes = {(good, 5): 50.0, (spoilt, 5): 0.01}
    mesh = tune(repeats=5)
    assert (mesh.devices.shape, mesh.layout) == good
    assert mesh.table[0].seconds == {"pfft3d": 0.7, "pifft3d": 0.7}
    assert mesh.table[0].total == 1.4 and mesh.table[0].rounds == 5
    assert [row.total for row in mesh.table] == sorted(row.total for row in mesh.table)
    places = [settings for settings, op in clock.asked if op == "pfft3d"]
    assert len(places) == 6 * 18
    for turn in range(6):  # everyone once a round
        assert len(set(places[18 * turn : 18 * (turn + 1)])) == 18
    assert places[18] != places[36]  # and not always in the same place


def test_hopeless_candidates_are_left_alone(clock):
    slow, unlucky = ((1, 4), "natural"), ((2, 2), "transposed")
    clock.times |= {slow: 2.5}
    clock.spikes = {(unlucky, 2): 9.0}  # once: it may go on
    mesh = tune(repeats=4)
    for row in mesh.table:
        if (row.grid, row.layout) == slow:
            assert row.rounds == 2 and "more than 2 times the best" in row.reason
        else:
            assert row.rounds == 4 and not row.reason
    assert all((row.grid, row.layout) == slow for row in mesh.table[-3:])


def test_defaults_win_what_chance_decides(clock):
    near, better = ((1, 4), "natural"), ((2, 2), "natural")
    clock.times |= {near: 0.99}
    first = tune().table[0]
    assert first.grid == (4, 1) and first.layout == "transposed" and first.settings == DEFAULTS
    clock.times |= {better: 0.9}
    rows = tune().table
    assert (rows[0].grid, rows[0].layout, rows[0].settings) == (*better, DEFAULTS)
    assert [row.total for row in rows] == sorted(row.total for row in rows)


def test_not_while_tracing():
    with pytest.raises(TypeError, match="outside jit"):
        jax.jit(lambda x: x * tune().size)(1.0)


def test_operations_count_as_often_as_they_are_named(clock):
    mesh = tune(operations=("pfft3d", "pifft3d", "pifft3d", "pifft3d"))
    assert mesh.table[0].total == 4 and set(mesh.table[0].seconds) == {"pfft3d", "pifft3d"}


# ---- memory --------------------------------------------------------------------------------------


def test_second_call_reads_the_file(file, monkeypatch, capsys):
    first = small(file=file, verbose=True)
    table = capsys.readouterr().out
    assert table.splitlines()[0].startswith("8x12x16, 2 devices, shared addresses")
    assert "pfft3d ms" in table and f"{1e3 * first.table[0].total:.3f}" in table
    monkeypatch.setattr(_tune, "measure", None)
    second = small(file=file, verbose=True)
    assert second.is_remembered and not first.is_remembered
    assert second.table == first.table and second.settings == first.settings
    assert second.devices.shape == first.devices.shape and second.layout == first.layout
    assert capsys.readouterr().out == table
    assert [p.name for p in file.parent.iterdir()] == [file.name]
    with pytest.raises(TypeError):
        small(file=file, fresh=True)


OTHERS = [
    {"shape": (8, 16, 12)},
    {"dtype": "complex128"},
    {"operations": ("pifft3d",)},
    {"layouts": ("natural",)},
    {"n": 1},
]


@pytest.mark.parametrize("other", OTHERS)
def test_other_problems_are_others(file, other):
    small(file=file)
    assert not small(file=file, **other).is_remembered
    assert small(file=file, **other).is_remembered and small(file=file).is_remembered


def test_other_machines_are_others():
    def key(*machines):
        return _tune_file.with_machines('{"shape": [1]}', [json.dumps(m) for m in machines])

    a, b, c = ["host1", "cpu A, 2 of 2 cores"], ["host2", "cpu A, 2 of 2 cores"], ["host1", "B"]
    keys = [key(a), key(a, a), key(a, b), key(c), key(a, c)]
    assert len(set(keys)) == len(keys)
    assert key(a, b) == key(b, a) and key(a) == key(b)
    assert json.loads(_tune_file.machine())[1].endswith(_tune_file.isa())


OURS = '{"format": 1, "entries": {}}'
NO_FILES = {
    "text": "my notes\n",
    "blank": "\n",
    "truncated": OURS[:-1],
    "nested": "[" * 100_000,
    "binary": b"\xff\xfe\x00",
    "zeros": bytes(100),
    "list": "[]",
    "null": "null",
    "other": '{"a": 1}',
    "no format": '{"entries": {}}',
    "format 1.0": '{"format": 1.0, "entries": {}}',
    "format true": '{"format": true, "entries": {}}',
    "no entries": '{"format": 1}',
    "list of entries": '{"format": 1, "entries": []}',
    "others' entries": '{"format": 1, "entries": {"a": 1}}',
}


def is_left(file, content, warning, **given):
    """Whether a file that cannot be used is as it was, with one warning which says so."""
    content = content if isinstance(content, bytes) else content.encode()
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    with pytest.warns(UserWarning, match=warning) as caught:
        assert not small(file=file, **given).is_remembered
    return len(caught) == 1 and file.read_bytes() == content and os.listdir(file.parent) == [NAME]


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("content", NO_FILES.values(), ids=NO_FILES)
def test_others_files_stay(file, clock, content, fresh):
    warning = "are not kept: .*tune.json is not a file of plait's .*, or it is damaged; remove it"
    assert is_left(file, content, warning, fresh=fresh)


@pytest.mark.parametrize("fresh", [False, True])
def test_files_of_other_versions_stay(file, clock, fresh):
    content = OURS.replace("1", "2")
    assert is_left(file, content, "not kept: .* was written by another version", fresh=fresh)


@pytest.mark.parametrize("content", ["", OURS, "\ufeff" + OURS])
@pytest.mark.filterwarnings("error")
def test_files_without_entries(file, clock, content):
    file.parent.mkdir()
    file.write_text(content)
    assert not small(file=file).is_remembered and small(file=file).is_remembered


def test_file_that_becomes_anothers(file, clock, monkeypatch):
    kept = _tune_file.look(str(file))
    file.parent.mkdir()
    file.write_text("notes")
    with pytest.warns(UserWarning, match="not a file of plait's"):
        kept.save('{"plait": 1}', [])
    assert file.read_text() == "notes"


@pytest.mark.filterwarnings("error")
def test_links_stay(tmp_path, clock):
    link, file = tmp_path / "link", tmp_path / "folder" / "real.json"
    link.symlink_to("folder/real.json")
    assert not small(file=link).is_remembered and small(file=link).is_remembered
    assert not small(file=link, fresh=True).is_remembered
    assert link.is_symlink() and file.is_file() and os.listdir(file.parent) == ["real.json"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize("fresh", [False, True])
def test_what_is_no_file(tmp_path, clock, make, fresh):
    file = tmp_path / NAME
    make(file)
    with pytest.warns(UserWarning, match="measurements are not kept: .* is no file") as caught:
        assert not small(file=file, fresh=fresh).is_remembered
    assert len(caught) == 1 and os.listdir(tmp_path) == [NAME] and not file.is_file()


@pytest.mark.parametrize("name", ["a\0b", "/dev/null/tune.json", "x" * 300])
def test_names_of_no_file(tmp_path, clock, name):
    with pytest.warns(UserWarning, match="measurements are not kept"):
        assert not small(file=tmp_path / name).is_remembered
    with pytest.raises(TypeError, match="expected str, bytes or os.PathLike"):
        small(file=3)


def test_without_a_home(clock, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PLAIT_TUNE_FILE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pathlib.Path, "home", home)
    with pytest.warns(UserWarning, match="not kept: there is no home directory; PLAIT_TUNE_FILE"):
        assert not small(file=None).is_remembered


def test_nothing_half_is_left(file, clock, monkeypatch):
    def fail(*_):
        raise OSError("no space")

    small(file=file)
    before = file.read_bytes()
    monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(UserWarning, match="measurements are not kept: no space"):
        small(file=file, n=1)
    assert file.read_bytes() == before and os.listdir(file.parent) == [NAME]


def spoil(name, value):
    def change(table):
        table[0][name] = value

    return change


NESTED = functools.reduce(lambda inner, _: [inner], range(500), [])
SPOILT = [
    spoil("grid", [3, 1]),
    spoil("grid", [-2, -1]),
    spoil("grid", [2.0, 1.0]),
    spoil("grid", [2, True]),
    spoil("grid", "21"),
    spoil("grid", [2, 1, 1]),
    spoil("grid", 4),
    spoil("grid", NESTED),
    spoil("layout", "diagonal"),
    spoil("layout", "natural"),  # that was not asked for
    spoil("layout", ["transposed"]),
    spoil("settings", {"transpose_comm_backend": "UCX"}),
    spoil("settings", {"backend": "MPI"}),
    spoil("settings", {}),
    spoil("settings", []),
    spoil("settings", {"dense_backend": "cuSolverMg"}),
    spoil("settings", DEFAULTS | {"transpose_comm_backend": "NCCL"}),
    spoil("settings", DEFAULTS | {"dense_backend": "auto"}),
    spoil("seconds", {"pfft3d": -1.0}),
    spoil("seconds", {"pfft3d": "1"}),
    spoil("seconds", {"pfft3d": math.nan}),
    spoil("seconds", {"pfft3d": True}),
    spoil("seconds", {"fft": 1.0}),
    spoil("seconds", {"pfft3d": 1.0, "pifft3d": 1.0}),
    spoil("seconds", {}),
    spoil("seconds", None),
    spoil("total", None),
    spoil("total", "1"),
    spoil("total", 1e9),
    spoil("total", 10**400),
    spoil("rounds", 0),
    spoil("rounds", 1.0),
    spoil("rounds", True),
    spoil("reason", None),
    lambda table: table.clear(),
    lambda table: table.append(table[0]),
    lambda table: table.__setitem__(0, table[1]),
    lambda table: table[0].pop("grid"),
    lambda table: table[0].pop("rounds"),
    lambda table: table[0].update(more=1),
]
ENTRIES = [None, 5, "abc", {}, [], [None], [[]], NESTED]


def put_into(file, entries):
    file.write_text(json.dumps({"format": 1, "entries": entries}))


def entries_of(file):
    return json.loads(file.read_text())["entries"]


def is_ignored(file):
    with pytest.warns(UserWarning, match="an entry of .* is ignored"):
        assert not small(file=file).is_remembered
    return small(file=file).is_remembered


@pytest.mark.parametrize("change", SPOILT)
def test_damaged_row(file, clock, change):
    small(file=file)
    [(key, table)] = entries_of(file).items()
    change(table)
    put_into(file, {key: table})
    assert is_ignored(file)


@pytest.mark.parametrize("entry", ENTRIES)
def test_damaged_entry(file, clock, entry):
    small(file=file)
    [key] = entries_of(file)
    put_into(file, {key: entry})
    assert is_ignored(file)


def test_good_entries_stay(file, clock):
    small(file=file), small(file=file, n=1)
    entries = entries_of(file)
    first, second = entries
    put_into(file, entries | {first: None, "other": 5})
    assert is_ignored(file)
    assert entries_of(file) == entries | {"other": 5}
    assert small(file=file, n=1).is_remembered


def test_the_order_in_the_file_is_no_matter(file):
    mesh = tune(file=file)
    [(key, table)] = entries_of(file).items()
    for row in table:
        row["settings"] = dict(reversed(row["settings"].items()))
    put_into(file, {key: table[::-1]})
    again = tune(file=file)
    assert again.is_remembered and again.table == mesh.table and again.report() == mesh.report()


def test_places(monkeypatch, tmp_path):
    monkeypatch.delenv("PLAIT_TUNE_FILE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small(file=None)
    assert (tmp_path / "plait" / "tune.json").is_file()
    monkeypatch.setenv("PLAIT_TUNE_FILE", str(tmp_path / "other"))
    assert not small(file=None).is_remembered
    assert (tmp_path / "other").is_file()


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"shape": (8, 8)}, ValueError, "expected three extents"),
        ({"shape": (8, 0, 8)}, ValueError, "three extents of 1 or more"),
        ({"shape": (8, 8.5, 8)}, TypeError, "expected three integers"),
        ({"shape": 8}, TypeError, "expected three integers"),
        ({"dtype": "int32"}, ValueError, "int32; expected one of complex128, complex64"),
        ({"dtype": "complex"}, None, ""),
        ({"dtype": "complex65"}, ValueError, "complex65.*expected one of"),
        ({"operations": ("fft",)}, ValueError, "'fft'; expected some of pfft3d, pifft3d"),
        ({"operations": ()}, ValueError, "operations is empty"),
        ({"layouts": "contiguous"}, ValueError, "expected some of transposed, natural"),
        ({"axis_names": ("x",)}, ValueError, "expected two names"),
        ({"axis_names": ("x", "x")}, ValueError, "expected two names"),
        ({"devices": ()}, ValueError, "devices are none"),
        ({"repeats": 0}, ValueError, "repeats is 0"),
        ({"shape": (1, 1, 1)}, ValueError, "4 devices are more than the planes.*fewer devices"),
    ],
)
def test_errors(given, kind, text):
    if kind is None:
        assert tune(**given).table
        return
    with pytest.raises(kind, match=text):
        tune(**given)


def test_double_needs_jax_to_know_it():
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        tune(dtype="complex128")


# ---- the page ------------------------------------------------------------------------------------


def test_docs():
    before = plait.config.read()
    page = pathlib.Path(__file__).parents[2] / "docs" / "tuning.md"
    failed, n = doctest.testfile(str(page), module_relative=False)
    plait.config.set(**before)
    assert failed == 0 and n > 10
    text = page.read_text()
    for key in _core.keys().values():
        choices = ", ".join(f"`{choice}`" for choice in key.choices)
        assert f"| `{key.name}` | `{key.variable}` | {choices} |" in text or (
            f"| `{key.name}` | `{key.variable}` | the same |" in text
        )


# ---- the command ---------------------------------------------------------------------------------


def command(*arguments, limit_s=200):
    words = [sys.executable, "-m", "plait", *map(str, arguments)]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL
    )


def test_command(file):
    given = ("tune", 8, 8, 8, "--devices", 2, "--file", file, "--repeats", 1)
    first, second = command(*given), command(*given)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "8x8x8, 2 devices, shared addresses" in first.stdout
    assert "(measured now)" in first.stdout and "(remembered)" in second.stdout
    assert first.stdout.splitlines()[:-1] == second.stdout.splitlines()[:-1]
    assert "(measured now)" in command(*given, "--fresh").stdout
    double = command(*given, "--dtype", "complex128", "--operations", "prfft3d")
    assert "prfft3d ms" in double.stdout and "pifft3d ms" not in double.stdout


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("8", "8"), "the following arguments are required"),
        (("8", "8", "0"), "0 is no extent"),
        (("8", "8", "8", "--dtype", "int8"), "int8; expected one of"),
        (("8", "8", "8", "--operations", "fft"), "'fft'; expected some of"),
    ],
)
def test_command_errors(given, text):
    done = command("tune", *given)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert text.split(";")[0] in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_command_on_ranks(file):
    given = ("run", "-n", 2, "--timeout", 150, "plait", "tune", 8, 8, 8, "--file", file)
    first, second = (command(*given, "--repeats", 1) for _ in range(2))
    assert first.returncode == 0, first.stdout + first.stderr
    lines = [line for line in first.stdout.splitlines() if "8x8x8, 2 devices" in line]
    assert len(lines) == 1 and "(measured now)" in first.stdout
    assert "(remembered)" in second.stdout
    wrong = command(*given, "--devices", 3)
    assert wrong.returncode == 2 and "2 ranks, which have one each" in wrong.stderr + wrong.stdout
    assert os.path.exists(file)
