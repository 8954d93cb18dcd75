"""The C library's dense operations beside ScaLAPACK, LAPACK and ELPA, on the same BLAS."""

import os
import statistics
from pathlib import Path

from _jobs import ROOT, Absent, any_mpi, cpu_name, debian_openmpi, with_setup
from _result import C_REUSED, Bound, Rounds, Row, absent

RANKS, THREADS = "dense, f64, 2 MPI ranks", "dense, f64, 2 threads of one process"
SOURCES = (
    "dense_sides",
    "dense_plait",
    "dense_lapack",
    "dense_scratch",
    "check_dense",
    "matrix",
    "rounds",
)
BLAS = ("-l:libopenblas.so.0", "-ldl", "-lpthread", "-lm")
ELPA_HEADERS = "-I/usr/include/elpa"
NAMES = {"scalapack": "ScaLAPACK", "lapack": "LAPACK, one process", "elpa": "ELPA, one stage"}

SMALL = (256, 1000)
SIZES = {
    False: {
        "potrf": (*SMALL, 2048, 4096, 8192),
        "potri": (4000,),
        "getrf": (4000,),
        "geqrf": (4000,),
        "syevd": (2000,),
    },
    True: {
        "potrf": (*SMALL, 2048),
        "potri": (1000,),
        "getrf": (1000,),
        "geqrf": (1000,),
        "syevd": (600,),
    },
}
SIZES_OF_THREADS = {False: (*SMALL, 4096), True: (*SMALL, 2048)}
# The comparator's time divided by plait's, at least.
BOUNDS = {
    ("potrf", "scalapack"): Bound(">=", 1.1),
    ("potrf", "lapack"): Bound(">=", 0.95),
    ("potri", "scalapack"): Bound(">=", 1.0, 0.03),
    ("getrf", "scalapack"): Bound(">=", 1.0, 0.03),
    ("geqrf", "scalapack"): Bound(">=", 1.0, 0.03),
    ("syevd", "scalapack"): Bound(">=", 1.0, 0.03),
}
SMALL_LIMIT = Bound("<=", 1.5)  # times LAPACK's
FLOPS = {"potrf": 1 / 3, "potri": 2 / 3, "getrf": 2 / 3, "geqrf": 4 / 3}  # n^3
ROUNDINGS = 10  # times n, relative

N_RELAYOUT = {False: 8192, True: 2048}
WAYS = ("columns to blocks", "blocks to columns", "rows to blocks", "blocks to rows")
NAMES_OF_WAYS = {  # names in bench/c/relayout.c
    "relayout": {way: way for way in WAYS},
    "turn": {way: f"row-major {way}" for way in WAYS},
}
RELAYOUT_LIMIT = 2.0  # memcpys

N_PLANS = {False: 8192, True: 2048}
# Memory beyond operand and result: whole matrices, and panels of a block column's size.
MEMORY = {"potrf": (0, 2), "getrf": (0, 2), "geqrf": (0, 2), "potri": (1, 2), "syevd": (2, 2)}


# ---- programs --------------------------------------------------------------------------------


def _compile(jobs, compiler, name, sources, flags, libraries):
    flags = (f"-I{ROOT / 'src'}", *flags)
    return jobs.linked(compiler, name, (*sources, *SOURCES), flags, (*libraries, *BLAS))


def _program_of_ranks(jobs):
    """The program with what exists of ScaLAPACK and ELPA, its launcher, what is missing."""
    compiler, launcher = debian_openmpi()
    missing = {}
    scalapack, elpa = ("-DBENCH_SCALAPACK",), ("-DBENCH_ELPA", ELPA_HEADERS)
    ways = (
        ("elpa", ("dense_scalapack", "dense_elpa"), scalapack + elpa, ("-lelpa",)),
        ("scalapack", ("dense_scalapack",), scalapack, ()),
    )
    for name, sources, flags, libraries in ways:
        try:
            libraries = (*libraries, "-lscalapack-openmpi")
            path = _compile(jobs, compiler, f"dense-{name}", ("dense", *sources), flags, libraries)
        except Absent as error:
            missing[name] = with_setup(error)
        else:
            return path, launcher, missing
    return _compile(jobs, compiler, "dense", ("dense",), (), ()), launcher, missing


