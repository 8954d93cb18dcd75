"""The pages of the C library's functions: docs/headers/*.md, for make_reference.py.

The texts are the comments of include/plait/*.h: a page for each header, and an index of all
functions.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import check_headers

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "plait"
PAGES = ROOT / "docs" / "headers"
# By purpose; the functions that every program needs come first.
ORDER = (
    *("status", "comm", "coll", "dtype", "reduce"),
    *("layout", "plan", "redist", "fft", "halo", "dense", "cuda", "config", "version"),
)
LABELS = [word.rstrip(":") for word in check_headers.WORDS]


def plain(comment: str) -> str:
    """The text of a comment, without its stars."""
    inside = comment.strip().removeprefix("/*").removeprefix("*").removesuffix("*/")
    lines = [re.sub(r"^ ?\* {0,2}" if n else "^ ", "", s) for n, s in enumerate(inside.split("\n"))]
    return "\n".join(line.rstrip() for line in lines).strip()


def paragraphs(comment: str) -> str:
    """A header's first comment as Markdown; text in columns stays so."""
    inside = "\n".join(re.sub(r"^ \* ?", "", line) for line in comment.split("\n"))
    text = inside.strip().removeprefix("/*").removesuffix("*/").strip()
    parts = []
    for part in re.split(r"\n\n", text):
        is_table = any(line.startswith("  ") for line in part.split("\n"))
        parts.append(f"```\n{part.rstrip()}\n```" if is_table else part)
    return "\n\n".join(parts)


class Header:
    """A header in parts: its purpose, and its declarations in order."""

    def __init__(self, name: str):
        self.name = name
        text = (HEADERS / f"{name}.h").read_text()
        first, _, rest = text.partition("*/\n")
        body = re.search(r'extern "C" \{\n#endif\n(.*)\n#ifdef __cplusplus', rest, re.DOTALL)
        if body is None:
            raise SystemExit(f"{name}.h: no place where its declarations begin and end")
        self.doc = paragraphs(first + "*/")
        # Nobody needs to know how symbols are exported.
        declared = re.sub(r"\n#if defined\(__GNUC__\).*?#endif\n", "", body[1], flags=re.DOTALL)
        self.parts = re.split(r"\n\n+(?=\S)", declared.strip())

    def functions(self) -> Iterator[tuple[str, str]]:
        """Function names, with one sentence on each."""
        for part in self.parts:
            found = check_headers.DECLARATION.match(part)
            if found:
                yield found["name"], sentence(described(part)[0])

    def page(self) -> str:
        """The page of the header."""
        lines = [f"# plait/{self.name}.h", "", linked(self.doc), ""]
        for part in self.parts:
            found = check_headers.DECLARATION.match(part)
            lines += function(found["name"], part) if found else ["```c", part, "```", ""]
        return "\n".join(lines) + "\n[All headers](README.md)\n"


def labelled(doc: str, labels: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The text before the first "Label:", and the text after each label that is there."""
    found = list(re.finditer(rf"(?:^|(?<=  ))({'|'.join(labels)}):", doc, re.MULTILINE))
    starts = [match.start() for match in found] + [len(doc)]
    parts = {m[1]: doc[m.end() : end] for m, end in zip(found, starts[1:], strict=True)}
    return doc[: starts[0]].strip(), parts


def described(part: str) -> tuple[str, dict[str, str]]:
    """What a function does, and the labelled lines after it."""
    text, facts = labelled(plain(part[: part.index("*/") + 2]), LABELS)
    return text, {label: " ".join(fact.split()) for label, fact in facts.items()}


def sentence(text: str) -> str:
    """The first sentence of a text."""
    return re.split(r"(?<!e\.g)\.\s+(?=[A-Z])", " ".join(text.split()))[0].rstrip(".")


def function(name: str, part: str) -> list[str]:
    """The section of a function."""
    text, facts = described(part)
    declared = part[part.index("*/") + 2 :].strip().replace("PLAIT_EXPORT", "", 1).lstrip()
    if "(" in declared.split("\n")[0]:
        declared = re.sub(r"\n {13}", "\n", declared)  # length of PLAIT_EXPORT and a blank
    rows = [f"| **{label}** | {linked(cell(fact))} |" for label, fact in facts.items()]
    return [
        *(f"## {name}", "", "```c", declared, "```", ""),
        *(linked(text, name), "", "| | |", "|---|---|", *rows, ""),
    ]


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return text.rstrip(".").replace("|", "\\|")


@functools.cache
def homes() -> dict[str, str]:
    """The header that declares each function."""
    return {
        found["name"]: name
        for name in ORDER
        for found in check_headers.DECLARATION.finditer((HEADERS / f"{name}.h").read_text())
    }


def linked(text: str, own: str = "") -> str:
    """The same text, with functions' names linked to their descriptions."""
    where = homes()

    def link(match: re.Match) -> str:
        name = match[0]
        is_other = name in where and name != own
        return f"[`{name}`]({where[name]}.md#{name})" if is_other else f"`{name}`"

    blocks = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    return "".join(
        block
        if block.startswith("```")
        else re.sub(r"\*\w+_p\b|\b(?:plait_\w*[a-z0-9]|PLAIT_\w+)", link, block)
        for block in blocks
    )


def index(headers: list[Header]) -> str:
    """The index page of all functions, by header."""
    lines = ["# The C library's functions", "", "Written by `make docs` from `include/plait/*.h`."]
    lines += ["How programs are built and what plans are: [The C library](../c.md).", ""]
    for header in headers:
        first = " ".join(header.doc.split("\n\n")[0].split())
        lines += [f"## [plait/{header.name}.h]({header.name}.md)", "", linked(first), ""]
        lines += ["| function | |", "|---|---|"]
        for name, what in header.functions():
            lines.append(f"| [`{name}`]({header.name}.md#{name}) | {linked(cell(what), name)} |")
        lines.append("")
    return "\n".join(lines)


def everything() -> dict[str, str]:
    """Names and texts of all pages."""
    there = {path.stem for path in HEADERS.glob("*.h")}
    if there != set(ORDER):
        raise SystemExit(f"headers without a place in the index: {sorted(there ^ set(ORDER))}")
    headers = [Header(name) for name in ORDER]
    return {f"{h.name}.md": h.page() for h in headers} | {"README.md": index(headers)}
