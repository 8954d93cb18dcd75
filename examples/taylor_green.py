"""The Taylor-Green vortex breaks up: direct simulation of a periodic flow by spectra.

    plait run -n 2 examples/taylor_green.py              two MPI ranks
    python examples/taylor_green.py --devices 4          four devices of one process
    python examples/taylor_green.py --size 128 --time 10 finer, longer

Solves the Navier-Stokes equations of an incompressible fluid in a cube of edge 2 pi, from u = (sin
x cos y cos z, -cos x sin y cos z, 0). Transforms are of real numbers, all components of a field at
once. A third of the modes is kept empty against aliasing. The loss to viscosity is summed up, so
that at every time energy + loss = initial energy.

Source: Taylor and Green, Proc. R. Soc. A 158, 1937; Canuto et al., Spectral Methods in Fluid
Dynamics, 1988, 3.2 and 7.2 (rotation form, 2/3 rule); Brachet et al., J. Fluid Mech. 130, 1983.
"""

import argparse
import dataclasses
import statistics
import time

import _options
import _show
import deblur
import jax
import jax.numpy as jnp
import numpy as np
import plait
from jax.sharding import PartitionSpec as P

FIELD = P(None, "x")  # component, x, y, z: each device has some planes of x
SPECTRUM = P(None, None, "x")  # as the transforms leave it: some planes of k_y


@dataclasses.dataclass(frozen=True)
class Flow:
    """The simulated flow: points along each edge, the Reynolds number, the time step."""

    n: int = 64
    reynolds: float = 400.0
    courant: float = 0.6

    @property
    def viscosity(self):
        return 1 / self.reynolds

    @property
    def dt(self):
        """In a step, the fastest fluid, of velocity about 1.5, crosses this part of a cell."""
        return self.courant * (2 * np.pi / self.n) / 1.5

    def steps(self, until):
        return max(1, round(until / self.dt))


def cross(a, b):
    """The vector product along the first axis."""
    return jnp.stack(
        [
            a[1] * b[2] - a[2] * b[1],
            a[2] * b[0] - a[0] * b[2],
            a[0] * b[1] - a[1] * b[0],
        ]
    )


