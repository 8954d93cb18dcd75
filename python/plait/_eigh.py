"""Eigendecompositions of global Hermitian matrices."""

from typing import Any, NamedTuple

from jax import Array
from plait import _cholesky, _dense_args, _dense_eigh
from plait._dealt import Deal, Matrix
from plait._dense_args import Lay


class Eigh(NamedTuple):
    """Eigenvalues, ascending, (n,), and a column of eigenvectors for each, (n, n).

    For a subset of k eigenvalues the shapes are (k,) and (n, k).
    """

    eigenvalues: Array
    eigenvectors: Array


def _pencil(xs: tuple[Array, ...], lays: tuple[Lay, ...], deal: Deal) -> tuple[Matrix, Any, tuple]:
    """A Hermitian matrix with the eigenvalues of the operands; b's factor and its status."""
    a, *rest = (_dense_args.deal_in(lay, x, deal) for lay, x in zip(lays, xs, strict=True))
    if not rest:
        return a, None, ()
    a, low, minor = _dense_eigh.reduced(a, *rest)
    return a, low, (minor,)


def _decomposition(
    *xs: Array, lays: tuple[Lay, ...], deal: Deal, mode: str, some: tuple[int, int] | None
) -> tuple[Eigh, tuple]:
    """some: the first eigenvalue wanted, and how many."""
    (a, low, statuses), lay = _pencil(xs, lays, deal), lays[0]
    if some is None:
        w, v, info = _dense_eigh.eigh(a, mode)
    else:
        w, v, info = _dense_eigh.eigh_of_some(a, *some, mode)
        lay = lay.with_room(v.m if lay.room is None else lay.room[0], v.n)
    v = v if low is None else _dense_eigh.of_pencil(v, low)
    return Eigh(w, _dense_args.back(v, lay)), (*statuses, info)


def _chosen(subset: Any, n: int) -> tuple[int, int] | None:
    """The first eigenvalue wanted and how many, None for all."""
    if subset is None:
        return None
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
    return first, end - first


def _values(*xs: Array, lays: tuple[Lay, ...], deal: Deal) -> tuple[Array, tuple]:
    a, _, statuses = _pencil(xs, lays, deal)
    w, info = _dense_eigh.eigvalsh(a)
    return w, (*statuses, info)


def _located(
    name: str, a: Any, b: Any, block: Any, mesh: Any, spec: Any, shape: Any
) -> tuple[tuple, int, dict[str, Any]]:
    """The matrices, their extent, their layouts and deal."""
    xs = {"a": a} | ({} if b is None else {"b": b})
    data = {
        argument: _dense_args.check_matrix(x, name, argument, is_square=True, shape=shape)
        for argument, x in xs.items()
    }
    (n, _), *rest = data.values()
    if rest not in ([], [(n, n)]):
        raise ValueError(f"{name}: b has {rest[0][0]} rows, a has {n}; expected as many")
    found = _dense_args.operands(xs, mesh, dict.fromkeys(xs, spec), name, data)
    lays = tuple(x.lay for x in found.values())
    given = {"lays": lays, "deal": _dense_args.deal_of(found["a"], block, name)}
    return tuple(x.x for x in found.values()), n, given


def _judged(found: Any, statuses: tuple, name: str, mesh: Any) -> Any:
    """The result; raises if the factorization of b, if any, or the decomposition failed."""
    texts = (
        _cholesky.NOT_DEFINITE.format(f"{name}: b"),
        f"{name}: not finite, or no convergence (LAPACK's info {{}})",
    )
    for status, text in zip(statuses, texts[-len(statuses) :], strict=True):
        found = _dense_args.guarded(found, status, text, mesh)
    return found


