"""Order between ranks and between operations: barriers, tokens, and ties for derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from plait import _args, _call, _eager, _groups, _jax, _ops


@_eager.remembered
def barrier(*, comm: Any = None, token: Array | None = None) -> Array | None:
    """Wait until all ranks have called this; with ``token`` it returns the next token.

    Collective: over ``comm``, in program order.  Shapes: none.
    Raises: TypeError for a ``comm`` that is not a communicator.  Adjoint: none.
    Source: MPI 4.0, 6.3 (MPI_Barrier); oracle ``tests/python/oracle.py::barrier``.

    Example:
        >>> import plait
        >>> plait.barrier()
    """
    group = _groups.of(comm, "barrier", token)
    return _ops.call("barrier", token=_args.token(token, "barrier"), group=group)[1]


@_eager.of_a_rank
def create_token() -> Array:
    """A fresh token for ``token=``: a float32 zero. Any array will do; this one is cheap.

    Collective: no.  Shapes: to ().  Raises: nothing.  Adjoint: none.  Source: own.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> y, token = plait.allreduce(jnp.ones(2), plait.SUM, token=plait.create_token())
    """
    return jnp.zeros((), jnp.float32)


def depend(value: Any, *ignored: Any) -> Any:
    """Return ``value`` and tie ``ignored`` results or tokens, of any dtype, to it.

    JAX drops the adjoint of a result that a rank does not use, and the partner's adjoint would
    wait for it. A term of size zero ties the result to ``value``, so its adjoint runs, with
    cotangent zero.

    Collective: no.  Shapes: any pytrees; ``value``'s to the same.
    Raises: TypeError if ``value`` holds no array with derivatives.
    Adjoint: the cotangent of ``value``, zeros for ``ignored``.  Source: own.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.depend(jnp.ones(2), jnp.zeros(5)).tolist()
        [1.0, 1.0]
    """
    leaves, tree = jax.tree.flatten(value)
    places = [i for i, leaf in enumerate(leaves) if _ops.is_inexact(leaf)]
    if not places:
        raise TypeError(
            "depend: value holds no array of a floating dtype; expected one or more, since only "
            "these carry gradients"
        )
    leaves[places[0]] = tied(jnp.asarray(leaves[places[0]]), ignored)
    return jax.tree.unflatten(tree, leaves)


def tied(value: Array, ignored: Any) -> Array:
    """The value, of any dtype but keys, plus empty sums over what is ignored."""
    for x in map(jnp.asarray, jax.tree.leaves(ignored)):
        x = jax.random.key_data(x) if _args.is_key(x) else x
        value = value + jnp.sum(jnp.ravel(jnp.real(x))[:0]).astype(value.dtype)
    return value


@_eager.of_a_rank
def pvary(x: Any, *, comm: Any = None, token: Array | None = None) -> Any:
    """Return ``x``, one value on all ranks, for each rank to use in its own way.

    It belongs between a result with ``replicated=True`` and a computation that differs from rank
    to rank. The cotangents then differ, and `pvary` sums them, so that the value has one cotangent
    again. In forward mode nothing is communicated. ``token``, and mesh axes as ``comm``: as in
    `allreduce`.

    Collective: over ``comm`` in backward mode.  Shapes: any to the same.
    Raises: TypeError for a ``comm`` that is not a communicator.
    Adjoint: allreduce(SUM) with ``replicated=True``.
    Source: own, docs/gradients.md; oracle ``tests/python/oracle.py::pvary``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.pvary(jnp.arange(3)).tolist()
        [0, 1, 2]
    """
    group, tree = _groups.of(comm, "pvary", token), _call.Tree(x, "pvary")
    if group.checks:
        tree.leaves = [_jax.pcast_varying(v, group.over) for v in tree.leaves]
        return _call.answer(tree.like(tree.leaves), token, token)
    return _call.run("pvary", "pvary", tree, group, token)