class Solver:
    """Functions of the velocity's spectrum, of shape (3, n, n, n // 2 + 1), on a mesh."""

    def __init__(self, flow, mesh):
        if flow.n % mesh.size:
            raise SystemExit(f"{mesh.size} devices do not divide {flow.n} points along each edge")
        self.flow, self.mesh = flow, mesh
        self.shape = (flow.n, flow.n, flow.n)

    def spectrum(self, u):
        """Of a real field, divided by the number of points: amplitudes."""
        return plait.fft.prfft3d(u, norm="forward", mesh=self.mesh, spec=FIELD)

    def field(self, u_hat):
        """The inverse: a real field."""
        options = {"mesh": self.mesh, "spec": SPECTRUM, "shape": self.shape}
        return plait.fft.pirfft3d(u_hat, norm="forward", **options)

    def wavenumbers(self, u_hat):
        """Whole numbers along the three axes; each device has its own."""
        frequencies = plait.fft.rfftfreqn(
            u_hat, 1 / self.flow.n, axes=(1, 2, 3), mesh=self.mesh, spec=SPECTRUM
        )
        return jnp.stack(jnp.broadcast_arrays(*(k[0] for k in frequencies)))

    def acceleration(self, u_hat, k, k2):
        """Without the viscous term: u x curl u, minus the part that would compress the fluid."""
        both = self.field(jnp.concatenate([u_hat, 1j * cross(k, u_hat)]))
        force = self.spectrum(cross(both[:3], both[3:]))
        force = jnp.where(jnp.abs(k).max(0) < self.flow.n / 3, force, 0)  # the 2/3 rule
        return force - k * (jnp.sum(k * force, 0) / jnp.maximum(k2, 1))

    def step(self, u_hat):
        """Runge-Kutta of fourth order; the viscous term exactly, as a factor."""
        k = self.wavenumbers(u_hat)
        k2, dt = jnp.sum(k * k, 0), self.flow.dt
        half = jnp.exp(-self.flow.viscosity * k2 * (dt / 2))
        rate = lambda v: self.acceleration(v, k, k2)  # noqa: E731
        a = rate(u_hat)
        b = rate(half * (u_hat + dt / 2 * a))
        c = rate(half * u_hat + dt / 2 * b)
        d = rate(half * (half * u_hat + dt * c))
        return half**2 * (u_hat + dt / 6 * a) + half * (dt / 3 * (b + c)) + dt / 6 * d

    def sums(self, u_hat):
        """Energy per unit of mass, and its rate of loss to viscosity."""
        k = self.wavenumbers(u_hat)
        n_times = jnp.where((k[2] == 0) | (k[2] == self.flow.n // 2), 1, 2)
        density = n_times * jnp.sum(jnp.abs(u_hat) ** 2, 0)
        both = jnp.stack([density / 2, self.flow.viscosity * jnp.sum(k * k, 0) * density])
        return [plait.sum(v, mesh=self.mesh, spec=P(None, "x")) for v in both]

    def vorticity(self, u_hat):
        """The size of curl u."""
        w = self.field(1j * cross(self.wavenumbers(u_hat), u_hat))
        return jnp.sqrt(jnp.sum(w * w, 0))

    def start(self):
        """The vortices' spectrum."""
        x = 2 * np.pi * np.arange(self.flow.n, dtype=np.float32) / self.flow.n
        a, b, c = x[:, None, None], x[None, :, None], x[None, None, :]
        u = [np.sin(a) * np.cos(b) * np.cos(c), -np.cos(a) * np.sin(b) * np.cos(c)]
        where = jax.sharding.NamedSharding(self.mesh, FIELD)
        whole = np.stack([*u, np.zeros(self.shape, np.float32)])
        u = jax.make_array_from_callback(whole.shape, where, lambda index: whole[index])
        return plait.jit(self.spectrum)(u)


@dataclasses.dataclass
class History:
    """Times, with the energy, the dissipation and the loss so far at each."""

    time: list
    energy: list
    dissipation: list
    lost: list

    @property
    def gap(self):
        """Relative gap of energy + loss to the initial energy: 0 except for errors of the steps."""
        energy, lost = np.array(self.energy), np.array(self.lost)
        return (energy + lost - energy[0]) / energy[0]


def simulate(flow, mesh, until, report=lambda *_: None):
    """The last spectrum, and the history; calls `report` with (step, dissipation, seconds)."""
    solver = Solver(flow, mesh)

    def step(u_hat):
        new = solver.step(u_hat)
        return new, *solver.sums(new)

    u_hat, sums = solver.start(), plait.jit(solver.sums)
    one = plait.jit(step, donate_argnums=0)
    energy, rate = map(float, sums(u_hat))
    history = History([0.0], [energy], [rate], [0.0])
    rates = [rate]
    for i in range(1, flow.steps(until) + 1):
        started = time.perf_counter()
        u_hat, energy, rate = one(u_hat)
        rates.append(float(rate))
        history.time.append(i * flow.dt)
        history.energy.append(float(energy))
        history.dissipation.append(rates[-1])
        history.lost.append(history.lost[-1] + integral(rates, flow.dt))
        report(i, rates[-1], time.perf_counter() - started)
    return u_hat, history


def integral(rates, dt):
    """Over the last step; by the values at its ends and, if there are any, at the two before."""
    if len(rates) < 4:
        return dt * (rates[-1] + rates[-2]) / 2
    a, b, c, d = rates[-4:]
    return dt * (9 * d + 19 * c - 5 * b + a) / 24  # the Adams-Moulton formula


def picture(path, flow, planes, history, caption):
    """The vorticity in a wall of the vortex, first and last, and the energy over time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 3, figsize=(12, 4), facecolor=_show.BACKGROUND, layout="constrained"
    )
    titles = ("vorticity at the start", f"at t = {history.time[-1]:.1f}")
    for axis, plane, title in zip(axes, planes, titles, strict=False):
        axis.imshow(plane.T, origin="lower", cmap="magma", interpolation="bilinear")
        axis.set_title(title, color=_show.INK)
        axis.axis("off")
    axis = axes[2]
    axis.set_facecolor(_show.BACKGROUND)
    axis.plot(history.time, history.energy, color="#7fb3ff", label="energy")
    axis.plot(history.time, history.lost, color="#ff9f6b", label="lost to viscosity")
    total = np.add(history.energy, history.lost)
    axis.plot(history.time, total, color=_show.INK, lw=1, ls="--", label="both")
    axis.legend(facecolor=_show.BACKGROUND, labelcolor=_show.INK, frameon=False)
    axis.set_ylim(0, None)
    axis.set_xlabel("time", color=_show.FAINT)
    axis.tick_params(colors=_show.FAINT)
    figure.supxlabel(caption, color=_show.FAINT, fontsize=8, x=0.01, ha="left")
    figure.savefig(path, dpi=110, facecolor=_show.BACKGROUND)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count, size = _options.at_least(1), _options.at_least(4)
    parser.add_argument("--devices", type=count, metavar="N", help="devices of one process, no MPI")
    parser.add_argument("--size", type=size, default=64, metavar="N", help="points along each edge")
    parser.add_argument("--reynolds", type=_options.positive, default=400, metavar="RE")
    parser.add_argument("--time", type=_options.positive, default=8, metavar="T", help="simulated")
    parser.add_argument("--out", type=_options.picture, default="taylor_green.png", metavar="FILE")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    mesh = deblur.make_mesh(options.devices)
    say = print if jax.process_index() == 0 else (lambda *_: None)
    flow = Flow(options.size, options.reynolds)
    solver = Solver(flow, mesh)
    n_steps = flow.steps(options.time)
    say(f"{flow.n}^3 points, Reynolds number {flow.reynolds:g}, {n_steps} steps of {flow.dt:.4f}")
    say(f"on {deblur.describe(mesh)}")

    def plane(u_hat):
        """The plane through the middle of the vortices' wall, x = pi."""
        w = plait.jit(solver.vorticity)(u_hat)
        return plait.gather_to_host(w)[flow.n // 2]

    first, times = plane(solver.start()), []
    is_shown = jax.process_index() == 0 and not options.quiet
    shown = {"what": "simulating", "value": "dissipation", "unit": "step"}
    with _show.progress(n_steps, is_shown, **shown) as show:

        def report(i, rate, seconds):
            times.append(seconds)
            show(i, rate, seconds)

        u_hat, history = simulate(flow, mesh, options.time, report)
    last = plane(u_hat)
    peak = int(np.argmax(history.dissipation))
    speed = f"{statistics.median(times[1:] or times) * 1e3:.0f} ms per step"
    say(f"dissipation is greatest at t = {history.time[peak]:.2f}: {history.dissipation[peak]:.5f}")
    say(f"energy {history.energy[0]:.5f} -> {history.energy[-1]:.5f}, lost {history.lost[-1]:.5f}")
    say(f"the balance is open by {np.abs(history.gap).max():.1e} of the energy; {speed}")
    if jax.process_index() == 0:
        caption = f"plait on {deblur.describe(mesh)}; {flow.n}^3, Re {flow.reynolds:g}, {speed}"
        picture(options.out, flow, (first, last), history, caption)
    say(f"{options.out} written")


if __name__ == "__main__":
    main()
