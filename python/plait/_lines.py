"""Cosine and sine transforms of lines: what of them goes through a Fourier transform, and how back.

Makhoul, "A fast cosine transform in one and two dimensions" (IEEE Trans. ASSP 28, 1980), for types
2 and 3; Britanak, Yip and Rao, "Discrete Cosine and Sine Transforms" (2007), for type 4 by one of
half the length, and the sine transforms as cosine transforms of turned lines.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir
from plait import _jax
from plait._fourier import Kind

TYPES = (1, 2, 3, 4)
_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


@dataclasses.dataclass(frozen=True)
class Wave:
    """What a transform expands lines in. type: one of `TYPES`, as FFTW and SciPy count them."""

    is_sine: bool
    type: int

    def back(self) -> "Wave":
        """What undoes it, up to a factor."""
        return dataclasses.replace(self, type=_INVERSE[self.type])

    def period(self, n: int) -> int:
        """After how many points a line of n, continued as the waves are, repeats itself."""
        return 2 * (n + (1 if self.is_sine else -1)) if self.type == 1 else 2 * n


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of n numbers along an axis, of which so many are given; zeros are put behind them.

    is_orthogonal: weights at the ends make the matrix so.
    """

    wave: Wave
    axis: int
    n: int
    scale: float
    is_orthogonal: bool
    given: int

    @property
    def is_by_half(self) -> bool:
        """Of type 4: by a transform of n / 2 complex numbers; of odd n by one of 2 n."""
        return self.n % 2 == 0

    def take(self, x: Any, which: slice) -> Any:
        """These numbers of each line."""
        return x[(*[slice(None)] * self.axis, which)]

    def join(self, *pieces: Any) -> Any:
        """Lines behind lines."""
        return jnp.concatenate(pieces, self.axis)

    def turn(self, x: Any) -> Any:
        """From the last number to the first."""
        return jnp.flip(x, self.axis)

    def times(self, x: Any, factors: Any) -> Any:
        """Each number by the factor of its place."""
        shape = [-1 if i == self.axis else 1 for i in range(x.ndim)]
        return x * jnp.asarray(factors.astype(x.dtype).reshape(shape))

    def alternate(self, x: Any) -> Any:
        """Every other number with the other sign."""
        return self.times(x, 1.0 - 2 * (np.arange(x.shape[self.axis]) % 2))

    def weighted(self, x: Any, places: Sequence[int], factor: float) -> Any:
        """The numbers at these places by a factor, if the matrix is to be orthogonal."""
        if not self.is_orthogonal:
            return x
        factors = np.ones(x.shape[self.axis])
        for place in places:
            factors[place] *= factor
        return self.times(x, factors)

    def dealt(self, x: Any) -> Any:
        """The even places, then the odd ones from behind."""
        return self.join(
            self.take(x, slice(0, None, 2)), self.turn(self.take(x, slice(1, None, 2)))
        )

    def merged(self, even: Any, odd: Any) -> Any:
        """From numbers at even and odd places, which may be one less, whole lines."""
        n = even.shape[self.axis] + odd.shape[self.axis]
        more = [(0, 0)] * odd.ndim
        more[self.axis] = (0, even.shape[self.axis] - odd.shape[self.axis])
        both = jnp.stack([even, jnp.pad(odd, more)], self.axis + 1)
        shape = list(even.shape)
        shape[self.axis] *= 2
        return self.take(both.reshape(shape), slice(n))


def _roots(exponents: Any, n: int) -> Any:
    """exp(-2 pi i k / n) of each k."""
    return np.exp(-2j * np.pi * (exponents % n) / n)


# ---- one axis: what is transformed, and what becomes of it ---------------------------------------


def _mirrored(lines: Lines, x: Any) -> Any:
    """Type 1 of cosines: whole periods."""
    x = lines.weighted(x, (0, -1), math.sqrt(2))
    return lines.join(x, lines.turn(lines.take(x, slice(1, -1))))


def _from_mirrored(lines: Lines, y: Any) -> Any:
    return lines.weighted(jnp.real(y), (0, -1), math.sqrt(0.5))


def _negated(lines: Lines, x: Any) -> Any:
    """Type 1 of sines: whole periods."""
    nothing = jnp.zeros_like(lines.take(x, slice(1)))
    return lines.join(nothing, x, nothing, -lines.turn(x))


def _from_negated(lines: Lines, y: Any) -> Any:
    return lines.take(-jnp.imag(y), slice(1, lines.n + 1))


