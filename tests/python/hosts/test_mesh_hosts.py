"""The mesh model on processes of several devices each; axes cross processes in any way."""

import functools
import pathlib
import time

import beside
import cases
import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _comm, _core
from plait.compat import jaxmg
from spread import check_gradient, put, same, whole

N = jax.device_count()
N_PROCESSES = jax.process_count()
N_HERE = N // N_PROCESSES
HERE = jax.process_index()

# "rows": rows are processes; "halves": rows are parts of processes, or cross several; "columns":
# columns are processes; "line": by process; "mixed line": neighbours are of different processes.
GRIDS = {
    "rows": np.arange(N).reshape(N_PROCESSES, N_HERE),
    "halves": np.arange(N).reshape(N_HERE, N_PROCESSES),
    "columns": np.arange(N).reshape(N_PROCESSES, N_HERE).T,
    "line": np.arange(N),
    "mixed line": np.arange(N).reshape(N_PROCESSES, N_HERE).T.ravel(),
}


def make(grid, kind=AxisType.Auto):
    devices = np.array(jax.devices())[grid]
    return Mesh(devices, tuple("ab"[: grid.ndim]), axis_types=(kind,) * grid.ndim)


@pytest.fixture(params=GRIDS)
def mesh(request):
    return make(GRIDS[request.param])


@pytest.fixture(params=[name for name, grid in GRIDS.items() if grid.ndim == 2])
def plane(request):
    return make(GRIDS[request.param])


def test_beside_collectives_of_xla():
    beside.check([0, 1], make(GRIDS["line"]), 5)


def pairs(mesh):
    """Splits before and after: over all axes, over some, over none."""
    if len(mesh.axis_names) == 1:
        every = [P("a"), P(None, "a"), P(None, None, "a"), P()]
    else:
        every = [P("a", "b"), P(None, ("b", "a")), P("b", None, "a"), P("a"), P(None, "a"), P("b")]
        every += [P(None, None, "b"), P()]
    return [(a, b) for i, a in enumerate(every) for b in every[i % 3 :: 3] if a != b]


def test_redistribute(mesh):
    a = meshes.random((N, N, 2 * N))
    for src, dst in pairs(mesh):
        same(plait.redistribute(put(a, mesh, src), dst), a, 0)


def test_no_collectives_of_xla(plane):
    a = meshes.random((N, N))
    for src, dst in ((P("a", "b"), P("b", "a")), (P("a"), P(None, "a")), (P("b"), P())):
        f = functools.partial(plait.redistribute, to_spec=dst, mesh=plane, spec=src)
        x = put(a, plane, src)
        same(plait.jit(f)(x), a, 0)
        assert meshes.xla_collectives(f, x) == []


def test_sizes_that_the_mesh_does_not_divide(mesh):
    a = np.zeros((2 * N, 3 * N))
    a[: 2 * N - 3, : 2 * N + 1] = meshes.random((2 * N - 3, 2 * N + 1))
    shape, dst = (2 * N - 3, 2 * N + 1), P(None, mesh.axis_names)
    y = plait.redistribute(put(a, mesh, P("a")), dst, shape=shape)
    want = np.zeros(y.shape)
    want[: 2 * N - 3, : 2 * N + 1] = a[: shape[0], : shape[1]]
    same(y, want[: y.shape[0], : y.shape[1]], 0)


@pytest.mark.parametrize("n", [2, 40])  # for 40, other threads do the parts
def test_large_and_small_parts_by_turns(n):
    """Devices of one process run ahead of each other."""
    mesh = make(GRIDS["halves"])
    a, b = meshes.random((n * N, n * N, 3)), meshes.random((N, N), seed=1)

    def f(x, y):
        for _ in range(4):
            x = plait.redistribute(x, P(None, "a"), mesh=mesh, spec=P("a"))
            y = plait.redistribute(y, P(None, mesh.axis_names), mesh=mesh, spec=P("a"))
            x = plait.redistribute(x, P("a"), mesh=mesh, spec=P(None, "a")) * 2
            y = plait.redistribute(y, P("a"), mesh=mesh, spec=P(None, mesh.axis_names)) * 3
        return x, y

    x, y = plait.jit(f)(put(a, mesh, P("a")), put(b, mesh, P("a")))
    same(x, 16 * a, 0)
    same(y, 81 * b)


