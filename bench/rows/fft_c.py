"""The C library's FFT beside FFTW, and what planning costs."""

import math
import os
import statistics

from _jobs import Absent, any_mpi, debian_openmpi
from _result import C_REUSED, Bound, Rounds, Row, absent

GROUPS = {"ranks": "FFT n^3, 2 MPI ranks", "threads": "FFT n^3, 2 threads"}
OTHER = {
    "ranks": "FFTW-MPI, MEASURE, transposed output",
    "threads": "FFTW with 2 threads, MEASURE",
}
FFTW_PARTS = {"ranks": ("_mpi", ""), "threads": ("_threads", "")}
NOT_SLOWER = Bound(">=", 1.0, 0.03)
PLAN_LIMIT_MS = 10.0


def _programs(jobs, where, is_single):
    """The program with FFTW, or without and why; and how to start it."""
    missing = ""
    if where == "threads":
        compiler, launcher = os.environ.get("CC", "cc"), None
    else:
        try:
            compiler, launcher = debian_openmpi()
        except Absent as error:
            compiler, launcher = any_mpi(jobs)
            missing = str(error)
    if not missing:
        try:
            program = jobs.c_program(compiler, where, is_single, FFTW_PARTS[where])
            return program, launcher, ""
        except Absent as error:
            missing = f"{error}; see bench/setup"
    return jobs.c_program(compiler, where, is_single), launcher, missing


def _row(jobs, where, n, is_single):
    name = f"{n}^3 {'c64' if is_single else 'c128'}"
    is_bounded = where == "ranks" and not is_single and n == 256
    bound = NOT_SLOWER if is_bounded else None
    try:
        program, launcher, missing = _programs(jobs, where, is_single)
        run = jobs.threads if where == "threads" else jobs.ranks
        place = () if where == "threads" else (launcher,)
        record = run(program, *place, "fft", n)[0]
    except (Absent, RuntimeError) as error:
        return absent(GROUPS[where], name, C_REUSED, OTHER[where], str(error), bound)
    rounds = Rounds(record, jobs.scale.n_rounds)
    theirs = "memcpy" if missing else "fftw"
    row = rounds.row(GROUPS[where], name, C_REUSED, "plait", theirs, OTHER[where], bound)
    row.note = _note(rounds, n)
    if missing:
        row.judged = f"{row.plait_s / row.comparator_s:.1f} memcpys"
        row.comparator_s = row.speed = None
        row.verdict, row.note = "absent", f"{missing}; {row.note}"
        return row
    facts = rounds.facts
    place = ", in place" if facts["fftw_in_place"] else ""
    row.comparator = f"{OTHER[where]}{place}, {facts['fftw']}"
    if facts.get("difference", 0) > (1e-5 if is_single else 1e-13):
        row.verdict, row.note = "FAILED", f"results differ by {facts['difference']}"
        return row
    copies = rounds.median(lambda r: r["plait"] / r["memcpy"])
    return row.judge(f"{row.speed:.2f}x, {copies:.1f} memcpys", row.speed)


def _note(rounds, n):
    gflops = 5e-9 * n**3 * 3 * math.log2(n) / rounds.median("plait")
    text = f"{gflops:.1f} GF/s, planned in {_ms(rounds.facts['plan_s'])}"
    if "fftw_plan_s" in rounds.facts:
        text += f" (FFTW {rounds.facts['fftw_plan_s']:.2g} s)"
    return f"{text}, peers' memory {rounds.facts['direct']}"


def _ms(seconds):
    return f"{1e3 * seconds:.2f} ms"


def _planning(jobs):
    """Time and memory of plans, made without data."""
    group = "plans of an FFT, any size to 1024^3, 2 ranks"
    program = jobs.c_program(os.environ.get("CC", "cc"), "threads", False)
    records = jobs.threads(program, "plan", 0)
    longest = max(records, key=lambda r: _worst(r["plan_s"]))
    seconds = _worst(longest["plan_s"])
    time = Row(group, "time, worst of the shapes", C_REUSED, "")
    time.bound, time.plait_s = Bound("<=", PLAN_LIMIT_MS), seconds
    time.comparator_s, time.comparator = _fftw_planning(jobs)
    time.note = "first and median of the others: " + ", ".join(
        f"{r['name'][5:]} {_ms(r['plan_s'][0])} {_ms(statistics.median(r['plan_s'][1:]))}"
        for r in records
    )
    time.judge(_ms(seconds), 1e3 * seconds)
    buffers = max(r["facts"]["work_bytes"] / r["facts"]["local_bytes"] for r in records)
    memory = Row(group, "work memory, most of the shapes", C_REUSED, "the local data")
    memory.bound = Bound("<=", 1.0)
    scratch = max(r["facts"]["scratch_bytes"] for r in records)
    memory.note = f"and at most {scratch / 2**20:.2g} MiB of scratch in cache"
    return [time, memory.judge(f"{buffers:.3f} local buffers", buffers)]


def _fftw_planning(jobs):
    """FFTW's planning time for the largest size of this run."""
    facts = [r["facts"] for r in jobs.records if "fftw_plan_s" in r["facts"]]
    if not facts:
        return None, "FFTW: absent"
    largest = max(facts, key=lambda f: (f["n"], f["fftw_plan_s"]))
    return largest["fftw_plan_s"], f"FFTW, MEASURE, {largest['n']}^3: {largest['fftw']}"


def _worst(seconds):
    """The first plan of a shape, or the usual one if that is slower."""
    return max(seconds[0], statistics.median(seconds))


def measure(jobs):
    """The rows of this group."""
    rows = [
        _row(jobs, where, n, is_single)
        for where in GROUPS
        for n in jobs.scale.sizes
        for is_single in (False, True)
    ]
    return rows + _planning(jobs)
