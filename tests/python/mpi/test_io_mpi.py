"""Parts, host memory and files on ranks."""

import os
import pathlib

import jax
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _io


@pytest.fixture
def folder(world, tmp_path):
    """One folder for all ranks."""
    return pathlib.Path(world.bcast(str(tmp_path)))


def shardings():
    n = jax.device_count()
    line = meshes.make((n,))
    pair = meshes.make((2, n // 2)) if n % 2 == 0 else meshes.make((n, 1))
    return [
        NamedSharding(line, P("a")),
        NamedSharding(line, P(None, "a")),
        NamedSharding(line, P()),
        NamedSharding(pair, P("b", "a")),
        NamedSharding(pair, P("b")),
        NamedSharding(pair, P(None, None, ("b", "a"))),
    ]


def whole(where, shape):
    """The data, and an array of the data with a tail that is no data."""
    a = meshes.random(shape)
    names = [() if e is None else (e,) if isinstance(e, str) else e for e in where.spec]
    names += [()] * (len(shape) - len(names))
    parts = [int(np.prod([where.mesh.shape[n] for n in axes])) for axes in names]
    tail = np.pad(a, [(0, -n % k) for n, k in zip(shape, parts, strict=True)], constant_values=7)
    return a, jax.make_array_from_callback(tail.shape, where, lambda i: tail[i])


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("shape", [(4, 6, 12), (5, 7, 3)])
def test_all_ways(world, folder, number, shape):
    where, path = shardings()[number], folder / "x.npy"
    a, x = whole(where, shape)
    plait.save(path, x, shape=shape)
    assert np.array_equal(np.load(path), a)
    for other in shardings():
        y = plait.load(path, other)
        for part, shard in zip(plait.to_local(y, shape=shape), y.addressable_shards, strict=True):
            assert np.array_equal(part, a[shard.index])
            assert np.sum(np.asarray(shard.data) != 0) == part.size
    assert np.array_equal(plait.gather_to_host(x, shape=shape), a)
    for root in range(world.size):
        got = plait.gather_to_host(x, shape=shape, root=root)
        assert np.array_equal(got, a) if world.rank == root else got is None
    back = plait.from_local(plait.to_local(x, shape=shape), where, shape=shape)
    assert back.shape == x.shape and np.array_equal(plait.gather_to_host(back, shape=shape), a)
    world.Barrier()
    assert os.listdir(folder) == ["x.npy"]


@pytest.mark.parametrize("last", [False, True])
def test_one_rank_that_cannot_write(world, folder, last, monkeypatch):
    where, path = shardings()[0], folder / "x.npy"
    _, x = whole(where, (4 * world.size, 2))
    guilty = world.size - 1 if last else 0

    def fails(*given):
        raise PermissionError(13, "Permission denied")

    if world.rank == guilty:
        monkeypatch.setattr(os, "pwritev", fails)
    with pytest.raises(OSError, match=f"rank {guilty}: save: .*Permission denied"):
        plait.save(path, x)
    world.Barrier()
    assert os.listdir(folder) == []


def test_one_rank_that_cannot_read(world, folder, monkeypatch):
    where, path = shardings()[0], folder / "x.npy"
    if world.rank == 0:
        np.save(path, np.ones(4 * world.size))
    world.Barrier()

    def fails(path):
        raise FileNotFoundError(2, "No such file or directory")

    if world.rank == world.size - 1:
        monkeypatch.setattr(_io, "_header", fails)
    with pytest.raises(OSError, match=f"rank {world.size - 1}: load: .*No such file"):
        plait.load(path, where)


def test_one_rank_whose_file_is_damaged(world, tmp_path):
    path = tmp_path / f"{world.rank}.npy"
    np.save(path, np.zeros(8))
    if world.rank == world.size - 1:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (8,"
        path.write_bytes(b"\x93NUMPY\x01\x00" + bytes([len(header), 0]) + header + bytes(64))
    with pytest.raises(OSError, match=f"rank {world.size - 1}: load: .* no .npy file"):
        plait.load(path, shardings()[0])


def test_ranks_that_see_different_files(world, tmp_path):
    if world.size == 1:
        pytest.skip("needs two ranks")
    np.save(tmp_path / "x.npy", np.ones(4 + world.rank))
    with pytest.raises(plait.MismatchError, match="do not agree"):
        plait.load(tmp_path / "x.npy", shardings()[0])


def test_ranks_that_load_different_files(world, folder):
    """Files of one shape and dtype, as under a name made of the rank."""
    if world.size == 1:
        pytest.skip("needs two ranks")
    np.save(folder / f"x{world.rank}.npy", np.full(4, world.rank))
    with pytest.raises(plait.MismatchError, match=r"do not agree: .*x0\.npy.*x1\.npy"):
        plait.load(folder / f"x{world.rank}.npy", shardings()[0])


def test_ranks_of_which_one_saves_and_the_others_load(world, folder):
    """All ranks raise, and the existing file stays."""
    if world.size == 1:
        pytest.skip("needs two ranks")
    where, path = shardings()[0], folder / "x.npy"
    _, x = whole(where, (4 * jax.device_count(), 2))
    plait.save(path, x)
    before = np.load(path)
    with pytest.raises(
        plait.MismatchError, match="different functions: save on rank 0, load on rank"
    ):
        plait.save(path, x) if world.rank == 0 else plait.load(path, where)
    world.Barrier()
    assert np.array_equal(np.load(path), before)
    assert np.array_equal(plait.gather_to_host(plait.load(path, where)), before)


@pytest.mark.parametrize(
    "wrong, error, told",
    [
        ({"shape": (1 << 20, 2)}, ValueError, "where the array has"),
        ({"shape": "all"}, TypeError, "expected one integer for each axis"),
        ({"path": 7}, TypeError, "expected str, bytes or os.PathLike"),
    ],
)
def test_one_rank_that_is_refused(world, folder, wrong, error, told):
    """The refused rank raises its error, the others its text: else they would wait for it."""
    if world.size == 1:
        pytest.skip("needs two ranks")
    where, path = shardings()[0], folder / "x.npy"
    a, x = whole(where, (4 * jax.device_count(), 2))
    given = {"path": path, "x": x}
    if world.rank == world.size - 1:
        given |= wrong
    else:
        error, told = plait.MismatchError, f"{error.__name__}: .*{told}"
    with pytest.raises(error, match=told):
        plait.save(**given)
    world.Barrier()
    assert os.listdir(folder) == []
    plait.save(path, x)
    assert np.array_equal(plait.gather_to_host(plait.load(path, where)), a)


def test_a_pipe_on_the_way_is_an_error_on_all(world, folder):
    path = folder / "pipe"
    if world.rank == 0:
        os.mkfifo(path)
    _, x = whole(shardings()[0], (4 * world.size, 2))
    with pytest.raises(OSError, match="rank 0: save: .*Not a regular file, but a fifo"):
        plait.save(path, x)
    world.Barrier()
    assert path.is_fifo() and os.listdir(folder) == ["pipe"]


@pytest.mark.parametrize("what", ["shape", "dtype", "path"])
def test_ranks_that_save_different_things(world, folder, what):
    """Nothing is written."""
    if world.size == 1:
        pytest.skip("needs two ranks")
    where, rank = shardings()[0], world.rank if what != "dtype" else 0
    n = 4 * jax.device_count()
    x = jax.make_array_from_callback(
        (n,), where, lambda i: np.ones(n, "i2" if what == "dtype" and world.rank else "f4")[i]
    )
    data = (n - rank,) if what == "shape" else None
    path = folder / (f"x{rank}.npy" if what == "path" else "x.npy")
    with pytest.raises(plait.MismatchError, match="do not agree"):
        plait.save(path, x, shape=data)
    world.Barrier()
    assert not list(folder.glob("*.npy"))


def test_under_set_mesh(world, folder):
    """Messages between processes are no arrays of the mesh."""
    where = shardings()[0]
    a, x = whole(where, (4 * jax.device_count(), 3))
    with jax.set_mesh(where.mesh):
        plait.save(folder / "x.npy", x)
        plait.barrier()
        assert np.array_equal(np.load(folder / "x.npy"), a)
        y = plait.load(folder / "x.npy", where)
        assert np.array_equal(plait.gather_to_host(y), a)
        assert np.array_equal(plait.gather_to_host(x, root=world.size - 1), a) or (
            world.rank < world.size - 1
        )
        assert plait.allreduce(np.float64(world.rank), plait.MAX) == world.size - 1
        mesh = plait.fft.autotune((max(4, jax.device_count()),) * 3, repeats=1, file="")
    assert mesh.devices.size == jax.device_count()


def test_a_process_without_a_part(world, folder):
    """A process without a part would write a file of zeros in the place of the others' file."""
    where = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("a",)), P("a"))
    a, path = np.arange(4.0), folder / "x.npy"
    x = jax.make_array_from_callback(a.shape, where, lambda i: a[i], dtype=a.dtype)
    if world.rank > 0:
        calls = {
            "save": lambda: plait.save(path, x),
            "load": lambda: plait.load(path, where),
            "gather_to_host": lambda: plait.gather_to_host(x),
        }
        for name, call in calls.items():
            with pytest.raises(ValueError, match=f"{name}: called on process {world.rank}, which"):
                call()
    else:
        plait.save(path, x)
    world.Barrier()
    assert np.array_equal(np.load(path), a)
