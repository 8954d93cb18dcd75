"""Restore a blurred MRI volume by maximum a posteriori estimation, on several ranks or devices.

    plait run -n 2 examples/deblur.py            two MPI ranks
    python examples/deblur.py --devices 4        four devices of one process

The volume is blurred by a Gaussian and noised. The restored volume minimises

    1/2 |A x - y|^2 + weight * sum sqrt(|D x|^2 + edge^2)        over x >= 0

where A blurs by distributed transforms of real numbers and D takes forward differences, which need
the neighbours' planes: a halo exchange. `jax.grad` goes through all of it, in one jitted step.
The volume keeps its size on any number of devices: `shape=` says what of an array is data.
"""

import argparse
import dataclasses
import math
import statistics
import time

import _options
import _show
import _volume
import jax
import jax.numpy as jnp
import numpy as np
import plait
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

PLANES = P("x")  # each rank has some planes of axis 0; the transforms give P(None, "x")
FWHM_PER_SIGMA = math.sqrt(8 * math.log(2))


@dataclasses.dataclass(frozen=True)
class Model:
    """How the volume was measured, and the prior assumptions about it."""

    fwhm: tuple[float, float, float] = (4.0, 4.0, 5.0)  # of the blur, in voxels
    noise: float = 0.01
    weight: float = 1e-3
    edge: float = 0.05

    @property
    def margin(self):
        """Empty voxels that keep the blur of one end from the other: 3 sigma at both ends."""
        return tuple(2 * math.ceil(3 * w / FWHM_PER_SIGMA) for w in self.fwhm)

    @property
    def lipschitz(self):
        """A bound of the loss's curvature; its inverse is a step that cannot overshoot."""
        return 1 + 12 * self.weight / self.edge


