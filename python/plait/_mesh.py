"""Where a global array lives: its mesh and the split of its axes, found or given."""

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Iterator
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _args, _jax, _split
from plait._split import Spec, axes_of, explicit, parts, to_partition_spec


@dataclasses.dataclass(frozen=True)
class Place:
    """The mesh of an operand (None: one device) and its spec.

    is_taken: only the convention says the spec; not part of a program's key.
    """

    mesh: Any
    spec: Spec
    is_taken: bool = dataclasses.field(default=False, compare=False)

    @contextlib.contextmanager
    def judged(self) -> Iterator[None]:
        """Errors of sizes and splits in the ``with`` block say where the spec comes from."""
        try:
            yield
        except ValueError as error:
            if not self.is_taken:
                raise
            raise ValueError(
                f"{error}; the split of the operand is unknown, so {to_partition_spec(self.spec)} "
                "was assumed, in the order of the mesh's axes: pass spec= if it is another one"
            ) from None


class _Alone:
    """See `ALONE`."""

    axis_names, shape = (), {}


ALONE = _Alone()  # as mesh=: no mesh means one device, even if a trace cannot tell


def names_of(spec: Any, ndim: int, name: str, argument: str = "spec") -> Spec:
    """A PartitionSpec as one tuple of mesh axes for each array axis."""
    if not isinstance(spec, P | tuple | list):
        raise TypeError(
            f"{name}: {argument} is {type(spec).__name__}; expected jax.sharding.PartitionSpec"
        )
    if len(spec) > ndim:
        raise ValueError(f"{name}: {argument} {spec} has more entries than the array's {ndim} axes")
    try:
        return (*map(axes_of, spec), *[()] * (ndim - len(spec)))
    except TypeError:
        raise TypeError(f"{name}: {argument} {spec}; expected names of mesh axes") from None


def check_spec(
    spec: Spec, mesh: Any, shape: tuple[int, ...], name: str, argument: str = "spec"
) -> None:
    """Axes exist, none is used twice, and each array axis is divided evenly."""
    used = [a for axes in spec for a in axes]
    for axis in used:
        if mesh is None or axis not in mesh.shape:
            have = {} if mesh is None else dict(mesh.shape)
            raise ValueError(f"{name}: {axis!r} of the {argument} is no axis of the mesh {have}")
    if len(set(used)) != len(used):
        text = f"{name}: the {argument} {to_partition_spec(spec)} uses a mesh axis twice"
        raise ValueError(text)
    for i, (n, axes) in enumerate(zip(shape, spec, strict=True)):
        k = parts(mesh, axes)
        if n % k:
            raise ValueError(
                f"{name}: axis {i} has {n} elements, which {k} devices along mesh "
                f"{'axis' if len(axes) == 1 else 'axes'} {', '.join(axes)} do not divide; the "
                f"next size that they divide is {-(-n // k) * k} (pad the tail, and pass the shape "
                "without padding as shape=)"
            )


def data_of(shape: Any, dims: tuple[int, ...], first: int, name: str) -> tuple[int, ...]:
    """The shape of the data of a global array of these extents.

    shape gives it, for all axes or for those from `first` on: the axes before have no padding.
    """
    if shape is None:
        return dims
    try:
        given = tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(f"{name}: shape is {shape!r}; expected one integer for each axis") from None
    if len(given) not in (len(dims) - first, len(dims)):
        batch = f", or {len(dims)} with the batch" if first else ""
        raise ValueError(
            f"{name}: shape={given} has {len(given)} entries for {len(dims) - first} axes{batch}"
        )
    data = given if len(given) == len(dims) else (*dims[:first], *given)
    for i, (n, room) in enumerate(zip(data, dims, strict=True)):
        if not 0 <= n <= room or (i < first and n != room):
            raise ValueError(
                f"{name}: shape={given} says {n} along axis {i}, where the array has {room}"
            )
    return data


def only_data(x: Any, data: tuple[int, ...]) -> Any:
    """An array with zeros behind its data."""
    for axis, (n, room) in enumerate(zip(data, x.shape, strict=True)):
        if n < room:
            index = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
            x = jnp.where(index < n, x, jnp.zeros((), x.dtype))
    return x


