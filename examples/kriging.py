"""Predict the thickness of the cortex from some of its points: a Gaussian process, distributed.

    plait run -n 2 examples/kriging.py            two MPI ranks
    python examples/kriging.py --devices 4        four devices of one process

The thickness y at n points of the sphere is the sum of a constant, a Gaussian process and noise.
The covariance is Matern's (nu = 5/2) of the chord between two points, and that of the noise:

    K_ij = s^2 (1 + q + q^2 / 3) exp(-q) + t^2 (i = j),        q = sqrt(5) |x_i - x_j| / l

L-BFGS finds the reach l, size s and noise t of the greatest likelihood; the gradient goes through a
distributed Cholesky factorization. Each device makes its own rows of K, and never has more of K
than its part.
"""

import argparse
import dataclasses
import itertools
import math
import time

import _cortex
import _options
import _show
import deblur
import jax
import jax.numpy as jnp
import numpy as np
import plait
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from scipy.optimize import minimize
from scipy.spatial import cKDTree

ROWS = P("x")  # each device has some points, and their rows of K
START = (math.log(0.3), math.log(0.5), math.log(0.1))  # l on the unit sphere, s and t in mm


def chords(x, y):
    """Distances between points, (m, 3) and (n, 3) to (m, n)."""
    return jnp.sqrt(sum((x[:, None, i] - y[None, :, i]) ** 2 for i in range(3)))


def matern(distance, reach, size):
    q = math.sqrt(5) * distance / reach
    return size**2 * (1 + q + q * q / 3) * jnp.exp(-q)


