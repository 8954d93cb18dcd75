"""The functions of mpi4jax up to 0.7: every operation takes a token and returns one.

Use ``from plait.compat import mpi4jax_tokens as mpi4jax`` in place of ``import mpi4jax``.
Everything returns ``(result, token)``; send and barrier return only the token. Operations run in
program order, which is one of the orders that the tokens allow. As in mpi4jax, they run even if
their token is dropped. Gradients and environment are as in ``plait.compat.mpi4jax``. ``notoken``
(0.7) and ``experimental`` (up to 0.6) are here, too.
"""

from collections.abc import Callable
from typing import Any

import jax
import plait
from plait.compat import _adapt
from plait.compat._adapt import P
from plait.compat.mpi4jax import get_logging as get_logging
from plait.compat.mpi4jax import has_cuda_support as has_cuda_support
from plait.compat.mpi4jax import has_sycl_support as has_sycl_support
from plait.compat.mpi4jax import set_logging as set_logging
from plait.compat.mpi4jax_tokens import experimental as experimental
from plait.compat.mpi4jax_tokens import notoken as notoken

__version__ = "0.7.2"  # the release with this interface

_WITHOUT_RESULT = (plait.send, plait.barrier)


def _token(given: Any, name: str) -> Any:
    """A fresh token for None; arrays, and tokens of jax.lax.create_token, stay as they are."""
    if given is None:
        return plait.create_token()
    if not hasattr(given, "dtype"):
        try:
            jax.typeof(given)
        except TypeError:
            raise TypeError(
                f'{name} got unexpected type for argument "token" '
                f"(expected: token, got: {type(given)})"
            ) from None
    return given


def _operation(function: Callable[P, Any], **fixed: Any) -> Callable[P, Any]:
    def call(*args: Any, token: Any = None, **kwargs: Any) -> Any:
        token = _token(token, function.__name__)
        result = function(*args, **kwargs, **fixed)
        return token if function in _WITHOUT_RESULT else (result, token)

    return _adapt.operation(function, call, None, __name__)


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

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "experimental",
    "gather",
    "get_logging",
    "has_cuda_support",
    "has_sycl_support",
    "notoken",
    "recv",
    "reduce",
    "scan",
    "scatter",
    "send",
    "sendrecv",
    "set_logging",
]
