"""Transforms of three axes, whose spectrum has axes (1, 2, 0): the functions of jaxdecomp.fft."""

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import plait
from jax import Array
from jax.lax import FftType
from jax.sharding import PartitionSpec as P
from plait import _args, _mesh
from plait.compat.jaxdecomp import _specs

__all__ = [
    "fftfreq3d",
    "pfft3",
    "pfft3d",
    "pifft3",
    "pifft3d",
    "pirfft3d",
    "prfft3d",
    "rfftfreq3d",
]

_FUNCTIONS: dict[FftType, Callable] = {
    FftType.FFT: plait.fft.pfft3d,
    FftType.IFFT: plait.fft.pifft3d,
    FftType.RFFT: plait.fft.prfft3d,
    FftType.IRFFT: plait.fft.pirfft3d,
}


def check_backend(backend: str) -> None:
    """Both names mean plait."""
    if not isinstance(backend, str) or backend.lower() not in ("jax", "cudecomp"):
        raise ValueError(f"Unknown backend value '{backend}'")


def turned(x: Any, order: tuple[int, int, int]) -> Any:
    """The array with its last three axes in this order."""
    n_batch = x.ndim - 3
    return jnp.transpose(x, (*range(n_batch), *(n_batch + a for a in order)))


def _widened(x: Any) -> Any:
    """Half precision as single, as in jaxDecomp."""
    is_half = jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4
    return x.astype(jnp.float32) if is_half else x


def _spectrum_of(fft_type: FftType) -> Callable:
    """The guess for a spectrum: the forward transform's spec for the guess for an array."""

    def guess(mesh: Any, ndim: int) -> tuple:
        entries = _specs.convention(mesh, ndim)
        there = FftType.FFT if fft_type == FftType.IFFT else FftType.RFFT
        kind = _specs.kind_of(mesh, entries[-3:])
        return (*entries[:-3], *_specs.get_output_specs(there, kind, P(*entries[-3:])))

    return guess


def _check_divided(mesh: Any, spec: tuple, shape: tuple, name: str) -> None:
    for i, (n, entry) in enumerate(zip(shape, spec, strict=True)):
        k = _specs.parts(mesh, entry)
        if n % k:
            raise ValueError(
                f"{name}: axis {i} of the result has {n} elements, which the {k} devices along "
                f"{entry!r} do not divide; plait.fft.{name} takes any size (shape=)"
            )


def _check_shape(shape: Any, name: str) -> tuple[int, ...]:
    """The shape of a real array: three integers."""
    try:
        given = tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(f"{name}: shape is {shape!r}; expected three integers") from None
    if len(given) != 3:
        raise ValueError(f"{name}: shape={given} has {len(given)} entries; expected three")
    return given


