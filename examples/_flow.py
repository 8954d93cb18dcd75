"""What the shallow-water example draws: snapshots of the vorticity, or a film of them."""

from pathlib import Path

import numpy as np
from _show import BACKGROUND, FAINT, INK


def save(path, frames, model, caption):
    """Write `frames`, pairs of (days, vorticity), as a film if `path` ends in .gif."""
    top = 0.8 * max(float(np.abs(zeta).max()) for _, zeta in frames) / model.coriolis
    write = film if Path(path).suffix == ".gif" else snapshots
    write(path, [(days, zeta / model.coriolis) for days, zeta in frames], top, model, caption)


def film(path, frames, top, model, caption):
    """Write a GIF, with one pixel or more for each cell, north at the top."""
    import matplotlib
    from PIL import Image

    colours = matplotlib.colormaps["RdBu_r"]
    larger = max(1, round(512 / model.shape[1]))
    images = []
    for _, zeta in frames:
        pixels = colours(0.5 + 0.5 * zeta[::-1] / top, bytes=True)[..., :3]
        images.append(Image.fromarray(np.kron(pixels, np.ones((larger, larger, 1), np.uint8))))
    images[0].save(path, save_all=True, append_images=images[1:], duration=80, loop=0)


def snapshots(path, frames, top, model, caption):
    """Write a PNG with a panel for each frame."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n_columns = 2 if len(frames) < 7 else 3
    n_rows = -(-len(frames) // n_columns)
    width = 14.0
    panel = width / n_columns * model.extent[0] / model.extent[1]
    height = n_rows * (panel + 0.35) + 1.0
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(width, height), facecolor=BACKGROUND, squeeze=False
    )
    figure.subplots_adjust(0.01, 0.9 / height, 0.99, 1 - 0.35 / height, wspace=0.02, hspace=0.14)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (days, zeta) in zip(axes.flat, frames, strict=False):
        shown = axis.imshow(
            zeta, origin="lower", cmap="RdBu_r", vmin=-top, vmax=top, interpolation="bicubic"
        )
        axis.set_aspect(model.dy / model.dx)
        axis.set_title(f"day {days:.1f}", color=INK, fontsize=13)
    inset = figure.add_axes((0.73, 0.5 / height, 0.25, 0.12 / height))
    bar = figure.colorbar(shown, cax=inset, orientation="horizontal")
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=FAINT, labelsize=8, length=2)
    bar.ax.set_title("relative vorticity / f", color=FAINT, fontsize=9, pad=3)
    figure.text(0.014, 0.12 / height, caption, color=FAINT, fontsize=9.5)
    figure.savefig(path, dpi=80, facecolor=BACKGROUND)
    plt.close(figure)
