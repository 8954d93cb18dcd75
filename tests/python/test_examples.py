"""The rank model's examples, small: the same results on any number of ranks."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
NEEDED = {"shallow_water": "matplotlib", "digits": "sklearn"}
SHAPE, N_STEPS = (24, 48), 400
EPS = np.finfo(np.float64).eps


def launch(n_ranks, *program):
    """The output of `plait run`."""
    if n_ranks > 1 and importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    launcher = [sys.executable, "-m", "plait", "run", "-n", str(n_ranks), "--timeout", "120"]
    command = [*launcher, *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(example):
    absent = importlib.util.find_spec(NEEDED[example]) is None
    return pytest.mark.skipif(absent, reason=f"{NEEDED[example]} is not installed")


# ---- shallow water -------------------------------------------------------------------------------

WATER = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import numpy, plait
import shallow_water as water

comm, kept = plait.Comm(), {{}}

def keep(name, simulation):
    zeta, fields = simulation.vorticity(), simulation.fields()
    if comm.rank == 0:
        kept[name] = numpy.stack([*fields, zeta])
        kept[name + "_initial"] = numpy.stack(water.initial(simulation.model))

options = ["--cells", "{SHAPE[0]}", "{SHAPE[1]}", "--days", "0.3", "--frames", "3"]
keep("channel", water.main([*options, "--out", sys.argv[1] + ".png"]))
if comm.size != 2:
    simulation = water.Simulation(water.Model(shape={SHAPE}, has_walls=False), comm)
    volumes = [simulation.volume()]
    simulation.advance({N_STEPS})
    volumes.append(simulation.volume())
    keep("periodic", simulation)
    kept["volumes"] = volumes
if comm.rank == 0:
    numpy.savez(sys.argv[1], **kept)
"""


@pytest.fixture(scope="module")
def water(tmp_path_factory):
    """A function from a number of ranks to their results, which it computes once."""
    folder, known = tmp_path_factory.mktemp("water"), {}
    program = folder / "water.py"
    program.write_text(WATER)

    def on(n_ranks):
        if n_ranks not in known:
            text = launch(n_ranks, program, folder / f"{n_ranks}")
            assert (folder / f"{n_ranks}.png").read_bytes().startswith(b"\x89PNG")
            known[n_ranks] = text, dict(np.load(folder / f"{n_ranks}.npz"))
        return known[n_ranks]

    return on


@pytest.mark.long
@needs("shallow_water")
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_water_has_the_same_bits_on_any_number_of_ranks(water, n_ranks):
    (_, alone), (text, together) = water(1), water(n_ranks)
    for name in {"channel", "periodic"} & set(together):
        assert np.isfinite(alone[name]).all()
        assert np.array_equal(alone[name], together[name])
    assert f"{n_ranks} MPI ranks" in text and "frame   2/2" in text
    assert re.search(r"\d+ steps/s, mass changed by \d\.\de[-+]\d+ of itself", text), text


@pytest.mark.long
@needs("shallow_water")
def test_water_keeps_its_mass(water):
    for n_ranks in (1, 4):
        found = water(n_ranks)[1]
        fields, volumes = found["periodic"], found["volumes"]
        # Each step rounds each cell's eta once, and the fluxes that cells share cancel.
        rounding = EPS * np.abs(fields[0]).max() * fields[0].size * (N_STEPS + 2)
        assert np.ptp(volumes) < rounding
        assert rounding < 1e-9 * 1000 * fields[0].size  # the bound is not trivial


@needs("shallow_water")
@pytest.mark.parametrize("name", ["channel", "periodic"])
def test_water_keeps_its_jet_in_balance(water, name):
    fields, before = (water(1)[1][name + suffix] for suffix in ("", "_initial"))
    assert np.abs(fields[2]).max() > 1e-3  # the bump moves the water
    assert np.abs(fields[1] - before[1]).max() < 2  # m/s; the jet has 40
    if name == "channel":
        assert not fields[2, -1].any()


@needs("shallow_water")
def test_water_carries_gravity_waves(monkeypatch):
    """Against the linear equations: a standing wave of small height, half a period."""
    import plait

    monkeypatch.syspath_prepend(EXAMPLES)
    import jax.numpy as jnp
    import shallow_water as water

    n, height = 32, 1e-3
    model = water.Model((n, n), (1e6, 1e6), False, coriolis=0.0, speed=0.0, viscosity=0.0)
    simulation = water.Simulation(model, plait.Comm())
    k = 2 * np.pi / model.extent[1]
    omega, dx = np.sqrt(model.gravity * model.depth) * k, model.dx
    n_steps = round(np.pi / (omega * model.dt))
    wave = height * np.cos(k * dx * (np.arange(n) + 0.5))[None] + np.zeros((n, 1))
    simulation.state = water.State(jnp.asarray(wave), jnp.zeros((n, n)), jnp.zeros((n, n)))
    simulation.advance(n_steps)
    phase = omega * n_steps * model.dt
    error = np.abs(simulation.fields().eta - wave * np.cos(phase)).max() / height
    # Errors of the grid's dispersion, of the damping by the offset, and of the height; times two.
    assert error < 2 * phase * ((k * dx) ** 2 / 24 + model.offset * omega * model.dt) + 1e-5


