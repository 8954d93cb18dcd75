"""Halo exchange and its adjoint against index arithmetic in NumPy."""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("periodic", [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("extents", [(0, 0), (1, 0), (0, 2), (2, 1), (3, 5), (9, 1)])
@pytest.mark.parametrize("shape", [(2,), (2, 2), (4, 2)])
def test_exchange_and_reduce(shape, extents, periodic, kind):
    mesh = meshes.make(shape, kind)
    parts = (*shape, 1)[:2]
    spec = P(*meshes.NAMES[: len(shape)])
    a = meshes.random((8, 4))
    x = meshes.put(a, mesh, spec)
    padded = oracle.halo_pad(a, parts, extents, periodic)
    y = plait.halo.pad(x, extents, periodic=periodic)
    assert np.array_equal(y, padded)
    assert np.array_equal(plait.halo.unpad(y, extents), a)
    dirty = meshes.random(padded.shape, seed=1)
    d = meshes.put(dirty, mesh, spec)
    full = plait.halo.exchange(d, extents, periodic=periodic)
    assert np.array_equal(full, oracle.halo_exchange(dirty, parts, extents, periodic))
    back = plait.halo.reduce(d, extents, periodic=periodic)
    assert np.allclose(back, oracle.halo_reduce(dirty, parts, extents, periodic), rtol=1e-13)


def test_one_part_wraps_onto_itself():
    a = meshes.random((5, 6))
    for e in (0, 1, 3, 7):
        assert np.array_equal(plait.halo.pad(a, e), np.pad(a, e, mode="wrap"))


@pytest.mark.parametrize("periodic", [True, False])
def test_adjoint_identity(periodic):
    mesh = meshes.make((2, 2))

    def f(v):
        return plait.halo.exchange(v, (1, 2), periodic=periodic)

    x = meshes.put(meshes.random((8, 12)), mesh, P("a", "b"))
    c = meshes.put(meshes.random((8, 12), seed=1), mesh, P("a", "b"))
    [back] = jax.jit(lambda c: jax.linear_transpose(f, x)(c))(c)
    assert np.allclose(np.vdot(c, f(x)), np.vdot(back, x), rtol=1e-13)
    again = jax.jit(
        lambda v: jax.linear_transpose(lambda c: jax.linear_transpose(f, x)(c)[0], c)(v)[0]
    )(x)
    assert np.array_equal(again, f(x))


def test_gradient_of_a_smoothness_prior():
    mesh = meshes.make((2, 2))

    def loss(v):
        y = plait.halo.pad(v, (1, 1, 0))
        d = plait.halo.exchange(y, (1, 1, 0)) ** 2
        return plait.sum(plait.halo.unpad(jnp.roll(d, 0, 0), (1, 1, 0)) * 3) + plait.sum(y**2)

    a = meshes.random((4, 4, 2))
    x = meshes.put(a, mesh, P("a", "b"))
    d = meshes.random((4, 4, 2), seed=2)
    value = plait.jit(loss)
    h = 1e-5
    slope = (value(x + h * d) - value(x - h * d)) / (2 * h)
    assert np.allclose(np.vdot(plait.jit(jax.grad(loss))(x), d), slope, rtol=1e-8)
    assert meshes.xla_collectives(lambda v: plait.halo.exchange(v, 1), x) == []


def test_truth_of_the_peers_example():
    g = jax.grad(lambda v: jnp.sum(plait.halo.exchange(v, 2)))(jnp.zeros(10))
    assert g.tolist() == [0, 0, 2, 2, 1, 1, 2, 2, 0, 0]


def test_vmap_is_one_exchange():
    from plait import _core

    mesh = meshes.make((2,))
    x = meshes.put(meshes.random((3, 8, 2)), mesh, P(None, "a"))
    f = plait.jit(jax.vmap(lambda v: plait.halo.exchange(v, (1, 0))))
    want = np.stack([oracle.halo_exchange(v, (2, 1), (1, 0), (1, 1)) for v in np.asarray(x)])
    assert np.array_equal(f(x), want)
    _core.trace_start(True)
    plait.block(f(x))
    assert len(_core.trace()) == 2  # one for each device
    _core.trace_start(False)


def test_bad_input():
    mesh = meshes.make((4,))
    x = meshes.put(np.zeros((8, 6)), mesh, P("a"))
    with pytest.raises(ValueError, match="axis 0 has 2 cells on each device, less than its"):
        plait.halo.exchange(x, (2, 0))
    with pytest.raises(ValueError, match="extents has 3 entries for 2 axes"):
        plait.halo.exchange(x, (1, 0, 0))
    with pytest.raises(ValueError, match="extents -1 is negative"):
        plait.halo.reduce(x, -1)
    with pytest.raises(TypeError, match="extents is 0.5; expected integers"):
        plait.halo.exchange(x, 0.5)


def test_donated_operand_gives_its_memory():
    x = meshes.put(meshes.random((12, 5)), meshes.make((2,)), P("a"))
    x = x + 1  # XLA's own memory: NumPy's cannot be donated
    want = np.asarray(plait.halo.exchange(x, (1, 0)))
    where = {s.device: s.data.unsafe_buffer_pointer() for s in x.addressable_shards}
    got = plait.halo.exchange(x, (1, 0), donate=True)
    assert x.is_deleted()
    assert np.array_equal(got, want)
    assert where == {s.device: s.data.unsafe_buffer_pointer() for s in got.addressable_shards}
