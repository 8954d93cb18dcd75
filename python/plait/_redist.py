"""Global arrays from one layout to another, and their sums."""

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding
from jax.typing import DTypeLike
from plait import _args, _mesh, _mesh_rules, _split


def redistribute(
    x: Array,
    to_spec: Any,
    *,
    shape: tuple[int, ...] | None = None,
    block: int | None = None,
    from_block: int | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """The same global array, split over its mesh as ``to_spec`` says.

    Nothing is communicated if it is split so already.

    ``shape`` is the shape of the data in an array with padding at its tail, for sizes that the mesh
    does not divide. The result has as much padding as its own split needs, filled with zeros.

    With ``block`` every axis that ``to_spec`` splits is dealt out in blocks of so many elements:
    block k goes to device k mod P, as dense solvers want it. Every device's part has room for as
    many whole blocks as the first device has. ``from_block`` says that the operand is dealt out in
    this way. Then ``shape`` is the shape of what was dealt out. In a trace on Auto axes ``spec``
    says which axes were dealt out, since JAX does not.

    Collective: over the mesh, in program order.
    Shapes: any with at least one axis to the same; with ``shape`` to ``shape``, rounded up along
    each split axis; with ``block`` to P times whole blocks along each split axis.
    Raises: ValueError for a spec that does not fit the mesh, a size that the mesh does not divide,
    a block that is not positive; TypeError for a dtype that cannot be moved.
    Adjoint: redistribute back.  Source: own; oracle ``tests/python/oracle.py::redistribute``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> plait.redistribute(jnp.arange(4), P()).tolist()
        [0, 1, 2, 3]
    """
    x, place = _mesh.locate(
        x, mesh, spec, "redistribute", is_any_size=True, must_know=from_block is not None
    )
    to = _mesh.names_of(to_spec, x.ndim, "redistribute", "to_spec")
    if place.mesh is None and not any(to) and shape is None:
        return x
    x = _args.array(x, "redistribute", has_keys=False)
    data = _mesh.data_of(shape, x.shape, 0, "redistribute")
    given: dict[str, Any] = {"dims": x.shape, "shape": data}
    if block is not None or from_block is not None or shape is not None:
        _mesh.check_spec(to, place.mesh, (0,) * x.ndim, "redistribute")
        given["dims"] = _mesh_rules.padded(place.mesh, data, to, _block(block, "block") or 1)
    if block is not None or from_block is not None:
        n = _block(from_block, "from_block")
        with place.judged():
            _check_dealt(x.shape, data, place, n)
        given["blocks"] = (_blocks(place.spec, n), _blocks(to, _block(block, "block")))
    _mesh.check_spec(to, place.mesh, given["dims"], "redistribute")
    y = _mesh_rules.bind("redistribute", x, place.mesh, place.spec, to, **given)
    return y if block is None else _as_told(y, to)


def _as_told(y: Any, spec: _split.Spec) -> Any:
    """The array, with axes of one device in its sharding, too, along which blocks were dealt out.

    JAX drops Auto axes of one device from the sharding of a program's result.
    """
    found = None if isinstance(y, jax.core.Tracer) else y.sharding
    if not isinstance(found, NamedSharding):
        return y
    where = NamedSharding(found.mesh, _split.to_partition_spec(spec))
    is_told = found.spec == where.spec or not found.is_equivalent_to(where, y.ndim)
    return y if is_told else jax.device_put(y, where)  # the same memory


def _block(n: int | None, argument: str) -> int:
    """Elements of a block; 0: nothing is dealt out."""
    if n is None:
        return 0
    try:
        given = operator.index(n)
    except TypeError:
        raise TypeError(f"redistribute: {argument} is {n!r}; expected an integer") from None
    if given < 1:
        raise ValueError(f"redistribute: {argument} is {given}; expected 1 or more")
    return given


def _blocks(spec: _mesh_rules.Spec, n: int) -> tuple[int, ...]:
    return tuple(n if axes else 0 for axes in spec)


def _check_dealt(
    dims: tuple[int, ...], data: tuple[int, ...], place: _mesh.Place, block: int
) -> None:
    """The operand's extents must be those of its data when dealt out."""
    want = _mesh_rules.padded(place.mesh, data, place.spec, block or 1)
    if block and want != dims:
        raise ValueError(
            f"redistribute: an array of shape {data}, dealt out in blocks of {block}, has extents "
            f"{want}; the operand has {dims} (shape= says what was dealt out, spec= along which "
            "axes)"
        )


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    axes = range(ndim) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    try:
        given = tuple(operator.index(a) for a in axes)
    except TypeError:
        raise TypeError(f"sum: axis is {axis!r}; expected integers") from None
    for a in given:
        if not -ndim <= a < ndim:
            raise ValueError(f"sum: axis {a} is out of bounds for an array of {ndim} axes")
    found = sorted(a % ndim for a in given)
    for a, b in itertools.pairwise(found):
        if a == b:
            raise ValueError(f"sum: axis is {axis!r}, which has axis {a} twice")
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _partial(
    function: Any, place: _mesh.Place, axes: tuple[int, ...], named: tuple[tuple[str, Any], ...]
) -> Any:
    """Applies the function, with these keywords, to each part; extent 1 along the axes."""

    def reduce(part: Any) -> Any:
        return function(part, axis=axes, keepdims=True, **dict(named))

    mapped = _mesh_rules.on_parts(reduce, place.mesh, [place.spec], place.spec, check_vma=True)
    return jax.jit(mapped)


def reduced(
    function: Any,
    x: Any,
    place: _mesh.Place,
    axes: tuple[int, ...],
    keepdims: bool = False,
    **named: Any,
) -> Any:
    """A function such as jnp.max of a global array: of all parts, then of the partial results."""
    if place.mesh is None or 0 in x.shape:  # no elements: no parts
        return function(x, axis=axes, keepdims=keepdims, **named)
    x = _partial(function, place, axes, tuple(named.items()))(x)
    whole = _whole_along(axes, place.spec)
    if whole != place.spec:
        x = _mesh_rules.bind("redistribute", x, place.mesh, place.spec, whole, shape=x.shape)
    return function(x, axis=axes, keepdims=keepdims, **named)


def summed(
    x: Any, place: _mesh.Place, axes: tuple[int, ...], keepdims: bool = False, dtype: Any = None
) -> Any:
    """jnp.sum of a global array: of each device's part, then over the devices."""
    if place.mesh is None or 0 in x.shape:
        return jnp.sum(x, axis=axes, keepdims=keepdims, dtype=dtype)
    kept, wide = x.dtype if dtype is None else dtype, dtype
    if jnp.issubdtype(kept, jnp.floating) and kept.itemsize < 4:  # else rounded each time
        wide = jnp.dtype(jnp.float32)
    elif dtype == jnp.dtype(bool):  # which has no sums
        x, wide = x.astype(dtype), jnp.dtype(jnp.int32)
    x = _partial(jnp.sum, place, axes, (("dtype", wide),))(x)
    whole = _whole_along(axes, place.spec)
    if whole != place.spec:
        dims = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
        x = _mesh_rules.bind("sums", x, place.mesh, place.spec, whole, dims=dims)
    x = x if wide is dtype else x.astype(kept)
    return x if keepdims else jnp.squeeze(x, axes)


def _whole_along(axes: tuple[int, ...], spec: _split.Spec) -> _split.Spec:
    return tuple(() if a in axes else names for a, names in enumerate(spec))


def sum(  # noqa: A001 - the name is part of the interface
    x: Array,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Sum a global array over some of its axes, or all; every device gets the same bits.

    Each device adds up its part. The partial sums are added as by `allreduce`, in an order that
    does not depend on timing. ``dtype`` is the dtype of the sums and of the result, as in
    `jax.numpy.sum`. ``shape`` is the shape of the data in an array with padding at its tail;
    the padding is not added.

    Collective: over the mesh, in program order.
    Shapes: the summed axes disappear, or have extent 1 with ``keepdims``.
    Raises: ValueError for an axis out of bounds.
    Adjoint: the cotangent on every element, without communication.
    Source: own; oracle ``tests/python/oracle.py::sum``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.sum(jnp.ones((2, 3))).item()
        6.0
    """
    x = _args.as_array(x, "sum")
    axes = _axes(axis, x.ndim)
    kept = None if dtype is None else jnp.dtype(dtype)
    if kept is None:
        _args.array(x, "sum", has_keys=False)
    data = _mesh.data_of(shape, x.shape, 0, "sum")
    if x.ndim == 0:
        return jnp.sum(x, dtype=kept)
    x, place = _mesh.locate(x, mesh, spec, "sum", is_any_size=True)
    x = _mesh.only_data(x, data)
    return summed(x, place, axes, keepdims, kept)
