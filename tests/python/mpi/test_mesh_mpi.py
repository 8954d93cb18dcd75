"""The mesh model on any number of processes with one device each; shapes are multiples of it."""

import os

import beside
import cases
import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import platforms
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from pairwise import pairwise
from plait.compat import jaxmg
from spread import check_gradient, put, same

KINDS = [AxisType.Auto, AxisType.Explicit]


@pytest.fixture(params=KINDS)
def mesh(request):
    return meshes.make((jax.device_count(),), request.param)


def test_fft(mesh):
    n = jax.device_count()
    a = meshes.random((4 * n, 4 * n, 6), "complex128")
    x = put(a, mesh, P("a"))
    y = plait.fft.pfft3d(x)
    same(y, oracle.fft(a, -1, "backward", (0, 1, 2)))
    same(plait.fft.pifft3d(y), a)
    same(plait.jit(lambda v: plait.fft.pifft3d(plait.fft.pfft3d(v) * 2))(x), 2 * a)
    same(plait.fft.pfft3d(x, layout="natural"), np.fft.fftn(a))


def test_beside_collectives_of_xla():
    beside.check([0, 1], meshes.make((jax.device_count(),)), 5)


def shown_mappings():
    """Number of mappings in this process of work memory that ranks show each other."""
    with open("/proc/self/maps") as file:
        return sum("/memfd:plait-work" in line for line in file)


@pytest.mark.parametrize("shape", [(12, 24, 6), (96, 96, 72)])  # the second shape uses huge pages
def test_peers_read_work_memory_where_it_is(shape, world):
    n, mesh = jax.device_count(), meshes.make((jax.device_count(),))
    a = meshes.random((n * shape[0], n * shape[1], shape[2]), "complex128")
    for layout in ("transposed", "natural"):
        y = plait.fft.pfft3d(put(a, mesh, P("a")), layout=layout)
        same(y, np.fft.fftn(a), 1e-14 * np.sqrt(a.size))
    reads_alone = os.environ.get("PLAIT_DIRECT") == "read"
    is_read = platforms.CHOSEN == "cpu" and plait.config.transpose_comm_backend in ("auto", "NODE")
    if n > 1 and is_read and plait.Comm(world).direct.startswith("on") and not reads_alone:
        assert shown_mappings() >= n


@pytest.mark.parametrize("per", [4, 3, 1])  # number of points: n * n * per
def test_fft_of_one_axis(mesh, per):
    n = jax.device_count()
    a = meshes.random((n * n * per,), "complex128")
    x = put(a, mesh, P("a"))
    y = plait.fft.fftn(x)
    same(y, np.fft.fft(a))
    assert y.sharding.is_equivalent_to(x.sharding, 1)
    same(plait.jit(lambda v: plait.fft.ifftn(plait.fft.fftn(v)))(x), a)
    (back,) = jax.linear_transpose(plait.fft.fftn, x)(y)
    same(back, np.fft.fft(np.fft.fft(a)), 1e-10)


def test_cosines_and_walls(mesh):
    n = jax.device_count()
    a = meshes.random((4 * n, 3 * n, 5))
    x = put(a, mesh, P("a"))
    same(plait.fft.dctn(x), oracle.dctn(a), 1e-12)
    same(plait.jit(lambda v: plait.fft.idstn(plait.fft.dstn(v, 4), 4))(x), a, 1e-12)
    ends = ("dirichlet", "periodic", "neumann")
    want = oracle.poisson(a, (0.5, 1.0, 2.0), (0, 1, 2), ends)
    same(plait.fft.poisson(x, spacing=(0.5, 1.0, 2.0), ends=ends), want, 1e-10)


def test_redistribute_sum_halo(mesh):
    n = jax.device_count()
    a = meshes.random((4 * n, 3 * n, n))
    x = put(a, mesh, P("a"))
    for to in (P(None, "a"), P(), P("a"), P(None, None, "a")):
        same(plait.redistribute(x, to), a, 0)
    assert np.allclose(plait.sum(x).addressable_data(0), a.sum())


