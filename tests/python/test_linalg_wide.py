"""Wide matrices and complete bases: least norms, derivatives of wide factors, square q, u and v."""

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
from meshes import padded
from test_linalg_shape import data
from test_linalg_tall import forced, is_by_rows  # noqa: F401

CASES = [
    ((1, 1), (4,), None, "float64"),
    ((9, 6), (4,), 2, "complex128"),
    ((6, 9), (2, 4), None, "float32"),
    ((40, 8), (8,), None, "float64"),
    ((8, 40), (2,), 3, "complex64"),
    ((33, 34), (2, 4), 5, "float64"),
    ((12, 12), None, None, "complex128"),
    ((16, 0), (2,), None, "float64"),
]


@pytest.mark.parametrize("size, shape, block, dtype", CASES)
def test_complete_factors(size, shape, block, dtype):
    m, n = size
    a = meshes.random(size, dtype)
    x = matrices.put(a, shape, 1)
    q, r = plait.linalg.qr(x, mode="complete", block=block)
    assert q.shape == (m, m) and r.shape == (m, n)
    assert np.array_equal(r, np.triu(r))
    matrices.check_orthonormal(q)
    matrices.check_product((q, r), a, max(size))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("size, shape, block, dtype", CASES[1::3])
def test_complete_vectors(size, shape, block, dtype):
    (m, n), a = size, meshes.random(size, dtype)
    x = matrices.put(a, shape, 1)
    u, s, vh = plait.linalg.svd(x, full_matrices=True, block=block)
    assert u.shape == (m, m) and s.shape == (min(size),) and vh.shape == (n, n)
    matrices.check_orthonormal(u)
    matrices.check_orthonormal(np.asarray(vh).conj().T)
    few, values, few_h = plait.linalg.svd(x, block=block)
    k = min(size)
    assert np.array_equal(np.asarray(u)[:, :k], few) and np.array_equal(np.asarray(vh)[:k], few_h)
    assert np.array_equal(s, values)


def test_complete_vectors_of_a_singular_matrix():
    """The vectors of zero singular values complete the basis, too."""
    a = meshes.random((12, 2)) @ meshes.random((2, 7), seed=1)
    u, s, vh = plait.linalg.svd(matrices.put(a, (4,)), full_matrices=True)
    matrices.check_orthonormal(u)
    matrices.check_product((np.asarray(u)[:, :7] * np.asarray(s), vh), a, 12)
    rest = np.asarray(u)[:, 2:]
    assert np.abs(rest.T @ a).max() <= matrices.limit(12, "float64") * float(s[0])


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("is_by_columns", [False, True])
def test_least_norm(forced, kind, is_by_columns):  # noqa: F811
    m, n, mesh = 6, 40, meshes.make((4,), kind)
    block = 2 if is_by_columns else None
    for dtype, split in (("float64", P(None, "a")), ("complex64", P())):
        a, b = meshes.random((m, n), dtype), meshes.random((m, 8), dtype, 1)
        x = meshes.put(a, mesh, split)
        assert is_by_rows(plait.linalg.lstsq, x, meshes.put(b, mesh))
        for rhs, spec in ((b, P(None, "a")), (b[:, 0], P()), (b[:, :0], P())):
            got = plait.linalg.lstsq(x, meshes.put(rhs, mesh, spec), block=block)
            want = oracle.lstsq(a, rhs)
            bound = matrices.limit(n, dtype) * np.linalg.cond(a)
            assert got.shape == want.shape
            assert matrices.norm(np.asarray(got) - want) <= bound * matrices.norm(want)
            if rhs.ndim == 2 and rhs.size:
                assert got.sharding.spec == spec


