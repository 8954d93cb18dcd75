"""JAXMg's decompositions as in releases from 1.0 on, by `plait.linalg`.

``T_A`` is the width of the blocks of columns that an eigendecomposition deals out; the other
decompositions choose for themselves. ``pad`` and ``donate`` are as in `_solve`.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array
from plait import linalg
from plait._dense_args import run
from plait.compat.jaxmg_grid import _grid, _judge


def _located(a: Any, T_A: int, place: tuple, pad: bool, name: str, **flags: Any) -> tuple:
    """The matrix of a decomposition, and its grid."""
    a = jnp.asarray(a)
    _judge.check(a, T_A, name, **flags)
    if name.startswith(("qr", "polar")) and a.shape[0] < a.shape[1]:
        raise ValueError(f"{name} requires a tall or square matrix with m >= n.")
    if name.startswith("syevd"):
        _judge.check_square(a, name)
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

    Returns (Q, R), split as the matrix along the axes whose extents the mesh divides. On request,
    it adds a status: int32 for each device, 0, or 1 if R is not finite.

    Collective: over the mesh, in program order.  Shapes: (M, N) to (M, N), (N, N), (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.qr`.  Source: `plait.linalg.qr`.
    """
    a, grid = _located(a, T_A, (mesh, matrix_specs, in_specs), pad, "qr")
    with _grid.around(grid):
        q, r = linalg.qr(a, **grid.given)
    return _judge.with_status([q, r], r, grid, return_status)


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

    The vectors are columns of a matrix that is split as the operand. Returns w or (w, V). On
    request, it adds a status: int32 for each device, 0, or 1 if the matrix is not finite; then all
    else is NaN.

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
        status = run(_judge.finite, w, n=grid.mesh.size) if return_status else None
    return _judge.chosen((w, True), (v, return_eigenvectors), (status, return_status))


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

    Returns (U, s, Vh), (U, s), (s, Vh) or s. On request, it adds a status: int32 for each device,
    0, or 1 if the matrix is not finite. Vectors are split as the matrix along the axes whose
    extents the mesh divides; with ``full_matrices`` they are square matrices.

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
        status = run(_judge.finite, s, n=grid.mesh.size) if return_status else None
    return _judge.chosen((u, compute_u), (s, True), (vh, compute_vh), (status, return_status))


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

    Returns (Up, H) or Up, split as the matrix along the axes whose extents the mesh divides. On
    request, it adds a status: int32 for each device, 0, or 1 if Up is not finite.

    Collective: over the mesh, in program order.  Shapes: (M, N) to (M, N), (N, N), (devices,).
    Raises: TypeError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.polar`.  Source: `plait.linalg.polar`.
    """
    place = (mesh, matrix_specs, in_specs)
    a, grid = _located(a, T_A, place, pad, "polar", compute_h=compute_h)
    with _grid.around(grid):
        up, h = linalg.polar(a, **grid.given)
    return _judge.with_status([up, h] if compute_h else [up], up, grid, return_status)


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
