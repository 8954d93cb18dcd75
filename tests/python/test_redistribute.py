"""redistribute and sum on all meshes."""

import functools
import itertools

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from pairwise import pairwise


def specs(names, ndim):
    """Every way to split ndim axes by these mesh axes, each used once at most."""
    found = set()
    for places in itertools.product(range(-1, ndim), repeat=len(names)):
        entries = [[] for _ in range(ndim)]
        for name, place in zip(names, places, strict=True):
            if place >= 0:
                entries[place].append(name)
        found.add(P(*[tuple(e) if len(e) > 1 else e[0] if e else None for e in entries]))
    return sorted(found, key=str)


KINDS = [AxisType.Auto, AxisType.Explicit]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("shape", [(2,), (2, 2), (2, 4)])
def test_every_pair_is_bit_exact(shape):
    """Every split to and from some other splits; both ways, in turns, on both kinds of meshes."""
    a = np.arange(8 * 16 * 8, dtype=np.int64).reshape(8, 16, 8)
    every = specs(meshes.NAMES[: len(shape)], 3)
    pairs = list(itertools.product(enumerate(every), enumerate(every)))
    for (i, source), (j, to) in pairs if len(pairs) <= 64 else pairs[:: len(pairs) // 40]:
        mesh = meshes.make(shape, KINDS[(i + j) % 2])
        x = meshes.put(a, mesh, source)
        y = plait.redistribute(x, to)
        assert np.array_equal(y, oracle.redistribute(a)), (source, to)
        assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, to), 3), (source, to)
        for shard in y.addressable_shards:
            assert np.array_equal(shard.data, a[shard.index]), (source, to)


@pytest.mark.parametrize("kind", KINDS)
def test_the_split_it_has(kind):
    """Nothing is to be done, unless padding is to be filled with zeros."""
    mesh = meshes.make((2, 2), kind)
    x = meshes.put(meshes.random((8, 4)), mesh, P("a", "b"))

    def stay(x, **given):
        return plait.redistribute(x, P("a", "b"), mesh=mesh, spec=P("a", "b"), **given)

    assert not plait.explain(stay, x).calls
    for f in (stay, plait.jit(stay)):
        y = f(x)
        assert np.array_equal(y, x) and y.sharding.is_equivalent_to(x.sharding, 2)
    assert np.array_equal(jax.jit(jax.vmap(stay))(jnp.stack([x, -x])), np.stack([x, -x]))
    assert np.array_equal(jax.jit(jax.grad(lambda x: jnp.sum(stay(x) * x)))(x), 2 * x)
    assert len(plait.explain(functools.partial(stay, shape=(7, 4)), x).calls) == 1
    assert np.array_equal(stay(x, shape=(7, 4)), np.where(np.arange(8)[:, None] < 7, x, 0))


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "float16", "bfloat16", "float32", "complex64", "complex128"]
)
def test_dtypes(dtype):
    mesh = meshes.make((4,))
    a = jnp.asarray(meshes.random((8, 4, 3), "float32") * 100).astype(dtype)
    x = meshes.put(a, mesh, P("a"))
    assert np.array_equal(plait.redistribute(x, P(None, "a")), a)


@pytest.mark.parametrize("dtype", ["int4", "float8_e4m3b11fnuz", "key<fry>"])
def test_dtypes_that_there_are_not(dtype):
    """Every function names the dtype when it is called, not when the program runs."""
    mesh = meshes.make((2,))
    if dtype == "key<fry>":
        x = jax.random.split(jax.random.key(0), (2, 2, 2))
    else:
        x = jnp.ones((2, 2, 2), dtype)
    x = meshes.put(x, mesh, P("a"))
    calls = [
        (lambda v: plait.redistribute(v, P(None, "a"), mesh=mesh), "redistribute: x"),
        (lambda v: plait.sum(v, mesh=mesh), "sum: x"),
        (lambda v: plait.halo.pad(v, 1, mesh=mesh, spec=P("a")), "halo.pad: x"),
        (lambda v: plait.halo.exchange(v, 0, mesh=mesh, spec=P("a")), "halo.exchange: x"),
        (lambda v: plait.halo.fold(v, 0, mesh=mesh, spec=P("a")), "halo.fold:"),
    ]
    if dtype != "int4":  # transforms make integers floating
        calls += [
            (plait.fft.fftn, "fftn: x"),
            (plait.fft.rfftn, "rfftn: x"),
            (plait.fft.poisson, "poisson:"),
            (lambda v: plait.fft.fftconvolve(v, v), "fftconvolve:"),
        ]
    for call, name in calls:
        for f in (call, jax.jit(call)):
            with pytest.raises(TypeError, match=f"^{name}.*{dtype}.*(expected|cannot be added)"):
                f(x)


