"""The shared library exports plait_* and nothing else, and needs only the C library.

check_exports.py LIBRARY    read the dynamic section and symbols of LIBRARY (ELF, 64 bit)
check_exports.py --selftest show that a foreign symbol is found (in an extension of Python itself)

Prints one line for each fault and exits with 1 if there is any.
"""

import struct
import sys
from pathlib import Path

NEEDED = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
LOADER = "ld-linux"  # ld-linux-x86-64.so.2, ld-linux-aarch64.so.1: glibc's own
SHT_DYNAMIC, SHT_DYNSYM, DT_NEEDED = 6, 11, 1


def text_at(strings, offset):
    return strings[offset : strings.index(b"\0", offset)].decode()


def read_elf(data):
    """The names that an ELF file exports, and the libraries it needs."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    start, size, n = (
        struct.unpack_from("<Q", data, 0x28)[0],
        *struct.unpack_from("<HH", data, 0x3A),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(n)]
    exported, needed = [], []
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind not in (SHT_DYNAMIC, SHT_DYNSYM):
            continue
        at, strings_length = sections[link][4:6]
        strings = data[at : at + strings_length]
        for place in range(offset, offset + length, entry):
            if kind == SHT_DYNAMIC:
                tag, value = struct.unpack_from("<qQ", data, place)
                needed += [text_at(strings, value)] if tag == DT_NEEDED else []
            else:
                name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, place)
                if info >> 4 and section:  # not local, and defined here
                    exported.append(text_at(strings, name))
    return exported, needed


def faults(path):
    """One line of text for each symbol and library that should not be there."""
    exported, needed = read_elf(Path(path).read_bytes())
    bad = [f"{path}: exports {name}" for name in exported if not name.startswith("plait_")]
    if not exported:
        bad.append(f"{path}: exports nothing")
    foreign = [n for n in needed if n not in NEEDED and not n.startswith(LOADER)]
    return bad + [f"{path}: needs {name}" for name in foreign]


def selftest():
    import _ctypes

    bad = faults(_ctypes.__file__)
    if not any("exports PyInit__ctypes" in line for line in bad):
        sys.exit(f"check_exports: the self-test failed: {bad}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--selftest"]:
        selftest()
        sys.exit()
    found = faults(sys.argv[1])
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
