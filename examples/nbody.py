"""Gravity of many particles by the particle-mesh method, on a mesh of devices, with gradients.

    python examples/nbody.py --out density.png               4 devices of this process, 2 x 2
    python examples/nbody.py --devices 8 --cells 64 64 64    8 devices, 2 x 4
    python examples/nbody.py --devices 1                     the same on one

Like clients of jaxDecomp, it uses five of its functions: pfft3d, pifft3d, fftfreq3d, halo_exchange
and get_fft_output_sharding. `import jaxdecomp` could replace the import below, except for the
gradient, which needs the exact adjoint of halo_exchange.

Each cell has one particle, displaced by d, with momentum p, in an Einstein-de Sitter universe of
scale factor a (Peebles, The Large-Scale Structure of the Universe, 1980, sections 7 and 42):

    dd/da = a^(-3/2) p        dp/da = 3/2 a^(-1/2) F        F = -grad lap^(-1) delta

stepped by leapfrog, from the growing mode d = a psi, p = a^(3/2) psi (Zel'dovich, A&A 5, 1970). The
density delta is painted with clouds in cells (Hockney and Eastwood, 1988, section 5-2). Each device
paints its own particles on its part of the grid, surrounded by ghost cells. Then the ghosts are
added to the cells that they are copies of, which is the transpose of filling them.
"""

import argparse
import functools
import math
import time

import _options
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from plait.compat import jaxdecomp

CORNERS = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])


