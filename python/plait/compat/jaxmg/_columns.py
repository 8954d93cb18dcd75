"""JAXMg's solvers as in release 0.0.1: matrices are split by columns, ``P(None, axis)``."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from plait.compat.jaxmg import _rows, _solvers


def potrs(
    a: Array,
    b: Array,
    T_A: int,
    mesh: Any,
    in_specs: Any,
    cyclic_1d: bool = False,
    return_status: bool = False,
    *,
    pad: bool | None = None,
) -> Any:
    """Solve a x = b with a Hermitian positive definite matrix.

    ``in_specs`` is ``(P(None, axis), P(None, None))``; ``cyclic_1d=True`` says that a is laid out
    by `cyclic_1d_layout`. With ``pad`` given, a is split by rows, as in later releases, see
    `plait.compat.jaxmg_rows`. ``return_status=True`` adds an int32: 0, or 7 for a matrix that is
    not positive definite; then x is NaN. Only the lower triangle is read.

    Collective: over the mesh, in program order.
    Shapes: (N, N), or that of the layout, and (N, K) to (N, K) on every device.
    Raises: AssertionError, ValueError with JAXMg's texts, also for tilings that JAXMg refuses.
    Adjoint: as `plait.linalg.potrs`.  Source: `plait.linalg.cholesky`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> from plait.compat import jaxmg
        >>> mesh, specs = jax.make_mesh((1,), ("x",)), (P(None, "x"), P(None, None))
        >>> a, b = jnp.diag(jnp.array([4.0, 16.0])), jnp.ones((2, 1))
        >>> jaxmg.potrs(a, b, 1, mesh, specs).tolist()
        [[0.25], [0.0625]]
    """
    if pad is not None:
        return _rows.potrs(a, b, T_A, mesh, in_specs, return_status, pad)
    _check_operands(a, b)
    spec, spec_b = _solvers.two_specs(in_specs)
    given = {"a": a, "b": b}
    _solvers.check_columns(spec, "potrs")
    _solvers.check_rhs_spec(spec_b)
    x, status = _solvers.by_columns(_solvers.solve, given, spec, mesh, T_A, cyclic_1d, "potrs")
    return (x, status) if return_status else x


def _check_operands(a: Array, b: Array) -> None:
    assert a.shape[0] == b.shape[0], "A and b must have the same number of rows."
    assert a.ndim == 2, "a must be a 2D array."
    assert b.ndim == 2, "b must be a 2D array."


def potrs_no_shardmap(
    a: Array, b: Array, T_A: int, cyclic_1d: bool = False, axis_name: Any = "x"
) -> tuple[Array, Array]:
    """`potrs` inside ``jax.shard_map``, on a device's columns; always with the status.

    Collective: over the mesh axis, in program order.
    Shapes: (N, N / ndev), or (N, need) if it is dealt out, and (N, K) to (N, K) and int32 (1,), the
    same on all devices.
    Raises: AssertionError, ValueError with JAXMg's texts.
    Adjoint: by solutions with the same factor.  Source: as `plait.linalg.cholesky`.
    """
    _check_operands(a, b)
    given = {"a": a, "b": b}
    x, status = _solvers.columns_inside(
        _solvers.solve, given, T_A, cyclic_1d, axis_name, "potrs_no_shardmap"
    )
    return x, status[None]


def potri(
    a: Array,
    T_A: int,
    mesh: Any,
    in_specs: Any,
    cyclic_1d: bool = False,
    return_status: bool = False,
    *,
    pad: bool | None = None,
) -> Any:
    """Invert a Hermitian positive definite matrix: both triangles, split as a.

    ``in_specs`` is ``P(None, axis)`` or a tuple of it; the other arguments are those of `potrs`. If
    the matrix is dealt out, the inverse is dealt out as well.

    Collective: over the mesh, in program order.  Shapes: that of a to the same.
    Raises: as `potrs`.  Adjoint: as `plait.linalg.potri`.  Source: `plait.linalg.potri`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> from plait.compat import jaxmg
        >>> mesh, a = jax.make_mesh((1,), ("x",)), jnp.diag(jnp.array([4.0, 16.0]))
        >>> jaxmg.potri(a, 1, mesh, P(None, "x")).tolist()
        [[0.25, 0.0], [0.0, 0.0625]]
    """
    if pad is not None:
        return _rows.potri(a, T_A, mesh, in_specs, return_status, pad)
    assert a.ndim == 2, "a must be a 2D array."
    spec, given = _solvers.one_spec(in_specs), {"a": a}
    _solvers.check_columns(spec, "potri")
    y, status = _solvers.by_columns(_solvers.invert, given, spec, mesh, T_A, cyclic_1d, "potri")
    return (y, status) if return_status else y


def potri_no_shardmap(
    a: Array, T_A: int, cyclic_1d: bool = False, axis_name: Any = "x"
) -> tuple[Array, Array]:
    """`potri` inside ``jax.shard_map``, on a device's columns; always with the status.

    Collective: over the mesh axis, in program order.
    Shapes: (N, N / ndev), or (N, need), to the same and int32 (1,).
    Raises: AssertionError, ValueError with JAXMg's texts.
    Adjoint: by products with the inverse.  Source: as `plait.linalg.potri`.
    """
    assert a.ndim == 2, "a must be a 2D array."
    y, status = _solvers.columns_inside(
        _solvers.invert, {"a": a}, T_A, cyclic_1d, axis_name, "potri_no_shardmap"
    )
    return y, status[None]


def syevd(
    a: Array,
    T_A: int,
    mesh: Any,
    in_specs: Any,
    return_eigenvectors: bool = True,
    cyclic_1d: bool = False,
    return_status: bool = False,
    *,
    pad: bool | None = None,
) -> Any:
    """Eigenvalues of a Hermitian matrix, ascending, on every device; eigenvectors split by columns.

    Returns w, (w, V), (w, status) or (w, V, status); the status has a number for each device of the
    axis. The other arguments are those of `potri`. V is dealt out if a is, with zeros where a has
    padding.

    Collective: over the mesh, in program order.  Shapes: that of a to (N,) and that of a.
    Raises: as `potri`; ValueError for T_A > 1024.
    Adjoint: as `plait.linalg.eigh` with ``degenerate="check"``.  Source: `plait.linalg.eigh`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> from plait.compat import jaxmg
        >>> mesh, a = jax.make_mesh((1,), ("x",)), jnp.array([[0.0, 2.0], [2.0, 0.0]])
        >>> w = jaxmg.syevd(a, 1, mesh, P(None, "x"), return_eigenvectors=False)
        >>> [round(float(x), 5) for x in w]
        [-2.0, 2.0]
    """
    if pad is not None:
        return _rows.syevd(a, T_A, mesh, in_specs, return_eigenvectors, return_status, pad)
    assert a.ndim == 2, "a must be a 2D array."
    spec, given = _solvers.one_spec(in_specs), {"a": a}
    _solvers.check_columns(spec, "syevd")
    _solvers.check_width(T_A)
    program = _solvers.decompose if return_eigenvectors else _solvers.values
    *found, status = _solvers.by_columns(program, given, spec, mesh, T_A, cyclic_1d, "syevd")
    if return_status:
        found.append(jnp.broadcast_to(status, (_solvers.n_devices(mesh, spec, 1),)))
    return tuple(found) if len(found) > 1 else found[0]


def syevd_no_shardmap(
    a: Array,
    T_A: int,
    return_eigenvectors: bool = True,
    cyclic_1d: bool = False,
    axis_name: Any = "x",
) -> tuple[Array, ...]:
    """`syevd` inside ``jax.shard_map``, on a device's columns; always with the status.

    Collective: over the mesh axis, in program order.
    Shapes: (N, N / ndev), or (N, need), to (N,), the operand's, and int32 (1,).
    Raises: AssertionError, ValueError with JAXMg's texts.
    Adjoint: as `syevd`.  Source: as `plait.linalg.eigh`.
    """
    assert a.ndim == 2, "a must be a 2D array."
    _solvers.check_width(T_A)
    program = _solvers.decompose if return_eigenvectors else _solvers.values
    *found, status = _solvers.columns_inside(
        program, {"a": a}, T_A, cyclic_1d, axis_name, "syevd_no_shardmap"
    )
    return (*found, status[None])
