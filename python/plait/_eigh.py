"""Eigendecompositions of global Hermitian matrices."""

from typing import Any, NamedTuple

from jax import Array
from plait import _dense_args, _dense_eigh
from plait._dealt import Deal
from plait._dense_args import Lay, Operand

NOT_FINITE = "{}: not finite, or no convergence (LAPACK's info {{}})"


class Eigh(NamedTuple):
    """Eigenvalues, ascending, and a column of eigenvectors for each."""

    eigenvalues: Array
    eigenvectors: Array


def _decomposition(a: Array, *, lay: Lay, deal: Deal, mode: str) -> tuple[Eigh, Array]:
    w, v, info = _dense_eigh.eigh(_dense_args.deal_in(lay, a, deal), mode)
    return Eigh(w, _dense_args.back(v, lay)), info


def _of_some(
    a: Array, *, lay: Lay, deal: Deal, mode: str, first: int, n: int
) -> tuple[Eigh, Array]:
    dealt = _dense_args.deal_in(lay, a, deal)
    w, v, info = _dense_eigh.eigh_of_some(dealt, first, n, mode)
    rows = v.m if lay.room is None else lay.room[0]
    return Eigh(w, _dense_args.back(v, lay.with_room(rows, n))), info


def _chosen(subset: Any, n: int) -> dict[str, int]:
    """The first eigenvalue that is wanted and how many are, where not all are."""
    if subset is None:
        return {}
    expected = "expected a slice of integers, such as slice(-10, None) for the ten largest"
    if not isinstance(subset, slice):
        raise TypeError(f"eigh: subset is {subset!r}; {expected}")
    try:
        first, end, step = subset.indices(n)
    except TypeError:
        raise TypeError(f"eigh: subset is {subset}; {expected}") from None
    if step != 1 or end <= first:
        raise ValueError(
            f"eigh: subset is {subset}; expected a step of 1, and some of {n} eigenvalues"
        )
    return {"first": first, "n": end - first}


def _values(a: Array, *, lay: Lay, deal: Deal) -> tuple[Array, Array]:
    return _dense_eigh.eigvalsh(_dense_args.deal_in(lay, a, deal))


def _located(
    a: Any, block: Any, mesh: Any, spec: Any, shape: Any, name: str
) -> tuple[Operand, dict[str, Any]]:
    found = _dense_args.located(a, name, mesh, spec, shape, is_square=True)
    return found, {"lay": found.lay, "deal": _dense_args.deal_of(found, block, name)}


def eigh(
    a: Array,
    *,
    subset: slice | None = None,
    degenerate: str = "nan",
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Eigh:
    """Eigenvalues and eigenvectors of a Hermitian matrix that is distributed over a mesh.

    The lower triangle of ``a`` is read. Eigenvalues are the same on all devices, eigenvectors split
    as ``a``. A matrix with NaN or Inf gives NaN; with ``check=True`` it raises.

    With ``subset=slice(-10, None)`` there are the ten largest eigenvalues alone with their vectors,
    with ``slice(10)`` the ten smallest: those that the slice takes of all. What takes half of the
    time for all of them is done for these alone; derivatives need all. A slice, since of
    ``subset_by_index`` SciPy includes the last one and JAX does not.

    Where eigenvalues are equal, eigenvectors are not functions of the matrix, and ``degenerate``
    says what becomes of derivatives: ``'nan'`` as in ``jax.numpy``; ``'zero'`` those of what does
    not depend on the choice of vectors, such as projectors; ``'check'`` the same, but NaN as the
    gradient of what does depend on it; ``'lorentzian'`` gap / (gap² + δ²) for 1 / gap, with
    δ = √ε ‖a‖. Eigenvalues are equal if they differ by 10 n ε ‖a‖ or less.

    ``shape`` is what is data of an array with padding at its tail, for sizes that the mesh does not
    divide: padding is not read, and zero behind the eigenvectors; there are as many eigenvalues as
    there is data.

    Collective: over the mesh, in program order.
    Shapes: (n, n) to (n,) and (n, n), any n, split in any way, or whole on one device or on all;
    k of the eigenvalues: (k,) and (n, k), split as ``a`` along the axes that the mesh divides.
    Raises: ValueError for a matrix that is not square, an unknown mode, a subset that there is not;
    TypeError for a dtype without solvers; with ``check`` `plait.LinAlgError`.
    Adjoint: V (diag(w̄) + F ∘ Vᴴ V̄) Vᴴ, symmetrised, F_ij = 1 / (w_j - w_i).
    Source: LAPACK heevd; oracle ``tests/python/oracle.py::eigh``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> a = jnp.diag(jnp.array([3.0, 1.0, 2.0]))
        >>> plait.linalg.eigh(a).eigenvalues.tolist()
        [1.0, 2.0, 3.0]
        >>> w, v = plait.linalg.eigh(a, subset=slice(-1, None))
        >>> w.tolist(), abs(v).tolist()
        ([3.0], [[1.0], [0.0], [0.0]])
    """
    if degenerate not in _dense_eigh.MODES:
        raise ValueError(
            f"eigh: degenerate is {degenerate!r}; expected one of {', '.join(_dense_eigh.MODES)}"
        )
    x, given = _located(a, block, mesh, spec, shape, "eigh")
    some = _chosen(subset, x.shape[0])
    program = _of_some if some else _decomposition
    found, status = _dense_args.run(program, x.x, mode=degenerate, **some, **given)
    if check:
        _dense_args.fail(status, NOT_FINITE.format("eigh"))
    return found


def eigvalsh(
    a: Array,
    *,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Eigenvalues of a Hermitian matrix that is distributed over a mesh, ascending.

    Collective: over the mesh, in program order.  Shapes: (n, n) to (n,).
    Raises: as `eigh`.  Adjoint: V diag(w̄) Vᴴ; it needs the eigenvectors, also of equal eigenvalues.
    Source: LAPACK heevd; oracle ``tests/python/oracle.py::eigh``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.eigvalsh(jnp.diag(jnp.array([3.0, 1.0]))).tolist()
        [1.0, 3.0]
    """
    x, given = _located(a, block, mesh, spec, shape, "eigvalsh")
    w, status = _dense_args.run(_values, x.x, **given)
    if check:
        _dense_args.fail(status, NOT_FINITE.format("eigvalsh"))
    return w


def syevd(
    a: Array,
    *,
    return_eigenvectors: bool = True,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Eigh | Array:
    """`eigh`, or `eigvalsh` with ``return_eigenvectors=False``, by the name in LAPACK.

    Collective: over the mesh, in program order.  Shapes: (n, n) to (n,) and (n, n), or (n,) alone.
    Raises: as `eigh`.  Adjoint: as `eigh`.
    Source: LAPACK heevd; oracle ``tests/python/oracle.py::eigh``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> w, v = plait.linalg.syevd(jnp.diag(jnp.array([3.0, 1.0])))
        >>> w.tolist()
        [1.0, 3.0]
    """
    given: dict[str, Any] = {
        "block": block,
        "check": check,
        "mesh": mesh,
        "spec": spec,
        "shape": shape,
    }
    return eigh(a, **given) if return_eigenvectors else eigvalsh(a, **given)
