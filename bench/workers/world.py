"""Global arrays over 2 devices of this process, or over 2 MPI ranks of one device each."""

import ctypes
from pathlib import Path

import jax
import numpy as np
from _rounds import Ranks, Threads
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

N_DEVICES = 2


class World:
    """The mesh `x` over everything, the team that times, and the way operands get there."""

    def __init__(self, where):
        jax.config.update("jax_enable_x64", True)
        if where == "ranks":
            jax.distributed.initialize(cluster_detection_method="mpi4py")
            self.team = Ranks()
        else:
            jax.config.update("jax_num_cpu_devices", N_DEVICES)
            self.team = Threads(N_DEVICES)
        self.mesh = Mesh(np.array(jax.devices()), ("x",))
        self.size = self.mesh.size

    def put(self, whole):
        """The array, split over its first axis."""
        split = NamedSharding(self.mesh, P("x"))
        return jax.make_array_from_callback(whole.shape, split, lambda index: whole[index])

    @staticmethod
    def parts(x):
        """This process's parts as NumPy arrays, each with its place in the whole."""
        return [(shard.index, np.asarray(shard.data)) for shard in x.addressable_shards]

    def difference(self, y, want):
        """The largest error of this process's parts, relative to the largest element."""
        largest = np.abs(want).max()
        return max(
            float(np.abs(part - want[index]).max() / largest) for index, part in self.parts(y)
        )


def random(n, dtype):
    """An n x n x n array of complex numbers; the same on each rank."""
    rng = np.random.default_rng(0)
    real = np.dtype(dtype).type().real.dtype
    pairs = rng.random((n, n, 2 * n), real)
    pairs -= 0.5
    return pairs.view(dtype)


def blas_threads():
    """The largest thread count of the OpenBLAS libraries here, from SciPy and NumPy."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    libraries = [ctypes.CDLL(name) for name in {m.split()[-1] for m in maps if "openblas" in m}]
    names = [f"scipy_openblas_get_num_threads{end}" for end in ("", "64_")]
    return max(
        (getattr(of, name)() for of in libraries for name in names if hasattr(of, name)), default=0
    )
