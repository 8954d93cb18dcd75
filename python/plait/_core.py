"""The C core through ctypes: the table of operations, dtypes, reductions and communicators."""

import ctypes
import dataclasses
import functools
import importlib.util
import os
import pathlib
from collections.abc import Callable

from plait import _errors, _rank

_NAME = "libplait.so"


def _find() -> str:
    """The library beside the package, or the one that PLAIT_LIBRARY names (development)."""
    given = os.environ.get("PLAIT_LIBRARY")
    places = [given] if given else [str(pathlib.Path(folder) / _NAME) for folder in _folders()]
    found = next((place for place in places if pathlib.Path(place).exists()), None)
    if found is None:
        raise ImportError(
            f"plait: there is no {', '.join(places)}; install the wheel, or build {_NAME} with "
            "cmake and set PLAIT_LIBRARY"
        )
    return found


def _folders() -> list[str]:
    import plait

    development = pathlib.Path(__file__).resolve().parents[2] / "build"
    return [*plait.__path__, str(development)]


class _Attr(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("offset", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("n_max", ctypes.c_int),
        ("count_offset", ctypes.c_size_t),
    ]


class _Key(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("variable", ctypes.c_char_p),
        ("choices", ctypes.POINTER(ctypes.c_char_p)),
        ("doc", ctypes.c_char_p),
    ]


INT, FLOAT, ARRAY, LIST = range(4)  # plait_param_kind_t


class _Op(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("n_args", ctypes.c_int),
        ("n_rets", ctypes.c_int),
        ("params_size", ctypes.c_size_t),
        ("attrs", ctypes.POINTER(_Attr)),
        ("adjoint", ctypes.c_char_p),
        ("alias", ctypes.c_int),
        ("is_matched", ctypes.c_int),
        ("family", ctypes.c_int),
        ("model", ctypes.c_char_p),
        ("doc", ctypes.c_char_p),
        ("line", ctypes.c_char_p),
        ("plan", ctypes.c_void_p),
    ]


@dataclasses.dataclass(frozen=True)
class Row:
    """One operation of the C core."""

    name: str
    n_args: int
    n_rets: int
    scalars: tuple[str, ...]
    floats: tuple[str, ...]
    arrays: tuple[str, ...]
    adjoint: str | None
    alias: int
    model: str
    doc: str
    line: str | None

    @property
    def target(self) -> str:
        """XLA's name for it."""
        return "plait_" + self.name


lib = ctypes.CDLL(_find())
_TEXTS = (
    "plait_version",
    "plait_error_text",
    "plait_status_name",
    "plait_dtype_name",
    "plait_reduce_name",
    "plait_comm_transport",
    "plait_comm_direct",
)
for _text in _TEXTS:
    getattr(lib, _text).restype = ctypes.c_char_p
lib.plait_op_at.restype = ctypes.POINTER(_Op)
lib.plait_dtype_bytes.restype = ctypes.c_int64
lib.plait_reduce_is_defined.restype = ctypes.c_bool
lib.plait_registry_comm.restype = ctypes.c_void_p
lib.plait_registry_comm.argtypes = [ctypes.c_int64]
lib.plait_barrier.argtypes = [ctypes.c_void_p]
lib.plait_registry_next.restype = ctypes.c_int64
lib.plait_registry_free.argtypes = [ctypes.c_int64]
lib.plait_registry_is_orphaned.argtypes = [ctypes.c_int64]
lib.plait_registry_is_orphaned.restype = ctypes.c_bool
lib.plait_registry_set_mark.argtypes = [ctypes.c_int64, ctypes.c_uint32]
lib.plait_fft1_isa.restype = ctypes.c_char_p
lib.plait_config_at.restype = ctypes.POINTER(_Key)
lib.plait_alloc_balance.restype = ctypes.c_int64
lib.plait_shutdown.restype = ctypes.c_int64
lib.plait_shutdown.argtypes = [ctypes.c_int64]
lib.plait_cuda_wheels.restype = None
lib.plait_cuda_wheels.argtypes = [ctypes.c_char_p]
lib.plait_started_forget.restype = None
lib.plait_started_forget.argtypes = [ctypes.c_int64]
lib.plait_started_count.restype = ctypes.c_int64
lib.plait_matched_keep.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)]
lib.plait_matched_forget.argtypes = [ctypes.c_int64]
lib.plait_matched_forget.restype = None
lib.plait_tree_put.restype = None
lib.plait_tree_put.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
lib.plait_site_put.restype = ctypes.c_int64
lib.plait_site_put.argtypes = [ctypes.c_int64, ctypes.c_char_p]
lib.plait_site_text.restype = ctypes.c_char_p
lib.plait_site_text.argtypes = [ctypes.c_int64]
lib.plait_site_eager.restype = ctypes.POINTER(ctypes.c_int64)
lib.plait_trace_set_lines.restype = None
lib.plait_trace_set_world.restype = None
lib.plait_trace_set_job.restype = None
lib.plait_trace_set_job.argtypes = [ctypes.c_char_p]
lib.plait_trace_set_why.restype = None
lib.plait_trace_set_why.argtypes = [ctypes.c_char_p]
lib.plait_ffi_latest_failure.restype = ctypes.c_int64
lib.plait_ffi_latest_failure.argtypes = [ctypes.c_char_p, ctypes.c_int]
lib.plait_vigil_wait.argtypes = [ctypes.c_char_p, ctypes.c_int]
lib.plait_guard_limit_ns.restype = ctypes.c_int64
lib.plait_guard_leave.restype = None
lib.plait_guard_leave.argtypes = [ctypes.c_int64]
lib.plait_trace_set_offset.restype = None
lib.plait_trace_set_offset.argtypes = [ctypes.c_int64]
lib.plait_trace_close.restype = None
lib.plait_trace_part.restype = ctypes.c_char_p
lib.plait_trace_flight_path.restype = ctypes.c_char_p
lib.plait_trace_flight.restype = ctypes.c_void_p
lib.plait_trace_flight.argtypes = [ctypes.POINTER(ctypes.c_int64)]
lib.plait_record_folder.restype = ctypes.c_bool
lib.plait_setting_is_on.restype = ctypes.c_bool
lib.plait_setting_is_on.argtypes = [ctypes.c_char_p]
lib.plait_trace_start.restype = None
lib.plait_trace_read.restype = None
lib.plait_trace_read.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
for _with_comm in ("rank", "size", "transport", "direct"):
    getattr(lib, "plait_comm_" + _with_comm).argtypes = [ctypes.c_void_p]


