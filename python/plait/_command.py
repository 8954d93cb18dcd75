"""Which command this process is, known before the package is imported."""

import itertools
import os.path
import sys


def starts_ranks():
    """Whether it is ``plait run``, as a script or module, which starts others and waits."""
    given = sys.orig_argv
    is_module = given[1:4] == ["-m", "plait", "run"]
    is_script = len(given) > 2 and os.path.basename(given[1]) == "plait" and given[2] == "run"
    return is_module or is_script


def _is_command() -> bool:
    """Whether this process is a command of plait, not a program that happens to have its name."""
    given = sys.orig_argv
    modules = [b for a, b in itertools.pairwise(given) if a == "-m"]
    modules += [a[2:] for a in given if a.startswith("-m") and len(a) > 2]
    if sys.argv[:1] == ["-m"]:
        return "plait" in modules
    import sysconfig  # `plait run` does not need it

    folder, name = os.path.split(os.path.realpath(sys.argv[0] if sys.argv else ""))
    return name == "plait" and folder == os.path.realpath(sysconfig.get_path("scripts"))


def end_without(error: Exception) -> None:
    """Ends when the package cannot be imported; a command reports that like any other fault."""
    if _is_command():
        from plait import _finding

        own = "PLAIT_LIBRARY" in os.environ
        mend = "take PLAIT_LIBRARY out of the environment" if own else ""
        found = [_finding.Finding(_finding.ERROR, "plait", str(error), mend)]
        print("\n".join([*_finding.lines(found), *getattr(error, "__notes__", ())]), flush=True)
        raise SystemExit(1)
