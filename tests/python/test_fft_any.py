"""Transforms of real numbers, of any axes, of sizes that the mesh does not divide, by numpy.fft."""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from meshes import data, padded, rounded
from pairwise import pairwise

MESHES = {(2,): P("a"), (4,): P("a"), (2, 2): P("a", "b"), (2, 4): P("a", "b")}


def close(a, b):
    assert a.shape == b.shape
    error = np.linalg.norm(np.asarray(a) - b) / max(np.linalg.norm(b), 1e-300)
    assert error <= 16 * meshes.eps(b.dtype) * np.log2(max(b.size, 2)), error


LAYOUTS = ["transposed", "natural"]


@pytest.mark.parametrize(
    "shape,layout,dtype,size",
    pairwise(list(MESHES), LAYOUTS, ["float32", "float64"], [(8, 8, 8), (8, 16, 7), (16, 8, 30)]),
)
def test_real_there_and_back(shape, layout, dtype, size):
    mesh = meshes.make(shape)
    a = meshes.random(size, dtype)
    want = oracle.rfft(a, "backward", (0, 1, 2))
    x = meshes.put(a, mesh, MESHES[shape])
    y = plait.fft.prfft3d(x, shape=size, layout=layout)
    close(data(y, want.shape), want.astype(y.dtype))
    z = plait.fft.pirfft3d(y, layout=layout, shape=size)
    assert z.dtype == dtype
    close(np.asarray(z), a)
    both = plait.jit(
        lambda v: plait.fft.pirfft3d(
            plait.fft.prfft3d(v, layout=layout, shape=size), layout=layout, shape=size
        )
    )
    close(np.asarray(both(x)), a)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_of_results_is_asked_for(layout):
    """Unasked padding would be taken for data: by the inverse transform, by frequencies."""
    mesh, spec = meshes.make((2, 4)), P("a", None, "b") if layout == "natural" else P("a", "b")
    x = meshes.put(meshes.random((4, 8, 8), "float32"), mesh, spec)
    text = r"axis 2 of the result has 5 elements, .* 4 devices .* shape=\(4, 8, 8\) .* padded to 8"
    for f in (plait.fft.prfft3d, jax.jit(lambda v: plait.fft.prfft3d(v, layout=layout, spec=spec))):
        with pytest.raises(ValueError, match=text):
            f(x, layout=layout) if f is plait.fft.prfft3d else f(x)
    assert plait.fft.prfft3d(x, layout=layout, shape=(4, 8, 8)).shape == (4, 8, 8)
    y = meshes.put(meshes.random((4, 8, 6), "complex64"), mesh, P("a", "b"))
    with pytest.raises(ValueError, match=r"pfft3d: axis 2 .* 6 elements"):
        plait.fft.pfft3d(y)
    batch = meshes.put(meshes.random((3, 4, 8, 6), "complex64"), mesh, P(None, "a", "b"))
    with pytest.raises(ValueError, match=r"axis 3 .* shape=\(4, 8, 6\)"):
        plait.fft.pfft3d(batch)
    z = plait.fft.pifft3d(plait.fft.pfft3d(y, shape=y.shape), shape=y.shape)
    close(np.asarray(z), np.asarray(y))


@pytest.mark.parametrize(
    "shape,size,kind,layout",
    pairwise(
        list(MESHES),
        [(7, 5, 9), (1, 3, 2), (9, 11, 6)],
        [AxisType.Auto, AxisType.Explicit],
        LAYOUTS,
    ),
)
def test_uneven_sizes(shape, size, kind, layout):
    mesh, spec = meshes.make(shape, kind), MESHES[shape]
    a = meshes.random(size, "complex128")
    x = meshes.put(padded(a, rounded(size, mesh, spec)), mesh, spec)
    y = plait.fft.pfft3d(x, shape=size, layout=layout)
    close(data(y, size), oracle.fft(a, -1, "backward", (0, 1, 2)))
    z = plait.fft.pifft3d(y, shape=size, layout=layout)
    assert z.shape == x.shape
    close(data(z, size), a)
    r = meshes.put(padded(a.real, x.shape), mesh, spec)
    y = plait.fft.prfft3d(r, shape=size)
    want = oracle.rfft(a.real, "backward", (0, 1, 2))
    close(data(y, want.shape), want)
    close(data(plait.fft.pirfft3d(y, shape=size), size), a.real)


def test_more_padding_than_needed():
    mesh = meshes.make((4,))
    a = meshes.random((9, 6, 4), "complex128")
    x = meshes.put(padded(a, (16, 7, 4)), mesh, P("a"))
    y = plait.fft.pfft3d(x, shape=a.shape, layout="natural")
    assert y.shape == (12, 6, 4)
    close(data(y, a.shape), oracle.fft(a, -1, "backward", (0, 1, 2)))


