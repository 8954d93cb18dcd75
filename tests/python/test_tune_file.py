"""The memory of plait.fft.autotune: its file, its writers, and which entries are believed."""

import errno
import fcntl
import functools
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
from plait import _tune, _tune_file
from tunes import DEFAULTS, Clock, small, tune

NAME = "tune.json"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "folder" / NAME


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


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


def test_fewer_rounds_than_asked_for_are_measured_again(file, clock):
    clock.times |= {((1, 2), "transposed"): 3.0}  # left out after two rounds
    for rounds, is_remembered in ((3, False), (4, False), (4, True), (2, True), (5, False)):
        mesh = small(file=file, repeats=rounds)
        assert mesh.is_remembered == is_remembered
        assert mesh.table[0].rounds >= rounds and mesh.table[-1].rounds == 2
    assert len(entries_of(file)) == 1


def test_other_threads_are_others(file, clock, monkeypatch):
    for threads in ("auto", "1", "3"):
        monkeypatch.setenv("PLAIT_THREADS", threads)
        assert not small(file=file).is_remembered and small(file=file).is_remembered
    for same in ("AUTO", "", None):
        if same is None:
            monkeypatch.delenv("PLAIT_THREADS")
        else:
            monkeypatch.setenv("PLAIT_THREADS", same)
        assert small(file=file).is_remembered
    assert len(entries_of(file)) == 3


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
    "more": '{"format": 1, "entries": {}, "more": 1}',
    "others' entries": '{"format": 1, "entries": {"a": 1}}',
}


def is_left(file, content, warning, **given):
    """Whether an unusable file is left as it was, with one warning that says so."""
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
    with pytest.warns(
        UserWarning, match="not kept: there is no home directory; set PLAIT_TUNE_FILE"
    ):
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
    spoil("layout", "natural"),  # a layout that was not asked for
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


ADD = """
import sys
from plait import _tune, _tune_file

for i in range(int(sys.argv[3])):
    row = _tune.Row((1, 1), "natural", {}, {"pfft3d": 1.0}, 1.0, 1)
    _tune_file.look(sys.argv[1]).save(_tune_file.key_of(writer=sys.argv[2], number=i), [row])
"""


@pytest.mark.long
def test_writers_at_once(file):
    """The entries of every writer stay; the first write makes folder and file."""
    n, m = 4, 25
    words = [[sys.executable, "-c", ADD, str(file), str(i), str(m)] for i in range(n)]
    writers = [subprocess.Popen(w, stderr=subprocess.PIPE, text=True) for w in words]
    said = [writer.communicate(timeout=120)[1] for writer in writers]
    assert said == [""] * n
    assert len(entries_of(file)) == n * m and os.listdir(file.parent) == [NAME]


def refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.mark.filterwarnings("error")
def test_where_there_are_no_locks(file, clock, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not small(file=file).is_remembered and small(file=file).is_remembered


@pytest.mark.filterwarnings("error")
def test_a_lock_that_is_not_given_back(file, clock, monkeypatch):
    monkeypatch.setattr(_tune_file, "WAIT_S", 0.2)
    file.parent.mkdir()
    with open(file, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not small(file=file).is_remembered and small(file=file).is_remembered


def test_modes_stay(file, clock):
    small(file=file)
    usual = os.umask(0)
    os.umask(usual)
    assert file.stat().st_mode & 0o777 == 0o666 & ~usual
    file.chmod(0o640)
    small(file=file, n=1)
    assert file.stat().st_mode & 0o777 == 0o640 and len(entries_of(file)) == 2


def test_places(monkeypatch, tmp_path):
    monkeypatch.delenv("PLAIT_TUNE_FILE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small(file=None)
    assert (tmp_path / "plait" / "tune.json").is_file()
    monkeypatch.setenv("PLAIT_TUNE_FILE", str(tmp_path / "other"))
    assert not small(file=None).is_remembered
    assert (tmp_path / "other").is_file()
