"""Steps of generated programs that are dense linear algebra; see generate_mesh.py.

Each step turns an array of any numbers into a well-conditioned matrix with distinct eigenvalues,
or singular values, so that its results are smooth functions with one value.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import plait
from plait._split import to_partition_spec

NONE = ()


@dataclasses.dataclass(frozen=True)
class _Ours:
    """Steps by plait; each call gets the split of its matrix, if there is a mesh."""

    mesh: Any

    def at(self, spec):
        return {"mesh": self.mesh, "spec": to_partition_spec(spec)} if self.mesh else {}

    def total(self, x, spec):
        return plait.sum(x, **self.at(spec))

    def matmul(self, a, b, spec, spec_b):
        told = {"spec_b": to_partition_spec(spec_b)} if self.mesh else {}
        return plait.linalg.matmul(a, b, **told, **self.at(spec))

    def solve(self, a, b, spec, assume):
        return plait.linalg.solve(a, b, assume=assume, **self.at(spec))

    def lower(self, a, spec):
        return plait.linalg.cholesky(a, **self.at(spec)).l

    def inv(self, a, spec):
        return plait.linalg.inv(a, **self.at(spec))

    def logdet(self, a, spec):
        return plait.linalg.slogdet(a, **self.at(spec))[1]

    def eigh(self, a, spec):
        return plait.linalg.eigh(a, **self.at(spec))

    def eigvalsh(self, a, spec):
        return plait.linalg.eigvalsh(a, **self.at(spec))

    def svdvals(self, a, spec):
        return plait.linalg.svdvals(a, **self.at(spec))

    def lstsq(self, a, b, spec):
        return plait.linalg.lstsq(a, b, **self.at(spec))


class _Alone:
    """Steps by jax.numpy."""

    def total(self, x, _spec):
        return jnp.sum(x)

    def matmul(self, a, b, _spec, _spec_b):
        return a @ b

    def solve(self, a, b, _spec, _assume):
        return jnp.linalg.solve(a, b)

    def lower(self, a, _spec):
        return jnp.linalg.cholesky(a)

    def inv(self, a, _spec):
        return jnp.linalg.inv(a)

    def logdet(self, a, _spec):
        return jnp.linalg.slogdet(a)[1]

    def eigh(self, a, _spec):
        return jnp.linalg.eigh(a)

    def eigvalsh(self, a, _spec):
        return jnp.linalg.eigvalsh(a)

    def svdvals(self, a, _spec):
        return jnp.linalg.svd(a, compute_uv=False)

    def lstsq(self, a, b, _spec):
        return jnp.linalg.pinv(a) @ b


def _bounded(x, spec, by):
    """The array, scaled to a norm below 1."""
    return x / jnp.sqrt(1 + by.total(jnp.real(x * jnp.conj(x)), spec)).astype(x.dtype)


def _definite(program):
    """Turn an array into a positive definite matrix with distinct eigenvalues; and its split."""
    spec = program.spec
    n = program.shape[0]
    diagonal = np.diag(1 + np.arange(n) / n).astype(program.dtype)

    def make(x, by):
        x = 0.3 * _bounded(x, spec, by)
        return by.matmul(x, jnp.conj(x).T, spec, spec[::-1]) / n + diagonal

    return make, (spec[0], NONE)


def _different(program):
    """Turn an array into a matrix of its shape with distinct singular values, none small."""
    spec = program.spec
    m, n = program.shape
    u, _, vh = np.linalg.svd(program.rng.standard_normal((m, n)), full_matrices=False)
    k = min(m, n)
    centre = ((u * (1 + np.arange(k) / k)) @ vh).astype(program.dtype)

    def make(x, by):
        return centre + 0.3 * _bounded(x, spec, by) / k

    return make


def _step(program, where, text, function, shape=None, spec=None, is_real=False):
    """The text and the function, by plait and alone; the program notes the type of the result."""
    ours, alone = _Ours(program.mesh if where else None), _Alone()
    program.shape = program.shape if shape is None else shape
    program.spec = program.spec if spec is None else spec
    program.dtype = np.finfo(program.dtype).dtype if is_real else program.dtype
    return text, lambda x: function(x, ours), lambda x: function(x, alone)


def solution(program, where):
    make, split = _definite(program)
    assume = ("general", "positive")[program.rng.integers(2)]
    return _step(
        program, where, f"solve, {assume}", lambda x, by: by.solve(make(x, by), x, split, assume)
    )


def lower(program, where):
    make, split = _definite(program)
    n = program.shape[0]
    return _step(
        program, where, "cholesky", lambda x, by: by.lower(make(x, by), split), (n, n), split
    )


def inverse(program, where):
    make, split = _definite(program)
    n = program.shape[0]
    return _step(program, where, "inv", lambda x, by: by.inv(make(x, by), split), (n, n), split)


def scaled(program, where):
    make, split = _definite(program)
    return _step(
        program,
        where,
        "times logdet",
        lambda x, by: x * by.logdet(make(x, by), split).astype(x.dtype),
    )


def root(program, where):
    make, split = _definite(program)
    n = program.shape[0]

    def f(x, by):
        w, v = by.eigh(make(x, by), split)
        rows = jnp.conj(v).T
        return by.matmul(v * jnp.sqrt(w)[None].astype(v.dtype), rows, split, split[::-1])

    return _step(program, where, "square root by eigh", f, (n, n), split)


def eigenvalues(program, where):
    make, split = _definite(program)
    return _step(
        program,
        where,
        "eigvalsh",
        lambda x, by: by.eigvalsh(make(x, by), split),
        program.shape[:1],
        (NONE,),
        True,
    )


def singular_values(program, where):
    make, split, k = _different(program), program.spec, min(program.shape)
    return _step(
        program, where, "svdvals", lambda x, by: by.svdvals(make(x, by), split), (k,), (NONE,), True
    )


def least_squares(program, where):
    make, split, (m, n) = _different(program), program.spec, program.shape
    b = program.rng.standard_normal((m, 3)).astype(program.dtype)
    return _step(
        program,
        where,
        "lstsq",
        lambda x, by: by.lstsq(make(x, by), jnp.asarray(b), split),
        (n, 3),
        (NONE, NONE),
    )


def product(program, where):
    split, (m, n) = program.spec, program.shape
    b = (program.rng.standard_normal((n, 4)) / n).astype(program.dtype)
    return _step(
        program,
        where,
        "matmul",
        lambda x, by: by.matmul(x, jnp.asarray(b), split, (NONE, NONE)),
        (m, 4),
        (split[0], NONE),
    )


STEPS = (
    solution,
    lower,
    inverse,
    scaled,
    root,
    eigenvalues,
    singular_values,
    least_squares,
    product,
)
