"""Look for faults with random input until time is over; `make fuzz`.

fuzz.py [--programs N] [--seconds S] [--first SEED] [--ranks 2,3]

Runs generated programs on ranks (tests/python/fuzz_programs.py), N of them for each number of
ranks but no longer than S seconds. Ends with 1 at the first fault, and says how to see it again.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "fuzz"
KINDS = 5  # programs of one seed
GRACE_S = 120  # to start, and to end the last program


def programs(n_ranks, options):
    """Generated programs; whether all was well."""
    note = FOLDER / f"programs-{n_ranks}.seed"
    note.write_text("")
    run = [sys.executable, "-m", "plait", "run", "-n", str(n_ranks)]
    script = [sys.executable, "-m", "mpi4py", "tests/python/fuzz_programs.py"]
    count = max(1, options.programs // KINDS)
    limits = ["--timeout", str(options.seconds + GRACE_S)]
    which = ["--first", str(options.first), "--count", str(count)]
    ends = ["--seconds", str(options.seconds), "--note", str(note)]
    command = [*run, *limits, *script, *which, *ends]
    if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode == 0:
        return True
    again = " ".join(map(str, [*run, *script, note.read_text()]))
    print(f"fuzz: {n_ranks} ranks failed; again with\n    {again}")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--first", type=int, default=int(time.time()) % 10**7 * 100)
    parser.add_argument("--ranks", default="2,3")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["PLAIT_FLIGHT"] = str(FOLDER)
    print(f"fuzz: from seed {options.first} on", flush=True)
    return 0 if all(programs(int(n), options) for n in options.ranks.split(",")) else 1


if __name__ == "__main__":
    sys.exit(main())
