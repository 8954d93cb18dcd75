"""A jet in a rotating layer of water that breaks into eddies, on any number of MPI ranks.

    plait run -n 2 examples/shallow_water.py              a channel with walls, on a beta plane
    plait run -n 4 examples/shallow_water.py --periodic   two opposite jets, no walls, f plane

The nonlinear shallow-water equations in vector-invariant form (Vallis, Atmospheric and Oceanic
Fluid Dynamics, 2nd ed., 2017, sections 3.1 and 4.1), with lateral viscosity for u and v:

    du/dt =  q hv - dB/dx + nu lap u        q = (f + dv/dx - du/dy) / h   potential vorticity
    dv/dt = -q hu - dB/dy + nu lap v        B = g eta + (u^2 + v^2) / 2   Bernoulli function
    dh/dt = -d(hu)/dx - d(hv)/dy            h = depth + eta

on Arakawa's C grid, averaged so that potential enstrophy is conserved (Sadourny, J. Atmos. Sci. 32,
1975), and stepped by Adams-Bashforth 2, slightly off centre. Each rank has a block of cells; a step
needs one cell of its neighbours on each side: four `plait.sendrecv` of all three fields, in one
jitted loop. The step has no reductions, so the fields have the same bits on any number of ranks.
"""

import argparse
import dataclasses
import math
import time
from typing import Any, NamedTuple

import _flow
import _options
import _ranks
import _show
import jax
import jax.numpy as jnp
import numpy as np
import plait

DAY = 86400.0


@dataclasses.dataclass(frozen=True)
class Model:
    """The layer of water, the jet in it, and the grid, in SI units."""

    shape: tuple[int, int] = (128, 256)  # cells along y and x
    extent: tuple[float, float] = (2.0e6, 4.0e6)
    has_walls: bool = True  # in the south and north; else also periodic in y
    depth: float = 1000.0
    gravity: float = 9.81
    coriolis: float = 1e-4
    beta: float = 1.6e-11
    speed: float = 40.0  # of the jet
    width: float = 1.2e5
    bump: float = 2.0  # height of the perturbation
    viscosity: float = 2000.0
    courant: float = 0.12  # of the gravity waves
    offset: float = 0.05  # of Adams-Bashforth from the centre; damps modes that it would amplify

    @property
    def dy(self):
        return self.extent[0] / self.shape[0]

    @property
    def dx(self):
        return self.extent[1] / self.shape[1]

    @property
    def dt(self):
        fastest = math.sqrt(self.gravity * self.depth) + self.speed
        return self.courant * min(self.dx, self.dy) / fastest


class State(NamedTuple):
    """The stepped fields: eta at a cell's centre, u on its east face, v on its north face."""

    eta: Any
    u: Any
    v: Any


def coriolis(model):
    """The parameter f at the south and north edge of each row of cells."""
    if not model.has_walls:  # a beta plane would not be periodic
        return np.full(model.shape[0] + 1, model.coriolis)
    y = np.arange(model.shape[0] + 1) * model.dy
    return model.coriolis + model.beta * (y - model.extent[0] / 2)


def initial(model):
    """A jet in geostrophic balance on this grid, and a bump of the surface; numpy, whole."""
    (n_y, n_x), (length_y, length_x) = model.shape, model.extent
    y = (np.arange(n_y)[:, None] + 0.5) * model.dy
    x = (np.arange(n_x)[None] + 0.5) * model.dx

    def jet(at):
        return 1 / np.cosh((y - at * length_y) / model.width) ** 2

    profile = jet(0.5) if model.has_walls else jet(0.25) - jet(0.75)
    u = model.speed * profile
    slope = -coriolis(model)[1:-1, None] * (u[1:] + u[:-1]) / (2 * model.gravity)
    eta = np.concatenate([np.zeros((1, 1)), np.cumsum(slope * model.dy, 0)])
    eta -= eta.mean()
    waves = sum(np.cos(2 * np.pi * k * x / length_x + k * k) / 3 for k in range(1, 7))
    eta = eta + model.bump * waves * np.abs(profile)
    return State(eta, u + 0 * x, 0 * eta)


