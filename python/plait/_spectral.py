"""What is short with transforms: frequencies of a spectrum, convolution, Poisson's equation."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _args, _fourier, _jax, _mesh, _mesh_rules, _split, _trigonometric
from plait._fourier import Kind
from plait._redist import redistribute
from plait._split import Spec
from plait._trigonometric import Series

# ---- frequencies ---------------------------------------------------------------------------------


def _is_traced(x: Any) -> bool:
    return isinstance(x, jax.core.Tracer)


def _spacings(d: Any, n: int, name: str, argument: str) -> tuple:
    """A spacing for each axis: a float, or a traced value."""
    is_one = not isinstance(d, Sequence) and np.ndim(d) == 0
    if isinstance(d, str):
        raise TypeError(f"{name}: {argument} is {d!r}; expected numbers")
    values = (d,) * n if is_one else tuple(d)
    if len(values) != n:
        raise ValueError(f"{name}: {argument} has {len(values)} entries for {n} axes")
    found = tuple(v if _is_traced(v) else float(v) for v in values)
    if any(not _is_traced(v) and (v == 0 or np.isnan(v)) for v in found):
        raise ValueError(f"{name}: {argument} is {d}; expected numbers other than 0 and NaN")
    return found


# How many numbers an axis of n has, and which multiple of a step each number is.
_COUNTS: dict[str, tuple[Callable, Callable]] = {
    "full": (lambda n: n, lambda j, n: jnp.where(j < (n + 1) // 2, j, j - n)),
    "half": (lambda n: n // 2 + 1, lambda j, n: j),
    "cosine": (lambda n: n, lambda j, n: j),
    "sine": (lambda n: n, lambda j, n: j + 1),
}


def _part(axis: int, n: int, step: float, count: str, names: tuple, dtype: Any, dims: Any) -> Any:
    """Frequencies of one axis in a device's part of these extents; 0 in padding."""
    n_here = dims[axis]
    first = jax.lax.axis_index(names) * n_here if names else 0
    shape = [n_here if a == axis else 1 for a in range(len(dims))]
    j = first + jax.lax.broadcasted_iota(jnp.int32, shape, axis)
    n_kept, place_of = _COUNTS[count]
    counted = jnp.where(j < n_kept(n), place_of(j, n), 0)
    return counted.astype(dtype) * jnp.asarray(step, dtype)


def _along_one(place: _mesh.Place, axis: int) -> Spec:
    """How the frequencies of an axis are split."""
    return tuple(names if a == axis else () for a, names in enumerate(place.spec))


def _results(
    *y: Any, place: _mesh.Place, extents: tuple, wanted: tuple, dtype: Any
) -> list[jax.core.ShapedArray]:
    if y:
        whole = NamedSharding(y[0].sharding.mesh, P(*[None] * len(extents)))
        like = y[0].update(shape=extents, sharding=whole)
    else:
        like = jax.core.ShapedArray(extents, dtype)
    results = []
    for axis, *_ in wanted:
        shape = tuple(n if a == axis else 1 for a, n in enumerate(extents))
        results.append(_split.typed(like, shape, dtype, _along_one(place, axis)))
    return results


def _lower(
    ctx: Any, *y: Any, place: _mesh.Place, extents: tuple, wanted: tuple, dtype: Any
) -> Sequence:
    devices = _jax.lowering_devices(ctx)
    if place.mesh is not None and devices is not None and len(devices) != place.mesh.size:
        place = _mesh.Place(None, ((),) * len(extents))
    here = _mesh_rules.local_shape(place.mesh, extents, place.spec)

    def parts(*_: Any) -> list:
        return [_part(*one, place.spec[one[0]], dtype, here) for one in wanted]

    def whole(*_: Any) -> list:
        if place.mesh is None:
            return parts()
        splits = [_along_one(place, one[0]) for one in wanted]
        return _mesh_rules.on_parts(parts, place.mesh, [()], splits)(jnp.int32(0))

    return _jax.lower_traced(ctx, whole, y)


