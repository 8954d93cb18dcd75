"""The C library's FFT beside FFTW, and what planning costs."""

import math
import os
import statistics

from _jobs import Absent, any_mpi, debian_openmpi, with_setup
from _result import C_REUSED, Bound, Rounds, Row, absent

RANKS, THREADS = "FFT n^3, 2 MPI ranks", "FFT n^3, 2 threads"
WAYS = {"fft": ("transposed", "natural"), "rfft": ("transposed",)}
# FFTW-MPI's time divided by plait's, at least.
BOUNDS = {
    ("fft", "transposed"): {384: 2.3, 256: 2.3, 128: 1.35, 64: 1.0},
    ("fft", "natural"): {384: 3.0, 256: 3.0, 128: 1.35, 64: 1.0},
    ("rfft", "transposed"): {256: 2.0},
}
N_REAL = (256, 128)
DIFFERENCE = {False: 1e-13, True: 1e-5}
PLAN_LIMIT_MS = 10.0
BUFFERS = 1.03  # in local sizes: one buffer, whose rows may be padded


def _bound(op, way, n):
    least = BOUNDS[op, way].get(n)
    return None if least is None else Bound(">=", least, 0.03 if least == 1.0 else 0.0)


def _name(op, n, is_single):
    kinds = {"fft": ("c128", "c64"), "rfft": ("f64", "f32")}
    return f"{n}^3 {kinds[op][is_single]}"


def _program_of_ranks(jobs, is_single):
    """The program with FFTW-MPI, or without and why not; and how to start it."""
    try:
        compiler, launcher = debian_openmpi()
        program = jobs.c_program(compiler, "fft", is_single, ("_mpi", ""))
        return program, launcher, ""
    except Absent as error:
        compiler, launcher = any_mpi(jobs)
        return jobs.c_program(compiler, "fft", is_single), launcher, with_setup(error)


def _of_ranks(jobs, op, n, is_single):
    """A row for each layout of the result."""
    name, comparator = _name(op, n, is_single), "FFTW-MPI, MEASURE"
    try:
        program, launcher, missing = _program_of_ranks(jobs, is_single)
        [record] = jobs.ranks(program, launcher, op, n)
    except (Absent, RuntimeError) as error:
        return [
            absent(RANKS, f"{name}, {way}", C_REUSED, comparator, str(error), _bound(op, way, n))
            for way in WAYS[op]
        ]
    rounds = Rounds(record, jobs.scale.n_rounds)
    return [_row_of_ranks(rounds, op, n, is_single, way, missing) for way in WAYS[op]]


def _row_of_ranks(rounds, op, n, is_single, way, missing):
    facts, ours = rounds.facts, f"plait {way}"
    title, bound = f"{_name(op, n, is_single)}, {way}", _bound(op, way, n)
    if missing:
        return _alone(rounds, RANKS, title, ours, f"FFTW-MPI, MEASURE, {way}", missing, bound)
    theirs, fftw = f"fftw {way}", facts[way]
    place = ", in place" if fftw["is_in_place"] else ""
    comparator = f"FFTW-MPI, MEASURE, {way}{place}, {facts['fftw']}"
    row = rounds.row(RANKS, title, C_REUSED, ours, theirs, comparator, bound)
    row.note = _note(rounds, ours, n, op == "rfft", fftw["plan_s"])
    return _judged(rounds, row, ours, fftw["difference"], is_single)


def _of_threads(jobs, n, is_single):
    name, comparator = _name("fft", n, is_single), "FFTW with 2 threads, MEASURE"
    compiler, missing = os.environ.get("CC", "cc"), ""
    try:
        try:
            program = jobs.c_program(compiler, "threads", is_single, ("_threads", ""))
        except Absent as error:
            program = jobs.c_program(compiler, "threads", is_single)
            missing = with_setup(error)
        [record] = jobs.threads(program, "fft", n)
    except (Absent, RuntimeError) as error:
        return absent(THREADS, name, C_REUSED, comparator, str(error))
    rounds = Rounds(record, jobs.scale.n_rounds)
    if missing:
        return _alone(rounds, THREADS, name, "plait", comparator, missing, None)
    comparator = f"{comparator}, {rounds.facts['fftw']}"
    row = rounds.row(THREADS, name, C_REUSED, "plait", "fftw", comparator)
    row.note = _note(rounds, "plait", n, False, rounds.facts["fftw_plan_s"])
    return _judged(rounds, row, "plait", rounds.facts["difference"], is_single)