def exchange(state, place):
    """The fields with a margin of one cell on each side: a neighbour's, or beyond a wall."""

    def both(low, high, at_low, at_high, before, after):
        """Sends the two edges; returns the received ghosts, or the templates at a wall."""
        top = plait.sendrecv(low, at_high, after, before, sendtag=1, recvtag=1)
        bottom = plait.sendrecv(high, at_low, before, after, sendtag=2, recvtag=2)
        return bottom, top

    def join(axis, ghosts, state):
        parts = zip(ghosts[0], state, ghosts[1], strict=True)
        return State(*(jnp.concatenate(p, axis) for p in parts))

    low, high = (State(*(a[:, cut] for a in state)) for cut in (slice(1), slice(-1, None)))
    state = join(1, both(low, high, low, high, place.west, place.east), state)
    low, high = (State(*(a[cut] for a in state)) for cut in (slice(1), slice(-1, None)))
    # A wall lets nothing through and slips freely: eta and u continue beyond it, v vanishes.
    at_low, at_high = (edge._replace(v=jnp.zeros_like(edge.v)) for edge in (low, high))
    return join(0, both(low, high, at_low, at_high, place.south, place.north), state)


def mean_y(a):
    return 0.5 * (a[1:] + a[:-1])


def mean_x(a):
    return 0.5 * (a[:, 1:] + a[:, :-1])


def vorticity(padded, model, times):
    """dv/dx - du/dy at the corners of the cells, also of the ghosts in the south-west."""
    along_x, along_y = (
        padded.v[:-1, 1:] - padded.v[:-1, :-1],
        padded.u[1:, :-1] - padded.u[:-1, :-1],
    )
    return times(1 / model.dx, along_x) - times(1 / model.dy, along_y)


class Fixed(NamedTuple):
    """The constants of a rank's programs, besides the state."""

    f: Any  # at the south and north edges of each row
    is_open: Any  # 0 in the row whose north face is a wall
    zero: Any

    def times(self, a, b):
        """The product, rounded before it is summed.

        Otherwise XLA fuses some products, unrounded, into the sums around them. Which ones depends
        on the size of the block, so the last bits would depend on the number of ranks.
        """
        return a * b + self.zero


def tendency(state, fixed, model, place):
    """The right-hand sides on this rank's cells."""
    padded, times = exchange(state, place), fixed.times
    (eta, u, v), per_dx, per_dy = padded, 1 / model.dx, 1 / model.dy
    h = model.depth + eta
    hu, hv = times(mean_x(h), u[:, :-1]), times(mean_y(h), v[:-1])
    q = (fixed.f + vorticity(padded, model, times)) / mean_y(mean_x(h))
    uu, vv = times(u, u), times(v, v)
    kinetic = 0.25 * (uu[1:, 1:] + uu[1:, :-1] + vv[1:, 1:] + vv[:-1, 1:])
    bernoulli = times(model.gravity, eta[1:, 1:]) + kinetic

    def friction(a):
        along_x = a[1:-1, 2:] - 2 * a[1:-1, 1:-1] + a[1:-1, :-2]
        along_y = a[2:, 1:-1] - 2 * a[1:-1, 1:-1] + a[:-2, 1:-1]
        nu = model.viscosity
        return times(nu * per_dx**2, along_x) + times(nu * per_dy**2, along_y)

    du = times(mean_y(q)[:, 1:], mean_x(mean_y(hv))[:, 1:])
    du += friction(u) - times(per_dx, bernoulli[:-1, 1:] - bernoulli[:-1, :-1])
    dv = friction(v) - times(mean_x(q)[1:], mean_y(mean_x(hu))[1:])
    dv -= times(per_dy, bernoulli[1:, :-1] - bernoulli[:-1, :-1])
    outflow_x = times(per_dx, hu[1:-1, 1:] - hu[1:-1, :-1])
    outflow_y = times(per_dy, hv[1:, 1:-1] - hv[:-1, 1:-1])
    return State(-(outflow_x + outflow_y), du, fixed.is_open * dv)


