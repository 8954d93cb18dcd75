"""From records to rows: medians over the quiet rounds, bounds, verdicts, the printed table."""

import dataclasses
import statistics
from collections.abc import Callable

from _rounds import clean

C_REUSED = "C, reused buffers"
JAX_FRESH = "JAX, fresh results"
JAX_DONATED = "JAX, donated"

NOISY = 1.5  # a row is marked if its canary took this many times the fastest of the run
OTHERS = 0.1  # rows are marked if other programs keep this many cores busy beside their job
UNITS = (("s", 1), ("ms", 1e3), ("us", 1e6))


@dataclasses.dataclass(frozen=True)
class Bound:
    """A bound from the issue; `slack` is what a bound of 1.0 leaves to the noise."""

    sense: str
    value: float
    slack: float = 0.0

    def is_met(self, value):
        """Whether a value satisfies the bound."""
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
    is_doubtful: bool = False  # an impossible value

    def judge(self, judged, value):
        """Set the judged quantity, and the verdict if there is a bound."""
        self.judged, self.value = judged, value
        if self.bound is not None:
            self.verdict = "met" if self.bound.is_met(value) else "MISSED"
        return self


def absent(group, name, way, comparator, reason, bound=None):
    """A row that could not be measured; says so if the run itself failed."""
    verdict = "FAILED" if reason.startswith("failed") else "absent"
    return Row(group, name, way, comparator, bound=bound, note=reason, verdict=verdict)


class Rounds:
    """A worker's record, reduced to its quiet rounds."""

    def __init__(self, record, wanted):
        canary = record["canary"]
        quiet = clean(canary)
        self.n_clean, self.n_rounds = len(quiet), len(canary)
        if len(quiet) < wanted:  # then the quietest rounds, however noisy
            quiet = sorted(range(len(canary)), key=canary.__getitem__)[:wanted]
        self.cases = {k: [times[i] for i in quiet] for k, times in record["cases"].items()}
        self.canary_s = statistics.median(canary[i] for i in quiet)
        self.facts = record["facts"]
        self.others = record.get("others")
        self.cores = record.get("cores", {})  # the median number of cores that rank 0 kept busy

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
    """Mark rows with too few clean rounds, with slow ones, or with other programs beside them.

    Slow means slower than in the run's quiet moments. Other programs may leave memcpy alone, and
    still take a core.
    """
    fastest = min((row.canary_s for row in rows if row.canary_s), default=0)
    for row in rows:
        if row.canary_s is not None:
            row.is_noisy = row.n_clean < wanted or row.canary_s > NOISY * fastest
        row.is_noisy |= (row.others or 0) > OTHERS


def duration(seconds):
    """A time in readable units, three digits."""
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
    """The rows as text, a block for each group, with notes below their rows."""
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