def test_gradient_goes_back():
    mesh = meshes.make((2, 2))
    a = meshes.random((4, 4))
    x = meshes.put(a, mesh, P("a", "b"))
    for to in (P("b", "a"), P(None, ("a", "b")), P(), P("a")):
        g = jax.jit(
            jax.grad(lambda v, to=to: plait.sum(jnp.sin(plait.redistribute(v, to)), spec=to))
        )
        assert np.allclose(g(x), np.cos(a)), to
        assert g(x).sharding.is_equivalent_to(x.sharding, 2)


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2), (-1,), (0, 1)])
def test_sum(axis, kind):
    mesh = meshes.make((2, 2), kind)
    a = meshes.random((4, 6, 3))
    x = meshes.put(a, mesh, P("a", "b"))
    want = oracle.sum(a, axis)
    assert np.allclose(plait.sum(x, axis=axis), want, rtol=1e-14)
    f = plait.jit(lambda v: plait.sum(v, axis=axis))
    assert np.allclose(f(x), want, rtol=1e-14)

    def square(v):
        return plait.sum(v, axis=axis) ** 2

    g = jax.jit(jax.grad(lambda v: jnp.sum(square(v))))(x)
    full = np.sum(a, axis=axis, keepdims=True) * 2
    assert np.allclose(g, np.broadcast_to(full, a.shape), rtol=1e-13)


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("axis", [None, 1, (0, -1)])
@pytest.mark.parametrize(
    ("dtype", "to"), [("int8", None), ("int8", "int8"), ("bool", "float32"), ("float32", "float64")]
)
def test_sum_as_jax_has_it(axis, dtype, to):
    mesh = meshes.make((2, 2))
    a = meshes.random((4, 6, 3), dtype)
    x = meshes.put(a, mesh, P("a", "b"))
    given = {"axis": axis, "keepdims": True, "dtype": to}
    want = jnp.sum(jnp.asarray(a), **given)
    for got in (plait.sum(x, **given), jax.jit(lambda v: plait.sum(v, **given, mesh=mesh))(x)):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert np.allclose(got, want, rtol=1e-6)
    assert plait.sum(jnp.int8(3), keepdims=True, dtype="float32").dtype == "float32"


def test_what_the_mesh_does_not_divide_is_whole():
    mesh, a = meshes.make((4,)), meshes.random((6, 8))
    x = meshes.put(a, mesh)
    total = jax.jit(lambda v: plait.sum(v, axis=np.int64(0), mesh=mesh))
    assert np.allclose(total(x), np.sum(a, 0), rtol=1e-14)
    split = jax.jit(lambda v: plait.redistribute(v, P(None, "a"), mesh=mesh))
    assert np.array_equal(split(x), a)


@pytest.mark.parametrize("shape", [(0, 4), (8, 0), (0,)])
def test_sum_of_nothing(shape):
    x = meshes.put(np.zeros(shape), meshes.make((4,)), P("a") if shape[0] == 0 else P(None, "a"))
    for f in (plait.sum, plait.jit(plait.sum)):
        assert f(x) == 0
    assert np.array_equal(plait.sum(x, axis=0), np.zeros(shape[1:]))


