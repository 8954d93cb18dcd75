"""pfft3d and pifft3d against numpy.fft on the whole array."""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

AXES = (0, 1, 2)
MESHES = [(2,), (4,), (8,), (2, 2), (2, 4), (4, 2), (2, 4, 1)]


def spec_of(shape):
    return P(*meshes.NAMES[: min(len(shape), 2)])


def close(a, b, dtype="complex128", n=3):
    eps = np.finfo(np.dtype(dtype)).eps
    error = np.linalg.norm(np.asarray(a) - b) / max(np.linalg.norm(b), 1e-300)
    assert error <= 16 * eps * np.log2(max(b.size, 2)), error


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("shape", MESHES)
def test_fft_equals_numpy(shape, kind):
    mesh = meshes.make(shape, kind)
    a = meshes.random((16, 8, 24), "complex128")
    x = meshes.put(a, mesh, spec_of(shape))
    y = plait.fft.pfft3d(x)
    close(y, oracle.fft(a, -1, "backward", AXES))
    assert tuple(y.sharding.spec)[: len(spec_of(shape)) + 1] == (None, *spec_of(shape))
    z = plait.fft.pifft3d(y)
    close(z, a)
    assert tuple(e for e in z.sharding.spec if e) == tuple(spec_of(shape))
    close(plait.fft.pfft3d(x, layout="natural"), oracle.fft(a, -1, "backward", AXES))
    both = plait.jit(lambda v: plait.fft.pifft3d(plait.fft.pfft3d(v)))
    close(both(x), a)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "complex64", "complex128", "int64", "int32", "bool"]
)
def test_norms_and_dtypes(norm, dtype):
    mesh = meshes.make((2, 2))
    a = meshes.random((4, 6, 10), dtype)
    x = meshes.put(a, mesh, P("a", "b"))
    y = plait.fft.pfft3d(x, norm=norm)
    assert y.dtype == jnp.fft.fftn(a).dtype
    close(y, oracle.fft(a, -1, norm, AXES), y.dtype)
    close(plait.fft.pifft3d(y, norm=norm), a, y.dtype)
    close(plait.fft.pifft3d(x, norm=norm), oracle.fft(a, 1, norm, AXES), y.dtype)


def test_norm_none_is_numpys():
    a = meshes.random((3, 4, 2))
    for ours, theirs in ((plait.fft.ifftn, np.fft.ifftn), (plait.fft.rfftn, np.fft.rfftn)):
        close(ours(a, norm=None), theirs(a, norm=None))


@pytest.mark.parametrize("size", [(2, 2, 1), (2, 34, 3), (6, 4, 37), (4, 4, 101), (8, 2, 7)])
def test_odd_sizes(size):
    mesh = meshes.make((2,))
    a = meshes.random(size, "complex128")
    close(plait.fft.pfft3d(meshes.put(a, mesh, P("a"))), oracle.fft(a, -1, "backward", AXES))


def test_batch_and_vmap():
    mesh = meshes.make((2, 2))
    a = meshes.random((3, 4, 4, 6), "complex128")
    x = meshes.put(a, mesh, P(None, "a", "b"))
    want = oracle.fft(a, -1, "backward", (1, 2, 3))
    close(plait.fft.pfft3d(x), want)
    close(plait.jit(plait.fft.pfft3d)(x), want)
    close(plait.jit(jax.vmap(plait.fft.pfft3d))(x), want)
    close(
        jax.vmap(plait.fft.pfft3d, in_axes=1, out_axes=1)(jnp.moveaxis(x, 0, 1)),
        np.moveaxis(want, 0, 1),
    )


def test_impulse_has_exact_phases():
    mesh = meshes.make((2,))
    for place in np.ndindex(4, 2, 3):
        a = np.zeros((4, 2, 3))
        a[place] = 1
        close(plait.fft.pfft3d(meshes.put(a, mesh, P("a"))), np.fft.fftn(a))


