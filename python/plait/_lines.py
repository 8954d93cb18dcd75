"""Cosine and sine transforms by Fourier transforms, for GPU memory, where the core has none.

They go axis by axis, each while parts have that axis whole. Types 2 and 3 follow Makhoul, "A fast
cosine transform in one and two dimensions" (IEEE Trans. ASSP 28, 1980). Type 4 follows Britanak,
Yip and Rao, "Discrete Cosine and Sine Transforms" (2007), by a transform of half the length; so do
the sine transforms, as cosine transforms of turned lines.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from plait import _fourier, _mesh, _split
from plait._fourier import Kind
from plait._redist import redistribute
from plait._split import Spec
from plait._waves import Waves


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of n numbers along an axis, and operations on them; see `Waves`."""

    axis: int
    n: int
    number: int
    scale: float
    edge_in: float
    edge_out: float

    @property
    def type(self) -> int:
        """1 to 4, as FFTW and SciPy count them."""
        return (self.number - 1) % 4 + 1

    @property
    def is_sine(self) -> bool:
        """Whether they are sines, not cosines."""
        return self.number > 4

    @property
    def is_by_half(self) -> bool:
        """For type 4: by a transform of n / 2 complex numbers; for odd n, of 2 n."""
        return self.n % 2 == 0

    def take(self, x: Any, which: slice) -> Any:
        """A slice of each line."""
        return x[(*[slice(None)] * self.axis, which)]

    def join(self, *pieces: Any) -> Any:
        """Lines joined end to end."""
        return jnp.concatenate(pieces, self.axis)

    def turn(self, x: Any) -> Any:
        """Each line reversed."""
        return jnp.flip(x, self.axis)

    def times(self, x: Any, factors: Any) -> Any:
        """Each number times the factor at its place."""
        shape = [-1 if i == self.axis else 1 for i in range(x.ndim)]
        return x * jnp.asarray(factors.astype(x.dtype).reshape(shape))

    def alternate(self, x: Any) -> Any:
        """Every second number with its sign flipped."""
        return self.times(x, 1.0 - 2 * (np.arange(x.shape[self.axis]) % 2))

    def weighted(self, x: Any, places: Sequence[int], factor: float) -> Any:
        """The numbers at these places times a factor."""
        factors = np.ones(x.shape[self.axis])
        for place in places:
            factors[place] *= factor
        return x if factor == 1 else self.times(x, factors)

    def dealt(self, x: Any) -> Any:
        """The even places, then the odd ones reversed."""
        return self.join(
            self.take(x, slice(0, None, 2)), self.turn(self.take(x, slice(1, None, 2)))
        )

    def merged(self, even: Any, odd: Any) -> Any:
        """Whole lines from numbers at even and odd places; there may be one odd number less."""
        n = even.shape[self.axis] + odd.shape[self.axis]
        more = [(0, 0)] * odd.ndim
        more[self.axis] = (0, even.shape[self.axis] - odd.shape[self.axis])
        both = jnp.stack([even, jnp.pad(odd, more)], self.axis + 1)
        shape = list(even.shape)
        shape[self.axis] *= 2
        return self.take(both.reshape(shape), slice(n))


def _roots(exponents: Any, n: int) -> Any:
    """exp(-2 pi i k / n) for each k."""
    return np.exp(-2j * np.pi * (exponents % n) / n)


# ---- one axis: what is transformed, and what is done with the result ----------------------------


def _mirrored(lines: Lines, x: Any) -> Any:
    """Type 1 of cosines: extended to whole periods."""
    x = lines.weighted(x, (0, -1), lines.edge_in)
    return lines.join(x, lines.turn(lines.take(x, slice(1, -1))))


def _from_mirrored(lines: Lines, y: Any) -> Any:
    return lines.weighted(jnp.real(y), (0, -1), lines.edge_out)


def _negated(lines: Lines, x: Any) -> Any:
    """Type 1 of sines: extended to whole periods."""
    nothing = jnp.zeros_like(lines.take(x, slice(1)))
    return lines.join(nothing, x, nothing, -lines.turn(x))


def _from_negated(lines: Lines, y: Any) -> Any:
    return lines.take(-jnp.imag(y), slice(1, lines.n + 1))