def _check_devices(x: Any, mesh: Any, name: str) -> None:
    """An operand on a mesh of this shape must have its devices, in order; traces cannot tell."""
    found = _jax.eager_sharding(x) if isinstance(mesh, Mesh) else None
    if found is None or found[0] is mesh or found[0].shape != mesh.shape:
        return
    own, given = found[0].devices.ravel().tolist(), mesh.devices.ravel().tolist()
    if own != given:
        i = next(i for i, pair in enumerate(zip(own, given, strict=True)) if pair[0] != pair[1])
        raise ValueError(
            f"{name}: device {i} of mesh= is {given[i]}, but device {i} of the operand's mesh is "
            f"{own[i]}; move the operand (jax.device_put), or leave mesh= out"
        )


def homes_of(xs: dict[str, Any]) -> dict[str, Any]:
    """The meshes of arrays that are on one, with their devices if these are known."""
    homes = {}
    for argument, x in xs.items():
        found, typed = _jax.eager_sharding(x), jax.typeof(x).sharding.mesh
        if found is not None:
            homes[argument] = found[0]
        elif isinstance(_jax.underlying(x), jax.core.Tracer) and not typed.empty:
            homes[argument] = typed
    return homes


def check_homes(homes: dict[str, Any], name: str) -> None:
    """Operands are on meshes of one shape, with the same devices if these are known."""
    found = {argument: mesh for argument, mesh in homes.items() if mesh is not None}
    if len({tuple(mesh.shape.items()) for mesh in found.values()}) > 1:
        given = ", ".join(f"{argument} is on mesh {dict(m.shape)}" for argument, m in found.items())
        raise ValueError(f"{name}: {given}; expected one mesh")
    known = {argument: mesh for argument, mesh in found.items() if isinstance(mesh, Mesh)}
    ids = {argument: [d.id for d in mesh.devices.flat] for argument, mesh in known.items()}
    if len({tuple(of_one) for of_one in ids.values()}) > 1:
        given = ", ".join(f"{argument} is on devices {of_one}" for argument, of_one in ids.items())
        raise ValueError(
            f"{name}: {given}; expected the same devices; move an operand with "
            "jax.device_put(x, NamedSharding(mesh, spec))"
        )


def find_mesh(x: Any, mesh: Any, name: str) -> Any:
    """The mesh of an operand, or else of mesh= or of what surrounds the call."""
    typed = jax.typeof(x).sharding.mesh  # for any array, that of jax.set_mesh if it is set
    around = jax.sharding.get_abstract_mesh()
    is_own = not typed.empty and typed != around
    known = typed if is_own else around
    if mesh is not None and not known.empty and mesh.shape != known.shape:
        whose = "the operand's" if is_own else "jax.set_mesh's"
        raise ValueError(
            f"{name}: {whose} mesh is {dict(known.shape)}, mesh= is {dict(mesh.shape)}"
        )
    if is_own and not around.empty and typed.shape != around.shape:
        raise ValueError(
            f"{name}: the operand's mesh is {dict(typed.shape)}, jax.set_mesh's is "
            f"{dict(around.shape)}; expected one mesh"
        )
    _check_devices(x, mesh, name)
    if not typed.empty:
        return mesh if isinstance(mesh, Mesh) and _jax.is_auto(typed) else typed
    if not around.empty:
        return _jax.concrete_mesh() or around
    if mesh is not None:
        return None if mesh is ALONE else mesh
    array = _jax.underlying(x)
    is_traced = isinstance(array, jax.core.Tracer)
    is_split = isinstance(array, _jax.ArrayImpl) and len(array.devices()) > 1
    if jax.device_count() == 1 or not (is_traced or is_split):
        return None
    raise ValueError(
        f"{name}: no mesh: pass an operand that is on one (jax.device_put(x, "
        "NamedSharding(mesh, spec))), call the function under jax.set_mesh(mesh), or pass mesh="
    )


def _is_typed(mesh: Any, spec: Spec, own: Spec) -> bool:
    """Whether a type that names these axes belongs to an array with this split."""

    def split(names: Spec) -> Spec:  # only axes of several devices: JAX sometimes drops the others
        return tuple(tuple(n for n in axes if mesh.shape[n] > 1) for axes in names)

    return split(explicit(mesh, spec)) == split(own)