def test_sum_of_replicas_counts_once():
    mesh = meshes.make((2, 2))
    x = meshes.put(np.ones((4, 4), np.int32), mesh, P("a"))
    assert plait.sum(x) == 16
    assert plait.sum(meshes.put(np.ones(3), mesh, P())) == 3


def test_bad_input():
    mesh = meshes.make((4,))
    x = meshes.put(np.zeros((8, 6)), mesh, P("a"))
    with pytest.raises(ValueError, match="axis 1 has 6 elements.*next size that they divide is 8"):
        plait.redistribute(x, P(None, "a"))
    with pytest.raises(ValueError, match="uses a mesh axis twice"):
        plait.redistribute(x, P("a", "a"))
    with pytest.raises(ValueError, match="more entries than the array's 2 axes"):
        plait.redistribute(x, P(None, None, "a"))
    with pytest.raises(TypeError, match="to_spec .*UNCONSTRAINED.*; expected names of mesh axes"):
        plait.redistribute(x, P(P.UNCONSTRAINED))
    with pytest.raises(TypeError, match="to_spec is str"):
        plait.redistribute(x, "a")
    with pytest.raises(ValueError, match="sum: axis 2 is out of bounds"):
        plait.sum(x, axis=2)
    with pytest.raises(TypeError, match="sum: axis is 'x'; expected integers"):
        plait.sum(x, axis="x")
    inside = jax.shard_map(plait.sum, mesh=mesh, in_specs=P("a"), out_specs=P())
    with pytest.raises(TypeError, match="call it outside jax.shard_map"):
        jax.jit(inside)(x)


# ---- dealt out in blocks ---------------------------------------------------------------------


