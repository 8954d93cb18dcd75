"""The mesh model's operations: on global arrays, with exact rules, lowered to shard_map.

A global primitive maps the whole array to the whole array (redistribute: the identity), so
transposing exchanges the two layouts, and batching adds a whole axis. It is lowered to a manual
region over all mesh axes, around the operation of the C core on the local arrays.

Derivatives have a second operand, the anchor: an empty array on the mesh's devices. A cotangent may
be on one device only, and nothing else would say where the adjoint runs.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import ad, batching
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _eager, _groups, _jax, _layout, _merge, _platforms, _sites, _split, _waves
from plait._ops import Chain
from plait._split import Spec


def grid_of(mesh: Any) -> dict[str, int]:
    """Mesh axes and their extents as the core sees them: at most four."""
    sizes = {} if mesh is None else dict(mesh.shape)
    if len(sizes) > _layout.MAX_GRID:
        sizes = {name: n for name, n in sizes.items() if n > 1}
    if len(sizes) > _layout.MAX_GRID:
        raise ValueError(
            f"plait: a mesh of {len(sizes)} axes with several devices; at most {_layout.MAX_GRID}"
        )
    return sizes or {"": 1}


@dataclasses.dataclass(frozen=True)
class _Axes:
    """Some axes of a mesh, for callers that need only their extents."""

    shape: dict[str, int]


def _axes_of(mesh: Any, *specs: Spec) -> _Axes:
    """The axes that split something: devices that differ only along other axes have the same data.

    So the used axes make groups of their own, which need no messages from other groups.
    """
    used = {name for spec in specs for axes in spec for name in axes}
    return _Axes({name: n for name, n in grid_of(mesh).items() if name in used})


def _splits(grid: dict[str, int], spec: Spec) -> list[tuple[int, ...]]:
    names = list(grid)
    return [tuple(names.index(n) for n in axes if n in grid) for axes in spec]


def _words(
    mesh: Any,
    shape: Sequence[int],
    spec: Spec,
    dims: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The words of an array of this shape, in a global array of extents dims, padded at the tail.

    blocks: for each axis, the elements in the blocks that are dealt out in turn, or 0.
    """
    grid = grid_of(mesh)
    has_rest = dims is not None and (blocks is not None or tuple(dims) != tuple(shape))
    stored = local_shape(mesh, dims, spec) if has_rest else None
    return _layout.words(shape, tuple(grid.values()), _splits(grid, spec), stored, blocks)


