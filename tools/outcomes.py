"""How the tests of a suite ended: counts and reports."""

import dataclasses
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN_LINES, SHOWN_IN_SHORT = 200, 15
# Lines of a log that say what failed: pytest's, with or without the rank, and the launcher's.
TELLING = re.compile(r"(\[\d+\] )?(E  +\w|Fatal|Timeout|plait run: |.*(Sanitizer|FAIL))")
WRONG = ("failed", "error")


@dataclasses.dataclass
class Count:
    """A suite's outcomes: "passed", "failed", "error" or "skipped" by test, and reasons."""

    outcomes: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    logs: list[Path] = dataclasses.field(default_factory=list)

    def add(self, name, outcome, note=None):
        """Record one test; the worst of several outcomes of one name counts."""
        order = ("skipped", "passed", *WRONG)
        known = self.outcomes.get(name, "skipped")
        self.outcomes[name] = max(known, outcome, key=order.index)
        if note and note not in self.notes:
            self.notes.append(note)

    def number(self, *kinds):
        """The number of tests with this outcome."""
        return sum(outcome in kinds for outcome in self.outcomes.values())


def read_junit(count, path, prefix=""):
    """Add the outcomes of a JUnit file of pytest or CTest; returns whether there was one."""
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return False
    for case in cases:
        name = prefix + "::".join(filter(None, (case.get("classname"), case.get("name"))))
        outcome, note = "passed", None
        for child in case:
            if child.tag in ("failure", "error"):
                outcome = "failed"
            elif child.tag == "skipped" and outcome == "passed":
                outcome, note = "skipped", f"{name}: {child.get('message', '')}"
        count.add(name, outcome, note)
    return True


def close(count, name, code, log):
    """Count one failure for a suite that ended badly without naming the failing test."""
    count.logs.append(log)
    if code != 0 and not count.number(*WRONG):
        ending = "did not end in time" if code is None else f"ended with {code}"
        count.add(f"{name} {ending}", "failed")


def show(count):
    """Print the last lines of a failed suite's output."""
    for log in dict.fromkeys(count.logs):
        lines = log.read_text(errors="replace").splitlines()
        telling = [line for line in lines if TELLING.match(line)]
        print(f"--- {log.relative_to(ROOT)}, in short")
        print("\n".join(dict.fromkeys(telling[:SHOWN_IN_SHORT] + telling[-SHOWN_IN_SHORT:])))
        print(f"--- {log.relative_to(ROOT)}, last {min(len(lines), SHOWN_LINES)} lines")
        print("\n".join(lines[-SHOWN_LINES:]))


def report(name, count, seconds, core_s):
    """Print how a suite ended."""
    n_wrong = count.number(*WRONG)
    print(
        f"{name:<14} {count.number('passed')} passed, {n_wrong} failed, "
        f"{count.number('skipped')} skipped in {seconds:.0f} s, {core_s:.0f} s of a core"
    )
    for note in count.notes:
        print(f"    {note}")
    for test, outcome in count.outcomes.items():
        if outcome in WRONG:
            print(f"    FAILED {test}")
    if n_wrong:
        show(count)
    sys.stdout.flush()
