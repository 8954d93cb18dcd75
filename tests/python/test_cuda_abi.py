"""The declarations of CUDA's functions against the headers of a toolkit, if there is a toolkit.

The declarations of NVSHMEM and cuSOLVERMp are compared with the headers of their wheels, or of
NVSHMEM_HOME and CUSOLVERMP_HOME, which also need a toolkit's headers; those of NCCL with NCCL_HOME.
All headers are preprocessed, which gives the names that libraries export (`cuMemAlloc_v2`).
Arguments agree if they are passed alike: addresses, 64-bit numbers, 32-bit numbers, floating point.
"""

import glob
import os
import re
import shutil
import site
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
PLAIT_CUDA_OPTIONAL_FOR_EACH(PROTOTYPE)
"""
HANDLES = re.compile(
    r"CU(context|module|function|stream|event)\b|cudaStream_t|nvrtcProgram"
    r"|cublasHandle_t|cusolver(DnHandle|DnParams|MgHandle)_t|cudaLibMg(Grid|MatrixDesc)_t"
    r"|cusolverMp(Handle|Grid|MatrixDescriptor)_t|ncclComm_t"
    r"|plait_(cu_(context|module|function|stream|event)|nvrtc_program|cublas|nccl_comm)_t"
    r"|plait_cusolver(_params|_m[gp](_grid|_matrix)?)?_t"
)
WIDE = re.compile(
    r"size_t|u?int64_t|long long|CU(deviceptr|memGenericAllocationHandle)"
    r"|plait_cu_(address|memory)_t"
)


def folder():
    """The folder of a toolkit's headers, or None; NCCL has its own."""
    homes = [os.environ.get("CUDA_HOME", ""), *sorted(glob.glob("/usr/local/cuda*"))]
    with_all = (h for h in homes if all(Path(h, "include", f).exists() for f in HEADERS))
    return next((Path(h, "include") for h in with_all if h), None)


def wheel_folder(header, variable, *folders):
    """The folder of a wheel's header, among these folders of wheels, or None."""
    roots = [*site.getsitepackages(), site.getusersitepackages()]
    wheels = [Path(root, "nvidia", folder) for root in roots for folder in folders]
    homes = [Path(os.environ[variable])] if variable in os.environ else wheels
    return next((h / "include" for h in homes if (h / "include" / header).exists()), None)


def nvshmem_folder():
    """The folder of NVSHMEM's headers, or None."""
    return wheel_folder("nvshmemx.h", "NVSHMEM_HOME", "nvshmem")


def preprocessed(text, *includes):
    """The text as a C compiler preprocesses it."""
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


OF_TOOLKIT = "cu(?!solverMp)|nvrtc"


def prototypes(text, prefix=OF_TOOLKIT):
    """The kinds of arguments of functions with this prefix, by function name."""
    found = {}
    for name, arguments in re.findall(rf"\b((?:{prefix})\w+) ?\(([^()]*)\) ?;", text):
        found[name] = [kind(a) for a in arguments.split(",") if a.strip() not in ("", "void")]
    return found


def declared(text="", prefix=OF_TOOLKIT):
    """Declarations of plait; `text` replaces the header."""
    header = text or (ROOT / "src/device/cuda_load.h").read_text()
    return prototypes(preprocessed(header + PROTOTYPES, ROOT / "src", ROOT / "include"), prefix)


@pytest.fixture(scope="module")
def theirs():
    include = folder()
    if include is None:
        pytest.skip("no CUDA toolkit with all headers")
    return prototypes(preprocessed("".join(f"#include <{h}>\n" for h in HEADERS), include))


def differences(ours, theirs):
    """Functions that are declared differently, or not at all."""
    return {name for name in ours if ours[name] != theirs.get(name)}


def test_declarations_are_those_of_the_headers(theirs):
    assert differences(declared(), theirs) == set()


@pytest.mark.parametrize(
    ("was", "planted", "found"),
    [
        ("int64_t n, int type, void *a", "int n, int type, void *a", "cusolverDnXpotrf"),
        ("(plait_cublas_t blas, void *work, size_t", "(plait_cublas_t blas, size_t", "cublasSet"),
        ("cuMemAlloc_v2", "cuMemAlloc_v9", "cuMemAlloc_v9"),
        ("size_t offset, plait_cu_memory_t", "int offset, plait_cu_memory_t", "cuMemMap"),
        ("int64_t column_block, int type", "int column_block, int type", "cusolverMgCreateMatrix"),
        ("void *work[], int64_t n_work", "int64_t n_work, void *work[]", "cusolverMgSyevd"),
    ],
)
def test_differences_are_found(theirs, was, planted, found):
    header = (ROOT / "src/device/cuda_load.h").read_text()
    text = re.sub(re.escape(was).replace("\\ ", r"[\s\\]+"), planted, header)
    assert any(name.startswith(found) for name in differences(declared(text), theirs))


