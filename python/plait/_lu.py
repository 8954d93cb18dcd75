"""LU factorizations of global matrices, and solutions with them."""

import dataclasses
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax import Array
from plait import _cond, _dense_args, _dense_cond, _dense_lu, _refined
from plait._dealt import Deal, Matrix
from plait._dense_args import Lay
from plait._refined import Refined

SINGULAR = "{}: the matrix is singular, pivot {{}} is zero or not finite"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class LU:
    """A square matrix, held as its factors, which stay on all devices; a[order] = l u.

    It is a pytree: it may be a result and an operand of jitted functions. Derivatives with respect
    to it are those with respect to the matrix. ``order``, (n,), lists the rows of the matrix in the
    order of the pivots. ``status`` is an int32, the same on all devices: 0, or the order of the
    first pivot that is zero or not finite. In that case results mean nothing, even finite ones.
    """

    status: Array
    order: Array
    _factor: Matrix
    _lay: Lay = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return (self._factor.n, self._factor.n)

    @property
    def dtype(self) -> Any:
        """Of the matrix."""
        return self._factor.dtype

    @property
    def l(self) -> Array:  # noqa: E743 - the name in the literature
        """The lower factor with a diagonal of 1, as a global array, split as the matrix was."""
        return _dense_args.run(_parts, *self._home(), lay=self._lay)[0]

    @property
    def u(self) -> Array:
        """The upper factor as a global array, split as the matrix was."""
        return _dense_args.run(_parts, *self._home(), lay=self._lay)[1]

    def solve(self, b: Array, *, spec: Any = None) -> Array:
        """The solution x of a x = b, split as b; b is (n,) or (n, k).

        ``spec``: how b is split, if its type does not say so (inside jit on Auto axes).
        """
        return _dense_args.solve(_solution, self._lay, self._factor, (self.order,), b, spec)

    def slogdet(self) -> tuple[Array, Array]:
        """Sign or phase of the determinant, and the logarithm of its magnitude."""
        return _dense_args.run(_dense_lu.lu_slogdet, *self._home())

    def logdet(self) -> Array:
        """The logarithm of the determinant's magnitude."""
        return self.slogdet()[1]

    def det(self) -> Array:
        """The determinant."""
        sign, log = self.slogdet()
        return sign * jnp.exp(log).astype(sign.dtype)

    def cond(self, p: Any = 1) -> Array:
        """An estimate of the condition in the norm 1 or inf, see `plait.linalg.cond`."""
        _cond.check_order(p)
        return _dense_args.run(_condition, *self._home(), self.status, order=p)

    def inv(self) -> Array:
        """The inverse, split as the matrix was."""
        return _dense_args.run(_inverse, *self._home(), lay=self._lay)

    def _home(self) -> tuple[Matrix, Array]:
        return _dense_args.at_home(self._factor), self.order


def _factor(a: Array, *, lay: Lay, deal: Deal) -> tuple[Matrix, Array, Array]:
    return _dense_lu.lu(_dense_args.deal_in(lay, a, deal))


def _parts(factor: Matrix, order: Array, *, lay: Lay) -> tuple[Array, Array]:
    low, up = _dense_lu.parts(factor, order)
    return _dense_args.back(low, lay), _dense_args.back(up, lay)


def _condition(factor: Matrix, order_of: Array, status: Array, *, order: Any) -> Array:
    return _cond.of_norms(*_dense_cond.of_factor("lu", order, (factor, order_of)), status)


def _inverse(factor: Matrix, order: Array, *, lay: Lay) -> Array:
    return _dense_args.back(_dense_lu.lu_inverse(factor, order), lay)


def _solution(factor: Matrix, order: Array, b: Array, *, lay: Lay, deal: Deal) -> Array:
    x = _dense_lu.lu_solve(factor, order, _dense_args.deal_in(lay, b, deal))
    return _dense_args.back(x, lay, b.ndim)


def factored(a: Any, block: Any, check: bool, mesh: Any, spec: Any, name: str, shape: Any) -> LU:
    """The factors, as the public function of this name."""
    text = SINGULAR.format(name) if check else None
    found = _dense_args.located(a, name, mesh, spec, shape, is_square=True)
    (factor, order), status = _dense_args.factored(_factor, found, block, text, name)
    return LU(status, order, factor, found.lay)