def _check_kinds(mesh: Any, spec: Spec, name: str) -> None:
    """Explicit and Auto axes must not split the same array axis: JAX loses the latter."""
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    for axes in spec:
        if len({kinds[n] == AxisType.Explicit for n in axes if mesh.shape[n] > 1}) > 1:
            raise ValueError(
                f"{name}: an array axis is split over the mesh axes {axes}, of which JAX keeps "
                "only the Explicit ones; give all of them one type"
            )


def find_spec(x: Any, mesh: Any, spec: Any, first: int, name: str) -> tuple[Spec, bool]:
    """The spec, and whether it comes from the convention.

    Explicit axes follow the type; Auto axes beside them follow spec= or the array.
    """
    typed = jax.typeof(x).sharding
    given = None if spec is None else names_of(spec, x.ndim, name)
    array = _jax.underlying(x)
    is_array = not isinstance(array, jax.core.Tracer)
    if is_array and isinstance(array.sharding, NamedSharding):
        known = names_of(array.sharding.spec, x.ndim, name)
    else:
        known = None
    if not typed.mesh.empty and any(t == AxisType.Explicit for t in typed.mesh.axis_types):
        own = names_of(typed.spec, x.ndim, name)
        if given is not None and not _is_typed(typed.mesh, given, own):
            raise ValueError(
                f"{name}: the operand's type says {typed.spec}, but spec= is {spec}; leave it out"
            )
        is_known = known is not None and _is_typed(typed.mesh, known, own)
        found = given or (known if is_known else own)
        _check_kinds(typed.mesh, found, name)
        return found, False
    if given is not None or known is not None:
        return given or known, False
    of_batches = _jax.axes_of_batches()
    split = [a for a, n in mesh.shape.items() if n > 1 and a not in of_batches]
    split = split[: x.ndim - first]
    return names_of(P(*[None] * first, *split), x.ndim, name), True


def has_unknown(x: Any, mesh: Any) -> bool:
    """Whether Auto axes of the mesh may split a traced array whose split nothing tells."""
    of_batches = _jax.axes_of_batches()
    kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
    free = [a for a, t in kinds if t == AxisType.Auto and mesh.shape[a] > 1 and a not in of_batches]
    return bool(free) and isinstance(_jax.underlying(x), jax.core.Tracer)


def check_global(name: str) -> None:
    """The call is not inside a manual region, where arrays are parts."""
    manual = _jax.manual_mesh()
    if manual is not None and manual.size > 1:
        raise TypeError(f"{name}: takes global arrays; call it outside jax.shard_map")


def locate(
    x: Any,
    mesh: Any,
    spec: Any,
    name: str,
    first: int = 0,
    turn: Any = None,
    is_any_size: bool = False,
    must_know: bool = False,
) -> tuple[Any, Place]:
    """The operand, laid out on its mesh, and its place.

    first: leading array axes that the convention for the spec leaves whole.
    turn: applied to the spec of the convention, for operands that another step has moved.
    is_any_size: an axis that the convention splits and the mesh does not divide stays whole.
    must_know: the result depends on the split, so the convention will not do.
    """
    check_global(name)
    if mesh is not None and not hasattr(mesh, "axis_names"):
        raise TypeError(f"{name}: mesh is {type(mesh).__name__}; expected jax.sharding.Mesh")
    x = jnp.asarray(_args.as_array(x, name))  # eager derivatives may pass NumPy arrays
    if x.ndim < 1:
        raise ValueError(f"{name}: an array of no axes; expected one or more")
    found = find_mesh(x, mesh, name)
    if found is None:
        if spec is not None and any(names_of(spec, x.ndim, name)):
            raise ValueError(f"{name}: spec={spec} without a mesh; pass mesh= too")
        return x, Place(None, ((),) * x.ndim)
    names, is_taken = find_spec(x, found, spec, first, name)
    is_guess = is_taken and isinstance(_jax.underlying(x), jax.core.Tracer) and _jax.is_auto(found)
    if is_guess and turn is not None:
        with Place(found, names, is_taken).judged():
            names = turn(names)
    if is_any_size and spec is None:
        sizes = zip(names, x.shape, strict=True)
        names = tuple(() if n % parts(found, axes) else axes for axes, n in sizes)
    if must_know and spec is None and has_unknown(x, found):
        raise ValueError(
            f"{name}: the result depends on how x is split, which is unknown in a trace on Auto "
            f"axes; pass spec= (in the order of the mesh's axes {to_partition_spec(names)})"
        )
    place = Place(found, names, is_taken)
    with place.judged():
        check_spec(names, found, x.shape, name)
    return put(x, found, names), place