def test_fft_by_slabs(mesh):
    names = mesh.axis_names
    a = meshes.random((2 * N, N, 5), "complex128")
    x = put(a, mesh, P(names))
    y = plait.fft.pfft3d(x, spec=P(names))
    same(y, np.fft.fftn(a), 1e-10)
    same(plait.fft.pifft3d(y), a)

    def there_and_back(v):
        y = plait.fft.pfft3d(v, mesh=mesh, spec=P(names))
        return plait.fft.pifft3d(y * 2, mesh=mesh, spec=P(None, names))

    same(plait.jit(there_and_back)(x), 2 * a)


def test_fft_by_pencils(plane):
    a = meshes.random((N, 2 * N, N))
    x = put(a, plane, P("a", "b"))
    y = plait.fft.pfft3d(x)
    same(y, np.fft.fftn(a), 1e-10)
    same(jnp.real(plait.fft.pifft3d(y)), a)
    same(plait.fft.pfft3d(x, layout="natural"), np.fft.fftn(a), 1e-10)


def test_fft_of_what_is_whole_along_one_axis(plane):
    a = meshes.random((2 * N, N, 3), "complex128")
    for name in "ab":
        y = plait.fft.pfft3d(put(a, plane, P(name)), spec=P(name))
        same(y, np.fft.fftn(a), 1e-10)


@pytest.mark.parametrize(
    "name, boundary",
    [("rows", "periodic"), ("halves", "zero"), ("columns", "edge"), ("mixed line", "reflect")],
)
def test_halo(name, boundary):
    mesh = make(GRIDS[name])
    grid = (*mesh.devices.shape, 1)[:2]
    spec = P(*mesh.axis_names)
    width, shape = ((3, 1), (1, 2)), (4 * grid[0] - 1, 3 * grid[1])
    given = {"boundary": boundary, "shape": shape, "spec": spec}
    args = (grid, width, (boundary,) * 2, shape)
    a = np.round(meshes.random((4 * grid[0], 3 * grid[1])) * 8)
    padded = oracle.halo_pad(a, *args)
    same(plait.halo.pad(put(a, mesh, spec), width, **given), padded, 0)
    dirty = np.round(meshes.random(padded.shape, seed=1) * 8)
    y = put(dirty, mesh, spec)
    same(plait.halo.exchange(y, width, **given), oracle.halo_exchange(dirty, *args), 0)
    same(
        plait.jit(lambda v: plait.halo.fold(v, width, **given))(y),
        oracle.halo_fold(dirty, *args),
        0,
    )
    same(plait.halo.reduce(y, width, **given), oracle.halo_reduce(dirty, *args), 0)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_gradient(kind):
    check_gradient(make(GRIDS["rows"], kind), P("a", "b"), (2 * N, N, N), (1, 1, 0))


def ranks_of(place, shape, axes):
    """The places of a group's ranks in order, and the index of this place among them."""
    sizes = [shape["ab".index(a)] for a in axes]
    places = []
    for index in np.ndindex(*sizes):
        at = list(place)
        for a, i in zip(axes, index, strict=True):
            at["ab".index(a)] = i
        places.append(tuple(at))
    return places, places.index(tuple(place))


@pytest.mark.parametrize("axes", ["a", "b", ("b", "a")])
def test_collectives_along_axes(plane, axes):
    """Groups within a process, with one device of each process, and with several of some."""
    names, shape = tuple(axes), plane.devices.shape
    size = int(np.prod([plane.shape[a] for a in names]))
    chosen = {c.name: c for c in cases.movements(size) + cases.reductions(size, ["SUM", "MAX"])}
    whole = {k: meshes.random((*shape, *c.shape(0)), seed=3) for k, c in chosen.items()}

    def f(xs):
        ys = {k: chosen[k].call(x[0, 0], axes) for k, x in xs.items()}
        return jax.tree.map(lambda y: y[None, None], ys)

    split = P("a", "b")
    g = plait.jit(jax.shard_map(f, mesh=plane, in_specs=split, out_specs=split))
    got = g({k: put(x, plane, split) for k, x in whole.items()})
    for name, case in chosen.items():
        for shard in got[name].addressable_shards:
            place = [i.start or 0 for i in shard.index[:2]]
            places, rank = ranks_of(place, shape, names)
            want = case.want([whole[name][p] for p in places])[rank]
            cases.same(shard.data[0, 0], want, "float64", size)


