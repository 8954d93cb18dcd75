"""Layouts as the words that the C core reads: see plait_layout_pack in plait/layout.h."""

import math
from collections.abc import Sequence

MAX_GRID = 4
MAX_NDIM = 8
CEIL, CYCLIC = 2, 3  # shards as JAX cuts them; blocks dealt out in turn


def words(
    shape: Sequence[int],
    grid: Sequence[int],
    splits: Sequence[Sequence[int]],
    stored: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Global shape, extents of the grid of ranks, and the grid axes that split each axis.

    stored: shape of every rank's part in memory, for arrays with padding at their tail; a split
        axis is cut into pieces of that size.
    blocks: for each axis, the number of elements in the blocks that are dealt out in turn, or 0;
        with blocks, ``stored`` is required.
    """
    flat = [len(shape), *shape, len(grid), *grid]
    for i, axes in enumerate(splits):
        n = 0 if stored is None else stored[i]
        block = blocks[i] if blocks is not None and axes else 0
        rule, piece = (CYCLIC, block) if block else (CEIL, n) if axes else (0, 0)
        flat += [rule, piece, len(axes), *axes, n]
    return tuple(int(word) for word in flat)


def local_shape(
    shape: Sequence[int], grid: Sequence[int], splits: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Shape of every rank's part if the grid axes divide each axis."""
    return tuple(
        n // math.prod(grid[a] for a in axes) for n, axes in zip(shape, splits, strict=True)
    )


def with_leading(given: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """The same layout below additional leading axes, which every rank has whole."""
    ndim, rest = given[0], given[1:]
    n = ndim + 1 + rest[ndim]  # words of shape and grid
    whole = (0,) * 4 * len(extents)
    return (ndim + len(extents), *map(int, extents), *rest[:n], *whole, *rest[n:])
