"""Which mesh axes split an array: specs, what types say of them, and the split of vmap's axis."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _jax
from plait._asked import Imagined

Spec = tuple[tuple[str, ...], ...]  # names of mesh axes for each array axis


def explicit(mesh: Any, spec: Spec) -> Spec:
    """The mesh axes of a spec that types show."""
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return tuple(tuple(n for n in axes if types.get(n) == AxisType.Explicit) for axes in spec)


def in_type(mesh: Any, spec: Spec) -> NamedSharding:
    """What the type of an array with this split says: its Explicit mesh axes."""
    return NamedSharding(mesh, to_partition_spec(explicit(mesh, spec)))


def typed(aval: Any, dims: Sequence[int], dtype: Any, dst: Spec) -> Any:
    """The result's aval; on Explicit mesh axes it says how the result is sharded."""
    made = {"shape": tuple(dims), "dtype": jnp.dtype(dtype or aval.dtype), "weak_type": False}
    mesh = aval.sharding.mesh
    if not mesh.empty and any(t == AxisType.Explicit for t in mesh.axis_types):
        made["sharding"] = in_type(mesh, dst)
    return aval.update(**made)


def retyped(aval: Any, mesh: Any) -> Any:
    """The type of an operand on this mesh, if it still names the Auto axes of another mesh."""
    own = getattr(aval, "sharding", None)
    if own is None or own.mesh.empty or own.mesh.shape == mesh.shape or any(own.spec):
        return aval
    return aval.update(sharding=NamedSharding(mesh.abstract_mesh, own.spec))


def to_partition_spec(spec: Sequence[Sequence[str]]) -> P:
    """A spec in JAX's form."""
    entries = [None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in spec]
    return P(*entries)


def axes_of(entry: Any) -> tuple[str, ...]:
    """The mesh axes in an entry of JAX's form."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def free(names: tuple[str, ...], spec: Spec) -> tuple[str, ...]:
    """The mesh axes that split nothing else."""
    taken = {name for entry in spec for name in entry}
    return tuple(name for name in names if name not in taken)


def front_of(axis: Any) -> tuple[str, ...]:
    """The mesh axes that split vmap's axis, by types or by spmd_axis_name."""
    return axes_of(axis.explicit_mesh_axis) or axes_of(axis.spmd_name)


def with_front(x: Any, front: tuple[str, ...]) -> Any:
    """The array with a type that says that these mesh axes split its first axis."""
    own = jax.typeof(x).sharding
    if own.mesh.empty:
        return x
    [entry] = to_partition_spec(explicit(own.mesh, (front,)))
    where = NamedSharding(own.mesh, P(entry, *own.spec[1:]))
    return x if where.spec == own.spec else jax.sharding.reshard(x, where)


def regrouped(x: Any, n_old: int, lead: Sequence[int], fronts: Sequence[tuple[str, ...]]) -> Any:
    """The first n_old axes reshaped to others, which mesh axes split so, if types say it."""
    shape, own = (*lead, *x.shape[n_old:]), jax.typeof(x).sharding
    if own.mesh.empty:
        return x.reshape(shape)
    split = to_partition_spec(explicit(own.mesh, tuple(fronts)))
    where = NamedSharding(own.mesh, P(*split, *own.spec[n_old:]))
    return jax.lax.reshape(x, shape, out_sharding=where)


def as_split(x: Any, spec: Spec) -> Any:
    """The array with a type that shows this split."""
    own = jax.typeof(x).sharding
    if own.mesh.empty:
        return x
    where = in_type(own.mesh, spec)
    return x if where.spec == own.spec else jax.sharding.reshard(x, where)


def as_typed(x: Any, aval: Any) -> Any:
    """The array, split as a type of the same shape says."""
    own = aval.sharding
    is_typed = own.mesh.empty or jax.typeof(x).sharding.spec == own.spec
    return x if is_typed else jax.sharding.reshard(x, own)


def parts(mesh: Any, axes: Sequence[str]) -> int:
    """Number of parts into which these mesh axes split an array axis."""
    return 1 if mesh is None else math.prod(mesh.shape[a] for a in axes)


def on_mesh(x: Any, mesh: Any, names: Spec = ()) -> Any:
    """``x`` with this split; in a trace it names its devices, which JAX looks for.

    Explicit axes are named in all types; unknown devices cannot be named.
    """
    if not isinstance(mesh, Mesh) or not _jax.is_auto(mesh):
        return x
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, to_partition_spec(names)))


def with_devices(mesh: Any, devices: Sequence) -> Any:
    """The mesh with these devices."""
    if isinstance(devices[0], Imagined):
        return mesh
    places = np.empty(len(devices), object)
    places[:] = devices
    shape, kinds = tuple(mesh.shape.values()), mesh.axis_types
    return Mesh(places.reshape(shape), mesh.axis_names, axis_types=kinds)
