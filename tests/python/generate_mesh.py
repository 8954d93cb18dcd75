"""Random programs of global arrays, each compared with jax.numpy on one device.

A program is a mesh with axes of one type, an array that is split over the mesh in some way, and
some steps. Each step makes a new array of an existing array; a few run inside a loop, a branch, a
checkpoint or vmap. The program runs call by call or as one program. The arrays that no step reads,
and both their derivatives, are compared. Several processes run the same programs; a mesh then has
all devices.
"""

import contextlib
import dataclasses
from collections.abc import Callable

import generate_dense
import jax
import jax.numpy as jnp
import jax.scipy.signal
import meshes
import numpy as np
import plait
import scipy.fft
import spread
from jax.sharding import AxisType, PartitionSpec
from plait._split import to_partition_spec

MESHES = [(1,), (2,), (3,), (4,), (8,), (2, 2), (3, 2), (2, 4), (1, 4), (4, 1), (2, 2, 2)]
MOST = {1: 20, 2: 8, 3: 5, 4: 3}  # elements of a part along an axis, by the number of axes
DTYPES = ("float32", "float64", "complex64", "complex128")
WAVES = {"dctn": "dct", "dstn": "dst", "idctn": "idct", "idstn": "idst"}
MOST_STEPS = 6
ROUNDINGS = 5000  # of the dtype: allowed error of values and derivatives, relative to the norm


@dataclasses.dataclass(frozen=True)
class Step:
    """Makes a new array of an array: by plait, and by jax.numpy."""

    text: str
    ours: Callable
    alone: Callable
    operand: int = 0  # 0 for the first array, i for the result of the i-th step


def _loop(f):
    return lambda x: jax.lax.scan(lambda v, _: (f(v), None), x, None, length=2)[0]


def _branch(f):
    return lambda x: jax.lax.cond(jnp.isfinite(jnp.abs(x).sum()), f, lambda v: v * 1, x)


def _batch(f):
    return lambda x: jax.vmap(f)(jnp.stack([x, -x, x * 2]))[2] * 0.5


# What may enclose a step, and whether the step has to keep the array's type.
WAYS = {
    "scan": (_loop, True),
    "cond": (_branch, True),
    "checkpoint": (jax.checkpoint, False),
    "vmap": (_batch, False),
}


def _sizes():
    """The possible meshes: with several processes, only meshes of all devices."""
    n = jax.device_count()
    if jax.process_count() == 1:
        return [sizes for sizes in MESHES if np.prod(sizes) <= n]
    return [sizes for sizes in {*MESHES, (n,), (1, n)} if np.prod(sizes) == n]


