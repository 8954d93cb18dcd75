"""MPI communication, distributed FFTs and halo exchange inside ``jax.jit``, with gradients."""

from plait import _core as _core  # the library first: without it nothing else makes sense
from plait import _exit as _exit
from plait import fft as fft
from plait import halo as halo
from plait._coll import REDUCTIONS as _REDUCTIONS
from plait._coll import allreduce as allreduce
from plait._coll import barrier as barrier
from plait._coll import bcast as bcast
from plait._coll import create_token as create_token
from plait._coll import depend as depend
from plait._coll import sendrecv as sendrecv
from plait._comm import ANY_SOURCE as ANY_SOURCE
from plait._comm import ANY_TAG as ANY_TAG
from plait._comm import PROC_NULL as PROC_NULL
from plait._comm import Comm as Comm
from plait._errors import CommError as CommError
from plait._errors import Error as Error
from plait._errors import MismatchError as MismatchError
from plait._errors import PeerError as PeerError
from plait._errors import TimeoutError as TimeoutError
from plait._errors import TransportError as TransportError
from plait._errors import TruncationError as TruncationError
from plait._errors import block as block
from plait._errors import errors as errors
from plait._jax import jit as jit
from plait._jax import region as region
from plait._observe import get_logging as get_logging
from plait._observe import has_cuda_support as has_cuda_support
from plait._observe import has_sycl_support as has_sycl_support
from plait._observe import set_logging as set_logging
from plait._redist import redistribute as redistribute
from plait._redist import sum as sum

globals().update(_REDUCTIONS)

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "PROC_NULL",
    "Comm",
    "CommError",
    "Error",
    "MismatchError",
    "PeerError",
    "TimeoutError",
    "TransportError",
    "TruncationError",
    "allreduce",
    "barrier",
    "bcast",
    "block",
    "create_token",
    "depend",
    "errors",
    "fft",
    "get_logging",
    "halo",
    "has_cuda_support",
    "has_sycl_support",
    "jit",
    "redistribute",
    "region",
    "sendrecv",
    "set_logging",
    "sum",
    *_REDUCTIONS,
]
