"""Cosine and sine transforms against SciPy, derivatives against matrices; walls in Poisson's."""

import itertools

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import close, data
from plait import _jax

KINDS = [AxisType.Auto, AxisType.Explicit]
NAMES = ["dctn", "idctn", "dstn", "idstn"]
TYPES = [1, 2, 3, 4]
MESHES = {(2,): P("a"), (8,): P("a"), (2, 4): P("a", "b"), (4, 2): P("a", None, "b")}


def matrix(name, n, *given):
    """The matrix of the transform of one axis."""
    return getattr(oracle, name)(np.eye(n), *given, axes=(0,))


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", TYPES)
def test_every_type_is_scipys(number, name):
    """Sizes and norms vary in turn."""
    mesh, f = meshes.make((1,)), getattr(plait.fft, name)
    ways = itertools.cycle(itertools.product(["ortho", None, "forward"], [None, True, False]))
    least = 2 if number == 1 and "c" in name else 1
    for n, (norm, weights) in zip([least, 2, 3, 4, 8, 9, 15, 16, 30], ways, strict=False):
        x, named = meshes.random((n, 3)), {"norm": norm, "orthogonalize": weights, "axes": (0,)}
        got = f(jnp.asarray(x), number, **named, mesh=mesh)
        close(got, getattr(oracle, name)(x, number, **named))


def cycled(values):
    """Each value with a mesh and a kind of axes, in turn."""
    places = itertools.cycle(itertools.product(MESHES, KINDS))
    return [(value, *place) for value, place in zip(values, places, strict=False)]


@pytest.mark.long(keep=5)
@pytest.mark.parametrize(("given", "shape", "kind"), cycled(itertools.product(NAMES, TYPES)))
def test_on_meshes_where_parts_are(given, shape, kind):
    (name, number), spec, mesh = given, MESHES[shape], meshes.make(shape, kind)
    a = meshes.random((8, 16, 12))
    x = meshes.put(a, mesh, spec)
    f, of_oracle = getattr(plait.fft, name), getattr(oracle, name)
    under_jit = jax.jit(lambda v: f(v, number, norm="ortho", spec=spec, mesh=mesh))
    for y, want in [
        (f(x, number), of_oracle(a, number)),
        (under_jit(x), of_oracle(a, number, norm="ortho")),
    ]:
        close(y, want)
        assert y.sharding.is_equivalent_to(x.sharding, 3)


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(("given", "shape", "kind"), cycled(itertools.product(NAMES, TYPES)))
def test_by_fourier_transforms_as_on_gpus(given, shape, kind, monkeypatch):
    """Where the core has no such transform: the same numbers, split and padding."""
    (name, number), spec, mesh = given, MESHES[shape], meshes.make(shape, kind)
    a = meshes.random((8, 16, 9 if len(spec) < 3 else 12))
    x, f = meshes.put(a, mesh, spec), getattr(plait.fft, name)
    known = {"shape": (7, 13, a.shape[2]), "orthogonalize": number == 2, "layout": "transposed"}

    def under_jit():
        return jax.jit(lambda v: f(v, number, norm="ortho", spec=spec, mesh=mesh, **known))(x)

    if name.startswith("i"):
        known["layout"] = "natural"
    want = under_jit()
    monkeypatch.setattr(_jax, "lowering_platforms", lambda ctx: ("cuda",))
    jax.clear_caches()
    got = under_jit()
    close(got, np.asarray(want))
    assert got.shape == want.shape and got.sharding.is_equivalent_to(want.sharding, 3)


