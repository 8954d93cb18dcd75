"""Layouts as the words that the C core reads: see plait_layout_pack in plait/layout.h."""

import math
from collections.abc import Sequence

MAX_GRID = 4
MAX_NDIM = 8
EVEN = 1


def words(
    shape: Sequence[int], grid: Sequence[int], splits: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Global shape, extents of the grid of ranks, and the grid axes that split each axis."""
    flat = [len(shape), *shape, len(grid), *grid]
    for axes in splits:
        flat += [EVEN if axes else 0, 0, len(axes), *axes]
    return tuple(int(word) for word in flat)


def local_shape(
    shape: Sequence[int], grid: Sequence[int], splits: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Shape of every rank's part, for axes that their grid axes divide."""
    return tuple(
        n // math.prod(grid[a] for a in axes) for n, axes in zip(shape, splits, strict=True)
    )
