"""Polar and singular value decompositions: backward errors and derivatives."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
import test_linalg_factors as factors
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plait import _dense_svd_alone

CASES = [
    ((1, 1), (4,), None, "float64"),
    ((9, 9), (2, 4), 2, "complex128"),
    ((12, 7), (4,), 3, "float32"),
    ((33, 33), (8,), None, "float64"),
    ((40, 11), (2,), 4, "complex64"),
    ((20, 13), None, None, "complex128"),
]


@pytest.fixture(scope="module", autouse=True)
def together():
    """All devices decompose these small matrices, as they do large ones."""
    jax.clear_caches()  # the programs for the same shapes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_dense_svd_alone, "SMALL", 0)
        yield
    jax.clear_caches()


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("size, shape, block, dtype", CASES)
def test_polar(size, shape, block, dtype):
    a = meshes.random(size, dtype)
    u, h = plait.linalg.polar(matrices.put(a, shape), block=block)
    matrices.check_orthonormal(u)
    matrices.check_product((u, h), a, size[0])
    assert np.array_equal(h, np.asarray(h).conj().T)
    bound = matrices.limit(size[0], dtype) * np.linalg.cond(a)
    assert matrices.norm(np.asarray(u) - oracle.polar(a)[0]) <= bound * size[1] ** 0.5
    w = np.linalg.eigvalsh(np.asarray(h))
    assert w.min() >= -matrices.limit(size[0], dtype) * w.max()


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("size, shape, block, dtype", [*CASES, ((7, 12), (4,), 3, "complex128")])
def test_svd(size, shape, block, dtype):
    a = meshes.random(size, dtype)
    u, s, vh = plait.linalg.svd(matrices.put(a, shape), block=block)
    n, k = max(size), min(size)
    assert u.shape == (size[0], k) and s.shape == (k,) and vh.shape == (k, size[1])
    want = oracle.svd(a)
    assert np.abs(np.asarray(s) - want).max() <= matrices.limit(n, dtype) * want.max()
    matrices.check_orthonormal(u)
    matrices.check_orthonormal(np.asarray(vh).conj().T)
    matrices.check_product((np.asarray(u) * np.asarray(s), vh), a, n)
    values = plait.linalg.svdvals(matrices.put(a, shape), block=block)
    assert values.shape == (k,)
    assert np.abs(np.asarray(values) - want).max() <= matrices.limit(n, dtype) * want.max()


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_one_column_on_one_device(kind):
    a = meshes.random((5, 1))
    x = meshes.put(a, meshes.make((1,), kind), P("a"))
    u, s, vh = plait.linalg.svd(x)
    assert np.allclose(np.asarray(u) * np.asarray(s) @ np.asarray(vh), a)
    assert np.allclose(plait.linalg.svdvals(x), np.linalg.norm(a))


def test_small_singular_values_are_found():
    u, v = matrices.orthogonal(12), matrices.orthogonal(12, seed=1)
    s = np.geomspace(1, 1e-12, 12)
    for scale in (1.0, 1e200, 1e-200):
        x = matrices.put((u * s) @ v.T * scale, (4,))
        got = np.asarray(plait.linalg.svd(x).s) / scale
        assert np.abs(got - s).max() <= 1e-14  # eigenvalues of aᴴ a would have 1e-8
    assert np.isclose(plait.linalg.cond(matrices.put((u * s[::-1] ** 0.5) @ v.T, (4,))), 1e6)
    with pytest.raises(ValueError, match="polar: a is 2 x 3; expected m >= n, take a.T"):
        plait.linalg.polar(np.ones((2, 3)))


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    "size, shape, rank, dtype",
    [((9, 6), (4,), 4, "float64"), ((8, 8), (2, 2), 0, "complex128"), ((5, 14), (2,), 1, "float32")]
    + [((7, 7), None, 6, "complex64"), ((12, 5), (8,), 0, "float64")],
)
def test_vectors_of_a_singular_matrix_are_orthonormal(size, shape, rank, dtype):
    (m, n), k = size, min(size)
    a = (meshes.random((m, rank), dtype) @ meshes.random((rank, n), dtype, 1)).astype(dtype)
    u, s, vh = plait.linalg.svd(matrices.put(a, shape))
    matrices.check_orthonormal(u)
    matrices.check_orthonormal(np.asarray(vh).conj().T)
    matrices.check_product((np.asarray(u) * np.asarray(s), vh), a, m + n)
    assert np.abs(s[rank:k]).max() <= matrices.limit(m + n, dtype) * (s[0] or 1)


def nearly_dependent(m, n):
    """Matrices whose columns, in their order, are hard to tell apart: kernels, and graded ones."""
    i, x = np.arange(m)[:, None], np.linspace(0, 1, m)[:, None]
    j, y = np.arange(n), np.linspace(0, 1, n)
    g, turn = meshes.random((m, n)), np.argsort(meshes.random(n))
    graded = np.geomspace(1, 1e-16, n)
    every = {f"Gauss {width}": np.exp(-((x - y) ** 2) / width) for width in (1, 0.1, 0.01, 0.001)}
    every |= {
        "Gauss, reversed": every["Gauss 0.1"][:, ::-1],
        "Gauss, any order": every["Gauss 1"][:, turn],
        "Hilbert": 1 / (1.0 + i + j),
        "Lotkin": np.where(i == 0, 1, 1 / (1.0 + i + j)),
        "Cauchy": 1 / (x + y + 0.01),
        "Vandermonde": (2 * x - 1) ** j,
        "Vandermonde, reversed": x ** j[::-1],
        "Kahan": 0.93**i * np.where(i == j, 1, np.where(i < j, -0.36, 0)),
        "upper": np.triu(g),
        "waves": np.cos(5 * np.pi * x * y),
        "columns fall": g * graded,
        "columns rise": g * graded[::-1],
        "rows rise": g * np.geomspace(1e-16, 1, m)[:, None],
        "both rise": g * graded[::-1] * np.geomspace(1e-16, 1, m)[:, None],
        "of rank 3": g[:, :3] @ g[:3],
        "equal columns": g[:, j // 2],
        "zero columns": np.where(j % 3 == 0, 0, g),
        "random": g,
    }
    return every


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "shape, size, dtype",
    [((1,), (60, 60), "float64"), ((2,), (60, 60), "float64"), ((4,), (60, 60), "complex128")]
    + [((4,), (40, 64), "float64"), ((2,), (128, 60), "float64")],
)
def test_nearly_dependent_columns(shape, size, dtype):
    for name, a in nearly_dependent(*size).items():
        a = a.astype(dtype)
        u, s, vh = plait.linalg.svd(matrices.put(a, shape))
        matrices.check_orthonormal(u, name)
        matrices.check_product((np.asarray(u) * np.asarray(s), vh), a, max(size), name)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("size", [(20, 20), (40, 20)])
def test_nearly_dependent_columns_of_a_batch(size):
    every, mesh = nearly_dependent(*size), meshes.make((2,))
    a = meshes.put(np.stack(list(every.values())), mesh)
    u, h = jax.jit(jax.vmap(lambda a: tuple(plait.linalg.polar(a, mesh=mesh, spec=jax.P()))))(a)
    for i, (name, a) in enumerate(every.items()):
        matrices.check_product((u[i], h[i]), a, size[0], name)


@pytest.mark.long
@pytest.mark.parametrize(
    "dtype, shape", [("float64", (1,)), ("float32", (4,)), ("complex128", (4,))]
)
def test_numbers_near_the_largest(dtype, shape):
    most = np.finfo(dtype).max * 0.8
    a = (matrices.orthogonal(8, dtype) * np.geomspace(1, 0.1, 8)).astype(dtype)
    x = matrices.put(a * most, shape)
    limit = matrices.limit(8, dtype)
    assert np.abs(np.asarray(plait.linalg.svdvals(x)) / most - oracle.svd(a)).max() <= limit
    u, h = plait.linalg.polar(x)
    matrices.check_orthonormal(u)
    matrices.check_product((u, np.asarray(h) / most), a, 8)
    assert np.isclose(plait.linalg.cond(x), 10, rtol=10 * limit)
    assert np.isclose(plait.linalg.cond(x, 1), plait.linalg.cond(a, 1), rtol=10 * limit)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "dtype, shape, size, power",
    [
        ("float64", (3,), (90, 90), -1003),
        ("float32", (4,), (120, 50), -112),
        ("complex64", (2, 2), (70, 70), -110),
    ],
)
def test_small_numbers_have_all_digits(dtype, shape, size, power):
    """No number is subnormal, but products with smaller numbers would be."""
    a = meshes.random(size, dtype)
    scale = np.ldexp(np.finfo(dtype).dtype.type(1), power)
    x, small = matrices.put(a, shape), matrices.put(a * scale, shape)
    assert np.array_equal(plait.linalg.svdvals(small) / scale, plait.linalg.svdvals(x))
    for ours, want in zip(plait.linalg.svd(small), plait.linalg.svd(x), strict=True):
        assert np.array_equal(ours if ours.ndim == 2 else ours / scale, want)
    (u, h), (of_u, of_h) = plait.linalg.polar(small), plait.linalg.polar(x)
    assert np.array_equal(u, of_u)
    assert np.abs(np.asarray(h) / scale - of_h).max() <= np.finfo(dtype).tiny / scale


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "dtype, shape, size", [("float64", (4,), (6, 5)), ("complex128", (2, 2), (5, 5))]
)
def test_gradients(dtype, shape, size):
    check_gradients(dtype, shape, size)


def check_gradients(dtype, shape, size):
    a = meshes.random(size, dtype)

    def seen(u, s, vh):
        return s, jnp.abs(u), jnp.abs(vh), (u * jnp.exp(s)[None].astype(u.dtype)) @ vh

    def parts(u, s, vh):
        return u @ vh, (vh.conj().T * s[None].astype(u.dtype)) @ vh

    def ours(a, **given):
        factors = seen(*plait.linalg.svd(a, **given)), tuple(plait.linalg.polar(a, **given))
        return factors, plait.linalg.svdvals(a, **given)

    def theirs(a):
        found = jnp.linalg.svd(a, full_matrices=False)
        return (seen(*found), parts(*found)), found[1]

    mesh = meshes.make(shape)
    given = {"mesh": mesh, "spec": jax.P(), "block": 2}
    got = first_order(lambda a: ours(a, **given), a)(meshes.put(a, mesh))
    want = first_order(theirs, a)(a)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-8, atol=1e-8 * np.abs(w).max())


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("dtype, scale", [("float64", 1e200), ("complex128", 1e-200)])
@pytest.mark.parametrize("mode", [None, "lorentzian"])
def test_gradients_of_vectors_at_any_scale(dtype, scale, mode):
    """Vectors of c a are those of a, but squares of its values leave the range of numbers."""
    n, mesh = 6, meshes.make((4,))
    a, c = meshes.random((n, n), dtype), meshes.random((n, n), dtype, 1)
    a = a if mode is None else matrices.definite(n, dtype, 30)
    given = {"mesh": mesh, "spec": jax.P(), "block": 2}

    def loss(a):
        if mode is None:
            u, _, vh = plait.linalg.svd(a, **given)
        else:
            u = plait.linalg.eigh(a, degenerate=mode, **given).eigenvectors
            vh = u.conj().T
        return jnp.sum((u[:, :2] @ vh[:2] * c).real)

    slope = jax.jit(jax.grad(loss))
    want = np.asarray(slope(meshes.put(a, mesh)))
    got = np.asarray(slope(meshes.put(a * scale, mesh))) * scale
    assert np.allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


def test_gradients_of_equal_singular_values():
    """The sum is the nuclear norm; its gradient is u of the polar decomposition."""
    q, mesh = matrices.orthogonal(8)[:, :4] * 3, meshes.make((4,))
    x = meshes.put(q, mesh, jax.P("a"))
    for y, want in ((x, q / 3), (jnp.conj(x.T), q.T / 3)):
        got = jax.jit(jax.grad(lambda y: jnp.sum(plait.linalg.svdvals(y, mesh=mesh))))(y)
        assert np.allclose(got, want, atol=1e-13)


@pytest.mark.long
def test_second_derivatives_of_singular_values():
    a, mesh = meshes.random((3, 2)), meshes.make((2,))

    def curved(values):
        return lambda a: jnp.sum(jnp.sin(values(a)))

    ours = curved(lambda a: plait.linalg.svdvals(a, mesh=mesh, spec=jax.P(), block=1))
    got = jax.jit(jax.jacfwd(jax.grad(ours)))(meshes.put(a, mesh))
    want = jax.hessian(curved(lambda a: jnp.linalg.svd(a, compute_uv=False)))(a)
    assert np.allclose(got, want, atol=1e-10)


def first_order(function, like):
    """Values, a tangent and a gradient."""
    value, da = factors.weighed(function, like)

    def every(a):
        return function(a), jax.jvp(value, (a,), (jnp.asarray(da),))[1], jax.grad(value)(a)

    return jax.jit(every)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("m, n", [(0, 0), (3, 0), (0, 4)])
def test_without_elements(m, n):
    a = np.zeros((m, n))
    u, s, vh = plait.linalg.svd(a)
    assert u.shape == (m, 0) and s.shape == (0,) and vh.shape == (0, n)
    assert jax.grad(lambda a: jnp.sum(plait.linalg.svd(a).s))(a).shape == (m, n)
    assert plait.linalg.svdvals(a).shape == (0,)
    assert jax.grad(lambda a: jnp.sum(plait.linalg.svdvals(a)))(a).shape == (m, n)
    if m >= n:
        u, h = plait.linalg.polar(a)
        assert u.shape == (m, n) and h.shape == (n, n)
    if m == n:
        for mode in ("nan", "zero", "lorentzian", "check"):
            f = lambda a, mode=mode: jnp.sum(plait.linalg.eigh(a, degenerate=mode)[1])  # noqa: E731
            assert jax.grad(f)(a).shape == (m, n)
