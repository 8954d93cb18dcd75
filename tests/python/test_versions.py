"""Versions of JAX: the declared range, and the error of an import that fails with another one."""

import pathlib
import subprocess
import sys
import tomllib

import plait
import pytest
from plait import _versions

PACKAGE = pathlib.Path(_versions.__file__).parents[1]
BROKEN = """
import importlib.metadata, sys
from jax._src import core
del core.eval_trace
importlib.metadata.version = lambda name: sys.argv[1]
import plait
"""


def test_what_is_declared():
    project = tomllib.loads(PACKAGE.parent.joinpath("pyproject.toml").read_text())["project"]
    assert _versions.SPEC in project["dependencies"]
    assert _versions.OLDEST in _versions.SPEC
    assert plait.__version__ == PACKAGE.parent.joinpath("VERSION").read_text().strip()


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("version", "is_tested"),
    [("0.8.0", False), ("0.8.1", True), ("0.12.0.1", True), ("0.12.0.2", False), ("0.13.0", False)],
)
def test_an_import_that_fails_names_the_versions(version, is_tested):
    command = [sys.executable, "-c", BROKEN, version]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE, timeout=100)
    assert done.returncode == 1 and "eval_trace" in done.stderr
    assert (f"this is JAX {version}" in done.stderr) == (not is_tested)
    assert (_versions.SPEC in done.stderr) == (not is_tested)
