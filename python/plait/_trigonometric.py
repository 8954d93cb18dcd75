"""Cosine and sine transforms of global arrays: axis by axis, where parts have it whole."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec as P
from plait import _args, _fourier, _mesh, _split
from plait._fourier import Kind
from plait._lines import TYPES, Lines, Wave, after, before, steps
from plait._redist import redistribute
from plait._split import Spec

# ---- one axis ------------------------------------------------------------------------------------


def _one(lines: Lines, x: Any, data: Sequence[int], place: _mesh.Place) -> Any:
    """One axis, which parts have whole. data: what is no padding along the others."""
    _, kind, _ = steps(lines.wave)
    x = before(lines, x)
    n, s, norm = x.shape[lines.axis], None, "backward"
    if kind.real == "result":
        n, norm = lines.n, "forward"
    elif kind.real is None and not lines.is_by_half:
        s = (2 * n,)
    shape = (*data[: lines.axis], n, *data[lines.axis + 1 :])
    given = {"axes": (lines.axis,), "s": s, "shape": shape, "norm": norm}
    x = _fourier.on(kind, x, place, place.spec, **given)
    return after(lines, x)


# ---- all axes ------------------------------------------------------------------------------------


def _path(
    spec: Spec, axes: tuple, dst: Spec | None, sizes: Sequence[int], mesh: Any
) -> Iterator[tuple[int, Spec]]:
    """The axes in the order in which they are done, each with a spec that leaves it whole.

    What splits an axis moves to another one: to one that is large enough, that wants it at the end,
    that is transformed, that is near. Where all others are split, devices along it do the same.
    """
    now, wanted = list(spec), dst or ((),) * len(spec)
    for t in sorted(axes, key=lambda a: bool(spec[a])):  # whole ones first
        if now[t]:
            n_parts = _split.parts(mesh, now[t])
            free = [f for f in range(len(now)) if f != t and not now[f]]
            ranked = [
                (sizes[f] < n_parts, wanted[f] != now[t], f not in axes, abs(t - f), f)
                for f in free
            ]
            if ranked:
                now[min(ranked)[-1]] = now[t]
            now[t] = ()
        yield t, tuple(now)


def _moved(x: Any, place: _mesh.Place, to: Spec, data: Sequence[int]) -> tuple[Any, _mesh.Place]:
    """The array, split so, with zeros behind what is data."""
    if to == place.spec:
        return x, place
    new, old = (_split.to_partition_spec(spec) for spec in (to, place.spec))
    x = redistribute(x, new, shape=tuple(data), mesh=place.mesh, spec=old)
    return x, _mesh.Place(place.mesh, to)


def transformed(
    x: Any, place: _mesh.Place, all_lines: Sequence[Lines], data: Sequence[int], dst: Spec | None
) -> tuple[Any, _mesh.Place]:
    """An array whose axes are transformed as these lines say, split as dst, or as the path ends."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        real, at = transformed(jnp.real(x), place, all_lines, data, dst)
        return jax.lax.complex(real, transformed(jnp.imag(x), place, all_lines, data, dst)[0]), at
    of_axis, data = {lines.axis: lines for lines in all_lines}, list(data)
    for axis, spec in _path(place.spec, tuple(of_axis), dst, tuple(data), place.mesh):
        x, place = _moved(x, place, spec, data)
        x = _one(of_axis[axis], x, data, place)
        data[axis] = of_axis[axis].n
    return _moved(x, place, place.spec if dst is None else dst, data)


# ---- as the public functions ask for it ----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Series:
    """What a public function does, and how it is scaled."""

    name: str
    wave: Wave
    is_back: bool
    norm: Any = None
    orthogonalize: bool | None = None

    def lines(self, axis: int, n: int, given: int) -> Lines:
        """Those along an axis, if there can be such."""
        least = 2 if self.wave == Wave(is_sine=False, type=1) else 1
        if n < least:
            text = f"expected {least} or more for type {self.wave.type}"
            raise ValueError(f"{self.name}: axis {axis} has {n} elements to transform; {text}")
        sign = +1 if self.is_back else -1
        scale = _fourier.scale_of(self.norm, self.wave.period(n), sign, self.name)
        is_weighted = self.norm == "ortho" if self.orthogonalize is None else self.orthogonalize
        wave = self.wave.back() if self.is_back else self.wave
        return Lines(wave, axis, n, scale, bool(is_weighted), given)