def loss(v):
    y = plait.fft.pfft3d(v, norm="ortho")
    w = jnp.arange(y.size).astype(y.dtype).reshape(y.shape) / y.size
    z = plait.fft.pifft3d(y * w, norm="ortho")
    return plait.sum(jnp.sin(jnp.real(z)) * jnp.real(v))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_gradient_by_finite_differences(shape):
    mesh = meshes.make(shape)
    a = meshes.random((4, 4, 4))
    x = meshes.put(a, mesh, spec_of(shape))
    d = meshes.put(meshes.random((4, 4, 4), seed=1), mesh, spec_of(shape))
    h = 1e-5
    value = plait.jit(loss)
    slope = (value(x + h * d) - value(x - h * d)) / (2 * h)
    for g in (plait.jit(jax.grad(loss)), jax.grad(loss), jax.jit(jax.grad(jax.checkpoint(loss)))):
        assert np.allclose(np.vdot(g(x), d), slope, rtol=1e-7)
    assert plait.jit(jax.grad(loss))(x).sharding.is_equivalent_to(x.sharding, 3)
    hvp = jax.jit(lambda v, t: jax.jvp(jax.grad(loss), (v,), (t,))[1])(x, d)
    g = plait.jit(jax.grad(loss))
    assert np.allclose(hvp, (g(x + h * d) - g(x - h * d)) / (2 * h), atol=1e-7)


@pytest.mark.parametrize("layout", ["transposed", "natural"])
def test_transpose_is_exact(layout):
    mesh = meshes.make((2, 2))

    def f(v):
        return plait.fft.pfft3d(v, layout=layout)

    x = meshes.put(meshes.random((4, 8, 6), "complex128"), mesh, P("a", "b"))
    y = f(x)
    c = jax.device_put(meshes.random((4, 8, 6), "complex128", 1), y.sharding)
    [back] = jax.jit(lambda c: jax.linear_transpose(f, x)(c))(c)
    assert np.allclose(jnp.sum(c * y), jnp.sum(back * x), rtol=1e-13)
    assert back.sharding.is_equivalent_to(x.sharding, 3)


LOOPS = {
    "fft": lambda c, **on: plait.fft.pifft3d(plait.fft.pfft3d(c, **on), **on).real,
    "halo": lambda c, **on: plait.halo.unpad(
        plait.halo.pad(c, (1, 0, 0), spec=P("a"), **on), (1, 0, 0), spec=P("a"), **on
    ),
    "redistribute": lambda c, **on: plait.redistribute(c, P(None, "a"), **on),
}


@pytest.mark.parametrize("step", LOOPS.values(), ids=LOOPS)
def test_eager_derivatives_of_loops(step):
    """The adjoint's program has no operand on the mesh: only ``mesh=`` says where it runs."""
    mesh = meshes.make((2,))
    x = meshes.put(meshes.random((4, 4, 2), "float64"), mesh, P("a"))

    def f(v, **on):
        return jnp.sum(jax.lax.scan(lambda c, _: (2 * step(c, **on), None), v, None, length=3)[0])

    close(jax.grad(lambda v: f(v, mesh=mesh))(x), np.full(x.shape, 8.0))
    close(jax.jit(jax.grad(f))(x), np.full(x.shape, 8.0))
    with pytest.raises(ValueError, match="derivative of a loop outside jax.jit, pass mesh="):
        jax.grad(f)(x)


def ghosts(v):
    return plait.halo.pad(v, ((1, 1), (0, 0)))


