"""Products and norms of global matrices."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from plait import (
    _dense,
    _dense_args,
    _dense_maps,
    _dense_rules,
    _mesh,
    _mesh_rules,
    _redist,
    _split,
)
from plait._dealt import Deal
from plait._dense_args import Lay, Operand
from plait._split import Spec

ORDERS = ("fro", 1, jnp.inf, "max")
FEW = 64  # columns per device, up to which the matrix is not moved


def _product(a: Array, b: Array, *, lays: tuple, to: Lay, deal: Deal, by_rows: bool) -> Array:
    """By rows, as cᵀ = bᵀ aᵀ: then nothing is transposed in memory, and b moves in panels."""
    left = _dense_args.deal_in(lays[0], a, deal, not by_rows)
    right = _dense_args.deal_in(lays[1], b, deal, not by_rows)
    pair = (right, left) if by_rows else (left, right)
    return _dense_args.back(_dense_rules.gemm(*pair), to, b.ndim, not by_rows)


def _goes_by_rows(left: Operand, right: Operand) -> bool:
    """Whether rows alone are split, and b is not the larger one to move."""
    is_split = [spec[0] and not spec[1] for spec in (left.spec, right.spec)]
    return all(is_split) and right.x.ndim == 2 and right.shape[1] <= left.shape[0]


@dataclasses.dataclass(frozen=True)
class _Still:
    """The product of an m x k matrix, which stays in place, and a matrix of a few columns, n.

    rows, columns: the mesh axes that split the matrix, together all axes.
    """

    mesh: Any
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    m: int
    k: int
    n: int

    @property
    def is_less(self) -> bool:
        """Whether a device has less of the columns than of the matrix, and multiplies them fast.

        XLA's product is slower than that of BLAS in panels, by more than moving these panels takes.
        """
        n_rows, n_columns = (_split.parts(self.mesh, over) for over in (self.rows, self.columns))
        is_few = 0 < self.n <= FEW * n_rows * n_columns
        return is_few and self.n * (self.m * n_columns + self.k * n_rows) < self.m * self.k

    def moved(self, x: Any, src: Spec, to: Spec, shape: tuple, room: tuple) -> Any:
        """An array in another split, with other extents; shape: the shape of its data."""
        if src == to and x.shape == shape == room:
            return x
        return _mesh_rules.bind("redistribute", x, self.mesh, src, to, dims=room, shape=shape)


def _still(a: Operand, n: int, deal: Deal) -> _Still | None:
    """The plan, if operand and result columns are less than a device has of ``a``; else None."""
    if deal.n_ranks == 1:
        return None
    (rows, columns), (m, k) = a.spec, a.shape
    rest = tuple(name for name in deal.axes if name not in (*rows, *columns))
    still = _Still(deal.mesh, (*rows, *rest), columns, m, k, n)
    return still if still.is_less else None


def _part(rank: Any, a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)[None]


def _still_product(a: Array, b: Array, *, lays: tuple, to: Lay, still: _Still) -> Array:
    """Each device has the rows of b for its columns of a; products are summed along columns."""
    ndim, b = b.ndim, _dense_args.as_columns(b)
    m, k, n, mesh = still.m, still.k, still.n, still.mesh
    rows, columns = still.rows, still.columns
    room = _mesh_rules.padded(mesh, (m, k), (rows, columns))
    a = still.moved(a, lays[0].spec, (rows, columns), (m, k), room)
    b = still.moved(b, lays[1].spec, (columns, ()), (k, n), (room[1], n))
    ins, every = ((rows, columns), (columns, ())), (columns, rows, ())
    parts = _dense_maps.of_parts(_part, mesh, (*rows, *columns), ins, every, (a, b))
    c = _dense_maps.added(parts, mesh, columns, (rows, ()))
    fitted = _dense_args.fitted(mesh, to.spec, to.room)
    c = still.moved(c, (rows, ()), fitted, (m, n), to.room)
    return jnp.squeeze(c, 1) if ndim == 1 else c


def matmul(
    a: Array,
    b: Array,
    *,
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    shape_b: tuple[int, ...] | None = None,
    mesh: Any = None,
    spec: Any = None,
    spec_b: Any = None,
) -> Array:
    """The product of two matrices that are distributed over a mesh, or of a matrix and a vector.

    The rows of the result are split as those of ``a``. Its columns are split as those of ``b``, if
    these are split along other mesh axes. There are two ways:

    * If ``b`` is a vector or has few columns, less than a device has of ``a``, then ``a`` stays
      where it is: ``b`` is gathered, and the products of the devices are added up.
    * Otherwise, and always if ``block=`` is given, ``a`` moves in panels of ``block`` columns; or
      ``b`` in panels of ``block`` rows, if both are split by rows and ``b`` is not the larger. A
      device then never holds more than its parts of the operands and the result, and two panels.

    ``shape`` and ``shape_b`` are the shapes of the data in arrays with padding at their tail, for
    sizes that the mesh does not divide. Padding is not read, and is zero in the result.

    Collective: over the mesh, in program order.
    Shapes: (m, k) and (k, n) or (k,), to (m, n) or (m,).
    Raises: ValueError for extents that do not match; TypeError for dtypes that differ.
    Adjoint: c bᵀ and aᵀ c.
    Source: SUMMA, van de Geijn, Watts, 1997, in one dimension; oracle ``numpy.matmul``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.matmul(jnp.eye(2), jnp.ones((2, 1))).tolist()
        [[1.0], [1.0]]
    """
    m, k = _dense_args.check_matrix(a, "matmul", shape=shape)
    data = _dense_args.check_rhs(b, k, "matmul", shape=shape_b)
    specs, shapes = {"a": spec, "b": spec_b}, {"a": (m, k), "b": data}
    found = _dense_args.operands({"a": a, "b": b}, mesh, specs, "matmul", shapes)
    left, right = found["a"], found["b"]
    columns = right.spec[1]
    to = (left.spec[0], () if set(columns) & set(left.spec[0]) else columns)
    deal = _dense_args.deal_of(left, block, "matmul")
    room = (left.x.shape[0], *right.x.shape[1:], 1)[:2]
    given = {"lays": (left.lay, right.lay), "to": Lay(to, None, room)}
    still = _still(left, (*data, 1)[1], deal) if block is None else None
    if still is None:
        by_rows = _goes_by_rows(left, right)
        return _dense_args.run(_product, left.x, right.x, deal=deal, by_rows=by_rows, **given)
    return _dense_args.run(_still_product, left.x, right.x, still=still, **given)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _norm(x: Array, order: Any, place: _mesh.Place) -> Array:
    size = jnp.abs(x)
    if order in (1, jnp.inf):
        axis = 0 if order == 1 else 1
        sums = _redist.summed(size, place, (axis,))
        rest = _mesh.Place(place.mesh, (place.spec[1 - axis],))
        return _redist.reduced(_dense.largest, sums, rest, (0,))
    if order == "max":
        return _redist.reduced(_dense.largest, size, place, (0, 1))
    return _frobenius(place)(x)


@functools.lru_cache(maxsize=4096)
def _frobenius(place: _mesh.Place) -> Any:
    """The Frobenius norm: from plain squares, unless they leave the range."""

    @jax.custom_batching.custom_vmap
    def norm(x: Array) -> Array:
        squares, is_safe = _squares(x, place)
        return lax.cond(is_safe, lambda _: jnp.sqrt(squares), lambda x: _scaled(x, place), x)

    def either(x: Array) -> Array:
        squares, is_safe = _squares(x, place)
        return jnp.where(is_safe, jnp.sqrt(squares), _scaled(x, place))

    @norm.def_vmap
    def norms(n: int, is_batched: list[bool], x: Array) -> tuple[Array, bool]:
        return jax.vmap(either)(x), True  # as JAX's rule of cond, which fails on Explicit axes

    return norm


def _squares(x: Array, place: _mesh.Place) -> tuple[Array, Array]:
    """The sum of squares, and whether to trust it: those below tiny may have been lost."""
    squares = _redist.summed(jnp.abs(x) ** 2, place, (0, 1))
    kind = jnp.finfo(x.dtype)
    lowest = np.array(kind.tiny / kind.eps * x.size, kind.dtype)
    return squares, (squares > lowest) & jnp.isfinite(squares)


def _scaled(x: Array, place: _mesh.Place) -> Array:
    size = jnp.abs(x)
    most = _redist.reduced(_dense.largest, size, place, (0, 1))
    scale = jnp.where((most > 0) & jnp.isfinite(most), most, jnp.ones((), most.dtype))
    return scale * jnp.sqrt(_redist.summed((size / scale) ** 2, place, (0, 1)))


@_norm.defjvp
def _norm_jvp(order: Any, place: _mesh.Place, primals: tuple, tangents: tuple) -> tuple:
    raise TypeError(
        "plait.linalg.matrix_norm: it has no derivative; for that of the Frobenius "
        "norm take jnp.sqrt(plait.sum(abs(a) ** 2))"
    )


def matrix_norm(
    a: Array,
    ord: Any = "fro",  # noqa: A002 - the name in numpy
    *,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """A norm of a matrix that is distributed over a mesh; every device gets the same bits.

    The order is one of

    * ``'fro'``: the root of the sum of squares; where these leave the range, from scaled ones
    * ``1``: the largest sum of the magnitudes in a column
    * ``inf``: the largest sum of the magnitudes in a row
    * ``'max'``: the largest magnitude

    ``shape`` is the shape of the data in an array with padding at its tail, which does not count.

    Collective: over the mesh, in program order.  Shapes: (m, n) to a scalar, m and n not 0.
    Raises: ValueError for an unknown order, or no elements; TypeError for derivatives.
    Adjoint: none.  Source: LAPACK lange; oracle ``numpy.linalg.norm``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> [plait.linalg.matrix_norm(jnp.array([[3.0, 4.0]]), o).item() for o in ("fro", 1)]
        [5.0, 4.0]
    """
    data = _dense_args.check_matrix(a, "matrix_norm", shape=shape)
    _dense_args.check_choice(ord, ORDERS, "ord", "'fro', 1, inf or 'max'", "matrix_norm")
    if 0 in data:
        raise ValueError(f"matrix_norm: a is {' x '.join(map(str, data))}; expected elements")
    found = _dense_args.operands({"a": a}, mesh, {"a": spec}, "matrix_norm")["a"]
    return _dense_args.run(_norm_of_data, found.x, shape=data, order=ord, place=found.place)


def _norm_of_data(x: Array, *, shape: tuple[int, int], order: Any, place: _mesh.Place) -> Array:
    return _norm(_mesh.only_data(x, shape), order, place)
