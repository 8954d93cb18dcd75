"""Second derivatives of plait.linalg's decompositions, against those of jax.numpy."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P


def seen_svd(u, s, vh):
    """Functions of singular vectors that do not depend on the vectors' phases."""
    return s, jnp.abs(u) ** 2, jnp.abs(vh) ** 2, (u * jnp.exp(s)[None].astype(u.dtype)) @ vh


def seen_eigh(w, v):
    return w, (v * jnp.sin(w)[None].astype(v.dtype)) @ v.conj().T, jnp.abs(v) ** 2


def seen_qr(q, r):
    phase = jax.lax.stop_gradient(jnp.sign(jnp.diagonal(r)))
    return q * phase[None], r * jnp.conj(phase)[:, None]


def svd(a, b, **given):
    return seen_svd(*plait.linalg.svd(a, **given))


def jnp_svd(a, b):
    return seen_svd(*jnp.linalg.svd(a, full_matrices=False))


def polar(a, b, **given):
    return tuple(plait.linalg.polar(a, **given))


def jnp_polar(a, b):
    """By Newton and Schulz: smooth even if singular values are equal."""
    u = a / jnp.sqrt(jnp.sum(jnp.abs(a) ** 2)).astype(a.dtype)
    u, _ = jax.lax.scan(lambda u, _: (1.5 * u - 0.5 * u @ (u.conj().T @ u), None), u, None, 25)
    return u, hermitian(u.conj().T @ a)


def qr(a, b, **given):
    return seen_qr(*plait.linalg.qr(a, **given))


def jnp_qr(a, b):
    return seen_qr(*jnp.linalg.qr(a))


def lstsq(a, b, **given):
    return plait.linalg.lstsq(a, b, **given)


def jnp_lstsq(a, b):
    gram = a.conj().T @ a  # small and well conditioned: exact enough here
    return jnp.linalg.solve(gram, a.conj().T @ b)


def hermitian(a):
    return (a + a.conj().T) / 2


def eigh(a, b, **given):
    return seen_eigh(*plait.linalg.eigh(a.conj().T @ a, **given)), plait.linalg.eigvalsh(
        hermitian(a[:4]), **given
    )


def jnp_eigh(a, b):
    return seen_eigh(*jnp.linalg.eigh(a.conj().T @ a)), jnp.linalg.eigvalsh(hermitian(a[:4]))


def second(function, mode, a, b):
    """For a scalar of all results: the gradient of a gradient's component, or its tangent."""
    leaves = jax.tree.leaves(jax.eval_shape(function, a, b))
    weights = [np.asarray(meshes.random(y.shape, y.dtype, i)) for i, y in enumerate(leaves)]
    way = [jnp.asarray(meshes.random(x.shape, x.dtype, i)) for i, x in enumerate((a, b), 7)]

    def value(a, b):
        parts = zip(jax.tree.leaves(function(a, b)), weights, strict=True)
        return sum(jnp.sum(jnp.real(y * w) + jnp.real(y * jnp.conj(y)) ** 2) for y, w in parts)

    slopes = jax.grad(value, (0, 1))

    def component(a, b):
        return sum(jnp.sum(jnp.real(x * w)) for x, w in zip(slopes(a, b), way, strict=True))

    if mode == "reverse":
        return jax.jit(jax.grad(component, (0, 1)))
    return jax.jit(lambda a, b: jax.jvp(slopes, (a, b), tuple(way))[1])


APART, EQUAL = np.arange(1.0, 5), np.array([2.0, 2, 2, 3])


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "ours, theirs, mode, shape, dtype, s",
    [
        (svd, jnp_svd, "reverse", (2,), "float64", APART),
        (polar, jnp_polar, "forward", (1,), "float64", APART),
        (polar, jnp_polar, "reverse", (4,), "complex128", EQUAL),
        (qr, jnp_qr, "forward", (2,), "complex128", APART),
        (lstsq, jnp_lstsq, "reverse", (4,), "float64", APART),
        (eigh, jnp_eigh, "forward", (1,), "complex128", APART),
    ],
)
def test_second_derivatives(ours, theirs, mode, shape, dtype, s):
    mesh = meshes.make(shape)
    a = (matrices.orthogonal(6, dtype)[:, :4] * s) @ matrices.orthogonal(4, dtype, 1)
    b = meshes.random((6,), dtype, 2)

    def on_mesh(a, b):
        return ours(a, b, mesh=mesh, spec=P(), block=2)

    got = second(on_mesh, mode, a, b)(meshes.put(a, mesh), meshes.put(b, mesh))
    want = second(theirs, mode, a, b)(a, b)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-8, atol=1e-8 * max(1, np.abs(w).max()))
