"""shape= of plait.linalg: matrices in arrays that the mesh divides, with padding at the tail."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import PartitionSpec as P
from meshes import padded


def data(x, *shape):
    """The data of a result; checks that the padding behind is zero."""
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
    want = jax.jit(jax.grad(reference, (0, 1)))(jnp.asarray(a), jnp.asarray(b))
    for g, w in zip(got, want, strict=True):
        assert np.allclose(data(g, *w.shape), w, rtol=1e-9, atol=1e-9)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dtype, shape, spec, room, block", CASES)
def test_padding_of_decompositions_is_not_read(dtype, shape, spec, room, block):
    n, k, mesh = 9, 5, meshes.make(shape)
    g, tall = meshes.random((n, n), dtype, 1), meshes.random((n, k), dtype, 2)
    b = meshes.random((n, 2), dtype, 3)
    y = meshes.put(padded(g, (room, room)), mesh, spec)
    z = meshes.put(padded(tall, (room, 8)), mesh, spec)
    wide = meshes.put(padded(tall.conj().T, (8, room)), mesh, spec)
    rhs = meshes.put(padded(b, (room, 2)), mesh, P("a"))
    given = {"mesh": mesh, "spec": spec, "block": block}

    def every(y, z, wide, rhs):
        square, high = given | {"shape": (n, n)}, given | {"shape": (n, k)}
        return {
            "svd": plait.linalg.svd(z, **high),
            "wide": plait.linalg.svd(wide, shape=(k, n), **given),
            "polar": plait.linalg.polar(z, **high),
            "lstsq": (plait.linalg.lstsq(z, rhs, **high), plait.linalg.lstsq(z, b, **high)),
            "det": plait.linalg.det(y, **square),
            "cond": [plait.linalg.cond(y, p, **square) for p in (2, 1)],
            "norm": [
                plait.linalg.matrix_norm(z, p, mesh=mesh, spec=spec, shape=(n, k))
                for p in ("fro", 1, np.inf)
            ],
        }

    got = plait.jit(every)(y, z, wide, rhs)
    for name, a, rows, columns in (("svd", tall, room, 8), ("wide", tall.conj().T, 8, room)):
        u, s, vh = got[name]
        least = min(rows, columns)
        assert u.shape == (rows, least) and s.shape == (k,) and vh.shape == (least, columns)
        u, vh = data(u, a.shape[0], k), data(vh, k, a.shape[1])
        matrices.check_orthonormal(u)
        matrices.check_orthonormal(vh.conj().T)
        matrices.check_product((u * np.asarray(s), vh), a, n)
    u, h = got["polar"]
    assert u.shape == (room, 8) and h.shape == (8, 8)
    matrices.check_orthonormal(data(u, n, k))
    matrices.check_product((data(u, n, k), data(h, k, k)), tall, n)
    x, same = got["lstsq"]
    assert x.shape == (8, 2) and same.shape == (k, 2)
    want, bound = oracle.lstsq(tall, b), matrices.limit(n, dtype) * np.linalg.cond(tall) ** 2
    for found in (data(x, k, 2), np.asarray(same)):
        assert matrices.norm(found - want) <= bound * (matrices.norm(want) + matrices.norm(b))
    bound = matrices.limit(n, dtype) * np.linalg.cond(g)
    assert abs(complex(got["det"]) - oracle.det(g)) <= bound * abs(oracle.det(g))
    want = [np.linalg.norm(tall, p) for p in ("fro", 1, np.inf)]
    assert np.allclose(got["norm"], want, rtol=matrices.limit(n, dtype))
    two, one = (float(c) for c in got["cond"])
    assert abs(two / np.linalg.cond(g) - 1) <= bound
    assert np.linalg.cond(g, 1) / 3 <= one <= np.linalg.cond(g, 1) * (1 + 10 * bound)


def test_eager_decompositions():
    n, mesh = 9, meshes.make((4,))
    a, b = meshes.random((n, 5)), meshes.random((n,), seed=1)
    x = meshes.put(padded(a, (12, 8)), mesh, P("a"))
    found = plait.linalg.svd(x, shape=(n, 5))
    assert np.allclose(found.s, oracle.svd(a)) and found.u.sharding.is_equivalent_to(x.sharding, 2)
    for m in (n, 3):
        assert np.allclose(plait.linalg.svdvals(x, shape=(m, 5)), oracle.svd(a[:m]))
    y = plait.linalg.lstsq(x, meshes.put(padded(b, (12,)), mesh, P("a")), shape=(n, 5))
    assert np.allclose(data(y, 5), oracle.lstsq(a, b)) and y.sharding.spec == P("a")
    assert np.isclose(plait.linalg.cond(x, shape=(n, 5)), np.linalg.cond(a))
    with pytest.raises(ValueError, match="polar: a is 4 x 5; expected m >= n, take a.T"):
        plait.linalg.polar(x, shape=(4, 5))
    with pytest.raises(ValueError, match="lstsq: b has 11 rows, a has 9"):
        plait.linalg.lstsq(x, np.ones(11), shape=(n, 5))
    with pytest.raises(ValueError, match="det: a is 9 x 5; expected a square matrix"):
        plait.linalg.det(x, shape=(n, 5))
    with pytest.raises(ValueError, match="cond: a is 9 x 0; expected elements"):
        plait.linalg.cond(x, shape=(n, 0))


@pytest.mark.long
def test_gradients_of_decompositions():
    m, n, mesh = 7, 5, meshes.make((4,))
    a, g, b = meshes.random((m, n)), meshes.random((n, n), seed=1), meshes.random((m, 2), seed=2)
    x = meshes.put(padded(a, (8, 8)), mesh, P("a"))
    y = meshes.put(padded(g, (8, 8)), mesh, P("a"))
    rhs = meshes.put(padded(b, (8, 2)), mesh, P("a"))

    def ours(x, y, rhs):
        given = {"mesh": mesh, "spec": P("a"), "block": 2, "shape": (m, n)}
        u, s, vh = plait.linalg.svd(x, **given)
        square = given | {"shape": (n, n)}
        of_square = plait.linalg.det(y, **square) + plait.linalg.cond(y, **square)
        solution = plait.linalg.lstsq(x, rhs, **given)
        q, h = plait.linalg.polar(x, **given)
        return (jnp.abs(u), s, jnp.abs(vh)), (q, h), solution, of_square

    def theirs(a, g, b):
        u, s, vh = jnp.linalg.svd(a, full_matrices=False)
        of_square = jnp.linalg.det(g) + jnp.linalg.cond(g)
        solution = jnp.linalg.solve(a.T @ a, a.T @ b)
        return (jnp.abs(u), s, jnp.abs(vh)), (u @ vh, (vh.T * s[None]) @ vh), solution, of_square

    def loss(function):
        def value(*args):
            return sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(function(*args)))

        return jax.value_and_grad(value, (0, 1, 2))

    value, got = jax.jit(loss(ours))(x, y, rhs)
    expected, want = loss(theirs)(*map(jnp.asarray, (a, g, b)))
    assert np.isclose(value, expected)
    for found, slope in zip(got, want, strict=True):
        size = np.abs(slope).max()
        assert np.allclose(data(found, *slope.shape), slope, rtol=1e-8, atol=1e-8 * size)
