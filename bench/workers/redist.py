"""Redistribution through JAX with fresh results, beside memcpy of the local data."""

import jax
import numpy as np
import plait
from _rounds import Case, arguments, copier, rounds
from jax.sharding import PartitionSpec as P

from workers.world import World, random


def main():
    """Measure."""
    options = arguments("where", "n")
    world, n = World(options.where), int(options.n)
    whole = random(n, "complex128")
    x = world.put(whole)
    move = plait.jit(lambda x: plait.redistribute(x, P(None, "x")))
    for index, part in world.parts(move(x)):
        if not np.array_equal(part, whole[index]):
            raise RuntimeError("redistribute is wrong")
    cases = {
        "plait": Case(lambda: move(x).block_until_ready()),
        "memcpy": Case(copier(whole.nbytes // world.size, world.team.copies)),
    }
    facts = {"jax": jax.__version__, "n": n, "local_bytes": whole.nbytes // world.size}
    rounds(world.team, options, f"redist {options.where}", cases, facts)


if __name__ == "__main__":
    main()
