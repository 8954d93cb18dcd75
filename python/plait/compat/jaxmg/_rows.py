"""JAXMg's solvers as in releases from 0.0.2 on: split by rows, ``P(axis, None)``.

Only the upper triangle is read: the rows of a matrix are the columns of its transpose. ``pad=True``
takes any number of rows that the devices divide. With ``pad=False``, every device's part ends with
the rows of zeros that fill the last tile, and so do results.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType
from plait.compat.jaxmg import _solvers


def potrs(
    a: Array,
    b: Array,
    T_A: int,
    mesh: Any,
    in_specs: Any,
    return_status: bool = False,
    pad: bool = True,
) -> Any:
    """Solve a x = b with a Hermitian positive definite matrix that is split by rows.

    ``in_specs`` is ``P(axis, None)`` or a tuple of it, as since 0.0.6, or ``(P(axis, None), P(None,
    None))``, as up to 0.0.5. ``return_status=True`` adds an int32: 0, or 7 for a matrix that is not
    positive definite; then x is NaN.

    Collective: over the mesh, in program order.
    Shapes: (N, N), with padding for ``pad=False``, and (N, K) to (N, K) on every device. Since
    0.0.6 also (N,), to (N, 1).
    Raises: AssertionError, ValueError with JAXMg's texts.
    Adjoint: as `plait.linalg.potrs`.  Source: `plait.linalg.cholesky`.
    """
    spec, is_new = _solvers.row_spec_of_potrs(in_specs)
    assert a.shape[1] == b.shape[0], "A and b must have the same number of columns."
    assert a.ndim == 2, "a must be a 2D array."
    if is_new:
        assert b.ndim <= 2, "b must be a 1D or 2D array."
        b = b[:, None] if b.ndim == 1 else b
    assert b.ndim == 2, "b must be a 2D array."
    given = {"a": a, "b": b}
    (x, status), _ = _solvers.by_rows(_solvers.solve, given, spec, mesh, T_A, pad, "potrs")
    return (x, status) if return_status else x


def potrs_shardmap_ctx(
    a: Array, b: Array, T_A: int, pad: bool = True, *, axis_name: Any = None
) -> tuple[Array, Array]:
    """`potrs` inside ``jax.shard_map``, on a device's rows; always with the status.

    ``axis_name`` is needed if it is not clear which axes of the mesh split the rows.

    Collective: over the mesh axis, in program order.
    Shapes: (N / ndev, N), with padding for ``pad=False``, and (N, K) to (N, K) and int32 (1,).
    Raises: AssertionError with JAXMg's texts.
    Adjoint: by solutions with the same factor.  Source: as `plait.linalg.cholesky`.
    """
    assert a.shape[1] == b.shape[0], "A and b must have the same number of rows."
    assert a.ndim == 2, "a must be a 2D array."
    assert b.ndim == 2, "b must be a 2D array."
    given = {"a": a, "b": b}
    name = "potrs_shardmap_ctx"
    (x, status), _ = _solvers.rows_inside(_solvers.solve, given, T_A, pad, axis_name, name)
    return x, status[None]


def potri(
    a: Array,
    T_A: int,
    mesh: Any,
    in_specs: Any,
    return_status: bool = False,
    pad: bool = True,
) -> Any:
    """Invert a Hermitian positive definite matrix that is split by rows: both triangles.

    ``in_specs`` is ``P(axis, None)``, or a tuple of it; the status is that of `potrs`.

    Collective: over the mesh, in program order.  Shapes: that of a to the same.
    Raises: TypeError, ValueError, AssertionError with JAXMg's texts.
    Adjoint: as `plait.linalg.potri`.  Source: `plait.linalg.potri`.
    """
    spec = _solvers.row_spec(in_specs, "potri")
    assert a.ndim == 2, "a must be a 2D array."
    (y, status), padded = _solvers.by_rows(_solvers.invert, {"a": a}, spec, mesh, T_A, pad, "potri")
    y = padded(y, 0)
    return (y, status) if return_status else y


def potri_shardmap_ctx(
    a: Array, T_A: int, pad: bool = True, *, axis_name: Any = None
) -> tuple[Array, Array]:
    """`potri` inside ``jax.shard_map``, on a device's rows; always with the status.

    JAXMg gives the upper triangle here, and `potri_symmetrize` adds the other one. plait gives
    both, and `potri_symmetrize` changes nothing.

    Collective: over the mesh axis, in program order.
    Shapes: (N / ndev, N), with padding for ``pad=False``, to the same and int32 (1,).
    Raises: AssertionError with JAXMg's texts.
    Adjoint: by products with the inverse.  Source: as `plait.linalg.potri`.
    """
    assert a.ndim == 2, "a must be a 2D array."
    name = "potri_shardmap_ctx"
    (y, status), padded = _solvers.rows_inside(_solvers.invert, {"a": a}, T_A, pad, axis_name, name)
    return padded(y, 0), status[None]


@jax.jit
def potri_symmetrize(_a: Array) -> Array:
    """The Hermitian matrix with this upper triangle.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxmg
        >>> jaxmg.potri_symmetrize(jnp.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
        [[1.0, 2.0], [2.0, 3.0]]
    """
    below, where = jnp.triu(_a, 1).T.conj(), jax.typeof(_a).sharding
    if any(kind == AxisType.Explicit for kind in where.mesh.axis_types):
        below = jax.sharding.reshard(below, where)  # split as the matrix, not its transpose
    return jnp.triu(_a) + below


def syevd(
    a: Array,
    T_A: int,
    mesh: Any,
    in_specs: Any,
    return_eigenvectors: bool = True,
    return_status: bool = False,
    pad: bool = True,
) -> Any:
    """Eigenvalues of a Hermitian matrix that is split by rows, ascending, on every device.

    Eigenvectors are the columns of V, which is split by columns. This holds for complex matrices,
    too, where JAXMg returns their conjugates. Returns w, (w, V), (w, status) or (w, V, status).

    Collective: over the mesh, in program order.
    Shapes: (N, N), with padding for ``pad=False``, to (N,) and its transpose.
    Raises: as `potri`. Warns for T_A > 1024, and takes 1024, as since 0.0.6.
    Adjoint: as `plait.linalg.eigh` with ``degenerate="check"``.  Source: `plait.linalg.eigh`.
    """
    spec = _solvers.row_spec(in_specs, "syevd")
    assert a.ndim == 2, "a must be a 2D array."
    T_A = _solvers.lowered_width(T_A)
    program = _solvers.decompose if return_eigenvectors else _solvers.values
    found, padded = _solvers.by_rows(program, {"a": a}, spec, mesh, T_A, pad, "syevd")
    found = _padded_vectors(found, padded)
    found = found if return_status else found[:-1]
    return found if len(found) > 1 else found[0]


def syevd_shardmap_ctx(
    a: Array,
    T_A: int,
    return_eigenvectors: bool = True,
    pad: bool = True,
    *,
    axis_name: Any = None,
) -> tuple[Array, ...]:
    """`syevd` inside ``jax.shard_map``, on a device's rows; always with the status.

    Collective: over the mesh axis, in program order.
    Shapes: (N / ndev, N), with padding for ``pad=False``, to (N,), its transpose and int32 (1,).
    Raises: AssertionError, ValueError with JAXMg's texts.
    Adjoint: as `syevd`.  Source: as `plait.linalg.eigh`.
    """
    assert a.ndim == 2, "a must be a 2D array."
    _solvers.check_width(T_A)
    program = _solvers.decompose if return_eigenvectors else _solvers.values
    name = "syevd_shardmap_ctx"
    found, padded = _solvers.rows_inside(program, {"a": a}, T_A, pad, axis_name, name)
    *found, status = _padded_vectors(found, padded)
    return (*found, status[None])


def _padded_vectors(found: tuple, padded: Any) -> tuple:
    """Eigenvalues, vectors with padding columns for the operand's padding rows, the status."""
    w, *vectors, status = found
    return (w, *(padded(v, 1) for v in vectors), status)