def _program_of_threads(jobs):
    compiler = os.environ.get("CC", "cc")
    return _compile(jobs, compiler, "dense_threads", ("dense_threads",), (), ())


# ---- operations ------------------------------------------------------------------------------


def _bound(op, side, n):
    if op == "potrf" and n in SMALL:
        return SMALL_LIMIT if side == "lapack" else None
    return BOUNDS.get((op, side))


def _described(side, facts):
    """A comparator, with its settings."""
    chosen = facts[side]
    how = f"grid {chosen['grid']}, block {chosen['block']}"
    if side == "lapack":
        how = f"BLAS threads: {chosen['n_threads']}"
    return f"{NAMES[side]}, {how}"


def _note(op, n, rounds, side):
    facts = rounds.facts
    parts = [f"block {facts['plait']['block']}"]
    if op in FLOPS:
        rates = [1e-9 * FLOPS[op] * n**3 / rounds.median(case) for case in ("plait", side)]
        parts.append(f"{rates[0]:.1f} GF/s, other {rates[1]:.1f}")
    errors = [facts[case]["residual"] for case in ("plait", side)]
    parts.append(f"residual {errors[0]:.1e}, other {errors[1]:.1e}")
    if side == "scalapack" or "scalapack" not in facts:  # the first one says what all share
        parts.append(f"BLAS of all {Path(facts['blas']).name} {facts['core']} on {cpu_name()}")
        parts.append(f"peers' memory {facts['direct']}")
    return ", ".join(parts)


def _fault(n, side, facts):
    """What makes the times useless, or ""."""
    limit = ROUNDINGS * n * 2.0**-52
    wrong = [s for s in ("plait", side) if not facts[s]["residual"] < limit]
    if wrong:
        return f"failed: the residual of {' and '.join(wrong)} is above {limit:.1e}"
    if (facts["blas"], facts["core"]) != (facts["plait_blas"], facts["plait_core"]):
        return f"failed: BLAS is {facts['blas']}, that of plait {facts['plait_blas']}"
    return ""


def _row(group, op, n, rounds, side):
    facts, bound = rounds.facts, _bound(op, side, n)
    name, comparator = f"{op} {n}", _described(side, facts)
    fault = _fault(n, side, facts)
    if fault:
        return absent(group, name, C_REUSED, comparator, fault, bound)
    row = rounds.row(group, name, C_REUSED, "plait", side, comparator, bound)
    row.note = _note(op, n, rounds, side)
    if bound is SMALL_LIMIT:
        times = 1 / row.speed
        return row.judge(f"{times:.2f} of its time", times)
    return row.judge(f"{row.speed:.2f}x", row.speed)


def _rows(jobs, group, op, n, sides, run):
    """A row for each comparator; run gives the record, and what is missing and why."""
    try:
        record, missing = run()
    except (Absent, RuntimeError) as error:
        reason = str(error)
        return [
            absent(group, f"{op} {n}", C_REUSED, NAMES[side], reason, _bound(op, side, n))
            for side in sides
        ]
    rounds, rows = Rounds(record, jobs.scale.n_rounds), []
    for side in sides:
        if side in rounds.cases:
            rows.append(_row(group, op, n, rounds, side))
        else:
            row = absent(group, f"{op} {n}", C_REUSED, NAMES[side], missing[side])
            row.bound, row.plait_s = _bound(op, side, n), rounds.median("plait")
            rows.append(row)
    return rows


def _of_ranks(jobs, op, n):
    def run():
        program, launcher, missing = _program_of_ranks(jobs)
        [record] = jobs.ranks(program, launcher, op, n)
        return record, missing

    sides = ("scalapack", "lapack", "elpa") if op == "syevd" else ("scalapack", "lapack")
    return _rows(jobs, RANKS, op, n, sides, run)


def _of_threads(jobs, op, n):
    def run():
        [record] = jobs.threads(_program_of_threads(jobs), op, n)
        return record, {}

    return _rows(jobs, THREADS, op, n, ("lapack",), run)


# ---- relayout --------------------------------------------------------------------------------


