"""Exchanges along the edges of a graph that all ranks know.

Any operand may be a pytree, also of several dtypes: all leaves travel in one message.
"""

from typing import Any

from jax import Array
from plait import _args, _call, _comm, _eager, _groups, _topology
from plait._groups import Group

_INSTEAD = "plait.permute"


@_eager.of_a_rank
def permute(x: Any, perm: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Send arrays along ``perm``, pairs (source, dest); ranks without a source get zeros.

    ``perm`` is the same on all ranks. Each rank is a source at most once and a destination at most
    once, as in `jax.lax.ppermute`. ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: any to the same.
    Raises: TypeError, ValueError for a ``perm`` that is not such a list of pairs.
    Adjoint: permute with the pairs reversed.
    Source: own; oracle ``tests/python/oracle.py::route``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.permute(jnp.arange(3), [(0, 0)]).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "permute", token)
    pairs = _pairs(perm, group.size)
    edges = [word for source, dest in pairs for word in (source, 0, dest, 0)]
    return _call.route("permute", _call.Tree(x, "permute"), group, token, edges)


def _pairs(perm: Any, size: int) -> list[tuple[int, int]]:
    try:
        given = [tuple(pair) for pair in perm]
    except TypeError:
        raise TypeError(f"permute: perm is {perm!r}; expected pairs (source, dest)") from None
    pairs = []
    for i, pair in enumerate(given):
        if len(pair) != 2:
            raise ValueError(f"permute: perm[{i}] is {pair}; expected a pair (source, dest)")
        source, dest = (_args.rank(r, size, "permute", f"perm[{i}]") for r in pair)
        pairs.append((source, dest))
    for what, ranks in zip(("source", "destination"), zip(*pairs, strict=True), strict=False):
        twice = sorted({r for r in ranks if ranks.count(r) > 1})
        if twice:
            raise ValueError(f"permute: rank {twice[0]} is a {what} more than once")
    return pairs


def _graph(comm: Any, name: str, token: Any) -> tuple[Group, _topology.Topology]:
    group = _groups.of_processes(comm, name, token, _INSTEAD)
    topology = _comm.resolve(comm, name).topology
    if topology is None:
        raise TypeError(
            f"{name}: the communicator has no topology; expected one that mpi4py's Create_cart, "
            "Create_graph or Create_dist_graph made"
        )
    return group, topology


@_eager.remembered
def neighbor_allgather(x: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Send one array to all neighbours and stack theirs, with zeros for missing neighbours.

    ``comm`` is an mpi4py communicator with a topology: Cartcomm, Graphcomm or Distgraphcomm.
    Neighbours are in MPI's order. ``token`` as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (...) to (number of sources, ...).
    Raises: TypeError for a communicator without topology.
    Adjoint: neighbor_alltoall with the edges reversed, summed over axis 0.
    Source: MPI 4.0, 8.6 (MPI_Neighbor_allgather); oracle ``tests/python/oracle.py::route``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> from mpi4py import MPI  # doctest: +SKIP
        >>> ring = MPI.COMM_WORLD.Create_cart([1], [True])  # doctest: +SKIP
        >>> plait.neighbor_allgather(jnp.arange(3), comm=ring).tolist()  # doctest: +SKIP
        [[0, 1, 2], [0, 1, 2]]
    """
    group, graph = _graph(comm, "neighbor_allgather", token)
    edges = list(graph.edges)
    edges[1::4] = [0] * (len(edges) // 4)
    tree = _call.Tree(x, "neighbor_allgather")
    n_out = graph.n_sources[_args.here(group)]
    return _call.route("neighbor_allgather", tree, group, token, edges, n_out=n_out)


@_eager.remembered
def neighbor_alltoall(x: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Send block i of axis 0 to neighbour i, and stack the blocks received.

    A missing neighbour gives zeros. ``comm`` as in `neighbor_allgather`. In a periodic grid the
    block sent to the neighbour below arrives there as the block from above, also in dimensions of
    size 1 and 2. ``token`` as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (number of destinations, ...) to
    (number of sources, ...).
    Raises: TypeError for a communicator without topology; ValueError for another number of
    blocks.
    Adjoint: itself with the edges reversed.
    Source: MPI 4.0, 8.6 (MPI_Neighbor_alltoall); oracle ``tests/python/oracle.py::route``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> from mpi4py import MPI  # doctest: +SKIP
        >>> ring = MPI.COMM_WORLD.Create_cart([1], [True])  # doctest: +SKIP
        >>> plait.neighbor_alltoall(jnp.arange(2), comm=ring).tolist()  # doctest: +SKIP
        [1, 0]
    """
    group, graph = _graph(comm, "neighbor_alltoall", token)
    tree, me = _call.Tree(x, "neighbor_alltoall"), _args.here(group)
    n_in, n_out = graph.n_dests[me], graph.n_sources[me]
    for leaf in tree.arrays:
        if leaf.ndim == 0 or leaf.shape[0] != n_in:
            raise ValueError(
                f"neighbor_alltoall: x has shape {leaf.shape}, expected ({n_in}, ...): one block "
                "for each neighbour that this rank sends to"
            )
    return _call.route("neighbor_alltoall", tree, group, token, graph.edges, n_in=n_in, n_out=n_out)


@_eager.remembered
def shift(x: Any, axis: int, step: int, *, comm: Any = None, token: Array | None = None) -> Any:
    """Send ``x`` ``step`` places up along an axis of a Cartesian grid of ranks.

    The result is the array of the rank ``step`` places below, or zeros if there is no such rank.
    ``comm`` is a Cartcomm of mpi4py. ``token`` as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: any to the same.
    Raises: TypeError for a communicator that is not a grid; ValueError for an axis that the grid
    does not have.
    Adjoint: shift by ``-step``.
    Source: MPI 4.0, 8.5.6 (MPI_Cart_shift); oracle ``tests/python/oracle.py::route``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> from mpi4py import MPI  # doctest: +SKIP
        >>> ring = MPI.COMM_WORLD.Create_cart([1], [True])  # doctest: +SKIP
        >>> plait.shift(jnp.arange(2), 0, 1, comm=ring).tolist()  # doctest: +SKIP
        [0, 1]
    """
    group, grid = _graph(comm, "shift", token)
    axis = _args.integer(axis, "shift", "axis")
    step = _args.integer(step, "shift", "step")
    if not grid.coords:
        raise TypeError("shift: the communicator is no Cartesian grid; expected MPI.Cartcomm")
    if not 0 <= axis < len(grid.dims):
        raise ValueError(f"shift: axis {axis} is outside 0..{len(grid.dims) - 1}")
    to = _topology.moved(grid.dims, grid.periods, grid.coords, axis, step)
    edges = [
        word
        for source, dest in enumerate(to)
        if dest != _topology.NOBODY
        for word in (source, 0, dest, 0)
    ]
    return _call.route("shift", _call.Tree(x, "shift"), group, token, edges)
