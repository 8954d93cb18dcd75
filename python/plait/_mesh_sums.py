"""Global primitives: the sum of all devices' parts, and its adjoint, a copy for each device.

Along some axes the operand of ``sums`` is split, and the result is as long as one part, and whole.
``copies`` is the reverse; nothing travels.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from plait import _groups, _mesh_rules
from plait._coll_rules import EXACT, SUM
from plait._ops import Chain
from plait._split import Spec


def _added(x: Any, room: Sequence[int]) -> Any:
    """The sum of parts that one device has, behind each other."""
    for a, n in enumerate(room):
        if x.shape[a] != n:
            x = jnp.sum(x.reshape(*x.shape[:a], -1, n, *x.shape[a + 1 :]), axis=a, dtype=x.dtype)
    return x


def _repeated(x: Any, room: Sequence[int]) -> Any:
    return jnp.tile(x, [n // k for n, k in zip(room, x.shape, strict=True)])


def lower(
    g: _mesh_rules.Global,
    ctx: Any,
    x: Any,
    *anchor: Any,
    mesh: Any,
    src: Spec,
    dst: Spec,
    room: Sequence[int],
    donate: bool,
    site: int,
) -> Any:
    """JAX's rule for both."""
    devices = _groups.devices_of("sum", ctx, 1 if mesh is None else mesh.size)
    is_sum = g.name == "sums"
    given = {"reduce": SUM, "replicated": EXACT, "donate": donate, "site": site}
    if is_sum:
        given["group"] = _group(mesh, src, dst, devices)

    def local(part: Any) -> Any:
        if len(devices) == 1:
            return _added(part, room) if is_sum else _repeated(part, room)
        return Chain().call("allreduce", part, **given)[0] if is_sum else part

    return _mesh_rules.lower_parts(ctx, x, local, len(devices), mesh, src, dst)


def _group(mesh: Any, src: Spec, dst: Spec, devices: tuple) -> _groups.Group:
    """The devices along the mesh axes that split the operand and not the result."""
    grid = tuple(_mesh_rules.grid_of(mesh).items())
    kept = {name for axes in dst for name in axes}
    over = {name for axes in src for name in axes} - kept
    return _groups.along(grid, tuple(name for name, _ in grid if name in over), devices)
