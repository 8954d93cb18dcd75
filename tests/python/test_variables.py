"""Environment variables: the list of all, and values that they do not take."""

import os
import pathlib
import re
import subprocess
import sys

import plait
import pytest
from plait import _args, _coll_rules, _variables

SOURCE = pathlib.Path(plait.__file__).parent
CHOICES = {
    "PLAIT_CHECK": ("off, first or full", "first"),
    "PLAIT_CHECK_REPLICATED": ("0, false, off, 1, true or on", "0"),
    "PLAIT_DEBUG": ("0, false, off, 1, true or on", "0"),
    "PLAIT_DIRECT": ("on, off or read", "on"),
    "PLAIT_ISA": ("auto, ", "auto"),
    "PLAIT_LOG": ("error, warn, info or debug", "warn"),
    "PLAIT_SHARED": ("on or off", "on"),
}
PROGRAM = """
import jax.numpy as jnp, plait
from plait import _core
from mpi4py import MPI
for _ in range(2):
    comm = plait.Comm(MPI.COMM_WORLD.Dup())
    plait.block(plait.allreduce(jnp.ones(3), plait.SUM, comm=comm, replicated=True))
    _core.lib.plait_fft1_isa()
"""


def test_variables_are_those_that_are_read_and_documented():
    root = SOURCE.parent.parent
    if not (root / "src" / "base" / "setting.c").is_file():
        pytest.skip("an installation without the source")
    sources = [
        *root.glob("src/*/*.c"),
        *(p for p in SOURCE.rglob("*.py") if p.stem != "_variables"),
    ]
    named = {name for path in sources for name in re.findall(r'"(PLAIT_\w+)"', path.read_text())}
    read = {name for name in named if not name.startswith(_variables.OURS)}
    table = (root / "docs" / "observing.md").read_text().partition("## Variables")[2]
    rows = [line for line in table.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(PLAIT_\w+)", row.split(" | ")[0])}
    assert read == listed == set(_variables.NAMES)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("is_wrong", [True, False])
def test_values_that_are_none(is_wrong):
    """One warning for each variable, which says what is used; usual values cause no warning."""
    pytest.importorskip("mpi4py")
    values = {name: "maybe" if is_wrong else usual for name, (_, usual) in CHOICES.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | values,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "plait warn: PLAIT_" in line]
    for name, (choices, usual) in CHOICES.items() if is_wrong else ():
        [line] = [line for line in lines if f" {name} is 'maybe': expected {choices}" in line]
        assert line.endswith(f"; {usual} is taken")
    assert len(lines) == (len(CHOICES) if is_wrong else 0), done.stderr


@pytest.mark.parametrize("value", ["", "0", "off", "False", "no", "1", "on", "TRUE"])
def test_a_switch_in_any_letter_case(value, monkeypatch):
    monkeypatch.setenv("PLAIT_CHECK_REPLICATED", value)
    is_checked = _args.replicated(True, "allreduce") == _coll_rules.CHECKED
    assert is_checked == (value in ("1", "on", "TRUE"))


def test_threads_in_any_letter_case(monkeypatch):
    monkeypatch.setenv("PLAIT_THREADS", "AUTO")
    plait.barrier(comm=plait.Comm._make(None, 1, 0))
    monkeypatch.setenv("PLAIT_THREADS", "few")
    with pytest.raises(ValueError, match="PLAIT_THREADS is 'few', expected auto or a"):
        plait.barrier(comm=plait.Comm._make(None, 1, 0))


def test_a_library_that_is_not_there():
    done = subprocess.run(
        [sys.executable, "-c", "import plait"],
        env=os.environ | {"PLAIT_LIBRARY": "/nowhere/libplait.so"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and "there is no /nowhere/libplait.so" in done.stderr
