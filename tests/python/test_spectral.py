"""Frequencies, convolution, Poisson's equation: against numpy, definitions and dense matrices."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import jax.scipy.sparse.linalg as jsl
import meshes
import numpy as np
import oracle
import plait
import pytest
import scipy.signal
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import close, data

MESHES = {(2,): P("a"), (8,): P("a"), (2, 4): P("a", "b"), (4, 2): P("a", "b")}
KINDS = [AxisType.Auto, AxisType.Explicit]


# ---- frequencies ---------------------------------------------------------------------------------


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["natural", "transposed"])
@pytest.mark.parametrize("shape", [(8,), (2, 4)])
def test_frequencies_are_where_the_spectrum_is(shape, layout, kind):
    mesh = meshes.make(shape, kind)
    x = meshes.put(meshes.random((8, 16, 24), "float32"), mesh, MESHES[shape])
    for dtype, angular in [("float32", False), ("float64", True)]:
        y = plait.fft.pfft3d(x.astype(dtype), layout=layout)
        found = plait.fft.fftfreqn(y, (0.5, 1.0, 3.0), angular=angular)
        want = oracle.frequencies(x.shape, (0, 1, 2), (0.5, 1.0, 3.0), False, angular)
        for axis, (k, w) in enumerate(zip(found, want, strict=True)):
            assert k.dtype == dtype and k.shape == w.shape
            np.testing.assert_allclose(k, w, rtol=2 * meshes.eps(dtype))
            spec = [e if i == axis else None for i, e in enumerate(y.sharding.spec)]
            assert k.sharding.is_equivalent_to(NamedSharding(mesh, P(*spec)), 3)
            both = y * k.astype(y.dtype)
            assert both.sharding.is_equivalent_to(y.sharding, 3)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("size", [(7, 5, 9), (8, 6, 1), (1, 3, 2)])
@pytest.mark.parametrize("shape", [(2,), (4, 2)])
def test_frequencies_of_padded_spectra(shape, size):
    mesh, spec = meshes.make(shape), MESHES[shape]
    x = plait.redistribute(meshes.put(meshes.random(size), mesh), spec, shape=size)
    y = plait.fft.prfft3d(x, shape=size)
    found = plait.fft.rfftfreqn(y, shape=size)
    for k, w in zip(found, oracle.frequencies(size, (0, 1, 2), (1,) * 3, True, False), strict=True):
        np.testing.assert_allclose(data(k, w.shape), w, rtol=1e-15)
    y = plait.fft.pfft3d(x, shape=size)
    for k, w in zip(
        plait.fft.fftfreqn(y, shape=size, axes=(2, 0)),
        oracle.frequencies(size, (2, 0), (1, 1), False, False),
        strict=True,
    ):
        np.testing.assert_allclose(data(k, w.shape), w, rtol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_under_jit_communicate_nothing(kind):
    mesh = meshes.make((2, 4), kind)
    x = meshes.put(meshes.random((8, 16, 24)), mesh, P("a", "b"))

    def there(v):
        return plait.fft.fftfreqn(plait.fft.pfft3d(v), layout="transposed")

    want = oracle.frequencies(x.shape, (0, 1, 2), (1,) * 3, False, False)
    for k, w in zip(jax.jit(there)(x), want, strict=True):
        np.testing.assert_allclose(k, w, rtol=1e-15)
    assert meshes.xla_collectives(there, x) == []
    for k, w in zip(jax.jit(plait.fft.fftfreqn)(x), want, strict=True):  # alone in a program
        np.testing.assert_allclose(k, w, rtol=1e-15)
    derivative = jax.vmap(lambda v: v * plait.fft.fftfreqn(v)[1])
    close(derivative(jnp.stack([x, x]))[1], np.asarray(x) * want[1])


def test_frequencies_on_one_device():
    x = jnp.asarray(meshes.random((3, 4)))
    mesh = meshes.make((1,))
    for f in (plait.fft.rfftfreqn, plait.jit(lambda y: plait.fft.rfftfreqn(y, mesh=mesh))):
        got = f(plait.fft.rfftn(x))[1]
        np.testing.assert_allclose(np.asarray(got)[0], np.fft.rfftfreq(4))


def test_distances_that_are_arrays_or_traced():
    mesh, d = meshes.make((2, 4)), np.array([0.3, 1.0, 2.0])
    x = meshes.put(meshes.random((4, 4, 3)), mesh, P("a", "b"))
    want = [np.fft.fftfreq(n, h) for n, h in zip(x.shape, d, strict=True)]
    for make in (plait.fft.fftfreqn, jax.jit(plait.fft.fftfreqn)):
        for given in (d, jnp.asarray(d)):
            for k, w in zip(make(x, given), want, strict=True):
                np.testing.assert_allclose(np.ravel(k), w, rtol=1e-15)
    u = plait.fft.poisson(x, spacing=tuple(d))
    for solve in (plait.fft.poisson, jax.jit(plait.fft.poisson)):
        np.testing.assert_allclose(solve(x, spacing=d), u, atol=1e-14)
    slope = jax.grad(lambda h: jnp.sum(plait.fft.fftfreqn(x, h)[0] ** 2))(0.5)
    np.testing.assert_allclose(slope, -2 / 0.5 * np.sum(np.fft.fftfreq(4, 0.5) ** 2))


@pytest.mark.parametrize("wrap", [lambda f: f, jax.checkpoint])
def test_frequencies_in_eager_derivatives_of_loops(wrap):
    mesh, a = meshes.make((2, 4)), meshes.random((4, 4, 3))
    x = meshes.put(a, mesh, P("a", "b"))

    @wrap
    def step(v, _):
        return v * (1 + plait.fft.fftfreqn(v)[0]), None

    slope = jax.grad(lambda v: jnp.sum(jax.lax.scan(step, v, None, length=2)[0] ** 2))(x)
    grown = 1 + np.fft.fftfreq(4)[:, None, None]
    np.testing.assert_allclose(slope, 2 * a * grown**4, rtol=1e-13)


def operator(v, **place):
    """Not symmetric, few eigenvalues close to 0: 1 + |k|² + 0.2 ik, with k of the first axis."""
    y = plait.fft.fftn(v, layout="natural", **place)
    k = plait.fft.fftfreqn(y, angular=True, layout="natural", **place)
    factor = jax.lax.complex(1 + sum(one * one for one in k), 0.2 * k[0] + 0 * k[1] + 0 * k[2])
    return jnp.real(plait.fft.ifftn(y * factor, layout="natural", **place))


def dense_operator(shape):
    """The matrix of `operator`, by numpy."""
    k = oracle.frequencies(shape, range(len(shape)), (1,) * len(shape), False, True)
    factor = 1 + sum(one * one for one in k) + 0.2j * k[0]
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    axes = tuple(range(1, len(shape) + 1))
    columns = np.real(np.fft.ifftn(np.fft.fftn(units, axes=axes) * factor, axes=axes))
    return columns.reshape(len(units), -1).T


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("way", [lambda f: f, jax.jit, plait.jit])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1,), (2,), (2, 2), (2, 4)])
def test_frequencies_are_constants_to_linear_transposes(shape, kind, way):
    mesh = meshes.make(shape, kind)
    a, w = meshes.random((4, 8, 3)), meshes.random((4, 8, 3), seed=1)
    x, ct = (meshes.put(v, mesh, P("a", "b") if len(shape) == 2 else P("a")) for v in (a, w))
    want = (dense_operator(a.shape).T @ w.ravel()).reshape(a.shape)

    def in_scan(v):
        return jax.lax.scan(lambda c, _: (operator(c), None), v, None, length=1)[0]

    for f in (operator, jax.jit(operator), in_scan, jax.checkpoint(operator)):
        found = way(lambda c, f=f: jax.linear_transpose(f, x)(c)[0])(ct)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "solver", "is_first_eager"),
    [
        (None, jsl.gmres, True),
        ((2,), jsl.bicgstab, True),
        ((4,), jsl.gmres, False),
        ((2, 4), jsl.bicgstab, False),
    ],
)
def test_solvers_of_spectral_operators_and_their_gradients(shape, solver, is_first_eager):
    a, w = meshes.random((4, 8, 3)), meshes.random((4, 8, 3), seed=1)
    x, ct, place = jnp.asarray(a), jnp.asarray(w), {"mesh": meshes.make((1,))}
    if shape is not None:
        spec, place = P("a", "b") if len(shape) == 2 else P("a"), {}
        x, ct = (meshes.put(v, meshes.make(shape), spec) for v in (a, w))
    matrix = dense_operator(a.shape)
    want = np.linalg.solve(matrix, a.ravel()).reshape(a.shape)
    slope = np.linalg.solve(matrix.T, w.ravel()).reshape(a.shape)

    def solve(b):  # from b: zeros like a traced array are on no mesh since jax 0.11
        return solver(lambda v: operator(v, **place), b, b, tol=1e-13)[0]

    def near(v):
        return plait.fft.poisson(v, **place) * -1.0 + jnp.mean(v)

    def solve_near(b):  # with a preconditioner
        return solver(lambda v: operator(v, **place), b, b, tol=1e-13, M=near)[0]

    ways = [lambda g: g, jax.jit]  # one mesh runs eagerly what another runs under jit
    if not is_first_eager:
        ways.reverse()
    for f, way in zip((solve, solve_near), ways, strict=True):
        np.testing.assert_allclose(way(f)(x), want, rtol=1e-9, atol=1e-10)
        of_b = way(jax.grad(lambda b, f=f: jnp.sum(f(b) * ct)))(x)
        np.testing.assert_allclose(of_b, slope, rtol=1e-9, atol=1e-10)


# ---- convolution ---------------------------------------------------------------------------------

SIZES = [(8, 8, 6), (3, 2, 5), (1, 1, 1)]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("kind", KINDS)
def test_convolution_is_that_of_its_definition(mode, kind):
    mesh = meshes.make((2, 4), kind)
    a = meshes.random((8, 8, 6))
    x = meshes.put(a, mesh, P("a", "b"))
    # Pairwise: cases that are eager on one kind of mesh run under jit on the other kind.
    ways = itertools.cycle([lambda f: f, jax.jit] if kind == KINDS[0] else [jax.jit, lambda f: f])
    for (size, axes), way in zip(itertools.product(SIZES, [(0, 1, 2), (1, 0)]), ways, strict=False):
        size = tuple(size[i] if i in axes else a.shape[i] for i in range(3))
        b = meshes.random(size, seed=1)
        want = oracle.convolve(a, b, mode, axes)
        if axes == (0, 1, 2):
            np.testing.assert_allclose(want, scipy.signal.fftconvolve(a, b, mode), atol=1e-10)

        def f(v, w, axes=axes):
            return plait.fft.fftconvolve(v, w, mode=mode, axes=axes)

        y = way(f)(x, jnp.asarray(b))
        assert y.sharding.is_equivalent_to(x.sharding, 3)
        assert np.linalg.norm(data(y, want.shape) - want) <= 1e-13 * np.linalg.norm(want)


def test_convolution_of_two_on_the_mesh():
    mesh = meshes.make((2, 2))
    for dtype, other in [("complex128", "float64"), ("float32", "float32"), ("int32", "float64")]:
        a, b = meshes.random((6, 4, 5), dtype), meshes.random((4, 2, 3), other, 1)
        x, k = meshes.put(a, mesh, P("a", "b")), meshes.put(b, mesh, P(None, "b"))
        with jax.numpy_dtype_promotion("standard"):
            y = plait.fft.fftconvolve(x, k, mode="same")
        assert y.sharding.is_equivalent_to(x.sharding, 3)
        eps = meshes.eps(y.dtype)
        want = oracle.convolve(a, b, "same", (0, 1, 2))
        assert np.linalg.norm(np.asarray(y) - want) <= 50 * eps * np.linalg.norm(want)
    # 'valid' with the larger array second, on the mesh or not
    a, b = meshes.random((2, 3)), meshes.random((8, 6), seed=1)
    want = oracle.convolve(a, b, "valid", (0, 1))
    for small in (jnp.asarray(a), meshes.put(a, mesh)):
        y = plait.fft.fftconvolve(small, meshes.put(b, mesh, P("a", "b")), mode="valid")
        np.testing.assert_allclose(data(y, want.shape), want, rtol=1e-12, atol=1e-12)


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("shape", [(4, 1), (8, 1), (4, 4)])
def test_a_kernel_on_the_mesh_with_one_column(mode, shape):
    mesh = meshes.make((4,))
    a, b = np.arange(32.0).reshape(8, 4) ** 2, np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    x, k = meshes.put(a, mesh, P("a")), meshes.put(b, mesh, P("a"))
    for axes in (None, 0) if shape[1] == 1 else (None,):
        want = scipy.signal.fftconvolve(a, b, mode, axes)
        got = data(plait.fft.fftconvolve(x, k, mode=mode, axes=axes), want.shape)
        np.testing.assert_allclose(got, want, atol=1e-9)


def test_convolution_on_one_device_and_with_batch_axes():
    a, b = meshes.random((3, 5)), meshes.random((1, 4), seed=1)
    y = plait.fft.fftconvolve(jnp.asarray(a), jnp.asarray(b), axes=1)
    np.testing.assert_allclose(y, oracle.convolve(a, b, "full", (1,)), rtol=1e-12)
    mesh = meshes.make((3,))
    y = plait.fft.fftconvolve(meshes.put(a, mesh, P("a")), jnp.asarray(b), axes=(1,))
    np.testing.assert_allclose(y, oracle.convolve(a, b, "full", (1,)), rtol=1e-12, atol=1e-13)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_gradient_of_convolution_is_a_correlation(mode):
    mesh = meshes.make((4,))
    a, b = meshes.random((8, 6)), meshes.random((3, 3), seed=1)
    x = meshes.put(a, mesh, P("a"))
    want = oracle.convolve(a, b, mode, (0, 1))
    w = meshes.random(want.shape, seed=2)

    def loss(v, k):
        y = plait.fft.fftconvolve(v, k, mode=mode)
        return jnp.sum(y[: w.shape[0], : w.shape[1]] * w)

    def direct(v, k):
        full = sum(
            jnp.pad(v * k[i, j], ((i, 2 - i), (j, 2 - j))) for i in range(3) for j in range(3)
        )
        lo = {"full": 0, "same": 1, "valid": 2}[mode]
        return jnp.sum(full[lo : lo + w.shape[0], lo : lo + w.shape[1]] * w)

    wanted = jax.jit(jax.grad(direct, (0, 1)))(jnp.asarray(a), jnp.asarray(b))
    for f in (jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))):
        of_a, of_b = f(x, jnp.asarray(b))
        assert of_a.sharding.is_equivalent_to(x.sharding, 2)
        np.testing.assert_allclose(of_a, wanted[0], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(of_b, wanted[1], rtol=1e-11, atol=1e-12)
    transposed = jax.linear_transpose(lambda v: loss(v, jnp.asarray(b)), x)(jnp.ones(()))
    np.testing.assert_allclose(transposed[0], wanted[0], rtol=1e-11, atol=1e-12)
    of_b = jax.jacfwd(loss, 1)(x, jnp.asarray(b))
    np.testing.assert_allclose(of_b, wanted[1], rtol=1e-11, atol=1e-12)


def test_errors_of_convolution():
    a = jnp.ones((4, 4))
    for call, text in [
        (lambda: plait.fft.fftconvolve(a, a[0]), "a has 2 axes, b has 1; expected as many"),
        (lambda: plait.fft.fftconvolve(a, a, mode="other"), "mode is 'other'"),
        (
            lambda: plait.fft.fftconvolve(a, jnp.ones((3, 4)), axes=(1,)),
            "along axes not convolved",
        ),
        (lambda: plait.fft.fftconvolve(jnp.ones((2, 5)), a, mode="valid"), "fits into the other"),
        (lambda: plait.fft.fftconvolve(a, a, axes=(2,)), "out of bounds"),
        (lambda: plait.fft.poisson(a, spacing=0.0), "expected numbers other than 0"),
        (lambda: plait.fft.poisson(a, spacing=(1.0,)), "1 entries for 2 axes"),
        (
            lambda: plait.fft.poisson(a, spacing=(1.0, np.nan)),
            "expected numbers other than 0 and NaN",
        ),
        (lambda: plait.fft.fftfreqn(a, d=0), "fftfreqn: d is 0; expected numbers other than 0"),
        (
            lambda: plait.fft.rfftfreqn(a, (1.0, 0.0)),
            r"d is \(1.0, 0.0\); expected numbers other than 0",
        ),
        (lambda: plait.fft.fftfreqn(a, layout="other"), "layout is 'other'"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()


def test_convolution_of_operands_on_two_meshes():
    devices, convolve = jax.devices(), plait.fft.fftconvolve
    a = meshes.put(np.ones((8, 8)), meshes.make((4,)), P("a"))
    others = np.array(devices[3::-1]), np.array(devices[-4:])
    here, *there = (re.escape(str([d.id for d in of])) for of in (devices[:4], *others))
    for of_other, ids in zip(others, there, strict=True):
        b = meshes.put(np.ones((8, 8)), Mesh(of_other, ("a",)), P("a"))
        text = f"fftconvolve: a is on devices {here}, b is on devices {ids}; expected the same"
        with pytest.raises(ValueError, match=text):
            convolve(a, b)
    b = meshes.put(np.ones((2, 2)), meshes.make((2, 2)), P("a", "b"))
    text = "fftconvolve: a is on mesh {'a': 4}, b is on mesh {'a': 2, 'b': 2}; expected one mesh"
    for f in (convolve, jax.jit(convolve)):
        with pytest.raises(ValueError, match=text):
            f(a, b)
    text = "fftconvolve b: the operand's mesh is {'a': 2, 'b': 2}, mesh= is {'a': 4}"
    with pytest.raises(ValueError, match=text):
        convolve(jnp.ones((8, 8)), b, mesh=meshes.make((4,)))


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(
    "shapes", [((8, 1), (1, 5)), ((1, 4), (3, 2)), ((2, 6), (5, 1)), ((1,), (4,))]
)
def test_convolution_along_axes_of_one_element(shapes, mode):
    """Such an axis fits into any other axis, as in SciPy."""
    a, b = (meshes.random(shape, seed=i) for i, shape in enumerate(shapes))
    want = scipy.signal.fftconvolve(a, b, mode)
    got = plait.fft.fftconvolve(jnp.asarray(a), jnp.asarray(b), mode=mode)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    mesh = meshes.make((2,))
    got = plait.fft.fftconvolve(jnp.asarray(a), jnp.asarray(b), mode=mode, mesh=mesh, spec=P())
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_convolution_beside_an_empty_axis():
    """Remaining axes broadcast as in NumPy: extents 0 and 1 give 0."""
    a, b = jnp.zeros((0, 8)), jnp.asarray(meshes.random((1, 3)))
    for x, y in [(a, b), (b, a)]:
        assert plait.fft.fftconvolve(x, y, axes=1).shape == (0, 10)


@pytest.mark.long
def test_eager_gradient_of_a_convolution_with_itself():
    """The array is on no mesh, but both its cotangents are on the mesh of the call."""
    mesh, a = meshes.make((2,)), jnp.asarray(meshes.random((4, 6)))

    def loss(a, **place):
        return jnp.sum(jnp.sin(plait.fft.fftconvolve(a, a * 2, **place)))

    want = jax.grad(loss)(a)
    for spec in (P(), P("a")):
        got = jax.grad(loss)(a, mesh=mesh, spec=spec)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


# ---- Poisson's equation --------------------------------------------------------------------------


@pytest.mark.parametrize("spacing", [1e-22, 3e18, 3e20])
def test_poisson_where_squares_are_out_of_range(spacing):
    """The range of float32: a parsec in metres is 3e16, a megaparsec 3e22."""
    n, mesh = 32, meshes.make((2,))
    scale = 1e-20 if spacing > 1 else 1e20
    x = np.cos(2 * np.pi * np.arange(n) / n)[:, None] * np.ones(4) * scale
    want = -x * (n * spacing / (2 * np.pi)) ** 2
    a = meshes.put(x.astype(np.float32), mesh, P("a"))
    for h in (spacing, (spacing, 1.0)):
        got = jax.jit(plait.fft.poisson, static_argnames="spacing")(a, spacing=h)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
        got = jax.jit(plait.fft.poisson)(a, spacing=jnp.asarray(h))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
    assert np.isnan(jax.jit(plait.fft.poisson)(a, spacing=jnp.nan)).all()


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(2,), (2, 4)])
def test_poisson_is_the_inverse_of_the_dense_matrix(shape, dtype, kind):
    mesh = meshes.make(shape, kind)
    f = meshes.random((4, 4, 3), dtype)
    x = meshes.put(f, mesh, MESHES[shape])
    want = oracle.poisson(f, (0.3, 1.0, 2.0), (0, 1, 2))

    def solve(v):
        return plait.fft.poisson(v, spacing=(0.3, 1.0, 2.0))

    for u in (solve(x), jax.jit(solve)(x)):
        assert u.dtype == dtype and u.sharding.is_equivalent_to(x.sharding, 3)
        np.testing.assert_allclose(u, want, rtol=1e-9, atol=1e-11)


def test_poisson_of_what_is_known():
    """The solution u of a few waves: exact to rounding, in both precisions; the mean is dropped."""
    mesh, n, length = meshes.make((2, 4)), (16, 8, 12), (1.0, 2.0, 3.0)
    h = [side / k for side, k in zip(length, n, strict=True)]
    x, y, z = np.meshgrid(*[np.arange(k) * d for k, d in zip(n, h, strict=True)], indexing="ij")
    k = [2 * np.pi * m / side for m, side in zip((3, 1, 2), length, strict=True)]
    u = np.sin(k[0] * x) * np.cos(k[1] * y) * np.sin(k[2] * z + 0.3)
    f = -sum(q * q for q in k) * u
    for dtype in ("float32", "float64"):
        moved = meshes.put((f + 7).astype(dtype), mesh, P("a", "b"))
        got = plait.fft.poisson(moved, spacing=h)
        np.testing.assert_allclose(got, u, atol=200 * meshes.eps(dtype))


def test_poisson_along_some_axes_and_its_adjoint():
    mesh = meshes.make((2,))
    f, w = meshes.random((3, 6, 4)), meshes.random((3, 6, 4), seed=1)
    x = meshes.put(f, mesh, P(None, "a"))
    want = oracle.poisson(f, (1.0, 0.5), (1, 2))
    where = {"spec": P(None, "a")}  # under jit the first axis is assumed to be split
    solve = lambda v: plait.fft.poisson(v, spacing=(1.0, 0.5), axes=(1, 2), **where)  # noqa: E731
    np.testing.assert_allclose(solve(x), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jax.vmap(solve)(jnp.stack([x, 2 * x]))[1], 2 * want, atol=1e-11)
    of_w = oracle.poisson(w, (1.0, 0.5), (1, 2))
    for grad in (jax.grad, lambda g: jax.jit(jax.grad(g)), jax.jacfwd):
        got = grad(lambda v: jnp.sum(solve(v) * w))(x)
        np.testing.assert_allclose(got, of_w, rtol=1e-9, atol=1e-11)


# ---- padding -------------------------------------------------------------------------------------

WALLS = ("neumann", "periodic", "dirichlet")
PADDED = {
    "convolution": lambda x, **of: plait.fft.fftconvolve(x, jnp.ones((3, 2, 3)), **of),
    "poisson": plait.fft.poisson,
    "poisson between walls": functools.partial(plait.fft.poisson, ends=WALLS),
    "same": lambda x, **of: plait.fft.fftconvolve(x, jnp.ones((3, 3, 3)), mode="same", **of),
    "sum": plait.sum,
    "sum of rows": functools.partial(plait.sum, axis=2),
}


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PADDED)
def test_what_is_behind_the_data_is_not_read(name, kind):
    """Arrays whose size the mesh does not divide, with NaN in the padding."""
    function = PADDED[name]
    own = (30, 7, 8)
    x = meshes.random(own)
    room = np.full((32, 8, 8), np.nan)
    room[:30, :7] = x
    mesh = meshes.make((4,), kind)
    given = {"shape": own, "mesh": mesh, "spec": P("a")}
    want = np.asarray(function(jnp.asarray(x)))

    def call(v):
        return function(v, **given)

    y = meshes.put(room, mesh, P("a"))
    for got in (call(y), jax.jit(call)(y)):
        got = np.asarray(got)
        inside = tuple(slice(n) for n in want.shape)
        np.testing.assert_allclose(got[inside], want, rtol=1e-9, atol=1e-12)
        rest = got.copy()
        rest[inside] = 0
        assert not rest.any()
    slope = np.asarray(jax.jit(jax.grad(lambda v: jnp.sum(call(v) ** 2)))(y))
    of_data = jax.grad(lambda v: jnp.sum(function(v) ** 2))(jnp.asarray(x))
    np.testing.assert_allclose(slope[:30, :7], of_data, rtol=1e-9, atol=1e-10)
    assert not np.any(slope[30:]) and not np.any(slope[:, 7:])


# ---- meshes of Auto and Explicit axes ------------------------------------------------------------


def test_an_explicit_axis_of_one_device_beside_auto_ones():
    """Types sometimes omit such an axis, which does not change the split."""
    kinds = (AxisType.Explicit, AxisType.Auto)
    mesh = jax.make_mesh((1, 4), ("x", "y"), kinds, devices=jax.devices()[:4])
    a, kernel = meshes.random((16, 16), "float32"), meshes.random((3, 3), "float32", 1)
    x = jax.device_put(a, NamedSharding(mesh, P("x", "y")))
    y = plait.fft.fftconvolve(x, jnp.asarray(kernel), mode="same")
    close(y, scipy.signal.fftconvolve(a, kernel, mode="same"))
    close(plait.fft.poisson(x), np.asarray(plait.fft.poisson(jnp.asarray(a))))


@pytest.mark.parametrize("axes", [("x", "y"), ("y", "x")])
def test_an_array_axis_that_auto_and_explicit_mesh_axes_split(axes):
    """JAX loses the Auto axes, and parts would have the shapes of another split."""
    kinds = (AxisType.Auto, AxisType.Explicit)
    mesh = jax.make_mesh((2, 2), ("x", "y"), kinds, devices=jax.devices()[:4])
    x = jax.device_put(np.arange(16.0), NamedSharding(mesh, P(axes)))
    calls = (lambda: plait.halo.pad(x, 1), lambda: plait.redistribute(x, P()), lambda: plait.sum(x))
    for call in calls:
        with pytest.raises(ValueError, match="of which JAX keeps only the Explicit ones"):
            call()
