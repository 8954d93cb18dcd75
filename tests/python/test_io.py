"""Parts of processes, host memory and files, in one process with several devices."""

import math
import os
import socket

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _boxes, _io

SPECS = [
    ((1,), P("a")),
    ((2,), P("a")),
    ((2,), P(None, "a")),
    ((4,), P(None, None, "a")),
    ((2, 2), P("a", "b")),
    ((2, 2), P(None, "b", "a")),
    ((2, 2), P("b")),
    ((2, 2), P()),
    ((4, 2), P(("a", "b"), None)),
    ((4, 2), P("b", None, "a")),
    ((8,), P("a")),
]
SHAPES = [(8, 8, 8), (5, 7, 3), (1, 16, 2), (3, 1, 9)]
DTYPES = ["float32", "complex128", "int8", "bool", "uint16"]


def sharding(shape, spec):
    return NamedSharding(meshes.make(shape), spec)


def padded(a, where):
    """The array as JAX stores it: zeros at the tail."""
    return meshes.padded(a, meshes.rounded(a.shape, where.mesh, where.spec), 0)


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("grid", "spec"), SPECS)
def test_files_are_numpys(tmp_path, shape, grid, spec):
    where, path = sharding(grid, spec), tmp_path / "x.npy"
    a = meshes.random(shape, "complex128")
    tail = padded(a, where)
    x = jax.device_put(np.where(tail == 0, 7, tail), where)  # the padding is not written
    plait.save(path, x, shape=shape)
    assert np.array_equal(np.load(path), a)
    np.save(tmp_path / "want.npy", a)
    assert path.read_bytes() == (tmp_path / "want.npy").read_bytes()
    y = plait.load(path, where)
    assert y.sharding == where and np.array_equal(y, tail)
    assert sorted(os.listdir(tmp_path)) == ["want.npy", "x.npy"]


@pytest.mark.parametrize(("grid", "spec"), SPECS)
def test_any_layout_reads_what_any_other_wrote(tmp_path, grid, spec):
    path, a = tmp_path / "x.npy", meshes.random((6, 5, 7))
    first = sharding((4,), P(None, "a"))
    plait.save(path, jax.device_put(padded(a, first), first), shape=a.shape)
    where = sharding(grid, spec)
    assert np.array_equal(plait.load(path, where), padded(a, where))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4,), (), (0, 3), (2, 3, 4, 5)])
def test_dtypes_and_axes(tmp_path, dtype, shape):
    path, a = tmp_path / "x.npy", meshes.random(shape, dtype)
    where = sharding((2,), P("a") if shape[:1] in ((4,), (2,), (0,)) else P())
    plait.save(path, jax.device_put(a, where))
    got = np.load(path)
    assert got.dtype == a.dtype and got.shape == a.shape and np.array_equal(got, a)
    assert np.array_equal(plait.load(path, where), a)
    assert plait.load(path, where).dtype == a.dtype


def test_array_of_one_device_and_other_byte_order(tmp_path):
    path = tmp_path / "x.npy"
    plait.save(str(path), jnp.arange(6).reshape(2, 3))
    assert np.load(path).tolist() == [[0, 1, 2], [3, 4, 5]]
    np.save(path, np.arange(6, dtype=">f8"))
    assert plait.load(path, sharding((2,), P("a"))).tolist() == [0, 1, 2, 3, 4, 5]


def test_file_is_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "x.npy"
    plait.save(path, jnp.arange(3))
    before = path.read_bytes()

    def full(handle, buffers, at):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="rank 0: save: .*No space left"):
        plait.save(path, jnp.arange(4))
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.npy"]


def test_calls_that_do_less_than_asked(tmp_path, monkeypatch):
    write, read = os.pwritev, os.preadv
    monkeypatch.setattr(os, "pwritev", lambda h, b, at: write(h, [b[0][:5]], at))
    monkeypatch.setattr(os, "preadv", lambda h, b, at: read(h, [b[0][:3]], at))
    where, a = sharding((2, 2), P("a", "b")), meshes.random((4, 6))
    plait.save(tmp_path / "x.npy", jax.device_put(a, where))
    assert np.array_equal(np.load(tmp_path / "x.npy"), a)
    assert np.array_equal(plait.load(tmp_path / "x.npy", where), a)


