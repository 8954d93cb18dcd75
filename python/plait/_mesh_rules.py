"""The mesh model's operations: on global arrays, with exact rules, lowered to shard_map.

A global primitive maps the whole array to the whole array (redistribute: the identity), so
that transposing exchanges the two layouts and batching adds a whole axis. Its lowering is a
manual region over all mesh axes around the operation of the C core on the local arrays.

Derivatives have a second operand, the anchor: an empty array on the mesh's devices. A
cotangent may be on one device only, and nothing else would say where the adjoint runs.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _eager, _groups, _jax, _layout, _sites
from plait._ops import Chain, Rules, rules

Spec = tuple[tuple[str, ...], ...]  # names of mesh axes for each array axis


for _name in ("redistribute", "fft", "halo_exchange", "halo_reduce"):
    rules(
        _name,
        Rules(
            results=lambda avals, params: [avals[0].update(shape=params["out_shape"])],
            transpose=None,  # derivatives are those of the global primitive
        ),
    )


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


def _splits(grid: dict[str, int], spec: Spec) -> list[tuple[int, ...]]:
    names = list(grid)
    return [tuple(names.index(n) for n in axes if n in grid) for axes in spec]


def _words(mesh: Any, shape: Sequence[int], spec: Spec) -> tuple[int, ...]:
    grid = grid_of(mesh)
    return _layout.words(shape, tuple(grid.values()), _splits(grid, spec))


def parts(mesh: Any, axes: Sequence[str]) -> int:
    """Number of parts into which an array axis is split by these mesh axes."""
    return 1 if mesh is None else math.prod(mesh.shape[a] for a in axes)


def local_shape(mesh: Any, shape: Sequence[int], spec: Spec) -> tuple[int, ...]:
    """Shape of each device's part."""
    return tuple(n // parts(mesh, axes) for n, axes in zip(shape, spec, strict=True))


def _attrs_fft(mesh: Any, shape: Sequence[int], src: Spec, dst: Spec, given: dict) -> dict:
    return {"from": _words(mesh, shape, src), "to": _words(mesh, shape, dst), **given}


def _attrs_halo(mesh: Any, shape: Sequence[int], src: Spec, dst: Spec, given: dict) -> dict:
    interior = [
        n - 2 * e * parts(mesh, axes)
        for n, e, axes in zip(shape, given["extents"], src, strict=True)
    ]
    return {"layout": _words(mesh, interior, src), **given}


def _batch_fft(given: dict) -> dict:
    return given | {"axes": tuple(a + 1 for a in given["axes"])}


def _batch_halo(given: dict) -> dict:
    return {"extents": (0, *given["extents"]), "periodic": (1, *given["periodic"])}


@dataclasses.dataclass(frozen=True)
class Global:
    """A global primitive: its name in the core, its adjoint, its attributes."""

    name: str
    adjoint: str
    attrs: Callable[..., dict]
    batch: Callable[[dict], dict]
    primitive: Any


def _typed(aval: Any, dst: Spec) -> Any:
    """The result's aval: on Explicit mesh axes it says how the result is sharded."""
    mesh = aval.sharding.mesh
    if mesh.empty or not any(t == AxisType.Explicit for t in mesh.axis_types):
        return aval
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    names = [tuple(n for n in axes if types[n] == AxisType.Explicit) for axes in dst]
    return aval.update(sharding=NamedSharding(mesh, to_partition_spec(names)))


def to_partition_spec(spec: Sequence[Sequence[str]]) -> P:
    """JAX's form of a spec."""
    entries = [None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in spec]
    return P(*entries)


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
    devices = _jax.lowering_devices(ctx)
    if devices is None:
        raise TypeError(f"plait.{g.name}: JAX does not say for which devices this is compiled")
    if len(devices) != (1 if mesh is None else mesh.size):
        raise ValueError(
            f"plait.{g.name}: compiled for {len(devices)} devices, the mesh has {mesh.size}: put "
            "the operand on the mesh first (jax.device_put(x, NamedSharding(mesh, spec)))"
        )
    group = _groups.of_devices(devices)
    params = g.attrs(mesh, shape, src, dst, given)

    def local(part: Any) -> Any:
        return Chain().call(
            g.name,
            part,
            group=group,
            out_shape=local_shape(mesh, shape, dst),
            donate=donate,
            site=site,
            **params,
        )[0]

    def whole(x: Any) -> list:
        if len(devices) == 1:
            return [local(x)]
        mapped = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=to_partition_spec(src),
            out_specs=to_partition_spec(dst),
            check_vma=False,
        )
        return [mapped(x)]

    return _jax.lower_traced(ctx, whole, [x])