@pytest.mark.parametrize("shape", [(2,), (2, 4)])
def test_there_and_back_along_the_transposed_path(shape):
    mesh = meshes.make(shape)
    a, spec = meshes.random((8, 16, 12)), P("a", "b") if len(shape) == 2 else P("a")
    x = meshes.put(a, mesh, spec)
    turned = NamedSharding(mesh, P(None, *spec))

    def there(v):
        return plait.fft.dstn(v, layout="transposed")

    def back(v):
        return plait.fft.idstn(v, layout="transposed")

    for way in (lambda f: f, jax.jit):
        y = way(there)(x)
        close(y, oracle.dstn(a))
        assert y.sharding.is_equivalent_to(turned, 3)
        again = way(back)(y)
        close(again, a)
        assert again.sharding.is_equivalent_to(x.sharding, 3)
    assert meshes.xla_collectives(lambda v: back(there(v)), x) == []
    y = plait.fft.dctn(x, 3, layout=P(None, None, "a"))
    close(y, oracle.dctn(a, 3))
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P(None, None, "a")), 3)


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("size", [(7, 5, 9), (3, 6, 1), (2, 2, 3), (9, 1, 4)])
@pytest.mark.parametrize("shape", [(2,), (4, 2), (8,)])
def test_padded_arrays(shape, size):
    """The operand's padding is not read, the result's padding is zero."""
    mesh, spec = meshes.make(shape), MESHES[shape]
    a = meshes.random(size)
    x = plait.redistribute(meshes.put(a, mesh), spec, shape=size)
    room = np.ones(x.shape, bool)
    room[tuple(slice(n) for n in size)] = False
    x = jnp.where(meshes.put(room, mesh, spec), jnp.nan, x)
    for name, number in [("dctn", 2), ("idctn", 2), ("dstn", 1), ("dstn", 4)]:
        f = getattr(plait.fft, name)
        for way in (lambda f: f, jax.jit):
            y = way(lambda v, f=f, n=number: f(v, n, shape=size, spec=spec, mesh=mesh))(x)
            close(data(y, size), getattr(oracle, name)(a, number))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_any_axes_sizes_and_dtypes(choices):
    """s= crops, or appends zeros; other axes are batch; a complex array is two real arrays."""
    ndim = choices.draw(st.integers(1, 4), "axes")
    shape = choices.draw(st.tuples(*[st.integers(2, 7)] * ndim), "shape")
    axes = choices.draw(st.permutations(range(ndim)), "order")
    axes = tuple(axes[: choices.draw(st.integers(1, ndim), "transformed")])
    s = choices.draw(st.none() | st.tuples(*[st.integers(2, 9)] * len(axes)), "s")
    dtype = choices.draw(st.sampled_from(["float64", "float32", "complex128", "int32"]), "dtype")
    name = choices.draw(st.sampled_from(NAMES), "name")
    number = choices.draw(st.sampled_from(TYPES), "type")
    split = choices.draw(st.permutations(["a", "b", *[None] * max(0, ndim - 2)]), "spec")[:ndim]
    a, mesh = meshes.random(shape, dtype), meshes.make((2, 2))
    x = plait.redistribute(meshes.put(a, mesh), P(*split), shape=shape)
    named = {"axes": axes, "s": s, "norm": "ortho"}
    y = getattr(plait.fft, name)(x, number, **named, shape=shape)
    want = getattr(oracle, name)(a.astype("float32") if dtype == "int32" else a, number, **named)
    close(data(y, want.shape), want)
    assert y.dtype == want.dtype


def test_where_all_axes_are_split():
    """Devices along one mesh axis do the same work; another whole axis is split meanwhile."""
    mesh = meshes.make((2, 4))
    line = meshes.random((24,))
    close(plait.fft.dctn(meshes.put(line, mesh, P(("a", "b")))), oracle.dctn(line))
    plane = meshes.random((8, 12))
    x = meshes.put(plane, mesh, P("a", "b"))
    close(plait.fft.dstn(x), oracle.dstn(plane))
    close(plait.fft.dstn(x, axes=(1,)), oracle.dstn(plane, axes=(1,)))
    y = meshes.put(plane, mesh, P("b"))
    close(plait.fft.idctn(y, axes=(0,)), oracle.idctn(plane, axes=(0,)))
    assert meshes.xla_collectives(lambda v: plait.fft.dstn(v), x) == []


def test_arrays_without_elements_beside():
    x = meshes.put(np.zeros((0, 8)), meshes.make((2,)), P(None, "a"))
    assert plait.fft.dctn(x, axes=(1,)).shape == (0, 8)
    assert plait.fft.dctn(jnp.zeros((0, 8)), axes=(1,), mesh=meshes.make((1,))).shape == (0, 8)


