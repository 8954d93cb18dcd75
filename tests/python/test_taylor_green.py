"""The breaking vortex, small: against numpy's transforms, and alike on any number of ranks."""

import importlib.util
import pathlib
import subprocess
import sys

import jax
import numpy as np
import plait
import platforms
import pytest
from jax.sharding import AxisType

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
N, N_STEPS = 16, 12
# Float32 sums in another order differ by some eps in each stage of each step.
ROOM = 16 * np.finfo(np.float32).eps * N_STEPS


def on(n_devices):
    """Velocities after some steps, and the history."""
    import taylor_green

    mesh = jax.make_mesh((n_devices,), ("x",), axis_types=(AxisType.Auto,))
    flow = taylor_green.Flow(N, 100.0, courant=0.3)
    u_hat, history = taylor_green.simulate(flow, mesh, N_STEPS * flow.dt)
    field = plait.jit(taylor_green.Solver(flow, mesh).field)
    return plait.gather_to_host(field(u_hat)), history


@pytest.fixture(scope="module", autouse=True)
def as_users_have_it():
    """Real numbers times complex ones, and operands with fewer axes, are no error."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def alone(as_users_have_it):
    return on(1)


def numpys(n, viscosity, dt, n_steps):
    """The same equations in double precision, complex transforms, Heun's steps of dt / 16."""
    x = 2 * np.pi * np.arange(n) / n
    a, b, c = x[:, None, None], x[None, :, None], x[None, None, :]
    u = [np.sin(a) * np.cos(b) * np.cos(c), -np.cos(a) * np.sin(b) * np.cos(c)]
    u_hat = np.fft.fftn(np.stack([*u, np.zeros((n, n, n))]), axes=(1, 2, 3), norm="forward")
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * 3, indexing="ij"))
    k2 = (k * k).sum(0)
    keep = np.abs(k).max(0) < n / 3

    def field(v):
        return np.fft.ifftn(v, axes=(1, 2, 3), norm="forward").real

    def rate(v):
        force = np.cross(field(v), field(1j * np.cross(k, v, axis=0)), axis=0)
        force = np.fft.fftn(force, axes=(1, 2, 3), norm="forward") * keep
        return force - k * (k * force).sum(0) / np.maximum(k2, 1) - viscosity * k2 * v

    for _ in range(16 * n_steps):
        first = rate(u_hat)
        second = rate(u_hat + dt / 16 * first)
        u_hat = u_hat + dt / 32 * (first + second)
    return field(u_hat)


def test_numpy_gives_the_same(alone):
    import taylor_green

    flow = taylor_green.Flow(N, 100.0, courant=0.3)
    want = numpys(N, flow.viscosity, flow.dt, N_STEPS)
    assert np.abs(alone[0] - want).max() < 1e-5


def test_energy_is_lost_to_viscosity_alone(alone):
    _, history = alone
    assert history.energy[0] == pytest.approx(1 / 8, rel=1e-6)
    assert history.dissipation[0] == pytest.approx(0.75 / 100, rel=1e-6)
    assert history.energy[-1] < 0.97 * history.energy[0]
    assert np.abs(history.gap).max() < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("n_devices", [2, 4, 8])
def test_any_number_of_devices_gives_the_same(alone, n_devices):
    if jax.device_count() < n_devices:
        pytest.skip(f"{jax.device_count()} devices")
    u, history = on(n_devices)
    assert np.abs(u - alone[0]).max() < ROOM
    np.testing.assert_allclose(history.energy, alone[1].energy, rtol=ROOM)


@pytest.mark.long
def test_ranks_give_the_same(alone, tmp_path):
    platforms.need(2)
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    program = tmp_path / "ranks.py"
    program.write_text(
        "import sys, numpy\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import deblur, jax, plait, taylor_green\n"
        "mesh = deblur.make_mesh(None)\n"
        "assert mesh.size == 2 and jax.process_count() == 2\n"
        f"flow = taylor_green.Flow({N}, 100.0, courant=0.3)\n"
        f"u_hat, _ = taylor_green.simulate(flow, mesh, {N_STEPS} * flow.dt)\n"
        "u = plait.gather_to_host(plait.jit(taylor_green.Solver(flow, mesh).field)(u_hat))\n"
        f"numpy.save(r'{tmp_path}/%d.npy' % jax.process_index(), u)\n"
    )
    command = [sys.executable, "-m", "plait", "run", "-n", "2", "--timeout", "120", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        assert np.abs(np.load(tmp_path / f"{rank}.npy") - alone[0]).max() < ROOM


@pytest.mark.long
def test_picture(tmp_path):
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    out = tmp_path / "flow.png"
    options = ["--size", "12", "--time", "0.5", "--out", str(out), "--quiet"]
    command = [sys.executable, EXAMPLES / "taylor_green.py", "--devices", "2", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the balance is open by" in done.stdout
    assert out.read_bytes().startswith(b"\x89PNG")