MATRICES = {  # on Explicit axes of 2 devices, with numpy's version of each
    "fft": (lambda v: plait.fft.fftn(v).real, lambda v: np.fft.fftn(v).real),
    "irfftn": (
        lambda v: plait.fft.irfftn(plait.fft.rfftn(v)),
        lambda v: np.fft.irfftn(np.fft.rfftn(v), v.shape, (0, 1)),
    ),
    "pad": (ghosts, lambda v: v[[3, 0, 1, 2, 1, 2, 3, 0]]),
    "redistribute": (lambda v: plait.redistribute(v, P(None, "a")), lambda v: v),
    "convolve": (
        lambda v: plait.fft.fftconvolve(v, jnp.asarray([[1.0, 2.0], [3.0, 4.0]]), mode="same"),
        lambda v: oracle.convolve(v, np.array([[1.0, 2.0], [3.0, 4.0]]), "same", (0, 1)),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("f", "of_numpy"), MATRICES.values(), ids=MATRICES)
def test_jacobians_on_explicit_axes(f, of_numpy):
    """Without jax.set_mesh: JAX makes bases for Jacobians whose types have no mesh."""
    mesh, a = meshes.make((2,), AxisType.Explicit), meshes.random((4, 4))
    x = meshes.put(a, mesh, P("a"))
    columns = [of_numpy(unit) for unit in np.eye(16).reshape(16, 4, 4)]
    matrix = np.stack(columns, -1).reshape(*columns[0].shape, 4, 4)

    def square(v):
        return f(v * v)

    for jac in (jax.jacfwd, jax.jacrev):
        for way in (lambda g: g, jax.jit):
            np.testing.assert_allclose(way(jac(square))(x), 2 * matrix * a, atol=1e-13)
    second = np.einsum("...ij,ik,jl->...ijkl", 2 * matrix, np.eye(4), np.eye(4))
    for jac in (jax.hessian, lambda g: jax.jacrev(jax.jacrev(g))):
        np.testing.assert_allclose(jax.jit(jac(square))(x), second, atol=1e-13)
        with jax.set_mesh(mesh):  # jnp functions need the mesh here, too
            np.testing.assert_allclose(jac(square)(x), second, atol=1e-13)
    many = jnp.stack([x, 2 * x, x])
    want = np.stack([of_numpy(v) for v in np.asarray(many)])
    for way in (lambda g: g, jax.jit):
        np.testing.assert_allclose(way(jax.vmap(f))(many), want, atol=1e-13)


def test_inside_control_flow():
    mesh = meshes.make((2,))
    a = meshes.random((4, 4, 2), "complex128")
    x = meshes.put(a, mesh, P("a"))

    def step(c, _):
        return (plait.fft.pifft3d(plait.fft.pfft3d(c) * 2), None)

    def f(v):
        return jax.lax.scan(step, v, None, length=3)[0]

    close(jax.jit(f)(x), 8 * a)
    close(plait.jit(f)(x), 8 * a)

    def g(v):
        return jax.lax.cond(jnp.real(v[0, 0, 0]) > 1e9, lambda t: t, plait.fft.pfft3d, v)

    close(plait.jit(g)(x), np.fft.fftn(a))

    def h(v):
        return jax.lax.while_loop(
            lambda s: s[0] < 2, lambda s: (s[0] + 1, step(s[1], None)[0]), (0, v)
        )[1]

    close(plait.jit(h)(x), 4 * a)


def test_no_collective_of_xla():
    mesh = meshes.make((2, 2))
    x = meshes.put(meshes.random((4, 4, 4)), mesh, P("a", "b"))
    assert meshes.xla_collectives(loss, x) == []
    assert meshes.xla_collectives(jax.grad(loss), x) == []
    assert meshes.xla_collectives(lambda v: plait.sum(v) + 1, x) == []


def test_one_compile():
    mesh = meshes.make((2,))
    x = meshes.put(meshes.random((4, 4, 2), "complex128"), mesh, P("a"))
    count = []
    f = plait.jit(lambda v: (count.append(1), plait.fft.pfft3d(v))[1])
    for _ in range(3):
        plait.block(f(x))
    assert len(count) == 1


def test_mesh_by_every_way():
    mesh = meshes.make((2,))
    a = meshes.random((4, 4, 2), "complex128")
    want = np.fft.fftn(a)
    close(plait.fft.pfft3d(a, mesh=mesh), want)
    close(jax.jit(lambda: plait.fft.pfft3d(jnp.asarray(a), mesh=mesh))(), want)
    with jax.set_mesh(mesh):
        close(plait.fft.pfft3d(a), want)
        close(plait.jit(lambda: plait.fft.pfft3d(jnp.asarray(a) * 1))(), want)
    close(plait.fft.pfft3d(jnp.asarray(a)), want)


def test_permuted_devices():
    devices = np.array(jax.devices()[:4])[[2, 0, 3, 1]].reshape(2, 2)
    mesh = jax.sharding.Mesh(devices, ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    a = meshes.random((4, 4, 4), "complex128")
    close(plait.fft.pfft3d(meshes.put(a, mesh, P("a", "b"))), np.fft.fftn(a))


def test_mesh_of_other_devices_is_refused():
    """A mesh of the same shape, so that nothing else shows that it is not the operand's mesh."""
    x = meshes.put(np.zeros((4, 4, 4)), meshes.make((2, 2)), P("a", "b"))
    for devices in (jax.devices()[3::-1], jax.devices()[:-5:-1]):
        other = jax.sharding.Mesh(np.array(devices).reshape(2, 2), ("a", "b"))
        text = (
            f"device 0 of mesh= is {devices[0]}, but device 0 of the operand's mesh is "
            f"{jax.devices()[0]}"
        )
        for call in (
            plait.fft.pfft3d,
            plait.fft.poisson,
            plait.fft.fftfreqn,
            lambda v, mesh: plait.fft.fftconvolve(v, v, mesh=mesh),
            lambda v, mesh: plait.halo.unpad(v, 0, mesh=mesh),
            lambda v, mesh: plait.halo.pad(v, 1, mesh=mesh),
            lambda v, mesh: plait.redistribute(v, P("b"), mesh=mesh),
            plait.sum,
            lambda v, mesh: jax.vmap(lambda w: plait.halo.pad(w, 1, mesh=mesh))(v),
            jax.grad(lambda v, mesh: jnp.sum(plait.redistribute(v, P("b"), mesh=mesh))),
        ):
            bad(lambda call=call, other=other: call(x, mesh=other), ValueError, text)


def test_errors_of_a_split_that_was_taken_say_so():
    """In a jit on Auto axes the split is a guess, which is wrong for each of these functions."""
    x = meshes.put(np.zeros((8, 6, 8)), meshes.make((2, 2, 2)), P("a", None, "b"))
    split = "('a', 'b', 'c') was assumed, in the order of the mesh's axes: pass spec= if"
    cure = "leave one whole, or give layout='natural' or a PartitionSpec"
    for f, text in [
        (plait.fft.pfft3d, f"pfft3d: all axes of the transform are split; {cure}; the"),
        (plait.fft.pifft3d, f"pifft3d: all axes of the transform are split; {cure}; the"),
        (lambda v: plait.fft.fftn(v[:, :3], layout="natural"), "fftn: axis 1 has 3 elements"),
    ]:
        bad(lambda f=f: jax.jit(f)(x), ValueError, text)
        bad(lambda f=f: jax.jit(f)(x), ValueError, split)
    dealt = jax.jit(lambda v: plait.redistribute(v, P(), from_block=3, shape=x.shape))
    order = P("a", "b", "c")
    bad(lambda: dealt(x), ValueError, f"pass spec= (in the order of the mesh's axes {order})")
    with pytest.raises(ValueError) as caught:
        jax.jit(lambda v: plait.fft.pfft3d(v, spec=P("a", "b", "c")))(x)
    assert str(caught.value) == f"pfft3d: all axes of the transform are split; {cure}"
    bad(lambda: plait.fft.pfft3d(np.zeros((3, 4, 4)), mesh=meshes.make((2,))), ValueError, "spec=")


def bad(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


def test_bad_input():
    mesh = meshes.make((4,))
    x = meshes.put(np.zeros((8, 8, 8)), mesh, P("a"))
    f = plait.fft.pfft3d
    bad(lambda: f(jnp.zeros((2, 2))), ValueError, "pfft3d: x has 2 axes; expected 3")
    bad(lambda: f(x, norm="no"), ValueError, "pfft3d: norm is 'no'")
    bad(lambda: f(x, layout="no"), ValueError, "expected 'transposed', 'natural' or")
    bad(lambda: f(x, shape=(9, 8, 8)), ValueError, "shape=(9, 8, 8) says 9 along axis 0")
    bad(lambda: f(x, spec=P("z")), ValueError, "'z' of the spec is no axis of the mesh")
    for name in ("pfft3d", "pifft3d", "prfft3d", "pirfft3d", "fftn", "irfftn"):
        text = f"{name}: 'z' of the layout is no axis of the mesh {{'a': 4}}"
        bad(lambda name=name: getattr(plait.fft, name)(x, layout=P("z")), ValueError, text)
    bad(lambda: f(x, layout=P("a", "a")), ValueError, "('a', 'a', None) uses a mesh axis twice")
    bad(
        lambda: f(np.zeros((6, 8, 8)), mesh=mesh),
        ValueError,
        "pfft3d: axis 0 has 6 elements, which 4 devices along mesh axis a do not divide; the "
        "next size that they divide is 8",
    )
    bad(lambda: f(jnp.zeros((2, 2, 2), jnp.float16)), TypeError, "dtype float16")
    bad(
        lambda: jax.jit(f)(np.zeros((4, 4, 4))),
        ValueError,
        "pfft3d: no mesh: pass an operand that is on one (jax.device_put(x, "
        "NamedSharding(mesh, spec))), call the function under jax.set_mesh(mesh), or pass mesh=",
    )
    bad(lambda: f(x, mesh=3), TypeError, "mesh is int")
    with jax.set_mesh(mesh):
        bad(
            lambda: f(np.zeros((8, 8, 8)), mesh=meshes.make((2,))),
            ValueError,
            "pfft3d: jax.set_mesh's mesh is {'a': 4}, mesh= is {'a': 2}",
        )
    bad(lambda: f(jnp.zeros((0, 2, 2))), ValueError, "has 0 elements to transform")