# ---- derivatives ---------------------------------------------------------------------------------


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "number"), [("dctn", 1), ("idctn", 2), ("dctn", 4), ("dstn", 2), ("idstn", 2)]
)
def test_derivatives_are_those_of_the_matrix(name, number, kind):
    mesh = meshes.make((2, 2), kind)
    a, w = meshes.random((6, 8)), meshes.random((6, 8), seed=1)
    x, ct = meshes.put(a, mesh, P("a", "b")), meshes.put(w, mesh, P("a", "b"))
    left, right = (matrix(name, n, number) for n in a.shape)

    def f(v):
        return getattr(plait.fft, name)(v, number, spec=P("a", "b"), mesh=mesh)

    def loss(v):
        return jnp.sum(jnp.sin(f(v)) * ct)

    back = left.T @ (w * np.cos(left @ a @ right.T)) @ right
    for way in (lambda g: g, jax.jit):
        close(way(lambda v: jax.jvp(f, (v,), (ct,))[1])(x), left @ w @ right.T)
        close(way(lambda v: jax.linear_transpose(f, x)(v)[0])(ct), left.T @ w @ right)
        with jax.set_mesh(mesh):  # for eager gradients on Explicit axes
            close(way(jax.grad(loss))(x), back)
    close(jax.jit(jax.grad(jax.checkpoint(loss)))(x), back)
    slope = jax.jit(lambda v: jax.jvp(jax.grad(loss), (v,), (ct,))[1])(x)
    bent = left.T @ (-w * np.sin(left @ a @ right.T) * (left @ w @ right.T)) @ right
    np.testing.assert_allclose(slope, bent, rtol=1e-11, atol=1e-11)


def test_batches():
    mesh = meshes.make((2,))
    a = meshes.random((3, 6, 8))
    x = meshes.put(a, mesh, P(None, "a"))
    want = oracle.dctn(a, axes=(1, 2))

    def f(v):
        return plait.fft.dctn(v, spec=P("a"), mesh=mesh)

    for way in (lambda g: g, jax.jit):
        close(way(jax.vmap(f))(x), want)
        close(way(jax.vmap(f, in_axes=2, out_axes=1))(jnp.moveaxis(x, 0, 2)), want.swapaxes(0, 1))


def test_one_axis_and_size_as_numbers():
    a = meshes.random((4, 6))
    x = meshes.put(a, meshes.make((2,)), P("a"))
    close(plait.fft.dctn(x, 2, 8, 1), oracle.dctn(a, 2, 8, 1))


def test_without_jit_and_where_nan_are_errors():
    mesh = meshes.make((2, 2))
    a = meshes.random((4, 6))
    x = meshes.put(a, mesh, P("a", "b"))
    with jax.disable_jit():
        close(plait.fft.dctn(x), oracle.dctn(a))
        batch = meshes.put(meshes.random((2, 4, 4)), mesh, P("a"))
        got = jax.vmap(lambda m: plait.linalg.det(m, mesh=mesh, spec=P("b")))(batch)
    np.testing.assert_allclose(got, np.linalg.det(batch), rtol=1e-12)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        plait.fft.dctn(x.at[1, 2].set(jnp.nan))


# ---- errors --------------------------------------------------------------------------------------


def test_what_cannot_be():
    mesh = meshes.make((2,))
    x = meshes.put(meshes.random((4, 6)), mesh, P("a"))
    for named, text in [
        ({"type": 5}, "dctn: type is 5; expected 1, 2, 3 or 4"),
        ({"type": "2"}, "dctn: type is '2'; expected"),
        ({"norm": "both"}, "dctn: norm is 'both'; expected 'backward', 'ortho' or 'forward'"),
        ({"axes": (0, 0)}, "dctn: axes is .0, 0.; expected one axis or more, each once"),
        ({"axes": (2,)}, "dctn: axis 2 is out of bounds"),
        ({"s": (3, 6)}, "dctn: axis 0 of the result has 3 elements, which 2 devices"),
        ({"s": (4,), "axes": (0, 1)}, "dctn: s=.4,. has 1 entries for 2 axes"),
        ({"layout": "mixed"}, "dctn: layout is 'mixed'; expected"),
        ({"shape": (9, 6)}, "dctn: shape=.9, 6. says 9 along axis 0"),
    ]:
        with pytest.raises(ValueError, match=text):
            plait.fft.dctn(x, **named)
    with pytest.raises(TypeError, match="idstn: operand of dtype float16; expected float32"):
        plait.fft.idstn(x.astype("float16"))
    with pytest.raises(ValueError, match="dctn: axis 1 has 1 elements to transform; expected 2"):
        plait.fft.dctn(x[:, :1], 1)
    for ends in ("open", ("periodic", "Neumann"), (["neumann"], "periodic")):
        with pytest.raises(ValueError, match="poisson: ends is .*; expected 'periodic'"):
            plait.fft.poisson(x, ends=ends)
    for ends in (None, 3, {"periodic": 0, "neumann": 1}):
        with pytest.raises(TypeError, match="poisson: ends is .*; expected 'periodic'"):
            plait.fft.poisson(x, ends=ends)
    for ends in ("dirichlet", "periodic"):
        with pytest.raises(ValueError, match="poisson: axis 1 has no elements"):
            plait.fft.poisson(x[:, :0], ends=ends)
    with pytest.raises(ValueError, match="poisson: ends has 3 entries for 2 axes"):
        plait.fft.poisson(x, ends=("periodic",) * 3)