def way_of(group):
    """The way in which the devices of a group should reach each other."""
    processes = {d.process_index for d in group}
    if len(processes) == 1:
        return {"local"}
    return {"node", "cluster", "mpi"} if len(processes) == len(group) else {"hosts"}


def test_what_groups_meet_by(plane, world):
    """Only groups of several processes need messages; numbers are the same on all processes."""
    split, numbers = P("a", "b"), []
    x = put(np.ones(plane.devices.shape), plane, split)
    for axes, devices in (("a", plane.devices.T), ("b", plane.devices), ("ab", plane.devices)):
        groups = devices.reshape(-1, N if axes == "ab" else devices.shape[1])
        f = jax.shard_map(
            functools.partial(plait.allreduce, op=plait.SUM, comm=tuple(axes)),
            mesh=plane,
            in_specs=split,
            out_specs=split,
        )
        same(plait.jit(f)(x), np.full(x.shape, float(groups.shape[1])))
        numbers.append(_comm.over_devices(tuple(map(tuple, groups))))
        own = next(g for g in groups if any(d.process_index == HERE for d in g))
        assert _core.comm_texts(numbers[-1])[0] in way_of(own)
    assert world.allgather(numbers) == [numbers] * N_PROCESSES


def test_devices_of_processes_in_unequal_numbers():
    """The last process takes part with one device, then not at all."""
    a = meshes.random((N, N))
    for n in (N - N_HERE + 1, N - 1):
        mesh = Mesh(np.array(jax.devices()[:n]), ("a",))
        whole = np.resize(a, (n, 2 * n))
        y = plait.redistribute(put(whole, mesh, P("a")), P(None, "a"))
        same(y, whole, 0)
        low = plait.linalg.cholesky(put(np.eye(2 * n) * 4, mesh, P(None, "a")), block=2).l
        same(plait.redistribute(low, P(), mesh=mesh), 2 * np.eye(2 * n))
    if HERE < N_PROCESSES - 1:
        n = N - N_HERE
        mesh = Mesh(np.array(jax.devices()[:n]), ("a",))
        same(
            plait.redistribute(put(np.resize(a, (n, n)), mesh, P("a")), P()),
            np.resize(a, (n, n)),
            0,
        )
    mesh = make(GRIDS["line"])  # communicator numbers continue from the same number everywhere
    same(plait.redistribute(put(a, mesh, P("a")), P()), a, 0)


# ---- linear algebra ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows", "halves", "mixed line"])
def test_linalg(name):
    mesh = make(GRIDS[name])
    n, names = 6 * N, mesh.axis_names
    a, g = matrices.definite(n), meshes.random((n, n), seed=1)
    b = meshes.random((n, 5), seed=2)
    x, z = put(a, mesh, P("a")), put(b, mesh, P(names))
    y = put(g, mesh, P(None, names))
    f = plait.linalg.cholesky(x, block=4)
    assert int(f.status.addressable_data(0)) == 0
    low = whole(f.l, mesh)
    matrices.check_product((low, low.conj().T), a, n)
    matrices.check_solution(a, whole(f.solve(z), mesh), b)
    matrices.check_solution(g, whole(plait.linalg.lu_solve(y, z, block=3), mesh), b)
    q, r = plait.linalg.qr(y, block=5)
    matrices.check_product((whole(q, mesh), whole(r, mesh)), g, n)


def test_eigh():
    mesh, n = make(GRIDS["rows"]), 4 * N
    a = matrices.definite(n)
    w, v = plait.linalg.eigh(put(a, mesh, P("a", "b")), block=3)
    v = whole(v, mesh)
    matrices.check_product((v * np.asarray(w.addressable_data(0)), v.conj().T), a, n)


def test_gradients_of_a_solution():
    plane, n = make(GRIDS["halves"]), 4 * N
    a, b = matrices.definite(n), meshes.random((n,), seed=1)

    def loss(x, y):
        f = plait.linalg.cholesky(x, mesh=plane, spec=P("a", "b"), block=3)
        return f.logdet() + plait.sum(y * f.solve(y, spec=P("a")), mesh=plane, spec=P("a"))

    x, y = put(a, plane, P("a", "b")), put(b, plane, P("a"))
    ga, gy = jax.jit(jax.grad(loss, (0, 1)))(x, y)
    z = np.linalg.solve(a, b)
    assert np.allclose(whole(ga, plane), np.linalg.inv(a) - np.outer(z, z))
    assert np.allclose(whole(gy, plane), 2 * z)


