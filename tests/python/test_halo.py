"""Ghost cells and their adjoints against numpy.pad of the whole array."""

import itertools

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P
from pairwise import pairwise
from plait import _core

BOUNDARIES = ("periodic", "zero", "edge", "reflect")
KINDS = [AxisType.Auto, AxisType.Explicit]


def pairs(width):
    return [(w, w) if isinstance(w, int) else w for w in width]


def split(array, parts):
    """The parts of a global array, by place."""
    cuts = [np.split(np.arange(n), k) for n, k in zip(array.shape, parts, strict=True)]
    return {
        place: array[np.ix_(*[c[p] for c, p in zip(cuts, place, strict=True)])]
        for place in np.ndindex(*parts)
    }


def everything(case, x, dirty, spec=None):
    """All five operations, on an array and on a padded array with arbitrary ghosts."""
    given = {"boundary": case.boundary, "shape": case.shape, "spec": spec}
    return {
        "pad": plait.halo.pad(x, case.width, **given),
        "exchange": plait.halo.exchange(dirty, case.width, **given),
        "fold": plait.halo.fold(dirty, case.width, **given),
        "reduce": plait.halo.reduce(dirty, case.width, **given),
        "unpad": plait.halo.unpad(dirty, case.width, shape=case.shape, spec=spec),
    }


class Case:
    """Arguments of a test, and the results of NumPy."""

    def __init__(self, parts, width, boundary, shape=None):
        self.parts, self.width, self.shape = parts, width, shape
        words = (boundary,) * len(parts) if isinstance(boundary, str) else boundary
        self.boundary = boundary
        self.given = (parts, pairs(width), words, shape)

    def want(self, x, dirty):
        return {
            "pad": oracle.halo_pad(x, *self.given),
            "exchange": oracle.halo_exchange(dirty, *self.given),
            "fold": oracle.halo_fold(dirty, *self.given),
            "reduce": oracle.halo_reduce(dirty, *self.given),
            "unpad": oracle.halo_unpad(dirty, self.parts, pairs(self.width), self.shape),
        }

    def check(self, mesh, spec, size, seed=0):
        """Compare every operation with NumPy, on integers, so that sums are exact."""
        x = np.round(meshes.random(size, seed=seed) * 8)
        rooms = zip(size, self.parts, pairs(self.width), strict=True)
        dirty = [n + (lo + hi) * k for n, k, (lo, hi) in rooms]
        dirty = np.round(meshes.random(dirty, seed=seed + 1) * 8)
        where = spec if mesh.size > 1 else P()
        run = jax.jit(lambda x, y: everything(self, x, y, where))
        with jax.set_mesh(mesh):
            found = run(meshes.put(x, mesh, where), meshes.put(dirty, mesh, where))
        for name, want in self.want(x, dirty).items():
            np.testing.assert_array_equal(found[name], want, err_msg=name)


@pytest.mark.parametrize(
    "shape,width,boundary,kind",
    pairwise(
        [(2,), (4,), (2, 2), (2, 4)],
        [(0, 0), (1, 2), ((0, 3), (1, 0)), (9, (2, 13))],
        BOUNDARIES,
        KINDS,
    ),
)
def test_as_numpy(shape, width, boundary, kind):
    parts = (*shape, 1)[:2]
    spec = P(*meshes.NAMES[: len(shape)])
    Case(parts, width, boundary).check(meshes.make(shape, kind), spec, (8, 4))


@pytest.mark.parametrize("words", list(itertools.permutations(BOUNDARIES, 2))[::2])
def test_boundaries_differ_by_axis(words):
    """Corners beyond the ends of two axes follow the rules of both axes."""
    Case((2, 4), (3, (2, 1)), words).check(meshes.make((2, 4)), P("a", "b"), (4, 8))


UNEVEN = [
    ((12, 6), (11, 6)),  # one part is short
    ((12, 6), (9, 5)),  # and one has a single cell
    ((12, 6), (7, 2)),  # some have none
    ((4, 2), (2, 2)),  # more devices than cells
    ((4, 2), (1, 1)),
    ((4, 2), (0, 2)),
]