class Program:
    """The program of a seed; shape, dtype and spec describe the operand of the next step."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        sizes = _sizes()
        sizes = sizes[self.rng.integers(len(sizes))]
        self.is_explicit = bool(self.rng.random() < 0.3) and 1 not in sizes
        n = int(np.prod(sizes))
        order = self.rng.permutation(n) if self.rng.random() < 0.2 else None
        kind = AxisType.Explicit if self.is_explicit else AxisType.Auto
        self.mesh = meshes.make(sizes, kind, order)
        self.is_compiled = bool(self.rng.integers(2))
        self.dtype = np.dtype(DTYPES[self.rng.integers(len(DTYPES))])
        ndim = (1, 2, 2, 2, 3, 3, 4)[self.rng.integers(7)]
        self.spec = self._any_spec(ndim)
        parts = [int(self.rng.integers(1, MOST[ndim])) for _ in range(ndim)]
        self.shape = tuple(n * self._n_parts(e) for n, e in zip(parts, self.spec, strict=True))
        self.first = self.shape, self.dtype, self.spec
        self.steps, self.arrays = [], [self.first]
        n_steps = int(self.rng.integers(1, MOST_STEPS + 1))
        for _ in range(3 * n_steps):
            if len(self.steps) < n_steps:
                self._add()
        read = {step.operand for step in self.steps}
        self.given = [i for i in range(len(self.arrays)) if i not in read]

    def __str__(self):
        how = "compiled" if self.is_compiled else "call by call"
        kind = "Explicit" if self.is_explicit else "Auto"
        shape, dtype, spec = self.first
        head = f"{dtype}{list(shape)} split by {spec} over {dict(self.mesh.shape)}, {kind}, {how}"
        steps = [f"{i}: {step.text} of {step.operand}" for i, step in enumerate(self.steps, 1)]
        return "\n  ".join([head, *steps])

    def _n_parts(self, names):
        return int(np.prod([self.mesh.shape[name] for name in names]))

    def _any_spec(self, ndim, shape=None):
        """Mesh axes for array axes; the mesh axes divide a given shape."""
        found = [[] for _ in range(ndim)]
        for name in self.rng.permutation(self.mesh.axis_names):
            at = int(self.rng.integers(ndim))
            n_parts = self._n_parts(found[at]) * self.mesh.shape[str(name)]
            if self.rng.random() < 0.75 and (shape is None or shape[at] % n_parts == 0):
                found[at].append(str(name))
        return tuple(map(tuple, found))

    def _where(self, is_inside):
        """Keywords for the operand's split: if the call needs them, and at times otherwise."""
        has_to = not self.is_explicit and (self.is_compiled or is_inside)
        if has_to or self.rng.random() < 0.4:
            return {"mesh": self.mesh, "spec": to_partition_spec(self.spec)}
        return {}

    def _axes(self):
        n = int(self.rng.integers(1, len(self.shape) + 1))
        return tuple(int(a) for a in self.rng.permutation(len(self.shape))[:n])

    def _add(self):
        """Add a step, or none if the drawn step is impossible."""
        way = list(WAYS)[self.rng.integers(len(WAYS))] if self.rng.random() < 0.3 else ""
        operand = len(self.steps)
        if self.rng.random() < 0.3:
            operand = int(self.rng.integers(operand + 1))
        was = self.shape, self.dtype, self.spec = self.arrays[operand]
        kinds = (*STEPS, *ANYWHERE) if not way else STEPS
        step = kinds[self.rng.integers(len(kinds))](self, self._where(bool(way)))
        if step is not None and way:
            wrap, keeps = WAYS[way]
            if not keeps or (self.shape, self.dtype, self.spec) == was:
                step = Step(f"{way} of {step.text}", wrap(step.ours), wrap(step.alone))
        if step is not None:
            self.steps.append(dataclasses.replace(step, operand=operand))
            self.arrays.append((self.shape, self.dtype, self.spec))

    # ---- steps: they change the type of the array, and return the functions

    def _redistribute(self, where):
        self.spec = self._any_spec(len(self.shape), self.shape)
        to = to_partition_spec(self.spec)
        text = f"redistribute to {to}"
        return Step(text, lambda x: plait.redistribute(x, to, **where), lambda x: x)

    def _fftn(self, where):
        name = ("fftn", "ifftn")[self.rng.integers(2)]
        norm = ("backward", "ortho", "forward")[self.rng.integers(3)]
        given = {"axes": self._axes(), "norm": norm}
        layout = {}
        if self.rng.random() < 0.4:
            self.spec = self._any_spec(len(self.shape), self.shape)
            layout = {"layout": to_partition_spec(self.spec)}
        self.dtype = np.result_type(self.dtype, np.complex64)
        ours, alone = getattr(plait.fft, name), getattr(jnp.fft, name)
        return Step(
            f"{name} {given} {layout}",
            lambda x: ours(x, **given, **layout, **where),
            lambda x: alone(x, **given),
        )

    def _there_and_back(self, where):
        axes, shape = self._axes(), self.shape
        if self.dtype.kind == "c":
            return None
        given = {"axes": axes, "shape": shape} | where
        return Step(
            f"rfftn and irfftn of {axes}",
            lambda x: plait.fft.irfftn(plait.fft.rfftn(x, **given) * 0.5, **given),
            lambda x: jnp.fft.irfftn(
                jnp.fft.rfftn(x, axes=axes) * 0.5, [shape[a] for a in axes], axes
            ),
        )

    def _waves(self, where):
        name, axes = list(WAVES)[self.rng.integers(4)], self._axes()
        kind, norm = int(self.rng.integers(1, 5)), (None, "ortho")[self.rng.integers(2)]
        if kind == 1 and any(self.shape[a] < 2 for a in axes):
            return None
        one, dtype = getattr(scipy.fft, WAVES[name]), self.dtype
        matrices = [one(np.eye(self.shape[a]), kind, axis=0, norm=norm) for a in axes]

        def alone(x):
            for a, m in zip(axes, matrices, strict=True):
                m = jnp.asarray(m.astype(dtype))
                x = jnp.moveaxis(jnp.tensordot(m, x, ((1,), (a,))), 0, a)
            return x

        ours = getattr(plait.fft, name)
        text = f"{name} of type {kind}, {axes}, {norm}"
        return Step(text, lambda x: ours(x, kind, axes=axes, norm=norm, **where), alone)

    def _fold(self, where):
        """Ghost cells there and back: each cell, times its number of copies."""
        a = int(self.rng.integers(len(self.shape)))
        before, after = (int(n) for n in self.rng.integers(0, 3, 2))
        width = [(before, after) if i == a else 0 for i in range(len(self.shape))]
        n_here = self.shape[a] // self._n_parts(self.spec[a])
        count = np.zeros(self.shape[a])
        for first in range(0, self.shape[a], n_here):
            for i in range(first - before, first + n_here + after):
                count[i % self.shape[a]] += 1
        count = count.reshape([-1 if i == a else 1 for i in range(len(self.shape))])
        return Step(
            f"halo.pad and fold of {width}",
            lambda x: plait.halo.fold(plait.halo.pad(x, width, **where), width, **where),
            lambda x: x * jnp.asarray(count.astype(x.dtype)),
        )

    def _without_mean(self, where):
        axes = self._axes()
        n = int(np.prod([self.shape[a] for a in axes]))
        return Step(
            f"minus half of the mean of {axes}",
            lambda x: x - 0.5 * plait.sum(x, axis=axes, keepdims=True, **where) / n,
            lambda x: x - 0.5 * jnp.sum(x, axis=axes, keepdims=True) / n,
        )

    def _convolve(self, where):
        extents = [int(self.rng.integers(1, min(n, 4) + 1)) for n in self.shape]
        kernel = self.rng.standard_normal(extents).astype(self.dtype)
        return Step(
            f"fftconvolve with {extents}",
            lambda x: plait.fft.fftconvolve(x, jnp.asarray(kernel), mode="same", **where),
            lambda x: jax.scipy.signal.fftconvolve(x, jnp.asarray(kernel), mode="same"),
        )

    def _solve(self, where):
        """Solve with a matrix that is on no mesh."""
        n = self.shape[0]
        if len(self.shape) > 2 or (where and self.is_compiled):
            return None
        a = (self.rng.standard_normal((n, n)) / n + 3 * np.eye(n)).astype(self.dtype)
        whole = {"mesh": self.mesh, "spec": PartitionSpec()} if where else {}

        def alone(x):
            return jnp.linalg.solve(jnp.asarray(a), x.reshape(n, -1)).reshape(x.shape)

        return Step("solve", lambda x: plait.linalg.solve(jnp.asarray(a), x, **whole), alone)

    def _dense(self, where):
        if len(self.shape) != 2:
            return None
        makers = generate_dense.STEPS
        return Step(*makers[self.rng.integers(len(makers))](self, where))

    def _sum_of_xla(self, _where):
        """The collective of this sum has no order with those of plait."""
        n = int(np.prod(self.shape))
        return Step("minus half of XLA's mean", *[lambda x: x - 0.5 * jnp.sum(x) / n] * 2)

    def _elementwise(self, _where):
        f = (lambda x: x * 2 - 1, jnp.conj, lambda x: x * (1 + 0.1 * x))[self.rng.integers(3)]
        return Step("elementwise", f, f)

    def _real(self, _where):
        self.dtype = np.finfo(self.dtype).dtype
        return Step("real", jnp.real, jnp.real)

    def _transpose(self, _where):
        order = [int(a) for a in self.rng.permutation(len(self.shape))]
        self.shape = tuple(self.shape[a] for a in order)
        self.spec = tuple(self.spec[a] for a in order)
        return Step(f"transpose {order}", *[lambda x: jnp.transpose(x, order)] * 2)

    # ---- running

    def _all(self, x, run):
        arrays = [x]
        for step in self.steps:
            arrays.append(run(step)(arrays[step.operand]))
        return [arrays[i] for i in self.given]

    def ours(self, x):
        return self._all(x, lambda step: step.ours)

    def alone(self, x):
        return self._all(x, lambda step: step.alone)

    def _random(self, shape, dtype):
        return meshes.random(shape, dtype, int(self.rng.integers(2**31)))

    def check(self):
        """Values, reverse and forward derivatives agree with those on one device."""
        shape, dtype, spec = self.first
        a, t = self._random(shape, dtype), self._random(shape, dtype)
        x, tangent = (spread.put(v, self.mesh, to_partition_spec(spec)) for v in (a, t))
        want = self.alone(jnp.asarray(a))
        c = [self._random(y.shape, np.dtype(y.dtype)) for y in want]
        compiled = plait.jit if self.is_compiled else lambda f: f
        with jax.set_mesh(self.mesh) if self.is_explicit else contextlib.nullcontext():
            ys = compiled(self.ours)(x)
            cts = [spread.put_like(v, y) for v, y in zip(c, ys, strict=True)]
            (back,) = compiled(lambda x, c: jax.vjp(self.ours, x)[1](c))(x, cts)
            along = compiled(lambda x, t: jax.jvp(self.ours, (x,), (t,))[1])(x, tangent)
        alone = jnp.asarray(a)
        (want_back,) = jax.vjp(self.alone, alone)[1]([jnp.asarray(v) for v in c])
        want_along = jax.jvp(self.alone, (alone,), (jnp.asarray(t),))[1]
        for i, y, w in zip(self.given, ys, want, strict=True):
            self._compare(f"value {i}", y, w, np.linalg.norm(a))
        size = np.sqrt(sum(np.linalg.norm(v) ** 2 for v in c))
        self._compare("reverse derivative", back, want_back, size)
        for i, y, w in zip(self.given, along, want_along, strict=True):
            self._compare(f"forward derivative {i}", y, w, np.linalg.norm(t))

    def _compare(self, what, got, want, size):
        want = np.asarray(want)
        assert got.shape == want.shape and got.dtype == want.dtype, (what, got.dtype, want.dtype)
        scale = max(np.linalg.norm(want), size)
        for shard in got.addressable_shards:
            error = np.linalg.norm(np.asarray(shard.data) - want[shard.index]) / scale
            assert error < ROUNDINGS * np.finfo(got.dtype).eps, f"{what}, off by {error}\n{self}"


STEPS = (
    Program._redistribute,
    Program._fftn,
    Program._there_and_back,
    Program._waves,
    Program._fold,
    Program._without_mean,
    Program._convolve,
    Program._solve,
    Program._dense,
    Program._dense,
)
# JAX's own
ANYWHERE = (Program._sum_of_xla, Program._elementwise, Program._real, Program._transpose)


def check(seed):
    """Run the program of a seed; any error shows the program's text."""
    program = Program(seed)
    try:
        program.check()
    except AssertionError:
        raise
    except Exception as error:
        error.add_note(f"seed {seed}: {program}")
        raise
