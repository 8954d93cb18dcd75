"""The functions of JPI 0.1: the token comes second and is always the last result.

Use ``from plait.compat import jpi`` in place of ``import jpi``. As in JPI, the gradients of
allreduce, allgather and bcast count the result as one value: ``replicated=True`` in plait.
"""

import functools
from typing import Any

import jax.numpy as jnp
import plait
from jax import Array
from plait import _args, _comm, _order


@functools.cache
def get_default_comm() -> Any:
    """A clone of MPI.COMM_WORLD, made once: all ranks must make their first call together."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.Clone()


def gen_token() -> Array:
    """A first token: a float32 zero."""
    return plait.create_token()


def allreduce(x: Any, token: Array, op: Any, comm: Any = None) -> tuple[Array, Array]:
    """Reduce over all ranks; the gradient needs no message: the cotangent where it is due."""
    return plait.allreduce(x, op, comm=comm, token=token, replicated=True)


def allgather(x: Any, token: Array, comm: Any = None) -> tuple[Array, Array]:
    """Stack all ranks' arrays on every rank; the gradient is the rank's slice of the cotangent."""
    return plait.allgather(x, comm=comm, token=token, replicated=True)


def bcast(x: Any, token: Array, root: int, comm: Any = None) -> tuple[Array, Array]:
    """Give every rank the root's array; the gradient is the root's own cotangent, else 0."""
    return plait.bcast(x, root, comm=comm, token=token, replicated=True)


def barrier(token: Array, comm: Any = None) -> Array:
    """Wait for all ranks; the derivative of the token is the identity."""
    return plait.barrier(comm=comm, token=token)


def gather(x: Any, token: Array, root: int, comm: Any = None) -> tuple[Array, Array]:
    """Stack all ranks' arrays on the root; other ranks get zeros of the same shape."""
    size, rank = _place(comm, "gather")
    x = _args.as_array(x, "gather")
    y, token = plait.gather(x, root, comm=comm, token=token)
    if rank == root:
        return y, token
    return _order.tied(jnp.zeros((size, *x.shape), x.dtype), (y, token)), token


def scatter(x: Any, token: Array, root: int, comm: Any = None) -> tuple[Array, Array]:
    """Give rank r part r of the root's first axis; ``x`` has the full shape on every rank.

    Parts of one row lose the first axis.
    """
    size, rank = _place(comm, "scatter")
    x = _args.as_array(x, "scatter")
    if x.ndim == 0 or x.shape[0] % size != 0:
        raise ValueError(
            f"scatter: x has shape {x.shape}, but its first axis must be divisible by the "
            f"number of processes ({size})"
        )
    parts = x.reshape(size, x.shape[0] // size, *x.shape[1:])
    y, token = plait.scatter(parts if rank == root else parts[0], root, comm=comm, token=token)
    return y[0] if y.shape[0] == 1 else y, token


def send(x: Any, token: Array, dest: int, tag: int = 0, comm: Any = None) -> tuple[Array, Array]:
    """Send ``x``, and return it."""
    x = _args.as_array(x, "send")
    token = plait.send(x, dest, tag=tag, comm=comm, token=token)
    return _order.tied(x, token), token


def recv(x: Any, token: Array, source: int, tag: int = 0, comm: Any = None) -> tuple[Array, Array]:
    """Receive an array like the template ``x``."""
    return plait.recv(x, source, tag=tag, comm=comm, token=token)


def _place(comm: Any, name: str) -> tuple[int, int]:
    resolved = _comm.resolve(comm, name)
    return resolved.size, resolved.rank


__all__ = [
    "allgather",
    "allreduce",
    "barrier",
    "bcast",
    "gather",
    "gen_token",
    "get_default_comm",
    "recv",
    "scatter",
    "send",
]
