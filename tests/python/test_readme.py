"""The examples of the README run, each as a program of its own."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def blocks(name):
    """The programs in a file."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


EXAMPLES = blocks("README.md")


def test_there_is_one_for_each_model():
    assert len(EXAMPLES) == len(PRINTS)


# What each prints first, and how close twenty steps of descent come to it.
PRINTS = [([0.0, 1.0, 2.0], 0.1), ([262144.0], 0.1)]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number, tmp_path):
    program = tmp_path / "example.py"
    program.write_text(EXAMPLES[number])
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    want, tolerance = PRINTS[number]
    got = [float(w) for w in re.findall(r"[-+\d.]+(?:e[-+]\d+)?", done.stdout)[: len(want)]]
    assert got == pytest.approx(want, abs=tolerance), done.stdout