@functools.lru_cache(maxsize=1024)
def _program(given: tuple) -> Any:
    return jax.jit(functools.partial(_frequencies_p().bind, **dict(given)))


def _run(*y: Any, **params: Any) -> list:
    with _jax.compiled():
        return _program(tuple(sorted(params.items())))(*y)


def _jvp(primals: tuple, tangents: tuple, **params: Any) -> tuple:
    results = _frequencies_p().bind(*primals, **params)
    return results, [_jax.zero_tangent(k) for k in results]


def _batch(args: tuple, dims: tuple, **params: Any) -> tuple:
    results = _frequencies_p().bind(*args, **params)
    return results, [None] * len(results)


@functools.cache
def _frequencies_p() -> Any:
    """From a spectrum, of which only the devices matter, to the frequencies of its axes.

    It is a primitive: derivatives of loops would treat what depends on no operand as a constant,
    and compute it before the loop, where nothing says on which devices. jax.linear_transpose would
    take whatever depends on its operand for linear in it, so there it runs without the spectrum.
    Then it is split if the surrounding program has the mesh's devices, else whole, an array of no
    particular device.
    """
    made = jex.Primitive("plait_mesh_frequencies")
    made.multiple_results = True
    made.def_abstract_eval(_results)
    made.def_impl(_run)
    _jax.needs_devices(made)
    _jax.is_constant(made)
    mlir.register_lowering(made, _lower)
    ad.primitive_jvps[made] = _jvp
    batching.primitive_batchers[made] = _batch
    return made


def _counted(y: Any, place: _mesh.Place, wanted: tuple, dtype: Any) -> list:
    dtype = jax.dtypes.canonicalize_dtype(dtype)  # y may date from double precision
    given = {"place": place, "extents": tuple(y.shape), "wanted": wanted, "dtype": dtype}
    return _frequencies_p().bind(y, **given)


def _wanted(axes: tuple, sizes: Sequence[int], steps: tuple, angular: bool, is_half: bool) -> tuple:
    """For each axis: its number, its size, the size of one cycle, a key of `_COUNTS`."""
    turn = 2 * math.pi if angular else 1.0
    return tuple(
        (a, n, turn / (max(n, 1) * step), "half" if is_half and a == axes[-1] else "full")
        for a, n, step in zip(axes, sizes, steps, strict=True)
    )


def _divided(found: Sequence, steps: tuple) -> tuple:
    """Divides frequencies for a spacing of 1 by the spacing, if that is traced."""
    pairs = zip(found, steps, strict=True)
    return tuple(k / h.astype(k.dtype) if _is_traced(h) else k for k, h in pairs)


def frequencies(
    kind: Kind, y: Any, d: Any, axes: Any, shape: Any, angular: bool, layout: str, given: dict
) -> tuple:
    """The frequencies of each axis, laid out for the spectrum y; kind.real: is the last halved."""
    name, is_half = kind.name, kind.real is not None
    y = _args.as_array(y, name)
    axes = _fourier.axes_of(axes, None, y.ndim, name)
    if layout not in ("transposed", "natural"):
        raise ValueError(f"{name}: layout is {layout!r}; expected 'transposed' or 'natural'")
    turn = (lambda s: _fourier.turned(s, axes, -1, name)) if layout == "transposed" else None
    y, place = _mesh.locate(y, given["mesh"], given["spec"], name, 0, turn)
    dims = list(y.shape)
    if is_half:
        dims[axes[-1]] = max(1, 2 * (y.shape[axes[-1]] - 1))
    if shape is not None:
        room = [2 * n - 1 if is_half and a == axes[-1] else n for a, n in enumerate(y.shape)]
        dims = _mesh.data_of(shape, tuple(room), 0, name)
    steps = _spacings(d, len(axes), name, "d")
    dtype = jnp.dtype("float64" if y.dtype.name in _fourier.DOUBLE else "float32")
    known = [1.0 if _is_traced(h) else h for h in steps]
    wanted = _wanted(axes, [dims[a] for a in axes], known, angular, is_half)
    return _divided(_counted(y, place, wanted, dtype), steps)


