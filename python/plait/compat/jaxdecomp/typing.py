"""The types of jaxDecomp's arguments, by the names of its module ``typing``."""

from collections.abc import Sequence

__all__ = [
    "GdimsType",
    "HLOResult",
    "HaloExtentType",
    "PdimsType",
    "Periodicity",
    "TransposablePdimsType",
]

GdimsType = tuple[int, int, int]  # extents of a global array
PdimsType = tuple[int, int]  # devices along the two axes of a mesh
TransposablePdimsType = tuple[int, int, int]  # devices along each axis of an array
HaloExtentType = tuple[int, int]
Periodicity = tuple[bool, bool]
HLOResult = Sequence[type]
