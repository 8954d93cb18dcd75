"""Arrays on the devices of several processes, and a gradient through much of the mesh model."""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def put(a, mesh, spec):
    """The array, which every process has whole, on the mesh."""
    return jax.make_array_from_callback(a.shape, NamedSharding(mesh, spec), lambda i: a[i])


def put_like(a, x):
    """The array, which every process has whole, split as `x` is."""
    return jax.make_array_from_callback(a.shape, x.sharding, lambda i: a[i])


def whole(x, mesh):
    """The array on every process."""
    return np.asarray(plait.redistribute(x, P(), mesh=mesh).addressable_data(0))


def same(x, want, tolerance=1e-12):
    """The parts of an array on this process equal those parts of `want`."""
    assert len(x.addressable_shards) == len(x.sharding.addressable_devices) > 0
    for shard in x.addressable_shards:
        assert np.allclose(shard.data, want[shard.index], rtol=0, atol=tolerance)


def check_gradient(mesh, spec, shape, width):
    """A directional derivative of transforms, halos and a sum against differences."""
    x, d = (put(meshes.random(shape, seed=s), mesh, spec) for s in (0, 1))

    def loss(v):
        y = plait.fft.pfft3d(v, norm="ortho")
        z = jnp.real(plait.fft.pifft3d(y * 3, norm="ortho"))
        g = plait.halo.unpad(plait.halo.pad(v, width, spec=spec) ** 2, width, spec=spec)
        return plait.sum(jnp.sin(z) * v + g)

    value = plait.jit(loss)
    h = 1e-5
    slope = (value(x + h * d) - value(x - h * d)) / (2 * h)
    g = plait.jit(jax.grad(loss))(x)
    dot = plait.jit(lambda a, b: plait.sum(a * b))(g, d)
    assert np.allclose(dot.addressable_data(0), slope.addressable_data(0), rtol=1e-7)
    assert g.sharding.is_equivalent_to(x.sharding, 3)
    assert meshes.xla_collectives(jax.grad(loss), x) == []