def eigh(
    a: Array,
    b: Array | None = None,
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

    Only the lower triangle of ``a`` is read. Eigenvalues are the same on all devices; eigenvectors
    are split as ``a``. A matrix with NaN or Inf gives NaN; with ``check=True`` it raises.

    With ``b``, a Hermitian positive definite matrix, the problem is a v = w b v, with vᴴ b v = 1.
    It is solved by the Cholesky factor of ``b``, so that errors grow with the condition of ``b``.
    A ``b`` that is not positive definite gives NaN. ``mesh``, ``spec``, ``shape`` and ``block``
    are those of both matrices.

    ``subset`` is a slice of the ascending eigenvalues: ``slice(-10, None)`` gives the ten largest
    with their vectors, ``slice(10)`` the ten smallest. The part of the computation that takes half
    of the time for all eigenvalues is then done for the subset alone. Derivatives need all
    eigenvalues. (It is a slice because ``subset_by_index`` includes the last index in SciPy, but
    not in JAX.)

    If eigenvalues are equal, their eigenvectors are not functions of the matrix. ``degenerate``
    says what derivatives then are:

    * ``'nan'``: NaN for what depends on these vectors, as in ``jax.numpy``
    * ``'zero'``: exact for what does not depend on the choice of vectors, such as projectors
    * ``'check'``: as ``'zero'``, but NaN as the gradient of what does depend on the choice
    * ``'lorentzian'``: with gap / (gap² + δ²) in the place of 1 / gap, δ = √ε ‖a‖

    Eigenvalues count as equal if they differ by 10 n ε ‖a‖ or less, for ``'nan'`` if they are the
    same number.

    ``shape`` is the shape of the data in an array with padding at its tail, for sizes that the mesh
    does not divide. Padding is not read, and eigenvectors are zero there. There are as many
    eigenvalues as rows of data.

    Collective: over the mesh, in program order.
    Shapes: (n, n), also of ``b``, to (n,) and (n, n), any n, split in any way, or whole on one
    device or on all; for k of the eigenvalues to (k,) and (n, k), split as ``a`` along the axes
    that the mesh divides.
    Raises: ValueError for a matrix that is not square, an unknown ``degenerate``, an impossible
    subset; TypeError for a dtype without solvers; with ``check`` `plait.LinAlgError`.
    Adjoint: V (diag(w̄) + F ∘ Vᴴ V̄) Vᴴ, symmetrised, F_ij = 1 / (w_j - w_i).
    Source: LAPACK heevd, hegvd; oracle ``tests/python/oracle.py::eigh``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> a = jnp.diag(jnp.array([3.0, 1.0, 2.0]))
        >>> plait.linalg.eigh(a).eigenvalues.tolist()
        [1.0, 2.0, 3.0]
        >>> w, v = plait.linalg.eigh(a, subset=slice(-1, None))
        >>> w.tolist(), abs(v).tolist()
        ([3.0], [[1.0], [0.0], [0.0]])
        >>> plait.linalg.eigh(a, 4 * jnp.eye(3)).eigenvalues.tolist()
        [0.25, 0.5, 0.75]
    """
    if degenerate not in _dense_eigh.MODES:
        raise ValueError(
            f"eigh: degenerate is {degenerate!r}; expected one of {', '.join(_dense_eigh.MODES)}"
        )
    xs, n, given = _located("eigh", a, b, block, mesh, spec, shape)
    some = _chosen(subset, n)
    found, statuses = _dense_args.run(_decomposition, *xs, mode=degenerate, some=some, **given)
    return _judged(found, statuses, "eigh", given["deal"].mesh) if check else found


def eigvalsh(
    a: Array,
    b: Array | None = None,
    *,
    block: int | None = None,
    check: bool = False,
    shape: tuple[int, int] | None = None,
    mesh: Any = None,
    spec: Any = None,
) -> Array:
    """Eigenvalues of a Hermitian matrix that is distributed over a mesh, ascending.

    With ``b`` they are those of a v = w b v, as in `eigh`.

    Collective: over the mesh, in program order.  Shapes: (n, n), also of ``b``, to (n,).
    Raises: as `eigh`.  Adjoint: V diag(w̄) Vᴴ; it needs the eigenvectors, also of equal eigenvalues.
    Source: LAPACK heevd; oracle ``tests/python/oracle.py::eigh``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.linalg.eigvalsh(jnp.diag(jnp.array([3.0, 1.0]))).tolist()
        [1.0, 3.0]
    """
    xs, _, given = _located("eigvalsh", a, b, block, mesh, spec, shape)
    w, statuses = _dense_args.run(_values, *xs, **given)
    return _judged(w, statuses, "eigvalsh", given["deal"].mesh) if check else w


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
    """`eigh`, or `eigvalsh` with ``return_eigenvectors=False``, by its name in LAPACK.

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