VIRTUAL = """
#include <cuda.h>
#include <stddef.h>
#define PLACE(_type, _member, _offset) \\
    _Static_assert(offsetof(_type, _member) == _offset, #_member);
_Static_assert(sizeof(CUmemAllocationProp) == 32, "size");
PLACE(CUmemAllocationProp, type, 0)
PLACE(CUmemAllocationProp, requestedHandleTypes, 4)
PLACE(CUmemAllocationProp, location.type, 8)
PLACE(CUmemAllocationProp, location.id, 12)
PLACE(CUmemAllocationProp, allocFlags, 24)
_Static_assert(sizeof(CUmemAccessDesc) == 12, "size");
PLACE(CUmemAccessDesc, location.type, 0)
PLACE(CUmemAccessDesc, location.id, 4)
PLACE(CUmemAccessDesc, flags, 8)
_Static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1, "PINNED");
_Static_assert(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 1, "DESCRIPTOR");
_Static_assert(CU_MEM_LOCATION_TYPE_DEVICE == 1, "DEVICE");
_Static_assert(CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3, "READ_WRITE");
_Static_assert(CU_MEM_ALLOC_GRANULARITY_MINIMUM == 0, "MINIMUM");
_Static_assert(CUDA_ERROR_INVALID_VALUE == 1, "INVALID_VALUE");
"""


def compiles(text):
    """Whether a C compiler accepts the text, with the toolkit's headers."""
    command = [shutil.which("cc") or "gcc", "-fsyntax-only", f"-I{folder()}", "-x", "c", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True).returncode == 0


def test_structures_of_virtual_memory(theirs):
    """The structures of src/device/cuda_virtual.c have the layout of the ABI; its numbers agree."""
    assert compiles(VIRTUAL) and not compiles(VIRTUAL.replace("flags, 8", "flags, 4"))
    ours = (ROOT / "src/device/cuda_virtual.c").read_text()
    for number, name in re.findall(r"== (\d), \"([A-Z_]+)\"", VIRTUAL):
        assert re.search(rf"\b{name} = {number},", ours)


@pytest.fixture(scope="module")
def cusolver_mp():
    """CuSOLVERMp's header, preprocessed."""
    include, toolkit = wheel_folder("cusolverMp.h", "CUSOLVERMP_HOME", "cu13", "cu12"), folder()
    if include is None or toolkit is None:
        pytest.skip("no header of cuSOLVERMp, or no CUDA toolkit with all headers")
    nccl = wheel_folder("nccl.h", "NCCL_HOME", "nccl") or toolkit
    if not (nccl / "nccl.h").exists():
        pytest.skip("no header of NCCL")
    return preprocessed("#include <cusolverMp.h>\n", include, nccl, toolkit)


def test_declarations_are_those_of_cusolver_mp(cusolver_mp):
    ours = declared(prefix="cusolverMp")
    theirs = prototypes(cusolver_mp, "cusolverMp")
    assert len(ours) == 10 and differences(ours, theirs) == set()
    header = (ROOT / "src/device/cuda_load.h").read_text()
    for was, planted, name in [
        ("uint32_t first_row", "int64_t first_row", "cusolverMpCreateMatrixDesc"),
        ("plait_nccl_comm_t comm, int32_t n_rows", "int32_t n_rows", "cusolverMpCreateDeviceGrid"),
        ("char *job, int uplo, int64_t n", "int job, int uplo, int64_t n", "cusolverMpSyevd"),
    ]:
        text = re.sub(re.escape(was).replace("\\ ", r"[\s\\]+"), planted, header)
        assert name in differences(declared(text, "cusolverMp"), theirs)


