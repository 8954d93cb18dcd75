"""shape= of plait.linalg: matrices in arrays that the mesh divides, with padding at the tail."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P


def padded(a, room):
    """The array with NaN behind it: whoever reads that, shows it."""
    x = np.full(room, np.nan, a.dtype)
    x[tuple(slice(n) for n in a.shape)] = a
    return x


def data(x, *shape):
    """What is data of a result, behind which is zero."""
    x = np.array(x)
    found = x[tuple(slice(n) for n in shape)].copy()
    x[tuple(slice(n) for n in shape)] = 0
    assert not x.any()
    return found


CASES = [
    ("float64", (4,), P("a"), 12, 3),
    ("complex64", (2, 2), P("a", "b"), 12, None),
    ("complex128", (8,), P(None, "a"), 16, 1),
]


@pytest.mark.parametrize("dtype, shape, spec, room, block", CASES)
def test_padding_is_not_read(dtype, shape, spec, room, block):
    n, mesh = 9, meshes.make(shape)
    a, g = matrices.definite(n, dtype), meshes.random((n, n), dtype, 1)
    tall, b = meshes.random((n, 5), dtype, 2), meshes.random((n,), dtype, 3)
    x, y = (meshes.put(padded(v, (room, room)), mesh, spec) for v in (a, g))
    z = meshes.put(padded(tall, (room, 8)), mesh, spec)
    rhs = meshes.put(padded(b, (room,)), mesh, P("a"))
    given = {"mesh": mesh, "spec": spec, "block": block}

    def every(x, y, z, rhs):
        here = given | {"shape": (n, n)}
        f, h = plait.linalg.cholesky(x, **here), plait.linalg.lu(y, **here)
        return {
            "cholesky": (f.l, f.inv(), f.solve(rhs, spec=P("a")), f.solve(b, spec=P()), f.status),
            "lu": (h.l, h.u, h.order, h.solve(rhs, spec=P("a")), h.status),
            "qr": plait.linalg.qr(z, shape=(n, 5), **given),
            "eigh": plait.linalg.eigh(x, **here),
            "matmul": plait.linalg.matmul(y, z, shape_b=(n, 5), spec_b=spec, **here),
        }

    got = plait.jit(every)(x, y, z, rhs)
    low, inverse, s, t, status = got["cholesky"]
    assert status == 0 and low.shape == (room, room) and t.shape == (n,)
    assert low.sharding.is_equivalent_to(x.sharding, 2)
    low = data(low, n, n)
    matrices.check_product((low, low.conj().T), a, n)
    matrices.check_solution(a, data(inverse, n, n), np.eye(n))
    matrices.check_solution(a, data(s, n), b)
    matrices.check_solution(a, t, b)
    low, up, order, s, status = got["lu"]
    assert status == 0
    matrices.check_product((data(low, n, n), data(up, n, n)), g[np.asarray(order)], n)
    matrices.check_solution(g, data(s, n), b)
    q, r = got["qr"]
    assert q.shape == (room, 8) and r.shape == (8, 8)
    matrices.check_orthonormal(data(q, n, 5))
    matrices.check_product((data(q, n, 5), data(r, 5, 5)), tall, n)
    w, v = got["eigh"]
    v = data(v, n, n)
    matrices.check_product((v * np.asarray(w), v.conj().T), a, n)
    assert got["matmul"].shape == (room, 8)
    matrices.check_product((data(got["matmul"], n, 5),), g @ tall, n)


def test_eager_calls():
    n, room, mesh = 9, 12, meshes.make((4,))
    a, b = matrices.definite(n), meshes.random((n, 2))
    x = meshes.put(padded(a, (room, room)), mesh, P("a"))
    rhs = meshes.put(padded(b, (room, 2)), mesh, P("a"))
    for call in (plait.linalg.solve, plait.linalg.potrs, plait.linalg.lu_solve):
        y = call(x, rhs, shape=(n, n))
        matrices.check_solution(a, data(y, n, 2), b)
        assert y.sharding.is_equivalent_to(rhs.sharding, 2)
    y = plait.linalg.solve(x, rhs, shape=(n, n), precision="single", assume="positive")
    matrices.check_solution(a, data(y, n, 2), b)
    f = plait.linalg.lu(x, shape=(n, n), precision="single")
    matrices.check_solution(a, data(f.solve(rhs), n, 2), b)
    matrices.check_solution(a, data(plait.linalg.inv(x, shape=(n, n)), n, n), np.eye(n))
    assert np.allclose(plait.linalg.eigvalsh(x, shape=(n, n)), np.linalg.eigvalsh(a))
    assert np.allclose(plait.linalg.slogdet(x, shape=(n, n))[1], np.linalg.slogdet(a)[1])
    with pytest.raises(ValueError, match="cholesky: a is 9 x 8; expected a square matrix"):
        plait.linalg.cholesky(x, shape=(9, 8))
    with pytest.raises(ValueError, match="says 13 along axis 0, where the array has 12"):
        plait.linalg.lu(x, shape=(13, 13))
    with pytest.raises(ValueError, match="solve: b has 11 rows, a has 9"):
        plait.linalg.solve(x, np.ones(11), shape=(n, n))


def test_gradients_of_padding_are_zero():
    n, room, mesh = 5, 8, meshes.make((4,))
    a, b = matrices.definite(n), meshes.random((n,), seed=1)
    x = meshes.put(padded(a, (room, room)), mesh, P("a"))
    y = meshes.put(padded(b, (room,)), mesh, P("a"))

    def loss(x, y):
        given = {"mesh": mesh, "spec": P("a"), "block": 2}
        f = plait.linalg.cholesky(x, shape=(n, n), **given)
        z = f.solve(y, spec=P("a"))
        return f.logdet() + jnp.sum(z**3) + jnp.sum(f.l**2)

    def reference(a, b):
        a = (a + a.T) / 2
        z, low = jnp.linalg.solve(a, b), jnp.linalg.cholesky(a)
        return jnp.linalg.slogdet(a)[1] + jnp.sum(z**3) + jnp.sum(low**2)

    got = jax.jit(jax.grad(loss, (0, 1)))(x, y)
    want = jax.grad(reference, (0, 1))(jnp.asarray(a), jnp.asarray(b))
    for g, w in zip(got, want, strict=True):
        assert np.allclose(data(g, *w.shape), w, rtol=1e-9, atol=1e-9)
