"""The findings of `plait doctor`: one for each thing that it looked at."""

import dataclasses
from collections.abc import Iterable

OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"
MARK = "plait-selftest "  # starts the line with the figures of the self-test
_SEVERITY, _SUBJECT = len(WARNING), len("flight recorder")
_MARGIN = " " * (_SEVERITY + _SUBJECT + 4)


@dataclasses.dataclass(frozen=True)
class Finding:
    """How bad it is, what it is about, what was seen, and how to fix it."""

    severity: str
    subject: str
    seen: str
    mend: str = ""


def lines(findings: Iterable[Finding]) -> list[str]:
    """The findings as text, with the remedies on lines of their own."""
    out = []
    for f in findings:
        seen = f.seen.replace("\n", "\n" + _MARGIN)
        out.append(f"{f.severity:<{_SEVERITY}}  {f.subject:<{_SUBJECT}}  {seen}")
        out += [f"{_MARGIN}-> {line}" for line in f.mend.splitlines()]
    return out


def verdict(findings: Iterable[Finding]) -> str:
    """The last line: the number of findings of each kind that matters."""
    severities = [f.severity for f in findings]
    n_errors, n_warnings = severities.count(ERROR), severities.count(WARNING)
    if not n_errors and not n_warnings:
        return "nothing to mend"

    def count(n: int, word: str) -> str:
        return f"{n} {word}{'' if n == 1 else 's'}"

    return f"{count(n_errors, 'error')}, {count(n_warnings, 'warning')}"