def _row(op: _Op) -> Row:
    attrs = []
    for attr in op.attrs:
        if attr.name is None:
            break
        attrs.append(attr)

    def text(b):
        return None if b is None else b.decode()

    return Row(
        name=text(op.name),
        n_args=op.n_args,
        n_rets=op.n_rets,
        scalars=tuple(text(a.name) for a in attrs if a.kind == INT),
        floats=tuple(text(a.name) for a in attrs if a.kind == FLOAT),
        arrays=tuple(text(a.name) for a in attrs if a.kind in (ARRAY, LIST)),
        adjoint=text(op.adjoint),
        alias=op.alias,
        model=text(op.model),
        doc=text(op.doc),
        line=text(op.line),
    )


@dataclasses.dataclass(frozen=True)
class Key:
    """A row of plait/config.h; the first choice is the default."""

    name: str
    variable: str
    choices: tuple[str, ...]
    doc: str


def _key(key: _Key) -> Key:
    choices = []
    while (choice := key.choices[len(choices)]) is not None:
        choices.append(choice.decode())
    return Key(key.name.decode(), key.variable.decode(), tuple(choices), key.doc.decode())


@functools.cache
def keys() -> dict[str, Key]:
    """All keys by name, in the order of the C list."""
    table = [_key(lib.plait_config_at(i).contents) for i in range(lib.plait_config_count())]
    return {key.name: key for key in table}


def fft_isa() -> str:
    """The instruction set of the kernels of transforms."""
    return lib.plait_fft1_isa().decode()


def is_on(variable: bytes) -> bool:
    """Whether a switch of the environment is on; the library keeps the address of the literal."""
    return lib.plait_setting_is_on(variable)


def chosen(name: str) -> str:
    """What is chosen for a key."""
    value = ctypes.c_char_p()
    check(lib.plait_config_get(name.encode(), ctypes.byref(value)))
    return value.value.decode()


def choose(name: str, value: str) -> None:
    """Chooses, from now on."""
    check(lib.plait_config_set(name.encode(), value.encode()))


@functools.cache
def rows() -> dict[str, Row]:
    """All operations by name, in the order of the C list."""
    table = [_row(lib.plait_op_at(i).contents) for i in range(lib.plait_op_count())]
    return {row.name: row for row in table}