@needs("shallow_water")
def test_water_films(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import _flow
    import shallow_water

    zeta = 1e-4 * np.random.default_rng(0).standard_normal((4, 8))
    model = shallow_water.Model(shape=(4, 8))
    _flow.save(tmp_path / "film.gif", [(0.0, zeta), (1.0, -zeta)], model, "")
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF8")


def test_grids_of_ranks_cut_little(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import _ranks

    assert _ranks.process_grid(2, (128, 256)) == (1, 2)
    assert _ranks.process_grid(4, (128, 128)) == (2, 2)
    assert _ranks.process_grid(3, (9, 10)) == (3, 1)
    with pytest.raises(SystemExit, match="7 ranks do not divide"):
        _ranks.process_grid(7, (128, 256))


# ---- digits --------------------------------------------------------------------------------------

DIGITS = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import digits, jax, numpy, plait

jax.config.update("jax_enable_x64", True)
layers = digits.main(["--epochs", "8", "--out", sys.argv[1] + "/layers.npz"])
leaves = [numpy.asarray(leaf).ravel() for leaf in jax.tree.leaves(layers)]
numpy.save(sys.argv[1] + "/%d.npy" % plait.Comm().rank, numpy.concatenate(leaves))
"""


@pytest.mark.long
@needs("digits")
def test_digits_are_learned_alike_on_any_number_of_ranks(tmp_path):
    program, layers = tmp_path / "train.py", {}
    program.write_text(DIGITS)
    for n_ranks in (1, 2):
        folder = tmp_path / str(n_ranks)
        folder.mkdir()
        text = launch(n_ranks, program, folder)
        assert float(re.search(r"accuracy (\S+)", text)[1]) > 0.95, text
        assert "ms per epoch" in text and "epoch   8/8" in text
        layers[n_ranks] = [np.load(folder / f"{rank}.npy") for rank in range(n_ranks)]
    assert np.load(folder / "layers.npz")["weight0"].shape == (64, 128)
    assert np.array_equal(*layers[2])
    # 29 steps per epoch; each sums 48 digits in another order; momentum sums ten steps.
    tolerance = EPS * 48 * 10 * 8 * 29
    assert 0 < np.abs(layers[1][0] - layers[2][0]).max() < tolerance


# ---- options -------------------------------------------------------------------------------------

REFUSED = [
    ("digits", "--epochs 0", "0; expected 1 or more"),
    ("digits", "--out layers.txt", "expected a name that ends in .npz"),
    ("deblur", "--devices 0", "0; expected 1 or more"),
    ("deblur", "--iterations 0", "0; expected 1 or more"),
    ("kriging", "--train 0", "0; expected 1 or more"),
    ("kriging", "--test 0", "0; expected 1 or more"),
    ("taylor_green", "--time 0", "0; expected a positive number"),
    ("taylor_green", "--out x.mp4", "expected a name that ends in .png or .pdf or .svg"),
    ("taylor_green", "--out {file}/x.png", "its folder: File exists"),
    ("shallow_water", "--out x.mp4", "expected a name that ends in .png or .pdf or .svg or .gif"),
    ("shallow_water", "--days nan", "nan; expected a positive number"),
    ("nbody", "--cells 7 7 7", "--cells: expected multiples of 2 and 2"),
    ("nbody", "--grid 2 3", "--grid 2 3 does not have --devices 4"),
]


@pytest.mark.parametrize(("example", "options", "said"), REFUSED)
def test_options_are_judged_at_the_start(tmp_path, monkeypatch, capsys, example, options, said):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.syspath_prepend(EXAMPLES)
    module = importlib.import_module(example)
    with pytest.raises(SystemExit):
        module.parse(options.format(file=tmp_path / "file").split())
    assert said in capsys.readouterr().err


def test_sizes_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    import meshes
    import plait

    monkeypatch.syspath_prepend(EXAMPLES)
    import _cortex
    import digits
    import taylor_green

    few = np.zeros((5, 64)), np.arange(5)
    with pytest.raises(SystemExit, match="batches of 6 digits; expected from 1, .* to 5"):
        digits.train(few, digits.Training(batch=6), plait.Comm._make(None, 1, 0))
    with pytest.raises(SystemExit, match="3 devices do not divide 7 points"):
        taylor_green.Solver(taylor_green.Flow(7), meshes.make((3,)))
    surface = _cortex.Hemisphere(np.zeros((5, 3)), np.ones(5), None, None)
    for counts in [(5, None), (3, 3)]:
        with pytest.raises(SystemExit, match="5 vertices are too few"):
            surface.split(*counts)
    assert [len(part) for part in surface.split(3, 2)] == [3, 2]
    options = taylor_green.parse(["--out", str(tmp_path / "new" / "x.png")])
    assert (tmp_path / "new").is_dir() and options.size == 64
