"""Ghost cells of global arrays: each device's part is surrounded by cells of its neighbours.

Arguments mean the same in all functions; `pad` explains them.
"""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from plait import _args, _coll_rules, _core, _mesh, _mesh_rules, _split

__all__ = ["exchange", "fold", "pad", "reduce", "unpad"]

BOUNDARIES = ("periodic", "zero", "edge", "reflect")  # in the order of plait_boundary_t

Width = int | Sequence[int | Sequence[int]]


@dataclasses.dataclass(frozen=True)
class _Ghosts:
    """Widths and boundaries of an array at a place; cells: its extents without ghosts."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    boundary: tuple[int, ...]
    cells: tuple[int, ...]
    shape: tuple[int, ...]  # extents of the cells' data
    place: _mesh.Place

    def padded(self) -> tuple[int, ...]:
        """Extents with ghosts."""
        widths = zip(self.cells, self.before, self.after, self.place.spec, strict=True)
        return tuple(
            n + (lo + hi) * _split.parts(self.place.mesh, axes) for n, lo, hi, axes in widths
        )

    def bind(self, op: str, x: Any, dims: Sequence[int], is_bare: bool, donate: bool) -> Array:
        """Calls the core; is_bare: the exchange's operand, or the sum, has no ghosts."""
        mesh, spec = self.place.mesh, self.place.spec
        given = {n: getattr(self, n) for n in ("before", "after", "boundary", "cells", "shape")}
        given |= {"dims": dims, "donate": donate, "bare": int(is_bare)}
        return _mesh_rules.bind(op, x, mesh, spec, spec, **given)


def _per_axis(value: Any, ndim: int, name: str, argument: str) -> tuple:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    is_one = isinstance(value, str) or not isinstance(value, Sequence)
    values = (value,) * ndim if is_one else tuple(value)
    if len(values) != ndim:
        raise ValueError(f"{name}: {argument} has {len(values)} entries for {ndim} axes")
    return values


