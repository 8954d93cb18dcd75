"""Arrays of more axes than the core's eight: unused axes next to each other count as one."""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P

SHAPE = (4, 2, 3, 2, 2, 1, 2, 1, 3, 2)  # a lattice of four axes, and six axes inside
SPEC = P("a", None, None, "b")


@pytest.fixture(scope="module")
def field():
    a = meshes.random(SHAPE, "complex128")
    return a, meshes.put(a, meshes.make((2, 2)), SPEC)


def test_ghosts(field):
    a, x = field
    width = ((1, 2), 0, (1, 0), *[0] * 7)
    padded = plait.halo.pad(x, width)
    meshes.close(plait.halo.unpad(padded, width), a)
    merged = meshes.put(a.reshape(4, 2, 3, 2, -1), meshes.make((2, 2)), SPEC)
    want = plait.halo.pad(merged, width[:5])
    meshes.close(padded, np.asarray(want).reshape(padded.shape))


@pytest.mark.parametrize("axes", [(4,), (0, 1, 2, 3, 4), (1, 4), (3, 9)])
def test_transforms(field, axes):
    a, x = field
    y = plait.fft.fftn(x, axes=axes)
    meshes.close(y, np.fft.fftn(a, axes=axes))
    meshes.close(plait.fft.ifftn(y, axes=axes), a)
    real = plait.fft.rfftn(jnp.real(x), axes=axes)
    meshes.close(real, np.fft.rfftn(a.real, axes=axes))
    back = plait.fft.irfftn(real, s=[SHAPE[i] for i in axes], axes=axes)
    meshes.close(back, a.real)
    meshes.close(plait.fft.idctn(plait.fft.dctn(x, axes=axes), axes=axes), a)


@pytest.mark.parametrize("axis", [None, 0, (0, 3), (2, 5), 9])
def test_sums(field, axis):
    a, x = field
    meshes.close(plait.sum(x, axis=axis), a.sum(axis))


def test_layouts(field):
    a, x = field
    for spec in (P(None, "a", None, None, "b"), P(*[None] * 9, "b"), P(("b", "a")), P()):
        y = plait.redistribute(x, spec)
        meshes.close(y, a)
        assert y.sharding.is_equivalent_to(meshes.put(a, meshes.make((2, 2)), spec).sharding, 10)


def test_vmap_and_derivatives(field):
    """By JAX's own transforms on one device."""
    (a, x), mesh = field, meshes.make((2, 2))
    a, x = a[..., 0, 0], plait.jit(lambda x: x[..., 0, 0])(x)  # eight axes

    def loss(f, x):
        return jnp.sum(jnp.abs(f(x)) ** 4)

    def ours(x):
        y = plait.halo.pad(x, (1, *[0] * 7), mesh=mesh, spec=SPEC)
        return plait.fft.fftn(y, axes=(1, 2), mesh=mesh, spec=SPEC)

    def theirs(x):
        parts = [jnp.take(x, jnp.array(rows), 0) for rows in ((3, 0, 1, 2), (1, 2, 3, 0))]
        return jnp.fft.fftn(jnp.concatenate(parts), axes=(1, 2))

    two, both = np.stack([a, 2 * a]), jnp.stack([x, 2 * x])
    meshes.close(jax.vmap(ours)(both), jax.vmap(theirs)(two))
    meshes.close(
        jax.vmap(ours, 4, 7)(jnp.moveaxis(both, 0, 4)),
        jax.vmap(theirs, 4, 7)(jnp.moveaxis(two, 0, 4)),
    )
    got = plait.jit(jax.vmap(jax.grad(lambda x: loss(ours, x))))(both)
    meshes.close(got, jax.vmap(jax.grad(lambda x: loss(theirs, x)))(two))


def test_too_many_that_count():
    mesh, shape = meshes.make((2,)), (2,) * 10
    x = meshes.put(np.ones(shape), mesh, P("a"))
    with pytest.raises(
        ValueError, match=r"plait.fft: an array of 10 axes, .*at most 8, where axes"
    ):
        plait.fft.fftn(x)
    with pytest.raises(ValueError, match="plait.halo_exchange: an array of 10 axes"):
        plait.halo.pad(x, 1)
