"""Transforms as the public functions of plait.fft request them: arguments, layouts, the call."""

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from plait import _args, _mesh, _mesh_rules, _split
from plait._split import Spec
from plait._waves import Waves

NO_WAVES = Waves()
SINGLE, DOUBLE = ("float32", "complex64"), ("float64", "complex128")


# ---- arguments -----------------------------------------------------------------------------------


def _possible(x: Any) -> Any:
    """The array, in single precision if it was made before double precision was switched off."""
    dtype = jax.dtypes.canonicalize_dtype(x.dtype)
    return x if dtype == x.dtype else x.astype(dtype)


def as_real(x: Any, name: str) -> Any:
    """The operand as float32 or float64."""
    x = _args.as_float(x)
    if x.dtype.name in ("float32", "float64"):
        return _possible(x)
    raise TypeError(f"{name}: x has dtype {x.dtype.name}; expected float32, float64 or integers")


def as_complex(x: Any, name: str) -> Any:
    """The operand as complex64 or complex128."""
    x = _args.as_float(x)
    if x.dtype.name in ("complex64", "complex128"):
        return _possible(x)
    if x.dtype.name in ("float32", "float64"):
        x = _possible(x)
        return x.astype(jnp.complex64 if x.dtype == "float32" else jnp.complex128)
    raise TypeError(f"{name}: x has dtype {x.dtype.name}; expected float32, float64 or complex")


def as_floating(x: Any, name: str) -> Any:
    """The operand in single or double precision, real or complex."""
    x = _args.as_float(x)
    kinds = (jnp.complexfloating, jnp.float32, jnp.float64)
    if not any(jnp.issubdtype(x.dtype, kind) for kind in kinds):
        known = "float32, float64, complex or integers"
        raise TypeError(f"{name}: operand of dtype {x.dtype.name}; expected {known}")
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return as_complex(x, name)
    return as_real(x, name)


def scale_of(norm: str | None, n: int, sign: int, name: str) -> float:
    """The factor on the sums over the n points of a transform of this sign."""
    norm = "backward" if norm is None else norm  # as in numpy
    powers = {"backward": 0.0 if sign < 0 else 1.0, "ortho": 0.5}
    powers["forward"] = 1.0 - powers["backward"]
    if not isinstance(norm, str) or norm not in powers:
        raise ValueError(f"{name}: norm is {norm!r}; expected 'backward', 'ortho' or 'forward'")
    return 1.0 / math.sqrt(n) if norm == "ortho" else float(n) ** -powers[norm]


def integers(values: Any, name: str, argument: str) -> tuple[int, ...]:
    """The values of an argument, checked to be integers."""
    try:
        return tuple(operator.index(n) for n in values)
    except TypeError:
        raise TypeError(f"{name}: {argument} is {values!r}; expected integers") from None


def axes_of(axes: Any, s: Any, ndim: int, name: str) -> tuple[int, ...]:
    """NumPy's rule: the axes named, else as many trailing ones as s has entries, else all."""
    if axes is None:
        if s is not None and len(s) > ndim:
            raise ValueError(f"{name}: s={s} has {len(s)} entries for an array of {ndim} axes")
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    given = integers(axes, name, "axes")
    for a in given:
        if not -ndim <= a < ndim:
            raise ValueError(f"{name}: axis {a} is out of bounds for an array of {ndim} axes")
    found = tuple(a % ndim for a in given)
    if not found or len(set(found)) != len(found):
        raise ValueError(f"{name}: axes is {given}; expected one axis or more, each once")
    return found


# ---- where the result is split -------------------------------------------------------------------


def turned(spec: Spec, axes: Sequence[int], sign: int, name: str) -> Spec:
    """The spec where the path ends: each split of a transformed axis moves to a finished axis.

    Forward, the split moves to the next axis behind; backward, to the next one before. So the
    backward path is the reverse of the forward path.
    """
    now = list(spec)
    todo = [a for a in axes if now[a]]
    free = [a for a in axes if not now[a]]
    if todo and not free:
        raise ValueError(
            f"{name}: all axes of the transform are split; leave one whole, or give "
            "layout='natural' or a PartitionSpec"
        )
    while todo:
        pairs = [(abs(t - f), (f - t) * sign > 0, t, f) for t in todo for f in free]
        _, _, t, f = min(pairs)
        now[f], now[t] = now[t], ()
        todo.remove(t)
        free.remove(f)
        free.append(t)
    return tuple(now)


