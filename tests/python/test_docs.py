"""Names in backticks in the documentation exist: files, functions, settings, commands."""

import importlib
import pathlib
import re
import runpy

import plait
import pytest
from plait import _core

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").glob("**/*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "bench/README.md")),
]
FOLDERS = ("bench", "cmake", "docs", "examples", "include", "python", "src", "tests", "tools")
SUFFIXES = ("c", "cmake", "cu", "h", "inc", "md", "py", "sh", "toml")
# Folders at which paths may start.
BASES = [ROOT / name for name in ("", "src", "include", "python/plait", "tests", "docs", "bench")]
FILE = re.compile(rf"[\w.*-]+(/[\w.*-]+)*\.({'|'.join(SUFFIXES)})|({'|'.join(FOLDERS)})/[\w./*-]*")
USERS = {"program.c", "program.py", "train.py"}  # names for the reader's own files
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def text_of(*patterns):
    return "\n".join(p.read_text() for pattern in patterns for p in sorted(ROOT.glob(pattern)))


SOURCES = text_of("src/**/*.[ch]", "include/**/*.h", "python/**/*.py", "CMakeLists.txt")
CODE = set(re.findall(r"\w+", SOURCES)) | {f"plait_{name}" for name in _core.rows()}
FILES = [p for name in FOLDERS for p in (ROOT / name).rglob("*") if p.is_file()]
NAMES = {p.name for p in FILES}
TARGETS = set(re.search(r"^\.PHONY: (.*)$", text_of("Makefile"), re.MULTILINE).group(1).split())
COMMANDS = set(re.findall(r'add_parser\(\s*"(\w+)"', text_of("python/plait/cli.py")))


def spans(text):
    """The text in backticks, and the commands of fenced blocks."""
    fenced = "\n".join(block.split("\n", 1)[1] for block in FENCE.findall(text))
    commands = re.findall(r"^(?:\$ )?((?:make|plait) [a-z-]+)", fenced, re.MULTILINE)
    quoted = re.findall(r"`([^`]+)`", FENCE.sub("", text))
    return [" ".join(span.split()) for span in (*quoted, *commands)]


def is_file(name):
    """Whether a path or pattern exists in one of the folders, or any file has this name."""
    name = name.rstrip("/")
    if any((base / name).exists() or any(base.glob(name)) for base in BASES):
        return True
    return name in USERS or any(pathlib.PurePath(n).match(name) for n in NAMES)


def is_attribute(name):
    """Whether `plait.a.b` exists, for modules and their members."""
    found = plait
    for part in name.split(".")[1:]:
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                return False
    return True


def is_module(name):
    """Whether `_module` or `_module.name` exists."""
    return is_attribute(f"plait.{name}")


def is_test(name):
    """Whether it is a C test, also by the name that CTest uses on the host or on devices."""
    return any(f"{name.removesuffix(end)}.c" in NAMES for end in ("", "_host", "_device"))


# For each kind of word: its pattern, and a check that the thing exists.
KINDS = {
    "file": (FILE, is_file),
    "C": (re.compile(r"plait_[a-z]\w*|PLAIT_[A-Z]\w*"), lambda name: name in CODE),
    "Python": (re.compile(r"plait(\.[A-Za-z]\w*)+"), is_attribute),
    "module": (re.compile(r"_[a-z]\w*(\.\w+)?"), is_module),
    "test": (re.compile(r"test_\w+"), is_test),
}


def unknown(text):
    """Words of a page that name nothing."""
    found = []
    for span in spans(text):
        words = span.split()
        if words[0] == "make" and words[1:]:
            found += [span] * (words[1] not in TARGETS)
        elif words[0] == "plait" and words[1:]:
            found += [span] * (words[1] not in COMMANDS)
        for word in words:
            name = re.split(r"[(=]", word)[0].rstrip(",;:")
            judges = [is_there for form, is_there in KINDS.values() if form.fullmatch(name)]
            found += [name] * (bool(judges) and not any(judge(name) for judge in judges))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_pages_name_exists(page):
    assert unknown(page.read_text()) == []


@pytest.mark.parametrize(
    "planted",
    [
        "`src/plan/no_such.c`",
        "`no_such.h`",
        "`src/no_such`",
        "`src/kernel/no_such*.c`",
        "`plait_no_such`",
        "`plait_no_such(plan)`",
        "`PLAIT_NO_SUCH=1`",
        "`plait.no_such`",
        "`plait.fft.no_such(x)`",
        "`_no_such`",
        "`_args.no_such`",
        "`test_no_such`",
        "`make nosuch`",
        "`plait nosuch`",
        "```\nmake nosuch\n```",
    ],
)
def test_what_does_not_exist_is_found(planted):
    assert len(unknown(f"Some text, {planted}, and more.\n" if planted[1] != "`" else planted)) == 1


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_layers_are_those_that_are_checked():
    text = text_of("docs/architecture.md").split("\n## Layers\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in text.split("\n") if line.startswith("|")]
    rows = [set(re.findall(r"`src/(\w+)`", cell)) for cell in cells]
    checked = runpy.run_path(str(ROOT / "tools" / "check_layers.py"))["ROWS"]
    assert [row for row in rows if row] == checked
    assert set.union(*checked) == {p.name for p in (ROOT / "src").iterdir()}
