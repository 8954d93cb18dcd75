"""Which mesh axes split an array: specs, what types say of them, and where vmap's axis is split."""

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
    """The mesh axes of a spec that types speak of."""
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return tuple(tuple(n for n in axes if types.get(n) == AxisType.Explicit) for axes in spec)


def in_type(mesh: Any, spec: Spec) -> NamedSharding:
    """What the type of an array says that is split so: its Explicit mesh axes."""
    return NamedSharding(mesh, to_partition_spec(explicit(mesh, spec)))


def typed(aval: Any, dims: Sequence[int], dtype: Any, dst: Spec) -> Any:
    """The result's aval: on Explicit mesh axes it says how the result is sharded."""
    made = {"shape": tuple(dims), "dtype": jnp.dtype(dtype or aval.dtype), "weak_type": False}
    mesh = aval.sharding.mesh
    if not mesh.empty and any(t == AxisType.Explicit for t in mesh.axis_types):
        made["sharding"] = in_type(mesh, dst)
    return aval.update(**made)


def retyped(aval: Any, mesh: Any) -> Any:
    """The type of an operand on this mesh, where it says something of another one's Auto axes."""
    own = getattr(aval, "sharding", None)
    if own is None or own.mesh.empty or own.mesh.shape == mesh.shape or any(own.spec):
        return aval
    return aval.update(sharding=NamedSharding(mesh.abstract_mesh, own.spec))


def to_partition_spec(spec: Sequence[Sequence[str]]) -> P:
    """JAX's form of a spec."""
    entries = [None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in spec]
    return P(*entries)


def axes_of(entry: Any) -> tuple[str, ...]:
    """The mesh axes that an entry of JAX's form names."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def free(names: tuple[str, ...], spec: Spec) -> tuple[str, ...]:
    """Those of the mesh axes that split nothing else."""
    taken = {name for entry in spec for name in entry}
    return tuple(name for name in names if name not in taken)


def front_of(axis: Any) -> tuple[str, ...]:
    """The mesh axes that split vmap's axis: by types, or as spmd_axis_name says."""
    return axes_of(axis.explicit_mesh_axis) or axes_of(axis.spmd_name)


def with_front(x: Any, front: tuple[str, ...]) -> Any:
    """The array, whose type says that these mesh axes split its first axis."""
    own = jax.typeof(x).sharding
    if own.mesh.empty:
        return x
    [entry] = to_partition_spec(explicit(own.mesh, (front,)))
    where = NamedSharding(own.mesh, P(entry, *own.spec[1:]))
    return x if where.spec == own.spec else jax.sharding.reshard(x, where)


def regrouped(x: Any, n_old: int, lead: Sequence[int], fronts: Sequence[tuple[str, ...]]) -> Any:
    """Other leading axes in the place of so many, which mesh axes split so, where types say it."""
    shape, own = (*lead, *x.shape[n_old:]), jax.typeof(x).sharding
    if own.mesh.empty:
        return x.reshape(shape)
    split = to_partition_spec(explicit(own.mesh, tuple(fronts)))
    where = NamedSharding(own.mesh, P(*split, *own.spec[n_old:]))
    return jax.lax.reshape(x, shape, out_sharding=where)


def as_split(x: Any, spec: Spec) -> Any:
    """The array, whose type says that it is split so."""
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
    """Number of parts into which an array axis is split by these mesh axes."""
    return 1 if mesh is None else math.prod(mesh.shape[a] for a in axes)


def on_mesh(x: Any, mesh: Any, names: Spec = ()) -> Any:
    """``x``, split so, which says in a trace for which devices it is: JAX looks for such words.

    Explicit axes have them in all types, and devices that are not known have no words.
    """
    if not isinstance(mesh, Mesh) or not _jax.is_auto(mesh):
        return x
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, to_partition_spec(names)))


def with_devices(mesh: Any, devices: Sequence) -> Any:
    """The mesh, of these devices."""
    if isinstance(devices[0], Imagined):
        return mesh
    places = np.empty(len(devices), object)
    places[:] = devices
    shape, kinds = tuple(mesh.shape.values()), mesh.axis_types
    return Mesh(places.reshape(shape), mesh.axis_names, axis_types=kinds)
