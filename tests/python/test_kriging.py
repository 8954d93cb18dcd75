"""Cortical thickness, small: against numpy, and alike on any number of devices and ranks."""

import importlib.util
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
N_TRAIN, N_TEST, N_STEPS = 90, 41, 4  # no number of devices divides these
needs_data = pytest.mark.skipif(
    importlib.util.find_spec("nilearn") is None, reason="nilearn is not installed"
)
pytestmark = needs_data


@pytest.fixture(scope="module", autouse=True)
def as_users_have_it():
    """Mixed dtypes, and operands with fewer axes, are no error."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def problem():
    """Points and values to learn from, and points and values to predict."""
    import _cortex

    surface = _cortex.load()
    train, test = surface.split(N_TRAIN, N_TEST)
    of = surface.thickness
    return surface.sphere[train], of[train], surface.sphere[test], of[test]


def on(n_devices):
    import kriging

    mesh = jax.make_mesh((n_devices,), ("x",), axis_types=(AxisType.Auto,))
    points, values, targets, _ = problem()
    return kriging.regress(mesh, points, values, targets, N_STEPS)


@pytest.fixture(scope="module")
def alone(as_users_have_it):
    return on(1)


def covariance(theta, x, y):
    """Matérn's kernel, nu = 5/2, from its definition."""
    reach, size, _ = np.exp(theta)
    q = np.sqrt(5) * np.linalg.norm(x[:, None] - y[None], axis=2) / reach
    return size**2 * (1 + q + q**2 / 3) * np.exp(-q)


def numpys_loss(theta, points, values):
    y = values - values.mean()
    k = covariance(theta, points, points) + np.exp(2 * theta[2]) * np.eye(len(y))
    logdet = np.linalg.slogdet(k)[1]
    return (y @ np.linalg.solve(k, y) + logdet + len(y) * np.log(2 * np.pi)) / (2 * len(y))


def test_likelihood_and_gradient_are_numpys():
    import kriging
    import plait

    points, values, *_ = problem()
    mesh = jax.make_mesh((min(4, jax.device_count()),), ("x",), axis_types=(AxisType.Auto,))
    process = kriging.Process(mesh, N_TRAIN)
    x, x_all = process.spread(points), process.share(points, process.stored)
    y = process.share(values - values.mean(), process.stored)
    assert process.stored % mesh.size == 0 and (mesh.size == 1 or process.stored > N_TRAIN)
    theta, h = np.array([-1.5, -0.4, -1.9]), 1e-5
    value, *slope = np.asarray(plait.jit(process.slope)(process.share(theta), x, x_all, y))
    assert value == pytest.approx(numpys_loss(theta, points, values), rel=1e-12)
    for i, step in enumerate(h * np.eye(3)):
        ahead, behind = (numpys_loss(theta + s * step, points, values) for s in (1, -1))
        assert slope[i] == pytest.approx((ahead - behind) / (2 * h), rel=1e-6, abs=1e-9)


def test_prediction_is_numpys(alone):
    points, values, targets, _ = problem()
    theta = alone.theta
    k = covariance(theta, points, points) + np.exp(2 * theta[2]) * np.eye(len(points))
    cross = covariance(theta, targets, points)
    mean = values.mean() + cross @ np.linalg.solve(k, values - values.mean())
    variance = np.exp(2 * theta[1]) - np.sum(cross * np.linalg.solve(k, cross.T).T, axis=1)
    assert np.allclose(alone.mean, mean, rtol=1e-10)
    assert np.allclose(alone.deviation**2, variance, rtol=1e-8)
    assert alone.loss == pytest.approx(numpys_loss(theta, points, values), rel=1e-12)


def test_the_likelihood_grows(alone):
    import kriging

    points, values, *_ = problem()
    assert alone.loss < numpys_loss(np.array(kriging.START), points, values) - 0.01


def close(found, want):
    """Equal up to sums in another order, through some steps of L-BFGS."""
    for name in ("theta", "mean", "deviation"):
        assert np.allclose(getattr(found, name), getattr(want, name), rtol=1e-8, atol=1e-10)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("n_devices", [2, 4, 8])
def test_any_number_of_devices_gives_the_same(alone, n_devices):
    if jax.device_count() < n_devices:
        pytest.skip(f"{jax.device_count()} devices")
    close(on(n_devices), alone)


def test_ranks_give_the_same(alone, tmp_path):
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    program = tmp_path / "ranks.py"
    program.write_text(
        "import sys, numpy\n"
        f"sys.path[:0] = [{str(EXAMPLES)!r}, {str(pathlib.Path(__file__).parent)!r}]\n"
        "import deblur, jax, kriging\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "mesh = deblur.make_mesh(None)\n"
        "assert mesh.size == 2 and jax.process_count() == 2\n"
        "from test_kriging import N_STEPS, problem\n"
        "points, values, targets, _ = problem()\n"
        "fit = kriging.regress(mesh, points, values, targets, N_STEPS)\n"
        "found = {'theta': fit.theta, 'mean': fit.mean, 'deviation': fit.deviation}\n"
        f"numpy.savez(r'{tmp_path}/%d.npz' % jax.process_index(), **found)\n"
    )
    command = [sys.executable, "-m", "plait", "run", "-n", "2", "--timeout", "120", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (np.load(tmp_path / f"{rank}.npz") for rank in range(2))
    for name in ("theta", "mean", "deviation"):
        assert np.array_equal(first[name], second[name])
        assert np.allclose(first[name], getattr(alone, name), rtol=1e-8, atol=1e-10)


def test_no_device_has_the_matrix():
    import kriging
    import meshes

    mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(AxisType.Auto,))
    points, values, *_ = problem()
    process = kriging.Process(mesh, N_TRAIN)
    x, x_all = process.spread(points), process.share(points, process.stored)
    y, theta = process.share(values, process.stored), process.share(np.array(kriging.START))
    assert meshes.xla_collectives(process.slope, theta, x, x_all, y) == []
    f = jax.jit(process.factor)(theta, x, x_all)
    part = max(s.data.size for s in jax.tree.leaves(f)[1].addressable_shards)
    assert part <= 2 * N_TRAIN**2 / mesh.size + 8 * N_TRAIN  # in whole blocks


@pytest.mark.long
def test_picture(tmp_path):
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    out = tmp_path / "new" / "kriging.png"
    options = ["--train", "120", "--test", "300", "--steps", "2", "--out", out]
    command = [sys.executable, EXAMPLES / "kriging.py", "--devices", "2", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "120 to learn from, 300 to predict; on 2 devices of one process" in done.stdout
    assert "step   1/2" in done.stdout and "of the nearest neighbour's value" in done.stdout
    assert out.read_bytes().startswith(b"\x89PNG")
