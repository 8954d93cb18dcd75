"""Shapes, splits and extents that nobody chose by hand: hypothesis looks for odd cases."""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

# Every example compiles a program: few examples, and no deadline on a busy machine.
few = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

MESHES = st.sampled_from([(1,), (2,), (4,), (8,), (2, 2), (2, 4), (1, 3), (3, 2)])


@st.composite
def split_array(draw, ndim=3):
    """A mesh, a spec over distinct mesh axes, and a shape that the mesh divides."""
    shape = draw(MESHES)
    places = draw(st.permutations(range(ndim)))[: len(shape)]
    entries = [None] * ndim
    for name, place in zip(meshes.NAMES, places, strict=False):
        entries[place] = name
    extent = dict(zip(meshes.NAMES, shape, strict=False))
    size = [draw(st.integers(1, 5)) * extent.get(e, 1) for e in entries]
    return meshes.make(shape), P(*entries), tuple(size)


@few
@given(split_array(), st.integers(0, 2**31))
def test_transforms_of_any_split(case, seed):
    mesh, spec, size = case
    if all(spec):
        return
    a = meshes.random(size, "complex128", seed)
    x = meshes.put(a, mesh, spec)
    y = plait.fft.pfft3d(x, layout="natural")
    np.testing.assert_allclose(y, np.fft.fftn(a), atol=1e-13 * np.linalg.norm(a) * a.size**0.5)
    back = plait.fft.pifft3d(y, layout="natural")
    np.testing.assert_allclose(back, a, atol=1e-13 * np.abs(a).max())


@few
@given(split_array(), split_array(), st.integers(0, 2**31))
def test_redistribute_between_any_splits(case, other, seed):
    mesh, spec, size = case
    a = meshes.random(size, "float32", seed)
    to = P(*[e if e in mesh.shape else None for e in other[1]])
    divided = all(n % mesh.shape.get(e, 1) == 0 for n, e in zip(size, to, strict=True))
    if divided:
        assert np.array_equal(plait.redistribute(meshes.put(a, mesh, spec), to), a)


@st.composite
def ghosts(draw):
    """A split array, the extent of its data, widths on either side and boundaries."""
    mesh, spec, size = draw(split_array(ndim=2))
    width = [draw(st.tuples(st.integers(0, 6), st.integers(0, 6))) for _ in size]
    words = [draw(st.sampled_from(["periodic", "zero", "edge", "reflect"])) for _ in size]
    shape = tuple(draw(st.integers(0, n)) for n in size) if draw(st.booleans()) else None
    return mesh, spec, size, {"width": width, "boundary": words, "shape": shape}


@settings(few, max_examples=25)
@given(ghosts(), st.integers(0, 2**31))
def test_halo_and_its_adjoint(case, seed):
    """Small integers, so that sums are exact."""
    mesh, spec, size, given = case
    where = {"mesh": mesh, "spec": spec}
    a = meshes.put(meshes.random(size, "int8", seed).astype("float64"), mesh, spec)
    parts = tuple(mesh.shape.get(e, 1) for e in spec)
    padded, pull = jax.vjp(lambda v: plait.halo.pad(v, **given, **where), a)
    np.testing.assert_array_equal(padded, oracle.halo_pad(np.asarray(a), parts, **given))
    y = meshes.random(padded.shape, "int8", seed + 1).astype("float64")
    (back,) = pull(jax.device_put(y, padded.sharding))
    np.testing.assert_array_equal(back, oracle.halo_fold(y, parts, **given))
    y = meshes.put(y, mesh, spec)
    full, pull = jax.vjp(lambda v: plait.halo.exchange(v, **given, **where), y)
    np.testing.assert_array_equal(full, oracle.halo_exchange(np.asarray(y), parts, **given))
    (back,) = pull(padded)
    np.testing.assert_array_equal(back, oracle.halo_reduce(np.asarray(padded), parts, **given))


@few
@given(st.lists(st.integers(0, 4), max_size=4), st.sampled_from(["int8", "float16", "complex64"]))
def test_reductions_of_any_shape(size, dtype):
    x = jnp.asarray(meshes.random(tuple(size), "float32")).astype(dtype)
    assert np.array_equal(plait.allreduce(x, plait.SUM), x)
    assert np.array_equal(plait.bcast(x, 0), x)
