"""What command this process is, known before the package is imported."""

import os.path
import sys


def starts_ranks():
    """Whether it is ``plait run``, as a script or as a module, which starts others and waits."""
    given = sys.orig_argv
    is_module = given[1:4] == ["-m", "plait", "run"]
    is_script = len(given) > 2 and os.path.basename(given[1]) == "plait" and given[2] == "run"
    return is_module or is_script