def test_failure_is_the_same_everywhere():
    mesh, n = make(GRIDS["rows"]), 4 * N
    a = np.eye(n)
    a[n - 2, n - 2] = -1
    f = plait.linalg.cholesky(put(a, mesh, P("a")), block=2)
    assert int(f.status.addressable_data(0)) == n - 1
    with pytest.raises(plait.LinAlgError, match=f"minor of order {n - 1}"):
        plait.linalg.cholesky(put(a, mesh, P("a")), block=2, check=True)


def test_columns_on_every_host():
    """JAXMg's example of several hosts: each host gets all columns, split over its devices."""
    mesh = Mesh(make(GRIDS["rows"]).devices, ("x", "y"))
    n, whole = 64 * N, P(None, None)
    a = np.diag(np.arange(1.0, n + 1))
    x = put(a, mesh, P(None, ("x", "y")))
    assert {shard.data.shape for shard in x.addressable_shards} == {(n, 64)}
    x = jax.jit(lambda v: v, out_shardings=NamedSharding(mesh, P(None, "y")))(x)
    assert {shard.data.shape for shard in x.addressable_shards} == {(n, n // N_HERE)}
    b = put(np.ones((n, 1)), mesh, whole)
    want = 1 / np.arange(1.0, n + 1)[:, None]
    given = {"T_A": 256, "mesh": mesh, "in_specs": (P(None, "y"), whole)}
    same(jaxmg.potrs(x, b, **given), want)
    out, status = jax.jit(lambda a, b: jaxmg.potrs(a, b, **given, return_status=True))(x, b)
    same(out, want)
    assert int(status.addressable_data(0)) == 0
    given["in_specs"] = (P(None, ("x", "y")), whole)  # without bringing all columns to every host
    same(jaxmg.potrs(put(a, mesh, P(None, ("x", "y"))), b, **given), want)


# ---- files ---------------------------------------------------------------------------------------


def test_files(world, tmp_path, mesh):
    path = pathlib.Path(world.bcast(str(tmp_path))) / "x.npy"
    a = meshes.random((N, 3 * N))
    x = put(a, mesh, P(None, mesh.axis_names))
    plait.save(path, x)
    assert np.array_equal(np.load(path), a)
    same(plait.load(path, NamedSharding(mesh, P("a"))), a, 0)
    assert np.array_equal(plait.gather_to_host(x), a)
    world.Barrier()


def test_programs_of_a_rank_on_several_devices_are_in_order(world):
    """Each device has its own queue, and the second program would be done before the first."""
    here, there = jax.local_devices()[:2]
    slow = plait.jit(
        lambda a, x: plait.allreduce(x + 0 * (a @ a @ a @ a)[0, 0], plait.SUM, comm=world)
    )
    quick = plait.jit(lambda x: plait.allreduce(x, plait.SUM, comm=world))
    n = 500 if world.rank == 0 else 4
    a = jax.device_put(jnp.ones((n, n)) / n, here)
    x, y = jax.device_put(jnp.ones(3), here), jax.device_put(jnp.full(3, 100.0), there)
    for _ in range(4):
        first, second = slow(a, x), quick(y)
        third = plait.allreduce(x, plait.MAX, comm=world)
        assert first.tolist() == [world.size] * 3 and third.tolist() == [1] * 3
        assert second.tolist() == [100 * world.size] * 3


@pytest.mark.parametrize("late", [0, N_PROCESSES - 1])
def test_a_late_process_is_waited_for(late):
    """The neighbours of its devices wait, and their neighbours wait for them: no deadlock."""
    mesh = make(GRIDS["line"], AxisType.Explicit)
    a, tall = meshes.random((4 * N, 3)), meshes.random((8 * N, 3))
    x, y = put(a, mesh, P("a")), put(tall, mesh, P("a"))
    pad, factor = (
        plait.jit(lambda x: plait.halo.pad(x, ((1, 1), (0, 0)), boundary="edge")),
        plait.jit(plait.linalg.svdvals),
    )
    for run, given, want in (
        (pad, x, oracle.halo_pad(a, (N, 1), ((1, 1), (0, 0)), ("edge",) * 2)),
        (factor, y, np.linalg.svd(tall, compute_uv=False)),
    ):
        plait.block(run(given))
        if late == HERE:
            time.sleep(1.2)
        same(run(given), want)