@functools.cache
def dtypes() -> dict[str, int]:
    """Codes of the element types by NumPy's name; they are XLA's."""
    codes = [lib.plait_dtype_at(i) for i in range(lib.plait_dtype_count())]
    return {lib.plait_dtype_name(code).decode(): code for code in codes}


def _may_have_gpus() -> bool:
    """Whether JAX may find GPUs, without asking JAX, which takes memory on each."""
    plugins = (f"jax_cuda{version}_plugin" for version in (12, 13, 14))
    has_plugin = any(importlib.util.find_spec(name) for name in plugins)
    return has_plugin and _rank.may_have_gpus(os.environ)


@functools.cache
def has_devices() -> bool:
    """Whether the library drives devices that arrays may be on."""
    if _may_have_gpus():
        lib.plait_device_accept()
    return bool(lib.plait_device_is_there())


def ready_device(ordinal: int) -> None:
    """Makes a device ready for its first operation: opens libraries, compiles kernels."""
    check(lib.plait_device_ready(ordinal))


def keep_vigil() -> str:
    """Waits until a device's stream waits for an ended process; says which waits for which."""
    text = ctypes.create_string_buffer(1000)
    lib.plait_vigil_wait(text, len(text))
    return text.value.decode(errors="replace")


def latest_failure() -> tuple[str, int]:
    """The latest failure in a program, "" if there was none; and the number of failures so far."""
    text = ctypes.create_string_buffer(2300)
    number = lib.plait_ffi_latest_failure(text, len(text))
    return text.value.decode(errors="replace"), number


_errors.latest_failure.append(latest_failure)


def tell_wheels() -> None:
    """Tells the core where wheels have CUDA's libraries, before the core looks for them."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        lib.plait_cuda_wheels(os.fsencode(folder))


def reduce_is_defined(op: int, dtype: str) -> bool:
    """Whether a reduction exists for a dtype."""
    return bool(lib.plait_reduce_is_defined(op, dtypes().get(dtype, 0)))


@functools.cache
def reductions() -> tuple[str, ...]:
    """Names of the reductions; the code is the index."""
    names = []
    while (name := lib.plait_reduce_name(len(names)).decode()) != "unknown":
        names.append(name)
    return tuple(names)


def check(status: int) -> None:
    """Raises the exception of a status that is not OK."""
    if status != 0:
        name = lib.plait_status_name(status).decode()
        raise _errors.from_status(name, lib.plait_error_text().decode())


def add_self(label: str) -> int:
    """Id of a new communicator of this rank alone."""
    comm_id = ctypes.c_int64()
    check(lib.plait_registry_add_self(label.encode(), ctypes.byref(comm_id)))
    return comm_id.value


def add_local(ordinals: tuple[int, ...], label: str) -> int:
    """Id of a new communicator whose ranks are devices of this process, in that order."""
    comm_id = ctypes.c_int64()
    array = (ctypes.c_int32 * len(ordinals))(*ordinals)
    check(lib.plait_registry_add_local(len(ordinals), array, label.encode(), ctypes.byref(comm_id)))
    return comm_id.value


class Device(ctypes.Structure):
    """plait_device_rank_t: a device that is a rank of communicator ``group`` of a list."""

    _fields_ = [(name, ctypes.c_int32) for name in ("group", "process", "ordinal", "track")]


def add_devices(
    devices: list[Device], here: int, handles: list[int], label: str, number: int = 0
) -> int:
    """Id of new communicators, one for each group of devices; ranks follow the devices' order.

    handles: bits of the MPI communicator of each group's processes, 0 for this process alone.
    number: free on all processes, which agree on it; 0 for one process. Collective over the
    processes of each group.
    """
    comm_id = ctypes.c_int64(number)
    n = len(devices)
    rows = (Device * n)(*devices)
    bits = (ctypes.c_uint64 * len(handles))(*handles)
    check(
        lib.plait_registry_add_devices(n, rows, here, bits, label.encode(), ctypes.byref(comm_id))
    )
    return comm_id.value


def next_number() -> int:
    """The id that the next communicator gets, as far as this process knows."""
    return lib.plait_registry_next()


def add_mpi(bits: int, size: int, rank: int, label: str, of_mesh: bool = False) -> int:
    """Id of a new communicator over an MPI one, of a mesh or of ranks. Collective over it."""
    comm_id = ctypes.c_int64()
    handle = ctypes.c_uint64(bits & (2**64 - 1))
    name, made = label.encode(), ctypes.byref(comm_id)
    check(lib.plait_registry_add_mpi(handle, size, rank, of_mesh, name, made))
    return comm_id.value


def set_mark(comm_id: int, mark: int) -> None:
    """Sets the text that says who the ranks are; for a communicator that no program knows yet."""
    check(lib.plait_registry_set_mark(comm_id, mark))


def free(comm_id: int) -> None:
    """Frees a communicator of the registry. Collective for MPI."""
    check(lib.plait_registry_free(comm_id))


def comm_size(comm_id: int) -> int:
    """Number of ranks of a communicator of the registry."""
    return lib.plait_comm_size(lib.plait_registry_comm(comm_id))


def comm_rank(comm_id: int) -> int:
    """This process's rank in a communicator of the registry."""
    return lib.plait_comm_rank(lib.plait_registry_comm(comm_id))