def _of_spectrum(lines: Lines, y: Any) -> Any:
    """Type 2, from the spectrum of dealt lines: one number gives y_k and -y_(n-k)."""
    n = lines.n
    y = lines.times(y, 2 * _roots(np.arange(n // 2 + 1), 4 * n))
    behind = -lines.turn(jnp.imag(lines.take(y, slice(1, (n + 1) // 2))))
    return lines.weighted(lines.join(jnp.real(y), behind), (0,), lines.edge_out)


def _to_spectrum(lines: Lines, x: Any) -> Any:
    """Type 3: the inverse of type 2."""
    n = lines.n
    x = lines.weighted(x, (0,), lines.edge_in)
    ahead = lines.take(x, slice(n // 2 + 1))
    nothing = jnp.zeros_like(lines.take(x, slice(1)))
    behind = lines.join(nothing, lines.turn(lines.take(x, slice(n - n // 2, None))))
    return lines.times(
        jax.lax.complex(ahead, -behind), np.conj(_roots(np.arange(n // 2 + 1), 4 * n))
    )


def _from_dealt(lines: Lines, x: Any) -> Any:
    half = (lines.n + 1) // 2
    return lines.merged(lines.take(x, slice(half)), lines.turn(lines.take(x, slice(half, None))))


def _paired(lines: Lines, x: Any) -> Any:
    """Type 4: even places and, reversed, odd places make one complex number each."""
    n = lines.n
    if not lines.is_by_half:
        return lines.times(jax.lax.complex(x, jnp.zeros_like(x)), _roots(np.arange(n), 4 * n))
    odd = lines.turn(lines.take(x, slice(1, None, 2)))
    both = jax.lax.complex(lines.take(x, slice(0, None, 2)), odd)
    return lines.times(both, _roots(np.arange(n // 2), 2 * n))


def _from_paired(lines: Lines, y: Any) -> Any:
    n = lines.n
    if not lines.is_by_half:
        y = lines.times(lines.take(y, slice(n)), 2 * _roots(2 * np.arange(n) + 1, 8 * n))
        return jnp.real(y)
    y = lines.times(y, 2 * _roots(4 * np.arange(n // 2) + 1, 8 * n))
    return lines.merged(jnp.real(y), -lines.turn(jnp.imag(y)))


_THERE, _BACK = Kind("rfftn", -1, "operand"), Kind("irfftn", +1, "result")
_BOTH: dict[tuple[bool, int], tuple[Callable, Kind, Callable]] = {
    (False, 1): (_mirrored, _THERE, _from_mirrored),
    (True, 1): (_negated, _THERE, _from_negated),
    (False, 2): (Lines.dealt, _THERE, _of_spectrum),
    (False, 3): (_to_spectrum, _BACK, _from_dealt),
    (False, 4): (_paired, Kind("fftn", -1), _from_paired),
}


def _steps(lines: Lines) -> tuple[Callable, Kind, Callable]:
    """The step before the Fourier transform, its kind, and the step after it."""
    return _BOTH[lines.is_sine and lines.type == 1, lines.type]


def _one(lines: Lines, x: Any, data: Sequence[int], place: _mesh.Place) -> Any:
    """One axis, which parts have whole. data: the extents of the data along the other axes.

    Sines of type 2 are cosines of lines with alternating signs, reversed; of types 3 and 4, the
    other way round.
    """
    before, kind, after = _steps(lines)
    turns = lines.is_sine and lines.type != 1
    x = lines.take(x, slice(lines.n))
    if turns:
        x = lines.alternate(x) if lines.type == 2 else lines.turn(x)
    x = before(lines, x)
    n, s, norm = x.shape[lines.axis], None, "backward"
    if kind.real == "result":
        n, norm = lines.n, "forward"
    elif kind.real is None and not lines.is_by_half:
        s = (2 * n,)
    shape = (*data[: lines.axis], n, *data[lines.axis + 1 :])
    given = {"axes": (lines.axis,), "s": s, "shape": shape, "norm": norm}
    y = after(lines, _fourier.on(kind, x, place, place.spec, **given)) * lines.scale
    if turns:
        y = lines.turn(y) if lines.type == 2 else lines.alternate(y)
    return y


# ---- all axes ------------------------------------------------------------------------------------


def _path(
    spec: Spec, axes: tuple, dst: Spec, sizes: Sequence[int], mesh: Any
) -> Iterator[tuple[int, Spec]]:
    """The axes in the order of their transforms, each with a spec that leaves it whole.

    A split moves from the axis to a whole axis, preferably one that is large enough, is to have it
    at the end, is transformed, and is near. If all other axes are split, the devices along the
    split do the same work.
    """
    now, wanted = list(spec), dst
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
    """The array split this way, with zeros behind the data."""
    if to == place.spec:
        return x, place
    new, old = (_split.to_partition_spec(spec) for spec in (to, place.spec))
    x = redistribute(x, new, shape=tuple(data), mesh=place.mesh, spec=old)
    return x, _mesh.Place(place.mesh, to)


def by_fourier(
    x: Any,
    *,
    mesh: Any,
    src: Spec,
    dst: Spec,
    shape: tuple,
    out: tuple,
    axes: tuple,
    scale: float,
    waves: Waves,
) -> Any:
    """The operation "fft" with these parameters, including the padding of the result."""
    place, data = _mesh.Place(mesh, src), list(shape)
    numbers = dict(zip(axes, waves.numbers, strict=True))
    for axis, spec in _path(src, axes, dst, tuple(data), mesh):
        x, place = _moved(x, place, spec, data)
        edges = (waves.edge_in, waves.edge_out)
        x = _one(Lines(axis, out[axis], numbers[axis], scale, *edges), x, data, place)
        data[axis], scale = out[axis], 1.0
    return _moved(x, place, dst, data)[0]
