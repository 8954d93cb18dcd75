"""Measure plait beside what one would take instead; `make bench` runs it.

run.py [--quick] [--only NAME ...] [--json FILE]

Prints a table and writes rows and times to build/bench/results.json. The exit code is 0 unless
a program failed; a bound that is missed is printed, not an error. README.md explains the rows.
"""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import jax
from _jobs import N_RANKS, QUICK, ROOT, Absent, Jobs, Scale, cpu_name
from _result import OTHERS, absent, mark_noise, table
from plait import cli
from rows import (
    bulk,
    calls,
    dense_c,
    dense_jax,
    fft1,
    fft_c,
    fft_jax,
    fft_peers,
    gpu,
    guard,
    halo,
    jax_own,
    latency,
    overlap,
    peers,
    redist,
)

GROUPS = {
    "latency": latency.measure,
    "calls": calls.measure,
    "bulk": bulk.measure,
    "overlap": overlap.measure,
    "guard": guard.measure,
    "peers": peers.measure,
    "jax_own": jax_own.measure,
    "redist": redist.measure,
    "halo": halo.measure,
    "fft1": fft1.measure,
    "fft_c": fft_c.measure,
    "fft_jax": fft_jax.measure,
    "fft_peers": fft_peers.measure,
    "dense_c": dense_c.measure,
    "dense_jax": dense_jax.measure,
    "gpu": gpu.measure,
}


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, small sizes")
    parser.add_argument("--only", choices=GROUPS, action="append", help="this group only")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "results.json")
    return parser.parse_args()


def machine():
    """The machine and versions that the figures belong to."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    described = ""
    if shutil.which("git"):
        described = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "plait": f"{cli.package_version()}, {described or 'no git'}",
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def measure(name, jobs):
    """The rows of a group; a failure becomes a row."""
    print(f"bench: {name}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    try:
        rows = GROUPS[name](jobs)
    except Absent as error:
        rows = [absent(name, "all rows", "", "", str(error))]
    except Exception as error:  # whatever the error, the other groups are measured
        traceback.print_exc()
        reason = f"failed: {type(error).__name__}: {str(error).removeprefix('failed: ')}"
        rows = [absent(name, "all rows", "", "", reason)]
    print(f"bench: {name} took {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return rows


def warnings(facts, rows, is_quick):
    """What a reader of the table must know about this run."""
    if is_quick:
        yield "quick run: few rounds and small sizes; verdicts are hints"
    if facts["cores"] < N_RANKS:
        yield f"{facts['cores']} core for {N_RANKS} ranks: nothing here can be judged"
    if facts["load"] > 0.5:
        yield f"the load was {facts['load']:.1f} at the start: other programs take part of the time"
    taken = max((row.others or 0 for row in rows), default=0)
    if taken > OTHERS:
        yield f"beside some rows other programs kept up to {taken:.1f} cores busy"


def summary(rows):
    """One line."""
    bounded = [row for row in rows if row.bound is not None]
    count = {v: sum(row.verdict == v for row in bounded) for v in ("met", "MISSED", "absent")}
    failed = sum(row.verdict == "FAILED" for row in rows)
    missed = [f"{row.group}: {row.name} ({row.way})" for row in rows if row.verdict == "MISSED"]
    text = f"{len(bounded)} bounds: {count['met']} met, {count['MISSED']} missed, "
    text += f"{count['absent']} absent; {failed} failed"
    return "\n".join([text, *(f"  missed  {name}" for name in missed)])


def store(path, facts, jobs, rows):
    """Everything so far, in place of what was stored before."""
    mark_noise(rows, jobs.scale.n_rounds)
    result = {
        "machine": facts,
        "is_quick": jobs.scale.is_quick,
        "rows": [dataclasses.asdict(row) for row in rows],
        "records": jobs.records,
    }
    whole = path.with_name(f"{path.name}.{os.getpid()}")
    whole.write_text(json.dumps(result, indent=1) + "\n")
    whole.replace(path)


def measure_all(names, jobs, keep):
    """The rows of the groups, stored after each group; and whether the run was completed."""
    rows, is_whole = [], False
    try:
        for name in names:
            rows += measure(name, jobs)
            keep(rows)
        is_whole = True
    except KeyboardInterrupt:
        keep(rows)
    return rows, is_whole


def main():
    """Run the groups, store, print."""
    options = parse()
    facts = machine() | {"load": os.getloadavg()[0]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    jobs = Jobs(ROOT / "build" / "bench", QUICK if options.quick else Scale())
    names = options.only or GROUPS
    rows, is_whole = measure_all(names, jobs, lambda rows: store(options.json, facts, jobs, rows))
    report(facts, rows, options.quick)
    if not is_whole:
        print("note: interrupted; what was measured before is above and in the file")
        return 128 + signal.SIGINT
    return int(any(row.verdict == "FAILED" for row in rows))


def report(facts, rows, is_quick):
    """Print everything."""
    print(", ".join(f"{k} {v}" for k, v in facts.items()))
    print(
        "speed: other's time / plait's, the median of interleaved rounds; above 1 plait is faster"
    )
    print("clean: rounds with a quiet memcpy canary, of all; ?: measured on a busy machine\n")
    print(table(rows) + "\n")
    for text in warnings(facts, rows, is_quick):
        print(f"note: {text}")
    print(summary(rows))


if __name__ == "__main__":
    sys.exit(main())