def comm_texts(comm_id: int) -> tuple[str, str]:
    """Transport, and how peers' memory is reached."""
    handle = lib.plait_registry_comm(comm_id)
    return lib.plait_comm_transport(handle).decode(), lib.plait_comm_direct(handle).decode()


def bind_mpi(path: str) -> None:
    """Looks MPI's functions up in the libraries that the shared object ``path`` depends on."""
    check(lib.plait_mpi_bind(path.encode()))


def settle_by(wait: Callable[[], object]) -> None:
    """Has `wait` called before MPI's own Free() of a communicator takes effect, or MPI_Finalize."""
    _settle.append(ctypes.CFUNCTYPE(None)(wait))
    lib.plait_mpi_set_settle(_settle[-1])


_settle: list = []  # keeps the callback alive: the core calls it as long as the process lives


def keep_status(address: int) -> int:
    """Id under which programs know an MPI_Status."""
    status_id = ctypes.c_int64()
    check(lib.plait_matched_keep(address, ctypes.byref(status_id)))
    return status_id.value


def forget_started(number: int) -> None:
    """Says that nobody will wait for this started operation."""
    lib.plait_started_forget(number)


def started() -> int:
    """How many started operations nobody has waited for yet."""
    return lib.plait_started_count()


def forget_status(status_id: int) -> None:
    """Frees the number for another MPI_Status."""
    lib.plait_matched_forget(status_id)


def alloc_balance() -> int:
    """Number of the library's allocations that are not freed."""
    return lib.plait_alloc_balance()


def put_site(number: int, text: str) -> int:
    """The number under which the core knows this call site."""
    return lib.plait_site_put(number, text.encode(errors="replace"))


def site_text(number: int) -> str:
    """``file:line`` of a call site's number; empty if it has none."""
    return lib.plait_site_text(number).decode()


def trace_start(is_on: bool) -> None:
    """Empties the log of executed operations and starts or stops it."""
    lib.plait_trace_start(int(is_on))


def trace() -> list[str]:
    """The log: ``thread rank status title`` of each executed operation, in order."""
    text = ctypes.create_string_buffer(512)
    lines = []
    for i in range(lib.plait_trace_count()):
        lib.plait_trace_read(i, text, len(text))
        lines.append(text.value.decode())
    return lines


def trace_part() -> str:
    """The file that this process writes its part of the trace to; empty without PLAIT_TRACE."""
    return os.fsdecode(lib.plait_trace_part())


def flight_path() -> str:
    """The file of this process's flight recorder; empty if it is in memory only."""
    return os.fsdecode(lib.plait_trace_flight_path())


def flight_memory() -> tuple[int, int]:
    """Address and size of this process's flight recorder; 0 if it has none."""
    n_bytes = ctypes.c_int64()
    address = lib.plait_trace_flight(ctypes.byref(n_bytes))
    return address or 0, n_bytes.value


def memory(address: int, n_bytes: int) -> bytes:
    """A copy of the library's memory."""
    return ctypes.string_at(address, n_bytes)


def record_folders() -> list[str]:
    """Folders in which flight recorders of this user may be."""
    path = ctypes.create_string_buffer(512)
    found = []
    while lib.plait_record_folder(len(found), path, len(path)):
        found.append(os.fsdecode(path.value))
    return list(dict.fromkeys(filter(None, found)))  # empty: the name is too long


def shutdown(limit_s: float) -> int:
    """Refuses new operations and waits for those in flight; returns how many were left."""
    return lib.plait_shutdown(int(limit_s * 1e9))
