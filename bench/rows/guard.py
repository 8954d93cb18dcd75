"""What the guard costs: plait with PLAIT_CHECK=first, its default, beside PLAIT_CHECK=off."""

from pathlib import Path

from _jobs import N_RANKS, Absent
from _result import JAX_FRESH, Bound, Rounds, absent
from plait import _core

CHECKS = ("off", "first", "first", "off")  # jobs in turns: one process has one setting
LIMIT_NS, LIMIT_US = 50.0, 50.0


def measure(jobs):
    """The rows of this group."""
    group = f"guard, {N_RANKS} MPI ranks"
    try:
        found = _jobs_in_turns(jobs)
    except (Absent, RuntimeError) as error:
        return [absent(group, "all rows", JAX_FRESH, "PLAIT_CHECK=off", str(error))]
    group += f", {found['first'][0].facts['mpi']}"
    return [
        _row(group, found, "8 B allreduce in a jitted fori_loop", "loop", 1e9, "ns", LIMIT_NS),
        _row(group, found, "first execution of a call site", "first", 1e6, "us", LIMIT_US),
    ]


def _jobs_in_turns(jobs):
    if b"PLAIT_CHECK" not in Path(_core.lib._name).resolve().read_bytes():
        raise Absent("this library does not read PLAIT_CHECK")
    arguments = {"raw": jobs.raw_mpi(), "loop": jobs.scale.n_loop}
    arguments["seconds"] = jobs.scale.limit_s / len(CHECKS)
    found = {check: [] for check in CHECKS}
    for check in CHECKS:
        [record] = jobs.worker("guard", arguments, N_RANKS, {"PLAIT_CHECK": check})
        found[check].append(Rounds(record, jobs.scale.n_rounds))
    return found


def _row(group, found, name, key, scale, unit, limit):
    """The quieter job of each setting; of the first execution, the time itself is judged."""
    first, off = found["first"], found["off"]
    row = first[0].row(group, name, JAX_FRESH, key, key, "PLAIT_CHECK=off", Bound("<=", limit))
    row.plait_s = min(rounds.median(key) for rounds in first)
    row.comparator_s = min(rounds.median(key) for rounds in off)
    row.speed = row.comparator_s / row.plait_s
    value = scale * (row.plait_s - row.comparator_s if key == "loop" else row.plait_s)
    row.note = "raw MPI in these jobs: " + ", ".join(
        f"{check} {rounds.median('raw') * 1e6:.3f} us"
        for check in ("first", "off")
        for rounds in found[check]
    )
    return row.judge(f"{value:+.1f} {unit}", value)
