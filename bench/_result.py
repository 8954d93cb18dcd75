"""From records to rows: medians over the quiet rounds, bounds, verdicts, the printed table."""

import dataclasses
import statistics
from collections.abc import Callable

from _rounds import clean

C_REUSED = "C, reused buffers"
JAX_FRESH = "JAX, fresh results"
JAX_DONATED = "JAX, donated"

NOISY = 1.5  # times the fastest canary of the whole run: then a row is marked
OTHERS = 0.1  # cores that other programs keep busy beside a job: then its rows are marked
UNITS = (("s", 1), ("ms", 1e3), ("us", 1e6))


@dataclasses.dataclass(frozen=True)
class Bound:
    """What the issue asks for; `slack` is what a bound of 1.0 leaves to the noise."""

    sense: str
    value: float
    slack: float = 0.0

    def is_met(self, value):
        """Whether a value satisfies it."""
        if self.sense == "<=":
            return value <= self.value + self.slack
        return value >= self.value - self.slack


@dataclasses.dataclass
class Row:
    """A line of the table: plait beside its comparator."""

    group: str
    name: str
    way: str
    comparator: str
    plait_s: float | None = None
    comparator_s: float | None = None
    speed: float | None = None  # comparator's time / plait's: above 1 plait is faster
    judged: str = ""
    value: float | None = None
    bound: Bound | None = None
    verdict: str = ""
    note: str = ""
    n_clean: int = 0
    n_rounds: int = 0
    canary_s: float | None = None
    others: float | None = None  # cores that other programs kept busy beside the job
    is_noisy: bool = False
    is_doubtful: bool = False  # a value that cannot be

    def judge(self, judged, value):
        """Set the judged quantity, and the verdict if there is a bound."""
        self.judged, self.value = judged, value
        if self.bound is not None:
            self.verdict = "met" if self.bound.is_met(value) else "MISSED"
        return self


def absent(group, name, way, comparator, reason, bound=None):
    """A row that could not be measured; a failure of the run itself says so."""
    verdict = "FAILED" if reason.startswith("failed") else "absent"
    return Row(group, name, way, comparator, bound=bound, note=reason, verdict=verdict)


class Rounds:
    """A worker's record, reduced to its quiet rounds."""

    def __init__(self, record, wanted):
        canary = record["canary"]
        quiet = clean(canary)
        self.n_clean, self.n_rounds = len(quiet), len(canary)
        if len(quiet) < wanted:  # then the quietest, whatever they are
            quiet = sorted(range(len(canary)), key=canary.__getitem__)[:wanted]
        self.cases = {k: [times[i] for i in quiet] for k, times in record["cases"].items()}
        self.canary_s = statistics.median(canary[i] for i in quiet)
        self.facts = record["facts"]
        self.others = record.get("others")
        self.cores = record.get("cores", {})  # that rank 0 kept busy, in the middle

    def median(self, value: Callable | str):
        """The median of a case's times, or of a function of one round's times."""
        rows = zip(*self.cases.values(), strict=True)
        rounds = [dict(zip(self.cases, times, strict=True)) for times in rows]
        return statistics.median(r[value] if isinstance(value, str) else value(r) for r in rounds)

    def row(self, group, name, way, ours, theirs, comparator, bound=None):
        """A row with the times of two cases, and how they compare."""
        row = Row(group, name, way, comparator, bound=bound)
        row.plait_s, row.comparator_s = self.median(ours), self.median(theirs)
        row.speed = self.median(lambda r: r[theirs] / r[ours])
        row.n_clean, row.n_rounds, row.canary_s = self.n_clean, self.n_rounds, self.canary_s
        row.others = self.others
        return row


def mark_noise(rows, wanted):
    """Mark the rows with too few clean rounds, slow ones, or with other programs beside them.

    Slow is what took longer than in the run's quiet moments. Other programs may leave memcpy
    alone, and take a core.
    """
    fastest = min((row.canary_s for row in rows if row.canary_s), default=0)
    for row in rows:
        if row.canary_s is not None:
            row.is_noisy = row.n_clean < wanted or row.canary_s > NOISY * fastest
        row.is_noisy |= (row.others or 0) > OTHERS


def duration(seconds):
    """A time for people, three digits."""
    if seconds is None:
        return "-"
    unit, scale = next((u for u in UNITS if seconds * u[1] >= 1), UNITS[-1])
    value = seconds * scale
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def _cells(row):
    speed = "-" if row.speed is None else f"{row.speed:.2f}x"
    bound = "" if row.bound is None else f"{row.bound.sense} {row.bound.value:g}"
    is_doubtful = (row.is_noisy or row.is_doubtful) and row.verdict in ("", "met", "MISSED")
    rounds = f"{row.n_clean}/{row.n_rounds}" if row.n_rounds else ""
    times = [duration(row.plait_s), duration(row.comparator_s), speed]
    verdict = row.verdict + ("?" if is_doubtful else "")
    return [row.name, row.way, *times, row.judged, bound, verdict, rounds, row.comparator]


HEADS = ["", "", "plait", "other", "speed", "judged", "bound", "", "clean", "other is"]
RIGHT = {2, 3, 4, 8}


def table(rows):
    """The rows as text, a block a group, with the notes of a row under it."""
    lines = [HEADS, *map(_cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]

    def aligned(cells):
        padded = [
            c.rjust(w) if i in RIGHT else c.ljust(w)
            for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    text, group = [aligned(HEADS)], None
    for row, cells in zip(rows, lines[1:], strict=True):
        if row.group != group:
            group = row.group
            text += ["", group]
        text.append(aligned(cells))
        if row.note:
            text.append("    " + row.note)
    return "\n".join(text)
