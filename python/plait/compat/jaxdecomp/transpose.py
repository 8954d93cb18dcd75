"""From pencils along one axis to pencils along another: the functions of jaxdecomp.transpose."""

from typing import Any

import plait
from jax import Array
from jax.sharding import PartitionSpec as P
from plait import _mesh
from plait.compat.jaxdecomp import _specs
from plait.compat.jaxdecomp._config import config
from plait.compat.jaxdecomp.fft import check_backend, turned

__all__ = [
    "transposeXtoY",
    "transposeXtoZ",
    "transposeYtoX",
    "transposeYtoZ",
    "transposeZtoX",
    "transposeZtoY",
]

_ON, _BACK = (2, 0, 1), (1, 2, 0)  # for each axis of the result, the operand's axis
_SWAPPED = (1, 0, 2)  # for each entry of the result's spec, the operand's entry
# If axes stay in place, two entries are exchanged.
_IN_PLACE = {"XY": (0, 2, 1), "YZ": (1, 0, 2), "ZX": (2, 1, 0)}
_GUESS = {"X": (0, 1, 2), "Y": _SWAPPED, "Z": (0, 1, 2)}
_GUESS_IN_PLACE = {"X": (0, 1, 2), "Y": (0, 2, 1), "Z": (2, 0, 1)}


def _transposed(x: Any, backend: str, from_axis: str, to_axis: str) -> Array:
    name = f"transpose{from_axis}to{to_axis}"
    check_backend(backend)
    if config.transpose_axis_contiguous:
        order = _ON if from_axis + to_axis in _IN_PLACE else _BACK
        entries, place = _SWAPPED, _GUESS[from_axis]
    else:
        order = (0, 1, 2)
        pair = from_axis + to_axis
        entries = _IN_PLACE.get(pair) or _IN_PLACE[pair[::-1]]
        place = _GUESS_IN_PLACE[from_axis]

    def guess(mesh: Any, ndim: int) -> tuple:
        found = _specs.convention(mesh, ndim)
        return (*found[:-3], *(found[-3:][i] for i in place))

    x, mesh, spec = _specs.locate(x, name, guess)
    if mesh is not _mesh.ALONE:
        batch, spec = spec[:-3], spec[-3:]
        result = tuple(spec[i] for i in entries)
        to = P(*batch, *(result[order.index(a)] for a in range(3)))
        x = plait.redistribute(x, to, mesh=mesh, spec=P(*batch, *spec))
    return turned(x, order)


def transposeXtoY(x: Array, backend: str = "jax") -> Array:
    """From X (n0, n1, n2) split P(a, b) to Y (n2, n0, n1) split P(b, a).

    Collective: over the mesh, in program order.  Shapes: (n0, n1, n2) to (n2, n0, n1).
    Raises: ValueError for a size that the mesh does not divide.
    Adjoint: `transposeYtoX`.  Source: ``transposeXtoY`` of jaxDecomp.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> jaxdecomp.transposeXtoY(jnp.ones((2, 3, 4))).shape
        (4, 2, 3)
    """
    return _transposed(x, backend, "X", "Y")


def transposeYtoZ(x: Array, backend: str = "jax") -> Array:
    """From Y (n2, n0, n1) split P(b, a) to Z (n1, n2, n0) split P(a, b).

    Collective: over the mesh, in program order.  Shapes: (n2, n0, n1) to (n1, n2, n0).
    Raises: as `transposeXtoY`.  Adjoint: `transposeZtoY`.
    Source: ``transposeYtoZ`` of jaxDecomp.
    """
    return _transposed(x, backend, "Y", "Z")


def transposeZtoX(x: Array, backend: str = "jax") -> Array:
    """From Z (n1, n2, n0) to X (n0, n1, n2), with the first two entries of the spec exchanged.

    Collective: over the mesh, in program order.  Shapes: (n1, n2, n0) to (n0, n1, n2).
    Raises: as `transposeXtoY`.  Adjoint: `transposeXtoZ`.
    Source: ``transposeZtoX`` of jaxDecomp.
    """
    return _transposed(x, backend, "Z", "X")


def transposeXtoZ(x: Array, backend: str = "jax") -> Array:
    """From X (n0, n1, n2) to Z (n1, n2, n0), with the first two entries of the spec exchanged.

    Collective: over the mesh, in program order.  Shapes: (n0, n1, n2) to (n1, n2, n0).
    Raises: as `transposeXtoY`.  Adjoint: `transposeZtoX`.
    Source: ``transposeXtoZ`` of jaxDecomp.
    """
    return _transposed(x, backend, "X", "Z")


def transposeZtoY(x: Array, backend: str = "jax") -> Array:
    """From Z (n1, n2, n0) split P(a, b) to Y (n2, n0, n1) split P(b, a).

    Collective: over the mesh, in program order.  Shapes: (n1, n2, n0) to (n2, n0, n1).
    Raises: as `transposeXtoY`.  Adjoint: `transposeYtoZ`.
    Source: ``transposeZtoY`` of jaxDecomp.
    """
    return _transposed(x, backend, "Z", "Y")


def transposeYtoX(x: Array, backend: str = "jax") -> Array:
    """From Y (n2, n0, n1) split P(b, a) to X (n0, n1, n2) split P(a, b).

    Collective: over the mesh, in program order.  Shapes: (n2, n0, n1) to (n0, n1, n2).
    Raises: as `transposeXtoY`.  Adjoint: `transposeXtoY`.
    Source: ``transposeYtoX`` of jaxDecomp.
    """
    return _transposed(x, backend, "Y", "X")