@dataclasses.dataclass(frozen=True)
class Space:
    """A volume of `shape` on a mesh: every device has `planes` of it, the last ones fewer."""

    mesh: jax.sharding.Mesh
    shape: tuple[int, int, int]

    @property
    def planes(self):
        return -(-self.shape[0] // self.mesh.size)

    @property
    def stored(self):
        """The shape of the global array: equal parts, zeros behind the data."""
        return (self.planes * self.mesh.size, *self.shape[1:])

    def spread(self, volume):
        """A volume that every process has, or its corner, as a global array."""
        where = NamedSharding(self.mesh, PLANES)
        whole = _volume.embed(volume, self.stored)
        return jax.make_array_from_callback(self.stored, where, lambda index: whole[index])

    def collect(self, x, shape):
        """The corner with that shape of a global array, on every process."""
        return plait.gather_to_host(x, shape=shape)


def make_blur(space, fwhm):
    """The function x -> A x on volumes that are split into planes."""
    data = {"shape": space.shape, "mesh": space.mesh}

    def blur(x):
        spectrum = plait.fft.prfft3d(x, spec=PLANES, **data)
        frequencies = plait.fft.rfftfreqn(spectrum, layout="transposed", **data)
        for frequency, width in zip(frequencies, fwhm, strict=True):
            factor = jnp.exp(-2 * (math.pi * width / FWHM_PER_SIGMA * frequency) ** 2)
            spectrum = spectrum * factor.astype(spectrum.dtype)
        return plait.fft.pirfft3d(spectrum, spec=P(None, "x"), **data)

    return blur


def make_loss(space, model):
    """The negative logarithm of the posterior, up to constants, as a function of (x, y)."""
    blur, mesh = make_blur(space, model.fwhm), space.mesh

    def roughness(part):
        """The prior of a rank's own planes, given with one plane of each neighbour."""
        x = part[1:-1]
        d0, d1, d2 = part[2:] - x, jnp.roll(x, -1, 1) - x, jnp.roll(x, -1, 2) - x
        return jnp.sqrt(d0**2 + d1**2 + d2**2 + model.edge**2) - model.edge

    def loss(x, y):
        width = (1, 0, 0)
        with_ghosts = plait.halo.pad(x, width, shape=space.shape, mesh=mesh, spec=PLANES)
        prior = jax.shard_map(roughness, mesh=mesh, in_specs=PLANES, out_specs=PLANES)(with_ghosts)
        is_data = jnp.arange(len(x)) < space.shape[0]  # the last plane has its ghost behind it
        prior = jnp.where(is_data[:, None, None], prior, 0)
        misfit = blur(x) - y
        return plait.sum(0.5 * misfit**2 + model.weight * prior, mesh=mesh, spec=PLANES)

    return loss


def make_step(space, model):
    """One step of accelerated projected gradient descent, restarted where it overshoots.

    Source: Beck and Teboulle, SIAM J. Imaging Sci. 2(1), 2009; O'Donoghue and Candes,
    Found. Comput. Math. 15, 2015.
    """
    loss, mesh = make_loss(space, model), space.mesh

    def step(x, ahead, t, y):
        value, gradient = jax.value_and_grad(loss)(ahead, y)
        new = jnp.maximum(ahead - gradient / model.lipschitz, 0)
        turned = plait.sum((ahead - new) * (new - x), mesh=mesh, spec=PLANES) > 0
        new_t = jnp.where(turned, 1.0, (1 + jnp.sqrt(1 + 4 * t * t)) / 2).astype(t.dtype)
        momentum = jnp.where(turned, 0.0, (t - 1) / new_t).astype(t.dtype)
        return new, new + momentum * (new - x), new_t, value

    return plait.jit(step, donate_argnums=(0, 1))


def space_of(volume, mesh, model=Model()):
    """The space in which a volume is measured: with a margin, on a mesh."""
    return Space(mesh, _volume.with_margin(volume.shape, model.margin))


def measure(volume, space, model=Model(), seed=0):
    """The volume blurred and noised, as a global array; the same on any mesh."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(space.shape, dtype=np.float32) * model.noise
    blur = plait.jit(make_blur(space, model.fwhm))
    return blur(space.spread(volume)) + space.spread(noise)


def minimise(y, space, model=Model(), n_iterations=40, report=lambda *_: None):
    """The restored global array; calls `report` with (iteration, loss, seconds)."""
    step = make_step(space, model)
    x, ahead, t = jnp.copy(y), jnp.copy(y), jnp.float32(1)
    for i in range(1, n_iterations + 1):
        started = time.perf_counter()
        x, ahead, t, value = step(x, ahead, t, y)
        report(i, float(value), time.perf_counter() - started)
    return x


def restore(volume, mesh, model=Model(), n_iterations=40, seed=0):
    """Blur, noise and restore a volume; returns the restored volume, same shape, everywhere."""
    space = space_of(volume, mesh, model)
    y = measure(volume, space, model, seed)
    return space.collect(minimise(y, space, model, n_iterations), volume.shape)


def make_mesh(n_devices):
    """All devices in one row: `n_devices` of this process, or one of each MPI rank."""
    if n_devices:
        jax.config.update("jax_num_cpu_devices", n_devices)
    elif plait.Comm().size > 1:
        jax.distributed.initialize(cluster_detection_method="mpi4py")
    return jax.make_mesh((jax.device_count(),), ("x",), axis_types=(AxisType.Auto,))


def describe(mesh):
    """Ranks or devices, and how they reach each other's memory."""
    if jax.process_count() == 1:
        return f"{mesh.size} device{'s' * (mesh.size > 1)} of one process"
    from mpi4py import MPI

    comm = plait.Comm()
    library = MPI.Get_library_version().replace("MPICH Version:", "MPICH").split("\n")[0]
    name = " ".join(library.split(",")[0].split())
    return f"{comm.size} MPI ranks, {name}, transport {comm.transport} ({comm.direct})"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count = _options.at_least(1)
    parser.add_argument("--devices", type=count, metavar="N", help="devices of one process, no MPI")
    parser.add_argument("--cut", type=count, metavar="K", help="a cube of K voxels from the middle")
    parser.add_argument("--iterations", type=count, default=40, metavar="I")
    parser.add_argument("--out", type=_options.picture, default="deblur.png", metavar="FILE")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    mesh = make_mesh(options.devices)
    say = print if jax.process_index() == 0 else (lambda *_: None)
    model, started = Model(), time.perf_counter()
    truth = _volume.load(options.cut)
    space = space_of(truth, mesh, model)
    y = measure(truth, space, model)
    blurred = space.collect(y, truth.shape)
    before = _volume.psnr(blurred, truth)
    size, padded = (" x ".join(map(str, s)) for s in (truth.shape, space.shape))
    fwhm = " x ".join(f"{w:g}" for w in model.fwhm)
    say(f"MNI152 T1 head volume, {size} voxels of 1 mm, with a margin {padded}")
    say(f"blurred by a Gaussian of {fwhm} mm (FWHM), noise {model.noise:g}: PSNR {before:.2f} dB")
    say(f"on {describe(mesh)}")

    times = []
    is_shown = jax.process_index() == 0 and not options.quiet
    with _show.progress(options.iterations, is_shown) as show:

        def report(i, loss, seconds):
            times.append(seconds)
            show(i, loss, seconds)

        x = minimise(y, space, model, options.iterations, report)
    restored = space.collect(x, truth.shape)
    after = _volume.psnr(restored, truth)
    per_iteration = statistics.median(times[1:] or times)
    say(f"restored in {options.iterations} iterations: PSNR {before:.2f} -> {after:.2f} dB")
    speed = f"{per_iteration * 1e3:.0f} ms per iteration"
    say(f"{speed}, {times[0]:.1f} s for the first with compiling")
    if jax.process_index() == 0:
        titles = [
            ("original", "MNI152 T1, 1 mm"),
            ("blurred and noised", f"PSNR {before:.2f} dB"),
            ("restored", f"PSNR {after:.2f} dB"),
            ("what is left", f"rms {10 ** (-after / 20):.3f}"),
        ]
        caption = f"plait on {describe(mesh)}; {options.iterations} iterations, {speed}"
        _show.picture(options.out, (truth, blurred, restored), titles, caption)
    say(f"{options.out} written, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
