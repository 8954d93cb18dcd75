"""Ghost cells of global arrays: each device's part has cells of its neighbours around it."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from plait import _mesh, _mesh_rules

__all__ = ["exchange", "pad", "reduce", "unpad"]


def _per_axis(value: Any, ndim: int, name: str, argument: str) -> tuple[int, ...]:
    values = value if isinstance(value, Sequence) else (value,) * ndim
    if len(values) != ndim:
        raise ValueError(f"{name}: {argument} has {len(values)} entries for {ndim} axes")
    try:
        answer = tuple(operator.index(v) for v in values)
    except TypeError:
        raise TypeError(f"{name}: {argument} is {value!r}; expected integers") from None
    if min(answer) < 0:
        raise ValueError(f"{name}: {argument} {value} is negative")
    return answer


def _setup(
    x: Any, extents: Any, periodic: Any, mesh: Any, spec: Any, name: str
) -> tuple[Any, _mesh.Place, dict]:
    x, place = _mesh.locate(x, mesh, spec, name)
    given = {
        "extents": _per_axis(extents, x.ndim, name, "extents"),
        "periodic": _per_axis(periodic, x.ndim, name, "periodic"),
    }
    return x, place, given


def _check_padded(x: Any, place: _mesh.Place, extents: Sequence[int], name: str) -> None:
    local = _mesh_rules.local_shape(place.mesh, x.shape, place.spec)
    for i, (n, e) in enumerate(zip(local, extents, strict=True)):
        if n < 2 * e:
            raise ValueError(
                f"{name}: axis {i} has {n} cells on each device, less than its ghosts 2 x {e}; "
                "x is the padded array"
            )


def _on_padded(
    op: str, x: Any, extents: Any, periodic: Any, mesh: Any, spec: Any, donate: bool
) -> Array:
    name = op.replace("_", ".")
    x, place, given = _setup(x, extents, periodic, mesh, spec, name)
    _check_padded(x, place, given["extents"], name)
    return _mesh_rules.bind(op, x, place.mesh, place.spec, place.spec, donate=donate, **given)


def exchange(
    x: Array,
    extents: int | Sequence[int],
    *,
    periodic: bool | Sequence[bool] = True,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Fill the ghost cells of a padded array from the parts that own them.

    ``x`` is the global array of padded parts: along axis i every device's part has
    ``extents[i]`` ghost cells before and after its interior (see `pad`). Corners are right,
    and extents may be larger than the neighbour's interior. Beyond an end that is not
    periodic ghosts become zero.

    With ``donate=True`` the result takes the memory of ``x``, which is gone then; only ghosts
    are written.  Inside a jit pair it with ``donate_argnums``.

    Collective: over the mesh, in program order.  Shapes: padded to the same.
    Raises: ValueError for extents that do not fit, a size that the mesh does not divide.
    Adjoint: `reduce`.  Source: own; oracle ``tests/python/oracle.py::halo_exchange``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.exchange(jnp.array([0.0, 1, 2, 3, 0]), 1).tolist()
        [3.0, 1.0, 2.0, 3.0, 1.0]
    """
    return _on_padded("halo_exchange", x, extents, periodic, mesh, spec, donate)


def reduce(
    x: Array,
    extents: int | Sequence[int],
    *,
    periodic: bool | Sequence[bool] = True,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Add ghost cells into the cells that they are copies of, and zero them.

    ``donate`` as in `exchange`.

    Collective: over the mesh, in program order.  Shapes: padded to the same, as `exchange`.
    Raises: as `exchange`.
    Adjoint: `exchange`.  Source: own; oracle ``tests/python/oracle.py::halo_reduce``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.reduce(jnp.ones(5), 1).tolist()
        [0.0, 2.0, 1.0, 2.0, 0.0]
    """
    return _on_padded("halo_reduce", x, extents, periodic, mesh, spec, donate)


def _pad_part(extents: tuple[int, ...], part: Any) -> Any:
    return jnp.pad(part, [(e, e) for e in extents])


def _cut_part(extents: tuple[int, ...], part: Any) -> Any:
    return part[tuple(slice(e, n - e) for e, n in zip(extents, part.shape, strict=True))]


@functools.lru_cache(maxsize=4096)
def _on_parts(fun: Any, extents: tuple[int, ...], place: _mesh.Place) -> Any:
    """Applies ``fun`` to every device's part; nothing is communicated."""
    part = functools.partial(fun, extents)
    if place.mesh is None:
        return jax.jit(part)
    spec = _mesh_rules.to_partition_spec(place.spec)
    return jax.jit(jax.shard_map(part, mesh=place.mesh, in_specs=spec, out_specs=spec))


def pad(
    x: Array,
    extents: int | Sequence[int],
    *,
    periodic: bool | Sequence[bool] = True,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Give every device's part of ``x`` ghost cells, filled from its neighbours.

    Collective: over the mesh, in program order.
    Shapes: n along axis i to n + 2 * extents[i] * (parts along i).
    Raises: as `exchange`.
    Adjoint: `reduce`, then `unpad`.  Source: own; oracle ``tests/python/oracle.py::halo_pad``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.pad(jnp.array([1.0, 2, 3]), 1).tolist()
        [3.0, 1.0, 2.0, 3.0, 1.0]
    """
    x, place, given = _setup(x, extents, periodic, mesh, spec, "halo.pad")
    x = _on_parts(_pad_part, given["extents"], place)(x)  # fresh: the exchange is in place
    spec = place.spec
    return _mesh_rules.bind("halo_exchange", x, place.mesh, spec, spec, donate=True, **given)


def unpad(x: Array, extents: int | Sequence[int], *, mesh: Any = None, spec: Any = None) -> Array:
    """Cut the ghost cells off every device's part: the inverse of `pad`.

    Collective: no; nothing is communicated.
    Shapes: padded to interior.  Raises: as `exchange`.
    Adjoint: padding with zeros.  Source: own; oracle ``tests/python/oracle.py::halo_unpad``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.unpad(jnp.array([0.0, 1, 2, 3, 0]), 1).tolist()
        [1.0, 2.0, 3.0]
    """
    x, place, given = _setup(x, extents, True, mesh, spec, "halo.unpad")
    _check_padded(x, place, given["extents"], "halo.unpad")
    return _on_parts(_cut_part, given["extents"], place)(x)