def test_errors_of_files(tmp_path):
    where, path = sharding((2,), P("a")), tmp_path / "x.npy"
    with pytest.raises(OSError, match="rank 0: save: .*No such file"):
        plait.save(tmp_path / "none" / "x.npy", jnp.ones(2))
    with pytest.raises(OSError, match="rank 0: load: .*No such file"):
        plait.load(path, where)
    path.write_bytes(b"what is this?")
    with pytest.raises(OSError, match="no .npy file"):
        plait.load(path, where)
    np.save(path, np.asfortranarray(np.ones((2, 3))))
    with pytest.raises(OSError, match="Fortran order"):
        plait.load(path, where)
    np.save(path, np.array(["text"]))
    with pytest.raises(OSError, match="expected numbers"):
        plait.load(path, where)
    np.save(path, np.ones((4, 4)))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(OSError, match="ends before its array does"):
        plait.load(path, where)
    np.save(path, np.ones(4))
    with pytest.raises(ValueError, match="more entries than the array's 1 axes"):
        plait.load(path, sharding((2,), P(None, "a")))
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        plait.load(path, where)
    with pytest.raises(TypeError, match="expected jax.sharding.NamedSharding"):
        plait.load(path, jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    with pytest.raises(ValueError, match="NumPy's files have no dtype bfloat16"):
        plait.save(path, jnp.ones(2, jnp.bfloat16))
    with pytest.raises(ValueError, match=r"save jax.random.key_data\(x\) instead"):
        plait.save(path, jax.random.key(0))
    with pytest.raises(ValueError, match="says 5 along axis 0"):
        plait.save(path, jnp.ones(4), shape=(5,))
    with pytest.raises(TypeError, match="outside jax.jit"):
        jax.jit(lambda x: plait.save(path, x))(jnp.ones(2))


@pytest.mark.parametrize(
    ("descr", "shape", "text"),
    [
        ("<f8", "(8,", "no .npy file that plait reads"),
        ("<f8", "(-8,), }", "ends before its array does"),
        ("<f8", f"({10**30},), }}", "ends before its array does"),
        ("<f16", "(2,), }", "float128; expected numbers of at most 64 bits"),
    ],
)
def test_damaged_headers(tmp_path, descr, shape, text):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}".encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(OSError, match=text):
        plait.load(path, sharding((2,), P("a")))


def test_what_is_at_the_path(tmp_path):
    """A link stays a link, a private file stays private; any name that NumPy takes."""
    target, link = tmp_path / "target.npy", tmp_path / "link.npy"
    np.save(target, np.zeros(2))
    target.chmod(0o600)
    link.symlink_to(target)
    for path in (link, tmp_path / ("n" * 240 + ".npy"), os.fsencode(tmp_path) + b"/\xff.npy"):
        plait.save(path, jnp.arange(3))
        assert np.load(path).tolist() == [0, 1, 2]
        assert plait.load(path, sharding((1,), P())).tolist() == [0, 1, 2]
    assert link.is_symlink() and target.stat().st_mode & 0o777 == 0o600
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_a_read_only_file_is_replaced(tmp_path, monkeypatch):
    """The new file is written before it becomes read-only, which would stop all but root."""
    path, modes, write = tmp_path / "x.npy", [], _io._write

    def look_and_write(name, *rest):
        modes.append(os.stat(name).st_mode & 0o777)
        write(name, *rest)

    np.save(path, np.zeros(2))
    path.chmod(0o440)
    monkeypatch.setattr(_io, "_write", look_and_write)
    plait.save(path, jnp.arange(3))
    assert np.load(path).tolist() == [0, 1, 2]
    assert modes == [0o640] and path.stat().st_mode & 0o777 == 0o440


