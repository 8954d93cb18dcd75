"""mpi4jax.notoken of 0.7, and mpi4jax.experimental.notoken of 0.5 and 0.6: program order."""

from plait.compat.mpi4jax import allgather as allgather
from plait.compat.mpi4jax import allreduce as allreduce
from plait.compat.mpi4jax import alltoall as alltoall
from plait.compat.mpi4jax import barrier as barrier
from plait.compat.mpi4jax import bcast as bcast
from plait.compat.mpi4jax import gather as gather
from plait.compat.mpi4jax import recv as recv
from plait.compat.mpi4jax import reduce as reduce
from plait.compat.mpi4jax import scan as scan
from plait.compat.mpi4jax import scatter as scatter
from plait.compat.mpi4jax import send as send
from plait.compat.mpi4jax import sendrecv as sendrecv
