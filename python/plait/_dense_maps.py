"""Functions of devices' parts of dealt matrices, under batches that mesh axes split.

Each function is a primitive: JAX's rules for a `jax.shard_map` handle batches over Explicit axes
only in forward mode. The primitive holds a function of the rank and the parts, whose derivatives
are functions of parts again. It becomes a manual region over all mesh axes when it is lowered.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad, batching, mlir
from plait import _jax, _mesh_rules, _platforms, _split
from plait._split import Spec


def of_parts(
    function: Callable, mesh: Any, axes: tuple[str, ...], ins: Sequence[Spec], to: Spec, args: Any
) -> Any:
    """function(rank, parts of args); axes: the axes that number the ranks; ins, to: the splits."""
    return parts_p.bind(*args, function=function, mesh=mesh, axes=axes, ins=tuple(ins), to=to)


def added(x: Any, mesh: Any, over: tuple[str, ...], spec: Spec) -> Any:
    """The sum along axis 0, which has one element for each device along the mesh axes `over`.

    spec: how the other axes are split.
    """
    if over:
        dims = (1, *x.shape[1:])
        x = _mesh_rules.bind("sums", x, mesh, (over, *spec), ((), *spec), dims=dims)
    return jnp.squeeze(x, 0)


def _local(mesh: Any, avals: Sequence, ins: Sequence[Spec]) -> list:
    shapes = (_mesh_rules.local_shape(mesh, x.shape, s) for x, s in zip(avals, ins, strict=True))
    return [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(shapes, avals, strict=True)]


def _result(*avals: Any, function: Callable, mesh: Any, axes: tuple, ins: tuple, to: Spec) -> Any:
    rank = jax.ShapeDtypeStruct((), jnp.int32)
    with _jax.use_abstract_mesh(_jax.NO_ABSTRACT_MESH):
        part = jax.eval_shape(function, rank, *_local(mesh, avals, ins))
    pairs = zip(part.shape, to, strict=True)
    shape = tuple(n * _split.parts(mesh, names) for n, names in pairs)
    return _split.typed(avals[0], shape, part.dtype, to)


def _lower(ctx: Any, *args: Any, function: Callable, mesh: Any, axes: tuple, ins: tuple, to: Spec):
    def local(*parts: Any) -> list:
        return [function(lax.axis_index(axes) if axes else jnp.int32(0), *parts)]

    return _jax.lower_traced(ctx, _mesh_rules.on_parts(local, mesh, ins, [to]), args)


def _batch(axis: Any, args: Sequence, dims: Sequence, **params: Any) -> tuple:
    if all(d is None for d in dims):
        return parts_p.bind(*args, **params), None
    mesh, ins, to = params["mesh"], params["ins"], params["to"]
    taken = {name for spec in (*ins, to) for names in spec for name in names}
    front = tuple(name for name in _split.front_of(axis) if name not in taken)
    front = front if axis.size % _split.parts(mesh, front) == 0 else ()
    axes = [None if d is None else 0 for d in dims]
    moved = [
        x if d is None else _split.with_front(jnp.moveaxis(x, d, 0), front)
        for x, d in zip(args, dims, strict=True)
    ]
    params |= {
        "function": jax.vmap(params["function"], (None, *axes)),
        "ins": tuple(s if d is None else (front, *s) for s, d in zip(ins, dims, strict=True)),
        "to": (front, *to),
    }
    return parts_p.bind(*moved, **params), 0


def _merged(given: Sequence, is_next: Sequence[bool], rest: Sequence) -> list:
    """The next item of given if is_next, else the next item of rest."""
    first, second = iter(given), iter(rest)
    return [next(first) if here else next(second) for here in is_next]


def _jvp(primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    y = parts_p.bind(*primals, **params)
    is_active = [type(dx) is not ad.Zero for dx in tangents]
    if not any(is_active) or not jnp.issubdtype(y.dtype, jnp.inexact):
        return y, _jax.zero_tangent(y)
    n, function = len(primals), params["function"]

    def slope(rank: Any, *parts: Any) -> Any:
        xs, dxs = parts[:n], parts[n:]
        rest = [x for x, here in zip(xs, is_active, strict=True) if not here]
        active = [x for x, here in zip(xs, is_active, strict=True) if here]

        def of_active(*active: Any) -> Any:
            return function(rank, *_merged(active, is_active, rest))

        return jax.jvp(of_active, tuple(active), tuple(dxs))[1]

    moved = [dx for dx, here in zip(tangents, is_active, strict=True) if here]
    more = [s for s, here in zip(params["ins"], is_active, strict=True) if here]
    params |= {"function": slope, "ins": (*params["ins"], *more)}
    return y, parts_p.bind(*primals, *moved, **params)


def _transpose(ct: Any, *args: Any, **params: Any) -> list:
    """A value that all devices have alike gets the sum of their cotangents."""
    mesh, ins, to, function = (params[k] for k in ("mesh", "ins", "to", "function"))
    is_unknown = [ad.is_undefined_primal(x) for x in args]
    known = [x for x, here in zip(args, is_unknown, strict=True) if not here]
    specs = [s for s, here in zip(ins, is_unknown, strict=True) if not here]
    avals = [x.aval if here else x for x, here in zip(args, is_unknown, strict=True)]
    like = [x for x, here in zip(_local(mesh, avals, ins), is_unknown, strict=True) if here]
    used = [name for spec in (*ins, to) for names in spec for name in names]

    def adjoint(i: int, rank: Any, *parts: Any) -> Any:
        *known, ct = parts

        def of_unknown(*unknown: Any) -> Any:
            return function(rank, *_merged(unknown, is_unknown, known))

        return jax.linear_transpose(of_unknown, *like)(ct)[i][None]

    found: list = [None] * len(args)
    for i, place in enumerate(k for k, here in enumerate(is_unknown) if here):
        own = {name for names in ins[place] for name in names}
        alike = tuple(dict.fromkeys(name for name in used if name not in own))
        given = {"function": functools.partial(adjoint, i), "ins": (*specs, to)}
        given["to"] = (alike, *ins[place])
        every = parts_p.bind(*known, ad.instantiate_zeros(ct), **(params | given))
        total = added(every, mesh, alike, ins[place])
        found[place] = _split.as_typed(total, args[place].aval)
    return found


def _run(*args: Any, **params: Any) -> Any:
    with _jax.compiled():
        return jax.jit(functools.partial(parts_p.bind, **params))(*args)


parts_p = jex.Primitive("plait_mesh_parts")
parts_p.def_impl(_run)
parts_p.def_abstract_eval(_result)
mlir.register_lowering(parts_p, functools.partial(_platforms.lower_global, _lower))
batching.fancy_primitive_batchers[parts_p] = _batch
ad.primitive_jvps[parts_p] = _jvp
ad.primitive_transposes[parts_p] = _transpose
