"""What ``comm=`` of the rank model means: a communicator, or axes of a manual region's mesh."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from plait import _comm, _core, _jax, _ops


@dataclasses.dataclass(frozen=True)
class Group:
    """The ranks of one call.

    comm: number of a communicator, or the word for all devices of the mesh.
    over, sizes: mesh axes that the ranks are numbered by, the first one slowest.
    rest: the mesh's other axes of several devices; each of their places is its own group.
    """

    comm: Any
    size: int
    over: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    rest: tuple[str, ...] = ()
    rest_sizes: tuple[int, ...] = ()
    mesh_axes: tuple[tuple[str, int], ...] = ()
    checks: bool = False

    @property
    def is_part(self) -> bool:
        """Whether there are several groups in the mesh."""
        return bool(self.rest)

    @property
    def params(self) -> dict:
        """Parameters that all operations of this family have."""
        return {
            "comm": self.comm,
            "over": self.over,
            "sizes": self.sizes,
            "copies": self.size,
            "checks": self.checks,
        }

    def mesh_rank(self, rank: int) -> int:
        """The rank in the communicator of a rank in the numbering by the named axes."""
        if not self.over:
            return rank
        place = dict(zip(self.over, np.unravel_index(rank, self.sizes), strict=True))
        number = 0
        for name, size in self.mesh_axes:
            number = number * size + int(place.get(name, 0))
        return number

    def _whole(self) -> "Group":
        axes = (*self.rest, *self.over)
        sizes = (*self.rest_sizes, *self.sizes)
        return dataclasses.replace(
            self, size=math.prod(sizes), over=axes, sizes=sizes, rest=(), rest_sizes=()
        )

    def part_allreduce(self, x: Any, name: str, token: Any) -> Any:
        """One reduction for all groups: an array with a row for each, identities elsewhere."""
        y, out = self._rows(x, name, token)
        return y if token is None else (y, out)

    def _rows(self, x: Any, name: str, token: Any) -> tuple[Any, Any]:
        row = jnp.zeros((), jnp.int32)
        for axis, size in zip(self.rest, self.rest_sizes, strict=True):
            row = row * size + jax.lax.axis_index(axis)
        is_mine = jnp.arange(math.prod(self.rest_sizes), dtype=jnp.int32) == row
        is_mine = is_mine.reshape(-1, *(1,) * x.ndim)
        rows = jnp.where(is_mine, x[None], _identity(name, x.dtype))
        code = _core.reductions().index(name)
        params = self._whole().params
        [every], out = _ops.call(
            "allreduce", rows, token=token, reduce=code, donate=False, **params
        )
        return jax.lax.dynamic_index_in_dim(every, row, 0, keepdims=False), out

    def part_bcast(self, x: Any, root: int, token: Any) -> tuple[Any, Any]:
        """The other ranks of each group add nothing to the root's array."""
        rank = jnp.zeros((), jnp.int32)
        for axis, size in zip(self.over, self.sizes, strict=True):
            rank = rank * size + jax.lax.axis_index(axis)
        if jnp.issubdtype(x.dtype, jnp.inexact) and x.dtype.itemsize > 1:
            only = jnp.where(rank == root, x, jnp.zeros((), x.dtype))
            return self._rows(only, "SUM", token)
        bits = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
        if not jnp.issubdtype(bits.dtype, jnp.integer):
            bits = jax.lax.bitcast_convert_type(x, jnp.uint8)
        only = jnp.where(rank == root, bits, jnp.zeros((), bits.dtype))
        y, out = self._rows(only, "BOR", token)
        if bits.dtype == x.dtype:
            return y, out
        is_bool = x.dtype == jnp.bool_
        return (y != 0 if is_bool else jax.lax.bitcast_convert_type(y, x.dtype)), out


def _identity(name: str, dtype: Any) -> Any:
    if name in ("MIN", "MAX"):
        if jnp.issubdtype(dtype, jnp.inexact):
            return jnp.array(jnp.inf if name == "MIN" else -jnp.inf, dtype)
        info = jnp.iinfo(dtype)
        return jnp.array(info.max if name == "MIN" else info.min, dtype)
    if name == "BAND":
        return jnp.array(True) if dtype == jnp.bool_ else ~jnp.zeros((), dtype)
    return jnp.array(1 if name in ("PROD", "LAND") else 0, dtype)


def _names(comm: Any) -> tuple[str, ...] | None:
    if isinstance(comm, str):
        return (comm,)
    if isinstance(comm, tuple) and comm and all(isinstance(c, str) for c in comm):
        return comm
    return None


def of(comm: Any, name: str, token: Any) -> Group:
    """The ranks that ``comm=`` of operation ``name`` means where it is called."""
    axes = _names(comm)
    mesh = _jax.manual_mesh()
    mode = "effect" if token is None else "token"
    if axes is None:
        if mesh is not None and mesh.size > 1:
            raise TypeError(
                f"{name}: comm={comm!r} in a manual region (shard_map) over {mesh.size} devices; "
                f"name mesh axes instead, e.g. comm={mesh.axis_names[0]!r}"
            )
        found = _comm.resolve(comm, name)
        return Group(found.id(mode), found.size)
    if mesh is None:
        raise TypeError(
            f"{name}: comm={comm!r} names mesh axes, but the call is not inside jax.shard_map"
        )
    sizes = dict(mesh.shape)
    for axis in axes:
        if axis not in sizes:
            raise ValueError(f"{name}: {axis!r} is no axis of the mesh {sizes}")
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: comm={comm!r} names an axis twice")
    free = [a for a in sizes if a not in mesh.manual_axes and sizes[a] > 1]
    if free:
        raise TypeError(f"{name}: shard_map must be manual over all axes, {free} are not")
    rest = tuple(a for a in sizes if a not in axes and sizes[a] > 1)
    return Group(
        comm=_ops.MESH if token is None else _ops.MESH + " token",
        size=math.prod(sizes[a] for a in axes),
        over=axes,
        sizes=tuple(sizes[a] for a in axes),
        rest=rest,
        rest_sizes=tuple(sizes[a] for a in rest),
        mesh_axes=tuple(sizes.items()),
        checks=_jax.checks_vma(),
    )
