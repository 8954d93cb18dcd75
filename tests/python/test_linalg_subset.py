"""Some eigenvalues and their vectors, against all of them, and derivatives of them."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P

SIZES = (1, 2, 3, 8, 33, 300)
# subsets of n; also beyond the ends, and by NumPy's integers
SUBSETS = {
    "lowest": lambda n: slice(1),
    "highest": lambda n: slice(-1, None),
    "all": lambda n: slice(0, 2 * n),
    "between": lambda n: slice(n // 3, np.int64(n // 2 + 1)),
    "most": lambda n: slice(-max(1, n - 1), None, 1),
}


def hermitian(n, dtype, seed=0):
    a = meshes.random((n, n), dtype, seed)
    return a + a.conj().T


@pytest.mark.parametrize("which", SUBSETS)
@pytest.mark.parametrize("n", SIZES)
def test_subset(n, which):
    i = SIZES.index(n) + list(SUBSETS).index(which)
    shape = matrices.SHAPES[i % len(matrices.SHAPES)]
    dtype = matrices.DTYPES[i % len(matrices.DTYPES)]
    a = hermitian(n, dtype)
    subset = SUBSETS[which](n)
    w, v = plait.linalg.eigh(matrices.put(a, shape, i), subset=subset)
    want, size = np.linalg.eigvalsh(a)[subset], matrices.norm(a)
    assert w.shape == want.shape and v.shape == (n, *want.shape)
    assert v.dtype == dtype
    limit = matrices.limit(n, dtype) * size
    assert np.abs(np.asarray(w) - want).max() <= limit
    v = np.asarray(v)
    assert matrices.norm(a @ v - v * np.asarray(w)) <= limit
    matrices.check_orthonormal(v)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("dtype", matrices.DTYPES)
def test_two_stages(dtype, request):
    """Through a band, as for larger matrices if few vectors are wanted, or none."""
    matrices.choose_two_stages(request)
    n, i = 330, matrices.DTYPES.index(dtype)
    a = hermitian(n, dtype)
    x = matrices.put(a, matrices.SHAPES[i % len(matrices.SHAPES)], i)
    want, limit = np.linalg.eigvalsh(a), matrices.limit(n, dtype) * matrices.norm(a)
    assert np.abs(np.asarray(plait.linalg.eigvalsh(x)) - want).max() <= limit
    w, v = map(np.asarray, plait.linalg.eigh(x, subset=slice(n // 2, n // 2 + 21)))
    assert np.abs(w - want[n // 2 : n // 2 + 21]).max() <= limit
    assert matrices.norm(a @ v - v * w) <= limit
    matrices.check_orthonormal(v)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("k", [1, 3, 5, 6])
@pytest.mark.parametrize("is_pencil", [False, True])
def test_subsets_of_a_batch(k, is_pencil):
    """Each device has whole matrices of its own."""
    n, mesh = 6, meshes.make((2,))
    a = np.stack([hermitian(n, "float64", seed) for seed in range(4)])
    b = matrices.definite(n) if is_pencil else np.eye(n)
    given = {"subset": slice(n - k, n), "mesh": mesh, "spec": P()}

    def some(a, b):
        return tuple(plait.linalg.eigh(a, *([b] if is_pencil else []), **given))

    both = (meshes.put(x, mesh) for x in (a, np.stack([b] * 4)))
    w, v = map(np.asarray, jax.jit(jax.vmap(some))(*both))
    assert w.shape == (4, k) and v.shape == (4, n, k)
    limit = matrices.limit(n, "float64") * matrices.norm(a) * np.linalg.cond(b)
    want = [np.linalg.eigvals(np.linalg.solve(b, x)).real for x in a]
    assert np.abs(w - np.sort(want, axis=1)[:, n - k :]).max(initial=0) <= limit
    assert matrices.norm(a @ v - b @ v * w[:, None]) <= limit


@pytest.mark.long
@pytest.mark.parametrize(
    "dtype, shape, mode",
    [
        ("float64", (4,), "nan"),
        ("complex128", (2, 2), "nan"),
        ("complex128", (4,), "zero"),
        ("float64", (2, 2), "check"),
        ("complex128", (2, 2), "lorentzian"),
    ],
)
def test_derivatives_are_those_of_the_whole(dtype, shape, mode):
    n, mesh = 7, meshes.make(shape)
    a, b = hermitian(n, dtype), meshes.random((n, n), dtype, 1)
    t = hermitian(n, dtype, 2)
    given = {"degenerate": mode, "mesh": mesh, "spec": P(), "block": 2}

    def seen(w, v):  # independent of the phases of the vectors
        weighted = v * jnp.exp(w)[None].astype(v.dtype)
        return jnp.sum(jnp.sin(w)) + jnp.sum(jnp.real(weighted @ v.conj().T * b))

    def of_some(a):
        return seen(*plait.linalg.eigh(a, subset=slice(2, 5), **given))

    def of_all(a):
        w, v = plait.linalg.eigh(a, **given)
        return seen(w[2:5], v[:, 2:5])

    x, t = meshes.put(a, mesh), meshes.put(t, mesh)
    for way in (
        jax.grad,
        lambda f: lambda x: jax.jvp(f, (x,), (t,))[1],
        lambda f: jax.grad(lambda x: jnp.sum(jnp.abs(jax.grad(f)(x)) ** 2)),
    ):
        got, want = jax.jit(way(of_some))(x), jax.jit(way(of_all))(x)
        assert np.isfinite(want).all()
        assert np.allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


def test_a_cluster_that_is_cut():
    """The vectors of equal eigenvalues are a choice: a gradient that depends on it is found."""
    n, mesh = 6, meshes.make((2,))
    q = matrices.orthogonal(n)
    a = meshes.put((q * np.array([1.0, 2, 2, 3, 4, 5])) @ q.T, mesh)

    def projector(a, end):
        given = {"subset": slice(end), "degenerate": "check", "mesh": mesh, "spec": P()}
        v = plait.linalg.eigh(a, **given).eigenvectors
        return jnp.sum((v @ v.T) ** 2 * np.arange(n, dtype=float)[None])

    slope = jax.jit(jax.grad(projector), static_argnums=1)
    assert np.isnan(slope(a, 2)).any()
    assert np.isfinite(slope(a, 3)).all()


def test_padding_and_vmap():
    n, mesh = 5, meshes.make((4,))
    batch = np.stack([hermitian(n, "float64", seed) for seed in range(3)])
    padded = np.full((3, 8, 8), np.nan)
    padded[:, :n, :n] = batch
    given = {"subset": slice(1, 3), "shape": (n, n), "mesh": mesh, "spec": P("a"), "block": 1}
    x = jax.device_put(padded, jax.NamedSharding(mesh, P(None, "a")))
    w, v = plait.jit(jax.vmap(lambda a: plait.linalg.eigh(a, **given)))(x)
    assert w.shape == (3, 2) and v.shape == (3, 8, 2)
    assert not np.any(np.asarray(v)[:, n:])
    v = np.asarray(v)[:, :n]
    for a, w_of, v_of in zip(batch, np.asarray(w), v, strict=True):
        assert np.allclose(w_of, np.linalg.eigvalsh(a)[1:3])
        assert np.allclose(a @ v_of, v_of * w_of)


def test_not_finite():
    a = np.full((6, 6), np.inf)
    for mesh in (None, meshes.make((2,))):
        given = {} if mesh is None else {"mesh": mesh, "spec": P()}
        x = a if mesh is None else meshes.put(a, mesh)
        w, v = plait.linalg.eigh(x, subset=slice(2), **given)
        assert np.isnan(w).all() and np.isnan(v).all() and v.shape == (6, 2)
        with pytest.raises(plait.LinAlgError, match="not finite"):
            plait.linalg.eigh(x, subset=slice(2), check=True, **given)


@pytest.mark.parametrize(
    "subset, error, text",
    [
        (slice(2, 2), ValueError, "slice.2, 2, None.; expected .* some of 4 eigenvalues"),
        (slice(4, 9), ValueError, "slice.4, 9, None.; expected"),
        (slice(0, 4, 2), ValueError, "expected a step of 1"),
        (slice(None, None, -1), ValueError, "expected a step of 1"),
        (slice(0.0, 1.0), TypeError, "expected a slice of integers"),
        ((0, 2), TypeError, "expected a slice of integers"),
        (3, TypeError, "expected a slice of integers"),
    ],
)
def test_wrong_subsets(subset, error, text):
    with pytest.raises(error, match="eigh: subset is .*" + text):
        plait.linalg.eigh(jnp.eye(4), subset=subset)
