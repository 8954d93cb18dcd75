"""One-dimensional transforms in the second-level cache, on one core, beside FFTW."""

import math
import statistics

from _jobs import Absent
from _result import C_REUSED, Bound, Rounds, Row, absent

N = {False: 1024, True: 64}  # longest length; quick or not
LIMIT_S = 0.6  # for each of many lengths
COMPARATOR = "FFTW on one core, MEASURE"
WAYS = ("columns", "rows", "packed rows")
LEAST = {("columns", "c128"): 1.3, ("rows", "c128"): 0.9, ("packed rows", "c128"): 0.9}
DIFFERENCE = {"c128": 1e-14, "c64": 1e-5}


def _group(jobs):
    return f"1-D FFT in cache, one core, n = 2...{N[jobs.scale.is_quick]} of factors 2, 3, 5, 7"


def _bound(way, dtype):
    least = LEAST.get((way, dtype))
    return None if least is None else Bound(">=", least)


def _rows(jobs, way, dtype, records):
    """The geometric mean over the lengths, and the slowest length."""
    of_length = {}
    for record in records:
        rounds = Rounds(record, jobs.scale.n_rounds)
        ours, theirs = f"plait {way}", f"fftw {way}"
        comparator = f"{COMPARATOR}, {rounds.facts['fftw']}"
        row = rounds.row(_group(jobs), f"{way}, {dtype}", C_REUSED, ours, theirs, comparator)
        row.note = f"{rounds.facts['n_columns']} {way}, {_gflops(rounds, ours):.1f} GF/s, "
        row.note += f"FFTW {_gflops(rounds, theirs):.1f}; plait's vectors: {rounds.facts['isa']}"
        of_length[rounds.facts["n"]] = row
    worst = min(of_length, key=lambda n: of_length[n].speed)
    slowest = of_length[worst]
    slowest.name += f", worst: n = {worst}"
    slowest.judge(f"{slowest.speed:.2f}x", slowest.speed)
    return [_mean(jobs, way, dtype, of_length), slowest]


def _mean(jobs, way, dtype, of_length):
    rows, some = list(of_length.values()), next(iter(of_length.values()))
    row = Row(_group(jobs), f"{way}, {dtype}, geometric mean", C_REUSED, some.comparator)
    row.bound = _bound(way, dtype)
    row.speed = math.exp(statistics.fmean(math.log(r.speed) for r in rows))
    row.n_clean = statistics.median_low(r.n_clean for r in rows)
    row.n_rounds = statistics.median_low(r.n_rounds for r in rows)
    row.canary_s = statistics.median(r.canary_s for r in rows)
    row.others = some.others
    slower = [n for n, r in of_length.items() if r.speed < 1]
    row.note = f"{len(rows)} lengths; slower than FFTW at {', '.join(map(str, slower)) or 'none'}"
    return row.judge(f"{row.speed:.2f}x", row.speed)


def _gflops(rounds, case):
    n, n_columns = rounds.facts["n"], rounds.facts["n_columns"]
    return 5e-9 * n * math.log2(n) * n_columns / rounds.median(case)


def _of(jobs, dtype):
    try:
        records = jobs.kernels(f"fft1-{dtype}", N[jobs.scale.is_quick], LIMIT_S)
    except (Absent, RuntimeError) as error:
        return [
            absent(_group(jobs), f"{way}, {dtype}", C_REUSED, COMPARATOR, str(error),
                   _bound(way, dtype))
            for way in WAYS
        ]  # fmt: skip
    wrong = [r["facts"] for r in records if not r["facts"]["difference"] < DIFFERENCE[dtype]]
    if wrong:
        reason = f"failed: results differ by {wrong[0]['difference']} at n = {wrong[0]['n']}"
        return [absent(_group(jobs), dtype, C_REUSED, COMPARATOR, reason)]
    return [row for way in WAYS for row in _rows(jobs, way, dtype, records)]


def measure(jobs):
    """The rows of this group."""
    return [row for dtype in ("c128", "c64") for row in _of(jobs, dtype)]
