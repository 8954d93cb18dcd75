"""The data of the kriging example: a cortical surface, and pictures of functions on it."""

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
from _show import BACKGROUND, FAINT, INK

FSAVERAGE5 = "datasets/data/fsaverage5"
RADIUS = 100.0  # mm, of the sphere that the surface is registered to
LEAST = 0.5  # mm; thinner parts are the medial wall, which is no cortex


@dataclasses.dataclass(frozen=True)
class Hemisphere:
    """Vertices of a hemisphere: places on the unit sphere, and the cortical thickness there."""

    sphere: np.ndarray
    thickness: np.ndarray
    inflated: np.ndarray
    triangles: np.ndarray

    @property
    def cortex(self):
        """The numbers of the cortex's vertices."""
        return np.flatnonzero(self.thickness > LEAST)

    def split(self, n_train, n_test=None, seed=0):
        """Numbers of vertices to learn from, drawn at random, and of the other vertices."""
        n, least = len(self.cortex), n_test or 1
        if n_train + least > n:
            raise SystemExit(f"{n} vertices are too few to train on {n_train} and predict {least}")
        order = np.random.default_rng(seed).permutation(self.cortex)
        end = None if n_test is None else n_train + n_test
        return order[:n_train], order[n_train:end]


def load(side="left"):
    """The fsaverage5 surface: 10242 vertices, with the mean thickness of 40 people.

    The files are part of the nilearn package; nothing is downloaded.
    """
    package = importlib.util.find_spec("nilearn")
    if package is None:
        raise SystemExit("this example needs nilearn, for its data: pip install 'plait[demo]'")
    import nibabel

    folder = Path(package.submodule_search_locations[0]) / FSAVERAGE5

    def arrays(name):
        return [d.data for d in nibabel.load(folder / f"{name}_{side}.gii.gz").darrays]

    sphere = np.asarray(arrays("sphere")[0], np.float64)
    inflated, triangles = arrays("infl")
    return Hemisphere(
        sphere / np.linalg.norm(sphere, axis=1, keepdims=True),
        np.asarray(arrays("thick")[0], np.float64),
        np.asarray(inflated, np.float64),
        np.asarray(triangles),
    )


def picture(path, surface, columns, caption):
    """Functions on the inflated surface, from both sides; columns: (title, below, values, ...)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(columns), figsize=(12, 6.6), facecolor=BACKGROUND)
    figure.subplots_adjust(0.01, 0.13, 0.99, 0.9, wspace=0.02, hspace=0.0)
    for (title, below, values, colors, limits), pair in zip(columns, axes.T, strict=True):
        for axis, side in zip(pair, (-1, 1), strict=True):
            shown = _view(axis, surface, values, colors, limits, side)
        place = {"ha": "center", "transform": pair[0].transAxes}
        pair[0].text(0.5, 1.09, title, color=INK, fontsize=15, **place)
        pair[0].text(0.5, 1.0, below, color=FAINT, fontsize=10.5, **place)
        bar = figure.colorbar(shown, ax=None, cax=_below(figure, pair[1]), orientation="horizontal")
        bar.outline.set_visible(False)
        bar.ax.tick_params(colors=FAINT, labelsize=8, length=2)
        bar.ax.set_xlabel("mm", color=FAINT, fontsize=8.5, labelpad=1)
    figure.text(0.014, 0.02, caption, color=FAINT, fontsize=9.5)
    figure.savefig(path, dpi=110, facecolor=BACKGROUND)
    plt.close(figure)


def _below(figure, axis):
    box = axis.get_position()
    return figure.add_axes((box.x0 + box.width * 0.2, 0.105, box.width * 0.6, 0.014))


def _view(axis, surface, values, colors, limits, side):
    """The view from the left (side -1) or right: triangles facing the viewer, nearest last."""
    from matplotlib.collections import PolyCollection

    corners = surface.inflated[surface.triangles]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    facing = side * normal[:, 0] / np.linalg.norm(normal, axis=1)
    order = np.argsort(side * corners[:, :, 0].mean(axis=1))
    order = order[facing[order] > 0]
    flat = corners[order][:, :, 1:] * np.array([side, 1])
    shown = PolyCollection(flat, cmap=colors, linewidths=0.2)
    shown.set_array(values[surface.triangles[order]].mean(axis=1))
    shown.set_clim(*limits)
    shown.cmap.set_bad("#3a3f47")
    shown.set_edgecolor("face")
    axis.add_collection(shown)
    axis.set_aspect("equal")
    axis.autoscale_view()
    axis.set_axis_off()
    return shown
