"""Collectives of the rank model that move arrays: of any dtype, float8 and PRNG keys included.

Any operand may be a pytree, also of several dtypes: the result is a pytree like it, and all leaves
travel in one message.
"""

from typing import Any

from jax import Array
from plait import _args, _call, _eager, _groups
from plait._groups import Group


@_eager.remembered
def bcast(
    x: Any,
    root: int,
    *,
    comm: Any = None,
    token: Array | None = None,
    donate: bool = False,
    replicated: bool | str = False,
) -> Any:
    """Give every rank the array of ``root``; on other ranks ``x`` gives shape and dtype only.

    ``token``, ``donate``, ``replicated``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: any to the same.
    Raises: TypeError, ValueError for a root that is not a rank.
    Adjoint: reduce(SUM) to the root, 0 elsewhere.
    Source: MPI 4.0, 6.4 (MPI_Bcast); oracle ``tests/python/oracle.py::bcast``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.bcast(jnp.arange(3), 0).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "bcast", token)
    return _call.run(
        "bcast",
        "bcast",
        _call.Tree(x, "bcast"),
        group,
        token,
        root=_args.rank(root, group.size, "bcast", "root"),
        donate=bool(donate),
        replicated=_args.replicated(replicated, "bcast"),
    )


@_eager.remembered
def allgather(
    x: Any, *, comm: Any = None, token: Array | None = None, replicated: bool | str = False
) -> Any:
    """Stack the arrays of all ranks, in rank order, on every rank.

    ``token``, ``replicated``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (...) to (size, ...).
    Raises: TypeError for an operand that cannot be moved.
    Adjoint: reduce_scatter(SUM).
    Source: MPI 4.0, 6.7 (MPI_Allgather); oracle ``tests/python/oracle.py::allgather``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.allgather(jnp.arange(3)).tolist()
        [[0, 1, 2]]
    """
    group = _groups.of(comm, "allgather", token)
    convention = _args.replicated(replicated, "allgather")
    tree = _call.Tree(x, "allgather")
    return _call.run("allgather", "allgather", tree, group, token, counts=(), replicated=convention)


def _own_rows(tree: _call.Tree, rows: tuple[int, ...], group: Group, name: str) -> None:
    rank = _args.here(group)
    says = f"counts {rows} say for rank {rank}"
    for leaf in tree.arrays:
        _args.check_rows(leaf, rows[rank], name, says)


@_eager.of_a_rank
def allgatherv(
    x: Any,
    counts: Any,
    *,
    comm: Any = None,
    token: Array | None = None,
    replicated: bool | str = False,
) -> Any:
    """Join the rows of all ranks, in rank order, on every rank.

    ``counts`` has the number of rows of each rank and is the same on all ranks. ``token``,
    ``replicated``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (counts[rank], ...) to
    (sum(counts), ...).
    Raises: ValueError for counts that do not fit ``x``.
    Adjoint: reduce_scatterv(SUM).
    Source: MPI 4.0, 6.7 (MPI_Allgatherv); oracle ``tests/python/oracle.py::allgather``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.allgatherv(jnp.arange(3), [3]).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "allgatherv", token)
    convention = _args.replicated(replicated, "allgatherv")
    tree, rows = _call.Tree(x, "allgatherv"), _args.counts(counts, group, "allgatherv")
    _own_rows(tree, rows, group, "allgatherv")
    return _call.run(
        "allgather", "allgatherv", tree, group, token, counts=rows, replicated=convention
    )


# ---- gather and scatter ------------------------------------------------------------------------


def _gather_devices(
    name: str, tree: _call.Tree, group: Group, root: int, token: Any, after: Any = None
) -> Any:
    """By a route, since all devices of a manual region have one shape: zeros off the root."""
    edges = [word for r in range(group.size) for word in (r, 0, root, r)]
    return _call.route(name, tree, group, token, edges, n_out=group.size, after=after)


@_eager.remembered
def gather(x: Any, root: int, *, comm: Any = None, token: Array | None = None) -> Any:
    """Stack the arrays of all ranks, in rank order, on ``root``; the others get ``x`` back.

    Inside shard_map all devices have the same shape, so the others get zeros of the root's
    shape. ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (...) to (size, ...) on the root,
    to the same elsewhere.
    Raises: TypeError, ValueError for a root that is not a rank.
    Adjoint: scatter; ranks that got ``x`` back add their own cotangent.
    Source: MPI 4.0, 6.5 (MPI_Gather); oracle ``tests/python/oracle.py::gather``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.gather(jnp.arange(3), 0).tolist()
        [[0, 1, 2]]
    """
    group = _groups.of(comm, "gather", token)
    root = _args.rank(root, group.size, "gather", "root")
    tree = _call.Tree(x, "gather")
    if group.rank is None:
        return _gather_devices("gather", tree, group, root, token)
    return _call.run("gather", "gather", tree, group, token, root=root, counts=(), elsewhere=1)