def _transpose(
    g: Global, cts: Sequence, x: Any, *anchor: Any, src: Spec, dst: Spec, **given: Any
) -> list:
    ct = ad.instantiate_zeros(cts[0])
    adjoint = globals_()[g.adjoint].primitive
    given |= {"donate": False}
    return [*adjoint.bind(ct, *anchor, src=dst, dst=src, **given), *[None] * len(anchor)]


def _anchor(x: Any, mesh: Any) -> list:
    """The second operand of derivatives at x."""
    if mesh is None or mesh.size == 1:
        return []
    array = _jax.underlying(x)
    empty = jnp.zeros((0,), jnp.float32)
    if isinstance(array, jax.core.Tracer) or not isinstance(array.sharding, NamedSharding):
        return [empty]
    return [jax.device_put(empty, NamedSharding(array.sharding.mesh, P()))]


def _jvp(g: Global, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    results = g.primitive.bind(*primals, **params)
    if not jnp.issubdtype(results[0].dtype, jnp.inexact):
        return results, [_jax.zero_tangent(results[0])]
    anchor = list(primals[1:]) or _anchor(primals[0], params["mesh"])
    params |= {"donate": False}
    return results, g.primitive.bind(ad.instantiate_zeros(tangents[0]), *anchor, **params)


def _batch(g: Global, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    x = jnp.moveaxis(args[0], dims[0], 0)
    mesh, src, dst, donate, site = (params.pop(k) for k in ("mesh", "src", "dst", "donate", "site"))
    front: tuple[str, ...] = ()
    typed = jax.typeof(x).sharding
    if not typed.mesh.empty and typed.spec and typed.spec[0] is not None:
        front = (typed.spec[0],) if isinstance(typed.spec[0], str) else tuple(typed.spec[0])
    out = g.primitive.bind(
        x,
        *args[1:],
        mesh=mesh,
        src=(front, *src),
        dst=(front, *dst),
        donate=donate,
        site=site,
        **g.batch(params),
    )
    return out, [0]


def _make(name: str, adjoint: str, attrs: Callable, batch: Callable) -> Global:
    primitive = jex.Primitive("plait_mesh_" + name)
    primitive.multiple_results = True
    g = Global(name, adjoint, attrs, batch, primitive)
    primitive.def_effectful_abstract_eval(
        lambda aval, *anchor, dst, **rest: ([_typed(aval, dst)], {_jax.EFFECT})
    )
    _eager.define(primitive, lambda params: (0,) if params["donate"] else ())
    _jax.needs_devices(primitive)
    _jax.saves_unless_complex(primitive)
    mlir.register_lowering(primitive, functools.partial(_lower, g), platform="cpu")
    ad.primitive_jvps[primitive] = functools.partial(_jvp, g)
    ad.primitive_transposes[primitive] = functools.partial(_transpose, g)
    batching.primitive_batchers[primitive] = functools.partial(_batch, g)
    return g


@functools.cache
def globals_() -> dict[str, Global]:
    """The global primitives by the name of the core's operation."""

    def same(given):
        return given

    made = (
        _make("redistribute", "redistribute", _attrs_fft, same),
        _make("fft", "fft", _attrs_fft, _batch_fft),
        _make("halo_exchange", "halo_reduce", _attrs_halo, _batch_halo),
        _make("halo_reduce", "halo_exchange", _attrs_halo, _batch_halo),
    )
    return {g.name: g for g in made}


def bind(
    name: str, x: Any, mesh: Any, src: Spec, dst: Spec, *, donate: bool = False, **given: Any
) -> Any:
    """Applies a global primitive; donate: the result takes x's memory where parts are alike."""
    is_alike = local_shape(mesh, x.shape, src) == local_shape(mesh, x.shape, dst)
    params = {"mesh": mesh, "src": src, "dst": dst, "donate": donate and is_alike, **given}
    params["site"] = _sites.here()
    return globals_()[name].primitive.bind(x, **params)[0]
