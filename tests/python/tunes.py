"""Calls of plait.fft.autotune for its tests, and times that tests set instead of measuring."""

import collections

import jax
import plait
from plait import _tune

SHAPE = (8, 12, 16)
DEFAULTS = {"transpose_comm_backend": "auto", "transpose_exchange": "fused"}


def tune(shape=SHAPE, n=4, **given):
    given = {"repeats": 1, "file": "", "devices": jax.devices()[:n]} | given
    return plait.fft.autotune(shape, **given)


def small(**given):
    """Few candidates, for tests of the code around them."""
    given = {"n": 2, "layouts": "transposed", "operations": "pfft3d"} | given
    return tune(**given)


class Clock:
    """Times that a test sets instead of measuring; records the requests."""

    def __init__(self, monkeypatch):
        self.asked = []
        self.times = collections.defaultdict(lambda: 1.0)  # by grid and layout
        self.spikes = {}
        monkeypatch.setattr(_tune.Trial, "seconds", lambda *given: self.seconds(*given))

    def seconds(self, trial, op, team):
        place = (trial.mesh.devices.shape, trial.layout)
        settings = (*place, *plait.config.read().values())
        self.asked.append((settings, op))
        n = sum(asked == (settings, op) for asked in self.asked)
        return self.spikes.get((place, n), self.times[place])
