"""Cholesky factorizations of global matrices, and results computed from them."""

import dataclasses
import functools
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax import Array
from plait import _cond, _dense, _dense_args, _dense_cond, _refined
from plait._dealt import Deal, Matrix
from plait._dense_args import Lay
from plait._refined import Refined

NOT_DEFINITE = "{}: the leading minor of order {{}} is not positive definite"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Cholesky:
    """A Hermitian positive definite matrix, held as its factor, which stays on all devices.

    It is a pytree: it may be a result and an operand of jitted functions. Derivatives with respect
    to it are those with respect to the matrix. ``status`` is an int32, the same on all devices: 0,
    or the order of the leading minor that is not positive definite. In that case all results are
    NaN.
    """

    status: Array
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
        """The lower triangular factor as a global array, split as the matrix was."""
        return _dense_args.run(_triangle, _dense_args.at_home(self._factor), lay=self._lay)

    def solve(self, b: Array, *, spec: Any = None) -> Array:
        """The solution x of a x = b, split as b; b is (n,) or (n, k).

        ``spec``: how b is split, if its type does not say so (inside jit on Auto axes).
        """
        return _dense_args.solve(_solution, self._lay, self._factor, (), b, spec)

    def logdet(self) -> Array:
        """The logarithm of the determinant."""
        return _dense_args.run(_logdet, _dense_args.at_home(self._factor))

    def cond(self, p: Any = 1) -> Array:
        """An estimate of the condition in the norm 1 or inf, see `plait.linalg.cond`."""
        _cond.check_order(p)
        return _dense_args.run(_condition, _dense_args.at_home(self._factor), order=p)

    def inv(self) -> Array:
        """The inverse, split as the matrix was."""
        return _dense_args.run(_inverse, _dense_args.at_home(self._factor), lay=self._lay)


def _factor(a: Array, *, lay: Lay, deal: Deal) -> tuple[Matrix, Array]:
    return _dense.cholesky(_dense_args.deal_in(lay, a, deal))


def _triangle(factor: Matrix, *, lay: Lay) -> Array:
    return _dense_args.back(_dense.triangle(factor), lay)


def _logdet(factor: Matrix) -> Array:
    return _dense.cholesky_logdet(factor)


def _condition(factor: Matrix, *, order: Any) -> Array:
    return functools.reduce(jnp.multiply, _dense_cond.of_factor("cholesky", order, (factor,)))


def _inverse(factor: Matrix, *, lay: Lay) -> Array:
    return _dense_args.back(_dense.cholesky_inverse(factor), lay)


def _solution(factor: Matrix, b: Array, *, lay: Lay, deal: Deal) -> Array:
    x = _dense.cholesky_solve(factor, _dense_args.deal_in(lay, b, deal))
    return _dense_args.back(x, lay, b.ndim)


def factored(
    a: Any, block: Any, check: bool, mesh: Any, spec: Any, name: str, shape: Any
) -> Cholesky:
    """The factors, as the public function of this name."""
    text = NOT_DEFINITE.format(name) if check else None
    found = _dense_args.located(a, name, mesh, spec, shape, is_square=True)
    parts, status = _dense_args.factored(_factor, found, block, text, name)
    return Cholesky(status, *parts, found.lay)


@overload
def cholesky(
    a: Array,
    *,
    precision: None = None,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Cholesky: ...


@overload
def cholesky(
    a: Array,
    *,
    precision: Literal["single"],
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Refined: ...


def cholesky(
    a: Array,
    *,
    precision: str | None = None,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Cholesky | Refined:
    """Factor a Hermitian positive definite matrix that is distributed over a mesh.

    The result has ``solve(b)``, ``logdet()``, ``inv()``, ``cond()``, the factor ``l`` and
    ``status``. It stays dealt out to all devices, in blocks of ``block`` columns, also as a result
    of a jitted function. Only the lower triangle of ``a`` is read.

    For a matrix that is not positive definite, results are NaN, and ``status`` is the order of the
    leading minor that is not positive definite. With ``check=True`` such a matrix raises.

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
    Adjoint: that of each result, symmetrised, by solutions with the same factor.
    Source: LAPACK potrf, with look-ahead; oracle ``tests/python/oracle.py::cholesky``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> f = plait.linalg.cholesky(jnp.diag(jnp.array([4.0, 9.0])))
        >>> f.l.tolist(), f.solve(jnp.array([4.0, 9.0])).tolist(), f.status.item()
        ([[2.0, 0.0], [0.0, 3.0]], [1.0, 1.0], 0)
    """
    if _refined.is_asked_for(precision, check, "cholesky"):
        return _refined.refined("cholesky", a, block, mesh, spec, shape, "cholesky")
    return factored(a, block, check, mesh, spec, "cholesky", shape)


def potrs(
    a: Array,
    b: Array,
    *,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Solve a x = b with a Hermitian positive definite matrix, by `cholesky`.

    ``spec`` and ``shape`` are those of ``a``. The solution is split as ``b``.

    Collective: over the mesh, in program order.  Shapes: (n, n) and (n,) or (n, k), to that of b.
    Raises: as `cholesky`; ValueError for a b with another number of rows; TypeError for a b of
    another dtype.
    Adjoint: a solution with the same factor, and its outer product with x, symmetrised.
    Source: LAPACK potrf, potrs; oracle ``tests/python/oracle.py::solve``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.potrs(jnp.diag(jnp.array([4.0, 16.0])), jnp.ones(2)).tolist()
        [0.25, 0.0625]
    """
    given = {"block": block, "check": check, "mesh": mesh, "spec": spec, "shape": shape}
    return _dense_args.solved(factored, a, b, "potrs", **given)


def potri(
    a: Array,
    *,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Invert a Hermitian positive definite matrix, by `cholesky`; the whole inverse, split as a.

    Collective: over the mesh, in program order.  Shapes: (n, n) to the same.
    Raises: as `cholesky`.  Adjoint: - a⁻ᵀ c a⁻ᵀ, symmetrised, by two products.
    Source: LAPACK potrf, potri; oracle ``tests/python/oracle.py::inv``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.potri(jnp.diag(jnp.array([4.0, 16.0]))).tolist()
        [[0.25, 0.0], [0.0, 0.0625]]
    """
    return factored(a, block, check, mesh, spec, "potri", shape).inv()