def _of_spectrum(lines: Lines, y: Any) -> Any:
    """Type 2, after the spectrum of lines that are dealt: y_k and -y_(n-k) are one number."""
    n = lines.n
    y = lines.times(y, 2 * _roots(np.arange(n // 2 + 1), 4 * n))
    behind = -lines.turn(jnp.imag(lines.take(y, slice(1, (n + 1) // 2))))
    return lines.weighted(lines.join(jnp.real(y), behind), (0,), math.sqrt(0.5))


def _to_spectrum(lines: Lines, x: Any) -> Any:
    """Type 3, the way back."""
    n = lines.n
    x = lines.weighted(x, (0,), math.sqrt(2))
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
    """Type 4: numbers at even places and, from behind, at odd ones are one complex number."""
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


def steps(wave: Wave) -> tuple[Callable, Kind, Callable]:
    """What is done before the Fourier transform, its kind, what is done after it."""
    return _BOTH[wave.is_sine and wave.type == 1, wave.type]


def _before(lines: Lines, x: Any) -> Any:
    """What is to be transformed.

    Sines of type 2 are cosines of lines of alternating sign, from behind; of 3 and 4 reversely.
    """
    x = lines.take(x, slice(min(lines.given, lines.n)))
    if lines.given < lines.n:
        more = [(0, lines.n - lines.given) if i == lines.axis else (0, 0) for i in range(x.ndim)]
        x = jnp.pad(x, more)
    if lines.wave.is_sine and lines.wave.type != 1:
        x = lines.alternate(x) if lines.wave.type == 2 else lines.turn(x)
    return steps(lines.wave)[0](lines, x)


def _after(lines: Lines, y: Any) -> Any:
    """What becomes of it."""
    y = steps(lines.wave)[2](lines, y) * lines.scale
    if lines.wave.is_sine and lines.wave.type != 1:
        y = lines.turn(y) if lines.wave.type == 2 else lines.alternate(y)
    return y


# ---- as a primitive ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Map:
    """A linear function of lines, or its transpose. n, dtype: of its operand's lines."""

    function: Callable
    lines: Lines
    n: int
    dtype: Any
    is_transposed: bool = False

    def __call__(self, x: Any) -> Any:
        of_lines = functools.partial(self.function, self.lines)
        if not self.is_transposed:
            return of_lines(x)
        aval, axis = jax.typeof(x), self.lines.axis
        shape = (*aval.shape[:axis], self.n, *aval.shape[axis + 1 :])
        return jax.linear_transpose(of_lines, aval.update(shape=shape, dtype=self.dtype))(x)[0]

    def turned(self) -> "_Map":
        """Its transpose."""
        return dataclasses.replace(self, is_transposed=not self.is_transposed)

    def behind(self) -> "_Map":
        """The same with one axis more in front."""
        lines = dataclasses.replace(self.lines, axis=self.lines.axis + 1)
        return dataclasses.replace(self, lines=lines)


@functools.lru_cache(maxsize=4096)
def _extents(of: _Map, shape: tuple, dtype: Any) -> tuple:
    found = jax.eval_shape(of, jax.ShapeDtypeStruct(shape, dtype))
    return found.shape, found.dtype


def _result(x: Any, *, of: _Map) -> Any:
    shape, dtype = _extents(of, x.shape, x.dtype)
    return x.update(shape=shape, dtype=dtype)


@functools.lru_cache(maxsize=1024)
def _program(of: _Map) -> Any:
    return jax.jit(of)


def _run(x: Any, *, of: _Map) -> Any:
    with _jax.compiled():
        return _program(of)(x)


def _batch(args: tuple, dims: tuple, *, of: _Map) -> tuple:
    return _map_p().bind(jnp.moveaxis(args[0], dims[0], 0), of=of.behind()), 0


@functools.cache
def _map_p() -> Any:
    """A function of lines as a primitive, since constants in it belong to no devices.

    Eager transposes compute what depends on constants alone as a program of its own, of which JAX
    does not know for which devices it is. Parts of arrays have lines whole, so that XLA finds how
    to split what is made of them.
    """
    made = jex.Primitive("plait_mesh_lines")
    made.def_abstract_eval(_result)
    made.def_impl(_run)
    mlir.register_lowering(
        made, lambda ctx, x, *, of: _jax.lower_traced(ctx, lambda v: [of(v)], [x])
    )
    ad.deflinear2(made, lambda ct, x, *, of: [_map_p().bind(ct, of=of.turned())])
    batching.primitive_batchers[made] = _batch
    return made


def _apply(function: Callable, lines: Lines, x: Any) -> Any:
    return _map_p().bind(x, of=_Map(function, lines, x.shape[lines.axis], x.dtype))


# Of lines, and the array that has them whole.
before = functools.partial(_apply, _before)
after = functools.partial(_apply, _after)
