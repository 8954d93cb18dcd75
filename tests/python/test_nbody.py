"""examples/nbody.py: forces and gradients on several devices equal those on one, and are right."""

import functools
import importlib.util
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
CELLS, HOW = (8, 8, 8), {"n_steps": 2}
NOISE = 2 * meshes.random(CELLS)


@pytest.fixture(scope="module")
def nbody():
    sys.path.insert(0, str(EXAMPLES))
    import nbody

    yield nbody
    sys.path.remove(str(EXAMPLES))


def on(nbody, shape, cells=CELLS, ghosts=4):
    if shape is None:
        return nbody.Grid(cells)
    return nbody.Grid(cells, NamedSharding(meshes.make(shape), P("a", "b")), ghosts)


def put(grid, x):
    return jnp.asarray(x) if grid.sharding is None else jax.device_put(x, grid.sharding)


def loss(nbody, grid, noise):
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return nbody.loss(grid, noise, 1.0, **HOW)


@pytest.fixture(scope="module")
def alone(nbody):
    """On one device: displacements, density, forces, loss and its gradient."""
    return everything(nbody, on(nbody, None))


def everything(nbody, grid):
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        noise = put(grid, NOISE)
        d = jax.jit(lambda v: nbody.evolve(grid, nbody.begin(grid, v), **HOW))(noise)
        density = jax.jit(functools.partial(nbody.paint, grid))(d)
        force = jax.jit(functools.partial(nbody.force, grid))(d)
        value, gradient = jax.jit(jax.value_and_grad(functools.partial(loss, nbody, grid)))(noise)
    return {"d": d, "density": density, "force": force, "loss": value, "gradient": gradient}


@pytest.mark.long
@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (1, 2)])
def test_several_devices_agree_with_one(nbody, alone, shape):
    grid = on(nbody, shape)
    found = everything(nbody, grid)
    for name, want in alone.items():
        scale = np.abs(want).max()
        np.testing.assert_allclose(found[name], want, atol=1e-11 * scale, err_msg=name)
    assert np.abs(alone["d"]).max() > 0.5 and np.ptp(alone["density"]) > 0.5  # something moved
    for name in ("density", "gradient"):
        assert found[name].sharding.is_equivalent_to(grid.sharding, 3)


@pytest.mark.long
def test_gradient_is_the_limit_of_differences(nbody, alone):
    grid, v, h = on(nbody, (2, 2)), meshes.random(CELLS, seed=3), 1e-6
    f = jax.jit(functools.partial(loss, nbody, grid))
    difference = (f(put(grid, NOISE + h * v)) - f(put(grid, NOISE - h * v))) / (2 * h)
    assert difference == pytest.approx(np.sum(np.asarray(alone["gradient"]) * v), rel=1e-5)


def test_clouds_keep_mass_and_momentum(nbody, alone):
    np.testing.assert_allclose(np.sum(alone["density"]), np.prod(CELLS), rtol=1e-13)
    total = np.sum(np.asarray(alone["force"]), axis=(0, 1, 2))
    assert np.abs(total).max() < 1e-11 * np.abs(alone["force"]).sum()


def test_painting_is_the_transpose_of_reading(nbody):
    d = 3 * (np.random.default_rng(1).random((*CELLS, 3)) - 0.5)
    field = np.random.default_rng(2).standard_normal((3, *CELLS))
    for shape in (None, (2, 2)):
        grid = on(nbody, shape)
        paint, read = (jax.jit(functools.partial(f, grid)) for f in (nbody.paint, nbody.read))
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            moved = put(grid, d) if shape is None else jax.device_put(d, grid.sharding)
            density = paint(moved)
            fields = jnp.asarray(field)
            if shape is not None:
                fields = jax.device_put(field, NamedSharding(grid.sharding.mesh, P(None, "a", "b")))
            got = read(fields, moved)
        for i in range(3):
            both = np.sum(np.asarray(density) * field[i]), np.sum(np.asarray(got)[..., i])
            assert both[0] == pytest.approx(both[1], rel=1e-12)


def test_a_plane_wave_grows_as_zeldovich_says(nbody):
    """The exact solution until particles cross; clouds that begin on the grid: first order."""
    errors = []
    for n in (16, 64):
        grid, psi = on(nbody, (2, 1), (n, 4, 4), ghosts=2), np.zeros((n, 4, 4, 3))
        psi[..., 0] = 0.2 * np.sin(2 * np.pi * np.arange(n) / n)[:, None, None]
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            moved = jax.device_put(psi, grid.sharding)
            d = np.asarray(jax.jit(lambda v, grid=grid: nbody.evolve(grid, v))(moved))
        errors.append(np.abs(d - psi).max() / 0.2)
        assert np.abs(d[..., 1:]).max() < 1e-12
        assert errors[-1] < 0.75 * 2 * np.pi / n
    assert errors[1] < errors[0] / 3


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (1, 4)])
def test_no_collectives_but_ours(nbody, shape):
    """XLA's own collectives would have no order with plait's."""
    grid = on(nbody, shape)

    def steps(noise):
        return nbody.paint(grid, nbody.evolve(grid, nbody.begin(grid, noise), **HOW))

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        assert meshes.xla_collectives(steps, put(grid, NOISE)) == []


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib")
def test_program(tmp_path):
    options = ["--cells", "16", "16", "16", "--devices", "2", "--grid", "2", "1", "--steps", "2"]
    command = [sys.executable, EXAMPLES / "nbody.py", *options, "--out", tmp_path / "density.png"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "mean 1.00000" in done.stdout and "on 2 x 1 devices" in done.stdout
    assert (tmp_path / "density.png").read_bytes().startswith(b"\x89PNG")
    command += ["--ghosts", "1", "--amplitude", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1 and "--ghosts" in done.stderr
