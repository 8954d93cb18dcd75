"""plait.fft.autotune on ranks: all choose alike, whatever each rank has measured or remembers."""

import jax
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import NamedSharding
from plait import _tune


def put(a, mesh):
    where = NamedSharding(mesh, mesh.spec)
    return jax.make_array_from_callback(a.shape, where, lambda i: a[i])


def same(x, whole, tolerance):
    for shard in x.addressable_shards:
        assert np.allclose(shard.data, whole[shard.index], rtol=0, atol=tolerance)


def everyone(world, value):
    """The value, which must be equal on all ranks."""
    values = world.allgather(value)
    assert all(v == values[0] for v in values), values
    return values[0]


def outcome(mesh):
    rows = [(r.grid, r.layout, r.settings, r.seconds, r.rounds, r.reason) for r in mesh.table]
    return mesh.devices.shape, mesh.layout, mesh.settings, mesh.is_remembered, rows


@pytest.fixture
def file(world, tmp_path):
    """A separate file for each rank."""
    return tmp_path / f"rank{world.rank}" / "tune.json"


@pytest.fixture
def shape():
    n = jax.device_count()
    return (4 * n, 2 * n, 3 * n)


def test_mesh_works(world, shape, file):
    mesh = plait.fft.autotune(shape, dtype="complex128", repeats=2, file=file)
    everyone(world, outcome(mesh))
    a = meshes.random(shape, "complex128")
    x = put(a, mesh)
    for settings in [mesh.settings, *(row.settings for row in mesh.table if row.seconds)]:
        with plait.config.set(**settings):
            y = plait.fft.pfft3d(x, layout=mesh.layout)
            same(y, np.fft.fftn(a), 1e-10)
            same(plait.fft.pifft3d(y, layout=mesh.layout), a, 1e-13)


def test_the_slowest_rank_counts(world, shape, monkeypatch):
    """Each rank finds another candidate fastest; the candidate that is slow on no rank wins."""
    n, grids = world.size, _tune.grids(jax.device_count())

    def seconds(trial, op, team):
        layout = ("transposed", "natural").index(trial.layout)
        if layout == 1:
            return 1.5 + 0.01 * grids.index(trial.mesh.devices.shape)
        return 0.9 if world.rank == 0 and n > 1 else 2.0

    monkeypatch.setattr(_tune.Trial, "seconds", seconds)
    mesh = plait.fft.autotune(shape, repeats=3, file="")
    _, layout, _, _, rows = everyone(world, outcome(mesh))
    assert layout == "natural" and mesh.devices.shape == grids[0]
    assert {row[3]["pfft3d"] for row in rows if row[1] == "transposed"} == {2.0}


def test_first_rank_remembers_for_all(world, shape, file, monkeypatch):
    first = plait.fft.autotune(shape, repeats=1, file=file)
    assert everyone(world, first.is_remembered) is False
    assert file.exists() == (world.rank == 0)
    monkeypatch.setattr(_tune, "measure", None)
    second = plait.fft.autotune(shape, repeats=1, file=file)
    everyone(world, outcome(second))
    assert second.is_remembered and second.table == first.table


def test_more_rounds_than_the_first_rank_remembers(world, shape, file):
    for rounds, is_remembered in ((1, False), (2, False), (1, True)):
        mesh = plait.fft.autotune(shape, repeats=rounds, file=file)
        everyone(world, outcome(mesh))
        assert mesh.is_remembered == is_remembered and mesh.table[0].rounds >= rounds


def test_a_file_that_is_not_plaits(world, shape, file, recwarn):
    file.parent.mkdir()
    file.write_text("notes")
    mesh = plait.fft.autotune(shape, repeats=1, file=file)
    assert everyone(world, mesh.is_remembered) is False and file.read_text() == "notes"
    said = [str(w.message) for w in recwarn if "measurements are not kept" in str(w.message)]
    assert len(said) == (world.rank == 0)


def test_ranks_that_ask_for_different_things(world, shape, file):
    if world.size == 1:
        pytest.skip("needs two ranks")
    mine = shape if world.rank == 0 else shape[::-1]
    with pytest.raises(plait.MismatchError, match="the ranks call it differently"):
        plait.fft.autotune(mine, repeats=1, file=file)
    assert not file.exists()


def test_some_of_the_processes(world, file):
    if world.size < 3:
        pytest.skip("needs three ranks")
    if world.rank < 2:
        mesh = plait.fft.autotune((4, 4, 4), devices=jax.devices()[:2], repeats=1, file=file)
        assert mesh.size == 2
    world.Barrier()
