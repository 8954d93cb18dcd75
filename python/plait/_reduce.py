"""Reductions of the rank model: one process (or one device of a manual region) is one rank.

Any operand may be a pytree: the result is a pytree like it, with one message for each dtype.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from plait import _args, _call, _coll_rules, _eager, _groups, _ops


@_eager.remembered
def allreduce(
    x: Any,
    op: Any,
    *,
    comm: Any = None,
    token: Array | None = None,
    donate: bool = False,
    replicated: bool | str = False,
) -> Any:
    """Reduce elementwise over all ranks; every rank gets the result, with the same bits.

    ``op`` is ``plait.SUM``, ``PROD``, ``MIN``, ``MAX``, ``LAND``, ``LOR``, ``LXOR``, ``BAND``,
    ``BOR``, ``BXOR`` or the mpi4py operation of the same name.

    * ``comm`` may name mesh axes inside shard_map.
    * ``token``: the call is ordered by this array instead of by the effect, and returns
      ``(result, token)``.
    * ``donate``: the result takes the operand's memory, if the caller donates the operand to the
      program or does not use it again.
    * ``replicated``: gradients count the result as one value, see docs/gradients.md. ``"check"``
      also verifies that its cotangents are equal on all ranks; PLAIT_CHECK_REPLICATED=1 does this
      everywhere.

    Every step of the reduction has the operand's dtype, so 16-bit numbers are rounded at every
    rank. Sums and products treat subnormal numbers as zero, as XLA does on CPUs. Over several nodes
    MPI may do the reduction, in an order of its own: then the sign and payload of NaN may differ
    between ranks.

    Collective: over ``comm``, in program order.  Shapes: any to the same.
    Raises: TypeError for an op that the dtype does not have; ReplicationError where checked.
    Adjoint: allreduce(SUM) for SUM, for PROD times the product of the other ranks' operands (P
    times the memory), for MIN and MAX in equal parts to the ranks that have the extreme value.
    Source: MPI 4.0, 6.9.6 (MPI_Allreduce); oracle ``tests/python/oracle.py::allreduce``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.allreduce(jnp.ones((2, 2)), plait.SUM).shape
        (2, 2)
    """
    tree, code = _call.reducible(x, op, "allreduce")
    return _call.run(
        "allreduce",
        "allreduce",
        tree,
        _groups.of(comm, "allreduce", token),
        token,
        reduce=code,
        donate=bool(donate),
        replicated=_args.replicated(replicated, "allreduce"),
    )


@_eager.remembered
def reduce(x: Any, op: Any, root: int, *, comm: Any = None, token: Array | None = None) -> Any:
    """Reduce elementwise to the rank ``root``; the other ranks get ``x`` back.

    ``op``, ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: any to the same, on all ranks.
    Raises: TypeError for an op that the dtype does not have; ValueError for a root that is no
    rank.
    Adjoint: bcast of the root's cotangent; the other ranks add their own. Other ops as in
    `allreduce`.
    Source: MPI 4.0, 6.9.1 (MPI_Reduce); oracle ``tests/python/oracle.py::reduce``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.reduce(jnp.arange(3), plait.MAX, 0).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "reduce", token)
    root = _args.rank(root, group.size, "reduce", "root")
    tree, code = _call.reducible(x, op, "reduce")
    return _call.run("reduce", "reduce", tree, group, token, reduce=code, root=root, elsewhere=1)


def _prefix(name: str, x: Any, op: Any, comm: Any, token: Any, exclusive: int) -> Any:
    tree, code = _call.reducible(x, op, name)
    group = _groups.of(comm, name, token)
    return _call.run("scan", name, tree, group, token, reduce=code, exclusive=exclusive, reverse=0)


