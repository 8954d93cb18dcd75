"""Redistribution through JAX with fresh results, beside memcpy of the local data."""

import functools

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
    cases = {}
    for axis in (1, 2):
        split = P(*[None] * axis, "x")
        move = plait.jit(functools.partial(plait.redistribute, to_spec=split))
        for index, part in world.parts(move(x)):
            if not np.array_equal(part, whole[index]):
                raise RuntimeError(f"redistribute to axis {axis} is wrong")
        cases[f"to {axis}"] = Case(lambda move=move: move(x).block_until_ready())
    cases["memcpy"] = Case(copier(whole.nbytes // world.size, world.team.copies))
    facts = {"jax": jax.__version__, "n": n, "local_bytes": whole.nbytes // world.size}
    rounds(world.team, options, f"redist {options.where}", cases, facts)


if __name__ == "__main__":
    main()
