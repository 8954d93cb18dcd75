"""The file that a trace is to become: whether one is asked for, and what may not be replaced."""

import errno
import os
import stat
from collections.abc import Mapping


def asked_for(environment: Mapping[str, str]) -> str:
    """The file that PLAIT_TRACE names; "" where it is off, as 0 says for PLAIT_FLIGHT as well."""
    name = environment.get("PLAIT_TRACE", "")
    return "" if name == "0" else name


def replaceable(trace: str) -> str:
    """The path at which the trace is put in place: of a link what it leads to.

    Raises OSError for what is there and is no file: a device or a pipe would be gone afterwards.
    """
    try:
        mode = os.stat(trace).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), trace)
    if not stat.S_ISREG(mode):
        raise FileExistsError(errno.EEXIST, "Not a regular file", trace)
    return os.path.realpath(trace)
