"""The declarations of CUDA's functions against the headers of a toolkit, where there is one.

Both are preprocessed, so that names are those that libraries export (`cuMemAlloc_v2`). Arguments
agree where they are passed alike: addresses, 64-bit numbers, 32-bit ones, floating point.
"""

import glob
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADERS = (
    "cuda.h",
    "cublas_v2.h",
    "cusolverDn.h",
    "cusolverMg.h",
    "cufft.h",
    "cufftXt.h",
    "nvrtc.h",
)
PROTOTYPES = """
#define PROTOTYPE(_library, _type, _symbol, _arguments) _type _symbol _arguments;
PLAIT_CUDA_SYMBOL_FOR_EACH(PROTOTYPE)
"""
HANDLES = re.compile(
    r"CU(context|module|function|stream|event)\b|cudaStream_t|nvrtcProgram"
    r"|cublasHandle_t|cusolver(DnHandle|DnParams|MgHandle)_t|cudaLibMg(Grid|MatrixDesc)_t"
    r"|plait_(cu_(context|module|function|stream|event)|nvrtc_program|cublas)_t"
    r"|plait_cusolver(_params|_mg(_grid|_matrix)?)?_t"
)
WIDE = re.compile(r"size_t|u?int64_t|long long|CUdeviceptr|plait_cu_address_t")


def folder():
    """Of a toolkit's headers, or None; NCCL has its own."""
    homes = [os.environ.get("CUDA_HOME", ""), *sorted(glob.glob("/usr/local/cuda*"))]
    with_all = (h for h in homes if all(Path(h, "include", f).exists() for f in HEADERS))
    return next((Path(h, "include") for h in with_all if h), None)


def preprocessed(text, *includes):
    """What a C compiler makes of a text."""
    options = [f"-I{include}" for include in includes]
    command = [shutil.which("cc") or "gcc", "-E", "-P", "-x", "c", *options, "-"]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return re.sub(r"\s+", " ", run.stdout)


def kind(argument):
    """How an argument is passed: its pointers, else its size."""
    if "*" in argument or "[" in argument or HANDLES.search(argument):
        return "address"
    if re.search(r"\b(float|double)\b", argument):
        return "floating"
    return "64 bits" if WIDE.search(argument) else "32 bits"


def prototypes(text):
    """Kinds of arguments by the name of a function that returns an integer or a text."""
    found = {}
    for name, arguments in re.findall(r"\b((?:cu|nvrtc)\w+) ?\(([^()]*)\) ?;", text):
        found[name] = [kind(a) for a in arguments.split(",") if a.strip() not in ("", "void")]
    return found


def declared(text=""):
    """Ours, with other text in place of the header's."""
    header = text or (ROOT / "src/device/cuda_load.h").read_text()
    return prototypes(preprocessed(header + PROTOTYPES, ROOT / "src", ROOT / "include"))


@pytest.fixture(scope="module")
def theirs():
    include = folder()
    if include is None:
        pytest.skip("no CUDA toolkit with all headers")
    return prototypes(preprocessed("".join(f"#include <{h}>\n" for h in HEADERS), include))


def differences(ours, theirs):
    """Functions that are declared otherwise, or not at all."""
    return {name for name in ours if ours[name] != theirs.get(name)}


def test_declarations_are_those_of_the_headers(theirs):
    assert differences(declared(), theirs) == set()


@pytest.mark.parametrize(
    ("was", "planted", "found"),
    [
        ("int64_t n, int type, void *a", "int n, int type, void *a", "cusolverDnXpotrf"),
        ("(plait_cublas_t blas, void *work, size_t", "(plait_cublas_t blas, size_t", "cublasSet"),
        ("cuMemAlloc_v2", "cuMemAlloc_v9", "cuMemAlloc_v9"),
        ("int64_t column_block, int type", "int column_block, int type", "cusolverMgCreateMatrix"),
        ("void *work[], int64_t n_work", "int64_t n_work, void *work[]", "cusolverMgSyevd"),
    ],
)
def test_differences_are_found(theirs, was, planted, found):
    header = (ROOT / "src/device/cuda_load.h").read_text()
    text = re.sub(re.escape(was).replace("\\ ", r"[\s\\]+"), planted, header)
    assert any(name.startswith(found) for name in differences(declared(text), theirs))


def test_kinds():
    text = "int cuA(size_t n, int *p, double x); int cuB(void); int cuC(CUstream s, unsigned m);"
    assert prototypes(text) == {
        "cuA": ["64 bits", "address", "floating"],
        "cuB": [],
        "cuC": ["address", "32 bits"],
    }