@pytest.mark.parametrize(
    "sizes,boundary,grid,kind", pairwise(UNEVEN, BOUNDARIES, [(4, 2), (4,)], KINDS)
)
def test_uneven(sizes, boundary, grid, kind):
    size, shape = sizes
    width = ((1, 3), 2) if len(grid) == 2 else (2, 0)
    case = Case((*grid, 1)[:2], width, boundary, shape)
    case.check(meshes.make(grid, kind), P(*meshes.NAMES[: len(grid)]), size)


def test_ghosts_lie_directly_around_the_data():
    """Seven cells over four devices: parts of 2, 2, 2, 1."""
    x = meshes.put(np.array([1.0, 2, 3, 4, 5, 6, 7, np.nan]), meshes.make((4,)), P("a"))
    y = plait.halo.pad(x, 1, boundary="edge", shape=(7,))
    want = [[1, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 7, 0]]
    assert np.asarray(y).reshape(4, 4).tolist() == want


def test_padding_and_ghosts_are_not_read():
    """NaN in all padding and ghosts leaves results as they were."""
    mesh, width, given = meshes.make((4,)), (2, 1), {"boundary": "reflect", "shape": (9, 3)}

    def put(a):
        return meshes.put(a, mesh, P("a"))

    a = meshes.random((12, 3))
    padded = plait.halo.pad(put(np.where(np.arange(12)[:, None] < 9, a, np.nan)), width, **given)
    assert np.array_equal(padded, plait.halo.pad(put(a), width, **given))
    assert np.isfinite(padded).all()
    _, embed = jax.vjp(lambda y: plait.halo.unpad(y, width, shape=(9, 3)), padded)
    is_cell = np.asarray(embed(put(np.ones((12, 3))))[0]) == 1
    assert is_cell.sum() == 27
    dirty = put(np.where(is_cell, padded, np.nan))
    assert np.array_equal(plait.halo.exchange(dirty, width, **given), padded)
    behind = np.asarray(padded).copy()
    behind[21:] = np.nan  # the last device has no cells
    for f in (plait.halo.fold, plait.halo.reduce):
        assert np.array_equal(f(put(behind), width, **given), f(padded, width, **given))


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_one_part(boundary):
    """Without a mesh, and of any number of axes."""
    mode = {"periodic": "wrap", "zero": "constant"}.get(boundary, boundary)
    a = meshes.random((5, 1, 6))
    for w in (0, 1, 3, 7, ((0, 1), (2, 0), (8, 9))):
        assert np.array_equal(plait.halo.pad(a, w, boundary=boundary), np.pad(a, w, mode=mode))


@pytest.mark.filterwarnings("error")
def test_without_64_bits():
    with jax.enable_x64(False):
        y = plait.halo.pad(jnp.arange(4.0), 1, boundary="edge", shape=(3,))
        assert y.dtype == np.float32 and y.tolist() == [0, 0, 1, 2, 2, 0]
        assert plait.halo.unpad(y, 1, shape=(3,)).tolist() == [0, 1, 2, 0]


def test_periodic_in_booleans():
    mesh = meshes.make((2,))
    x = meshes.put(meshes.random((4, 3)), mesh, P("a"))
    want = plait.halo.pad(x, 1, boundary=("periodic", "zero"))
    assert np.array_equal(plait.halo.pad(x, 1, periodic=(True, False)), want)
    for flags, width in ((np.array([True, False]), 1), ((True, False), np.ones((2, 2), int))):
        assert np.array_equal(plait.halo.pad(x, width, periodic=flags), want)
    assert np.array_equal(plait.halo.exchange(want, 1, periodic=(True, False)), want)
    assert np.array_equal(
        plait.halo.reduce(want, 1, periodic=False), plait.halo.reduce(want, 1, boundary="zero")
    )


# ---- adjoints ------------------------------------------------------------------------------------


ADJOINT = {"pad": "fold", "fold": "pad", "exchange": "reduce", "reduce": "exchange"}


