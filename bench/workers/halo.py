"""Halo exchange through JAX on 2 MPI ranks, beside MPI_Sendrecv of subarrays from C."""

import jax
import numpy as np
import plait
from _rounds import Case, arguments, copier, rounds
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from mpi4py import MPI

from workers import raw
from workers.bulk import Chain
from workers.world import World

WIDTH = 2


def faces(shape, axis, mpi, n_calls=1):
    """A call that exchanges both faces of an array of this shape with the other rank."""
    x = np.zeros(shape)
    step = x.strides[axis] // x.itemsize
    sizes = [WIDTH if i == axis else n for i, n in enumerate(shape)]
    face = MPI.DOUBLE.Create_subarray(shape, sizes, [0, 0, 0]).Commit()

    def at(index):
        return x.reshape(-1)[index * step :]

    n = shape[axis]
    ways = [(n - 2 * WIDTH, 0), (WIDTH, n - WIDTH)]  # sends from, receives at

    def run():
        return sum(mpi.call("sendrecv", n_calls, at(i), at(o), 1, face) for i, o in ways)

    return run


def measure(world, mpi, options, n, axis):
    """One axis: the split one, with ghosts on both sides."""
    spec = P(*[None] * axis, "x")
    width = [WIDTH if i == axis else 0 for i in range(3)]
    whole = np.arange(float(n**3)).reshape(n, n, n)
    split = NamedSharding(world.mesh, spec)
    cells = jax.make_array_from_callback(whole.shape, split, lambda index: whole[index])
    pad = plait.jit(lambda x: plait.halo.pad(x, width, spec=spec))
    exchange = plait.jit(
        lambda x: plait.halo.exchange(x, width, spec=spec, donate=True), donate_argnums=0
    )
    padded = pad(cells)
    want = np.asarray(padded.addressable_data(0))
    start = cells.addressable_shards[0].index[axis].start or 0
    line = np.arange(start - WIDTH, start + n // world.size + WIDTH)
    if not np.array_equal(want, np.take(whole, line, axis, mode="wrap")):
        raise RuntimeError("halo.pad is wrong")
    chain = Chain(exchange, padded)
    chain()
    if not np.array_equal(chain.x.addressable_data(0), want):
        raise RuntimeError("halo.exchange is wrong")
    cases = {
        "raw": Case(faces(want.shape, axis, mpi)),
        "donated": Case(chain),
        "pad": Case(lambda: pad(cells).block_until_ready()),
        "memcpy": Case(copier(want.nbytes)),
    }
    facts = {"jax": jax.__version__, "n": n, "mpi": raw.version(), "face_bytes": 8 * WIDTH * n * n}
    rounds(world.team, options, f"axis {axis}", cases, facts)


def main():
    """Measure."""
    options = arguments("raw", "n")
    world = World("ranks")
    mpi = raw.Raw(options.raw)
    for axis in range(3):
        measure(world, mpi, options, int(options.n), axis)


if __name__ == "__main__":
    main()
