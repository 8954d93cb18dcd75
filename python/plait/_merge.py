"""Axes with which an operation does nothing, as one axis: the core has at most eight."""

import itertools
import math
from collections.abc import Sequence

from plait import _layout
from plait._split import Spec

_EXTENTS = ("shape", "out", "room", "cells")  # parameters with an extent for each axis
_WIDTHS = ("before", "after", "boundary")


def _is_used(dims: Sequence[int], src: Spec, dst: Spec, given: dict) -> list[bool]:
    """For each axis, whether it is split, padded, dealt out, transformed or has ghosts."""
    ndim = len(dims)
    used = {a % ndim for a in given.get("axes", ())}
    used |= {ndim - 2, ndim - 1} if given.get("turn") else set()
    for name in ("before", "after"):
        used |= {a for a, n in enumerate(given.get(name, ())) if n}
    for blocks in given.get("blocks", ()):
        used |= {a for a, n in enumerate(blocks) if n}
    extents = [given[name] for name in _EXTENTS if name in given]
    return [
        bool(src[a] or dst[a]) or a in used or any(e[a] != dims[a] for e in extents)
        for a in range(ndim)
    ]


def merged(
    name: str, dims: Sequence[int], src: Spec, dst: Spec, given: dict
) -> tuple[tuple[int, ...], Spec, Spec, dict]:
    """A call's extents, specs and parameters with at most as many axes as the core has.

    Where there are more, unused axes next to each other become one.
    """
    if len(dims) <= _layout.MAX_NDIM:
        return tuple(dims), src, dst, given
    used = _is_used(dims, src, dst, given)
    keys = [(a if is_used else -1) for a, is_used in enumerate(used)]
    runs = [[*run] for _, run in itertools.groupby(range(len(dims)), keys.__getitem__)]
    if len(runs) > _layout.MAX_NDIM:
        raise ValueError(
            f"plait.{name}: an array of {len(dims)} axes, those of jax.vmap among them; expected "
            f"at most {_layout.MAX_NDIM}, where axes that are neither split nor padded, and that "
            "the call leaves as they are, count as one if they are next to each other"
        )

    def first(values: Sequence) -> tuple:
        return tuple(values[run[0]] for run in runs)

    def product(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(math.prod(values[a] for a in run) for run in runs)

    less = dict(given)
    less |= {name: product(given[name]) for name in _EXTENTS if name in given}
    less |= {name: first(given[name]) for name in _WIDTHS if name in given}
    if "blocks" in given:
        less["blocks"] = tuple(map(first, given["blocks"]))
    if "axes" in given:
        heads = [run[0] for run in runs]
        less["axes"] = tuple(heads.index(a % len(dims)) for a in given["axes"])
    return product(dims), first(src), first(dst), less
