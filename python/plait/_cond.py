"""Condition numbers of global matrices: by singular values, or estimates from a factor."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from plait import _dense, _dense_args, _dense_cond, _dense_lu, _dense_svd
from plait._dealt import Deal
from plait._dense_args import Lay

ORDERS = (None, 2, *_dense_cond.ORDERS)


def _by_values(a: Array, *, lay: Lay, deal: Deal) -> Array:
    x = _dense_args.deal_in(lay, a, deal)
    s = _dense_svd.svdvals(x)
    return jnp.where(s[-1] == 0, jnp.inf, s[0] / s[-1])  # also for zeros


def _by_estimate(a: Array, *, lay: Lay, deal: Deal, order: Any) -> Array:
    x, _ = _dense.around_one(_dense_args.deal_in(lay, a, deal))
    factor, rows, status = _dense_lu.lu(x)
    return of_norms(*_dense_cond.of_matrix("lu", order, x, (factor, rows)), status)


def of_norms(size: Array, of_inverse: Array, status: Array) -> Array:
    """Inf for a matrix with a zero pivot, but NaN for one with NaN."""
    bad = jnp.where(jnp.isnan(size), size, jnp.full_like(size, jnp.inf))
    return jnp.where(status == 0, size * of_inverse, bad)


def cond(
    a: Array,
    p: Any = 2,
    *,
    block: int | None = None,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """The condition number of a matrix: ‖a‖ ‖a⁻¹‖, in the norm p.

    With ``p=2`` or None it is the largest singular value divided by the smallest. If the smallest
    is only rounding error, the result is some number beyond 1 / ε, or inf.

    With ``p=1`` or ``inf`` it is an estimate from an `lu` factorization, some sixty times cheaper.
    The estimate is never too large, except for rounding, nearly always right to some digits, and
    hardly ever less than a third of the true value. ``F.cond(p)`` of an existing factor costs a few
    solutions.

    The result is inf for a singular matrix, and NaN for a matrix with NaN. ``shape`` is the shape
    of the data in an array with padding at its tail, which is not read.

    Collective: over the mesh, in program order.
    Shapes: (m, n) to a scalar, m and n not 0; for an estimate (n, n).
    Raises: as `svd` and `lu`; ValueError for an unknown p; TypeError for derivatives of an
    estimate.
    Adjoint: that of `svd`; an estimate has none.
    Source: as `svd`; Higham, Tisseur, 2000, as LAPACK gecon; oracle ``numpy.linalg.cond``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> a = jnp.array([[0.0, -4.0], [2.0, 0.0]])
        >>> round(plait.linalg.cond(a).item(), 5), plait.linalg.cond(a, 1).item()
        (2.0, 2.0)
    """
    _dense_args.check_choice(p, ORDERS, "p", "2, 1 or inf", "cond")
    is_estimate = p in _dense_cond.ORDERS
    found = _dense_args.located(a, "cond", mesh, spec, shape, is_square=is_estimate)
    if 0 in found.shape:
        raise ValueError(f"cond: a is {' x '.join(map(str, found.shape))}; expected elements")
    given = {"lay": found.lay, "deal": _dense_args.deal_of(found, block, "cond")}
    if is_estimate:
        return _dense_args.run(_by_estimate, found.x, order=p, **given)
    return _dense_args.run(_by_values, found.x, **given)


def check_order(p: Any) -> None:
    """Checks that the order is a norm that a factor has an estimate for."""
    expected = "1 or inf (plait.linalg.cond has 2)"
    _dense_args.check_choice(p, _dense_cond.ORDERS, "p", expected, "cond")
