"""8-byte allreduce in a jitted loop, and dispatch of small steps, on 2 MPI ranks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, Ranks, arguments, rounds
from mpi4py import MPI

from workers import raw
from workers.steps import awaited, loop_of, queued, step_of

N_FAST, N_VISIBLE = 2000, 200
COMPILED = "/jax/core/compile/backend_compile_duration"

allreduce = functools.partial(plait.allreduce, op=plait.SUM)


def eager(facts, n_calls):
    """Eager calls; `facts` counts how often XLA compiles after the first."""
    case, seen = awaited(allreduce, n_calls), []

    def run():
        n_before = len(seen)
        case.run()
        facts["n_compiled"] += len(seen) - n_before

    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: seen.append(event) if event == COMPILED else None
    )
    allreduce(jnp.zeros(1)).block_until_ready()
    return Case(run, n_calls)


def main():
    """Measure."""
    options = arguments("raw", "loop", "only")
    jax.config.update("jax_enable_x64", True)
    team, mpi = Ranks(), raw.Raw(options.raw)
    comm = plait.Comm()
    facts = {"mpi": raw.version(), "transport": comm.transport, "direct": comm.direct}
    facts |= {"jax": jax.__version__, "n_compiled": 0, "level": raw.thread_level()}
    n_loop = int(options.loop)
    x, y, zero = np.zeros(1), np.zeros(1), jnp.zeros(1)
    loop = loop_of(plait.jit, allreduce, n_loop)
    plain = jax.jit(step_of(lambda x: x))
    one_rank = functools.partial(allreduce, comm=plait.Comm(MPI.COMM_SELF))
    loop_alone = loop_of(plait.jit, one_rank, n_loop)
    hidden, visible = plait.jit(step_of(allreduce)), jax.jit(step_of(allreduce))
    cases = {
        "raw": Case(lambda: mpi.allreduce(n_loop, x, y), n_loop),
        "loop": Case(lambda: loop(zero).block_until_ready(), n_loop),
        "alone": Case(lambda: loop_alone(zero).block_until_ready(), n_loop),
        "plait.jit": queued(hidden, N_FAST),
        "plain": queued(plain, N_FAST),
        "jax.jit": queued(visible, N_VISIBLE),
        "plait.jit awaited": awaited(hidden, N_FAST),
        "plain awaited": awaited(plain, N_FAST),
        "jax.jit awaited": awaited(visible, N_VISIBLE),
        "alone awaited": awaited(plait.jit(step_of(one_rank)), N_FAST),
        "jitted": awaited(plait.jit(allreduce), N_FAST),
        "eager": eager(facts, N_FAST),
    }
    if options.only:
        cases = {key: cases[key] for key in ("raw", options.only)}
    rounds(team, options, "latency", cases, facts)


if __name__ == "__main__":
    main()
