"""Cosine and sine transforms of global arrays."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec as P
from plait import _args, _fourier, _lines, _waves
from plait._fourier import Kind
from plait._waves import Waves

_waves.by_fourier.append(_lines.by_fourier)

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}  # up to a factor


@dataclasses.dataclass(frozen=True)
class Series:
    """The waves that a public function expands in, and their scale. type: as in SciPy."""

    name: str
    is_sine: bool
    type: Any
    is_back: bool
    norm: Any = None

    def __post_init__(self) -> None:
        if self.type not in _INVERSE:
            raise ValueError(f"{self.name}: type is {self.type!r}; expected 1, 2, 3 or 4")

    def kind(self) -> Kind:
        """The name and direction of the transform."""
        return Kind(self.name, +1 if self.is_back else -1)

    def number(self) -> int:
        """See `Waves`."""
        of_type = int(self.type)
        return (_INVERSE[of_type] if self.is_back else of_type) + 4 * self.is_sine

    def scale(self, axis: int, n: int) -> float:
        """The scale for an axis of n numbers; raises if n is too small.

        Lines, continued as the waves are, repeat themselves after a period.
        """
        is_first = int(self.type) == 1
        least = 2 if is_first and not self.is_sine else 1
        if n < least:
            text = f"expected {least} or more for type {self.type}"
            raise ValueError(f"{self.name}: axis {axis} has {n} elements to transform; {text}")
        period = 2 * (n + (1 if self.is_sine else -1)) if is_first else 2 * n
        return _fourier.scale_of(self.norm, period, +1 if self.is_back else -1, self.name)


def along(
    series: dict[int, Series], at: tuple, found: tuple, shape: Any, orthogonalize: bool = False
) -> Any:
    """Transforms axes, each by its series; arguments from `_fourier.located` and `_fourier.sizes`.

    orthogonalize: scales the edges to make the matrix of each axis orthogonal.
    """
    edge = math.sqrt(2) if orthogonalize else 1.0
    waves = Waves(tuple(s.number() for s in series.values()), edge, 1 / edge)
    scale = math.prod(s.scale(a, found[2][a]) for a, s in series.items())
    kind = next(iter(series.values())).kind()
    return _fourier.bound(kind, at, tuple(series), found, shape, scale=scale, waves=waves)


def _asked(
    series: Series,
    x: Any,
    s: Any,
    axes: Any,
    orthogonalize: bool | None,
    layout: Any,
    shape: Any,
    place: dict,
) -> Any:
    """The transform of some axes of an array; see `plait.fft.dctn`."""
    x = _fourier.as_floating(_args.as_array(x, series.name), series.name)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        parts = (jnp.real(x), jnp.imag(x))
        rest = (s, axes, orthogonalize, layout, shape, place)
        return jax.lax.complex(*(_asked(series, part, *rest) for part in parts))
    s, axes = (v if v is None or np.iterable(v) else (v,) for v in (s, axes))  # as in SciPy
    s = None if s is None else _fourier.integers(s, series.name, "s")
    axes = _fourier.axes_of(axes, s, x.ndim, series.name)
    at = _fourier.located(series.kind(), x, axes, layout, **place)
    found = _fourier.sizes(series.kind(), x.shape, axes, s, shape, 0)
    is_weighted = series.norm == "ortho" if orthogonalize is None else bool(orthogonalize)
    return along(dict.fromkeys(axes, series), at, found, shape, is_weighted)


def dctn(
    x: Array,
    type: int = 2,  # noqa: A002 - scipy's name
    s: int | Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    layout: str | P = "natural",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Expand a real global array in cosines along any axes, with even extension at the ends.

    ``type`` (1 to 4), ``s``, ``axes``, ``norm`` and ``orthogonalize`` are as in scipy.fft. For type
    2 the first and last points are half a spacing from the ends, for type 1 they are the ends.
    Complex numbers are treated as two real ones. ``layout`` says how the result is split:
    ``'natural'`` as ``x``, ``'transposed'`` as the result of `fftn`, or a PartitionSpec. ``shape``
    is the shape of the data in an array with padding at its tail.

    A split axis is exchanged for one that is whole, whether that one is transformed or not. If no
    axis is whole, the devices along the split axis all do the same work, and need room for it.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: ValueError for an unknown type, or an axis of one element with type 1; as `fftn`.
    Adjoint: the transpose, by the same transforms; for ``norm='ortho'`` the inverse.
    Source: ``scipy.fft.dctn``; Makhoul, "A fast cosine transform" (1980).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.dctn(jnp.ones((2, 2)))[0, 0].item()
        16.0
    """
    series, place = Series("dctn", False, type, False, norm), {"mesh": mesh, "spec": spec}
    return _asked(series, x, s, axes, orthogonalize, layout, shape, place)


def idctn(
    x: Array,
    type: int = 2,  # noqa: A002 - scipy's name
    s: int | Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    layout: str | P = "natural",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Invert `dctn` of the same ``type`` and ``norm``.

    All arguments are those of `dctn`. With ``layout='transposed'`` the operand is split as the
    result of `dctn`, and the result as the input of `dctn`.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: as `dctn`.  Adjoint: the transpose, by the same transforms.
    Source: ``scipy.fft.idctn``; Makhoul, "A fast cosine transform" (1980).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.idctn(plait.fft.dctn(jnp.arange(1.0, 5))).round(4).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    series, place = Series("idctn", False, type, True, norm), {"mesh": mesh, "spec": spec}
    return _asked(series, x, s, axes, orthogonalize, layout, shape, place)


def dstn(
    x: Array,
    type: int = 2,  # noqa: A002 - scipy's name
    s: int | Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    layout: str | P = "natural",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Expand a real global array in sines along any axes, with odd extension at the ends.

    ``type`` (1 to 4), ``s``, ``axes``, ``norm`` and ``orthogonalize`` are as in scipy.fft. For type
    2 the ends are half a spacing from the first and last points, for type 1 a whole spacing. All
    else is as in `dctn`.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: ValueError for an unknown type; as `fftn`.
    Adjoint: the transpose, by the same transforms; for ``norm='ortho'`` the inverse.
    Source: ``scipy.fft.dstn``; Makhoul, "A fast cosine transform" (1980).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> x = (jnp.arange(4) + 0.5) / 4
        >>> plait.fft.dstn(jnp.sin(2 * jnp.pi * x))[1].round(4).item()
        4.0
    """
    series, place = Series("dstn", True, type, False, norm), {"mesh": mesh, "spec": spec}
    return _asked(series, x, s, axes, orthogonalize, layout, shape, place)


def idstn(
    x: Array,
    type: int = 2,  # noqa: A002 - scipy's name
    s: int | Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    layout: str | P = "natural",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Invert `dstn` of the same ``type`` and ``norm``.

    All arguments are those of `dstn`. With ``layout='transposed'`` the operand is split as the
    result of `dstn`, and the result as the input of `dstn`.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: as `dstn`.  Adjoint: the transpose, by the same transforms.
    Source: ``scipy.fft.idstn``; Makhoul, "A fast cosine transform" (1980).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.idstn(plait.fft.dstn(jnp.arange(1.0, 5), 1), 1).round(4).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    series, place = Series("idstn", True, type, True, norm), {"mesh": mesh, "spec": spec}
    return _asked(series, x, s, axes, orthogonalize, layout, shape, place)
