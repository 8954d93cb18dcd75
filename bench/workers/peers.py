"""Allreduce through plait beside another library for MPI in JAX, in the same processes."""

import functools
import importlib.metadata
import os

os.environ.setdefault("MPI4JAX_NO_WARN_JAX_VERSION", "1")

import jax
import jax.numpy as jnp
import plait
from _rounds import Case, Ranks, arguments, copier, rounds
from mpi4py import MPI

from workers import raw
from workers.steps import awaited, loop_of, step_of

N_CALLS = 200


def of_mpi4jax():
    """Its allreduce, ordered by an effect."""
    import mpi4jax

    return functools.partial(mpi4jax.allreduce, op=MPI.SUM, comm=MPI.COMM_WORLD)


def of_jpi():
    """Its allreduce, ordered by a token."""
    import jpi

    def allreduce(x):
        return jpi.allreduce(x, jpi.gen_token(), op=MPI.SUM, comm=MPI.COMM_WORLD)[0]

    return allreduce


PEERS = {"mpi4jax": of_mpi4jax, "jpi": of_jpi}


def cases_of(name, jit, allreduce, n_loop, n):
    """The measurements of a library."""
    loop, large = loop_of(jit, allreduce, n_loop), jit(allreduce)
    zero, x = jnp.zeros(1), jnp.ones(n, jnp.float32)
    if float(large(x)[n // 2]) != MPI.COMM_WORLD.size:
        raise RuntimeError(f"the allreduce of {name} is wrong")
    return {
        f"{name} loop": Case(lambda: loop(zero).block_until_ready(), n_loop),
        f"{name} call": awaited(jit(step_of(allreduce)), N_CALLS),
        f"{name} large": Case(lambda: large(x).block_until_ready()),
    }


def main():
    """Measure."""
    options = arguments("peer", "loop", "mib", "only")
    jax.config.update("jax_enable_x64", True)
    team = Ranks()
    n, n_loop = (int(options.mib) << 20) // 4, int(options.loop)
    ours = functools.partial(plait.allreduce, op=plait.SUM)
    cases = cases_of("plait", plait.jit, ours, n_loop, n)
    cases |= cases_of("peer", jax.jit, PEERS[options.peer](), n_loop, n)
    cases["plain"] = awaited(jax.jit(step_of(lambda x: x)), N_CALLS)
    cases["memcpy"] = Case(copier(4 * n))
    version = importlib.metadata.version(options.peer)
    facts = {"mpi": raw.version(), "jax": jax.__version__, "peer": f"{options.peer} {version}"}
    facts |= {"mib": int(options.mib), "level": raw.thread_level()}
    if options.only:
        cases = {key: case for key, case in cases.items() if key.endswith(f" {options.only}")}
    rounds(team, options, options.peer, cases, facts)


if __name__ == "__main__":
    main()