def test_columns_dealt_out(mesh):
    n = jax.device_count()
    a = meshes.random((4 * n * n, 4 * n * n))
    x = put(a, mesh, P(None, "a"))
    want = np.asarray(jaxmg.manual_cyclic_1d_layout(jnp.asarray(a), 4, n))
    y = jaxmg.cyclic_1d_layout(x, 4)
    same(y, want, 0)
    same(jaxmg.undo_cyclic_1d_layout(y, 4), a, 0)
    local = jax.shard_map(
        lambda part: jaxmg.cyclic_1d_no_shardmap(part, 4, n, "a"),
        mesh=mesh,
        in_specs=P(None, "a"),
        out_specs=P(None, "a"),
    )
    same(plait.jit(local)(x), want, 0)
    z = plait.redistribute(x, P("a"), block=3)  # 4 n² rows, which 3 n does not divide
    rows = np.arange(len(a))
    each = -(-len(a) // (3 * n)) * 3
    dealt = np.zeros((n * each, len(a)))
    dealt[rows // 3 % n * each + rows // 3 // n * 3 + rows % 3] = a
    same(z, dealt, 0)
    same(plait.redistribute(z, P(None, "a"), from_block=3, shape=a.shape, spec=P("a")), a, 0)


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(
    "boundary,width,short,kind",  # short: cells missing from the last part's four planes
    pairwise(
        ["periodic", "zero", "edge", "reflect"],
        [(1, 2, 0), ((2, 1), 0, 9), (6, 1, 1)],
        [0, 3],
        KINDS,
    ),
)
def test_halo(boundary, width, short, kind):
    """Widths up to beyond the neighbour; the last part may have fewer cells, or none."""
    n = jax.device_count()
    mesh = meshes.make((n,), kind)
    shape = (4 * n - short, 3, n)
    given = {"boundary": boundary, "shape": shape, "spec": P("a")}
    pairs = [(w, w) if isinstance(w, int) else w for w in width]
    args = ((n, 1, 1), pairs, (boundary,) * 3, shape)
    a = np.round(meshes.random((4 * n, 3, n)) * 8)
    padded = oracle.halo_pad(a, *args)
    same(plait.halo.pad(put(a, mesh, P("a")), width, **given), padded, 0)
    dirty = np.round(meshes.random(padded.shape, seed=1) * 8)
    y = put(dirty, mesh, P("a"))
    same(plait.halo.exchange(y, width, **given), oracle.halo_exchange(dirty, *args), 0)
    same(plait.halo.fold(y, width, **given), oracle.halo_fold(dirty, *args), 0)
    same(plait.halo.reduce(y, width, **given), oracle.halo_reduce(dirty, *args), 0)
    inner = oracle.halo_unpad(dirty, args[0], pairs, shape)
    same(plait.halo.unpad(y, width, shape=shape), inner, 0)
    cut = plait.jit(lambda v: plait.halo.unpad(v, width, shape=shape, spec=P("a")))
    same(cut(y), inner, 0)


def test_halo_over_two_axes():
    """Corners come from diagonal neighbours, and half of the processes have no cells."""
    n = jax.device_count()
    grid = (2, n // 2) if n % 2 == 0 else (1, n)
    mesh, width, shape = meshes.make(grid), ((3, 1), (1, 2)), (2, grid[1])
    boundary = ("reflect", "periodic")
    given = {"boundary": boundary, "shape": shape, "spec": P("a", "b")}
    a = np.round(meshes.random((4, 2 * grid[1])) * 8)
    padded = oracle.halo_pad(a, grid, width, boundary, shape)
    x = put(a, mesh, P("a", "b"))
    same(plait.halo.pad(x, width, **given), padded, 0)

    def loss(v):
        y = plait.halo.pad(v, width, **given)
        return plait.sum(y**2, spec=P("a", "b")) / 2

    folded = oracle.halo_fold(padded, grid, width, boundary, shape)
    same(plait.jit(jax.grad(loss))(x), folded, 0)


@pytest.mark.long(keep=1)
def test_gradient(mesh):
    n = jax.device_count()
    check_gradient(mesh, P("a"), (2 * n, 2 * n, 2), (1, 0, 0))


def test_manual_region(mesh):
    n = jax.device_count()
    x = put(np.arange(2.0 * n), mesh, P("a"))

    def f(v):
        return plait.allreduce(v, plait.SUM, comm="a")

    y = plait.jit(jax.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=P()))(x)
    same(y, np.arange(2.0 * n).reshape(n, 2).sum(0))


@pytest.mark.parametrize("axes", ["a", "b", ("b", "a")])
def test_groups_of_processes(axes):
    """A communicator along some axes of the mesh: one number, several groups of processes."""
    n = jax.device_count()
    shape = (2, n // 2) if n % 2 == 0 else (n, 1)
    mesh = meshes.make(shape)
    names = (axes,) if isinstance(axes, str) else axes
    size = int(np.prod([mesh.shape[a] for a in names]))
    chosen = {c.name: c for c in cases.movements(size) + cases.reductions(size, ["SUM"])}
    if meshes.ENDS_OVER_EMPTY:
        chosen = {k: c for k, c in chosen.items() if 0 not in c.shape(0)}
    whole = {k: meshes.random((*shape, *c.shape(0)), seed=3) for k, c in chosen.items()}

    def f(xs):
        ys = {k: chosen[k].call(x[0, 0], axes) for k, x in xs.items()}
        return jax.tree.map(lambda y: y[None, None], ys)

    split = P("a", "b")
    g = plait.jit(jax.shard_map(f, mesh=mesh, in_specs=split, out_specs=split))
    got = g({k: put(x, mesh, split) for k, x in whole.items()})
    me = np.unravel_index(jax.process_index(), shape)
    rank = int(
        np.ravel_multi_index([me["ab".index(a)] for a in names], [mesh.shape[a] for a in names])
    )
    for name, case in chosen.items():
        xs = []
        for r in range(size):
            place = list(me)
            for a, i in zip(
                names, np.unravel_index(r, [mesh.shape[a] for a in names]), strict=True
            ):
                place["ab".index(a)] = i
            xs.append(whole[name][tuple(place)])
        cases.same(got[name].addressable_data(0)[0, 0], case.want(xs)[rank], "float64", size)


def test_a_process_without_devices_of_the_mesh(world):
    """As in JAX, the process may run the program, and has no part of the results."""
    some = jax.devices()[: max(1, jax.device_count() - 1)]
    mesh = jax.sharding.Mesh(np.array(some), ("a",))
    n = len(some)
    a = meshes.random((2 * n, 2 * n, 3), "complex64")
    where = jax.sharding.NamedSharding(mesh, P("a"))
    x = jax.make_array_from_callback(a.shape, where, lambda i: a[i], dtype=a.dtype)
    y = plait.jit(lambda v: plait.fft.pifft3d(plait.fft.pfft3d(v, mesh=mesh), mesh=mesh))(x)
    total = plait.sum(x, mesh=mesh)
    parts = y.addressable_shards
    assert len(parts) == sum(d.process_index == jax.process_index() for d in some)
    for shard in parts:
        assert np.allclose(shard.data, a[shard.index], atol=1e-5)
    for shard in total.addressable_shards:
        assert np.allclose(shard.data, a.sum(), rtol=1e-4)
    every = meshes.make((jax.device_count(),))  # communicator numbers agree afterwards
    b = meshes.random((jax.device_count(), 4))
    assert np.allclose(plait.sum(put(b, every, P("a"))).addressable_data(0), b.sum())
