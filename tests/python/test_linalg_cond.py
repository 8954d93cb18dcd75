"""plait.linalg.cond: estimates from a factor, compared with the condition number."""

import jax
import matrices
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P


def check(got, want, dtype):
    """At least a third of it; above it only by rounding, which the condition number magnifies."""
    got = float(got)
    assert want / 3 <= got <= want * (1 + 100 * want * float(meshes.eps(dtype))), (got, want)


def matrices_of(n, dtype):
    """Many kinds of matrices; the first vectors show the largest column of none of them."""
    double = np.result_type(dtype, "float64")
    g = meshes.random((n, n), double)
    yield g
    yield (matrices.orthogonal(n, double, 1) * np.geomspace(1, 1e-3, n)) @ g
    yield np.linalg.inv(np.eye(n) + np.eye(n, k=n // 2) * 100 + np.eye(n, k=1 - n // 3) / 7)
    one = np.eye(n, dtype=double) * 10
    one[:, n // 3] += meshes.random((n,), double, 2) * 100
    yield np.linalg.inv(one)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    "n, shape, dtype, block, first, second",
    [
        (33, (4,), "float64", 5, 1, np.inf),
        (20, (2, 2), "complex128", 3, np.inf, 1),
        (17, (8,), "float32", 1, np.inf, np.inf),
        (40, (1,), "complex64", None, 1, 1),
        (3, (2,), "float64", 2, np.inf, 1),
    ],
)
def test_estimates(n, shape, dtype, block, first, second):
    mesh = meshes.make(shape)

    def every(a, h):
        given = {"mesh": mesh, "spec": P(), "block": block}
        f, c = plait.linalg.lu(a, **given), plait.linalg.cholesky(h, **given)
        return plait.linalg.cond(a, first, **given), f.cond(second), c.cond()

    program = plait.jit(every)
    for a in matrices_of(n, dtype):
        a = a.astype(dtype)
        h = (a @ a.conj().T).astype(dtype) + np.eye(n, dtype=dtype)
        h = (h + h.conj().T) / 2
        double = np.result_type(dtype, "float64")
        of_matrix, of_factor, definite = program(meshes.put(a, mesh), meshes.put(h, mesh))
        assert of_matrix.dtype == of_factor.dtype == a.real.dtype
        check(of_matrix, np.linalg.cond(a.astype(double), first), dtype)
        check(of_factor, np.linalg.cond(a.astype(double), second), dtype)
        check(definite, np.linalg.cond(h.astype(double), 1), dtype)


@pytest.mark.long
def test_singular_and_not_finite():
    n, mesh = 9, meshes.make((4,))
    a = np.eye(n)
    a[4, 4] = 0
    x = meshes.put(a, mesh)
    f = plait.linalg.lu(x, block=2)
    assert plait.linalg.cond(x, 1, block=2) == f.cond(np.inf) == np.inf
    assert np.isnan(plait.linalg.cholesky(x, block=2).cond())
    assert plait.linalg.cond(meshes.put(0 * a, mesh)) == np.inf
    for k in (n, 132):
        bad = np.eye(k)
        bad[k - 1, 3] = np.nan
        y = meshes.put(bad, mesh)
        for p in (1, np.inf):
            assert np.isnan(plait.linalg.cond(y, p)) and np.isnan(plait.linalg.lu(y).cond(p))
        bad[k - 1, 3] = np.inf
        assert plait.linalg.cond(meshes.put(bad, mesh), 1) == np.inf == np.linalg.cond(bad, 1)
    several = np.stack([np.diag(np.arange(1.0, n + 1) * i) for i in (1, 2, 0)])
    many = jax.vmap(lambda a: plait.linalg.cond(a, 1, mesh=mesh, spec=P(), block=2))
    got = plait.jit(many)(meshes.put(several, mesh))
    assert np.allclose(got[:2], n) and got[2] == np.inf


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("n", [3, 12])
def test_explicit_axes(n):
    mesh, a = meshes.make((4,), AxisType.Explicit), matrices.definite(n, cond=30)
    x = meshes.put(a, mesh, P("a") if n % 4 == 0 else P())
    for f in (lambda a: plait.linalg.cond(a, 1), lambda a: plait.linalg.cholesky(a).cond(np.inf)):
        want = np.linalg.cond(a, 1)  # for a Hermitian matrix both norms agree
        for got in (f(x), jax.jit(f)(x)):
            assert want / 3 <= got <= want * (1 + 1e-12)


def test_bad_input():
    a = np.eye(3)
    with pytest.raises(TypeError, match="plait.linalg.cond: an estimate has no derivative"):
        jax.grad(lambda a: plait.linalg.cond(a, 1))(a)
    with pytest.raises(TypeError, match="plait.linalg.cond: an estimate has no derivative"):
        jax.grad(lambda a: plait.linalg.cholesky(a).cond())(a)
    with pytest.raises(ValueError, match="cond: p is 'nuc'; expected 2, 1 or inf"):
        plait.linalg.cond(a, "nuc")
    with pytest.raises(ValueError, match=r"cond: p is array\(\[1, 2\]\); expected 2, 1 or inf"):
        plait.linalg.cond(a, np.array([1, 2]))
    with pytest.raises(ValueError, match="cond: p is 2; expected 1 or inf"):
        plait.linalg.lu(a).cond(2)
    with pytest.raises(ValueError, match="cond: a is 2 x 3; expected a square matrix"):
        plait.linalg.cond(np.ones((2, 3)), 1)
    with pytest.raises(ValueError, match="cond: a is 0 x 0; expected elements"):
        plait.linalg.cond(np.ones((0, 0)))