@dataclasses.dataclass(frozen=True)
class Process:
    """A Gaussian process that is known at n points, on a mesh.

    The devices have equal numbers of points. Those behind the n-th are independent of all others,
    have variance 1 and value 0, and change nothing.
    """

    mesh: jax.sharding.Mesh
    n: int

    @property
    def stored(self):
        return self._stored(self.n)

    def _stored(self, n):
        return -(-n // self.mesh.size) * self.mesh.size

    def spread(self, values, fill=0.0):
        """An array that every process has, in equal parts on the devices."""
        wide = np.full((self._stored(len(values)), *values.shape[1:]), fill)
        wide[: len(values)] = values
        return self._put(wide, ROWS)

    def share(self, values, n_stored=None):
        """An array that every process has, on every device."""
        wide = np.zeros((n_stored or len(values), *values.shape[1:]))
        wide[: len(values)] = values
        return self._put(wide, P())

    def _put(self, values, spec):
        where = NamedSharding(self.mesh, spec)
        return jax.make_array_from_callback(values.shape, where, lambda index: values[index])

    def copies(self, theta):
        """A row of parameters for each device, so that plait also returns the gradients."""
        every = jnp.tile(theta, (self.mesh.size, 1))
        return plait.redistribute(every, ROWS, mesh=self.mesh, spec=P())

    def covariance(self, theta, x, x_all):
        """K, with each device's own rows."""

        def rows(theta, x, x_all):
            reach, size, noise = jnp.exp(theta[0])
            i = jax.lax.axis_index("x") * len(x) + jnp.arange(len(x))[:, None]
            j = jnp.arange(len(x_all))[None, :]
            k = matern(chords(x, x_all), reach, size) + jnp.where(i == j, noise**2, 0.0)
            return jnp.where((i < self.n) & (j < self.n), k, jnp.where(i == j, 1.0, 0.0))

        specs = (ROWS, ROWS, P())
        made = jax.shard_map(rows, mesh=self.mesh, in_specs=specs, out_specs=ROWS, check_vma=False)
        return made(self.copies(theta), x, x_all)

    def factor(self, theta, x, x_all):
        """The Cholesky factorization of K."""
        k = self.covariance(theta, x, x_all)
        return plait.linalg.cholesky(k, mesh=self.mesh, spec=ROWS)

    def loss(self, theta, x, x_all, y):
        """The negative logarithm of the likelihood, for each point."""
        f = self.factor(theta, x, x_all)
        misfit = jnp.vdot(y, f.solve(y, spec=P()))
        return 0.5 * (misfit + f.logdet() + self.n * math.log(2 * math.pi)) / self.n

    def slope(self, theta, x, x_all, y):
        """Loss and gradient in one array, the first device's on all: all ranks take equal steps."""
        value, gradient = jax.value_and_grad(self.loss)(theta, x, x_all, y)
        both = self.copies(jnp.concatenate([value[None], gradient]))
        return plait.redistribute(both, P(), mesh=self.mesh, spec=ROWS)[0]

    def predict(self, theta, f, x_all, y, targets):
        """Mean and standard deviation at targets, which are split like the points."""
        k = self._cross(theta, x_all, targets)
        mean = k @ f.solve(y, spec=P())
        moved = f.solve(k.T, spec=P(None, "x"))  # each target's column is on its device
        variance = jnp.exp(theta[1]) ** 2 - jnp.sum(k.T * moved, axis=0)
        return mean, jnp.sqrt(jnp.maximum(variance, 0.0))

    def _cross(self, theta, x_all, targets):
        """Covariances of targets and points; each device has its own targets."""
        reach, size, _ = jnp.exp(theta)
        k = matern(chords(targets, x_all), reach, size)
        k = jnp.where(jnp.arange(len(x_all))[None, :] < self.n, k, 0.0)
        return jax.lax.with_sharding_constraint(k, NamedSharding(self.mesh, ROWS))


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result: logarithms of reach, size and noise, and the predictions with them.

    seconds: of each evaluation of the loss and its gradient, the first one including compilation.
    """

    theta: np.ndarray
    loss: float
    seconds: list
    mean: np.ndarray
    deviation: np.ndarray


def regress(mesh, points, values, targets, n_steps=20, report=lambda *_: None):
    """Fit a process to values at points, and predict it at targets."""
    process, center = Process(mesh, len(points)), values.mean()
    x, x_all = process.spread(points), process.share(points, process.stored)
    y = process.share(values - center, process.stored)
    slope, seconds = plait.jit(process.slope), []

    def evaluate(theta):
        started = time.perf_counter()
        value, *gradient = (float(v) for v in slope(process.share(theta), x, x_all, y))
        seconds.append(time.perf_counter() - started)
        return value, np.array(gradient)

    def step(intermediate_result):
        report(intermediate_result.fun, seconds)

    given = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": n_steps}}
    found = minimize(evaluate, START, callback=step, **given)
    theta = process.share(found.x)
    f = plait.jit(process.factor)(theta, x, x_all)
    predicted = plait.jit(process.predict)(theta, f, x_all, y, process.spread(targets))
    mean, deviation = (plait.gather_to_host(v)[: len(targets)] for v in predicted)
    return Fit(found.x, float(found.fun), seconds, mean + center, deviation)


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count = _options.at_least(1)
    parser.add_argument("--devices", type=count, metavar="N", help="devices of one process, no MPI")
    parser.add_argument("--train", type=count, default=4000, metavar="N", help="to learn from")
    parser.add_argument("--test", type=count, metavar="M", help="points to predict; all others")
    steps = _options.at_least(0)
    parser.add_argument("--steps", type=steps, default=20, metavar="S", help="of L-BFGS, at most")
    parser.add_argument("--out", type=_options.picture, default="kriging.png", metavar="FILE")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    jax.config.update("jax_enable_x64", True)
    mesh = deblur.make_mesh(options.devices)
    say = print if jax.process_index() == 0 else (lambda *_: None)
    surface = _cortex.load()
    train, test = surface.split(options.train, options.test)
    points, truth = surface.sphere, surface.thickness
    n_wall = len(truth) - len(surface.cortex)
    what = f"{len(truth)} vertices, {n_wall} of the medial wall"
    say(f"cortical thickness on fsaverage5, left hemisphere: {what}")
    say(f"{len(train)} to learn from, {len(test)} to predict; on {deblur.describe(mesh)}")
    is_shown, steps = jax.process_index() == 0 and not options.quiet, itertools.count(1)
    shown = {"what": "fitting", "value": "-log likelihood / n", "unit": "step"}
    with _show.progress(options.steps, is_shown, **shown) as show:

        def report(loss, seconds):
            show(next(steps), loss, seconds[-1])

        targets = points[np.concatenate([test, train])]
        fit = regress(mesh, points[train], truth[train], targets, options.steps, report)
    reach, size, noise = np.exp(fit.theta)
    error = fit.mean[: len(test)] - truth[test]
    nearest = truth[train][cKDTree(points[train]).query(points[test])[1]] - truth[test]
    inside = np.mean(np.abs(error) < 2 * np.hypot(fit.deviation[: len(test)], noise))
    speed = f"{np.median(fit.seconds[1:] or fit.seconds):.2f} s for a likelihood and its gradient"
    say(f"reach {reach * _cortex.RADIUS:.1f} mm, size {size:.3f} mm, noise {noise:.3f} mm")
    say(f"error {rms(error):.4f} mm; of the nearest neighbour's value {rms(nearest):.4f} mm")
    say(f"{inside:.1%} within two standard deviations; {speed}")
    if jax.process_index() == 0:
        caption = f"plait on {deblur.describe(mesh)}; {len(train)} points, {speed}"
        draw(options.out, surface, (train, test), fit, (rms(error), rms(nearest)), caption)
    say(f"{options.out} written")


def draw(path, surface, parts, fit, errors, caption):
    """The truth, the prediction, and its possible error; grey outside the cortex."""
    train, test = parts
    shown = np.concatenate([test, train])
    truth, mean, deviation = (np.full(len(surface.thickness), np.nan) for _ in range(3))
    truth[surface.cortex] = surface.thickness[surface.cortex]
    mean[shown], deviation[shown] = fit.mean, fit.deviation
    limits = tuple(np.nanpercentile(truth, [1, 99]))
    below = f"rms error {errors[0]:.3f} mm, nearest neighbour {errors[1]:.3f}"
    columns = [
        ("thickness", "fsaverage5, mean of 40 people", truth, "magma", limits),
        ("predicted", below, mean, "magma", limits),
        ("standard deviation", f"from {len(train)} points", deviation, "viridis", (0, None)),
    ]
    _cortex.picture(path, surface, columns, caption)


if __name__ == "__main__":
    main()