def _wave_of(is_sine: bool, type: Any, name: str) -> Wave:  # noqa: A002 - scipy's name
    """The wave of this type, if there is one."""
    if type not in TYPES:
        raise ValueError(f"{name}: type is {type!r}; expected 1, 2, 3 or 4")
    return Wave(is_sine, int(type))


def _along(series: Series, x: Any, s: Any, axes: Any, layout: Any, shape: Any, place: dict) -> Any:
    """The transform of some axes of an array; see `plait.fft.dctn`."""
    name, kind = series.name, Kind(series.name, +1 if series.is_back else -1)
    x = _fourier.as_floating(_args.as_array(x, name), name)
    s, axes = (v if v is None or np.iterable(v) else (v,) for v in (s, axes))  # as in scipy
    s = None if s is None else _fourier.integers(s, name, "s")
    axes = _fourier.axes_of(axes, s, x.ndim, name)
    x, at, dst = _fourier.located(kind, x, axes, layout, **place)
    data, out, _ = _fourier.sizes(kind, x.shape, axes, s, shape, 0)
    with at.judged():
        _fourier.padded(at, out, dst, shape, data, name)
    all_lines = [series.lines(a, out[a], data[a]) for a in axes]
    return transformed(x, at, all_lines, data, dst)[0]


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
    """Expand a real global array in cosines along any axes: even beyond its ends.

    ``type`` is 1 to 4, and with ``s``, ``axes``, ``norm`` and ``orthogonalize`` as in scipy.fft: of
    type 2 points are half a spacing from the ends, of type 1 on them. Complex numbers are done as
    two real ones. ``layout`` says how the result is split: ``'natural'`` as ``x``, ``'transposed'``
    as that of `fftn`, or a PartitionSpec. ``shape`` is what is data of an array with padding at its
    tail.

    An axis that is split is exchanged for one that is whole, transformed or not. Where there is
    none, the devices along it all do the same work, and need room for it.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: ValueError for a type that is none, one element of type 1; as `fftn`.
    Adjoint: the transpose, by the same transforms; for ``norm='ortho'`` the inverse.
    Source: ``scipy.fft.dctn``; Makhoul, "A fast cosine transform" (1980).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.dctn(jnp.ones((2, 2)))[0, 0].item()
        16.0
    """
    series = Series("dctn", _wave_of(False, type, "dctn"), False, norm, orthogonalize)
    return _along(series, x, s, axes, layout, shape, {"mesh": mesh, "spec": spec})


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

    All arguments are those of `dctn`. With ``layout='transposed'`` the operand is split as `dctn`
    leaves it and the result as its input was.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: as `dctn`.  Adjoint: the transpose, by the same transforms.
    Source: ``scipy.fft.idctn``; Makhoul, "A fast cosine transform" (1980).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.idctn(plait.fft.dctn(jnp.arange(1.0, 5))).round(4).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    series = Series("idctn", _wave_of(False, type, "idctn"), True, norm, orthogonalize)
    return _along(series, x, s, axes, layout, shape, {"mesh": mesh, "spec": spec})


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
    """Expand a real global array in sines along any axes: odd beyond its ends.

    ``type`` is 1 to 4, and with ``s``, ``axes``, ``norm`` and ``orthogonalize`` as in scipy.fft: of
    type 2 the ends are half a spacing from the points, of type 1 a whole one. All else is as in
    `dctn`.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: ValueError for a type that is none; as `fftn`.
    Adjoint: the transpose, by the same transforms; for ``norm='ortho'`` the inverse.
    Source: ``scipy.fft.dstn``; Makhoul, "A fast cosine transform" (1980).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> x = (jnp.arange(4) + 0.5) / 4
        >>> plait.fft.dstn(jnp.sin(2 * jnp.pi * x))[1].round(4).item()
        4.0
    """
    series = Series("dstn", _wave_of(True, type, "dstn"), False, norm, orthogonalize)
    return _along(series, x, s, axes, layout, shape, {"mesh": mesh, "spec": spec})


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

    All arguments are those of `dstn`. With ``layout='transposed'`` the operand is split as `dstn`
    leaves it and the result as its input was.

    Collective: over the mesh, in program order.  Shapes: any to the same, or to ``s``.
    Raises: as `dstn`.  Adjoint: the transpose, by the same transforms.
    Source: ``scipy.fft.idstn``; Makhoul, "A fast cosine transform" (1980).

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.idstn(plait.fft.dstn(jnp.arange(1.0, 5), 1), 1).round(4).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    series = Series("idstn", _wave_of(True, type, "idstn"), True, norm, orthogonalize)
    return _along(series, x, s, axes, layout, shape, {"mesh": mesh, "spec": spec})