def test_what_is_at_the_path_and_no_file(tmp_path, monkeypatch):
    """Nothing is written, and the target stays: else a device would be gone from the machine."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkdir("folder")
    os.symlink("pipe", "link")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, said in [
            ("pipe", "Not a regular file, but a fifo: 'pipe'"),
            ("link", "Not a regular file, but a fifo: 'link'"),
            ("socket", "Not a regular file, but a socket: 'socket'"),
            ("folder", "Is a directory: 'folder'"),
            ("", "No such file or directory: ''"),
            ("new/", "No such file or directory: 'new/'"),
        ]:
            before = os.lstat(name or ".").st_ino if name != "new/" else 0
            with pytest.raises(OSError, match=f"rank 0: save: .*{said}"):
                plait.save(name, jnp.arange(3))
            assert before == 0 or os.lstat(name or ".").st_ino == before
    assert sorted(os.listdir()) == ["folder", "link", "pipe", "socket"] and not os.listdir("folder")


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "int4"])
def test_dtypes_that_files_do_not_know(tmp_path, dtype):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(2))
    with pytest.raises(ValueError, match=f"NumPy's files have no dtype {dtype}"):
        plait.save(path, jnp.ones(2, dtype))
    assert np.load(path).tolist() == [1, 1]


def test_runs_cover_a_box_once():
    for shape, box in [
        ((4, 5, 6), ((1, 3), (0, 5), (0, 6))),
        ((4, 5, 6), ((1, 3), (2, 4), (0, 6))),
        ((4, 5, 6), ((0, 4), (0, 5), (2, 3))),
        ((4, 5, 6), ((0, 4), (0, 5), (0, 6))),
        ((7,), ((2, 5),)),
        ((), ()),
    ]:
        index = np.arange(math.prod(shape)).reshape(shape)
        runs = list(_boxes.runs(box, shape))
        got = [i for start, _, n in runs for i in range(start, start + n)]
        assert got == index[_boxes.place(box)].ravel().tolist()
    assert len(list(_boxes.runs(((1, 3), (0, 5), (0, 6)), (4, 5, 6)))) == 1
    assert list(_boxes.runs(((0, 0), (0, 5)), (4, 5))) == []


def test_slabs_cover_a_box_once():
    for box in [((1, 3), (0, 5), (2, 6)), ((2, 9),), ((0, 1), (3, 8)), ((0, 0), (0, 5))]:
        for n in (1, 4, 7, 100):
            count = np.zeros([hi for _, hi in box], int)
            for slab in _boxes.slabs(box, n):
                count[_boxes.place(slab)] += 1
                assert 0 < math.prod(_boxes.extents(slab)) <= n
            want = np.zeros_like(count)
            want[_boxes.place(box)] = 1
            assert np.array_equal(count, want)


@pytest.mark.parametrize("n_bytes", [8, 48, 200])
@pytest.mark.parametrize(("grid", "spec"), SPECS)
def test_files_by_slabs(tmp_path, monkeypatch, grid, spec, n_bytes):
    """Short runs of one process's devices: the slabs do not end where the parts do."""
    monkeypatch.setattr(_io, "SLAB_BYTES", n_bytes)
    for shape in SHAPES:
        where, a = sharding(grid, spec), meshes.random(shape)
        plait.save(tmp_path / "x.npy", jax.device_put(padded(a, where), where), shape=shape)
        assert np.array_equal(np.load(tmp_path / "x.npy"), a)
        x = plait.load(tmp_path / "x.npy", where)
        assert x.sharding == where and np.array_equal(x, padded(a, where))


# ---- parts and host ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("grid", "spec"), SPECS)
def test_parts_there_and_back(shape, grid, spec):
    where, a = sharding(grid, spec), meshes.random(shape)
    x = jax.device_put(padded(a, where), where)
    parts = plait.to_local(x, shape=shape)
    assert len(parts) == where.mesh.size
    index = where.devices_indices_map(x.shape)
    for device, part in zip(where.mesh.devices.flat, parts, strict=True):
        assert np.array_equal(part, a[index[device]])  # NumPy cuts slices at the end
    y = plait.from_local(parts, where, shape=shape)
    assert y.sharding == where and np.array_equal(y, x)
    assert np.array_equal(plait.gather_to_host(x, shape=shape), a)
    assert np.array_equal(plait.gather_to_host(x), x)
    assert np.array_equal(plait.gather_to_host(x, shape=shape, root=0), a)


def test_errors_of_parts():
    where = sharding((2,), P("a"))
    with pytest.raises(ValueError, match="1 parts for 2 devices"):
        plait.from_local(np.ones(2), where, shape=(4,))
    with pytest.raises(ValueError, match=r"part 1 has .*; device 1 owns \(1,\) of \(3,\)"):
        plait.from_local([np.ones(2), np.ones(2)], where, shape=(3,))
    with pytest.raises(ValueError, match="float32, float64; expected one dtype"):
        plait.from_local([np.ones(2), np.ones(2, "float32")], where, shape=(4,))
    with pytest.raises(TypeError, match="expected integers"):
        plait.from_local([], where, shape=(2.5,))
    with pytest.raises(ValueError, match="root is 1; 1 processes"):
        plait.gather_to_host(jnp.ones(2), root=1)


def test_results_of_transforms_go_out(tmp_path):
    """A padded spectrum of a size that the mesh does not divide."""
    a = meshes.random((5, 6, 7))
    where = sharding((2, 2), P("a", "b"))
    x = plait.from_local(_split(a, where), where, shape=a.shape)
    y = plait.fft.pfft3d(x, shape=a.shape)
    plait.save(tmp_path / "y.npy", y, shape=a.shape)
    assert np.allclose(np.load(tmp_path / "y.npy"), np.fft.fftn(a))
    assert np.allclose(plait.gather_to_host(y, shape=a.shape), np.fft.fftn(a))


def _split(a, where):
    index = where.devices_indices_map(padded(a, where).shape)
    return [a[index[device]] for device in where.mesh.devices.flat]