def _widths(width: Any, ndim: int, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ghosts before and after the cells of each axis."""
    entries = _per_axis(width, ndim, name, "width")
    pairs = [tuple(e) if isinstance(e, Sequence) else (e, e) for e in entries]
    try:
        checked = [(operator.index(lo), operator.index(hi)) for lo, hi in pairs]
    except (TypeError, ValueError):
        text = f"{name}: width is {width!r}; expected integers, or pairs of them, one for each axis"
        raise TypeError(text) from None
    if any(min(pair) < 0 for pair in checked):
        raise ValueError(f"{name}: width {width} is negative")
    return tuple(lo for lo, _ in checked), tuple(hi for _, hi in checked)


def flags(values: Sequence[Any], name: str, argument: str) -> tuple[bool, ...]:
    """Checks that arguments are True or False; a word such as "no" would count as True."""
    if any(np.ndim(v) or np.asarray(v).dtype.kind not in "biu" for v in values):
        raise TypeError(f"{name}: {argument} is {values!r}; expected True or False for each axis")
    return tuple(bool(v) for v in values)


def _boundaries(boundary: Any, periodic: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Boundaries as numbers of the core."""
    if periodic is not None:
        if boundary != "periodic":
            raise ValueError(f"{name}: boundary and periodic say the same; give one of them")
        given = flags(_per_axis(periodic, ndim, name, "periodic"), name, "periodic")
        boundary = tuple("periodic" if flag else "zero" for flag in given)
    words = _per_axis(boundary, ndim, name, "boundary")
    for word in words:
        if word not in BOUNDARIES:
            raise ValueError(f"{name}: boundary is {word!r}; expected {', '.join(BOUNDARIES)}")
    return tuple(BOUNDARIES.index(word) for word in words)


def _cells(x: Any, width: tuple, place: _mesh.Place, name: str) -> tuple[int, ...]:
    """Extents of a padded array without its ghosts."""
    local = _mesh_rules.local_shape(place.mesh, x.shape, place.spec)
    cells = []
    for i, (n, lo, hi, axes) in enumerate(zip(local, *width, place.spec, strict=True)):
        if n < lo + hi or n == lo + hi > 0:  # ghosts of no cells would be zeros
            raise ValueError(
                f"{name}: axis {i} has {n} cells on each device, none besides its ghosts {lo} + "
                f"{hi}; expected the padded array"
            )
        cells.append((n - lo - hi) * _split.parts(place.mesh, axes))
    return tuple(cells)


def _setup(
    name: str, x: Any, width: Any, boundary: Any, shape: Any, mesh: Any, spec: Any, **given: Any
) -> tuple[Any, _Ghosts]:
    """The operand on its mesh, and its ghosts.

    is_padded: whether x has its ghosts already.
    """
    x, place = _mesh.locate(x, mesh, spec, name, must_know=True)
    widths = _widths(width, x.ndim, name)
    words = _boundaries(boundary, given.get("periodic"), x.ndim, name)
    cells = _cells(x, widths, place, name) if given["is_padded"] else x.shape
    data = _mesh.data_of(shape, cells, 0, name)
    return x, _Ghosts(*widths, words, cells, data, place)


def _check_sum(x: Any, name: str) -> None:
    if not _core.reduce_is_defined(_coll_rules.SUM, x.dtype.name):
        raise TypeError(f"{name}: {x.dtype.name} cannot be added; cast to another dtype")


def exchange(
    x: Array,
    width: Width,
    *,
    boundary: str | Sequence[str] = "periodic",
    shape: Sequence[int] | None = None,
    periodic: bool | Sequence[bool] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Fill the ghost cells of a padded array from the parts that own them.

    ``x`` is the global array of padded parts, as `pad` makes it. The other arguments are those of
    `pad`. The contents of ghosts and of what lies behind them are not read. The result is the same
    as that of `unpad` followed by `pad`, in one round and without moving cells.

    With ``donate=True`` the result takes the memory of ``x``, and ``x`` cannot be used again. Only
    ghosts are written. Inside a jit combine it with ``donate_argnums``.

    Collective: over the mesh, in program order.  Shapes: padded to the same.
    Raises: ValueError for widths that do not fit, an unknown boundary, a size that the mesh does
    not divide, an array whose split is not known (see `pad`); TypeError for a dtype that
    cannot be moved.
    Adjoint: `reduce`.  Source: own; oracle ``tests/python/oracle.py::halo_exchange``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.exchange(jnp.array([0.0, 1, 2, 3, 0]), 1).tolist()
        [3.0, 1.0, 2.0, 3.0, 1.0]
    """
    x = _args.array(x, "halo.exchange", has_keys=False)
    given = {"periodic": periodic, "is_padded": True}
    x, ghosts = _setup("halo.exchange", x, width, boundary, shape, mesh, spec, **given)
    return ghosts.bind("halo_exchange", x, x.shape, False, donate)


def reduce(
    x: Array,
    width: Width,
    *,
    boundary: str | Sequence[str] = "periodic",
    shape: Sequence[int] | None = None,
    periodic: bool | Sequence[bool] | None = None,
    mesh: Any = None,
    spec: Any = None,
    donate: bool = False,
) -> Array:
    """Add ghost cells to the cells that they are copies of, and set the ghosts to zero.

    The arguments are those of `exchange`. `fold` does the same and cuts the ghosts off.

    Collective: over the mesh, in program order.  Shapes: padded to the same, as `exchange`.
    Raises: as `exchange`; TypeError for a dtype that cannot be added.
    Adjoint: `exchange`.  Source: own; oracle ``tests/python/oracle.py::halo_reduce``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.reduce(jnp.ones(5), 1).tolist()
        [0.0, 2.0, 1.0, 2.0, 0.0]
    """
    given = {"periodic": periodic, "is_padded": True}
    x, ghosts = _setup("halo.reduce", x, width, boundary, shape, mesh, spec, **given)
    _check_sum(x, "halo.reduce")
    return ghosts.bind("halo_reduce", x, x.shape, False, donate)


def pad(
    x: Array,
    width: Width,
    *,
    boundary: str | Sequence[str] = "periodic",
    shape: Sequence[int] | None = None,
    periodic: bool | Sequence[bool] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Give every device's part of ``x`` ghost cells, filled from its neighbours.

    Each device's part of the result is a window of ``numpy.pad(x, width, mode)``: the cells of that
    part of ``x``, and ``width`` more on each side. ``width`` is one integer, or for each axis an
    integer or a pair (before, after). Corners are right. Widths may be larger than a neighbour's
    part, and than the whole array. The windows overlap, so the result is not ``x`` as one array:
    apply a stencil as a function of one part, in a ``jax.shard_map`` of the same mesh and spec.

    ``boundary``, one word or one for each axis, says how an axis of n cells continues beyond its
    ends. The ghost cell with index g is

    * ``'periodic'``: a copy of cell g mod n (wrap in numpy.pad)
    * ``'zero'``: 0 (constant)
    * ``'edge'``: a copy of the cell at the nearer end
    * ``'reflect'``: a copy of the cell as far from 0 as g is from the nearest multiple of
      2 (n - 1); if the axis has only one cell, a copy of that cell

    ``periodic`` gives the boundary as booleans: True is ``'periodic'``, False ``'zero'``.

    Ghosts depend on how ``x`` is split. Outside of a trace the array itself says how, and on
    Explicit axes its type does. Inside a jit on Auto axes give ``spec``.

    ``shape`` is the shape of the data in an array with padding at its tail, for sizes that the mesh
    does not divide. Ghosts lie directly around a part's data; behind them, and in parts without
    data, the result is zero. The padding of ``x`` is not read.

    Collective: over the mesh, in program order.
    Shapes: n along axis i to n + (before + after) * (parts along i).
    Raises: as `exchange`.
    Adjoint: `fold`.  Source: own; oracle ``tests/python/oracle.py::halo_pad``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.pad(jnp.array([1.0, 2, 3]), 1).tolist()
        [3.0, 1.0, 2.0, 3.0, 1.0]
        >>> plait.halo.pad(jnp.array([1.0, 2, 3]), ((0, 4),), boundary="reflect").tolist()
        [1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0]
    """
    x = _args.array(x, "halo.pad", has_keys=False)
    given = {"periodic": periodic, "is_padded": False}
    x, ghosts = _setup("halo.pad", x, width, boundary, shape, mesh, spec, **given)
    return ghosts.bind("halo_exchange", x, ghosts.padded(), True, False)


def fold(
    x: Array,
    width: Width,
    *,
    boundary: str | Sequence[str] = "periodic",
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Add ghost cells to the cells that they are copies of, and cut the ghosts off.

    This is the exact adjoint of `pad` for the same arguments. A cell becomes the sum of all its
    copies; ghosts beyond a ``'zero'`` end are dropped. ``fold(pad(ones))`` counts copies.

    Collective: over the mesh, in program order.
    Shapes: padded to n along axis i; with ``shape`` zero beyond it.
    Raises: as `exchange`; TypeError for a dtype that cannot be added.
    Adjoint: `pad`.  Source: own; oracle ``tests/python/oracle.py::halo_fold``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.fold(jnp.ones(6), ((1, 2),), boundary="edge").tolist()
        [2.0, 1.0, 3.0]
    """
    name, is_padded = "halo.fold", True
    x, ghosts = _setup(name, x, width, boundary, shape, mesh, spec, is_padded=is_padded)
    _check_sum(x, name)
    return ghosts.bind("halo_reduce", x, ghosts.cells, True, False)


def _cut_part(ghosts: _Ghosts, part: Any) -> Any:
    """The cells of one device's part, zero outside the data."""
    widths = zip(ghosts.before, ghosts.after, part.shape, strict=True)
    x = part[tuple(slice(lo, n - hi) for lo, hi, n in widths)]
    for axis, names in enumerate(ghosts.place.spec):
        if (n_data := ghosts.shape[axis]) < ghosts.cells[axis]:
            index = jnp.arange(x.shape[axis])
            if names:
                index += jax.lax.axis_index(names).astype(index.dtype) * x.shape[axis]
            is_data = (index < n_data).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
            x = jnp.where(jnp.broadcast_to(is_data, x.shape), x, jnp.zeros_like(x))
    return x


@functools.lru_cache(maxsize=4096)
def _cutter(ghosts: _Ghosts) -> Any:
    """Cuts every device's part, without communication."""
    part = functools.partial(_cut_part, ghosts)
    if ghosts.place.mesh is None:
        return jax.jit(part)
    mesh, spec = ghosts.place.mesh, ghosts.place.spec
    return jax.jit(_mesh_rules.on_parts(part, mesh, [spec], spec, check_vma=True))


def unpad(
    x: Array,
    width: Width,
    *,
    shape: Sequence[int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Cut the ghost cells off every device's part: the inverse of `pad`.

    ``width`` and ``shape`` are those of `pad`; beyond ``shape`` the result is zero.

    Collective: no; nothing is communicated.
    Shapes: padded to n along axis i.  Raises: as `exchange`.
    Adjoint: padding with zeros.  Source: own; oracle ``tests/python/oracle.py::halo_unpad``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.halo.unpad(jnp.array([0.0, 1, 2, 3, 0]), 1).tolist()
        [1.0, 2.0, 3.0]
    """
    name, is_padded = "halo.unpad", True
    x, ghosts = _setup(name, x, width, "zero", shape, mesh, spec, is_padded=is_padded)
    ghosts = dataclasses.replace(ghosts, place=_mesh.concrete(x, ghosts.place))
    return _cutter(ghosts)(x)


def __dir__() -> list[str]:
    return __all__  # for completion: without this module's imports