@pytest.mark.parametrize("name", ADJOINT)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_adjoint_identity(name, boundary):
    mesh = meshes.make((2, 2))
    given = {"boundary": boundary, "shape": (7, 6), "spec": P("a", "b")}
    width = ((1, 2), (3, 0))

    def f(v):
        return getattr(plait.halo, name)(v, width, **given)

    def adjoint(c):
        return getattr(plait.halo, ADJOINT[name])(c, width, **given)

    x = meshes.random((8, 6) if name == "pad" else (14, 12))
    x = meshes.put(x, mesh, P("a", "b"))
    y = f(x)
    c = meshes.put(meshes.random(y.shape, seed=1), mesh, P("a", "b"))
    [back] = jax.jit(lambda c: jax.linear_transpose(f, x)(c))(c)
    assert np.array_equal(back, adjoint(c))
    assert np.allclose(np.vdot(c, y), np.vdot(back, x), rtol=1e-12)
    again = jax.jit(
        lambda v: jax.linear_transpose(lambda c: jax.linear_transpose(f, x)(c)[0], c)(v)[0]
    )(x)
    assert np.array_equal(again, y)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_fold_of_pad_counts_copies(boundary):
    mode = {"periodic": "wrap", "zero": "constant"}.get(boundary, boundary)
    mesh = meshes.make((4,))
    n, width = 8, (3, 5)
    x = meshes.put(np.ones(n), mesh, P("a"))
    counts = plait.halo.fold(
        plait.halo.pad(x, (width,), boundary=boundary), (width,), boundary=boundary
    )
    whole = np.pad(np.arange(1, n + 1), width, mode=mode)
    windows = [whole[p * 2 : p * 2 + 2 + sum(width)] for p in range(4)]
    want = np.bincount(np.concatenate(windows), minlength=n + 1)[1:]
    assert np.asarray(counts).tolist() == want.tolist()


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_gradient_of_a_smoothness_prior(boundary):
    """Value, gradient, jvp and Hessian-vector product of a nonlinear function."""
    mesh = meshes.make((2, 2))
    given = {"boundary": boundary, "shape": (4, 3, 2), "spec": P("a", "b")}
    width = (1, (2, 0), 0)

    def energy(pad, total):
        return lambda v: total(jnp.sin(pad(v)) ** 3)

    ours = energy(lambda v: plait.halo.pad(v, width, **given), plait.sum)
    a, d = (meshes.random((4, 4, 2), seed=s) for s in (0, 2))
    index = np.arange(1, 33).reshape(4, 4, 2)
    words = (boundary,) * 3
    index = oracle.halo_pad(index, (2, 2, 1), pairs(width), words, (4, 3, 2))
    theirs = energy(lambda v: jnp.where(index > 0, v.reshape(-1)[index - 1], 0), jnp.sum)
    x, t = (meshes.put(v, mesh, P("a", "b")) for v in (a, d))

    def both(f, v, t):
        grad = jax.grad(f)
        return f(v), grad(v), jax.jvp(f, (v,), (t,))[1], jax.jvp(grad, (v,), (t,))[1]

    got = plait.jit(lambda v, t: both(ours, v, t))(x, t)
    want = jax.jit(lambda v, t: both(theirs, v, t))(a, d)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-11, atol=1e-12)
    assert meshes.xla_collectives(jax.grad(ours), x) == []


def test_truth_of_the_peers_example():
    g = jax.grad(lambda v: jnp.sum(plait.halo.exchange(v, 2)))(jnp.zeros(10))
    assert g.tolist() == [0, 0, 2, 2, 1, 1, 2, 2, 0, 0]


# ---- transformations, dtypes, memory ------------------------------------------------------------