# ---- there and back ------------------------------------------------------------------------------


def _between(spec: Spec, axes: tuple, name: str) -> Spec:
    """The split of a spectrum that goes back again: where the forward path ends, if it can end."""
    return spec if all(spec[a] for a in axes) else _fourier.turned(spec, axes, -1, name)


def _there(
    x: Any, axes: tuple, s: Any, is_real: bool, place: _mesh.Place, dst: Spec, shape: tuple
) -> Any:
    kind = Kind("rfftn", -1, "operand") if is_real else Kind("fftn", -1)
    return _fourier.on(kind, x, place, dst, axes=axes, s=s, shape=shape)


def _back(y: Any, axes: tuple, shape: tuple, is_real: bool, place: _mesh.Place, dst: Spec) -> Any:
    kind = Kind("irfftn", +1, "result") if is_real else Kind("ifftn", +1)
    return _fourier.on(kind, y, place, dst, axes=axes, shape=shape)


# ---- convolution ---------------------------------------------------------------------------------


def _fast(n: int) -> int:
    """The next length with no prime factor above 7."""
    while True:
        rest = n
        for p in (2, 3, 5, 7):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return n
        n += 1


def _kept(mode: str, n: Sequence[int], m: Sequence[int], name: str) -> tuple[list, list]:
    """Where the result begins in the full convolution, and its size, for each axis."""
    if mode == "full":
        return [0] * len(n), [i + j - 1 for i, j in zip(n, m, strict=True)]
    if mode == "same":
        return [(j - 1) // 2 for j in m], list(n)
    if mode == "valid":
        pairs = [(max(i, j), 1) if 1 in (i, j) else (i, j) for i, j in zip(n, m, strict=True)]
        if any(i < j for i, j in pairs):
            raise ValueError(f"{name}: 'valid', but neither of {n} and {m} fits into the other")
        return [j - 1 for _, j in pairs], [i - j + 1 for i, j in pairs]
    raise ValueError(f"{name}: mode is {mode!r}; expected 'full', 'same' or 'valid'")


def _shift(axes: tuple, s: Sequence[int], first: Sequence[int], like: Any, is_real: bool) -> list:
    """Factors on a spectrum that shift its signal by so many elements to the front."""
    found = []
    for a, n, by in zip(axes, s, first, strict=True):
        if by:
            n_kept = n // 2 + 1 if is_real and a == axes[-1] else n
            turns = (np.arange(n_kept, dtype=np.int64) * by) % n / n
            factor = np.zeros(like.shape[a], np.complex128)
            factor[:n_kept] = np.exp(2j * np.pi * turns)
            shape = [-1 if i == a else 1 for i in range(like.ndim)]
            found.append(jnp.asarray(factor.astype(like.dtype).reshape(shape)))
    return found


def _whole_part(b: Any, zero: Any, *where: Any) -> Any:
    """One device's part of b with zeros behind, from all of b.

    where: along each axis its indices, and whether b has them.
    """
    for axis, (index, is_there) in enumerate(zip(where[::2], where[1::2], strict=True)):
        shape = [-1 if i == axis else 1 for i in range(b.ndim)]
        here = jnp.take(b, index, axis=axis, mode="clip")
        b = jnp.where(is_there.reshape(shape), here, zero)
    return b


def _where_here(spec: Spec, sizes: tuple, extents: tuple) -> list:
    """Indices along each axis of this device's part, of so many elements; whether b has them."""
    found = []
    for names, n_here, n in zip(spec, sizes, extents, strict=True):
        first = jax.lax.axis_index(names) * n_here if names else 0
        index = first + jnp.arange(n_here, dtype=jnp.int32)
        found += [index, index < n]
    return found


@functools.lru_cache(maxsize=256)
def _spreader(mesh: Any, spec: Spec, dims: tuple, is_told: bool) -> Any:
    """is_told: operands say which elements it takes; else each device computes that."""
    whole, part = ((),) * len(spec), _whole_part
    ins = [whole, (), *((names,) for names in spec for _ in range(2))]
    if not is_told:
        sizes, ins = _mesh_rules.local_shape(mesh, dims, spec), [whole]

        def part(b: Any) -> Any:
            return _whole_part(b, jnp.zeros((), b.dtype), *_where_here(spec, sizes, b.shape))

    return jax.jit(_mesh_rules.on_parts(part, mesh, ins, spec, check_vma=True))


def _spread(b: Any, a: Any, mesh: Any, spec: Spec, dims: tuple) -> Any:
    """b, which every device has whole, with zeros behind it, split like this; on the devices of a.

    In a trace, everything made here depends on an operand: see `computed_beside`. For Explicit axes
    JAX then needs the mesh to be named.
    """
    is_traced = isinstance(_jax.underlying(a), jax.core.Tracer)
    if not is_traced or not _jax.is_auto(mesh):
        return _spreader(mesh, spec, dims, False)(b)
    given = [b, jnp.zeros((), b.dtype)]
    for n, m in zip(dims, b.shape, strict=True):
        index = jnp.arange(n, dtype=jnp.int32)
        given += [index, index < m]
    return _spreader(mesh, spec, dims, True)(*(_mesh.computed_beside(x, a) for x in given))


def _second(b: Any, a: Any, place: _mesh.Place, axes: tuple, s: tuple, name: str) -> tuple:
    """The other operand on the mesh of the first, and its split.

    An operand that is on no mesh, or that the mesh does not divide, counts as whole on each device:
    each device takes its part of it, with zeros behind.
    """
    spec = tuple(
        () if n == 1 < m else e for n, m, e in zip(b.shape, a.shape, place.spec, strict=True)
    )
    if place.mesh is None:
        return b, spec
    if not jax.typeof(b).sharding.mesh.empty:
        own, _ = _mesh.find_spec(b, place.mesh, None, 0, name)
        counts = [_split.parts(place.mesh, e) for e in own]
        if any(own) and not any(n % k for n, k in zip(b.shape, counts, strict=True)):
            return b, own
    found = _jax.eager_sharding(a)
    if found is not None and jax.typeof(b).sharding.mesh.empty:
        b = _mesh.put(b, found[0], ((),) * b.ndim)  # its cotangents stay there, as those of a do
    sizes = dict(zip(axes, s, strict=True))
    dims = tuple(sizes.get(i, n) for i, n in enumerate(b.shape))
    dims = _mesh_rules.padded(place.mesh, dims, spec)
    if found is None and _jax.is_splitting():  # b may be known, and then its devices are not
        return jnp.pad(b, [(0, n - m) for n, m in zip(dims, b.shape, strict=True)]), spec
    return _spread(b, a, place.mesh, spec, dims), spec


def _mesh_beside(a: Any, b: Any) -> Any:
    """The mesh of b, if a is on none."""
    typed = jax.typeof(b).sharding.mesh
    if typed.empty or not jax.typeof(a).sharding.mesh.empty:
        return None
    array = _jax.underlying(b)
    return typed if isinstance(array, jax.core.Tracer) else array.sharding.mesh


def _check_meshes(a: Any, b: Any, mesh: Any, name: str) -> None:
    """Both operands are on one mesh or none, which is mesh= if that is given."""
    homes = _mesh.homes_of({"a": a, "b": b})
    _mesh.check_homes(homes, name)
    if mesh is not None and "b" in homes:
        _mesh.find_mesh(b, mesh, f"{name} b")


def convolve(a: Any, b: Any, mode: str, axes: Any, shape: Any, mesh: Any, spec: Any) -> Any:
    """The convolution along some axes; see `plait.fft.fftconvolve`."""
    name = "fftconvolve"
    a, b = _args.as_array(a, name, "a"), _args.as_array(b, name, "b")
    _check_meshes(a, b, mesh, name)
    if a.ndim != b.ndim:
        raise ValueError(f"{name}: a has {a.ndim} axes, b has {b.ndim}; expected as many")
    try:
        dtype = jnp.promote_types(a.dtype, b.dtype)
    except TypeError:  # from PRNG keys
        kinds = f"{a.dtype.name} and {b.dtype.name}"
        raise TypeError(f"{name}: operands of dtypes {kinds}; expected numbers") from None
    a, b = (
        _fourier.as_floating(x.astype(jax.dtypes.canonicalize_dtype(dtype)), name) for x in (a, b)
    )
    is_real = not jnp.issubdtype(a.dtype, jnp.complexfloating)
    axes = axes if axes is None or np.iterable(axes) else (axes,)  # as in SciPy
    axes = _fourier.axes_of(axes, None, a.ndim, name)
    of_a, of_b = _mesh.data_of(shape, a.shape, 0, name), b.shape
    n, m = [of_a[i] for i in axes], [of_b[i] for i in axes]
    if 0 in (*n, *m):
        raise ValueError(f"{name}: shapes {of_a} and {of_b} have no elements along an axis")
    pairs = [p for p in zip(n, m, strict=True) if 1 not in p]  # extents of 1 fit either operand
    if mode == "valid" and all(i <= j for i, j in pairs) and any(i < j for i, j in pairs):
        a, b, n, m, of_a, of_b = b, a, m, n, of_b, of_a
        spec = None if spec is None or any(spec) else spec  # it was that of the other operand
    first, size = _kept(mode, n, m, name)
    others = [i for i in range(a.ndim) if i not in axes]
    if any(of_a[i] != of_b[i] and 1 not in (of_a[i], of_b[i]) for i in others):
        raise ValueError(f"{name}: shapes {of_a} and {of_b} differ along axes not convolved")
    a, place = _mesh.locate(a, mesh or _mesh_beside(a, b), spec, name)
    s = tuple(_fast(i + j - 1) for i, j in zip(n, m, strict=True))
    b, spec_b = _second(b, a, place, axes, s, name)
    middle = _between(place.spec, axes, name)
    # what an axis of one element keeps is added to all elements of the other operand
    kept = tuple(() if i in others and of_b[i] < of_a[i] else e for i, e in enumerate(middle))
    y = _there(a, axes, s, is_real, place, middle, of_a)
    at = _mesh.Place(place.mesh, spec_b)
    y = y * _there(b, axes, s, is_real, at, kept, of_b)
    for factor in _shift(axes, s, first, y, is_real):
        y = y * factor
    whole = [j if i == 1 else i for i, j in zip(of_a, of_b, strict=True)]  # an extent may be 0
    out = list(whole)
    for i, n_full, n_kept in zip(axes, s, size, strict=True):
        whole[i], out[i] = n_full, n_kept
    y = _back(y, axes, tuple(whole), is_real, _mesh.Place(place.mesh, middle), place.spec)
    if place.mesh is None:
        return y[tuple(slice(n) for n in out)]
    to = _split.to_partition_spec(place.spec)
    return redistribute(y, to, shape=tuple(out), mesh=place.mesh, spec=to)


# ---- Poisson's equation --------------------------------------------------------------------------


def _inverse_laplacian(k: Sequence) -> tuple:
    """-1 / Σ kᵢ² as two factors, as the square of the largest kᵢ may be out of range; 0 if k is 0.

    The largest kᵢ is factored out of the sum. Its value does not affect the result, so it has no
    derivative.
    """
    most = jax.lax.stop_gradient(functools.reduce(jnp.maximum, [jnp.abs(ki) for ki in k]))
    is_mean = most == 0  # False for NaN
    most = jnp.where(is_mean, 1, most)
    total = functools.reduce(jnp.add, [(ki / most) ** 2 for ki in k])
    return jnp.where(is_mean, 0, 1 / most), -1 / (most * jnp.where(is_mean, 1, total))


# By how a function continues half a spacing beyond its first and last points: whether it is
# expanded in sines, of type 2.
_ENDS = {
    "periodic": None,
    "dirichlet": True,
    "neumann": False,
}


def _walls(ends: Any, axes: tuple, name: str) -> dict[int, bool]:
    """For each axis with walls, whether its functions are expanded in sines."""
    choices = "'periodic', 'dirichlet' or 'neumann'"
    if not isinstance(ends, str | list | tuple):
        raise TypeError(f"{name}: ends is {ends!r}; expected {choices}, or one for each axis")
    each = (ends,) * len(axes) if isinstance(ends, str) else tuple(ends)
    if len(each) != len(axes):
        raise ValueError(f"{name}: ends has {len(each)} entries for {len(axes)} axes")
    if not all(isinstance(end, str) and end in _ENDS for end in each):
        raise ValueError(f"{name}: ends is {ends!r}; expected {choices}")
    found = {a: _ENDS[end] for a, end in zip(axes, each, strict=True)}
    return {a: is_sine for a, is_sine in found.items() if is_sine is not None}


def _expanded(
    walls: dict[int, bool], x: Any, place: _mesh.Place, dst: Spec, shape: tuple, is_back: bool
) -> Any:
    """Expands in the waves between walls, or goes back; the result is split as dst."""
    if not walls:
        return x
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        rest = (place, dst, shape, is_back)
        return jax.lax.complex(*(_expanded(walls, f(x), *rest) for f in (jnp.real, jnp.imag)))
    series = {a: Series("poisson", is_sine, 2, is_back) for a, is_sine in walls.items()}
    found = _fourier.sizes(Kind("poisson", -1), x.shape, tuple(walls), None, shape, 0)
    return _trigonometric.along(series, (x, place, dst), found, shape)


def _eigenvalues(
    walls: dict[int, bool], open_axes: tuple, shape: tuple, steps: dict[int, Any], is_real: bool
) -> tuple:
    """Wanted frequencies of axes with walls, in half periods, and of those without."""
    between = [
        (a, shape[a], math.pi / (shape[a] * steps[a]), "sine" if is_sine else "cosine")
        for a, is_sine in walls.items()
    ]
    sizes = [shape[a] for a in open_axes]
    return (*between, *_wanted(open_axes, sizes, [steps[a] for a in open_axes], True, is_real))


def solve_poisson(
    f: Any, spacing: Any, axes: Any, ends: Any, shape: Any, mesh: Any, spec: Any
) -> Any:
    """The solution, with a mean of zero if others exist, too; see `plait.fft.poisson`.

    Axes with walls are transformed first and come back last: what is left stays real, if it was.
    """
    name = "poisson"
    f = _fourier.as_floating(_args.as_array(f, name, "f"), name)
    is_real = not jnp.issubdtype(f.dtype, jnp.complexfloating)
    axes = _fourier.axes_of(axes, None, f.ndim, name)
    walls = _walls(ends, axes, name)
    open_axes = tuple(a for a in axes if a not in walls)
    data = _mesh.data_of(shape, f.shape, 0, name)
    for a in axes:
        if data[a] == 0:
            raise ValueError(f"{name}: axis {a} has no elements")
    steps = dict(zip(axes, _spacings(spacing, len(axes), name, "spacing"), strict=True))
    known = {a: 1.0 if _is_traced(h) else h for a, h in steps.items()}
    f, place = _mesh.locate(f, mesh, spec, name)
    inner = place
    if walls:
        inner = _mesh.Place(place.mesh, _between(place.spec, tuple(walls), name))
    y = _expanded(walls, f, place, inner.spec, data, False)
    middle = inner
    if open_axes:
        middle = _mesh.Place(place.mesh, _between(inner.spec, open_axes, name))
        y = _there(y, open_axes, None, is_real, inner, middle.spec, data)
    wanted = _eigenvalues(walls, open_axes, data, known, is_real)
    real = jnp.dtype("float32" if y.dtype.name in _fourier.SINGLE else "float64")
    k = _divided(_counted(y, middle, wanted, real), [steps[a] for a, *_ in wanted])
    for factor in _inverse_laplacian(k):
        y = y * factor.astype(y.dtype)
    if open_axes:
        y = _back(y, open_axes, data, is_real, middle, inner.spec)
    return _expanded(walls, y, inner, place.spec, data, True)
