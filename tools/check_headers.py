"""Every public function says in fixed lines whom it concerns and who owns what.

check_headers.py INCLUDE    check the headers below INCLUDE
check_headers.py --selftest show that a missing and a misplaced line are found

The comment before each exported function must have the words of WORDS, in that order. Prints one
line for each fault and exits with 1 if there is any.
"""

import re
import sys
from pathlib import Path

WORDS = ["Collective:", "Shapes:", "Owns:", "Errors:", "Source:"]
# An exported declaration, with the comment that ends just above it, if there is one.
DECLARATION = re.compile(
    r"(?:/\*\*(?P<doc>(?:[^*]|\*(?!/))*)\*/\s*)?^PLAIT_EXPORT\b[^;{]*?\b(?P<name>plait_\w+)\s*\(",
    re.MULTILINE,
)


def faults(text, where):
    """One line of text for each exported function of `text` that lacks one of the lines."""
    bad = []
    for found in DECLARATION.finditer(text):
        doc, name = found["doc"], found["name"]
        line = text.count("\n", 0, found.start("name")) + 1
        if doc is None:
            bad.append(f"{where}:{line}: {name} has no /** comment")
            continue
        places = [doc.find(word) for word in WORDS]
        missing = [word for word, place in zip(WORDS, places, strict=True) if place < 0]
        if missing:
            bad.append(f"{where}:{line}: {name} does not say {' '.join(missing)}")
        elif places != sorted(places):
            bad.append(f"{where}:{line}: {name} has its lines out of order")
    return bad


def selftest():
    lines = " ".join(f"{word} x." for word in WORDS)
    good = f"/** Does.\n *  {lines} */\nPLAIT_EXPORT int plait_good(int a);\n"
    short = "/** Does.\n *  Collective: no. */\nPLAIT_EXPORT int plait_short(void);\n"
    turned = f"/** Does. {' '.join(reversed(WORDS))} */\nPLAIT_EXPORT int *plait_turned(void);\n"
    bare = "PLAIT_EXPORT int plait_bare(void);\n"
    bad = faults(good + short + turned + bare, "x.h")
    expected = ["plait_short does not say Shapes:", "plait_turned has its", "plait_bare has no"]
    if len(bad) != 3 or not all(e in b for e, b in zip(expected, bad, strict=True)):
        sys.exit(f"check_headers: the self-test failed: {bad}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--selftest"]:
        selftest()
        sys.exit()
    headers = sorted(Path(sys.argv[1]).rglob("*.h"))
    found = [fault for header in headers for fault in faults(header.read_text(), header)]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found) or not headers)
