"""The examples of the README run, each as a program of its own."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def blocks(name):
    """The programs in a file."""
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


EXAMPLES = blocks("README.md")


def test_there_is_one_for_each_model():
    assert len(EXAMPLES) == len(PRINTS)


def likelihood():
    """The likelihood of the third example, and its derivative."""
    x = np.linspace(0, 1, 200)
    y, square = np.sin(12 * x), (x[:, None] - x) ** 2

    def loss(reach):
        k = np.exp(-square / reach**2) + 0.01 * np.eye(200)
        return (y @ np.linalg.solve(k, y) + np.linalg.slogdet(k)[1]) / 2

    return [loss(0.2), (loss(0.2 + 1e-6) - loss(0.2 - 1e-6)) / 2e-6]


# The first output of each example, and the error of twenty steps of descent, or of float32.
PRINTS = [([0.0, 1.0, 2.0], 0.1), ([262144.0], 0.1), (likelihood(), 0.5)]


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
