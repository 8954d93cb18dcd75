"""The ranks of one call: a communicator's, or the devices along axes of a manual region's mesh."""

import dataclasses
import math
from typing import Any

import numpy as np
from plait import _comm, _jax


@dataclasses.dataclass(frozen=True)
class Group:
    """What ``comm=`` means at a call, as the parameter ``group`` of its primitive.

    comm: number of the communicator; None: one over devices, known when the program is lowered.
    rank: this process's; None over devices, where one program serves every rank.
    mode: calls by effect, calls by token, and their tangents have a communicator each.
    mesh: axes of the manual region's mesh; every place along axes not in ``over`` is a group
        of its own.
    over: mesh axes that number the ranks, the first one slowest.
    checks: the region tracks what varies over its axes (check_vma).
    """

    comm: int | None
    size: int
    rank: int | None = None
    mode: str = "effect"
    mesh: tuple[tuple[str, int], ...] = ()
    over: tuple[str, ...] = ()
    checks: bool = False

    def of_tangents(self) -> "Group":
        """The same ranks, for tangents, whose messages must not meet others."""
        return self._in_mode(self.mode + _comm.TANGENTS)

    def by_effect(self) -> "Group":
        """The same ranks, for calls ordered by the effect."""
        return self._in_mode("effect")

    def _in_mode(self, mode: str) -> "Group":
        comm = None if self.comm is None else _comm.of_number(self.comm).id(mode)
        return dataclasses.replace(self, comm=comm, mode=mode)

    def number(self, devices: tuple | None) -> int:
        """The registry's number; ``devices``: those that the program is lowered for."""
        if self.comm is not None:
            return self.comm
        if devices is None:
            raise TypeError(
                "plait: the devices of this shard_map's mesh are not known while the program is "
                "compiled; pass the mesh itself to shard_map (mesh=) or use jax.set_mesh. Before "
                "JAX 0.11 a shard_map in another one also needs plait.region around it: else XLA "
                "aborts"
            )
        return _comm.over_devices(self._split(devices), self.mode)

    def _split(self, devices: tuple) -> tuple[tuple, ...]:
        """The devices of every group, in order of rank."""
        names, sizes = zip(*self.mesh, strict=True)
        places = np.arange(len(devices)).reshape(sizes)
        rest = [i for i, name in enumerate(names) if name not in self.over]
        order = [*rest, *(names.index(name) for name in self.over)]
        rows = places.transpose(order).reshape(-1, self.size)
        return tuple(tuple(devices[i] for i in row) for row in rows)


def of_devices(devices: tuple) -> Group:
    """One group of all devices, in their order."""
    return Group(_comm.over_devices((tuple(devices),)), len(devices))


def devices_of(name: str, ctx: Any, n_meant: int) -> tuple:
    """The devices of an operation's mesh: those that its program is compiled for."""
    devices = _jax.lowering_devices(ctx)
    if devices is None:
        raise TypeError(f"plait.{name}: {_jax.NO_DEVICES}")
    if len(devices) != n_meant:
        raise ValueError(
            f"plait.{name}: compiled for {len(devices)} devices, but the mesh has {n_meant}. Put "
            "the operand on the mesh first (jax.device_put(x, NamedSharding(mesh, spec))) and pass "
            "it as an argument: JAX takes the devices neither from arrays that a function closes "
            "over nor from in_shardings=. Or call the function within jax.set_mesh(mesh). If it is "
            "called there already, in the derivative of a loop outside jax.jit, pass mesh= (a "
            "jax.sharding.Mesh) or compile the derivative"
        )
    return tuple(devices)


def along(mesh: tuple[tuple[str, int], ...], over: tuple[str, ...], devices: tuple) -> Group:
    """Groups of a mesh's devices, one for each place along the axes not in ``over``."""
    size = math.prod(n for name, n in mesh if name in over)
    group = Group(None, size, mesh=mesh, over=over)
    return Group(group.number(tuple(devices)), size)


def of_each(devices: tuple) -> Group:
    """A group of its own for each device."""
    return Group(_comm.over_devices(tuple((d,) for d in devices)), 1)


def _names(comm: Any) -> tuple[str, ...] | None:
    if isinstance(comm, str):
        return (comm,)
    if isinstance(comm, tuple) and comm and all(isinstance(c, str) for c in comm):
        return comm
    return None


def of(comm: Any, name: str, token: Any) -> Group:
    """The ranks that ``comm=`` means at a call of operation ``name``."""
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
        return Group(found.id(mode), found.size, found.rank, mode)
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
    return Group(
        comm=None,
        size=math.prod(sizes[a] for a in axes),
        mode=mode,
        mesh=tuple(sizes.items()),
        over=axes,
        checks=_jax.checks_vma(),
    )


def of_processes(comm: Any, name: str, token: Any, instead: str) -> Group:
    """As `of`, for operations whose arguments differ from rank to rank."""
    mesh = _jax.manual_mesh()
    if _names(comm) is not None or (mesh is not None and mesh.size > 1):
        raise TypeError(f"{name}: not possible in shard_map; use {instead} there")
    return of(comm, name, token)