KINDS = ["fftn", "ifftn", "rfftn", "irfftn"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_axes(draw):
    kind = draw.draw(st.sampled_from(KINDS))
    ndim = draw.draw(st.integers(1, 4))
    size = tuple(draw.draw(st.integers(1, 9)) for _ in range(ndim))
    axes = tuple(draw.draw(st.permutations(range(ndim)))[: draw.draw(st.integers(1, ndim))])
    mesh = meshes.make(draw.draw(st.sampled_from([(2,), (4,), (2, 2)])))
    names = list(mesh.axis_names) + [None] * ndim
    spec = P(*draw.draw(st.permutations(names))[:ndim])
    norm = draw.draw(st.sampled_from(["backward", "ortho", "forward"]))
    s = draw.draw(st.none() | st.just(tuple(draw.draw(st.integers(2, 9)) for _ in axes)))
    a = meshes.random(size, "float64" if kind == "rfftn" else "complex128")
    shape, given_s = size, s
    if kind == "irfftn":
        shape = tuple(max(1, 2 * (n - 1)) if i == axes[-1] else n for i, n in enumerate(size))
        given_s = s or tuple(shape[i] for i in axes)
    want = getattr(np.fft, kind)(a, given_s, axes, norm)
    fill = 0 if s is not None else np.nan
    x = meshes.put(padded(a, rounded(size, mesh, spec), fill), mesh, spec)
    y = getattr(plait.fft, kind)(x, s, axes, norm, shape=shape)
    close(data(y, want.shape), want)


LONE = [2**10, 3 * 2**6, 1000, 997, 16, 64, 3, 5 * 67]


LONE_MESHES, FORMS = [(2,), (4,), (2, 4)], ["n", "2 x n", "n x 3"]


def lone(shape, form, n):
    """A mesh, a size in which n is split over the whole mesh, its spec, and the axis of n."""
    mesh = meshes.make(shape)
    size = {"n": (n,), "2 x n": (2, n), "n x 3": (n, 3)}[form]
    axis = len(size) - 1 if form == "2 x n" else 0
    return mesh, size, P(*[None] * axis, mesh.axis_names), axis


@pytest.mark.parametrize(
    "n,shape,form,dtype,kind",
    pairwise(LONE, LONE_MESHES, FORMS, ["complex64", "complex128"], KINDS[:2]),
)
def test_lone_axis(n, shape, form, dtype, kind):
    """One axis that is split: squares, uneven parts, primes, fewer points than devices."""
    mesh, size, spec, axis = lone(shape, form, n)
    a = meshes.random(size, dtype)
    x = meshes.put(padded(a, rounded(size, mesh, spec)), mesh, spec)
    y = getattr(plait.fft, kind)(x, None, (axis,), "ortho", shape=size)
    want = getattr(np.fft, kind)(a.astype("complex128"), None, (axis,), "ortho")
    close(data(y, size), want.astype(dtype))
    assert y.sharding.is_equivalent_to(x.sharding, x.ndim)


@pytest.mark.parametrize("n,shape,form", pairwise(LONE, LONE_MESHES, FORMS))
def test_lone_axis_of_real_numbers(n, shape, form):
    mesh, size, spec, axis = lone(shape, form, n)
    r = meshes.random(size, "float64")
    x = meshes.put(padded(r, rounded(size, mesh, spec)), mesh, spec)
    half = plait.fft.rfftn(x, None, (axis,), shape=size)
    want = np.fft.rfftn(r, None, (axis,))
    close(data(half, want.shape), want)
    back = plait.fft.irfftn(half, None, (axis,), shape=size)
    close(data(back, size), r)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("n", [64, 60, 13])
def test_adjoint_of_lone_axis(n):
    """Sum(c * A x) = sum(A' c * x), and the same bits under jit."""
    mesh = meshes.make((4,))
    a, c = meshes.random((n,), "complex128"), meshes.random((n,), "complex128", 1)
    dims = rounded((n,), mesh, P("a"))
    x, y = (meshes.put(padded(v, dims, 0), mesh, P("a")) for v in (a, c))
    f = lambda v: plait.fft.fftn(v, shape=(n,))  # noqa: E731
    (back,) = jax.linear_transpose(f, x)(y)
    close(np.sum(np.asarray(back) * np.asarray(x)), np.sum(c * np.fft.fft(a)))
    np.testing.assert_array_equal(np.asarray(plait.jit(f)(x)), np.asarray(f(x)))
    loss = lambda v: jnp.sum(jnp.abs(f(v)) ** 4)  # noqa: E731
    want = jax.grad(lambda v: jnp.sum(jnp.abs(jnp.fft.fft(v)) ** 4))(jnp.asarray(a))
    close(data(jax.grad(loss)(x), (n,)), np.asarray(want))
    many = jnp.stack([x, 2 * x])
    out = jax.vmap(lambda v: plait.fft.fftn(v, shape=(n,), mesh=mesh, spec=P("a")))(many)
    close(data(out[1], (n,)), 2 * np.fft.fft(a))


def test_vmap_and_gradients():
    mesh = meshes.make((4,))
    size = (6, 5, 7)
    a = meshes.random(size, "float64")
    x = meshes.put(padded(a, (8, 5, 7), 0), mesh, P("a"))
    w = meshes.random((6, 5, 4), "complex128", 1)

    def loss(v):
        y = plait.fft.prfft3d(v, shape=size)
        y = y[:, :5] if y.shape[1] > 5 else y
        return jnp.sum(jnp.abs(y * w) ** 2)

    def reference(v):
        return jnp.sum(jnp.abs(jnp.fft.rfftn(v) * w) ** 2)

    want = jax.jit(jax.grad(reference))(jnp.asarray(a))
    close(data(jax.grad(loss)(x), size), np.asarray(want))
    close(data(plait.jit(jax.grad(loss))(x), size), np.asarray(want))
    many = jnp.stack([x, 2 * x])
    out = jax.vmap(lambda v: plait.fft.prfft3d(v, shape=size, mesh=mesh, spec=P("a")))(many)
    close(data(out[1], (6, 5, 4)), 2 * np.fft.rfftn(a))


@pytest.mark.parametrize("n", [1, 2, 6, 7])
def test_adjoints_of_real_transforms(n):
    """Re sum(c * A x) = sum(A' c * x), to real and from real, in both layouts."""
    mesh = meshes.make((2,))
    a = meshes.random((4, 2, n), "float64")
    y = meshes.random((4, 2, n // 2 + 1), "complex128", 1)
    x, c = meshes.put(a, mesh, P("a")), meshes.put(y, mesh, P("a"))
    f = lambda v: plait.fft.rfftn(v)  # noqa: E731
    (back,) = jax.linear_transpose(f, x)(c)
    close(np.sum(y * np.fft.rfftn(a)).real, np.sum(np.asarray(back) * a))
    g = lambda v: plait.fft.irfftn(v, shape=a.shape)  # noqa: E731
    (back,) = jax.linear_transpose(g, c)(x)
    close(np.sum(a * np.fft.irfftn(y, a.shape, (0, 1, 2))), np.sum(np.asarray(back) * y).real)


def test_redistribute_uneven():
    mesh = meshes.make((2, 4))
    a = meshes.random((5, 7, 3), "int32")
    x = meshes.put(padded(a, (6, 8, 3), -1), mesh, P("a", "b"))
    y = plait.redistribute(x, P(None, "a", "b"), shape=a.shape)
    assert y.shape == (5, 8, 4)
    np.testing.assert_array_equal(data(y, a.shape), a)
    z = plait.redistribute(y, P(("a", "b")), shape=a.shape)
    np.testing.assert_array_equal(data(z, a.shape), a)


@pytest.mark.parametrize("s", [(-1, -1), (3, -1), (-1, 9)])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_minus_one_in_s_is_what_there_is(name, s):
    a = meshes.random((4, 6), "complex128" if name != "rfftn" else "float64")
    x = meshes.put(np.pad(a, ((0, 2), (0, 0))), meshes.make((2,)), P("a"))
    want = getattr(np.fft, name)(a, s, (0, 1))
    shape = None if name == "irfftn" else a.shape
    y = getattr(plait.fft, name)(x if shape else x[:4], s, (0, 1), shape=shape)
    np.testing.assert_allclose(data(y, want.shape), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_parts", [1, 2])
def test_axes_of_vmap_count_too(n_parts):
    """More axes than the core takes are refused before the program runs; two of vmap are one."""
    where = {"mesh": meshes.make((n_parts,)), "spec": P("a")}
    y = jnp.ones((2, 2, 4, 4, *(2,) * 6))
    for call, name in [
        (lambda v: plait.fft.fftn(v, **where), "fft"),
        (lambda v: plait.halo.pad(v, 1, **where), "halo_exchange"),
        (lambda v: plait.halo.fold(v, [(0, 1)] * v.ndim, **where), "halo_reduce"),
    ]:
        f = jax.vmap(jax.vmap(call))
        assert f(y[0]).ndim == 9
        for g in (f, jax.jit(f).lower):
            with pytest.raises(ValueError, match=f"plait.{name}: an array of 9 axes, those of jax"):
                g(y)


@pytest.mark.parametrize("is_real", [False, True])
def test_shape_of_a_batch(is_real):
    """shape= with the batch axis, as in the array, or without it."""
    mesh, there = meshes.make((2,)), plait.fft.prfft3d if is_real else plait.fft.pfft3d
    back = plait.fft.pirfft3d if is_real else plait.fft.pifft3d
    a = meshes.random((3, 4, 6, 5))
    x = meshes.put(a, mesh, P(None, "a"))
    for shape in (a.shape, a.shape[1:]):
        y = there(x, shape=shape, layout=P(None, None, None, "a"))
        close(back(y, shape=shape, layout=P(None, "a")).real, a)


def test_errors():
    mesh = meshes.make((2,))
    x = meshes.put(np.zeros((4, 4, 4)), mesh, P("a"))
    batch = meshes.put(np.zeros((2, 4, 4, 4)), mesh, P(None, "a"))
    for call, kind, text in [
        (lambda: plait.fft.pfft3d(x, shape=(5, 4, 4)), ValueError, "where the array has 4"),
        (lambda: plait.fft.pfft3d(x, shape=(4, 4)), ValueError, "2 entries for 3 axes$"),
        (lambda: plait.fft.pfft3d(batch, shape=(4, 4)), ValueError, "3 axes, or 4 with the batch"),
        (lambda: plait.fft.prfft3d(batch, shape=(1, 4, 4, 4)), ValueError, "says 1 along axis 0"),
        (
            lambda: plait.fft.fftn(x, axes=(0, 0)),
            ValueError,
            "expected one axis or more, each once",
        ),
        (lambda: plait.fft.fftn(x, axes=(3,)), ValueError, "out of bounds"),
        (lambda: plait.fft.fftn(x, (2,), (0, 1)), ValueError, "1 entries for 2 axes"),
        (lambda: plait.fft.fftn(x, 4), TypeError, "fftn: s is 4; expected integers"),
        (lambda: plait.fft.fftn(x, (1, 2, 3, 4)), ValueError, "4 entries for an array of 3 axes"),
        (lambda: plait.fft.fftn(x, (-2,), (0,)), ValueError, "axis 0 has -2 elements to transf"),
        (lambda: plait.fft.rfftn(x.astype(complex)), TypeError, "complex128"),
        (lambda: plait.fft.fftn(x, layout="other"), ValueError, "PartitionSpec"),
        (lambda: plait.fft.fftn(x, norm="other"), ValueError, "norm is 'other'"),
        (lambda: plait.fft.fftn(x, norm=["ortho"]), ValueError, r"norm is \['ortho'\]"),
    ]:
        with pytest.raises(kind, match=text):
            call()


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("n, axis, shape", [(101, 1, (4, 101)), (64, 0, (64, 8)), (15, 0, (15, 8))])
def test_lines_of_real_numbers_do_not_know_their_neighbours(n, axis, shape):
    """Even if two lines share a complex transform: other sizes, zeros, a NaN."""
    sizes = np.ones(shape[1 - axis])
    sizes[1:4] = 1e-12, 0, np.nan
    x = meshes.random(shape) * (sizes[None] if axis == 0 else sizes[:, None])
    mesh = meshes.make((2,))
    spec = P(None, "a") if axis == 0 else P("a")
    given = {"axes": (axis,), "mesh": mesh, "spec": spec}

    def check(got, want):
        lines = zip(np.moveaxis(got, axis, -1), np.moveaxis(want, axis, -1), strict=True)
        for i, (ours, theirs) in enumerate(lines):
            assert np.abs(ours - theirs).max() <= 1e-14 * np.abs(theirs).max() or i == 3, i
            assert np.isnan(ours).all() or i != 3

    def back(y):
        return plait.fft.irfftn(y, (n,), **given)

    y = plait.fft.rfftn(meshes.put(x, mesh, spec), **given)
    check(np.asarray(y), np.fft.rfft(x, axis=axis))
    check(np.asarray(back(y)), x)
    slope = jax.grad(lambda x: jnp.sum(jnp.abs(plait.fft.rfftn(x, **given)) ** 2))
    g = np.asarray(slope(meshes.put(np.nan_to_num(x), mesh, spec)))
    want = jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.rfft(x, axis=axis)) ** 2))(np.nan_to_num(x))
    small = (slice(None), 1) if axis == 0 else (1, slice(None))
    assert np.abs(g - want)[small].max() <= 1e-13 * np.abs(want[small]).max()
