"""Matrices dealt out in block columns, from and to every layout, and their elements' places."""

import itertools

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import pytest
from plait import _dealt, _mesh
from test_redistribute import deal

MESHES = [None, (1,), (3,), (8,), (2, 4)]


def spec_of(x, shape):
    """The spec of an array in the form that rules use."""
    if shape is None:
        return ((), ())
    return _mesh.names_of(x.sharding.spec, 2, "test")


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("shape", MESHES)
def test_there_turned_and_back(shape):
    mesh = None if shape is None else meshes.make(shape)
    sizes, blocks = [(5, 7), (33, 16), (1, 1), (8, 64)], [1, 3, 64]
    for i, ((m, n), block) in enumerate(itertools.product(sizes, blocks)):
        a = meshes.random((m, n), ["float64", "complex128", "float32"][i % 3])
        x = jnp.asarray(matrices.put(a, shape, i))
        split = spec_of(x, shape)
        how = _dealt.Deal(mesh, block)

        def there_and_back(x, how=how, split=split):
            y = _dealt.deal_out(x, split, how)
            other = _dealt.with_block(y, 2)
            return y.data, y.turned().data, _dealt.collect(y, split), _dealt.collect(other, split)

        dealt, turned, *same = jax.jit(there_and_back)(x)
        assert np.array_equal(dealt, deal(a.T, 0, how.n_ranks, block)), (m, n, block)
        assert np.array_equal(turned, deal(a, 0, how.n_ranks, block)), (m, n, block)
        for z in same:
            assert np.array_equal(z, a)
            assert shape is None or z.sharding.is_equivalent_to(x.sharding, 2)


@pytest.mark.parametrize("shape", [None, (4,), (2, 4)])
def test_places_of_elements(shape):
    m, n = 9, 13
    a = meshes.random((m, n))
    x = jnp.asarray(matrices.put(a, shape))
    how, split = _dealt.Deal(None if shape is None else meshes.make(shape), 2), spec_of(x, shape)

    def places(x):
        y = _dealt.deal_out(x, split, how)
        low = y.map(lambda rows, columns, e: jnp.where(rows >= columns, e + 1, e * 0))
        total = y.total(lambda rows, columns, e: e * rows.astype(e.dtype))
        most = y.columns(lambda rows, columns, e: jnp.max(e, axis=1))
        one = _dealt.identity(y, m, 5)
        return _dealt.collect(low, split), total, most, _dealt.collect(one, split)

    low, total, most, one = jax.jit(places)(x)
    assert np.array_equal(low, np.tril(a + 1))
    assert np.isclose(total, np.sum(a * np.arange(m)[:, None]))
    assert np.array_equal(most, a.max(0))
    assert np.array_equal(one, np.eye(m, 5))

    def loss(x):
        y = _dealt.deal_out(x, split, how).turned()
        return y.total(lambda rows, columns, e: jnp.sin(e))

    assert np.allclose(jax.jit(jax.grad(loss))(x), np.cos(a))
