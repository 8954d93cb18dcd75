"""Runs a command for which the system refuses to read or write other processes' memory.

As in containers: python refusing.py COMMAND... . Applies to all its children, by seccomp(2).
"""

import ctypes
import errno
import os
import platform
import struct
import sys

CALLS = {"x86_64": (310, 311), "aarch64": (270, 271)}  # process_vm_readv, process_vm_writev
IS_KNOWN = platform.machine() in CALLS
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF: a word at an offset, a constant, this answer
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


class Program(ctypes.Structure):
    """The C structure sock_fprog."""

    _fields_ = (("n", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse(calls):
    """From here on these system calls fail with EPERM in this process and its children."""
    steps = [(LOAD, 0, 0, 0)]
    for call in calls:
        steps += [(IF_EQUAL, 0, 1, call), (RETURN, 0, 0, ERRNO | errno.EPERM)]
    steps.append((RETURN, 0, 0, ALLOW))
    data = b"".join(struct.pack("HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(steps), data)
    for option, first, second in (
        (PR_SET_NO_NEW_PRIVS, 1, None),
        (PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program)),
    ):
        if libc.prctl(option, first, second, None, None) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse(CALLS[platform.machine()])
    os.execvp(sys.argv[1], sys.argv[1:])
