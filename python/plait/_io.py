"""Global arrays and the world outside: parts of processes, host memory, files."""

import contextlib
import functools
import itertools
import math
import operator
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from plait import _args, _boxes, _errors, _files, _mesh, _mesh_rules, _move, _team
from plait._boxes import Box

Parts = list[tuple[np.ndarray, Box]]  # data of this process, and where they lie

SLAB_BYTES = 4 << 20
SHORT_BYTES = 128 << 10  # of a run: a system call costs as much as copying so many


def _array(x: Any, name: str) -> Array:
    x = _args.as_array(x, name)
    if isinstance(x, jax.core.Tracer):
        raise TypeError(f"{name}: needs an array with values; call it outside jax.jit")
    return _errors.block(x)


def _check_sharding(sharding: Any, name: str) -> None:
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        raise TypeError(
            f"{name}: sharding is {type(sharding).__name__}; expected "
            "jax.sharding.NamedSharding(mesh, spec)"
        )


def _is_mine(device: Any) -> bool:
    return device.process_index == jax.process_index()


def _memory(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Host memory that XLA's CPU client takes as it is, without a copy: at a multiple of 64 B."""
    n = math.prod(shape) * dtype.itemsize
    room = np.empty(n + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + n].view(dtype).reshape(shape)


def _copied(part: np.ndarray, dtype: Any) -> np.ndarray:
    copy = _memory(part.shape, dtype)
    copy[...] = part
    return copy


def _assemble(
    sharding: NamedSharding, dims: tuple[int, ...], parts: dict[Any, np.ndarray], dtype: Any
) -> Array:
    """The global array from the data of this process's devices, with zeros elsewhere."""
    shard = sharding.shard_shape(dims)
    arrays = []
    for device, part in parts.items():
        whole = part
        if part.shape != shard:
            whole = _memory(shard, dtype)
            whole[...] = 0
            whole[tuple(slice(0, n) for n in part.shape)] = part
        arrays.append(jax.device_put(whole, device))
    return jax.make_array_from_single_device_arrays(dims, sharding, arrays, dtype=dtype)


# ---- parts of processes --------------------------------------------------------------------------


def from_local(local: Any, sharding: NamedSharding, *, shape: Sequence[int]) -> Array:
    """Make a global array from the parts that the processes have.

    ``local`` is this process's part, or a list with one part for each of its devices, in the order
    of the mesh. ``shape`` is the shape of the whole data. Each part is what its device owns of the
    data, so the last parts are smaller, or empty, if the mesh does not divide the shape. The array
    is padded with zeros at its tail to extents that the mesh divides.

    Collective: no; nothing is communicated.
    Shapes: the parts of ``shape`` to ``shape``, rounded up along each split axis.
    Raises: ValueError for a part that is not what its device owns; the text says what it owns.
    Adjoint: none.  Source: own.

    Example:
        >>> import plait, jax, numpy as np
        >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        >>> rows = NamedSharding(Mesh(jax.devices()[:1], "x"), P("x"))
        >>> plait.from_local(np.arange(3), rows, shape=(3,)).tolist()
        [0, 1, 2]
    """
    try:
        data = tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(f"from_local: shape is {shape!r}; expected integers") from None
    _check_sharding(sharding, "from_local")
    names = _mesh.names_of(sharding.spec, len(data), "from_local")
    dims = _mesh_rules.padded(sharding.mesh, data, names)
    boxes = {d: b for d, b in _boxes.of_devices(sharding, dims, data).items() if _is_mine(d)}
    given = list(local) if isinstance(local, list | tuple) else [local]
    if len(given) != len(boxes):
        raise ValueError(f"from_local: {len(given)} parts for {len(boxes)} devices of this process")
    parts = {d: np.asarray(part) for d, part in zip(boxes, given, strict=True)}
    for i, (device, part) in enumerate(parts.items()):
        if part.shape != _boxes.extents(boxes[device]):
            raise ValueError(
                f"from_local: part {i} has shape {part.shape}; device {device.id} owns "
                f"{_boxes.extents(boxes[device])} of {data}"
            )
    dtypes = {part.dtype for part in parts.values()}
    if len(dtypes) > 1:
        raise ValueError(
            f"from_local: parts of {', '.join(sorted(map(str, dtypes)))}; expected one dtype"
        )
    dtype = jax.dtypes.canonicalize_dtype(dtypes.pop() if dtypes else np.float32)
    return _assemble(sharding, dims, {d: _copied(p, dtype) for d, p in parts.items()}, dtype)


def to_local(x: Array, *, shape: Sequence[int] | None = None) -> list[np.ndarray]:
    """The parts of a global array that this process has, one for each of its devices.

    They are in the order of the mesh. ``shape`` is the shape of the data in an array with padding
    at its tail; the parts are cut to it. The inverse of `from_local`.

    Collective: no; nothing is communicated.  Shapes: any to the parts.
    Raises: ValueError for a shape that is not in the array.
    Adjoint: none.  Source: own.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> [part.tolist() for part in plait.to_local(jnp.arange(4), shape=(3,))]
        [[0, 1, 2]]
    """
    x = _array(x, "to_local")
    data = _mesh.data_of(shape, x.shape, 0, "to_local")
    parts = _boxes.parts(x)
    boxes = _boxes.of_devices(x.sharding, x.shape, data)
    return [np.asarray(parts[d])[_boxes.within(box)] for d, box in boxes.items() if d in parts]


def gather_to_host(
    x: Array, *, shape: Sequence[int] | None = None, root: int | None = None
) -> np.ndarray | None:
    """Gather a whole global array into the host memory of every process, or of ``root`` alone.

    ``shape`` is the shape of the data in an array with padding at its tail. ``root`` is an index
    among the processes that have a part of the array; the others get None.

    Collective: over the processes of the array; outside jit.  Shapes: any to the same, or
    ``shape``.
    Raises: ValueError for a root that is not a process, and on a process that has no part of the
    array.
    Adjoint: none.  Source: own.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.gather_to_host(jnp.arange(4), shape=(3,))
        array([0, 1, 2]...)
    """
    x = _array(x, "gather_to_host")
    data = _mesh.data_of(shape, x.shape, 0, "gather_to_host")
    team = _team.Team(x.sharding.device_set, "gather_to_host")
    if root is not None and not 0 <= operator.index(root) < len(team.processes):
        raise ValueError(
            f"gather_to_host: root is {root}; {len(team.processes)} processes have a part of "
            f"the array, expected 0 to {len(team.processes) - 1}"
        )
    owned, parts = _boxes.owned(_boxes.of_devices(x.sharding, x.shape, data)), _boxes.parts(x)
    mine = [(np.asarray(parts[d])[_boxes.within(b)], b) for d, b in owned.items() if d in parts]
    comm = team.comm
    if comm is not None:
        flat = _flat(mine, x.dtype)
        every = [[b for d, b in owned.items() if d.process_index == p] for p in team.processes]
        counts = [sum(map(_boxes.size, boxes)) * x.dtype.itemsize for boxes in every]
        if root is None:
            flat = np.asarray(_move.allgatherv(flat, counts, comm=comm))
        else:
            flat = np.asarray(_move.gatherv(flat, counts, root, comm=comm))
            if comm.rank != root:
                return None
        mine = list(_apart(flat, itertools.chain(*every), x.dtype))
    whole = np.empty(data, x.dtype)
    for part, box in mine:
        whole[_boxes.place(box)] = part
    return whole


def _flat(parts: Parts, dtype: Any) -> np.ndarray:
    """The bytes of the parts, one after the other."""
    flat = np.empty(sum(part.nbytes for part, _ in parts), np.uint8)
    rooms = _apart(flat, [box for _, box in parts], dtype)
    for (room, _), (part, _) in zip(rooms, parts, strict=True):
        room[...] = part
    return flat


def _apart(flat: np.ndarray, boxes: Iterable[Box], dtype: Any) -> Iterator[tuple[np.ndarray, Box]]:
    """The parts in these bytes, with their boxes."""
    at = 0
    for box in boxes:
        n = _boxes.size(box) * dtype.itemsize
        yield flat[at : at + n].view(dtype).reshape(_boxes.extents(box)), box
        at += n


# ---- files ---------------------------------------------------------------------------------------


def _move_all(move: Callable, view: memoryview, offset: int) -> None:
    """Pread or pwrite of all bytes: one call may do less."""
    while len(view) > 0:
        n = move([view[: 1 << 30]], offset)
        if n == 0:
            raise OSError("the file ends before its array does")
        view, offset = view[n:], offset + n


def _transfer(move: Callable, part: np.ndarray, box: Box, shape: tuple, offset: int) -> None:
    for start, index, _ in _boxes.runs(box, shape):
        view = memoryview(part[(*index, ...)].reshape(-1).view(np.uint8))
        _move_all(move, view, offset + start * part.itemsize)


def _transfer_all(move: Callable, parts: Parts, shape: tuple, offset: int, is_read: bool) -> None:
    """Moves all parts of this process; those of short runs by slabs of the box they make up."""
    whole = _boxes.union([box for _, box in parts])
    if whole is None or not _has_short_runs(parts, whole, shape):
        for part, box in parts:
            _transfer(move, part, box, shape, offset)
        return
    dtype = parts[0][0].dtype
    for slab in _boxes.slabs(whole, SLAB_BYTES // dtype.itemsize):
        room = np.empty(_boxes.extents(slab), dtype)
        shared = [(part, box, _boxes.overlap(box, slab)) for part, box in parts]
        pairs = [
            (room[_boxes.relative(both, slab)], part[_boxes.relative(both, box)])
            for part, box, both in shared
            if _boxes.size(both)
        ]
        if not is_read:
            _copy(pairs)
        _transfer(move, room, slab, shape, offset)
        if is_read:
            _copy((part, piece) for piece, part in pairs)


def _copy(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
    for there, here in pairs:
        there[...] = here


def _has_short_runs(parts: Parts, whole: Box, shape: tuple) -> bool:
    """Whether system calls cost more than another copy, and the whole takes fewer of them."""

    def run(box: Box) -> int:
        return next((n for _, _, n in _boxes.runs(box, shape)), 0)

    longest, itemsize = max(run(box) for _, box in parts), parts[0][0].itemsize
    return longest * itemsize < SHORT_BYTES and longest < run(whole)


def _together(team: _team.Team, act: Callable[[], Any]) -> Any:
    """Does something on this process; if it fails on one, all raise the error of that process.

    This covers any error: the others wait for this process.
    """
    made, failure = None, ""
    try:
        made = act()
    except Exception as error:
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        failure = f"{team.name}: {kind}{error}"
    team.agree(failure)
    return made


def _agree(team: _team.Team, mean: Callable[[], tuple[str, Any]]) -> Any:
    """The intent of this process; by their texts, all must have the same, or all raise every text.

    If finding it fails on one process, the others learn why: they wait for that process.
    """
    try:
        text, meant = mean()
    except Exception as error:
        team.tell(f"{type(error).__name__}: {error}")
        raise
    seen = team.tell(text)
    if len(set(seen)) > 1:
        raise _errors.MismatchError(f"{team.name}: the processes do not agree: {seen}")
    return meant


def _create(path: str, dtype: np.dtype, data: tuple[int, ...]) -> tuple[str, int]:
    """A file beside ``path`` of the right size, with its header; returns its name and data offset.

    It is readable for nobody who could not read the file that it will replace.
    """
    path = _files.replaceable(path)  # a link stays a link
    name = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.part")
    with open(name, "xb") as file:
        try:
            _give_mode(name, path, stat.S_IWUSR)
            descr = np.lib.format.dtype_to_descr(dtype)
            header = {"descr": descr, "fortran_order": False, "shape": data}
            np.lib.format.write_array_header_1_0(file, header)
            offset = file.tell()
            file.truncate(offset + math.prod(data) * dtype.itemsize)
        except BaseException:
            _remove(name)
            raise
    return name, offset


def _give_mode(name: str, path: str, more: int = 0) -> None:
    """Gives the file the mode of the file at ``path``, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        os.chmod(name, stat.S_IMODE(os.stat(path).st_mode) | more)


def _put_in_place(name: str, path: str) -> None:
    path = _files.replaceable(path)
    _give_mode(name, path)  # after writing: the mode may be read-only
    os.replace(name, path)


def _remove(name: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(name)


def _write(name: str, parts: Parts, data: tuple, offset: int) -> None:
    handle = os.open(name, os.O_WRONLY)
    try:
        move = functools.partial(os.pwritev, handle)
        _transfer_all(move, parts, data, offset, is_read=False)
        os.fsync(handle)
    finally:
        os.close(handle)


def _numpy_dtype(dtype: Any) -> np.dtype:
    """The dtype as NumPy's files know it."""
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        raise ValueError(
            f"save: NumPy's files have no dtype {dtype}; save jax.random.key_data(x) instead"
        )
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc" or np.dtype(dtype.type).isbuiltin != 1:  # e.g. float8_e5m2
        raise ValueError(f"save: NumPy's files have no dtype {dtype}; convert x to float32 first")
    return dtype


def _file_of(
    path: str | os.PathLike[str], x: Array, shape: Sequence[int] | None
) -> tuple[str, tuple[str, np.dtype, tuple[int, ...]]]:
    """The name, dtype and shape of an array's file, and the text that all must have alike."""
    data = _mesh.data_of(shape, x.shape, 0, "save")
    dtype, name = _numpy_dtype(x.dtype), os.fsdecode(path)
    spec = getattr(x.sharding, "spec", "")
    return f"{name}, {dtype} {data} of {x.shape} {spec}", (name, dtype, data)


def save(path: str | os.PathLike[str], x: Array, *, shape: Sequence[int] | None = None) -> None:
    """Write a global array to one file of NumPy's format (.npy), from all processes at once.

    Each process writes its parts into their places. The file appears under its name when it is
    complete, or not at all; it replaces an existing file, and of a link the file it points to.
    `load` and ``numpy.load`` read it, on any number of processes. ``shape`` is the shape of the
    data in an array with padding at its tail; the padding is not written.

    Collective: over the processes of the array; outside jit.  Shapes: any.
    Raises: OSError on every process if one cannot write (the text says which and why), or if a
    device, a pipe or a folder is there; MismatchError on every process if paths, dtypes, shapes or
    shardings differ; ValueError for a shape that is not in the array, for a dtype that the format
    does not have (bfloat16, float8), and on a process that has no part of the array. If only one
    process gets such an error, the others raise a MismatchError with its text.
    Adjoint: none.  Source: the format is that of ``numpy.lib.format``, version 1.0.

    Example:
        >>> import plait, jax.numpy as jnp, numpy as np, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     plait.save(folder + "/x.npy", jnp.arange(3))
        ...     np.load(folder + "/x.npy")
        array([0, 1, 2]...)
    """
    x = _array(x, "save")
    team, parts = _team.Team(x.sharding.device_set, "save"), _boxes.parts(x)
    path, dtype, data = _agree(team, lambda: _file_of(path, x, shape))
    owned = _boxes.owned(_boxes.of_devices(x.sharding, x.shape, data))
    mine = [
        (np.ascontiguousarray(np.asarray(parts[d])[_boxes.within(b)]), b)
        for d, b in owned.items()
        if d in parts
    ]
    made = _together(team, lambda: _create(path, dtype, data) if team.is_first else None)
    text = f"{made[1]} {made[0]}" if made else ""
    offset, _, name = os.fsdecode(team.gather(os.fsencode(text))[0]).partition(" ")
    try:
        _together(team, lambda: _write(name, mine, data, int(offset)))
        _together(team, lambda: _put_in_place(name, path) if team.is_first else None)
    except BaseException:
        if team.is_first:
            _remove(name)
        raise


def _header(path: str) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape, dtype, and data offset."""
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, is_fortran, dtype = read(file)
        except Exception as error:  # NumPy's parser may raise anything for a damaged file
            raise OSError(f"{path} is no .npy file that plait reads: {error}") from None
        offset, n_bytes = file.tell(), os.fstat(file.fileno()).st_size
    if is_fortran and len(shape) > 1:
        raise OSError(
            f"{path} is in Fortran order; write numpy.ascontiguousarray(a) with numpy.save instead"
        )
    if dtype.kind not in "biufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise OSError(f"{path} has dtype {dtype}; expected numbers of at most 64 bits")
    if any(n < 0 for n in shape) or offset + math.prod(shape) * dtype.itemsize > n_bytes:
        raise OSError(f"{path}: the file ends before its array does, whose shape is {shape}")
    return shape, dtype, offset


def _native(dtype: np.dtype, path: str) -> np.dtype:
    """In this machine's byte order, as JAX has it."""
    native = dtype.newbyteorder("=")
    if jax.dtypes.canonicalize_dtype(native) != native:
        raise ValueError(
            f"load: {path} has dtype {dtype}, which JAX has switched off; "
            'call jax.config.update("jax_enable_x64", True) first'
        )
    return native


def _read(path: str, boxes: dict, shape: tuple, dtype: np.dtype, offset: int) -> dict:
    parts = [(_memory(_boxes.extents(box), dtype), box) for box in boxes.values()]
    handle = os.open(path, os.O_RDONLY)
    try:
        move = functools.partial(os.preadv, handle)
        _transfer_all(move, parts, shape, offset, is_read=True)
    finally:
        os.close(handle)
    return {device: part for device, (part, _) in zip(boxes, parts, strict=True)}


def load(path: str | os.PathLike[str], sharding: NamedSharding) -> Array:
    """Read a file of NumPy's format (.npy) as a global array; each process reads its parts.

    If the mesh does not divide the shape in the file, the array is padded with zeros at its tail
    (``numpy.load(path, mmap_mode="r").shape`` is the shape of the data).

    Collective: over the processes of the mesh; outside jit.
    Shapes: that of the file, rounded up along each split axis.
    Raises: OSError on every process if one cannot read (the text says which and why), or the file
    is in Fortran order; MismatchError on every process if paths or specs differ, or the shapes or
    dtypes of the files they see (copies on local disks, for instance; their numbers are not
    compared); ValueError for a spec that does not fit, 64-bit numbers where JAX has them off, and
    on a process that has no device of the sharding.
    Adjoint: none.  Source: the format is that of ``numpy.lib.format``.

    Example:
        >>> import plait, jax, numpy as np, tempfile
        >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        >>> rows = NamedSharding(Mesh(jax.devices()[:1], "x"), P("x"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(folder + "/x.npy", np.arange(3, dtype=np.int32))
        ...     plait.load(folder + "/x.npy", rows).tolist()
        [0, 1, 2]
    """
    path = os.fsdecode(path)
    _check_sharding(sharding, "load")
    team = _team.Team(sharding.device_set, "load")
    shape, dtype, offset = _together(team, lambda: _header(path))
    # perhaps each from its own disk, but under one name: other names are different files
    text = f"{path}, {dtype} {shape}, {sharding.spec}"
    native = _agree(team, lambda: (text, _native(dtype, path)))
    names = _mesh.names_of(sharding.spec, len(shape), "load")
    dims = _mesh_rules.padded(sharding.mesh, shape, names)
    boxes = {d: b for d, b in _boxes.of_devices(sharding, dims, shape).items() if _is_mine(d)}
    parts = _together(team, lambda: _read(path, boxes, shape, dtype, offset))
    parts = {d: p.astype(native, copy=False) for d, p in parts.items()}
    return _assemble(sharding, dims, parts, native)
