"""Layouts as the words that the C core reads: see plait_layout_pack in plait/layout.h."""

import math
from collections.abc import Sequence

MAX_GRID = 4
MAX_NDIM = 8
CEIL = 2  # JAX's shards


def words(
    shape: Sequence[int],
    grid: Sequence[int],
    splits: Sequence[Sequence[int]],
    stored: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Global shape, extents of the grid of ranks, and the grid axes that split each axis.

    stored: shape of every rank's part in memory, for arrays with padding at their tail; a split
        axis is dealt out in pieces of that size.
    """
    flat = [len(shape), *shape, len(grid), *grid]
    for i, axes in enumerate(splits):
        n = 0 if stored is None else stored[i]
        flat += [CEIL if axes else 0, n if axes else 0, len(axes), *axes, n]
    return tuple(int(word) for word in flat)


def local_shape(
    shape: Sequence[int], grid: Sequence[int], splits: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Shape of every rank's part, for axes that their grid axes divide."""
    return tuple(
        n // math.prod(grid[a] for a in axes) for n, axes in zip(shape, splits, strict=True)
    )
