"""What the examples show: progress while they run; the deblurred volume at its end."""

import contextlib

import numpy as np

BACKGROUND, INK, FAINT = "#0b0d10", "#e8eaed", "#8a9099"
EVERY = 5


@contextlib.contextmanager
def progress(n_iterations, is_shown, what="restoring", value="loss", unit="iteration"):
    """Gives a function to be called with (iteration, loss, seconds) after each iteration.

    `what` is the activity, `value` the name of the number in place of the loss, `unit` that of an
    iteration.

    A bar on a terminal, else a line every few iterations; nothing if not `is_shown`.
    """
    if not is_shown:
        yield lambda *_: None
        return
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        with _bar(console, value, unit) as bar:
            task = bar.add_task(what, total=n_iterations, loss="", ms="")
            yield lambda i, loss, s: bar.update(task, completed=i, loss=f"{loss:.4g}", ms=_ms(s))
    else:
        yield lambda i, loss, s: _line(i, n_iterations, loss, s, value, unit)


def _bar(console, value, unit):
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("[bold cyan]{task.description}"),
        BarColumn(bar_width=None, complete_style="cyan", finished_style="green"),
        MofNCompleteColumn(),
        TextColumn(value + " [bold]{task.fields[loss]}"),
        TextColumn("{task.fields[ms]} ms/" + unit),
        TimeRemainingColumn(),
        console=console,
        expand=True,
    )


def _ms(seconds):
    return f"{seconds * 1e3:.{0 if seconds > 0.01 else 1}f}"


def _line(i, n_iterations, loss, seconds, value, unit):
    if i % EVERY == 0 or i in (1, n_iterations):
        print(f"{unit} {i:3d}/{n_iterations}  {value} {loss:.3g}  {_ms(seconds)} ms", flush=True)


def slices(volume, center):
    """Sagittal, coronal and axial section, upright."""
    i, j, k = center
    return [volume[i].T, volume[:, j].T, volume[:, :, k].T]


def window(truth, edge=6):
    """The box of the non-empty part, with a margin, and its centre."""
    box, center = [], []
    for axis in range(3):
        inside = np.flatnonzero(truth.max(axis=tuple(a for a in range(3) if a != axis)) > 0.05)
        low, high = max(inside[0] - edge, 0), min(inside[-1] + edge + 1, truth.shape[axis])
        box.append(slice(low, high))
        center.append((high - low) // 2)
    center[0] -= max(2, center[0] // 12)  # just beside the cleft between the hemispheres
    return tuple(box), center


def picture(path, volumes, titles, caption):
    """Write the PNG: truth, blurred, restored and the error in three orthogonal sections.

    volumes: truth, blurred, restored, of one shape; titles: a pair of lines for each column.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    box, center = window(volumes[0])
    truth, blurred, restored = (np.asarray(v[box]) for v in volumes)
    error = np.abs(restored - truth)
    columns = [slices(v, center) for v in (truth, blurred, restored, error)]
    heights = [section.shape[0] / section.shape[1] for section in columns[0]]
    top = float(np.ceil(np.percentile(error, 99.7) * 50) / 50)

    width = 14.0
    figure, axes = plt.subplots(
        3,
        4,
        figsize=(width, width * 0.243 * sum(heights) + 1.6),
        facecolor=BACKGROUND,
        height_ratios=heights,
    )
    bottom = 0.085
    figure.subplots_adjust(0.012, bottom, 0.988, 0.922, wspace=0.02, hspace=0.025)
    for row in range(3):
        for column, axis in enumerate(axes[row]):
            is_error = column == 3
            shown = axis.imshow(
                columns[column][row],
                origin="lower",
                cmap="inferno" if is_error else "gray",
                vmin=0,
                vmax=max(top, 0.02) if is_error else 1,
                interpolation="bicubic",
            )
            axis.set_axis_off()
            if row == 0:
                _title(axis, *titles[column])
            if row == 2 and column in (1, 3):
                _colorbar(figure, axis, shown, "|error|" if is_error else "intensity")
    figure.text(0.014, 0.022, caption, color=FAINT, fontsize=9.5)
    figure.savefig(path, dpi=110, facecolor=BACKGROUND)
    plt.close(figure)


def _title(axis, name, value):
    axis.text(0.5, 1.13, name, color=INK, fontsize=15, ha="center", transform=axis.transAxes)
    axis.text(0.5, 1.035, value, color=FAINT, fontsize=11, ha="center", transform=axis.transAxes)


def _colorbar(figure, axis, shown, label):
    place = axis.get_position()
    inset = figure.add_axes((place.x0 + place.width * 0.12, 0.058, place.width * 0.76, 0.012))
    bar = figure.colorbar(shown, cax=inset, orientation="horizontal")
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=FAINT, labelsize=8, length=2)
    bar.ax.set_title(label, color=FAINT, fontsize=8.5, pad=3)
