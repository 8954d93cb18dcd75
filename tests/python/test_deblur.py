"""The main job on a small cut: the same restored volume on any number of ranks and devices."""

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
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nilearn") is None, reason="nilearn, whose volume it is, is absent"
)
CUT, ITERATIONS = 40, 12
# Float32 sums in another order differ by some eps in each transform and each step.
TOLERANCE = 64 * np.finfo(np.float32).eps * ITERATIONS


def restored_on(n_devices):
    import _volume
    import deblur

    mesh = jax.make_mesh((n_devices,), ("x",), axis_types=(AxisType.Auto,))
    return deblur.restore(_volume.load(CUT), mesh, n_iterations=ITERATIONS)


@pytest.fixture(scope="module")
def alone():
    """The volume that one device restores."""
    return restored_on(1)


@pytest.mark.long
@pytest.mark.parametrize("n_devices", [2, 4, 8])
def test_any_number_of_devices_gives_the_same(alone, n_devices):
    if jax.device_count() < n_devices:
        pytest.skip(f"{jax.device_count()} devices")
    assert np.abs(restored_on(n_devices) - alone).max() < TOLERANCE


@pytest.mark.long
def test_ranks_give_the_same(alone, tmp_path):
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    program = tmp_path / "ranks.py"
    program.write_text(
        "import sys, numpy\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import _volume, deblur, jax\n"
        "mesh = deblur.make_mesh(None)\n"
        "assert mesh.size == 2 and jax.process_count() == 2\n"
        f"volume = deblur.restore(_volume.load({CUT}), mesh, n_iterations={ITERATIONS})\n"
        f"numpy.save(r'{tmp_path}/%d.npy' % jax.process_index(), volume)\n"
    )
    command = [sys.executable, "-m", "plait", "run", "-n", "2", "--timeout", "120", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    volumes = [np.load(tmp_path / f"{rank}.npy") for rank in range(2)]
    assert np.array_equal(*volumes)
    assert np.abs(volumes[0] - alone).max() < TOLERANCE


def test_it_gains_several_decibels(alone):
    import _volume
    import deblur

    truth = _volume.load(CUT)
    mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    space = deblur.space_of(truth, mesh)
    blurred = space.collect(deblur.measure(truth, space), truth.shape)
    assert _volume.psnr(alone, truth) > _volume.psnr(blurred, truth) + 2


def test_the_loss_falls_and_its_gradient_is_right():
    import _volume
    import deblur

    mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    volume = _volume.load(24)
    space = deblur.space_of(volume, mesh)
    y = deblur.measure(volume, space)
    losses = []
    deblur.minimise(y, space, n_iterations=8, report=lambda i, loss, s: losses.append(loss))
    assert losses == sorted(losses, reverse=True)
    with jax.enable_x64(True):
        check_gradient(deblur, volume, space.collect(y, space.shape))


def check_gradient(deblur, volume, y):
    """A directional derivative against a central difference, on parts of unequal size."""
    import plait

    mesh = jax.make_mesh((min(4, jax.device_count()),), ("x",), axis_types=(AxisType.Auto,))
    space = deblur.space_of(volume, mesh)
    rng = np.random.default_rng(0)
    x, direction = (rng.standard_normal(y.shape, np.float32) for _ in range(2))
    x, direction, y = (space.spread(np.asarray(v)) for v in (x, direction, y))
    loss = plait.jit(deblur.make_loss(space, deblur.Model()))
    slope = float(np.vdot(np.asarray(jax.grad(loss)(x, y)), np.asarray(direction)))
    h = np.float32(1e-2)
    difference = (float(loss(x + h * direction, y)) - float(loss(x - h * direction, y))) / (2e-2)
    assert slope == pytest.approx(difference, rel=1e-2)


def test_the_picture_is_written(tmp_path):
    import deblur

    path = tmp_path / "new" / "deblur.png"
    script = [sys.executable, deblur.__file__, "--devices", "2", "--cut", "24"]
    done = subprocess.run(
        [*script, "--iterations", "3", "--out", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(b"\x89PNG") and "2 devices of one process" in done.stdout
    assert "iteration   1/3" in done.stdout and "with a margin 36 x 36 x 40" in done.stdout


def test_sizes_are_quick_and_have_their_margin():
    import _volume

    assert _volume.with_margin((197, 233, 189), (12, 12, 14)) == (210, 245, 210)
    assert _volume.next_size(13) == 14 and _volume.next_size(12) == 12