def dealt(n, n_parts, block):
    """The place of each of n indices, and the number of places."""
    i = np.arange(n)
    k = i // block
    each = -(-n // (n_parts * block)) * block
    return (k % n_parts) * each + k // n_parts * block + i % block, n_parts * each


def deal(a, axis, n_parts, block):
    """The oracle: one axis of a dealt out, with zeros between."""
    places, n = dealt(a.shape[axis], n_parts, block)
    x = np.moveaxis(a, axis, 0)
    y = np.zeros((n, *x.shape[1:]), a.dtype)
    y[places] = x
    return np.moveaxis(y, 0, axis)


@pytest.mark.parametrize(
    "block,n_parts,columns,kind",
    pairwise([1, 2, 5, 64], [1, 2, 3, 8], ["1", "2", "P-1", "P", "P+1", "33", "100"], KINDS),
)
def test_blocks_there_and_back(block, n_parts, columns, kind):
    mesh = meshes.make((n_parts,), kind)
    near = {"P-1": n_parts - 1, "P": n_parts, "P+1": n_parts + 1}
    n = near[columns] if columns in near else int(columns)  # on one device also no columns
    a = meshes.random((3, n))
    x = meshes.put(a, mesh)
    y = plait.redistribute(x, P(None, "a"), block=block)
    assert np.array_equal(y, deal(a, 1, n_parts, block))
    z = plait.redistribute(y, P(), from_block=block, shape=a.shape, spec=P(None, "a"))
    assert np.array_equal(z, a)
    other = plait.redistribute(
        y, P(None, "a"), from_block=block, block=3, shape=a.shape, spec=P(None, "a")
    )
    assert np.array_equal(other, deal(a, 1, n_parts, 3))


def test_what_was_dealt_out_is_not_guessed():
    """In a trace on Auto axes nothing tells which axis was dealt out."""
    a, mesh = meshes.random((8, 8)), meshes.make((2,))
    dealt = plait.redistribute(meshes.put(a, mesh), P(None, "a"), block=1)

    def back(x, **given):
        return plait.redistribute(x, P(), from_block=1, shape=(8, 8), **given)

    told = {"mesh": mesh, "spec": P(None, "a")}
    assert np.array_equal(back(dealt), a)
    assert np.array_equal(jax.jit(lambda x: back(x, **told))(dealt), a)
    for jit in (jax.jit, plait.jit):
        for given in ({}, {"mesh": mesh}):
            with pytest.raises(ValueError, match="redistribute: .* Auto axes; pass spec="):
                jit(lambda x, given=given: back(x, **given))(dealt)


def test_blocks_over_a_grid():
    mesh = meshes.make((2, 4))
    a = meshes.random((13, 22))
    y = plait.redistribute(meshes.put(a, mesh), P("a", "b"), block=3)
    assert np.array_equal(y, deal(deal(a, 0, 2, 3), 1, 4, 3))
    y = plait.redistribute(meshes.put(a, mesh), P(None, ("a", "b")), block=2)
    assert np.array_equal(y, deal(a, 1, 8, 2))


@pytest.mark.parametrize("shape", [(3, 1), (1, 1)])
def test_blocks_along_an_axis_of_one_device(shape):
    """The result is padded along such an axis, and records that for the way back."""
    a, mesh = meshes.random((8, 3)), meshes.make(shape)
    y = plait.redistribute(meshes.put(a, mesh), P("a", "b"), block=2)
    assert np.array_equal(y, deal(deal(a, 0, shape[0], 2), 1, 1, 2))
    assert y.sharding.spec == P("a", "b")
    assert np.array_equal(plait.redistribute(y, P(), from_block=2, shape=a.shape), a)


def test_blocks_derivatives_and_vmap():
    mesh = meshes.make((4,))
    a, v = meshes.random((3, 22)), meshes.random((3, 24), seed=1)
    x, w = meshes.put(a, mesh), meshes.put(v, mesh, P(None, "a"))
    f = functools.partial(plait.redistribute, to_spec=P(None, "a"), block=3, spec=P())
    g = jax.jit(jax.grad(lambda x: jnp.sum(f(x) * w)))(x)
    places, _ = dealt(22, 4, 3)
    assert np.array_equal(g, v[:, places])
    y, d = jax.jvp(f, (x,), (2 * x,))
    assert np.array_equal(d, 2 * np.asarray(y))
    b = meshes.random((2, 3, 22))
    got = jax.jit(jax.vmap(f))(meshes.put(b, mesh))
    assert np.array_equal(got, [deal(m, 1, 4, 3) for m in b])


def test_blocks_refused():
    mesh = meshes.make((4,))
    x = meshes.put(np.zeros((3, 24)), mesh, P(None, "a"))
    with pytest.raises(ValueError, match="block is 0; expected 1 or more"):
        plait.redistribute(x, P(None, "a"), block=0)
    with pytest.raises(TypeError, match=r"from_block is 1.5; expected an integer"):
        plait.redistribute(x, P(None, "a"), from_block=1.5)
    with pytest.raises(ValueError, match=r"blocks of 5, has extents \(3, 40\).*has \(3, 24\)"):
        plait.redistribute(x, P(), from_block=5)


IN_TURN = {
    "redistribute": lambda x, mesh: plait.redistribute(x, P(None, "a"), mesh=mesh, spec=P("a")),
    "fft": lambda x, mesh: plait.fft.fftn(x, mesh=mesh, spec=P("a")).real,
    "inv": lambda x, mesh: plait.linalg.inv(x, mesh=mesh, spec=P("a")),
}


@pytest.mark.long
@pytest.mark.parametrize("name", IN_TURN)
def test_eager_gradients_on_one_mesh_after_another(name):
    """JAX takes a product's cotangent to be on the mesh for which it made the program."""
    weights, x, f = meshes.random((8, 8), seed=1), 8 * np.eye(8), IN_TURN[name]

    def slope(shape):
        mesh = meshes.make(shape)
        put = meshes.put(x, mesh, P("a"))
        return np.asarray(jax.grad(lambda x: jnp.sum(weights * f(x, mesh)))(put))

    shapes = ((4,), (2,), (1,), (8,), *[(4, 2)] * (name == "redistribute"))
    slopes = {shape: slope(shape) for shape in shapes}
    for shape, found in slopes.items():
        jax.clear_caches()
        assert np.array_equal(found, slope(shape)), shape
