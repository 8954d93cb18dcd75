"""What `plait` exports, except in the process of ``plait run``."""

from plait import _core as _core  # the library first: nothing works without it
from plait import _exit as _exit
from plait import fft as fft
from plait import halo as halo
from plait import linalg as linalg
from plait._args import BAND as BAND
from plait._args import BOR as BOR
from plait._args import BXOR as BXOR
from plait._args import LAND as LAND
from plait._args import LOR as LOR
from plait._args import LXOR as LXOR
from plait._args import MAX as MAX
from plait._args import MIN as MIN
from plait._args import PROD as PROD
from plait._args import SUM as SUM
from plait._comm import ANY_SOURCE as ANY_SOURCE
from plait._comm import ANY_TAG as ANY_TAG
from plait._comm import PROC_NULL as PROC_NULL
from plait._comm import Comm as Comm
from plait._config import config as config
from plait._errors import ArgumentError as ArgumentError
from plait._errors import CommError as CommError
from plait._errors import Error as Error
from plait._errors import LinAlgError as LinAlgError
from plait._errors import MemoryError as MemoryError
from plait._errors import MismatchError as MismatchError
from plait._errors import PeerError as PeerError
from plait._errors import ReplicationError as ReplicationError
from plait._errors import TimeoutError as TimeoutError
from plait._errors import TransportError as TransportError
from plait._errors import TruncationError as TruncationError
from plait._errors import block as block
from plait._errors import errors as errors
from plait._explain import ExplainedCall as ExplainedCall
from plait._explain import Explanation as Explanation
from plait._explain import explain as explain
from plait._foreign import keep_order as keep_order
from plait._io import from_local as from_local
from plait._io import gather_to_host as gather_to_host
from plait._io import load as load
from plait._io import save as save
from plait._io import to_local as to_local
from plait._move import allgather as allgather
from plait._move import allgatherv as allgatherv
from plait._move import alltoall as alltoall
from plait._move import alltoallv as alltoallv
from plait._move import bcast as bcast
from plait._move import gather as gather
from plait._move import gatherv as gatherv
from plait._move import scatter as scatter
from plait._move import scatterv as scatterv
from plait._neighbor import neighbor_allgather as neighbor_allgather
from plait._neighbor import neighbor_alltoall as neighbor_alltoall
from plait._neighbor import permute as permute
from plait._neighbor import shift as shift
from plait._observe import get_logging as get_logging
from plait._observe import has_cuda_support as has_cuda_support
from plait._observe import has_sycl_support as has_sycl_support
from plait._observe import set_logging as set_logging
from plait._order import barrier as barrier
from plait._order import create_token as create_token
from plait._order import depend as depend
from plait._order import pvary as pvary
from plait._p2p import recv as recv
from plait._p2p import send as send
from plait._p2p import sendrecv as sendrecv
from plait._redist import redistribute as redistribute
from plait._redist import sum as sum
from plait._reduce import allreduce as allreduce
from plait._reduce import exscan as exscan
from plait._reduce import maxloc as maxloc
from plait._reduce import minloc as minloc
from plait._reduce import reduce as reduce
from plait._reduce import reduce_scatter as reduce_scatter
from plait._reduce import reduce_scatterv as reduce_scatterv
from plait._reduce import scan as scan
from plait._region import jit as jit
from plait._region import region as region
from plait._start import start as start
from plait._start import wait as wait

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "PROC_NULL",
    "ArgumentError",
    "Comm",
    "CommError",
    "Error",
    "ExplainedCall",
    "Explanation",
    "LinAlgError",
    "MemoryError",
    "MismatchError",
    "PeerError",
    "ReplicationError",
    "TimeoutError",
    "TransportError",
    "TruncationError",
    "allgather",
    "allgatherv",
    "allreduce",
    "alltoall",
    "alltoallv",
    "barrier",
    "bcast",
    "block",
    "config",
    "create_token",
    "depend",
    "errors",
    "explain",
    "exscan",
    "fft",
    "from_local",
    "gather",
    "gather_to_host",
    "gatherv",
    "get_logging",
    "halo",
    "has_cuda_support",
    "has_sycl_support",
    "jit",
    "keep_order",
    "linalg",
    "load",
    "maxloc",
    "minloc",
    "neighbor_allgather",
    "neighbor_alltoall",
    "permute",
    "pvary",
    "recv",
    "redistribute",
    "reduce",
    "reduce_scatter",
    "reduce_scatterv",
    "region",
    "save",
    "scan",
    "scatter",
    "scatterv",
    "send",
    "sendrecv",
    "set_logging",
    "shift",
    "start",
    "sum",
    "to_local",
    "wait",
    # reductions, in the core's order
    "SUM",
    "PROD",
    "MIN",
    "MAX",
    "LAND",
    "LOR",
    "LXOR",
    "BAND",
    "BOR",
    "BXOR",
]