def _transform(
    fft_type: FftType, x: Any, norm: Any, backend: str, shape: tuple | None, name: str
) -> Array:
    check_backend(backend)
    is_forward = fft_type in _specs.FORWARD
    guess = _specs.convention if is_forward else _spectrum_of(fft_type)
    x, mesh, spec = _specs.locate(_widened(_args.as_array(x, name)), name, guess)
    order = _specs.order(fft_type)
    batch, spec = spec[:-3], spec[-3:]
    kind = _specs.kind_of(mesh, spec, is_spectrum=not is_forward)
    result = _specs.get_output_specs(fft_type, kind, P(*spec))
    if not is_forward:
        x, spec = turned(x, order), tuple(spec[a] for a in order)
    natural = result if not is_forward else tuple(result[order.index(a)] for a in range(3))
    given = {"norm": norm, "mesh": mesh}
    if mesh is not _mesh.ALONE:
        given |= {"spec": P(*batch, *spec), "layout": P(*batch, *natural)}
    if fft_type == FftType.IRFFT:
        whole = (*x.shape[-3:-1], 2 * (x.shape[-1] - 1))
        given["shape"] = whole if shape is None else _check_shape(shape, name)
    sizes = given.get("shape", x.shape[-3:])
    if fft_type == FftType.RFFT:
        sizes = (*sizes[:2], sizes[2] // 2 + 1)
    _check_divided(mesh, natural, sizes, name)
    y = _FUNCTIONS[fft_type](x, **given)
    return turned(y, order) if is_forward else y


def pfft3d(a: Array, norm: str = "backward", backend: str = "JAX") -> Array:
    """Transform (n0, n1, n2); the result has axes (1, 2, 0): (n1, n2, n0).

    The result is split as `get_fft_output_sharding` says. ``backend`` is 'jax' or 'cudecomp' in any
    letter case; both mean plait.

    Collective: over the mesh, in program order.
    Shapes: (n0, n1, n2) to (n1, n2, n0), or both with one leading batch axis.
    Raises: ValueError for a size that the mesh does not divide, an unknown norm or backend.
    Adjoint: the same transform along the reversed path.  Source: ``pfft3d`` of jaxDecomp.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> jaxdecomp.pfft3d(jnp.ones((2, 3, 4))).shape
        (3, 4, 2)
    """
    return _transform(FftType.FFT, a, norm, backend, None, "pfft3d")


def pifft3d(a: Array, norm: str = "backward", backend: str = "JAX") -> Array:
    """Invert `pfft3d`: (n1, n2, n0) back to (n0, n1, n2).

    Collective: over the mesh, in program order.  Shapes: (n1, n2, n0) to (n0, n1, n2).
    Raises: as `pfft3d`.  Adjoint: the same transform along the reversed path.
    Source: ``pifft3d`` of jaxDecomp.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> jaxdecomp.pifft3d(jaxdecomp.pfft3d(jnp.ones((2, 3, 4)))).real.sum().item()
        24.0
    """
    return _transform(FftType.IFFT, a, norm, backend, None, "pifft3d")


def prfft3d(a: Array, norm: str = "backward", backend: str = "JAX") -> Array:
    """`pfft3d` of real numbers; jaxDecomp raises ValueError here.

    The last axis of the operand is halved. It becomes the second axis of the result, and is split
    if it was split before: P('x', 'y') gives P('x', None, 'y') of axes (n1, n2 // 2 + 1, n0),
    without padding. P(None, None, 'y') gives P(None, 'y'), if the mesh divides n2 // 2 + 1.

    Collective: over the mesh, in program order.
    Shapes: (n0, n1, n2) to (n1, n2 // 2 + 1, n0), or both with one leading batch axis.
    Raises: TypeError for complex numbers; as `pfft3d`.
    Adjoint: that of `plait.fft.prfft3d`.  Source: `plait.fft.prfft3d`.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> jaxdecomp.fft.prfft3d(jnp.ones((2, 3, 4))).shape
        (3, 3, 2)
    """
    return _transform(FftType.RFFT, a, norm, backend, None, "prfft3d")


def pirfft3d(
    a: Array,
    norm: str = "backward",
    backend: str = "JAX",
    *,
    shape: tuple[int, int, int] | None = None,
) -> Array:
    """Invert `prfft3d`; jaxDecomp raises ValueError here.

    ``shape`` is that of the real array, needed for an odd n2; without it n2 = 2 (m - 1).

    Collective: over the mesh, in program order.
    Shapes: (n1, m, n0) to (n0, n1, n2), or both with one leading batch axis.
    Raises: as `pfft3d`.
    Adjoint: that of `plait.fft.pirfft3d`.  Source: `plait.fft.pirfft3d`.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> y = jaxdecomp.fft.prfft3d(jnp.ones((2, 3, 4)))
        >>> jaxdecomp.fft.pirfft3d(y).sum().item()
        24.0
    """
    return _transform(FftType.IRFFT, a, norm, backend, shape, "pirfft3d")


pfft3, pifft3 = pfft3d, pifft3d  # as jaxDecomp's README imports them


# ---- frequencies ---------------------------------------------------------------------------------


def _check_spectrum(array: Any, name: str) -> Any:
    array = _args.as_array(array, name, "array")
    if array.ndim not in (3, 4):
        raise ValueError(f"{name}: Unsupported input shape {array.shape}")
    if not jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(
            f"{name}: the input array must be complex, it has dtype {array.dtype.name}"
        )
    return array


def _frequencies(array: Any, sizes: tuple, d: float, kind: FftType, name: str) -> tuple:
    """Angular frequencies of the original axes 0, 1, 2, each where the spectrum has that axis.

    They are split as the spectrum is. XLA's partitioner would split whole arrays as it likes, with
    its own collectives between plait's, which nothing orders.
    """
    order = _specs.order(FftType.FFT)
    places = tuple(array.ndim - 3 + order.index(a) for a in range(3))
    back = FftType.IRFFT if kind == FftType.RFFT else FftType.IFFT
    array, mesh, spec = _specs.locate(array, name, _spectrum_of(back))
    shape = list(array.shape)
    for place, n in zip(places, sizes, strict=True):
        shape[place] = n
    where = {"mesh": mesh} if mesh is _mesh.ALONE else {"mesh": mesh, "spec": P(*spec)}
    f = plait.fft.rfftfreqn if kind == FftType.RFFT else plait.fft.fftfreqn
    found = f(array, d, axes=places, shape=shape, angular=True, **where)
    return tuple(k.reshape(k.shape[-3:]) for k in found)


def fftfreq3d(array: Array, d: float = 1.0) -> tuple[Array, Array, Array]:
    """Angular frequencies of the axes 0, 1, 2 of the array that ``array`` is the spectrum of.

    They are shaped to broadcast on the spectrum: (1, 1, n0), (n1, 1, 1), (1, n2, 1). They are split
    as the spectrum is; jaxDecomp's are on one device.

    Collective: no.  Shapes: (n1, n2, n0), or with a batch axis, to those.
    Raises: ValueError for real numbers.
    Source: ``fftfreq3d`` of jaxDecomp.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> [k.shape for k in jaxdecomp.fftfreq3d(jaxdecomp.pfft3d(jnp.ones((2, 3, 4))))]
        [(1, 1, 2), (3, 1, 1), (1, 4, 1)]
    """
    array, order = _check_spectrum(array, "fftfreq3d"), _specs.order(FftType.FFT)
    sizes = tuple(array.shape[-3:][order.index(a)] for a in range(3))
    return _frequencies(array, sizes, d, FftType.FFT, "fftfreq3d")


def rfftfreq3d(
    array: Array, d: float = 1.0, *, shape: tuple[int, int, int] | None = None
) -> tuple[Array, Array, Array]:
    """`fftfreq3d`, the frequencies of axis 2 for a real transform: n2 // 2 + 1.

    As in jaxDecomp, n2 is the size of ``array``. For results of `prfft3d`, where n2 is not that
    size, give the shape of the real array as ``shape``.

    Collective: no.  Shapes: as `fftfreq3d`.  Raises: ValueError for real numbers.
    Source: ``rfftfreq3d`` of jaxDecomp.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> y = jaxdecomp.fft.prfft3d(jnp.ones((2, 3, 4)))
        >>> [k.shape for k in jaxdecomp.rfftfreq3d(y, shape=(2, 3, 4))]
        [(1, 1, 2), (3, 1, 1), (1, 3, 1)]
    """
    array, order = _check_spectrum(array, "rfftfreq3d"), _specs.order(FftType.FFT)
    if shape is not None:
        shape = _check_shape(shape, "rfftfreq3d")
        return _frequencies(array, shape, d, FftType.RFFT, "rfftfreq3d")
    k0, k1, _ = fftfreq3d(array, d)
    real = k0.dtype
    k2 = 2 * jnp.pi * jnp.fft.rfftfreq(array.shape[-3:][order.index(2)], d=d, dtype=real)
    return k0, k1, k2.reshape([-1 if i == order.index(2) else 1 for i in range(3)])