def _result_spec(layout: Any, place: _mesh.Place, axes: tuple, sign: int, name: str) -> Spec:
    ndim = len(place.spec)
    if isinstance(layout, P | tuple | list):
        names = _mesh.names_of(layout, ndim, name, "layout")
        _mesh.check_spec(names, place.mesh, (0,) * ndim, name, "layout")
        return names
    if layout not in ("transposed", "natural"):
        raise ValueError(
            f"{name}: layout is {layout!r}; expected 'transposed', 'natural' or a PartitionSpec"
        )
    if layout == "natural":
        return place.spec
    with place.judged():
        return turned(place.spec, axes, sign, name)


# ---- the transform -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a function does; real: which side has real numbers, None for complex transforms."""

    name: str
    sign: int
    real: str | None = None


def _half(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(n // 2 + 1 if a == axis else n for a, n in enumerate(shape))


def sizes(kind: Kind, dims: tuple, axes: tuple, s: Any, shape: Any, first: int) -> tuple:
    """The shapes of x's data, of the transformed data (with zeros behind), and of the result.

    shape is that of the real side, if there is one: n cannot be told from n // 2 + 1.
    """
    name, last = kind.name, axes[-1]
    if kind.real == "result":
        guess = tuple(2 * (n - 1) if a == last else n for a, n in enumerate(dims))
        if shape is None:
            out = list(guess)
        else:
            room = tuple(2 * n - 1 if a == last else n for a, n in enumerate(dims))
            out = list(_mesh.data_of(shape, room, first, name))
        data = _half(out, last)
    else:
        data = _mesh.data_of(shape, dims, first, name)
        out = list(data)
    operand = list(data)
    if s is not None:
        if len(s) != len(axes):
            raise ValueError(f"{name}: s={s} has {len(s)} entries for {len(axes)} axes")
        for a, n in zip(axes, s, strict=True):
            out[a] = data[a] if n == -1 else n  # -1: all elements, as in NumPy
            operand[a] = out[a] // 2 + 1 if kind.real == "result" and a == last else out[a]
    if kind.real == "operand":
        out = list(_half(operand, last))
    for a in axes:
        if min(operand[a], out[a]) < 1:
            raise ValueError(
                f"{name}: axis {a} has {min(operand[a], out[a])} elements to transform; "
                "expected 1 or more"
            )
    return data, tuple(operand), tuple(out)


def padded(
    place: _mesh.Place, out: tuple, dst: Spec, shape: Any, data: tuple, name: str
) -> tuple[int, ...]:
    """Extents of the result; only callers that give the shape of the data get and pass padding."""
    dims = _mesh_rules.padded(place.mesh, out, dst)
    for a, (n, m) in enumerate(zip(out, dims, strict=True)):
        if n != m and shape is None:
            raise ValueError(
                f"{name}: axis {a} of the result has {n} elements, which "
                f"{_split.parts(place.mesh, dst[a])} devices along mesh axes "
                f"{', '.join(dst[a])} do not divide; with shape={data} it is padded to {m} "
                "(pass shape= also to the functions that use the result); or choose another layout="
            )
    _mesh.check_spec(dst, place.mesh, dims, name)
    return dims


def _with_zeros(x: Any, place: _mesh.Place, data: tuple, operand: tuple) -> Any:
    """The array with zeros behind its data, if more elements than that are transformed."""
    extents = zip(data, operand, x.shape, strict=True)
    x = _mesh.only_data(x, tuple(n if wanted > n else room for n, wanted, room in extents))
    dims = _mesh_rules.padded(place.mesh, operand, place.spec)
    more = [(0, max(0, n - m)) for n, m in zip(dims, x.shape, strict=True)]
    return jnp.pad(x, more) if any(n for _, n in more) else x


def located(
    kind: Kind, x: Any, axes: tuple, layout: Any, mesh: Any, spec: Any, first: int = 0
) -> tuple[Any, _mesh.Place, Spec]:
    """The operand on its mesh, its place, and how the result is split."""
    is_turned = kind.sign > 0 and layout == "transposed"
    turn = (lambda names: turned(names, axes, -1, kind.name)) if is_turned else None
    x, place = _mesh.locate(x, mesh, spec, kind.name, first, turn)
    return x, place, _result_spec(layout, place, axes, kind.sign, kind.name)


def _transform(
    kind: Kind,
    x: Any,
    axes: tuple[int, ...],
    *,
    norm: str,
    layout: Any,
    mesh: Any,
    spec: Any,
    donate: bool,
    s: Any = None,
    shape: Any = None,
    first: int = 0,
) -> Any:
    """first: leading batch axes, which the convention for specs leaves whole."""
    name = kind.name
    found = sizes(kind, x.shape, axes, s, shape, first)
    whole = found[2] if kind.real == "result" else found[1]
    scale = scale_of(norm, math.prod(whole[a] for a in axes), kind.sign, name)
    x = as_real(x, name) if kind.real == "operand" else as_complex(x, name)
    at = located(kind, x, axes, layout, mesh, spec, first)
    return bound(kind, at, axes, found, shape, scale=scale, donate=donate, first=first)


def bound(
    kind: Kind,
    at: tuple[Any, _mesh.Place, Spec],
    axes: tuple[int, ...],
    found: tuple,
    shape: Any,
    *,
    scale: float,
    waves: Waves = NO_WAVES,
    donate: bool = False,
    first: int = 0,
) -> Any:
    """The call, for an operand and place from `located` and extents from `sizes`."""
    name, (x, place, dst), (data, operand, out) = kind.name, at, found
    x = _with_zeros(x, place, data, operand)
    known = (out if kind.real == "result" else data)[first:]
    with place.judged():
        dims = padded(place, out, dst, shape, known, name)
    pair = SINGLE if x.dtype.name in SINGLE else DOUBLE
    dtype = pair[kind.real != "result" and not waves.numbers]
    return _mesh_rules.bind(
        "fft",
        x,
        place.mesh,
        place.spec,
        dst,
        dims=dims,
        donate=donate,
        shape=operand,
        out=out,
        dtype=dtype,
        axes=axes,
        sign=kind.sign,
        scale=scale,
        weight=0.0 if kind.real is None else 1.0 if kind.real == "operand" else 2.0,
        waves=waves,
    )


def three(kind: Kind, x: Any, layout: Any, shape: Any, given: dict) -> Any:
    """Transforms three axes, behind at most one batch axis."""
    x = _args.as_array(x, kind.name)
    if x.ndim not in (3, 4):
        raise ValueError(
            f"{kind.name}: x has {x.ndim} axes; expected 3, or 4 with one leading batch axis"
        )
    n_batch = x.ndim - 3
    axes = tuple(range(n_batch, x.ndim))
    return _transform(kind, x, axes, layout=layout, shape=shape, first=n_batch, **given)


def along(kind: Kind, x: Any, s: Any, axes: Any, shape: Any, given: dict) -> Any:
    """Transforms any axes of an array."""
    x = _args.as_array(x, kind.name)
    s = None if s is None else integers(s, kind.name, "s")
    found = axes_of(axes, s, x.ndim, kind.name)
    return _transform(kind, x, found, s=s, shape=shape, **given)


def on(
    kind: Kind, x: Any, place: _mesh.Place, dst: Spec, *, axes: tuple, shape: Any, **given: Any
) -> Any:
    """Transforms axes of an array at a place; the result is split as dst."""
    s = given.pop("s", None)
    given = {"norm": "backward", "donate": False, "mesh": place.mesh} | given
    if place.mesh is None:
        given |= {"mesh": _mesh.ALONE, "spec": None, "layout": "natural"}
    else:
        spec = _split.to_partition_spec
        given |= {"spec": spec(place.spec), "layout": spec(dst)}
    return along(kind, x, s, axes, shape, given)
