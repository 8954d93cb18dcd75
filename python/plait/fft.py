"""Fourier transforms of global arrays that are distributed over a mesh."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from plait import _mesh, _mesh_rules

__all__ = ["pfft3d", "pifft3d"]


def _complex(x: Any, name: str) -> Any:
    """The operand as complex64 or complex128."""
    dtype = jnp.dtype(x.dtype)
    if dtype.name in ("complex64", "complex128"):
        return x
    if dtype.name in ("float32", "float64"):
        return x.astype(jnp.complex64 if dtype.name == "float32" else jnp.complex128)
    if jnp.issubdtype(dtype, jnp.integer) or dtype.name == "bool":
        return x.astype(jax.dtypes.canonicalize_dtype(jnp.complex128))
    raise TypeError(f"{name}: x has dtype {dtype.name}; expected float32, float64 or complex")


def _scale(norm: str, n: int, sign: int, name: str) -> float:
    powers = {"backward": 0.0 if sign < 0 else 1.0, "ortho": 0.5}
    powers["forward"] = 1.0 - powers["backward"]
    if norm not in powers:
        raise ValueError(f"{name}: norm is {norm!r}; expected 'backward', 'ortho' or 'forward'")
    return 1.0 / math.sqrt(n) if norm == "ortho" else float(n) ** -powers[norm]


def _forward_turn(spec: tuple) -> tuple:
    """Which axes are split where the forward path ends: each one place further."""
    return (spec[-1], *spec[:-1])


def _inverse_turn(spec: tuple) -> tuple:
    return (*spec[1:], spec[0])


def _turn(spec: tuple, sign: int, name: str) -> tuple:
    """The spec of the other layout, for the three transformed axes."""
    if not any(spec):
        return spec
    if all(spec):
        raise ValueError(f"{name}: all three axes are split; leave one whole")
    if sign < 0:
        return _forward_turn(spec) if not spec[-1] else _inverse_turn(spec)
    return _inverse_turn(spec) if not spec[0] else _forward_turn(spec)


def _transform(
    x: Any,
    sign: int,
    norm: str,
    layout: str,
    shape: Any,
    mesh: Any,
    spec: Any,
    donate: bool,
    name: str,
) -> Any:
    x = jnp.asarray(x)
    if x.ndim not in (3, 4):
        raise ValueError(
            f"{name}: x has {x.ndim} axes; expected 3, or 4 with one leading batch axis"
        )
    if layout not in ("transposed", "natural"):
        raise ValueError(f"{name}: layout is {layout!r}; expected 'transposed' or 'natural'")
    n_batch = x.ndim - 3
    size = x.shape[n_batch:]
    if 0 in size:
        raise ValueError(f"{name}: an axis of length 0 in {x.shape} has no transform")
    if shape is not None and tuple(shape) != size:
        raise ValueError(
            f"{name}: shape={tuple(shape)} differs from the array's {size}: padded arrays come "
            "with uneven sizes, which this version does not have; leave shape= out"
        )
    scale = _scale(norm, math.prod(size), sign, name)
    x = _complex(x, name)
    is_turned = sign > 0 and layout == "transposed"
    turn = (lambda s: (*s[:n_batch], *_turn(s[n_batch:], -1, name))) if is_turned else None
    x, place = _mesh.locate(x, mesh, spec, name, n_batch, turn)
    src = place.spec
    dst = src
    _turn(src[n_batch:], sign, name)
    if layout == "transposed":
        dst = (*src[:n_batch], *_turn(src[n_batch:], sign, name))
        _mesh.check_spec(dst, place.mesh, x.shape, name)
    axes = tuple(range(n_batch, n_batch + 3))
    given = {"axes": axes, "sign": sign, "scale": scale}
    return _mesh_rules.bind("fft", x, place.mesh, src, dst, donate=donate, **given)


def pfft3d(
    x: Array,
    *,
    norm: str = "backward",
    layout: str = "transposed",
    shape: tuple[int, int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Transform three axes of a global array, distributed over its mesh.

    The result's axes are those of ``x``, in the same order. ``layout`` says which of them are
    split: ``'transposed'`` as the forward path ends, each split one axis further (``P('x')``
    to ``P(None, 'x')``, ``P('a', 'b')`` to ``P(None, 'a', 'b')``; half the traffic), or
    ``'natural'`` as in ``x``. Inside a jit on Auto axes, where the array's type does not say
    how it is split, the mesh axes are taken to split its leading axes in order; else ``spec``.

    With ``donate=True`` the result takes the memory of ``x``, which is gone then, where every
    device's part has the same shape before and after; elsewhere it changes nothing.

    Collective: over the mesh, in program order.  Shapes: (n0, n1, n2), or with one leading
    batch axis, to the same; real input is promoted to complex.
    Raises: ValueError for a size that the mesh does not divide, for an unknown mesh.
    Adjoint: the same transform along the reversed path.
    Source: notes of FFTW's manual, 6.4; oracle ``tests/python/oracle.py::fft``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.pfft3d(jnp.ones((2, 2, 2)))[0, 0, 0].real.item()
        8.0
    """
    return _transform(x, -1, norm, layout, shape, mesh, spec, donate, "pfft3d")


def pifft3d(
    x: Array,
    *,
    norm: str = "backward",
    layout: str = "transposed",
    shape: tuple[int, int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Invert `pfft3d`: take its layout and return that of the original array.

    With ``layout='transposed'`` the operand is split as `pfft3d` leaves it and the result
    as its input was; with ``'natural'`` both as the operand.

    Collective: over the mesh, in program order.  Shapes: as `pfft3d`.
    Raises: as `pfft3d`.  Adjoint: the same transform along the reversed path.
    Source: as `pfft3d`; oracle ``tests/python/oracle.py::fft``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.fft.pifft3d(plait.fft.pfft3d(jnp.ones((2, 2, 2)))).real.sum().item()
        8.0
    """
    return _transform(x, +1, norm, layout, shape, mesh, spec, donate, "pifft3d")
