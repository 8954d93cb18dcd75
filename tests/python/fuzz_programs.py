"""Generated programs without end.

Run as ``plait run -n 3 python -m mpi4py tests/python/fuzz_programs.py``. Runs every kind of program
for each seed from --first on, for --count seeds or --seconds. Programs in which one rank differs
somewhere (--kind planted) run by themselves, with a short PLAIT_TIMEOUT. Before a program runs, its
seed and kind are written to the file --note, so that both are known even after a hang; after the
last program the file says "done".
"""

import argparse
import collections
import pathlib
import sys
import time

import conftest  # noqa: F401 - configures JAX
import generate_check
import generate_mixed
import generate_space
import jax
import plait
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def kinds(comms, only, endings):
    """The kinds of programs by name, each with a function that runs the program of a seed."""
    space = generate_space.Space.of_processes(WORLD.size)
    two = {name: comms[name] for name in ("world", "copy")}
    dispatched = generate_mixed.Dispatched(two, WORLD.rank, WORLD.size)

    def program(is_linear):
        def run(seed):
            made = generate_check.make(seed, space, is_linear)
            generate_check.on_process(made, space, comms, WORLD.rank)

        return run

    def order(seed):
        generate_mixed.Compiled(seed).run()

    def fault(seed):
        generate_check.with_fault(seed, space, comms, WORLD.rank)
        plait.barrier(comm=WORLD)

    def planted(seed):
        """On communicators of its own: some faults leave no usable communicator."""
        own = generate_space.communicators(WORLD.Dup())
        end = generate_check.altered(seed, space, own, WORLD.rank)
        arrival = WORLD.Ibarrier()
        while not arrival.Test():  # a rank that only polled would look as if it computed
            time.sleep(0.005)
        ends = WORLD.allgather(end)
        for comm in own.values():
            plait.Comm(comm).free()
            comm.Free()
        generate_check.judge_altered(ends)
        endings.update(["right" if end == "right" else "error"])

    if only == "planted":
        return {"planted": planted}
    table = {"values": program(False), "derivatives": program(True)}
    table |= {"calls": dispatched.run, "order": order}
    return table | ({"fault": fault} if WORLD.size > 1 else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--kind", default="")
    parser.add_argument("--note", type=pathlib.Path)
    options = parser.parse_args()
    endings = collections.Counter()
    table = kinds(generate_space.communicators(WORLD), options.kind, endings)
    end, n_run = time.monotonic() + options.seconds, 0
    for seed in range(options.first, options.first + options.count):
        for kind in [options.kind] if options.kind else table:
            if options.note and WORLD.rank == 0:
                options.note.write_text(f"--first {seed} --kind {kind}")
            table[kind](seed)
            n_run += 1
        if n_run % 100 < len(table):
            jax.clear_caches()  # programs do not recur
        if WORLD.bcast(time.monotonic() > end):
            break
    if WORLD.rank == 0:
        if options.note:
            options.note.write_text("done")
        print(f"{n_run} programs from seed {options.first} on, {WORLD.size} ranks: no difference")
        for name, n in sorted(endings.items()):
            print(f"{n} ended with {name}")


if __name__ == "__main__":
    sys.exit(main())