def concrete(x: Any, place: Place) -> Place:
    """The place with its devices, if the operand has them.

    Steps without operands of their own, or with a cotangent on one device, then run on all devices,
    too.
    """
    found = _jax.eager_sharding(x)
    return place if found is None or place.mesh is None else Place(found[0], place.spec)


def _put_beside(x: Any, *other: Any) -> Any:
    """The eager call, as a checkpoint outside jax.jit runs each of its operations."""
    own, where = (getattr(array, "sharding", None) for array in (x, *other, None)[:2])
    if not isinstance(where, NamedSharding) or not _jax.is_auto(where.mesh):
        return x
    is_there = own is not None and own.device_set == where.device_set
    return x if is_there else jax.device_put(x, NamedSharding(where.mesh, P()))


@functools.cache
def _beside_p() -> Any:
    """The first operand, as if it depended on the second, of which only the devices matter.

    It is a primitive: jax.linear_transpose would take what depends on its operand for linear in it.
    """
    made = jex.Primitive("plait_mesh_beside")
    made.def_abstract_eval(lambda x, *_: x)
    made.def_impl(_put_beside)
    _jax.is_constant(made)
    mlir.register_lowering(made, lambda _ctx, x, *_: [x])
    ad.primitive_jvps[made] = lambda xs, tangents: (made.bind(*xs), tangents[0])
    ad.primitive_transposes[made] = lambda ct, x, *other: [
        ct if ad.is_undefined_primal(x) else None,
        *[None] * len(other),
    ]
    batching.primitive_batchers[made] = lambda xs, dims: (made.bind(*xs), dims[0])
    return made


def computed_beside(x: Any, other: Any) -> Any:
    """``x``, as if it depended on ``other``, which is on the devices where ``x`` is needed.

    When JAX takes derivatives, it moves values that depend on nothing in a loop out of the loop,
    and values that a checkpoint may keep out of the checkpoint. Out there, nothing says on which
    devices they are.
    """
    is_traced = isinstance(_jax.underlying(other), jax.core.Tracer)
    return _beside_p().bind(x, other) if is_traced else x


def put(x: Any, mesh: Any, names: Spec) -> Any:
    """Lays out on this mesh an operand that is on no mesh yet.

    In a program, an operand that is on the mesh names its devices once more: JAX does not look at
    the arrays that a function closes over for the devices to compile it for.
    """
    is_auto = _jax.is_auto(mesh)
    is_held = not is_auto and _jax.is_tracing()  # a function closes over it, without axes so far
    is_traced = is_held or isinstance(x, jax.core.Tracer)
    own = jax.typeof(x).sharding.mesh
    if not own.empty:
        is_silent = mesh.size > 1 and _jax.is_auto(own) and _jax.is_tracing()
        return _split.on_mesh(x, mesh, names) if is_silent else x
    if not (isinstance(mesh, Mesh) or (is_traced and not is_auto)):
        return x
    where = NamedSharding(mesh, to_partition_spec(names))
    if not is_traced:
        return jax.device_put(x, where)
    return jax.lax.with_sharding_constraint(x, where) if is_auto else _reshard(x, where, names)


def _reshard(x: Any, where: NamedSharding, names: Spec) -> Any:
    """In a program, for Explicit axes, or some; for known devices, by a program compiled for them.

    JAX finds a program's devices in its operands, in manual regions, and in the shardings that
    inner programs declare for their results. It does not look at reshards, nor at plait's own
    primitives.
    """
    typed = _split.in_type(where.mesh, names)  # Auto axes beside them only go to out_shardings

    def lay(x: Any) -> Any:
        return jax.sharding.reshard(x, typed)

    return jax.jit(lay, out_shardings=where)(x) if isinstance(where.mesh, Mesh) else lay(x)
