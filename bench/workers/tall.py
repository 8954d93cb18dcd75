"""QR of a tall matrix that is split by rows: along a tree, dealt out in columns, and by jnp."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, arguments, rounds
from jax.sharding import PartitionSpec as P

from workers.world import World, blas_threads


def errors(world, q, r, whole):
    """The largest error of Q R over the local parts, relative to the matrix."""
    [(_, triangle), *_] = world.parts(r)
    size = np.abs(whole).max()
    return max(
        float(np.abs(part @ triangle - whole[index]).max() / size) for index, part in world.parts(q)
    )


def main():
    """Measure."""
    options = arguments("where", "m", "n")
    world, m, n = World(options.where), int(options.m), int(options.n)
    whole = np.random.default_rng(0).random((m, n)) - 0.5
    ours, theirs = world.put(whole), jax.device_put(whole, jax.local_devices()[0])
    given = {"mesh": world.mesh, "spec": P("x", None)}
    block = max(1, n // (4 * world.mesh.size))  # plait's own choice
    runs = {
        "plait": (plait.jit(lambda a: plait.linalg.qr(a, **given)), ours),
        "dealt out": (plait.jit(lambda a: plait.linalg.qr(a, block=block, **given)), ours),
        "jnp": (jax.jit(jnp.linalg.qr), theirs),
    }
    q, r = runs["plait"][0](ours)
    whole_r = plait.redistribute(r, P(), mesh=world.mesh, spec=r.sharding.spec)
    wrong = world.team.max(errors(world, q, whole_r, whole))
    if not wrong < 10 * n * np.finfo("float64").eps:
        raise RuntimeError(f"Q R of {m} x {n} differs from the matrix by {wrong}")
    cases = {
        name: Case(
            lambda run=run, a=a: jax.block_until_ready(run(a)), is_solo=name.startswith("jnp")
        )
        for name, (run, a) in runs.items()
    }
    facts = {"m": m, "n": n, "difference": wrong, "jax": jax.__version__}
    facts["blas_threads"] = blas_threads()
    rounds(world.team, options, f"tall {options.where}", cases, facts)


if __name__ == "__main__":
    main()