class Grid:
    """The cells, their split (sharding: None on one device), and the width of the ghosts.

    A particle may move up to ghosts - 1 cells from where it began.
    """

    def __init__(self, cells, sharding=None, ghosts=4):
        self.cells, self.sharding = tuple(cells), sharding
        split = (1, 1) if sharding is None else tuple(sharding.mesh.devices.shape)
        self.extents = tuple(ghosts if n > 1 else 0 for n in split)
        self.block = (cells[0] // split[0], cells[1] // split[1], cells[2])

    def on_parts(self, function, *inputs, batch=0):
        """Maps each device's parts of the inputs; the result has `batch` axes in front."""
        if self.sharding is None:
            return function(*inputs)
        spec = self.sharding.spec
        specs = tuple(P(*[None] * (x.ndim == 4 and x.shape[0] == 3), *spec) for x in inputs)
        out = P(*[None] * batch, *spec)
        return jax.shard_map(function, mesh=self.sharding.mesh, in_specs=specs, out_specs=out)(
            *inputs
        )

    def placed(self, x, of_spectrum=False):
        """The array, split as the grid or as the spectrum is."""
        if self.sharding is None:
            return x
        where = self.sharding
        where = jaxdecomp.get_fft_output_sharding(where) if of_spectrum else where
        return jax.lax.with_sharding_constraint(x, where)

    def exchange(self, padded):
        """The padded parts with their ghosts filled."""
        if not any(self.extents):
            return padded
        return jaxdecomp.halo_exchange(padded, self.extents, (True, True))

    def reduce(self, padded):
        """The padded parts with ghosts added to the cells that they copy: the transpose."""
        return jax.linear_transpose(self.exchange, padded)(padded)[0]


# ---- clouds in cells -----------------------------------------------------------------------------


def clouds(grid, d):
    """For each particle of a part: its eight cells in the padded part, and its share in each."""
    begin = jnp.stack(jnp.meshgrid(*[jnp.arange(n) for n in grid.block], indexing="ij"), -1)
    first = jnp.floor(d)
    corners = jnp.asarray(CORNERS)
    cells = (begin + first.astype(begin.dtype))[..., None, :] + corners
    share = (d - first)[..., None, :]
    share = jnp.prod(jnp.where(corners == 1, share, 1 - share), -1)
    extents = (*grid.extents, 0)
    cells = [
        cells[..., i] + e if e else cells[..., i] % n
        for i, (e, n) in enumerate(zip(extents, grid.block, strict=True))
    ]
    return tuple(cells), share


def paint(grid, d):
    """The density of the particles, 1 on average."""
    ghosts = [(e, e) for e in (*grid.extents, 0)]
    padded = tuple(n + 2 * e for n, (e, _) in zip(grid.block, ghosts, strict=True))

    def part(d):
        cells, share = clouds(grid, d)
        return jnp.zeros(padded, d.dtype).at[cells].add(share)

    def cut(field):
        return field[tuple(slice(e, n - e) for (e, _), n in zip(ghosts, padded, strict=True))]

    return grid.on_parts(cut, grid.reduce(grid.on_parts(part, d)))


def read(grid, fields, d):
    """Three fields at the particles: (..., 3)."""
    ghosts = [(0, 0), *[(e, e) for e in (*grid.extents, 0)]]
    padded = grid.on_parts(lambda f: jnp.pad(f, ghosts), fields, batch=1)

    def part(padded, d):
        cells, share = clouds(grid, d)
        return jnp.stack([jnp.sum(field[cells] * share, -1) for field in padded], -1)

    return grid.on_parts(part, grid.exchange(padded), d)


# ---- gravity -------------------------------------------------------------------------------------


def downhill(delta_k):
    """-grad lap^(-1) of a spectrum, as three fields: one inverse transform of a batch."""
    k = jaxdecomp.fftfreq3d(delta_k)
    k2 = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    inverse = jnp.where(k2 > 0, 1 / jnp.where(k2 > 0, k2, 1), 0)
    force_k = jnp.stack([1j * ki * inverse * delta_k for ki in k])
    return jaxdecomp.pifft3d(force_k).real


def spectrum(grid, field):
    """The transform of a field."""
    return grid.placed(jaxdecomp.pfft3d(grid.placed(field)), of_spectrum=True)


def force(grid, d):
    """The force on each particle."""
    return read(grid, downhill(spectrum(grid, paint(grid, d) - 1)), d)


def begin(grid, noise, amplitude=2.0, slope=-2.0):
    """The displacement psi of the growing mode at a = 1, for a cut-off power spectrum k^slope."""
    noise_k = spectrum(grid, noise)
    k = jaxdecomp.fftfreq3d(noise_k)
    k2 = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    power = jnp.where(k2 > 0, k2, 1) ** (slope / 2) * jnp.exp(-k2 / 2)
    delta_k = noise_k * jnp.where(k2 > 0, amplitude * jnp.sqrt(power), 0)
    psi = downhill(delta_k)
    return grid.on_parts(lambda f: jnp.moveaxis(f, 0, -1), psi)


def evolve(grid, psi, n_steps=10, a_begin=0.1, a_end=1.0):
    """Displacements at a_end: kick, drift, kick; the reverse pass recomputes the steps."""
    a = np.linspace(a_begin, a_end, n_steps + 1)
    middle = np.sqrt(a[:-1] * a[1:])
    # The equations' exact time integrals, over a half step, a step, a half step.
    kicks = 3 * np.stack([middle**0.5 - a[:-1] ** 0.5, a[1:] ** 0.5 - middle**0.5])
    drifts = 2 * (a[:-1] ** -0.5 - a[1:] ** -0.5)
    steps = tuple(jnp.asarray(s, psi.dtype) for s in (*kicks, drifts))

    @jax.checkpoint
    def step(state, scale):
        d, p, f = state
        p = p + scale[0] * f
        d = d + scale[2] * p
        f = force(grid, d)
        return (d, p + scale[1] * f, f), None

    d, p = a_begin * psi, a_begin**1.5 * psi
    return jax.lax.scan(step, (d, p, force(grid, d)), steps)[0][0]


def loss(grid, noise, target, **how):
    """How far the final density is from a given one."""
    d = evolve(grid, begin(grid, noise), **how)
    return jnp.mean((paint(grid, d) - target) ** 2)


# ---- the program ---------------------------------------------------------------------------------


def picture(path, density, caption):
    """Save the density, summed along the last axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 6.3), layout="constrained")
    axes.imshow(np.log10(np.maximum(density.mean(-1), 1e-2)), cmap="magma", origin="lower")
    axes.set(xticks=[], yticks=[], title=caption)
    axes.title.set_size(9)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    count = _options.at_least(1)
    parser.add_argument("--cells", type=count, nargs=3, default=[48, 48, 48], metavar="N")
    parser.add_argument("--devices", type=count, default=4, help="devices of this process")
    parser.add_argument("--grid", type=count, nargs=2, help="of the devices; nearest to a square")
    parser.add_argument(
        "--ghosts", type=count, default=8, help="cells that particles may move, plus 1"
    )
    parser.add_argument("--steps", type=count, default=10)
    parser.add_argument("--amplitude", type=float, default=2.0, help="of the first modes")
    parser.add_argument("--out", type=_options.picture, help="a picture of the density")
    options = parser.parse_args(arguments)
    options.grid = options.grid or nearest_to_a_square(options.devices)
    rows, columns = options.grid
    if rows * columns != options.devices:
        parser.error(f"--grid {rows} {columns} does not have --devices {options.devices}")
    if any(n % rows or n % columns for n in options.cells):
        parser.error(f"--cells: expected multiples of {rows} and {columns}, the grid of devices")
    return options


def nearest_to_a_square(n):
    rows = max(i for i in range(1, math.isqrt(n) + 1) if n % i == 0)
    return [rows, n // rows]


def main(arguments=None):
    options = parse(arguments)
    jax.config.update("jax_num_cpu_devices", options.devices)
    types = (AxisType.Auto, AxisType.Auto)
    mesh = jax.make_mesh(tuple(options.grid), ("x", "y"), axis_types=types)
    grid = Grid(options.cells, NamedSharding(mesh, P("x", "y")), options.ghosts)
    noise = grid.placed(jax.random.normal(jax.random.key(0), grid.cells))
    how = {"n_steps": options.steps}

    @jax.jit
    def run(noise):
        d = evolve(grid, begin(grid, noise, options.amplitude), **how)
        return d, paint(grid, d)

    d, density = jax.block_until_ready(run(noise))
    since = time.perf_counter()
    jax.block_until_ready(run(noise))
    seconds = time.perf_counter() - since
    far = float(jnp.abs(d[..., :2]).max())
    if far > options.ghosts - 1:
        raise SystemExit(f"a particle went {far:.1f} cells: use --ghosts {int(far) + 2} or more")
    gradient = jax.jit(jax.grad(functools.partial(loss, grid, target=jnp.ones(()), **how)))(noise)
    cells = " x ".join(map(str, grid.cells))
    print(f"{cells} particles on {' x '.join(map(str, options.grid))} devices")
    print(f"{options.steps} steps in {seconds * 1e3:.0f} ms")
    print(f"density {density.min():.2f} to {density.max():.1f}, mean {density.mean():.6f}")
    print(f"gradient of its variance, to the first modes: norm {jnp.linalg.norm(gradient):.3e}")
    if options.out:
        picture(options.out, np.asarray(density), f"{cells} particles, {options.steps} steps")
        print(f"{options.out} written")
    return density


if __name__ == "__main__":
    main()
