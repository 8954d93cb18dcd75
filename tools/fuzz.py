"""Look for faults with random input until time is over; `make fuzz`.

fuzz.py [--programs N] [--seconds S] [--first SEED] [--ranks 2,3]

First runs generated programs on ranks (tests/python/fuzz_programs.py), N for each number of ranks,
but no longer than S seconds. Then runs programs of global arrays (tests/python/fuzz_mesh.py) for as
long, on devices of so many processes and of one. Last, if clang has libFuzzer, runs each
tests/c/fuzz_*.c for S seconds under the address and undefined sanitizers. Ends with 1 at the first
fault, and says how to reproduce it. Inputs that led to new paths are kept in build/fuzz.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "fuzz"
KINDS = 5  # of programs for one seed
GRACE_S = 120  # to start, and to end the last program


def generated(name, launch, script, options, variables, may_fail=False):
    """Runs a script of generated programs; whether all was well, else it says how to repeat it.

    launch: the starter, and options for it that apply only here. may_fail: all is well if the last
    program ended, whatever the job's exit code.
    """
    note = FOLDER / f"programs{name}.seed"
    note.write_text("")
    starter, limits = launch
    which = ["--first", str(options.first), "--count", str(max(1, options.programs // KINDS))]
    ends = ["--seconds", str(options.seconds), "--note", str(note)]
    command = [*starter, *limits, *script, *which, *ends]
    env = os.environ | variables
    code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, env=env).returncode
    if note.read_text() == "done" and (may_fail or code == 0):
        return True
    given = "".join(f"{key}={value} " for key, value in variables.items())
    again = " ".join([*starter, *script, note.read_text()])
    print(f"fuzz: programs{name} failed; again with\n    {given}{again}")
    return False


def launched(n_ranks, options):
    """The starter of so many ranks, and the options for it that apply only here."""
    run = [sys.executable, "-m", "plait", "run", "-n", str(n_ranks)]
    return run, ["--timeout", str(options.seconds + GRACE_S)]


def programs(n_ranks, options, kind):
    """Generated programs of a kind, "" for all without a fault; returns whether all was well."""
    script = [sys.executable, "-m", "mpi4py", "tests/python/fuzz_programs.py"]
    script += ["--kind", kind] if kind else []
    limited = {"PLAIT_TIMEOUT": "2"} if kind else {}
    launch = launched(n_ranks, options)
    # A job in which a rank has waited in vain does not end with 0.
    return generated(f"{kind}-{n_ranks}", launch, script, options, limited, bool(kind))


def mesh_programs(options):
    """Programs of global arrays on one process's devices; returns whether all was well."""
    script = [sys.executable, "tests/python/fuzz_mesh.py"]
    return generated("-mesh", ([], []), script, options, {"JAX_NUM_CPU_DEVICES": "8"})


def host_programs(n_processes, options):
    """The same on two devices of each process; returns whether all was well."""
    script = [sys.executable, "-m", "mpi4py", "tests/python/fuzz_mesh.py"]
    few, launch = {"PLAIT_TEST_DEVICES": "2"}, launched(n_processes, options)
    return generated(f"-mesh-{n_processes}", launch, script, options, few)


def libfuzzer():
    """Builds the targets with clang; returns their folder, or None and why not."""
    if not shutil.which("clang"):
        return None, "there is no clang"
    source, folder = FOLDER / "try.c", ROOT / "build" / "fuzz-c"
    source.write_text("int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }\n")
    tried = ["clang", "-fsanitize=fuzzer,address,undefined", source, "-o", FOLDER / "try"]
    if subprocess.run(tried, stderr=subprocess.DEVNULL).returncode != 0:
        return None, "clang has no libFuzzer"
    names = [path.stem for path in sorted((ROOT / "tests" / "c").glob("fuzz_*.c"))]
    configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DPLAIT_BUILD_TESTS=ON"]
    sanitizers = "-DPLAIT_SANITIZE=fuzzer-no-link,address,undefined"
    subprocess.run(
        [*configure, "-DPLAIT_FUZZ=ON", sanitizers, "-DCMAKE_BUILD_TYPE=RelWithDebInfo"],
        env={**os.environ, "CC": "clang"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    subprocess.run(["cmake", "--build", folder, "--target", *names], check=True)
    return [folder / "tests" / "c" / name for name in names], None


def target(program, seconds):
    """Runs one target of libFuzzer; returns whether all was well."""
    corpus = FOLDER / program.name
    corpus.mkdir(exist_ok=True)
    log = FOLDER / f"{program.name}.log"
    settings = {"PLAIT_LOG": "error", "PLAIT_FLIGHT": "0"}
    settings["ASAN_OPTIONS"] = "detect_leaks=1:allocator_may_return_null=1"
    limits = [f"-max_total_time={seconds}", "-max_len=400", "-timeout=20"]
    command = [program, *limits, f"-artifact_prefix={FOLDER}/{program.name}-", corpus]
    with log.open("w") as output:
        code = subprocess.run(command, env=os.environ | settings, stderr=output).returncode
    lines = log.read_text(errors="replace").splitlines()
    if code == 0:
        print(f"{program.name}: {lines[-1]}", flush=True)
        return True
    print("\n".join(lines[-40:]))
    print(f"fuzz: {program.name} found a fault; again with\n    {program} THE FILE NAMED ABOVE")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--first", type=int, default=int(time.time()) % 10**7 * 100)
    parser.add_argument("--ranks", default="2,3")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["PLAIT_FLIGHT"] = str(FOLDER / "flights")
    print(f"fuzz: from seed {options.first} on", flush=True)
    for n in filter(None, options.ranks.split(",")):
        if not all(programs(int(n), options, kind) for kind in ("", "planted")):
            return 1
        if not host_programs(int(n), options):
            return 1
    if not mesh_programs(options):
        return 1
    targets, reason = libfuzzer()
    if targets is None:
        print(f"fuzz: no targets in C: {reason}")
    return 0 if all(target(t, options.seconds) for t in targets or ()) else 1


if __name__ == "__main__":
    sys.exit(main())