@pytest.mark.parametrize("name", ADJOINT)
def test_vmap_at_any_depth_is_one_exchange(name):
    mesh = meshes.make((2,))
    given = {"boundary": "reflect", "shape": (7, 2), "spec": P("a")}
    size = (8, 2) if name == "pad" else (14, 2)
    whole = meshes.random((3, *size, 2))

    def f(v):
        return getattr(plait.halo, name)(v, ((1, 2), 0), **given)

    stack = plait.jit(jax.vmap(jax.vmap(f, in_axes=2, out_axes=2)))
    x = meshes.put(whole, mesh, P(None, "a"))
    args = ((2, 1), [(1, 2), (0, 0)], ("reflect",) * 2, (7, 2))
    want = [[getattr(oracle, "halo_" + name)(v[..., i], *args) for i in range(2)] for v in whole]
    np.testing.assert_allclose(stack(x), np.moveaxis(want, 1, -1), rtol=1e-14)
    _core.trace_start(True)
    plait.block(stack(x))
    assert len(_core.trace()) == 2  # one for each device
    _core.trace_start(False)


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("dtype", list(_core.dtypes()))
def test_dtypes(dtype):
    """Every dtype moves; dtypes with addition are folded, exactly for small integers."""
    mesh = meshes.make((4,))
    case = Case((4, 1), ((2, 1), 1), "edge")
    a = meshes.random((8, 3), "int8").astype("float32") % 4
    x = meshes.put(jnp.asarray(a).astype(dtype), mesh, P("a"))
    given = {"boundary": "edge"}
    y = plait.halo.pad(x, case.width, **given)
    assert np.asarray(y).tobytes() == oracle.halo_pad(np.asarray(x), *case.given).tobytes()
    if not _core.reduce_is_defined(plait.SUM.code, dtype):
        with pytest.raises(TypeError, match=f"halo.fold: {dtype} cannot be added"):
            plait.halo.fold(y, case.width, **given)
        with pytest.raises(TypeError, match=f"halo.reduce: {dtype} cannot be added"):
            plait.halo.reduce(y, case.width, **given)
        return
    sums = plait.halo.fold(y, case.width, **given)
    assert sums.dtype == x.dtype
    exact = oracle.halo_fold(np.asarray(y).astype("complex128"), *case.given)
    assert np.array_equal(np.asarray(sums).astype("complex128"), exact)


def test_complex_adjoint_does_not_conjugate():
    _, pull = jax.vjp(lambda v: plait.halo.pad(v, 1), jnp.array([1 + 2j, 3 - 1j]))
    assert pull(jnp.array([1j, 2, 3, 4j]))[0].tolist() == [2 + 4j, 3 + 1j]


