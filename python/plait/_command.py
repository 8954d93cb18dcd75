"""What command this process is, known before the package is imported."""

import os.path
import sys


def starts_ranks():
    """Whether it is ``plait run``, as a script or as a module, which starts others and waits."""
    given = sys.orig_argv
    is_module = given[1:4] == ["-m", "plait", "run"]
    is_script = len(given) > 2 and os.path.basename(given[1]) == "plait" and given[2] == "run"
    return is_module or is_script


def end_without(error: Exception) -> None:
    """The package cannot be imported: a command says so as it says what else is wrong, and ends."""
    given = sys.orig_argv
    is_module = given[1:3] == ["-m", "plait"]
    is_script = len(given) > 1 and os.path.basename(given[1]) == "plait"
    if is_module or is_script:
        from plait import _finding

        mend = "install it anew, or take PLAIT_LIBRARY out of the environment"
        found = [_finding.Finding(_finding.ERROR, "plait", str(error), mend)]
        print("\n".join([*_finding.lines(found), *getattr(error, "__notes__", ())]), flush=True)
        raise SystemExit(1)
