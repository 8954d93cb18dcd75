"""JAXMg's solvers of systems as in releases from 1.0 on, by `plait.linalg`.

``T_A`` is the width of the blocks of columns that Cholesky and LU factors deal out. ``pad`` and
``donate`` only change what is refused: plait pads nothing, and leaves operands as they were.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array
from plait import _mesh, _mesh_rules, linalg
from plait._dense_args import fitted, run
from plait.compat.jaxmg_grid import _grid, _judge
from plait.compat.jaxmg_grid._grid import Grid


def _located(
    a: Any, b: Any, T_A: int, place: tuple, pad: bool, name: str, is_square: bool
) -> tuple:
    """Matrix and right-hand sides, checked, and the grid."""
    a, b = jnp.asarray(a), jnp.asarray(b)
    _judge.check(a, T_A, name)
    if is_square:
        _judge.check_square(a, name)
    _judge.check_rhs(a, b, name)
    if a.shape[0] < a.shape[1]:
        raise ValueError("least_squares currently requires M >= N.")
    a, grid = _grid.locate(a, T_A, *place, pad, name)
    _judge.check_rhs_tiles(b, grid, T_A, pad, name)
    return a, b, grid


def _solve(factor: Any, a: Any, b: Any, T_A: int, place: tuple, pad: bool, name: str) -> tuple:
    """Solves by Cholesky or LU factors; returns those, the solution, the status, and the grid."""
    a, b, grid = _located(a, b, T_A, place, pad, name, is_square=True)
    with _grid.around(grid):
        b, spec = _grid.rhs(b, grid)
        f = factor(a, block=grid.block(a.shape[0], T_A), **grid.given)
        x, status = run(_judge.judged, f.solve(b, spec=spec), f.status, n=grid.mesh.size)
    return f, x, status, grid


def potrs(
    a: Array,
    b: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    return_status: bool = False,
    return_logdet: bool = False,
    pad: bool = True,
    donate: bool = True,
) -> Any:
    """Solve a x = b with a Hermitian positive definite matrix, reading only the lower triangle.

    Returns x, split as b. On request, it adds log det a, and a status: int32 for each device, 0, or
    the order of the leading minor that is not positive definite; then all else is NaN.

    Collective: over the mesh, in program order.
    Shapes: (N, N) and (N,) or (N, K) to that of b, () and (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.potrs`.  Source: `plait.linalg.cholesky`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
        >>> from plait.compat import jaxmg_grid as jaxmg
        >>> kinds = (AxisType.Auto, AxisType.Auto)
        >>> mesh = jax.make_mesh((2, 2), ("pr", "pc"), kinds, devices=jax.devices()[:4])
        >>> a = jax.device_put(2 * jnp.eye(12), NamedSharding(mesh, P("pr", "pc")))
        >>> x, logdet = jaxmg.potrs(a, jnp.ones(12), T_A=3, return_logdet=True)
        >>> bool(jnp.allclose(x, 0.5)), round(float(logdet), 4)
        (True, 8.3178)
    """
    place = (mesh, matrix_specs, in_specs)
    f, x, status, grid = _solve(linalg.cholesky, a, b, T_A, place, pad, "potrs")
    return _judge.chosen((x, True), *_logdet(f, grid, return_logdet), (status, return_status))


def _logdet(f: Any, grid: Grid, is_wanted: bool) -> list[tuple[Any, bool]]:
    """The log det of a factor, in the form that `_judge.chosen` takes."""
    if not is_wanted:
        return []
    with _grid.around(grid):
        return [(f.logdet(), True)]


def potrs_shardmap_ctx(
    a: Array,
    b: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    return_logdet: bool = False,
    pad: bool = True,
) -> tuple[Array, ...]:
    """`potrs` with the operand before its results: (a, x, status) or (a, x, logdet, status).

    JAXMg returns what it has made of a, so that an outer ``jax.jit`` may donate it.

    Collective, Shapes, Raises, Adjoint, Source: as `potrs`.
    """
    place = (mesh, matrix_specs, in_specs)
    f, x, status, grid = _solve(linalg.cholesky, a, b, T_A, place, pad, "potrs_shardmap_ctx")
    return _judge.chosen((a, True), (x, True), *_logdet(f, grid, return_logdet), (status, True))


def lu_solve(
    a: Array,
    b: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    return_status: bool = False,
    pad: bool = True,
    donate: bool = True,
) -> Any:
    """Solve a x = b with any square matrix, by LU factors with partial pivoting.

    Returns x, split as b. On request, it adds a status: int32 for each device, 0, or the order of
    the first pivot that is zero or not finite; then x is NaN.

    Collective: over the mesh, in program order.
    Shapes: (N, N) and (N,) or (N, K) to that of b, and (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.lu_solve`.  Source: `plait.linalg.lu`.
    """
    place = (mesh, matrix_specs, in_specs)
    _, x, status, _ = _solve(linalg.lu, a, b, T_A, place, pad, "lu_solve")
    return _judge.chosen((x, True), (status, return_status))


def lu_solve_shardmap_ctx(
    a: Array,
    b: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    pad: bool = True,
) -> tuple[Array, Array, Array]:
    """`lu_solve` with the operand before its results: (a, x, status).

    Collective, Shapes, Raises, Adjoint, Source: as `lu_solve`.
    """
    place = (mesh, matrix_specs, in_specs)
    _, x, status, _ = _solve(linalg.lu, a, b, T_A, place, pad, "lu_solve_shardmap_ctx")
    return a, x, status


def _least(a: Any, b: Any, T_A: int, place: tuple, pad: bool, name: str) -> tuple:
    a, b, grid = _located(a, b, T_A, place, pad, name, is_square=False)
    with _grid.around(grid):
        b, _ = _grid.rhs(b, grid)
        return linalg.lstsq(a, b, **grid.given), b, grid


def least_squares(
    a: Array,
    b: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    return_status: bool = False,
    pad: bool = True,
    donate: bool = True,
) -> Any:
    """The x with the least ‖a x - b‖ for a matrix of full rank with M ≥ N, by QR factors.

    Returns x, split as b along the axes whose extents the mesh divides. On request, it adds a
    status: int32 for each device, 0, or 1 if x is not finite.

    Collective: over the mesh, in program order.
    Shapes: (M, N) and (M,) or (M, K) to (N,) or (N, K), and (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.lstsq`.  Source: `plait.linalg.lstsq`.
    """
    place = (mesh, matrix_specs, in_specs)
    x, _, grid = _least(a, b, T_A, place, pad, "least_squares")
    return _judge.with_status([x], x, grid, return_status)


def least_squares_shardmap_ctx(
    a: Array,
    b: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    pad: bool = True,
) -> tuple[Array, Array, Array, Array]:
    """`least_squares` with operands before its results: (a, b with x in its first rows, x, status).

    Collective, Shapes, Raises, Adjoint, Source: as `least_squares`.
    """
    place = (mesh, matrix_specs, in_specs)
    x, b, grid = _least(a, b, T_A, place, pad, "least_squares_shardmap_ctx")
    return _judge.with_status([a, _begun(x, b.shape, grid), x], x, grid, True)


def _begun(x: Any, shape: tuple[int, ...], grid: Grid) -> Any:
    """An array of this shape that starts with x."""
    with _grid.around(grid):
        x, place = _mesh.locate(x, grid.mesh, None, "least_squares", is_any_size=True)
        to = fitted(place.mesh, place.spec, shape)
        given = {"dims": shape, "shape": x.shape}
        return _mesh_rules.bind("redistribute", x, place.mesh, place.spec, to, **given)