def _judged(rounds, row, ours, difference, is_single):
    if not difference < DIFFERENCE[is_single]:
        row.verdict, row.note = "FAILED", f"results differ by {difference}"
        return row
    copies = rounds.median(lambda r: r[ours] / r["memcpy"])
    return row.judge(f"{row.speed:.2f}x, {copies:.1f} memcpys", row.speed)


def _alone(rounds, group, name, ours, comparator, missing, bound):
    """Plait's figure if FFTW is missing."""
    row = rounds.row(group, name, C_REUSED, ours, "memcpy", comparator, bound)
    row.judged = f"{1 / row.speed:.1f} memcpys"
    row.comparator_s = row.speed = None
    row.verdict, row.note = "absent", missing
    return row


def _note(rounds, ours, n, is_real, fftw_plan_s):
    flops = (2.5 if is_real else 5.0) * n**3 * 3 * math.log2(n)
    text = f"{1e-9 * flops / rounds.median(ours):.1f} GF/s, planned in "
    text += f"{_ms(rounds.facts['plan_s'])} (FFTW {fftw_plan_s:.2g} s)"
    return f"{text}, peers' memory {rounds.facts['direct']}"


def _ms(seconds):
    return f"{1e3 * seconds:.2f} ms"


def _planning(jobs):
    """Time and memory of plans, made without data."""
    group = "plans of an FFT, any size to 1024^3, 2 ranks"
    try:
        program = jobs.c_program(os.environ.get("CC", "cc"), "threads", False)
        records = jobs.threads(program, "plan", 0)
    except (Absent, RuntimeError) as error:
        limit = Bound("<=", PLAN_LIMIT_MS)
        return [absent(group, "time and memory", C_REUSED, "", str(error), limit)]
    time = Row(group, "time, worst of the shapes", C_REUSED, "")
    longest = max(records, key=lambda r: _worst(r["plan_s"]))
    time.bound, time.plait_s = Bound("<=", PLAN_LIMIT_MS), _worst(longest["plan_s"])
    time.comparator_s, time.comparator = _fftw_planning(jobs)
    time.note = f"{longest['name']} {longest['shape']}; fft, first and median of the others: "
    time.note += ", ".join(
        f"{r['shape']} {_ms(r['plan_s'][0])} {_ms(statistics.median(r['plan_s'][1:]))}"
        for r in records
        if r["name"] == "fft"
    )
    time.judge(_ms(time.plait_s), 1e3 * time.plait_s)
    return [
        time,
        *(_memory(group, records, op) for op in dict.fromkeys(r["name"] for r in records)),
    ]


def _memory(group, records, op):
    costs = {r["shape"]: r["facts"] for r in records if r["name"] == op}
    parts = {shape: c["work_bytes"] / c["local_bytes"] for shape, c in costs.items()}
    buffers = max(parts.values())
    row = Row(group, f"work memory of {op}, most of the shapes", C_REUSED, "the local data")
    row.bound = Bound("<=", BUFFERS)
    scratch = max(c["scratch_bytes"] for c in costs.values())
    row.note = ", ".join(f"{shape} {part:.3f}" for shape, part in parts.items())
    row.note += f"; and at most {scratch / 2**20:.2g} MiB of scratch in cache"
    return row.judge(f"{buffers:.3f} local buffers", buffers)


def _fftw_planning(jobs):
    """FFTW-MPI's planning time for the largest size of this run."""
    facts = [r["facts"] for r in jobs.records if "transposed" in r.get("facts", {})]
    if not facts:
        return None, "FFTW-MPI: absent"
    largest = max(facts, key=lambda f: (f["n"], f["transposed"]["plan_s"]))
    text = f"FFTW-MPI, MEASURE, {largest['n']}^3: {largest['fftw']}"
    return largest["transposed"]["plan_s"], text


def _worst(seconds):
    """The first plan of a shape, or the usual plan if that is slower."""
    return max(seconds[0], statistics.median(seconds))


def measure(jobs):
    """The rows of this group."""
    rows, precisions = [], (False, True)
    for n in jobs.scale.fft_sizes:
        rows += [row for single in precisions for row in _of_ranks(jobs, "fft", n, single)]
    for n in [n for n in N_REAL if n in jobs.scale.fft_sizes]:
        rows += [row for single in precisions for row in _of_ranks(jobs, "rfft", n, single)]
    rows += [_of_threads(jobs, n, single) for n in jobs.scale.sizes for single in precisions]
    return rows + _planning(jobs)
