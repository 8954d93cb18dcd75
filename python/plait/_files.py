"""Files that take the place of others once they are complete."""

import errno
import os
import stat

_KINDS = (
    (stat.S_ISCHR, "character device"),
    (stat.S_ISBLK, "block device"),
    (stat.S_ISFIFO, "fifo"),
    (stat.S_ISSOCK, "socket"),
)


def replaceable(path: str) -> str:
    """The path at which a file is put in place: for a link, its target.

    Raises OSError for an existing path that is no file, such as a device or a pipe, which would be
    gone afterwards; and for a name that no file can have, such as "" and "folder/".
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if os.path.basename(path) in ("", ".", ".."):
            raise
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise FileExistsError(errno.EEXIST, f"Not a regular file, but a {kind}", path)
    return os.path.realpath(path)