def local_shape(mesh: Any, shape: Sequence[int], spec: Spec) -> tuple[int, ...]:
    """Shape of each device's part."""
    return tuple(n // _split.parts(mesh, axes) for n, axes in zip(shape, spec, strict=True))


def padded(mesh: Any, shape: Sequence[int], spec: Spec, block: int = 1) -> tuple[int, ...]:
    """Extents of the global array for data of this shape: each part has whole blocks."""
    return tuple(
        -(-n // (k * block)) * k * block if axes else n
        for n, axes in zip(shape, spec, strict=True)
        for k in (_split.parts(mesh, axes),)
    )


def _attrs_redist(mesh: Any, dims: Sequence[int], src: Spec, dst: Spec, given: dict) -> dict:
    of_src, of_dst = given.get("blocks", (None, None))
    return {
        "from": _words(mesh, given["shape"], src, dims, of_src),
        "to": _words(mesh, _turned(given), dst, given["room"], of_dst),
        "turn": int(given.get("turn", False)),
    }


def _turned(given: dict) -> tuple[int, ...]:
    """The shape of the data in the result of redistribute."""
    *lead, m, n = (1, 1, *given["shape"])
    return (*lead, n, m)[2:] if given.get("turn") else given["shape"]


def _attrs_fft(mesh: Any, dims: Sequence[int], src: Spec, dst: Spec, given: dict) -> dict:
    return {
        "from": _words(mesh, given["shape"], src, dims),
        "to": _words(mesh, given["out"], dst, given["room"]),
        **{name: given[name] for name in ("axes", "sign", "scale", "weight")},
        **given["waves"].attrs(),
    }


def _attrs_halo(mesh: Any, dims: Sequence[int], src: Spec, dst: Spec, given: dict) -> dict:
    return {
        "layout": _words(mesh, given["shape"], src, given["cells"]),
        **{name: given[name] for name in ("before", "after", "boundary", "bare")},
    }


def _batch_redist(given: dict, n: int) -> dict:
    extents = ("shape", "out", "room", "cells")
    more: dict[str, Any] = {name: (n, *given[name]) for name in extents if name in given}
    if "blocks" in given:
        more["blocks"] = tuple((0, *b) for b in given["blocks"])
    return given | more


def _batch_fft(given: dict, n: int) -> dict:
    return _batch_redist(given, n) | {"axes": tuple(a + 1 for a in given["axes"])}


def _batch_halo(given: dict, n: int) -> dict:
    widths = ("before", "after", "boundary")
    return _batch_redist(given, n) | {name: (0, *given[name]) for name in widths}


def _adjoint_of(given: dict, aval: Any) -> dict:
    """Parameters of the adjoint of an operation on aval: the extents change sides."""
    swapped: dict[str, Any] = {"room": tuple(aval.shape)}
    if "blocks" in given:
        swapped["blocks"] = given["blocks"][::-1]
    if "turn" in given:
        swapped["shape"] = _turned(given)
    if "waves" in given:
        swapped["waves"] = given["waves"].transposed()
    if "out" in given:
        swapped |= {"shape": given["out"], "out": given["shape"], "dtype": aval.dtype.name}
    return given | swapped


@dataclasses.dataclass(frozen=True)
class Global:
    """A global primitive: its name, its adjoint, attributes of the core's operation of that name.

    attrs: None if there is no such operation (`_mesh_sums`).

    Parameters of all: room, the result's extents. If arrays may have padding at their tail: shape,
    that of the operand's data. Of redistribute, if an axis is dealt out: blocks of operand and
    result, see `_words`; and turn, if the last two axes are exchanged: shape and blocks then
    describe each side as it is. Of fft: out, the shape of the result's data; its dtype. Of halos:
    cells, the extents without ghosts; shape, that of their data.
    """

    name: str
    adjoint: str
    attrs: Callable[..., dict] | None
    batch: Callable[[dict, int], dict]
    primitive: Any


def on_parts(
    function: Callable,
    mesh: Any,
    ins: Sequence[Spec],
    outs: Spec | list[Spec],
    check_vma: bool = False,
) -> Callable:
    """A function of all devices' parts as one of global arrays. outs: a list if it returns a list.

    Devices make operands without elements themselves: JAX 0.11.2 ends the process over a
    `jax.shard_map` with such operands.
    """
    is_list, as_given = isinstance(outs, list), _split.to_partition_spec
    to = [as_given(s) for s in outs] if is_list else as_given(outs)

    def whole(*args: Any) -> Any:
        is_given = [0 not in x.shape for x in args]
        own = [(local_shape(mesh, x.shape, s), x.dtype) for x, s in zip(args, ins, strict=True)]

        def parts(*given: Any) -> Any:
            left, every = iter(given), zip(is_given, own, strict=True)
            return function(*(next(left) if is_next else jnp.zeros(*new) for is_next, new in every))

        mapped = jax.shard_map(
            parts,
            mesh=mesh,
            in_specs=tuple(map(_split.to_partition_spec, itertools.compress(ins, is_given))),
            out_specs=to,
            check_vma=check_vma,
        )
        return mapped(*itertools.compress(args, is_given))

    return whole


def _lower(
    g: Global,
    ctx: Any,
    x: Any,
    *anchor: Any,
    mesh: Any,
    src: Spec,
    dst: Spec,
    donate: bool,
    site: int,
    **given: Any,
) -> Any:
    shape = ctx.avals_in[0].shape
    devices = _groups.devices_of(g.name, ctx, 1 if mesh is None else mesh.size)
    axes = _axes_of(mesh, src, dst)
    group = _groups.along(tuple(grid_of(mesh).items()), tuple(axes.shape), devices)
    dims, split, to, less = _merge.merged(g.name, shape, src, dst, given)
    params = g.attrs(axes, dims, split, to, less)
    if params.get("waves") and "cuda" in _jax.lowering_platforms(ctx):
        return _waves.lower(ctx, x, given | {"mesh": mesh, "src": src, "dst": dst})

    stays = g.name == "redistribute" and _stays(params, shape, given)

    def local(part: Any) -> Any:
        if stays:
            return part
        result = Chain().call(
            g.name,
            part.reshape(local_shape(mesh, dims, split)),
            group=group,
            out_shape=local_shape(mesh, less["room"], to),
            out_dtype=jnp.dtype(given.get("dtype", ctx.avals_in[0].dtype)),
            donate=donate,
            site=site,
            **params,
        )[0]
        return result.reshape(local_shape(mesh, given["room"], dst))

    return lower_parts(ctx, x, local, len(devices), mesh, src, dst)


def _stays(params: dict, dims: tuple[int, ...], given: dict) -> bool:
    """Whether a redistribution has nothing to do: not even padding to fill with zeros."""
    is_same = params["from"] == params["to"] and not params["turn"]
    return is_same and dims == given["shape"] == given["room"]


def lower_parts(
    ctx: Any, x: Any, local: Callable, n_devices: int, mesh: Any, src: Spec, dst: Spec
) -> Any:
    """Lowers a global primitive to a function of the devices' parts."""

    def whole(x: Any) -> list:
        if n_devices == 1:
            return [local(x)]
        own = jax.typeof(x).sharding
        where = _split.in_type(own.mesh if own.mesh.axis_names else mesh, src)
        if where.spec != own.spec:  # for cotangents, whose type vmap has made
            x = jax.sharding.reshard(x, where)
        return [on_parts(local, mesh, [src], dst)(x)]

    return _jax.lower_traced(ctx, whole, [x])


def _transpose(
    g: Global, cts: Sequence, x: Any, *anchor: Any, src: Spec, dst: Spec, **given: Any
) -> list:
    if type(cts[0]) is ad.Zero:  # zero on all devices
        return [None] * (1 + len(anchor))
    adjoint = globals_()[g.adjoint].primitive
    given = _adjoint_of(given, x.aval) | {"donate": False}
    return [*adjoint.bind(cts[0], *anchor, src=dst, dst=src, **given), *[None] * len(anchor)]


def _anchor(x: Any, mesh: Any) -> list:
    """The second operand of derivatives at x."""
    if mesh is None or mesh.size == 1:
        return []
    array = _jax.underlying(x)
    empty = jnp.zeros((0,), jnp.float32)
    if isinstance(array, jax.core.Tracer):
        return [_split.on_mesh(empty, mesh)]
    if not isinstance(array.sharding, NamedSharding):
        return [empty]
    return [jax.device_put(empty, NamedSharding(array.sharding.mesh, P()))]


def _jvp(g: Global, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    results = g.primitive.bind(*primals, **params)
    if not jnp.issubdtype(results[0].dtype, jnp.inexact):
        return results, [_jax.zero_tangent(results[0])]
    anchor = list(primals[1:]) or _anchor(primals[0], params["mesh"])
    params |= {"donate": False}
    return results, g.primitive.bind(ad.instantiate_zeros(tangents[0]), *anchor, **params)


def _batch(g: Global, axis: Any, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    """axis: vmap's, which may say which mesh axes split it.

    On each side of a redistribution, those of them split it that split nothing else there.
    """
    if all(d is None for d in dims):
        return g.primitive.bind(*args, **params), [None]
    x = jnp.moveaxis(args[0], dims[0], 0)
    mesh, src, dst, donate, site = (params.pop(k) for k in ("mesh", "src", "dst", "donate", "site"))
    front: tuple[str, ...] = ()
    typed = jax.typeof(x).sharding
    if not typed.mesh.empty and typed.spec:
        front = _split.axes_of(typed.spec[0])
    found = None if front or mesh is None else _jax.eager_sharding(args[0])
    if found is not None and found[0].shape == mesh.shape:  # Auto axes: only the array tells
        front = _split.axes_of(found[1][dims[0]])
    if not front and mesh is not None:
        told = _split.front_of(axis)
        front = told if x.shape[0] % _split.parts(mesh, told) == 0 else ()
    sides = (src, dst) if g.name == "redistribute" else ((*src, *dst),) * 2
    before, after = (_split.free(front, side) for side in sides)
    params = g.batch(params, x.shape[0])
    _check_axes(g, x.shape, (before, *src), (after, *dst), params)
    out = g.primitive.bind(
        _split.with_front(x, before),
        *args[1:],
        mesh=mesh,
        src=(before, *src),
        dst=(after, *dst),
        donate=donate,
        site=site,
        **params,
    )
    return out, [0]


def _check_axes(g: Global, dims: Sequence[int], src: Spec, dst: Spec, given: dict) -> None:
    """ValueError for an array of more axes than the core has; allreduce has no such limit."""
    if g.attrs is not None:
        _merge.merged(g.name, dims, src, dst, given)


def define(
    primitive: Any,
    *,
    results: Callable[..., list],
    lower: Callable,
    batch: Callable | None = None,
    jvp: Callable | None = None,
    transpose: Callable | None = None,
    donated: Callable[[Sequence, dict], tuple[int, ...]] = lambda args, params: (),
) -> None:
    """Makes a primitive work on global arrays: in program order, lowered for its devices.

    results: avals from those of the operands and the parameters; lower, jvp, transpose: JAX's
    rules; batch: JAX's rule, from the axis, the operands and their batch dimensions; donated: the
    operands whose memory an eager call may take.
    """
    primitive.multiple_results = True
    primitive.def_effectful_abstract_eval(
        lambda *avals, **params: (results(*avals, **params), {_jax.EFFECT})
    )
    _eager.define(primitive, donated)
    _jax.needs_devices(primitive)
    _jax.saves_unless_complex(primitive)
    name = primitive.name.removeprefix("plait_mesh_")
    _platforms.lower(primitive, functools.partial(_platforms.lower_global, lower), name)
    if batch is not None:
        batching.fancy_primitive_batchers[primitive] = functools.partial(_rule, primitive, batch)
    if jvp is not None:
        ad.primitive_jvps[primitive] = jvp
    if transpose is not None:
        ad.primitive_transposes[primitive] = functools.partial(_transposed, transpose)


def _transposed(transpose: Callable, cts: Sequence, *args: Any, **params: Any) -> list:
    """Cotangents with the operands' types, which also say how vmap's axes are split."""
    found = zip(transpose(cts, *args, **params), args, strict=True)
    return [None if ct is None else _split.as_typed(ct, x.aval) for ct, x in found]


def _rule(
    primitive: Any, batch: Callable, axis: Any, args: Sequence, dims: Sequence, **params: Any
) -> tuple:
    """Some versions of JAX ask even if no operand has the axis."""
    if all(d is None for d in dims):
        results = primitive.bind(*args, **params)
        return results, [None] * len(results)
    with _jax.beside(axis.explicit_mesh_axis):
        return batch(axis, args, dims, **params)


def _run(run: Callable, x: Any, *anchor: Any, **params: Any) -> list:
    """An eager call, also with operands that JAX makes from nothing, on no particular device.

    Such as the zeros from which the solver in a derivative starts. If no devices of the mesh are
    known, such an operand stays whole where it is.
    """
    mesh, src = params["mesh"], params["src"]
    is_split = mesh is not None and mesh.size > 1
    if is_split and not anchor and isinstance(x, _jax.ArrayImpl) and not x.committed:
        known = mesh if isinstance(mesh, Mesh) else _jax.concrete_mesh()
        if known is not None and known.shape == mesh.shape:
            x = jax.device_put(x, NamedSharding(known, _split.to_partition_spec(src)))
        elif "blocks" not in params and "cells" not in params:  # the split changes no numbers
            alone = ((),) * len(src)
            params |= {"mesh": None, "src": alone, "dst": alone, "donate": False}
    return run(x, *anchor, **params)


def _make(
    name: str, adjoint: str, batch: Callable, attrs: Callable | None, lower: Callable = _lower
) -> Global:
    """A global primitive; lower: its rule for JAX, which gets the primitive first."""
    g = Global(name, adjoint, attrs, batch, jex.Primitive("plait_mesh_" + name))
    define(
        g.primitive,
        results=lambda aval, *anchor, dst, room, dtype=None, **rest: [
            _split.typed(aval, room, dtype, dst)
        ],
        lower=functools.partial(lower, g),
        jvp=functools.partial(_jvp, g),
        transpose=functools.partial(_transpose, g),
        donated=lambda args, params: (0,) if params["donate"] else (),
    )
    g.primitive.def_impl(functools.partial(_run, g.primitive.impl))
    batching.fancy_primitive_batchers[g.primitive] = functools.partial(_batch, g)
    return g


@functools.cache
def globals_() -> dict[str, Global]:
    """The global primitives by name, most of them that of the core's operation."""
    from plait import _mesh_sums

    made = (
        _make("redistribute", "redistribute", _batch_redist, _attrs_redist),
        _make("fft", "fft", _batch_fft, _attrs_fft),
        _make("halo_exchange", "halo_reduce", _batch_halo, _attrs_halo),
        _make("halo_reduce", "halo_exchange", _batch_halo, _attrs_halo),
        _make("sums", "copies", _batch_redist, None, _mesh_sums.lower),
        _make("copies", "sums", _batch_redist, None, _mesh_sums.lower),
    )
    return {g.name: g for g in made}


def bind(
    name: str,
    x: Any,
    mesh: Any,
    src: Spec,
    dst: Spec,
    *,
    dims: Sequence[int] | None = None,
    donate: bool = False,
    **given: Any,
) -> Any:
    """Applies a global primitive; donate: the result takes x's memory if the parts are alike.

    dims: extents of the result, if not the operand's.
    """
    dims = tuple(x.shape if dims is None else dims)
    is_alike = local_shape(mesh, x.shape, src) == local_shape(mesh, dims, dst)
    is_alike = is_alike and given.get("dtype", x.dtype) == x.dtype
    params = {"mesh": mesh, "src": src, "dst": dst, "room": dims, "donate": donate and is_alike}
    g = globals_()[name]
    _check_axes(g, x.shape, src, dst, given | {"room": dims})
    return g.primitive.bind(x, **params, **given, site=_sites.here())[0]
