"""pfft3d through JAX with fresh results, beside another library's transform of the same array."""

import importlib.metadata

import jax
import numpy as np
import plait
from _rounds import Case, arguments, copier, rounds
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from workers.world import World, random

DTYPE = "complex128"


def of_mpi4py_fft(world, whole, want):
    """Its transform in its own arrays, unscaled: it makes no further copies."""
    from mpi4py import MPI
    from mpi4py_fft import PFFT

    # split as plait's operand and result; MEASURE is FFTW's default here
    fft = PFFT(MPI.COMM_WORLD, whole.shape, dtype=DTYPE, grid=(-1,), collapse=True)
    fft.forward.input_array[...] = whole[fft.local_slice(False)]
    got = fft.forward(normalize=False)
    wrong = np.abs(got - want[fft.local_slice(True)]).max() / np.abs(want).max()
    fft.forward.input_array[...] = 0  # for transforms in place: zeros stay small
    return {"peer": Case(lambda: fft.forward(normalize=False) is None)}, float(wrong)


def of_jaxdecomp(world, whole, want):
    """Its transform, whose result has the axes 1, 2, 0, on a mesh of two axes, as it needs.

    Also plait's function of that name, which gives the same result.
    """
    import jaxdecomp
    from plait.compat import jaxdecomp as dropin

    mesh = Mesh(np.array(jax.devices()).reshape(world.size, 1), ("x", "y"))
    split = NamedSharding(mesh, P("x", "y"))
    x = jax.make_array_from_callback(whole.shape, split, lambda index: whole[index])
    programs = {"peer": jax.jit(jaxdecomp.pfft3d), "dropin": jax.jit(dropin.pfft3d)}
    turned = want.transpose(1, 2, 0)
    wrong = max(world.difference(program(x), turned) for program in programs.values())
    return {
        name: Case(lambda program=program: program(x).block_until_ready())
        for name, program in programs.items()
    }, wrong


# The cases with the peer's operand, and the largest error of their results.
PEERS = {"mpi4py-fft": of_mpi4py_fft, "jaxdecomp": of_jaxdecomp}


def measure(world, options, n):
    """One size."""
    whole = random(n, DTYPE)
    want = np.fft.fftn(whole)
    x, ours = world.put(whole), plait.jit(plait.fft.pfft3d)
    theirs, their_error = PEERS[options.peer](world, whole, want)
    wrong = world.team.max(max(world.difference(ours(x), want), their_error))
    if not wrong < 100 * np.finfo(DTYPE).eps:
        raise RuntimeError(f"results of {n}^3 differ from numpy's by {wrong}")
    cases = {
        "plait": Case(lambda: ours(x).block_until_ready()),
        **theirs,
        "memcpy": Case(copier(whole.nbytes // world.size, world.team.copies)),
    }
    version = importlib.metadata.version(options.peer)
    facts = {"n": n, "jax": jax.__version__, "peer": f"{options.peer} {version}", "mpi": ""}
    if options.where == "ranks":
        from workers import raw

        facts["mpi"] = raw.version()
    rounds(world.team, options, f"fft {options.peer} {options.where}", cases, facts)


def main():
    """Measure."""
    options = arguments("peer", "where", "sizes")
    world = World(options.where)
    for n in map(int, options.sizes.split(",")):
        measure(world, options, n)


if __name__ == "__main__":
    main()