def test_donated_operand_gives_its_memory():
    x = meshes.put(meshes.random((12, 5)), meshes.make((2,)), P("a"))
    x = x + 1  # XLA's own memory: NumPy's cannot be donated
    given = {"boundary": "reflect"}
    want = np.asarray(plait.halo.exchange(x, (1, 0), **given))
    where = {s.device: s.data.unsafe_buffer_pointer() for s in x.addressable_shards}
    got = plait.halo.exchange(x, (1, 0), donate=True, **given)
    assert x.is_deleted()
    assert np.array_equal(got, want)
    assert where == {s.device: s.data.unsafe_buffer_pointer() for s in got.addressable_shards}
    want = np.asarray(plait.halo.reduce(got, (1, 0), **given))
    got = got + 0  # JAX 0.11.2 keeps the memory that NumPy has seen
    where = {s.device: s.data.unsafe_buffer_pointer() for s in got.addressable_shards}
    back = plait.halo.reduce(got, (1, 0), donate=True, **given)
    assert where == {s.device: s.data.unsafe_buffer_pointer() for s in back.addressable_shards}
    assert np.array_equal(back, want)


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given,error,text",
    [
        ({"width": (1, 0, 0)}, ValueError, "width has 3 entries for 2 axes"),
        ({"width": -1}, ValueError, "width -1 is negative"),
        ({"width": ((0, -2), 0)}, ValueError, r"width \(\(0, -2\), 0\) is negative"),
        ({"width": 0.5}, TypeError, "width is 0.5; expected integers, or pairs"),
        ({"width": ((1, 2, 3), 0)}, TypeError, "expected integers, or pairs"),
        ({"boundary": "wrap"}, ValueError, "boundary is 'wrap'; expected periodic, zero, edge"),
        ({"boundary": ("edge",)}, ValueError, "boundary has 1 entries for 2 axes"),
        ({"boundary": ("edge", 0)}, ValueError, "boundary is 0; expected"),
        ({"boundary": "edge", "periodic": True}, ValueError, "boundary and periodic say the same"),
        ({"periodic": (True,) * 3}, ValueError, "periodic has 3 entries for 2 axes"),
        ({"periodic": "no"}, TypeError, r"periodic is \('no', 'no'\); expected True or False"),
        ({"periodic": (True, None)}, TypeError, r"periodic is \(True, None\); expected"),
        ({"shape": (8,)}, ValueError, "has 1 entries for 2 axes"),
        ({"shape": (99, 1)}, ValueError, "says 99 along axis 0, where the array has"),
        ({"spec": P("z")}, ValueError, "'z' of the spec is no axis of the mesh"),
    ],
)
@pytest.mark.parametrize("name", ["pad", "exchange", "reduce"])
def test_bad_input(name, given, error, text):
    x = meshes.put(np.zeros((16, 6)), meshes.make((4,)), P("a"))
    given = {"width": 1} | given
    with pytest.raises(error, match=text) as found:
        getattr(plait.halo, name)(x, **given)
    assert str(found.value).startswith(f"halo.{name}: ")


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("name", [*ADJOINT, "unpad"])
def test_a_trace_on_auto_axes_must_be_told_the_split(name):
    """Another split is another result, and the order of the mesh does not tell the split."""
    mesh = meshes.make((2, 2))
    a = np.round(meshes.random((8, 8)) * 8)

    def f(v, **given):
        return getattr(plait.halo, name)(v, 1, **given)

    for spec in (P("a"), P("b", "a"), P(None, "b")):
        x = meshes.put(a, mesh, spec)
        told = plait.jit(lambda v, spec=spec: f(v, mesh=mesh, spec=spec))(x)
        assert np.array_equal(told, f(x)), spec
        with pytest.raises(ValueError, match=rf"halo.{name}: .* Auto axes; pass spec="):
            plait.jit(lambda v: f(v, mesh=mesh))(x)
        with (
            jax.set_mesh(mesh),
            pytest.raises(ValueError, match=r"\(in the order of the mesh's axes .*'b'"),
        ):
            jax.jit(f)(x)
    assert jax.jit(lambda v: f(v, mesh=meshes.make((1, 1))))(a).shape == f(a).shape


@pytest.mark.parametrize("name", [*ADJOINT, "unpad"])
def test_auto_axes_beside_explicit_ones(name):
    """The type of a traced array does not tell the Auto axes."""
    kinds = (AxisType.Auto, AxisType.Explicit)
    mesh = Mesh(meshes.make((2, 2)).devices, ("a", "b"), axis_types=kinds)
    x = meshes.put(np.round(meshes.random((8, 8)) * 8), mesh, P("a", "b"))

    def f(v, **given):
        return getattr(plait.halo, name)(v, 1, **given)

    want = f(meshes.put(np.asarray(x), meshes.make((2, 2)), P("a", "b")))
    assert np.array_equal(f(x), want)
    assert np.array_equal(jax.jit(lambda v: f(v, spec=P("a", "b")))(x), want)
    with pytest.raises(ValueError, match=rf"halo.{name}: .* Auto axes; pass spec="):
        jax.jit(f)(x)


@pytest.mark.parametrize("name", ["exchange", "reduce", "fold", "unpad"])
def test_ghosts_that_do_not_fit(name):
    x = meshes.put(np.zeros((8, 6)), meshes.make((4,)), P("a"))
    with pytest.raises(ValueError, match=r"axis 0 has 2 cells on each device, .* ghosts 1 \+ 2"):
        getattr(plait.halo, name)(x, ((1, 2), 0))


@pytest.mark.parametrize("name", ["exchange", "reduce"])
def test_nothing_but_ghosts(name):
    x = meshes.put(np.ones((12, 6)), meshes.make((4,)), P("a"))
    with pytest.raises(ValueError, match=r"has 3 cells on each device, none besides .* 1 \+ 2"):
        getattr(plait.halo, name)(x, ((1, 2), 0))


def test_size_that_the_mesh_does_not_divide():
    with pytest.raises(ValueError, match="axis 0 has 7 elements, which 4 devices .* shape="):
        plait.halo.pad(np.zeros(7), 1, mesh=meshes.make((4,)), spec=P("a"))
