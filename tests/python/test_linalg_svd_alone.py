"""Singular value decompositions of small matrices, which one of several devices computes."""

import functools

import jax
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
import test_linalg_svd as qdwh
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plait import _dense_batch, _dense_svd_alone


@pytest.fixture(params=[0, _dense_svd_alone.SMALL], ids=["together", "alone"], autouse=True)
def small(request, monkeypatch):
    """Sets the number of columns of the largest small matrix."""
    jax.clear_caches()  # the programs for the same shapes
    monkeypatch.setattr(_dense_svd_alone, "SMALL", request.param)
    yield request.param
    jax.clear_caches()


def check(found, a):
    """U, s and Vᴴ of a matrix, to rounding."""
    u, s, vh = map(np.asarray, found)
    n, want = max(a.shape), oracle.svd(a)
    assert np.abs(s - want).max(initial=0) <= matrices.limit(n, a.dtype) * want.max(initial=0)
    matrices.check_orthonormal(u)
    matrices.check_orthonormal(vh.conj().T)
    matrices.check_product((u * s, vh), a, n)


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize(
    "size, shape, block, dtype",
    [
        ((9, 9), (4,), 2, "complex64"),
        ((12, 7), (2, 2), 3, "float32"),
        ((2, 5), (8,), None, "complex128"),
        ((31, 8), (4,), None, "float64"),
    ],
)
def test_of_every_kind(small, size, shape, block, dtype, kind):
    a, mesh = meshes.random(size, dtype), meshes.make(shape, kind)
    a[:, 0] = a[:, 1]  # rank deficient: vectors are completed
    x = meshes.put(a, mesh)
    check(plait.linalg.svd(x, block=block), a)
    if size[0] >= size[1]:
        u, h = plait.linalg.polar(x, block=block)
        matrices.check_product((u, h), a, size[0])
        assert np.array_equal(h, np.asarray(h).conj().T)
        if small:
            matrices.check_orthonormal(u)
    values = plait.linalg.svdvals(x, block=block)
    assert np.abs(np.asarray(values) - oracle.svd(a)).max() <= matrices.limit(
        max(size), dtype
    ) * np.linalg.norm(a)
    text = plait.jit(plait.linalg.svdvals).lower(x).as_text()
    assert ("gesdd" in text) == (small > 0)
    assert ("plait_heevd" in text) == (small == 0), text


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("n_batch, spec", [(5, P(None, "a")), (4, P("a")), (1, P())])
def test_batches(n_batch, spec):
    mesh = meshes.make((4,))
    a = meshes.random((n_batch, 8, 4))
    x = meshes.put(a, mesh, spec)
    u, s, vh = plait.jit(jax.vmap(functools.partial(plait.linalg.svd, mesh=mesh, spec=P())))(x)
    values = plait.jit(jax.vmap(functools.partial(plait.linalg.svdvals, mesh=mesh, spec=P())))(x)
    for i in range(n_batch):
        check((u[i], s[i], vh[i]), a[i])
        assert np.allclose(values[i], s[i], atol=1e-13)


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("largest", [1, 512])
def test_batches_that_mesh_axes_split(monkeypatch, largest):
    """Matrices in parts on devices, or given out whole; largest: the largest that is given out."""
    monkeypatch.setattr(_dense_batch, "SMALL", largest)
    mesh, a = meshes.make((2, 2), AxisType.Explicit), meshes.random((4, 6, 6), "complex128")
    x = meshes.put(a, mesh, P("a", None, "b"))
    u, s, vh = map(np.asarray, jax.jit(jax.vmap(plait.linalg.svd))(x))
    values = np.asarray(jax.jit(jax.vmap(plait.linalg.svdvals))(x))
    for i in range(4):
        check((u[i], s[i], vh[i]), a[i])
        assert np.allclose(values[i], s[i], atol=1e-13)


@pytest.mark.parametrize("small", [_dense_svd_alone.SMALL], indirect=True)
def test_a_batch_of_small_ones_is_given_out():
    """Even if they are large for other operations: else the first device would have them all."""
    mesh = meshes.make((4,))
    x = meshes.put(meshes.random((4, 700, 600), "float32"), mesh)
    f = jax.vmap(functools.partial(plait.linalg.svdvals, mesh=mesh, spec=P()))
    assert "plait_mesh_batch" in str(jax.make_jaxpr(f)(x))
    assert np.allclose(jax.jit(f)(x), np.linalg.svd(x, compute_uv=False), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("small", [_dense_svd_alone.SMALL], indirect=True)
def test_gradients():
    qdwh.check_gradients("complex128", (4,), (5, 5))


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_nan(bad):
    a = meshes.random((6, 6))
    a[2, 3] = bad
    for x in (a, meshes.put(a, meshes.make((4,)))):
        check_nan(x)


def check_nan(x):
    assert np.isnan(plait.linalg.svdvals(x)).all()
    assert all(np.isnan(y).all() for y in plait.linalg.svd(x))