@_eager.of_a_rank
def gatherv(x: Any, counts: Any, root: int, *, comm: Any = None, token: Array | None = None) -> Any:
    """Join the rows of all ranks, in rank order, on ``root``; the others get ``x`` back.

    ``counts`` has the number of rows of each rank and is the same on all ranks. Inside shard_map
    the others get zeros of the root's shape. ``token``, and mesh axes as ``comm``: as in
    `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (counts[rank], ...) to
    (sum(counts), ...) on the root, to the same elsewhere.
    Raises: ValueError for counts that do not fit ``x``, or a root that is not a rank.
    Adjoint: scatterv; ranks that got ``x`` back add their own cotangent.
    Source: MPI 4.0, 6.5 (MPI_Gatherv); oracle ``tests/python/oracle.py::gather``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.gatherv(jnp.arange(3), [3], 0).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "gatherv", token)
    root = _args.rank(root, group.size, "gatherv", "root")
    tree, rows = _call.Tree(x, "gatherv"), _args.counts(counts, group, "gatherv")
    _own_rows(tree, rows, group, "gatherv")
    if group.rank is None:

        def joined(y: Array) -> Array:
            return y.reshape(sum(rows), *y.shape[2:])

        return _gather_devices("gatherv", tree, group, root, token, joined)
    return _call.run("gather", "gatherv", tree, group, token, root=root, counts=rows, elsewhere=1)


def _scatter_devices(name: str, tree: _call.Tree, group: Group, root: int, token: Any) -> Any:
    """By a route: all devices of a manual region have the root's shape."""
    edges = [word for r in range(group.size) for word in (root, r, r, 0)]
    return _call.route(name, tree, group, token, edges, n_in=group.size)


@_eager.remembered
def scatter(x: Any, root: int, *, comm: Any = None, token: Array | None = None) -> Any:
    """Give rank r block r of the root's array; elsewhere ``x`` is a template of the result.

    Inside shard_map all devices have the same shape, so ``x`` has the root's shape on all of
    them. ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (size, ...) on the root, (...)
    elsewhere, to (...).
    Raises: ValueError unless the root's ``x.shape[0]`` is the number of ranks.
    Adjoint: gather; templates get 0.
    Source: MPI 4.0, 6.6 (MPI_Scatter); oracle ``tests/python/oracle.py::scatter``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.scatter(jnp.ones((1, 3)), 0).tolist()
        [1.0, 1.0, 1.0]
    """
    group = _groups.of(comm, "scatter", token)
    root = _args.rank(root, group.size, "scatter", "root")
    tree = _call.Tree(x, "scatter")
    if group.rank in (None, root):
        for leaf in tree.arrays:
            _args.check_blocks(leaf, group.size, "scatter")
    if group.rank is None:
        return _scatter_devices("scatter", tree, group, root, token)
    return _call.run("scatter", "scatter", tree, group, token, root=root, counts=())


@_eager.of_a_rank
def scatterv(
    x: Any, counts: Any, root: int, *, comm: Any = None, token: Array | None = None
) -> Any:
    """Give rank r ``counts[r]`` rows of the root's array; others pass a template of the result.

    ``counts`` is the same on all ranks. Inside shard_map ``x`` has the root's shape on all
    devices. ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (sum(counts), ...) on the root,
    (counts[rank], ...) elsewhere, to (counts[rank], ...).
    Raises: ValueError for counts that do not fit ``x``, or a root that is not a rank.
    Adjoint: gatherv; templates get 0.
    Source: MPI 4.0, 6.6 (MPI_Scatterv); oracle ``tests/python/oracle.py::scatter``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.scatterv(jnp.arange(3), [3], 0).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "scatterv", token)
    root = _args.rank(root, group.size, "scatterv", "root")
    tree, rows = _call.Tree(x, "scatterv"), _args.counts(counts, group, "scatterv")
    if group.rank in (None, root):
        for leaf in tree.arrays:
            _args.check_rows(leaf, sum(rows), "scatterv", f"the sum of counts {rows} is")
    else:
        _own_rows(tree, rows, group, "scatterv")
    if group.rank is None:
        tree.leaves = [x.reshape(group.size, rows[0], *x.shape[1:]) for x in tree.leaves]
        return _scatter_devices("scatterv", tree, group, root, token)
    return _call.run("scatter", "scatterv", tree, group, token, root=root, counts=rows)


# ---- alltoall ------------------------------------------------------------------------------------


@_eager.remembered
def alltoall(x: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Exchange equal blocks of axis 0 between all ranks: block r goes to rank r.

    ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (size, ...) to the same.
    Raises: ValueError unless ``x.shape[0]`` is the number of ranks.
    Adjoint: alltoall.
    Source: MPI 4.0, 6.8 (MPI_Alltoall); oracle ``tests/python/oracle.py::alltoall``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.alltoall(jnp.ones((1, 3))).shape
        (1, 3)
    """
    group = _groups.of(comm, "alltoall", token)
    tree = _call.Tree(x, "alltoall")
    for leaf in tree.arrays:
        _args.check_blocks(leaf, group.size, "alltoall")
    return _call.run("alltoall", "alltoall", tree, group, token, counts=())


@_eager.of_a_rank
def alltoallv(x: Any, counts: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Exchange rows between all ranks: ``counts[i][j]`` rows go from rank i to rank j.

    ``counts`` is the same on all ranks. Rows are sent and received in rank order.
    ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (sum of counts[rank], ...) to (sum
    of every counts[i][rank], ...).
    Raises: ValueError for counts that do not fit ``x``.
    Adjoint: alltoallv with the transposed counts.
    Source: MPI 4.0, 6.8 (MPI_Alltoallv); oracle ``tests/python/oracle.py::alltoall``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.alltoallv(jnp.arange(3), [[3]]).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "alltoallv", token)
    tree, table = _call.Tree(x, "alltoallv"), _args.table(counts, group, "alltoallv")
    rank = _args.here(group)
    n_rows = sum(table[rank * group.size : (rank + 1) * group.size])
    for leaf in tree.arrays:
        _args.check_rows(leaf, n_rows, "alltoallv", f"the sum of counts[{rank}] is")
    return _call.run("alltoall", "alltoallv", tree, group, token, counts=table)