# ---- Poisson's equation between walls ------------------------------------------------------------

ENDS = ["periodic", "dirichlet", "neumann"]


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(
    ("ends", "shape", "kind"), cycled(list(itertools.product(ENDS, repeat=3))[1:])
)
def test_poisson_between_walls_is_the_inverse_of_the_dense_matrix(ends, shape, kind):
    mesh = meshes.make(shape, kind)
    dtype = "complex128" if ends[0] == "neumann" else "float64"
    f, w = meshes.random((8, 4, 2), dtype), meshes.random((8, 4, 2), dtype, 1)
    x = meshes.put(f, mesh, MESHES[shape])
    steps = (0.3, 1.0, 2.0)
    want = oracle.poisson(f, steps, (0, 1, 2), ends)

    def solve(v, h=steps):
        return plait.fft.poisson(v, spacing=h, ends=ends, spec=MESHES[shape])

    for u in (solve(x), jax.jit(solve)(x), jax.jit(solve)(x, jnp.asarray(steps))):
        assert u.dtype == dtype and u.sharding.is_equivalent_to(x.sharding, 3)
        np.testing.assert_allclose(u, want, rtol=1e-9, atol=1e-10)
    ct = meshes.put(w, mesh, MESHES[shape])
    got = jax.jit(lambda v: jax.linear_transpose(solve, x)(v)[0])(ct)
    np.testing.assert_allclose(
        got, oracle.poisson(w, steps, (0, 1, 2), ends), rtol=1e-9, atol=1e-10
    )


def test_poisson_between_walls_of_what_is_known():
    """A wave between walls: zero there, flat there, or periodic; along two axes."""
    mesh, n, length = meshes.make((2, 4)), (16, 8, 12), (1.0, 2.0, 3.0)
    h = [side / k for side, k in zip(length, n, strict=True)]
    points = [(np.arange(k) + 0.5) * d for k, d in zip(n, h, strict=True)]
    x, y, z = np.meshgrid(*points, indexing="ij")
    k = np.pi * np.array([3, 2, 2]) / length
    u = np.sin(k[0] * x) * np.cos(k[1] * y) * np.sin(2 * k[2] * z + 0.3)
    f = -(k[0] ** 2 + k[1] ** 2 + 4 * k[2] ** 2) * u
    for dtype in ("float32", "float64"):
        given = meshes.put(f.astype(dtype), mesh, P("a", "b"))
        got = plait.fft.poisson(given, spacing=h, ends=("dirichlet", "neumann", "periodic"))
        np.testing.assert_allclose(got, u, atol=200 * meshes.eps(dtype))
    one = meshes.put(np.ones((4, 8)), mesh, P("a", "b"))  # no mean is removed: u'' = 1
    t = (np.arange(8) + 0.5) / 8
    got = plait.fft.poisson(one, axes=(1,), spacing=1 / 8, ends="dirichlet")
    waves = [k for k in range(1, 9) if k % 2]
    amplitudes = oracle.dstn(np.ones(8))[::2] / [16 if k == 8 else 8 for k in waves]
    want = sum(-a * np.sin(np.pi * k * t) / (np.pi * k) ** 2
               for k, a in zip(waves, amplitudes, strict=True))  # fmt: skip
    np.testing.assert_allclose(got, np.tile(want, (4, 1)), atol=1e-14)