class Simulation:
    """The programs of one rank, and its part of the fields."""

    def __init__(self, model, comm, dtype=jnp.float64):
        self.model = model
        self.place = place = _ranks.Place(comm, model.shape, model.has_walls)
        self.state = State(*(jnp.asarray(place.part(a), dtype) for a in initial(model)))
        edges = coriolis(model)
        f = np.concatenate([place.rows(edges[:-1])[:1], place.rows(edges[1:])])
        is_open = np.ones(model.shape[0])
        is_open[-1] = 0 if model.has_walls else 1
        fixed = (f[:, None], place.rows(is_open)[:, None], np.zeros((1, 1)))
        self.fixed = Fixed(*(jnp.asarray(a, dtype) for a in fixed))
        self.past = None
        self._advance = plait.jit(self._steps, donate_argnums=(0, 1))
        self._vorticity = plait.jit(self._gathered_vorticity)
        self._volume = plait.jit(self._summed)

    def _steps(self, state, past, fixed, weights, n_steps):
        def moved(a, d, e):
            return a + (fixed.times(weights[0], d) - fixed.times(weights[1], e))

        def step(_, carry):
            state, past = carry
            new = tendency(state, fixed, self.model, self.place)
            return State(*map(moved, state, new, past)), new

        return jax.lax.fori_loop(0, n_steps, step, (state, past))

    def _gathered_vorticity(self, state, fixed):
        zeta = vorticity(exchange(state, self.place), self.model, fixed.times)
        return plait.gather(zeta[1:, 1:], 0)

    def _summed(self, state):
        return plait.allreduce(jnp.sum(state.eta), plait.SUM)

    def advance(self, n_steps):
        """Makes steps; the very first is an Euler step, which needs no past."""
        if n_steps and self.past is None:
            self._call((1.0, 0.0), 1)
            n_steps -= 1
        self._call((1.5 + self.model.offset, 0.5 + self.model.offset), n_steps)

    def _call(self, weights, n_steps):
        past = jax.tree.map(jnp.zeros_like, self.state) if self.past is None else self.past
        weights = jnp.asarray(weights, self.state.eta.dtype) * self.model.dt
        state, past = self._advance(self.state, past, self.fixed, weights, n_steps)
        self.state, self.past = state, past if n_steps else self.past

    def vorticity(self):
        """The whole field on rank 0 as a numpy array; None elsewhere."""
        parts = self._vorticity(self.state, self.fixed)
        return self.place.whole(np.asarray(parts)) if self.place.comm.rank == 0 else None

    def fields(self):
        """The whole State on rank 0 as numpy arrays; None elsewhere."""
        parts = plait.gather(self.state, 0)
        if self.place.comm.rank != 0:
            return None
        return State(*(self.place.whole(np.asarray(p)) for p in parts))

    def volume(self):
        """The water above the depth, on every rank, in cells times metres."""
        return float(self._volume(self.state))


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count, file = _options.at_least(2), _options.picture_or_film
    parser.add_argument("--cells", type=count, nargs=2, default=(128, 256), metavar=("NY", "NX"))
    parser.add_argument("--days", type=_options.positive, default=6.0, metavar="D")
    parser.add_argument("--periodic", action="store_true", help="no walls, two jets, no beta")
    parser.add_argument("--single", action="store_true", help="float32 instead of float64")
    parser.add_argument("--frames", type=count, default=6, metavar="F", help="snapshots, or film")
    parser.add_argument("--out", type=file, default="shallow_water.png", metavar="FILE")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    return parser.parse_args(arguments)


def run(simulation, n_steps, n_frames, show):
    """The vorticity at the start and after each frame, by day, and the seconds of stepping."""
    seconds, frames = 0.0, [(0.0, simulation.vorticity())]
    for i in range(1, n_frames):
        started = time.perf_counter()
        simulation.advance(n_steps)
        plait.block(simulation.state)
        taken = time.perf_counter() - started
        seconds += taken
        days = i * n_steps * simulation.model.dt / DAY
        frames.append((days, simulation.vorticity()))
        show(i, days, taken)
    return frames, seconds


def main(arguments=None):
    options = parse(arguments)
    jax.config.update("jax_enable_x64", not options.single)
    comm = plait.Comm()
    say = print if comm.rank == 0 else (lambda *_: None)
    model = Model(shape=tuple(options.cells), has_walls=not options.periodic)
    simulation = Simulation(model, comm, jnp.float32 if options.single else jnp.float64)
    n_frames = options.frames
    n_steps = max(1, round(options.days * DAY / model.dt / (n_frames - 1)))
    grid, block = (" x ".join(map(str, s)) for s in (simulation.place.grid, simulation.place.cells))
    say(f"{model.shape[0]} x {model.shape[1]} cells of {model.dx / 1e3:.1f} km")
    say(f"{n_steps * (n_frames - 1)} steps of {model.dt:.1f} s")
    say(f"on {_ranks.describe(comm)}, {grid} blocks of {block} cells")

    before = simulation.volume()
    simulation.advance(0)  # compiles
    is_shown = comm.rank == 0 and not options.quiet
    with _show.progress(n_frames - 1, is_shown, "stepping", "day", "frame") as show:
        frames, seconds = run(simulation, n_steps, n_frames, show)
    drift = abs(simulation.volume() - before) / (model.depth * math.prod(model.shape))
    speed = f"{n_steps * (n_frames - 1) / seconds:.0f} steps/s"
    say(f"{speed}, mass changed by {drift:.1e} of itself")
    if comm.rank == 0:
        name = "float32" if options.single else "float64"
        caption = (
            f"plait on {_ranks.describe(comm)}; {grid} blocks of {block} cells, {name}, {speed}"
        )
        _flow.save(options.out, frames, model, caption)
    say(f"{options.out} written")
    return simulation


if __name__ == "__main__":
    main()
