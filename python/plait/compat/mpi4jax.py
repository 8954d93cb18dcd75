"""The functions of mpi4jax 0.8 and 0.9: no tokens, ordered by the program.

Use ``from plait.compat import mpi4jax`` in place of ``import mpi4jax``. The gradient of allreduce
is mpi4jax's, which counts the result as one value: ``plait.allreduce(..., replicated=True)``. The
capitalised names are those of its first releases. ``MPI4JAX_DEBUG=1`` works like ``PLAIT_DEBUG=1``.
"""

import os
from collections.abc import Callable
from typing import Any

import plait
from plait import get_logging as get_logging
from plait import has_cuda_support as has_cuda_support
from plait import has_sycl_support as has_sycl_support
from plait import set_logging as set_logging
from plait.compat import _adapt
from plait.compat._adapt import P, R

__version__ = "0.9.1"  # the release with this interface

_NOTSET = _adapt.NotSet()


def _operation(function: Callable[P, R], **fixed: Any) -> Callable[P, R]:
    name = function.__name__

    def call(*args: Any, token: Any = _NOTSET, **kwargs: Any) -> R:
        if token is not _NOTSET:
            raise RuntimeError(
                f"{name}: tokens are managed automatically and must not be passed, as in "
                f"mpi4jax>=0.8: result = mpi4jax.{name}(...), without token; programs for "
                "older releases, which pass tokens, import plait.compat.mpi4jax_tokens"
            )
        return function(*args, **kwargs, **fixed)

    return _adapt.operation(function, call, _NOTSET, __name__)


allgather = _operation(plait.allgather)
allreduce = _operation(plait.allreduce, replicated=True)
alltoall = _operation(plait.alltoall)
barrier = _operation(plait.barrier)
bcast = _operation(plait.bcast)
gather = _operation(plait.gather)
recv = _operation(plait.recv)
reduce = _operation(plait.reduce)
scan = _operation(plait.scan)
scatter = _operation(plait.scatter)
send = _operation(plait.send)
sendrecv = _operation(plait.sendrecv)

Allgather = _adapt.capitalised(allgather)
Allreduce = _adapt.capitalised(allreduce)
Alltoall = _adapt.capitalised(alltoall)
Barrier = _adapt.capitalised(barrier)
Bcast = _adapt.capitalised(bcast)
Gather = _adapt.capitalised(gather)
Recv = _adapt.capitalised(recv)
Reduce = _adapt.capitalised(reduce)
Scan = _adapt.capitalised(scan)
Scatter = _adapt.capitalised(scatter)
Send = _adapt.capitalised(send)
Sendrecv = _adapt.capitalised(sendrecv)

if os.environ.get("MPI4JAX_DEBUG", "").lower() in ("true", "1", "on"):
    set_logging(True)

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "gather",
    "get_logging",
    "has_cuda_support",
    "has_sycl_support",
    "recv",
    "reduce",
    "scan",
    "scatter",
    "send",
    "sendrecv",
    "set_logging",
]
