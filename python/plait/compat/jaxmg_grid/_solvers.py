"""JAXMg's solvers as releases from 1.0 on have them, by the functions of `plait.linalg`.

``T_A`` is how wide blocks of columns are that Cholesky and LU factors and eigendecompositions deal
out; the other solvers choose for themselves. ``pad`` and ``donate`` change nothing but what is
refused: plait pads nothing, and leaves operands as they were.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from plait import _mesh, _mesh_rules, _redist, linalg
from plait._dense_args import fitted
from plait._dense_args import run as _run
from plait.compat.jaxmg_grid import _grid
from plait.compat.jaxmg_grid._grid import Grid

# ---- what is refused -----------------------------------------------------------------------------


def _check(a: Any, T_A: int, name: str, **flags: Any) -> None:
    """A matrix with a dtype of solvers, a tile, and choices that are made while tracing."""
    if a.ndim != 2:
        raise ValueError(f"{name} expects a rank-2 matrix A.")
    if a.dtype.name not in _grid.DTYPES:
        routine = name.removesuffix("_shardmap_ctx")
        raise TypeError(f"{routine} supports float32, float64, complex64, and complex128.")
    if int(T_A) <= 0:
        raise ValueError("T_A must be positive.")
    for argument, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{argument} must be a Python bool.")


def _check_square(a: Any, name: str) -> None:
    if a.shape[0] != a.shape[1]:
        raise ValueError(f"{name} expects A to be square.")


def _check_rhs(a: Any, b: Any, name: str) -> None:
    if b.ndim not in (1, 2):
        raise ValueError(f"{name} expects a rank-1 or rank-2 RHS B.")
    if a.dtype != b.dtype:
        raise TypeError(f"{name} requires matching A/B dtypes.")
    if a.shape[0] != b.shape[0]:
        raise ValueError("A and B must have matching leading dimensions.")


def _check_rhs_tiles(b: Any, grid: Grid, T_A: int, pad: bool, name: str) -> None:
    """Without padding its columns are split and tiled, too."""
    n_rhs, parts = (*b.shape, 1)[1], grid.sizes[1]
    if pad:
        return
    if n_rhs % parts:
        raise ValueError(
            "pad=False requires the RHS column count to be divisible by the process-grid column "
            "count. Set pad=True to add routing columns for skinny RHS matrices."
        )
    _grid.check_tiles((b.shape[0], n_rhs), grid, T_A, pad, f"{name}(B)")


# ---- programs ------------------------------------------------------------------------------------


def _judged(x: Any, info: Any, *, n: int) -> tuple:
    """The result, NaN where something has failed, and what has for each of n devices."""
    nan = jnp.full((), jnp.nan, x.dtype)
    return jnp.where(info == 0, x, nan), jnp.full((n,), info, jnp.int32)


def _finite(values: Any, *, n: int) -> Any:
    """The status of a decomposition by values that all devices have."""
    is_finite = jnp.all(jnp.isfinite(jax.lax.stop_gradient(values)))
    return jnp.full((n,), jnp.where(is_finite, 0, 1), jnp.int32)


def _finite_parts(x: Any, *, mesh: Any) -> Any:
    """The same by a result that is split."""
    bad = ~jnp.isfinite(jax.lax.stop_gradient(x))
    n_bad = _redist.sum(bad.astype(jnp.int32), mesh=mesh)
    return jnp.full((mesh.size,), jnp.where(n_bad == 0, 0, 1), jnp.int32)


def _solve(factor: Any, a: Any, b: Any, T_A: int, place: tuple, pad: bool, name: str) -> tuple:
    """By Cholesky or LU factors: those, the solution, the status, and the grid."""
    a, b = jnp.asarray(a), jnp.asarray(b)
    _check(a, T_A, name)
    _check_square(a, name)
    _check_rhs(a, b, name)
    a, grid = _grid.locate(a, T_A, *place, pad, name)
    _check_rhs_tiles(b, grid, T_A, pad, name)
    with _grid.around(grid):
        b, spec = _grid.rhs(b, grid)
        f = factor(a, block=grid.block(a.shape[0], T_A), **grid.given)
        x, status = _run(_judged, f.solve(b, spec=spec), f.status, n=grid.mesh.size)
    return f, x, status, grid


def _chosen(*results: tuple[Any, bool]) -> Any:
    """Those that are wanted; alone without a tuple."""
    found = tuple(x for x, is_wanted in results if is_wanted)
    return found if len(found) > 1 else found[0]


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
    """Solve a x = b with a Hermitian positive definite matrix, of which the lower triangle is read.

    Returns x, split as b, and where asked for log det a, and a status: int32 for each device, 0, or
    the order of the leading minor that is not positive definite; then all else is NaN.

    Collective: over the mesh, in program order.
    Shapes: (N, N) and (N,) or (N, K) to that of b, () and (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.potrs`.  Source: `plait.linalg.cholesky`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import NamedSharding, PartitionSpec as P
        >>> from plait.compat import jaxmg_grid as jaxmg
        >>> mesh = jax.make_mesh((2, 2), ("pr", "pc"), devices=jax.devices()[:4])
        >>> a = jax.device_put(2 * jnp.eye(12), NamedSharding(mesh, P("pr", "pc")))
        >>> x, logdet = jaxmg.potrs(a, jnp.ones(12), T_A=3, return_logdet=True)
        >>> x[:3].tolist(), round(float(logdet), 4)
        ([0.5, 0.5, 0.5], 8.3178)
    """
    place = (mesh, matrix_specs, in_specs)
    f, x, status, grid = _solve(linalg.cholesky, a, b, T_A, place, pad, "potrs")
    return _chosen((x, True), *_logdet(f, grid, return_logdet), (status, return_status))


def _logdet(f: Any, grid: Grid, is_wanted: bool) -> list[tuple[Any, bool]]:
    """The log det of a factor, as `_chosen` takes it."""
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

    JAXMg gives what it has made of a, so that an outer ``jax.jit`` may donate it.

    Collective, Shapes, Raises, Adjoint, Source: as `potrs`.
    """
    place = (mesh, matrix_specs, in_specs)
    f, x, status, grid = _solve(linalg.cholesky, a, b, T_A, place, pad, "potrs_shardmap_ctx")
    return _chosen((a, True), (x, True), *_logdet(f, grid, return_logdet), (status, True))


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

    Returns x, split as b, and where asked for a status: int32 for each device, 0, or the order of
    the first pivot that is zero or not finite; then x is NaN.

    Collective: over the mesh, in program order.
    Shapes: (N, N) and (N,) or (N, K) to that of b, and (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.lu_solve`.  Source: `plait.linalg.lu`.
    """
    place = (mesh, matrix_specs, in_specs)
    _, x, status, _ = _solve(linalg.lu, a, b, T_A, place, pad, "lu_solve")
    return _chosen((x, True), (status, return_status))


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
    a, b = jnp.asarray(a), jnp.asarray(b)
    _check(a, T_A, name)
    _check_rhs(a, b, name)
    if a.shape[0] < a.shape[1]:
        raise ValueError("least_squares currently requires M >= N.")
    a, grid = _grid.locate(a, T_A, *place, pad, name)
    _check_rhs_tiles(b, grid, T_A, pad, name)
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
    """The x of least ‖a x - b‖ for a matrix of full rank with M ≥ N, by QR factors.

    Returns x, split as b along the axes whose extents the mesh divides, and where asked for a
    status: int32 for each device, 0, or 1 where x is not finite.

    Collective: over the mesh, in program order.
    Shapes: (M, N) and (M,) or (M, K) to (N,) or (N, K), and (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.lstsq`.  Source: `plait.linalg.lstsq`.
    """
    place = (mesh, matrix_specs, in_specs)
    x, _, grid = _least(a, b, T_A, place, pad, "least_squares")
    return _with_status([x], x, grid, return_status)


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
    return _with_status([a, _begun(x, b.shape, grid), x], x, grid, True)


def _begun(x: Any, shape: tuple[int, ...], grid: Grid) -> Any:
    """An array of this shape that begins with x."""
    with _grid.around(grid):
        x, place = _mesh.locate(x, grid.mesh, None, "least_squares", is_any_size=True)
        to = fitted(place.mesh, place.spec, shape)
        given = {"dims": shape, "shape": x.shape}
        return _mesh_rules.bind("redistribute", x, place.mesh, place.spec, to, **given)


def _with_status(results: list, judged: Any, grid: Grid, is_wanted: bool) -> Any:
    """Results of a decomposition, and whether one of them that is split is finite."""
    if is_wanted:
        with _grid.around(grid):
            results = [*results, _run(_finite_parts, judged, mesh=grid.mesh)]
    return _chosen(*((x, True) for x in results))


def _located(a: Any, T_A: int, place: tuple, pad: bool, name: str, **flags: Any) -> tuple:
    """The matrix of a decomposition, and its grid."""
    a = jnp.asarray(a)
    _check(a, T_A, name, **flags)
    if name.startswith(("qr", "polar")) and a.shape[0] < a.shape[1]:
        raise ValueError(f"{name} requires a tall or square matrix with m >= n.")
    if name.startswith("syevd"):
        _check_square(a, name)
    return _grid.locate(a, T_A, *place, pad, name)


def qr(
    a: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    return_status: bool = False,
    pad: bool = True,
    donate: bool = True,
) -> tuple[Array, ...]:
    """Q with orthonormal columns and an upper triangular R, of a tall or square matrix.

    Returns (Q, R), split as the matrix along the axes whose extents the mesh divides, and where
    asked for a status: int32 for each device, 0, or 1 where R is not finite.

    Collective: over the mesh, in program order.  Shapes: (M, N) to (M, N), (N, N), (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.qr`.  Source: `plait.linalg.qr`.
    """
    a, grid = _located(a, T_A, (mesh, matrix_specs, in_specs), pad, "qr")
    with _grid.around(grid):
        q, r = linalg.qr(a, **grid.given)
    return _with_status([q, r], r, grid, return_status)


def qr_shardmap_ctx(
    a: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    pad: bool = True,
) -> tuple[Array, Array, Array]:
    """`qr`, always with the status.

    Collective, Shapes, Raises, Adjoint, Source: as `qr`.
    """
    given = {"in_specs": in_specs, "pad": pad, "return_status": True}
    return qr(a, T_A, mesh, matrix_specs, **given)


def syevd(
    a: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    return_eigenvectors: bool = True,
    return_status: bool = False,
    pad: bool = True,
    donate: bool = True,
) -> Any:
    """Eigenvalues of a Hermitian matrix, ascending, on every device, and eigenvectors.

    The vectors are columns of a matrix that is split as the operand. Returns w, (w, V), and where
    asked for a status: int32 for each device, 0, or 1 where the matrix is not finite, all NaN then.

    Collective: over the mesh, in program order.  Shapes: (N, N) to (N,), (N, N) and (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.eigh` with ``degenerate="check"``.  Source: `plait.linalg.eigh`.
    """
    place, flags = (mesh, matrix_specs, in_specs), {"return_eigenvectors": return_eigenvectors}
    a, grid = _located(a, T_A, place, pad, "syevd", **flags)
    given = grid.given | {"block": grid.block(a.shape[0], T_A)}
    with _grid.around(grid):
        if return_eigenvectors:
            w, v = linalg.eigh(a, degenerate="check", **given)
        else:
            w, v = linalg.eigvalsh(a, **given), None
        status = _run(_finite, w, n=grid.mesh.size)
    return _chosen((w, True), (v, return_eigenvectors), (status, return_status))


def syevd_shardmap_ctx(
    a: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    return_eigenvectors: bool = True,
    pad: bool = True,
) -> tuple[Array, ...]:
    """`syevd` with the operand before its results: (a, w, V, status) or (a, w, status).

    Collective, Shapes, Raises, Adjoint, Source: as `syevd`.
    """
    given = {"in_specs": in_specs, "return_eigenvectors": return_eigenvectors, "pad": pad}
    return (a, *syevd(a, T_A, mesh, matrix_specs, return_status=True, **given))


def gesvd(
    a: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    compute_u: bool = True,
    compute_vh: bool = True,
    full_matrices: bool = False,
    return_status: bool = False,
    pad: bool = True,
    donate: bool = True,
) -> Any:
    """Singular values, descending, on every device, and singular vectors of any matrix.

    Returns (U, s, Vh), (U, s), (s, Vh) or s, and where asked for a status: int32 for each device,
    0, or 1 where the matrix is not finite. Vectors are split as the matrix along the axes whose
    extents the mesh divides; ``full_matrices`` are square.

    Collective: over the mesh, in program order.
    Shapes: (M, N) to (M, k), (k,), (k, N) with k = min(M, N), full (M, M), (k,), (N, N).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.svd`.  Source: `plait.linalg.svd`.
    """
    place = (mesh, matrix_specs, in_specs)
    flags = {"compute_u": compute_u, "compute_vh": compute_vh, "full_matrices": full_matrices}
    a, grid = _located(a, T_A, place, pad, "gesvd", **flags)
    with _grid.around(grid):
        if compute_u or compute_vh:
            u, s, vh = linalg.svd(a, full_matrices=full_matrices, **grid.given)
        else:
            u, s, vh = None, linalg.svdvals(a, **grid.given), None
        status = _run(_finite, s, n=grid.mesh.size)
    return _chosen((u, compute_u), (s, True), (vh, compute_vh), (status, return_status))


def gesvd_shardmap_ctx(
    a: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    compute_u: bool = True,
    compute_vh: bool = True,
    full_matrices: bool = False,
    pad: bool = True,
) -> tuple[Array, ...]:
    """`gesvd` with the operand before its results, and always with the status.

    Collective, Shapes, Raises, Adjoint, Source: as `gesvd`.
    """
    flags = {"compute_u": compute_u, "compute_vh": compute_vh, "full_matrices": full_matrices}
    given = flags | {"in_specs": in_specs, "pad": pad, "return_status": True}
    return (a, *gesvd(a, T_A, mesh, matrix_specs, **given))


def polar(
    a: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    compute_h: bool = True,
    return_status: bool = False,
    pad: bool = True,
    donate: bool = True,
) -> Any:
    """Up with orthonormal columns and a Hermitian H ≥ 0 with a = Up H, of a tall or square matrix.

    Returns (Up, H) or Up, split as the matrix along the axes whose extents the mesh divides, and
    where asked for a status: int32 for each device, 0, or 1 where Up is not finite.

    Collective: over the mesh, in program order.  Shapes: (M, N) to (M, N), (N, N), (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.polar`.  Source: `plait.linalg.polar`.
    """
    place = (mesh, matrix_specs, in_specs)
    a, grid = _located(a, T_A, place, pad, "polar", compute_h=compute_h)
    with _grid.around(grid):
        up, h = linalg.polar(a, **grid.given)
    return _with_status([up, h] if compute_h else [up], up, grid, return_status)


def polar_shardmap_ctx(
    a: Array,
    T_A: int,
    mesh: Any = None,
    matrix_specs: Any = None,
    *,
    in_specs: Any = None,
    compute_h: bool = True,
    pad: bool = True,
) -> tuple[Array, ...]:
    """`polar`, always with the status.

    Collective, Shapes, Raises, Adjoint, Source: as `polar`.
    """
    given = {"in_specs": in_specs, "compute_h": compute_h, "pad": pad, "return_status": True}
    return polar(a, T_A, mesh, matrix_specs, **given)
