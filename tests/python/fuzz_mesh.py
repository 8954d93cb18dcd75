"""Generated programs of global arrays without end.

Run as ``JAX_NUM_CPU_DEVICES=8 python tests/python/fuzz_mesh.py``, or for devices of several
processes as ``PLAIT_TEST_DEVICES=2 plait run -n 2 python -m mpi4py tests/python/fuzz_mesh.py``.
Runs the program of each seed from --first on, for --count seeds or --seconds. Before a program
runs, its seed is written to the file --note, so that the seed is known even after a crash; after
the last program the file says "done".
"""

import argparse
import pathlib
import sys
import time

import conftest  # noqa: F401 - configures JAX
import generate_mesh
import jax
import launched


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--note", type=pathlib.Path)
    options = parser.parse_args()
    launched.start()
    end, n_run, is_first = time.monotonic() + options.seconds, 0, jax.process_index() == 0
    while n_run < options.count and launched.as_the_first(time.monotonic() < end):
        seed = options.first + n_run
        if options.note and is_first:
            options.note.write_text(f"--first {seed}")
        generate_mesh.check(seed)
        n_run += 1
        if n_run % 25 == 0:
            jax.clear_caches()  # programs do not recur
    launched.wait_for_others()
    if is_first:
        if options.note:
            options.note.write_text("done")
        print(f"{n_run} programs of global arrays from seed {options.first} on: no difference")


if __name__ == "__main__":
    sys.exit(main())