def _relayout(jobs, where, op="relayout"):
    n = N_RELAYOUT[jobs.scale.is_quick]
    group = f"relayout, {n}^2 f64, block columns dealt out"
    comparator = "memcpy of the local data, by the same ranks at once"
    names, bound = NAMES_OF_WAYS[op], Bound("<=", RELAYOUT_LIMIT)
    try:
        record = _relayout_record(jobs, where, op, n)
    except (Absent, RuntimeError) as error:
        return [
            absent(group, f"{name}, {where}", C_REUSED, comparator, str(error), bound)
            for name in names.values()
        ]
    rounds = Rounds(record, jobs.scale.n_rounds)
    return [
        _relayout_row(rounds, group, case, f"{name}, {where}", comparator, bound)
        for case, name in names.items()
    ]


def _relayout_record(jobs, where, op, n):
    sources = ("relayout", "rounds")
    if where == "2 threads":
        compiler = os.environ.get("CC", "cc")
        program = jobs.linked(compiler, "relayout", sources, (), ("-lpthread",))
        return jobs.threads(program, op, n)[0]
    compiler, launcher = any_mpi(jobs)
    flags = ("-DBENCH_MPI",)
    program = jobs.linked(compiler, "relayout-ranks", sources, flags, ("-lpthread",))
    return jobs.ranks(program, launcher, op, n)[0]


def _relayout_row(rounds, group, case, name, comparator, bound):
    row = rounds.row(group, name, C_REUSED, case, "memcpy", comparator, bound)
    value = rounds.median(lambda r: r[case] / r["memcpy"])
    row.note = f"blocks of {rounds.facts['block']}, peers' memory {rounds.facts['direct']}"
    return row.judge(f"{value:.2f} memcpys", value)


# ---- plans -----------------------------------------------------------------------------------


def _plans(jobs):
    n = N_PLANS[jobs.scale.is_quick]
    group = f"plans of dense operations, {n}^2 f64, 2 MPI ranks"
    try:
        program, launcher, _ = _program_of_ranks(jobs)
        records = jobs.ranks(program, launcher, "plan", n)
    except (Absent, RuntimeError) as error:
        return [absent(group, "time and memory", C_REUSED, "", str(error))]
    time = Row(group, "time of potrf, the first one", C_REUSED, "")
    seconds = {r["name"]: r["plan_s"] for r in records}
    time.plait_s = seconds["potrf"][0]
    time.note = "first and median of the others: " + ", ".join(
        f"{op} {1e3 * s[0]:.2f} ms {1e3 * statistics.median(s[1:]):.2f} ms"
        for op, s in seconds.items()
    )
    time.judge(f"{1e3 * time.plait_s:.2f} ms", 1e3 * time.plait_s)
    return [time, *(_memory(group, r["name"], r["facts"]) for r in records)]


def _memory(group, op, facts):
    """Matrices are counted in parts of this rank, panels in block columns."""
    matrices, panels = MEMORY[op]
    unit = facts["local_bytes"] if matrices else facts["panel_bytes"]
    name = f"memory of {op}, besides operand and result"
    row = Row(group, name, C_REUSED, "local matrix" if matrices else "block column")
    slack = panels * facts["panel_bytes"] / unit if matrices else 0.0
    row.bound = Bound("<=", matrices or panels, slack)
    value = facts["extra_bytes"] / unit
    row.note = f"{facts['extra_bytes'] / 2**20:.1f} MiB, blocks of {facts['block']}"
    row.note += f", local matrix {facts['local_bytes'] / 2**20:.0f} MiB"
    if matrices:
        row.note += f"; {panels} panels more are free"
    return row.judge(f"{value:.2f} {'matrices' if matrices else 'panels'}", value)


def measure(jobs):
    """The rows of this group."""
    is_quick = jobs.scale.is_quick
    problems = [(op, n) for op, sizes in SIZES[is_quick].items() for n in sizes]
    rows = [row for op, n in problems for row in _of_ranks(jobs, op, n)]
    rows += [row for n in SIZES_OF_THREADS[is_quick] for row in _of_threads(jobs, "potrf", n)]
    for op in NAMES_OF_WAYS:
        for where in ("2 threads", "2 MPI ranks"):
            rows += _relayout(jobs, where, op)
    return rows + _plans(jobs)