@overload
def lu(
    a: Array,
    *,
    precision: None = None,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> LU: ...


@overload
def lu(
    a: Array,
    *,
    precision: Literal["single"],
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Refined: ...


def lu(
    a: Array,
    *,
    precision: str | None = None,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> LU | Refined:
    """Factor a square matrix that is distributed over a mesh, with partial pivoting.

    The result has ``solve(b)``, ``slogdet()``, ``logdet()``, ``det()``, ``inv()``, ``cond()``, the
    factors ``l`` and ``u`` with ``a[order] = l u``, and ``status``: 0, or the order of the first
    pivot that is zero or not finite. With ``check=True`` such a pivot raises. The result stays
    dealt out to all devices, in blocks of ``block`` columns, also as a result of a jitted function.

    With ``precision='single'`` the matrix is factored in single precision, which is faster for
    large matrices with a condition of up to some 10⁶. The result has ``solve(b)`` alone. It keeps
    the matrix, and refines solutions by products with it to the backward error of double precision.
    If ten steps are not enough, ``solve`` factors the matrix in double precision.

    ``shape`` is the shape of the data in an array with padding at its tail, for sizes that the mesh
    does not divide. Padding is not read, and is zero in results that are split as the matrix.

    Collective: over the mesh, in program order.
    Shapes: (n, n), any n, split in any way, or whole on one device or on all.
    Raises: ValueError for a matrix that is not square, or a block that is not positive; TypeError
    for a dtype without solvers, or with ``precision='single'`` one that is not double precision;
    with ``check`` `plait.LinAlgError`.
    Adjoint: that of each result, by solutions with the same factors.
    Source: LAPACK getrf, with look-ahead; oracle ``tests/python/oracle.py::lu``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> f = plait.linalg.lu(jnp.array([[0.0, 2.0], [4.0, 0.0]]))
        >>> f.solve(jnp.array([2.0, 4.0])).tolist(), f.order.tolist(), f.slogdet()[0].item()
        ([1.0, 1.0], [1, 0], -1.0)
    """
    if _refined.is_asked_for(precision, check, "lu"):
        return _refined.refined("lu", a, block, mesh, spec, shape, "lu")
    return factored(a, block, check, mesh, spec, "lu", shape)


def lu_solve(
    a: Array,
    b: Array,
    *,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Solve a x = b with a square matrix, by `lu`.

    ``spec`` and ``shape`` are those of ``a``. The solution is split as ``b``.

    Collective: over the mesh, in program order.  Shapes: (n, n) and (n,) or (n, k), to that of b.
    Raises: as `lu`; ValueError for a b with another number of rows; TypeError for a b of another
    dtype.
    Adjoint: a solution with the transpose by the same factors, and its outer product with x.
    Source: LAPACK getrf, getrs; oracle ``tests/python/oracle.py::solve``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.lu_solve(jnp.array([[0.0, 2.0], [4.0, 0.0]]), jnp.ones(2)).tolist()
        [0.25, 0.5]
    """
    given = {"block": block, "check": check, "mesh": mesh, "spec": spec, "shape": shape}
    return _dense_args.solved(factored, a, b, "lu_solve", **given)


def inv(
    a: Array,
    *,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Invert a square matrix, by `lu`; the inverse is split as ``a``.

    For positive definite matrices see `potri`. ``shape`` is the shape of the data in an array with
    padding at its tail, for sizes that the mesh does not divide. Padding is not read, and is zero
    in results that are split as the matrix.

    Collective: over the mesh, in program order.  Shapes: (n, n) to the same.
    Raises: as `lu`.  Adjoint: - a⁻ᵀ c a⁻ᵀ.
    Source: LAPACK getrf, getrs; oracle ``tests/python/oracle.py::inv``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.inv(jnp.array([[0.0, 2.0], [4.0, 0.0]])).tolist()
        [[0.0, 0.25], [0.5, 0.0]]
    """
    return factored(a, block, check, mesh, spec, "inv", shape).inv()


def slogdet(
    a: Array,
    *,
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> tuple[Array, Array]:
    """Sign or phase of a determinant, and the logarithm of its magnitude, by `lu`.

    For a singular matrix they are 0 and -inf.

    Collective: over the mesh, in program order.  Shapes: (n, n) to two scalars.
    Raises: as `lu`.  Adjoint: a⁻ᵀ times the cotangent.
    Source: LAPACK getrf; oracle ``tests/python/oracle.py::slogdet``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> sign, log = plait.linalg.slogdet(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> sign.item(), log.item()
        (-1.0, 0.0)
    """
    return factored(a, block, False, mesh, spec, "slogdet", shape).slogdet()


def det(
    a: Array,
    *,
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """The determinant of a matrix, by `lu`.

    ``shape`` is the shape of the data in an array with padding at its tail, which is not read.

    Collective: over the mesh, in program order.  Shapes: (n, n) to a scalar.
    Raises: as `lu`.  Adjoint: det(a) a⁻ᵀ times the cotangent, if a is not singular.
    Source: LAPACK getrf; oracle ``tests/python/oracle.py::det``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> round(plait.linalg.det(jnp.array([[0.0, 2.0], [4.0, 0.0]])).item(), 5)
        -8.0
    """
    return factored(a, block, False, mesh, spec, "det", shape).det()
