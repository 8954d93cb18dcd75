"""Who has what: the box of a global array that each device has, in data without padding."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax import Array
from jax.sharding import NamedSharding

Box = tuple[tuple[int, int], ...]  # lo and hi along each axis


def _box(index: Sequence[slice], dims: Sequence[int], data: Sequence[int]) -> Box:
    """The part of a shard that is data."""
    box = []
    for part, n, m in zip(index, dims, data, strict=True):
        lo, hi, _ = part.indices(n)
        box.append((min(lo, m), min(hi, m)))
    return tuple(box)


def extents(box: Box) -> tuple[int, ...]:
    return tuple(hi - lo for lo, hi in box)


def size(box: Box) -> int:
    return math.prod(extents(box))


def within(box: Box) -> tuple[slice, ...]:
    """Where the data of a shard lies within the shard."""
    return tuple(slice(0, n) for n in extents(box))


def place(box: Box) -> tuple[slice, ...]:
    """Where the data of a shard lies within the whole."""
    return tuple(slice(lo, hi) for lo, hi in box)


def of_devices(sharding: Any, dims: tuple[int, ...], data: tuple[int, ...]) -> dict[Any, Box]:
    """The box of every device, in the order of its mesh."""
    found = sharding.devices_indices_map(dims)
    order = list(sharding.mesh.devices.flat) if isinstance(sharding, NamedSharding) else found
    return {device: _box(found[device], dims, data) for device in order}


def owned(boxes: dict[Any, Box]) -> dict[Any, Box]:
    """Each box once: with the first device that has it; empty boxes with no device."""
    seen: set[Box] = set()
    first = {}
    for device, box in boxes.items():
        if box not in seen and size(box):
            first[device] = box
            seen.add(box)
    return first


def parts(x: Array) -> dict[Any, Any]:
    """The shards of this process by device."""
    return {shard.device: shard.data for shard in x.addressable_shards}


def runs(box: Box, shape: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """Contiguous runs of a box in the file: first element, index in the box, elements."""
    sizes = extents(box)
    k = len(shape)
    while k > 0 and sizes[k - 1] == shape[k - 1]:
        k -= 1
    k = max(k - 1, 0)  # loops over the axes before this one
    strides = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    n = math.prod(sizes[k:])
    for index in np.ndindex(*sizes[:k]) if n else ():
        start = sum(s * (lo + i) for s, (lo, _), i in zip(strides, box, index, strict=False))
        start += sum(s * lo for s, (lo, _) in zip(strides[k:], box[k:], strict=True))
        yield start, index, n


def overlap(a: Box, b: Box) -> Box:
    """What both have, perhaps an empty box."""
    return tuple(
        (max(low, lower), max(min(high, higher), low, lower))
        for (low, high), (lower, higher) in zip(a, b, strict=True)
    )


def relative(box: Box, other: Box) -> tuple[slice, ...]:
    """Where a box lies within another that contains it."""
    return tuple(slice(lo - at, hi - at) for (lo, hi), (at, _) in zip(box, other, strict=True))


def union(boxes: Sequence[Box]) -> Box | None:
    """The box that disjoint or equal ones make up, or None."""
    distinct = [b for b in set(boxes) if size(b)]
    if not distinct:
        return None
    whole = tuple(
        (min(lo for lo, _ in ends), max(hi for _, hi in ends))
        for ends in zip(*distinct, strict=True)
    )
    return whole if sum(map(size, distinct)) == size(whole) else None


def slabs(box: Box, n: int) -> Iterator[Box]:
    """The box in pieces of about n elements, or fewer, with runs as long as those of the box."""
    sizes = extents(box)
    k = next((a for a in range(len(sizes)) if math.prod(sizes[a + 1 :]) <= n), len(sizes) - 1)
    step = max(n // max(math.prod(sizes[k + 1 :]), 1), 1)
    for index in np.ndindex(*sizes[:k]):
        outer = tuple((lo + i, lo + i + 1) for (lo, _), i in zip(box, index, strict=False))
        for at in range(*box[k], step):
            yield (*outer, (at, min(at + step, box[k][1])), *box[k + 1 :])
