"""Include-layer check: a folder of src/ may include only rows above its own.

check_layers.py SRC         check the C sources below SRC (includes are written "layer/header.h")
check_layers.py --selftest  show that each kind of planted fault is found

Prints one line for each fault and exits with 1 if there is any.
"""

import re
import sys
import tempfile
from pathlib import Path

# docs/architecture.md explains the rows; folders of one row never include each other.
ROWS = [
    {"base"},
    {"layout"},
    {"device"},
    {"kernel"},
    {"transport"},
    {"comm"},
    {"plan"},
    {"coll", "redist"},
    {"fft", "halo", "dense"},
    {"guard"},
    {"ops"},
    {"api"},
    {"ffi"},
]
RANK = {folder: rank for rank, row in enumerate(ROWS) for folder in row}
# Header -> the folders that may include it although more folders lie below it, or none at all.
NARROW = {
    r"mpi\.h": set(),
    r"xla/.*": set(),
    r"(cuda|nccl|cufft|cublas|cusolver).*\.h": {"device"},
    r"transport/(mpi|node).*": {"transport", "comm", "api"},
}
SUFFIXES = {".c", ".h", ".inc", ".cu"}
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^">]+)[">]')


def fault(layer, header):
    """Why a file of `layer` may not include `header`, or None."""
    for pattern, folders in NARROW.items():
        if re.fullmatch(pattern, header) and layer not in folders:
            return f"{header} is not allowed in {layer}"
    target = header.split("/")[0]
    if "/" in header and target in RANK and target != layer and RANK[target] >= RANK[layer]:
        return f"{layer} must not include {header}: not a row above"
    return None


def faults(root):
    """One line of text for each include below `root` that its folder may not have."""
    bad = []
    for path in sorted(p for p in Path(root).rglob("*") if p.suffix in SUFFIXES):
        layer = path.relative_to(root).parts[0]
        if layer not in RANK:
            bad.append(f"{path}: folder '{layer}' is in no row of the layer table")
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            found = INCLUDE.match(line)
            reason = found and fault(layer, found.group(1))
            if reason:
                bad.append(f"{path}:{number}: {reason}")
    return bad


def selftest():
    planted = {
        "base": ('"plan/step.h"', "base must not include plan/step.h"),
        "fft": ('"halo/halo.h"', "fft must not include halo/halo.h"),
        "comm": ("<mpi.h>", "mpi.h is not allowed in comm"),
        "ffi": ('"transport/mpi.h"', "transport/mpi.h is not allowed in ffi"),
        "kernel": ("<cuda_runtime.h>", "cuda_runtime.h is not allowed in kernel"),
        "oddity": ('"base/log.h"', "folder 'oddity' is in no row"),
        "plan": ('"base/log.h"', None),
    }
    with tempfile.TemporaryDirectory() as root:
        for layer, (header, _) in planted.items():
            Path(root, layer).mkdir()
            name = "a.cu" if layer == "kernel" else "a.c"
            Path(root, layer, name).write_text(f"#include {header}\n")
        bad = faults(root)
    expected = [text for _, text in planted.values() if text]
    missed = [text for text in expected if not any(text in line for line in bad)]
    if missed or len(bad) != len(expected):
        sys.exit(f"check_layers: the self-test failed: missed {missed}, found {bad}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--selftest"]:
        selftest()
        sys.exit()
    found = faults(sys.argv[1])
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
