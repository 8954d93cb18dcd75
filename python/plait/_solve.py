"""Solutions with a global matrix, by the factorization that fits the matrix."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from plait import _cholesky, _dense_args, _dense_refine, _lu, _refined
from plait._dealt import Deal
from plait._dense_args import Lay

KINDS = {"general": "lu", "positive": "cholesky"}
FACTORED = {"general": _lu.factored, "positive": _cholesky.factored}


def _by_refinement(
    a: Array, b: Array, *, lay: Lay, lay_b: Lay, deal: Deal, deal_b: Deal, kind: str
) -> Array:
    left, right = _dense_args.deal_in(lay, a, deal), _dense_args.deal_in(lay_b, b, deal_b)
    x = _dense_refine.refined(kind, *_dense_refine.factored(kind, left), right)
    return _dense_args.back(x, lay_b, b.ndim)


def solve(
    a: Array,
    b: Array,
    *,
    assume: str = "general",
    refine: bool = False,
    precision: str | None = None,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Solve a x = b with a square matrix that is distributed over a mesh.

    ``assume`` is ``'general'``, which calls `lu_solve`, or ``'positive'`` for a Hermitian positive
    definite matrix, which calls `potrs`. ``spec`` is that of ``a``. The solution is split as ``b``.

    ``shape`` is the shape of the data in an ``a`` with padding at its tail, for sizes that the mesh
    does not divide. ``b`` has as many rows as the data, or as ``a``. Padding is not read, and is
    zero in the solution.

    With ``refine=True``, or ``precision='single'`` as in `cholesky` and `lu`, the matrix is
    factored in single precision, and the solution is refined to the backward error of double
    precision. This is faster for large matrices with a condition of up to some 10⁶. If ten steps
    are not enough, the matrix is factored again in double precision.

    Collective: over the mesh, in program order.  Shapes: (n, n) and (n,) or (n, k), to that of b.
    Raises: as `lu` and `cholesky`; ValueError for a b with another number of rows, an unknown
    ``assume`` or ``precision``, or ``check`` with ``refine`` or ``precision``; TypeError if
    ``a`` and ``b`` have different dtypes, and with ``refine`` for those of single precision.
    Adjoint: a solution with the transpose by the same factors, and its outer product with x.
    Source: LAPACK gesv, posv, dsgesv; oracle ``tests/python/oracle.py::solve``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.solve(jnp.array([[0.0, 2.0], [4.0, 0.0]]), jnp.ones(2)).tolist()
        [0.25, 0.5]
    """
    _dense_args.check_choice(assume, KINDS, "assume", "'general' or 'positive'", "solve")
    if not (_refined.is_asked_for(precision, check, "solve") or refine):
        given = {"block": block, "check": check, "mesh": mesh, "spec": spec, "shape": shape}
        return _dense_args.solved(FACTORED[assume], a, b, "solve", **given)
    if check:
        raise ValueError(
            "solve: check=True with refinement; a factor in single precision says nothing about "
            "the matrix, leave check= out"
        )
    n, _ = _dense_args.check_matrix(a, "solve", is_square=True, shape=shape)
    data = _dense_args.check_rhs(b, n, "solve", jnp.shape(a)[0])
    shapes = {"a": (n, n), "b": data}
    found = _dense_args.operands({"a": a, "b": b}, mesh, {"a": spec}, "solve", shapes)
    left, right = found["a"], found["b"]
    if left.x.dtype.name not in _dense_refine.SINGLE:
        raise TypeError(
            f"solve: a is {left.x.dtype.name}; refinement expects float64 or complex128"
        )
    deal = _dense_args.deal_of(left, block, "solve")
    given = {"lay": left.lay, "lay_b": right.lay, "deal": deal, "kind": KINDS[assume]}
    deal_b = _dense_args.deal_of_rhs(deal, data, right.x.dtype)
    return _dense_args.run(_by_refinement, left.x, right.x, deal_b=deal_b, **given)