def test_padding_of_wide_matrices_is_not_read(forced):  # noqa: F811
    m, n, mesh = 5, 41, meshes.make((4,))
    a, b = meshes.random((m, n)), meshes.random((m, 3), seed=1)
    x = meshes.put(padded(a, (8, 44)), mesh, P(None, "a"))
    y = meshes.put(padded(b, (8, 3)), mesh, P("a"))
    given = {"mesh": mesh, "spec": P(None, "a"), "shape": (m, n)}

    def every(x, y):
        of_rows = plait.linalg.lstsq(x, y, **given)
        of_columns = plait.linalg.lstsq(x, y[:, 0], block=2, **given)
        complete = plait.linalg.qr(x, mode="complete", **given)
        return of_rows, of_columns, complete, plait.linalg.svd(x, full_matrices=True, **given)

    of_rows, of_columns, (q, r), (u, s, vh) = plait.jit(every)(x, y)
    want = oracle.lstsq(a, b)
    assert of_rows.shape == (44, 3) and np.allclose(data(of_rows, n, 3), want)
    assert of_columns.shape == (44,) and np.allclose(data(of_columns, n), want[:, 0])
    assert q.shape == u.shape == (8, 8) and r.shape == (8, 44) and vh.shape == (44, 44)
    matrices.check_orthonormal(data(q, m, m))
    matrices.check_product((data(q, m, m), data(r, m, n)), a, n)
    vh = data(vh, n, n)
    matrices.check_orthonormal(vh)
    matrices.check_product((data(u, m, m) * np.asarray(s), vh[:m]), a, n)


@pytest.mark.long(keep=1)
@factors.BOTH
def test_gradients_of_wide_factors(dtype, shape):
    """R beyond its square part is Qᴴ times the other columns of the matrix."""
    m, n = 4, 7

    def theirs(a):
        q, r = jnp.linalg.qr(a[:, :m])
        q, r = factors.phased(q, jnp.concatenate((r, jnp.conj(q.T) @ a[:, m:]), axis=1))
        return (q, r), r

    factors.compare(factors.phased_qr, theirs, meshes.random((m, n), dtype), shape)


@pytest.mark.long
@factors.BOTH
def test_gradients_of_least_norms(dtype, shape):
    m, n = 3, 20
    b = meshes.random((m, 2), dtype, 1)

    def ours(a, mesh, spec, block):
        given = {"mesh": mesh, "spec": spec}
        return plait.linalg.lstsq(a, b, **given), plait.linalg.lstsq(a, b[:, 0], block=1, **given)

    def theirs(a):
        x = jnp.conj(a.T) @ jnp.linalg.solve(a @ jnp.conj(a.T), b)
        return x, x[:, 0]

    factors.compare(ours, theirs, meshes.random((m, n), dtype), shape)


def test_a_batch():
    mesh = meshes.make((4,))
    a, b = meshes.random((5, 3, 8)), meshes.random((5, 3), seed=1)
    given = {"mesh": mesh, "spec": P()}

    def every(a, b):
        q, r = plait.linalg.qr(a.T, mode="complete", **given)
        return plait.linalg.lstsq(a, b, **given), q, r

    x, q, r = plait.jit(jax.vmap(every))(meshes.put(a, mesh), meshes.put(b, mesh))
    for i in range(5):
        assert np.allclose(x[i], oracle.lstsq(a[i], b[i]))
        matrices.check_orthonormal(q[i])
        matrices.check_product((q[i], r[i]), a[i].T, 8)


@pytest.mark.long
def test_complete_factors_without_derivatives():
    """Columns that span the rest are arbitrary; without such columns there are derivatives."""
    a, mesh = meshes.random((6, 4)), meshes.make((2,))
    given = {"mesh": mesh, "spec": P()}

    def complete(a):
        q, r = plait.linalg.qr(a, mode="complete", **given)
        return jnp.sum(q[:, :4] ** 3) + jnp.sum(r[:4] ** 3)

    def full(a):
        return jnp.sum(plait.linalg.svd(a, full_matrices=True, **given).s)

    with pytest.raises(TypeError, match='mode="complete" of a 6 x 4 matrix has no derivative'):
        jax.grad(complete)(a)
    with pytest.raises(TypeError, match="since only 4 of 6 vectors belong to singular values"):
        jax.grad(full)(a)

    def square(a):
        q, r = plait.linalg.qr(a, **given)
        return jnp.sum(q**3) + jnp.sum(r**3)

    got, want = (jax.jit(jax.grad(f))(a[:4]) for f in (complete, square))
    assert np.array_equal(got, want)
    u, _, vh = jnp.linalg.svd(a[:4])
    assert np.allclose(jax.jit(jax.grad(full))(a[:4]), u @ vh)


def test_wrong_modes():
    for mode in ("raw", None, np.ones(2)):
        with pytest.raises(ValueError, match="qr: mode is .*; expected 'reduced', 'complete' or"):
            plait.linalg.qr(np.ones((3, 3)), mode=mode)