def test_numbers_are_those_of_cusolver_mp(cusolver_mp):
    """The order of the grid, and the coding of versions: 0.9.1 is 901."""
    assert re.search(r"CUSOLVERMP_GRID_MAPPING_COL_MAJOR = 0\b", cusolver_mp)
    assert re.search(
        r"PLAIT_CUSOLVER_MP_COLUMNS = 0\b", (ROOT / "src/device/cuda_load.h").read_text()
    )
    text = "#include <cusolverMp.h>\nint version = CUSOLVERMP_VERSION;\n"
    include = wheel_folder("cusolverMp.h", "CUSOLVERMP_HOME", "cu13", "cu12")
    nccl = wheel_folder("nccl.h", "NCCL_HOME", "nccl") or folder()
    [sum_of] = re.findall(r"int version = ([^;]*);", preprocessed(text, include, nccl, folder()))
    numbers = [int(n) for n in re.findall(r"\d+", sum_of)]
    assert numbers[1::2][:2] == [10000, 100] and len(numbers) == 5
    assert "OLDEST = 901 " in (ROOT / "src/device/cuda_mp.c").read_text()


@pytest.fixture(scope="module")
def nvshmem():
    """NVSHMEM's headers, preprocessed."""
    include, toolkit = nvshmem_folder(), folder()
    if include is None or toolkit is None:
        pytest.skip("no headers of NVSHMEM, or no CUDA toolkit with all headers")
    return preprocessed("#include <host/nvshmemx_api.h>\n", include, toolkit)


def test_declarations_are_those_of_nvshmem(nvshmem):
    ours, theirs = declared(prefix="nvshmem"), prototypes(nvshmem, "nvshmem")
    assert len(ours) == 12 and differences(ours, theirs) == set()
    header = (ROOT / "src/device/cuda_load.h").read_text()
    planted = declared(header.replace("(int pe, int n_pes, const", "(int pe, const"), "nvshmem")
    assert differences(planted, theirs) == {"nvshmemx_set_attr_uniqueid_args"}


def test_numbers_are_those_of_nvshmem(nvshmem):
    """Enumerators, and the sizes of structures and of the structures inside them."""
    ours = (ROOT / "src/device/cuda_nvshmem.c").read_text()
    assert re.search(r"NVSHMEMX_INIT_WITH_UNIQUEID = 1 << 3\b", nvshmem)
    assert "WITH_UNIQUEID = 1 << 3 " in ours
    assert re.search(r"NVSHMEM_SIGNAL_SET = 9\b", nvshmem) and "SIGNAL_SET = 9 " in ours
    [compare] = re.findall(r"\{ ?NVSHMEM_CMP_EQ = 0,([^}]*)\}", nvshmem)
    assert compare.split(",").index(" NVSHMEM_CMP_GE") + 1 == 5 and "COMPARE_GE = 5 " in ours
    [status] = re.findall(r"\{ ?NVSHMEM_STATUS_NOT_INITIALIZED = 0,([^}]*)\}", nvshmem)
    assert [s.strip() for s in status.split(",")][:3] == [
        "NVSHMEM_STATUS_IS_BOOTSTRAPPED",
        "NVSHMEM_STATUS_IS_INITIALIZED",
        "NVSHMEM_STATUS_LIMITED_MPG",
    ]
    assert "{ NOT_STARTED, WITHOUT_DEVICE, STARTED, LIMITED_MPG }" in ours
    sizes = {"uniqueid_v1": 128, "uniqueid_args_v1": 24, "init_args_v1": 128, "init_attr_v1": 144}
    for name, size in sizes.items():
        assert f"static_assert(sizeof(nvshmemx_{name}) == {size}" in nvshmem
        assert name == "uniqueid_v1" or f"== {size}," in ours
    members = re.findall(r"typedef struct \{([^{}]*)\} nvshmemx_(\w+)_v1 ?;", nvshmem)
    assert {name: " ".join(text.split()) for text, name in members} == {
        "uniqueid": "int version; char internal[124];",
        "uniqueid_args": "int version; nvshmemx_uniqueid_v1 *id; int myrank; int nranks;",
        "init_args": "int version; nvshmemx_uniqueid_args_t uid_args; char content[96];",
        "init_attr": "int version; void *mpi_comm; nvshmemx_init_args_t args;",
    }


def test_kinds():
    text = "int cuA(size_t n, int *p, double x); int cuB(void); int cuC(CUstream s, unsigned m);"
    assert prototypes(text) == {
        "cuA": ["64 bits", "address", "floating"],
        "cuB": [],
        "cuC": ["address", "32 bits"],
    }
