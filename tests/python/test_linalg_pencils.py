"""Eigenvalues of a v = w b v, against SciPy's, and derivatives against those of jax.numpy."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import PartitionSpec as P

SIZES = (1, 3, 8, 65)


def hermitian(n, dtype, seed=0):
    a = meshes.random((n, n), dtype, seed)
    return a + a.conj().T


def check_vectors(a, b, w, v):
    """A v = w b v and vᴴ b v = 1, both to 10 n ε times the condition number of b."""
    w, v, n = np.asarray(w), np.asarray(v), len(a)
    double = np.result_type(v.dtype, "float64")
    a, b, v = (x.astype(double) for x in (a, b, v))
    limit = matrices.limit(n, w.dtype) * np.linalg.cond(b)
    assert matrices.norm(a @ v - (b @ v) * w) <= limit * matrices.norm(a) * matrices.norm(v)
    assert matrices.norm(v.conj().T @ b @ v - np.eye(len(w))) <= limit * len(w) ** 0.5


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("dtype", matrices.DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_pencils(n, dtype):
    i = SIZES.index(n) + matrices.DTYPES.index(dtype)
    shape = matrices.SHAPES[i % len(matrices.SHAPES)]
    a, b = hermitian(n, dtype), matrices.definite(n, dtype, 30.0, 1)
    given = {"block": matrices.BLOCKS[i % len(matrices.BLOCKS)]}
    if shape is not None:
        given |= {"mesh": meshes.make(shape)}
    x, y = matrices.put(a, shape, i), matrices.put(b, shape, i + 1)
    want = oracle.eigh(a, b)
    w, v = plait.linalg.eigh(x, y, **given)
    limit = matrices.limit(n, dtype) * np.linalg.cond(b) * np.abs(want).max()
    assert w.dtype == want.astype(meshes.random(1, dtype).real.dtype).dtype and v.dtype == dtype
    assert np.abs(np.asarray(w) - want).max() <= limit
    assert np.abs(np.asarray(plait.linalg.eigvalsh(x, y, **given)) - want).max() <= limit
    check_vectors(a, b, w, v)
    w, v = plait.linalg.eigh(x, y, subset=slice(n // 2, None), **given)
    assert np.abs(np.asarray(w) - want[n // 2 :]).max() <= limit
    check_vectors(a, b, w, v)


def by_jax(a, b):
    low = jnp.linalg.cholesky(b)
    half = jax.scipy.linalg.solve_triangular(low, a, lower=True)
    c = jax.scipy.linalg.solve_triangular(low, half.conj().T, lower=True)
    w, y = jnp.linalg.eigh(c)
    return w, jax.scipy.linalg.solve_triangular(low.conj().T, y, lower=False)


@pytest.mark.long
@pytest.mark.parametrize("dtype, shape", [("float64", (4,)), ("complex128", (2, 2))])
def test_derivatives(dtype, shape):
    n, mesh = 6, meshes.make(shape)
    given = {"mesh": mesh, "spec": P(), "block": 1}
    ours = (
        lambda a, b: plait.linalg.eigh(a, b, **given),
        lambda a, b: plait.linalg.eigh(a, b, subset=slice(n), degenerate="check", **given),
    )
    mix = meshes.random((n, n), dtype, 2)
    xs = hermitian(n, dtype), matrices.definite(n, dtype, 10.0, 1)
    ts = hermitian(n, dtype, 3), hermitian(n, dtype, 4)

    def loss_of(decompose):
        def loss(a, b):  # the same for all phases of the vectors
            w, v = decompose(a, b)
            weighted = v * jnp.exp(w)[None].astype(v.dtype)
            return jnp.sum(jnp.sin(w)) + jnp.sum(jnp.real(weighted @ v.conj().T * mix))

        return loss

    def second(f):
        inner = jax.grad(f, (0, 1))
        return jax.grad(lambda *x: sum(jnp.sum(jnp.abs(g) ** 2) for g in inner(*x)), (0, 1))

    def symmetric(x):  # the meaning of a derivative by a Hermitian matrix
        return x if x.ndim != 2 else (x + x.conj().T) / 2

    on_mesh = [meshes.put(x, mesh) for x in xs]
    for way in (
        lambda f: jax.grad(f, (0, 1)),
        lambda f: lambda *xs: [jax.jvp(f, xs, ts)[1]],
        second,
    ):
        want = [symmetric(x) for x in jax.jit(way(loss_of(by_jax)))(*xs)]
        for decompose in ours:
            got = jax.jit(way(loss_of(decompose)))(*on_mesh)
            for g, x in zip(got, want, strict=True):
                assert np.allclose(symmetric(g), x, rtol=1e-8, atol=1e-8 * np.abs(x).max())


def test_eigenvalues_alone_have_derivatives():
    n, mesh = 5, meshes.make((2,))
    a, b = hermitian(n, "float64"), matrices.definite(n, "float64", 10.0, 1)
    given = {"mesh": mesh, "spec": P()}

    def of(values):
        return lambda a, b: jnp.sum(values(a, b) ** 3)

    got = jax.grad(of(lambda a, b: plait.linalg.eigvalsh(a, b, **given)), (0, 1))(a, b)
    want = jax.grad(of(lambda a, b: by_jax(a, b)[0]), (0, 1))(a, b)
    for g, x in zip(got, want, strict=True):
        x = (x + x.T) / 2
        assert np.allclose(g, x, rtol=1e-10, atol=1e-10 * np.abs(x).max())


def test_padding_and_vmap():
    n, mesh = 5, meshes.make((4,))
    a = np.stack([hermitian(n, "float64", seed) for seed in range(3)])
    b = np.stack([matrices.definite(n, "float64", 5.0, seed) for seed in range(3)])
    padded = np.full((2, 3, 8, 8), np.nan)
    padded[:, :, :n, :n] = a, b
    given = {"shape": (n, n), "mesh": mesh, "spec": P("a"), "block": 1, "subset": slice(3)}
    x, y = (jax.device_put(z, jax.NamedSharding(mesh, P(None, "a"))) for z in padded)
    w, v = plait.jit(jax.vmap(lambda a, b: plait.linalg.eigh(a, b, **given)))(x, y)
    assert w.shape == (3, 3) and v.shape == (3, 8, 3)
    assert not np.any(np.asarray(v)[:, n:])
    for i in range(3):
        assert np.allclose(w[i], oracle.eigh(a[i], b[i])[:3])
        check_vectors(a[i], b[i], w[i], v[i, :n])
    one = jax.vmap(lambda a: plait.linalg.eigvalsh(a, b[0], mesh=mesh, spec=P()))(a)
    for i in range(3):
        assert np.allclose(one[i], oracle.eigh(a[i], b[0]))


def test_failures():
    n, mesh = 6, meshes.make((2,))
    a, b = hermitian(n, "float64"), np.diag([1.0, 2.0, -1.0, 1.0, 1.0, 1.0])
    bad = np.full((n, n), np.nan)
    given = {"mesh": mesh, "spec": P()}
    for x, y, text in (
        (a, b, "eigh: b: the leading minor of order 3 is not positive definite"),
        (bad, np.eye(n), "eigh: not finite"),
    ):
        w, v = plait.linalg.eigh(x, y, **given)
        assert np.isnan(w).all() and np.isnan(v).all() and v.shape == (n, n)
        with pytest.raises(plait.LinAlgError, match=text):
            plait.linalg.eigh(x, y, check=True, **given)
        with pytest.raises(plait.LinAlgError, match=text.replace("eigh", "eigvalsh")):
            plait.linalg.eigvalsh(x, y, check=True, **given)


@pytest.mark.parametrize(
    "b, error, text",
    [
        (np.eye(3), ValueError, "eigh: b has 3 rows, a has 4; expected as many"),
        (np.ones((4, 3)), ValueError, "eigh: b is 4 x 3; expected a square matrix"),
        (np.ones(4), ValueError, "eigh: b has 1 axes; expected a matrix"),
        (np.eye(4, dtype="float32"), TypeError, "a is float64, b is float32; expected one dtype"),
    ],
)
def test_wrong_operands(b, error, text):
    with pytest.raises(error, match=text):
        plait.linalg.eigh(np.eye(4), b)
