"""Global arrays from one layout to another, and their sums."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from plait import _mesh, _mesh_rules


def redistribute(
    x: Array,
    to_spec: Any,
    *,
    shape: tuple[int, ...] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """The same global array, split over its mesh as ``to_spec`` says.

    ``shape`` is what is data of an array with padding at its tail, for sizes that the mesh does not
    divide. The result has as much padding as its own split needs; there it is zero.

    Collective: over the mesh, in program order.
    Shapes: any to the same; with ``shape`` to that one, rounded up along each split axis.
    Raises: ValueError for a spec that does not fit the mesh, or a size that it does not divide.
    Adjoint: the way back.  Source: own; oracle ``tests/python/oracle.py::redistribute``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> plait.redistribute(jnp.arange(4), P()).tolist()
        [0, 1, 2, 3]
    """
    x, place = _mesh.locate(x, mesh, spec, "redistribute")
    to = _mesh.names_of(to_spec, x.ndim, "redistribute", "to_spec")
    if place.mesh is None and not any(to) and shape is None:
        return x
    data = _mesh.data_of(shape, x.shape, 0, "redistribute")
    dims = x.shape if shape is None else _mesh_rules.padded(place.mesh, data, to)
    _mesh.check_spec(to, place.mesh, dims, "redistribute")
    return _mesh_rules.bind("redistribute", x, place.mesh, place.spec, to, dims=dims, shape=data)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    given = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    for a in given:
        if not -ndim <= a < ndim:
            raise ValueError(f"sum: axis {a} is out of bounds for an array of {ndim} axes")
    return tuple(sorted({a % ndim for a in given}))


@functools.lru_cache(maxsize=4096)
def _partial_sum(place: _mesh.Place, axes: tuple[int, ...]) -> Any:
    """Each device's sum of its part, with extent 1 along the summed axes."""
    split = _mesh_rules.to_partition_spec(place.spec)

    def add(part):
        return jnp.sum(part, axis=axes, keepdims=True)

    return jax.jit(jax.shard_map(add, mesh=place.mesh, in_specs=split, out_specs=split))


def sum(  # noqa: A001 - the name is part of the interface
    x: Array, *, axis: int | tuple[int, ...] | None = None, mesh: Any = None, spec: Any = None
) -> Array:
    """Sum of a global array over some of its axes, or all; every device has the same bits.

    Each device adds up its part, the partial sums are gathered and added in order, so that
    the result does not depend on timing.

    Collective: over the mesh, in program order.  Shapes: the summed axes disappear.
    Raises: ValueError for an axis out of bounds.
    Adjoint: the cotangent on every element, without communication for ``axis=None``.
    Source: own; oracle ``tests/python/oracle.py::sum``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.sum(jnp.ones((2, 3))).item()
        6.0
    """
    x = jnp.asarray(x)
    axes = _axes(axis, x.ndim)
    if x.ndim == 0:
        return jnp.sum(x)
    x, place = _mesh.locate(x, mesh, spec, "sum")
    if place.mesh is None:
        return jnp.sum(x, axis=axes)
    x = _partial_sum(place, axes)(x)
    whole = tuple(() if a in axes else names for a, names in enumerate(place.spec))
    if whole != place.spec:
        x = _mesh_rules.bind("redistribute", x, place.mesh, place.spec, whole, shape=x.shape)
    return jnp.sum(x, axis=axes)
