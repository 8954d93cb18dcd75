"""What the guard costs: an 8 B allreduce in a loop, and call sites that run for the first time."""

import functools
import itertools
import time

import jax.numpy as jnp
import numpy as np
import plait
from _rounds import Case, Ranks, arguments, rounds
from plait import _core

from workers import raw
from workers.steps import loop_of

N_SITES = 16
N_ROUNDS_MOST = 256
OFF, FIRST = 0, 1  # plait_check_level_t

allreduce = functools.partial(plait.allreduce, op=plait.SUM)
number = itertools.count(1)


def fresh_sites():
    """A compiled program of N_SITES allreduces, each on a line of its own."""
    lines = ["def program(x):", *["    x = allreduce(x)"] * N_SITES, "    return x"]
    names = {"allreduce": allreduce}
    exec(compile("\n".join(lines), f"sites {next(number)}", "exec"), names)
    return plait.jit(names["program"])


class Sites:
    """Programs that have been compiled, but not yet run."""

    def __init__(self, team, n):
        self.team, self.x, self.programs = team, jnp.zeros(1), []
        for _ in range(n):
            self.programs.append(fresh_sites().lower(self.x).compile())

    def _timed(self, program):
        self.team.barrier()
        begin = time.perf_counter()
        program(self.x).block_until_ready()
        return time.perf_counter() - begin

    def first(self):
        """Seconds that a program's first execution takes beyond its second."""
        program = self.programs.pop()
        return self._timed(program) - self._timed(program)


def checked(level, run):
    """Run it with PLAIT_CHECK at this level."""

    def chosen():
        _core.lib.plait_check_choose(level)
        return run()

    return chosen


def main():
    """Measure."""
    options = arguments("raw", "loop")
    team, mpi = Ranks(), raw.Raw(options.raw)
    n_loop = int(options.loop)
    x, y, zero = np.zeros(1), np.zeros(1), jnp.zeros(2, jnp.float32)
    loop = loop_of(plait.jit, allreduce, n_loop)
    sites = Sites(team, min(options.limit, N_ROUNDS_MOST) + 8)
    cases = {
        "raw": Case(lambda: mpi.allreduce(n_loop, x, y), n_loop),
        "off": Case(checked(OFF, lambda: loop(zero).block_until_ready()), n_loop),
        "loop": Case(checked(FIRST, lambda: loop(zero).block_until_ready()), n_loop),
        "first": Case(checked(FIRST, sites.first), N_SITES),
    }
    rounds(team, options, "guard", cases, {"mpi": raw.version()})


if __name__ == "__main__":
    main()
