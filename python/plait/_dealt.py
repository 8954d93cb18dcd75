"""Matrices whose block columns are dealt out to all devices: the operands of the dense solvers.

Block column k of a matrix belongs to device k mod P. A device's part is column-major, so the global
array of an m x n matrix has a row of m elements for each column: first the columns of the first
device, zeros behind them, then those of the second device, and so on.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from plait import _dense_maps, _mesh_rules
from plait._split import Spec


@dataclasses.dataclass(frozen=True)
class Deal:
    """The devices that columns are dealt out to, and the columns in a block.

    batch: mesh axes that split a batch of matrices. Devices that differ along these axes have
    different matrices, and each matrix is dealt out along the remaining axes.
    """

    mesh: Any
    block: int
    batch: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    group = None  # only in a manual region, see `_dealt_inside`

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that number the ranks; the first one varies slowest."""
        names = () if self.mesh is None else self.mesh.axis_names
        return tuple(name for name in names if name not in self.batch)

    @property
    def n_ranks(self) -> int:
        """Devices that columns are dealt out to."""
        return math.prod(self.mesh.shape[name] for name in self.axes)

    @property
    def n_devices(self) -> int:
        """Devices of the whole program."""
        return 1 if self.mesh is None else math.prod(self.mesh.shape.values())

    @property
    def n_parts(self) -> int:
        """Parts in an array: one for each device of the program."""
        return self.n_ranks

    @property
    def spec(self) -> Spec:
        """Of the global array."""
        return (self.axes, ())

    def stored(self, n: int) -> int:
        """Columns stored in every device's part."""
        n_blocks = -(-n // self.block)
        return -(-n_blocks // self.n_ranks) * self.block

    def shape(self, m: int, n: int) -> tuple[int, int]:
        """Of the array."""
        return (self.n_parts * self.stored(n), m)

    @property
    def dealt(self) -> "Deal":
        """The deal of matrices beside right-hand sides of this deal."""
        return self

    @property
    def whole(self) -> "Whole":
        """The deal of right-hand sides that every device has whole, beside such matrices."""
        return Whole(self.mesh, self.block, batch=self.batch)

    def with_block(self, block: int) -> "Deal":
        """The same ranks with blocks of another size."""
        return dataclasses.replace(self, block=block)

    def redistribute(self, x: Any, src: Spec, dst: Spec, **given: Any) -> Any:
        """See `_mesh_rules.Global`."""
        return _mesh_rules.bind("redistribute", x, self.mesh, src, dst, **given)

    def everywhere(self, parts: Any) -> Any:
        """One number of each device, on all of them."""
        if self.mesh is None:
            return parts
        return self.redistribute(parts, (self.axes,), ((),), shape=parts.shape)

    def in_order(self, parts: Any, n: int) -> Any:
        """One number for each of n columns, on all devices."""
        given = {"dims": (n,), "shape": (n,), "blocks": ((self.block,), (0,))}
        return self.redistribute(parts, (self.axes,), ((),), **given)

    def of_all(self, ct: Any) -> Any:
        """The cotangent of a value that all devices have, from what each device does with it."""
        return ct

    def one_value(self, x: Any) -> Any:
        """A value that all devices have alike, for a type that says so."""
        return x

    def by_rank(self, function: Callable, matrices: tuple, whole: tuple, to: Spec) -> Any:
        """function(rank, parts of matrices, whole arrays) on all devices; to: the result's."""
        if self.mesh is None:
            return function(jnp.int32(0), *matrices, *whole)
        specs = (*[self.spec] * len(matrices), *[((),) * jnp.ndim(x) for x in whole])
        if self.batch:
            every = (*matrices, *whole)
            return _dense_maps.of_parts(function, self.mesh, self.axes, specs, to, every)

        def local(*parts: Any) -> Any:
            rank = lax.axis_index(self.axes) if self.axes else jnp.int32(0)
            return function(rank, *parts)

        return _mesh_rules.on_parts(local, self.mesh, specs, to)(*matrices, *whole)


@dataclasses.dataclass(frozen=True)
class Whole(Deal):
    """Not dealt out: every device has all columns of right-hand sides; matrices are in blocks."""

    @property
    def axes(self) -> tuple[str, ...]:
        """No axis splits anything."""
        return ()

    @property
    def n_ranks(self) -> int:
        """One rank has everything."""
        return 1

    @property
    def dealt(self) -> Deal:
        """The deal of the matrices."""
        return Deal(self.mesh, self.block, batch=self.batch)

    def stored(self, n: int) -> int:
        """All columns, and none behind them."""
        return n

    def everywhere(self, parts: Any) -> Any:
        """Every device has the numbers already."""
        return parts

    def in_order(self, parts: Any, n: int) -> Any:
        """The numbers are in order already."""
        return parts

    def by_rank(self, function: Callable, matrices: tuple, whole: tuple, to: Spec) -> Any:
        """Calls the function on the whole arrays."""
        return function(jnp.int32(0), *matrices, *whole)


def _without_rank(function: Callable, rank: Any, x: Any) -> Any:
    return function(x)


def on_parts(
    deal: Deal, function: Callable, x: Any, source: Spec | None = None, to: Spec | None = None
) -> Any:
    """A function of every device's part; source and to: splits if not those of a dealt matrix."""
    if deal.mesh is None or not deal.axes:
        return function(x)
    if deal.batch:
        ins, to = [source or deal.spec], to or deal.spec
        ranked = functools.partial(_without_rank, function)
        return _dense_maps.of_parts(ranked, deal.mesh, deal.axes, ins, to, [x])
    return _mesh_rules.on_parts(function, deal.mesh, [source or deal.spec], to or deal.spec)(x)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Matrix:
    """An m x n matrix, dealt out; zero behind the columns of every device."""

    data: Any
    deal: Deal
    m: int
    n: int

    def tree_flatten(self) -> tuple:
        """For JAX: the array, and the static data."""
        return (self.data,), (self.deal, self.m, self.n)

    @classmethod
    def tree_unflatten(cls, given: tuple, data: Any) -> "Matrix":
        """For JAX."""
        return cls(*data, *given)

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        return self.data.dtype

    def with_data(self, data: Any) -> "Matrix":
        """Another matrix of the same shape."""
        return dataclasses.replace(self, data=data)

    def conj(self) -> "Matrix":
        """Its complex conjugate."""
        is_complex = jnp.issubdtype(self.dtype, jnp.complexfloating)
        return self.with_data(jnp.conj(self.data)) if is_complex else self

    def turned(self) -> "Matrix":
        """Its transpose."""
        return _turned(self)

    def adjoint(self) -> "Matrix":
        """Its conjugate transpose."""
        return _turned(self).conj()

    def __add__(self, other: "Matrix") -> "Matrix":
        return self.with_data(self.data + other.data)

    def __sub__(self, other: "Matrix") -> "Matrix":
        return self.with_data(self.data - other.data)

    def __neg__(self) -> "Matrix":
        return self.with_data(-self.data)

    def __mul__(self, number: Any) -> "Matrix":
        return self.with_data(self.data * jnp.asarray(number, self.dtype))

    def map(self, function: Callable, *others: "Matrix", whole: tuple = ()) -> "Matrix":
        """function(rows, columns, elements, …) of every device's part; zero behind its columns.

        Indices are int32, rows along the last axis. others: matrices dealt out alike; whole: arrays
        that all devices have.
        """

        def local(rows: Any, columns: Any, x: Any, *rest: Any) -> Any:
            y = function(rows, columns, x, *rest)
            return jnp.where(columns < self.n, y, jnp.zeros((), y.dtype))

        return self.with_data(self._each(local, others, whole, self.deal.spec))

    def total(self, function: Callable, *others: "Matrix", whole: tuple = ()) -> Any:
        """The sum of function(rows, columns, elements, …), which every device has."""

        def local(rows: Any, columns: Any, x: Any, *rest: Any) -> Any:
            y = function(rows, columns, x, *rest)
            return jnp.sum(jnp.where(columns < self.n, y, jnp.zeros((), y.dtype)))[None]

        deal = self.deal
        return jnp.sum(deal.everywhere(self._each(local, others, whole, (deal.axes,))))

    def columns(self, function: Callable, *others: "Matrix", whole: tuple = ()) -> Any:
        """One number for each column, which every device has.

        function(rows, columns, elements, …) returns one number for each column of a part, its first
        axis.
        """

        def local(rows: Any, columns: Any, x: Any, *rest: Any) -> Any:
            y = function(rows, columns, x, *rest)
            return jnp.where(columns[:, 0] < self.n, y, jnp.zeros((), y.dtype))

        deal = self.deal
        return deal.in_order(self._each(local, others, whole, (deal.axes,)), self.n)

    def diagonal(self) -> Any:
        """The diagonal of a square matrix, which every device has."""

        def pick(rows: Any, columns: Any, x: Any) -> Any:
            return jnp.sum(jnp.where(rows == columns, x, jnp.zeros((), x.dtype)), axis=1)

        return self.columns(pick)

    def _each(self, function: Callable, others: tuple, whole: tuple, to: Spec) -> Any:
        matrices = (self.data, *(other.data for other in others))
        return _each(self.deal, (self.m, self.n), function, matrices, whole, to)


def _each(
    deal: Deal,
    shape: tuple[int, int],
    function: Callable,
    matrices: Sequence,
    whole: Sequence,
    to: Spec,
) -> Any:
    """function(rows, columns, parts) on every device, with the indices of a matrix of this shape.

    The result is split as `to` says.
    """
    m, stored = shape[0], deal.stored(shape[1])

    def local(rank: Any, *parts: Any) -> Any:
        i = jnp.arange(stored, dtype=jnp.int32)
        block, n_ranks = jnp.int32(deal.block), jnp.int32(deal.n_ranks)
        columns = (i // block * n_ranks + rank) * block + i % block
        rows = jnp.arange(m, dtype=jnp.int32)
        return function(rows[None, :], columns[:, None], *parts)

    return deal.by_rank(local, tuple(matrices), tuple(whole), to)


def identity(like: Matrix, m: int, n: int, first: int = 0) -> Matrix:
    """Columns first to first + n of the identity with m rows, dealt out like another matrix."""

    def ones(rows: Any, columns: Any, x: Any) -> Any:
        is_one = (rows == columns + first) & (columns < n)
        return jnp.where(is_one, jnp.ones((), x.dtype), jnp.zeros((), x.dtype))

    data = _each(like.deal, (m, n), ones, (like.data,), (), like.deal.spec)
    return Matrix(data, like.deal, m, n)


def deal_out(
    x: Any, spec: Spec, deal: Deal, shape: tuple[int, int] | None = None, turn: bool = True
) -> Matrix:
    """A global array of any layout as a dealt matrix; shape: the shape of its data.

    turn: dealt out by columns; else by rows, which are the columns of its transpose: that is the
    matrix then.
    """
    m, n = x.shape if shape is None else shape
    rows, columns = (m, n) if turn else (n, m)
    data = deal.redistribute(
        x,
        spec,
        deal.spec,
        dims=deal.shape(rows, columns),
        shape=(m, n),
        blocks=((0, 0), (deal.block, 0)),
        turn=turn,
    )
    return Matrix(data, deal, rows, columns)


def collect(a: Matrix, spec: Spec, room: tuple[int, int] | None = None, turn: bool = True) -> Any:
    """The global array of a dealt matrix in any layout; room: its extents, zero behind the data.

    turn: as in `deal_out`.
    """
    deal, extents = a.deal, (a.m, a.n) if turn else (a.n, a.m)
    return deal.redistribute(
        a.data,
        deal.spec,
        spec,
        dims=extents if room is None else room,
        shape=(a.n, a.m),
        blocks=((deal.block, 0), (0, 0)),
        turn=turn,
    )


def _turned(a: Matrix) -> Matrix:
    deal = a.deal
    data = deal.redistribute(
        a.data,
        deal.spec,
        deal.spec,
        dims=deal.shape(a.n, a.m),
        shape=(a.n, a.m),
        blocks=((deal.block, 0), (deal.block, 0)),
        turn=True,
    )
    return Matrix(data, deal, a.n, a.m)


def moved(a: Matrix, deal: Deal) -> Matrix:
    """The same matrix, dealt out differently to the same devices."""
    if deal == a.deal:
        return a
    data = a.deal.redistribute(
        a.data,
        a.deal.spec,
        deal.spec,
        dims=deal.shape(a.m, a.n),
        shape=(a.n, a.m),
        blocks=((a.deal.block, 0), (deal.block, 0)),
    )
    return Matrix(data, deal, a.m, a.n)


def with_block(a: Matrix, block: int) -> Matrix:
    """The same matrix in blocks of another size."""
    return moved(a, a.deal.with_block(block))