@_eager.remembered
def scan(x: Any, op: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Reduce elementwise over the ranks up to and including this one.

    ``op``, ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: any to the same.
    Raises: TypeError for an op that the dtype does not have, and for derivatives of ops other
    than SUM.
    Adjoint: the same over the ranks from this one on, for SUM; none for other ops.
    Source: MPI 4.0, 6.11.1 (MPI_Scan); oracle ``tests/python/oracle.py::scan``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.scan(jnp.arange(3), plait.SUM).tolist()
        [0, 1, 2]
    """
    return _prefix("scan", x, op, comm, token, 0)


@_eager.remembered
def exscan(x: Any, op: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Reduce elementwise over the ranks below this one; rank 0 gets the identity of ``op``.

    ``op``, ``token``, and mesh axes as ``comm``: as in `allreduce`. The identity of MIN and
    MAX is an infinity, or for integers the extreme value of the type.

    Collective: over ``comm``, in program order.  Shapes: any to the same.
    Raises: TypeError for an op that the dtype does not have, and for derivatives of ops other
    than SUM.
    Adjoint: the same over the ranks above this one, for SUM; none for other ops.
    Source: MPI 4.0, 6.11.2 (MPI_Exscan); oracle ``tests/python/oracle.py::scan``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.exscan(jnp.arange(3), plait.PROD).tolist()
        [1, 1, 1]
    """
    return _prefix("exscan", x, op, comm, token, 1)


@_eager.remembered
def reduce_scatter(x: Any, op: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Reduce blocks elementwise over all ranks; rank r gets block r of the result.

    ``op``, ``token``, and mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (size, ...) to (...).
    Raises: ValueError unless ``x.shape[0]`` is the number of ranks; TypeError for an op that
    the dtype does not have, and for derivatives of ops other than SUM.
    Adjoint: allgather, for SUM; none for other ops.
    Source: MPI 4.0, 6.10.1 (MPI_Reduce_scatter_block); oracle
    ``tests/python/oracle.py::reduce_scatter``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.reduce_scatter(jnp.ones((1, 3)), plait.SUM).tolist()
        [1.0, 1.0, 1.0]
    """
    group = _groups.of(comm, "reduce_scatter", token)
    tree, code = _call.reducible(x, op, "reduce_scatter")
    for leaf in tree.arrays:
        _args.check_blocks(leaf, group.size, "reduce_scatter")
    return _call.run("reduce_scatter", "reduce_scatter", tree, group, token, reduce=code, counts=())


@_eager.of_a_rank
def reduce_scatterv(
    x: Any, op: Any, counts: Any, *, comm: Any = None, token: Array | None = None
) -> Any:
    """Reduce elementwise over all ranks; rank r gets ``counts[r]`` rows of the result.

    ``counts`` has one entry for each rank and is the same on all ranks. ``op``, ``token``, and
    mesh axes as ``comm``: as in `allreduce`.

    Collective: over ``comm``, in program order.  Shapes: (sum(counts), ...) to
    (counts[rank], ...).
    Raises: ValueError for counts that do not fit ``x``; TypeError for an op that the dtype
    does not have, and for derivatives of ops other than SUM.
    Adjoint: allgatherv, for SUM; none for other ops.
    Source: MPI 4.0, 6.10.2 (MPI_Reduce_scatter); oracle ``tests/python/oracle.py::reduce_scatter``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.reduce_scatterv(jnp.arange(3), plait.SUM, [3]).tolist()
        [0, 1, 2]
    """
    group = _groups.of(comm, "reduce_scatterv", token)
    tree, code = _call.reducible(x, op, "reduce_scatterv")
    rows = _args.counts(counts, group, "reduce_scatterv")
    for leaf in tree.arrays:
        _args.check_rows(leaf, sum(rows), "reduce_scatterv", f"the sum of counts {rows} is")
    return _call.run(
        "reduce_scatter", "reduce_scatterv", tree, group, token, reduce=code, counts=rows
    )


def _is_that(x: Any, value: Any) -> Any:
    """Where an element is the extreme value: compares bits, but both zeros are equal.

    XLA's own comparison takes subnormal numbers for zero.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x == value
    bits = jnp.dtype(f"uint{8 * x.dtype.itemsize}")
    mine, theirs = (lax.bitcast_convert_type(y, bits) for y in (x, value))
    zeros = (mine | theirs) << 1 == 0
    return (mine == theirs) | zeros | ((x != x) & (value != value))


def _where(x: Any, op: Any, name: str, comm: Any, token: Any) -> Any:
    """The extreme value, and the lowest rank that has it."""
    tree, code = _call.reducible(x, op, name)
    group = _groups.of(comm, name, token)
    plain = {"group": group, "replicated": 0, "donate": False}
    chain = _ops.public_chain(_args.token(token, name))
    values, ranks = [], []
    if tree.leaves:
        values = chain.call("allreduce", *tree.leaves, reduce=code, **plain)
        me = _coll_rules.my_rank(chain, group)
        others = jnp.int32(group.size)
        has = [_is_that(x, v) for x, v in zip(tree.leaves, values, strict=True)]
        candidates = [jnp.where(h, me, others) for h in has]
        lowest = _args.MIN.code
        ranks = chain.call("allreduce", *candidates, reduce=lowest, **plain)
    return _call.answer((tree.like(values), tree.like(ranks)), token, chain.token)


@_eager.of_a_rank
def minloc(x: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """The elementwise minimum over all ranks, and the rank that has it (the lowest on ties).

    ``token``, and mesh axes as ``comm``: as in `allreduce`. NaN is less than any number.

    Collective: over ``comm``, in program order.  Shapes: any to (the same, the same in int32).
    Raises: TypeError for dtypes without order.
    Adjoint: that of allreduce(MIN); the index of the rank has none.
    Source: MPI 4.0, 6.9.4 (MPI_MINLOC); oracle ``tests/python/oracle.py::minloc``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> value, rank = plait.minloc(jnp.arange(3))
        >>> value.tolist(), rank.tolist()
        ([0, 1, 2], [0, 0, 0])
    """
    return _where(x, _args.MIN, "minloc", comm, token)


@_eager.of_a_rank
def maxloc(x: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """The elementwise maximum over all ranks, and the rank that has it (the lowest on ties).

    ``token``, and mesh axes as ``comm``: as in `allreduce`. NaN is greater than any number.

    Collective: over ``comm``, in program order.  Shapes: any to (the same, the same in int32).
    Raises: TypeError for dtypes without order.
    Adjoint: that of allreduce(MAX); the index of the rank has none.
    Source: MPI 4.0, 6.9.4 (MPI_MAXLOC); oracle ``tests/python/oracle.py::maxloc``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> value, rank = plait.maxloc(jnp.arange(3))
        >>> value.tolist(), rank.tolist()
        ([0, 1, 2], [0, 0, 0])
    """
    return _where(x, _args.MAX, "maxloc", comm, token)
