"""Contexts of a call: jax.set_mesh, meshes with both kinds of axes, vmap's axes, x64."""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

KINDS = (AxisType.Auto, AxisType.Explicit)

# Functions of ranks, in a process alone, on operands that are no arrays of JAX yet.
OF_RANKS = {
    "allgather": lambda x: plait.allgather(x),
    "allgatherv": lambda x: plait.allgatherv(x, [3]),
    "allreduce": lambda x: plait.allreduce(x, plait.SUM),
    "alltoall": lambda x: plait.alltoall(x[None]),
    "alltoallv": lambda x: plait.alltoallv(x, [[3]]),
    "barrier": lambda x: plait.barrier(),
    "bcast": lambda x: plait.bcast(1.0, root=0),
    "exscan": lambda x: plait.exscan(x, plait.SUM),
    "gather": lambda x: plait.gather(x, 0),
    "gatherv": lambda x: plait.gatherv(x, [3], 0),
    "minloc": lambda x: plait.minloc(x),
    "permute": lambda x: plait.permute(x, [(0, 0)]),
    "reduce": lambda x: plait.reduce(x, plait.MAX, 0),
    "reduce_scatter": lambda x: plait.reduce_scatter(x[None], plait.SUM),
    "reduce_scatterv": lambda x: plait.reduce_scatterv(x, plait.SUM, [3]),
    "scan": lambda x: plait.scan(x, plait.SUM),
    "scatter": lambda x: plait.scatter(x[None], 0),
    "scatterv": lambda x: plait.scatterv(x, [3], 0),
    "sendrecv": lambda x: plait.sendrecv(x, x, 0, 0),
    "start": lambda x: plait.wait(plait.start(plait.allreduce, x, plait.SUM)),
    "token": lambda x: plait.allreduce(x, plait.SUM, token=plait.create_token()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OF_RANKS)
def test_ranks_under_set_mesh(name, kind):
    x = np.arange(3.0)
    want = OF_RANKS[name](x)
    with jax.set_mesh(meshes.make((4,), kind)):
        for _ in range(2):  # the second time by the remembered program
            got = OF_RANKS[name](x)
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert all(len(y.devices()) == 1 for y in jax.tree.leaves(got))


@pytest.mark.parametrize("kind", KINDS)
def test_hosts_and_tuning_under_set_mesh(kind, tmp_path):
    mesh = meshes.make((4,), kind)
    x = np.arange(32.0).reshape(8, 4)
    rows = NamedSharding(mesh, P("a"))
    with jax.set_mesh(mesh):
        split = jax.device_put(x, rows)
        plait.save(tmp_path / "x.npy", split)
        assert np.array_equal(plait.load(tmp_path / "x.npy", rows), x)
        assert np.array_equal(plait.gather_to_host(split), x)
        found = plait.fft.autotune((4, 4, 4), repeats=1, file="")
    assert found.devices.size == jax.device_count()


def test_another_mesh_than_that_of_set_mesh():
    x = meshes.put(np.ones((4, 4, 4)), meshes.make((2, 2)), P("a", "b"))
    calls = {
        "sum": plait.sum,
        "fftn": plait.fft.fftn,
        "redistribute": lambda x: plait.redistribute(x, P()),
        "pad": lambda x: plait.halo.pad(x, (1, 1, 1)),
    }
    with jax.set_mesh(meshes.make((4,))):
        for name, call in calls.items():
            text = rf"{name}: the operand's mesh is .*'a': 2, 'b': 2.*, jax.set_mesh's is .*'a': 4"
            with pytest.raises(ValueError, match=text):
                call(x)


def test_two_meshes_in_a_program():
    """JAX takes the mesh whose axes together stand for the other mesh."""
    mesh, other = meshes.make((2, 2)), meshes.make((4,))
    x = meshes.put(meshes.random((4, 4)), other)

    def transformed(x, spec):
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
        return plait.fft.fftn(x, mesh=mesh, spec=spec)

    with pytest.raises(ValueError, match="one mesh in a program with operations of plait"):
        plait.jit(transformed, static_argnums=1)(x, P("a", "b"))
    y = jax.device_put(x, NamedSharding(mesh, P(("a", "b"))))
    twice = plait.jit(lambda x: transformed(transformed(x, P(("a", "b"))), P("a", "b")))(y)
    assert np.allclose(twice, np.fft.fftn(np.fft.fftn(x)))


MIXED = [(a, b) for a in KINDS for b in KINDS]


@pytest.mark.parametrize("kinds", MIXED)
def test_axes_of_both_kinds(kinds):
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=kinds, devices=jax.devices()[:4])
    x = np.random.default_rng(0).standard_normal((4, 4))
    q = jax.device_put(x, NamedSharding(mesh, P("a", "b")))
    want, padded = np.fft.fftn(x), [np.pad(x, 1, "wrap")[1:-1, i : i + 4] for i in (0, 2)]
    given = {"mesh": mesh, "spec": P("a", "b")}
    told = (
        jax.jit(lambda q: plait.fft.fftn(q, layout="natural", **given)),
        jax.jit(lambda q: plait.halo.pad(q, (0, 1), **given)),
    )
    for fft, pad, v in (
        (lambda q: plait.fft.fftn(q, layout="natural"), lambda q: plait.halo.pad(q, (0, 1)), q),
        (*told, q),
        (*told, x),  # on no mesh
    ):
        y = fft(v)
        assert np.allclose(y, want) and y.sharding.spec == P("a", "b")
        assert np.array_equal(pad(v), np.concatenate(padded, 1))
    first, second = plait.fft.fftfreqn(y, layout="natural")
    assert first.sharding.spec[0] == "a" and second.sharding.spec[1] == "b"
    if kinds != (AxisType.Auto, AxisType.Auto):
        with pytest.raises(ValueError, match="fftn: the operand's type says"):
            plait.fft.fftn(q, spec=P("b", "a"))


@pytest.mark.parametrize("transform", [jax.jit, lambda f: f])
def test_vmap_that_says_how_the_batch_is_split(transform):
    mesh = meshes.make((2, 2))
    x = np.random.default_rng(0).standard_normal((4, 4, 2))
    given = {"mesh": mesh, "spec": P("b")}
    calls = {
        "fft": (lambda v: plait.fft.fftn(v, **given), lambda v: np.fft.fftn(v)),
        "halo": (
            lambda v: plait.halo.unpad(plait.halo.pad(v, (1, 0), **given), (1, 0), **given),
            lambda v: v,
        ),
        "move": (lambda v: plait.redistribute(v, P(None, "b"), **given), lambda v: v),
        "sum": (lambda v: plait.sum(v, mesh=mesh), np.sum),  # the axis "a" splits it
    }
    split = meshes.put(x, mesh, P("a", "b"))
    for name, (f, want) in calls.items():
        g = transform(jax.vmap(f, spmd_axis_name="a"))
        y = g(split)
        assert np.allclose(y, [want(v) for v in x])
        assert y.sharding.spec[0] == "a"
        assert not meshes.xla_collectives(g, split)
        # for the other calls JAX wants a batch that the mesh divides
        if name in ("fft", "move") and transform is jax.jit:
            assert np.allclose(g(x[:3]), [want(v) for v in x[:3]])


def test_doubles_where_they_are_switched_off():
    y = meshes.put(np.ones((8, 4)), meshes.make((4,)), P("a"))
    with jax.enable_x64(False):
        assert plait.fft.poisson(y).dtype == "float32"
        assert [k.dtype for k in plait.fft.fftfreqn(y)] == ["float32"] * 2


def test_axes_of_a_sum_that_are_named_twice():
    for axis in ((0, 0), (-1, 1)):
        with pytest.raises(ValueError, match="sum: axis is .*twice"):
            plait.sum(jnp.ones((2, 2)), axis=axis)


def test_results_have_no_weak_types():
    """Ranks that pass Python numbers get results of the same type as ranks that pass arrays."""
    for y in (plait.allreduce(2.5, plait.MIN), plait.bcast(1, root=0), plait.allgather(1.5)):
        assert not y.weak_type
    weak = jnp.full((8, 8), 1.0)
    assert weak.weak_type
    of = {"mesh": meshes.make((4,)), "spec": P("a")}
    weak = jax.jit(lambda x: x, out_shardings=NamedSharding(*of.values()))(weak)
    for y in (
        plait.fft.dctn(weak, **of),
        plait.fft.rfftn(weak, **of),
        *plait.fft.rfftfreqn(plait.fft.rfftn(weak, **of), (8, 8)),
        plait.linalg.eigvalsh(weak, **of),
        jax.grad(lambda a: jnp.sum(plait.linalg.eigvalsh(a, **of)))(weak),
        plait.redistribute(weak, P(None, "a"), mesh=of["mesh"]),
    ):
        assert not y.weak_type and y.dtype in ("float64", "complex128")


# ---- arrays that a program closes over -----------------------------------------------------------

OF_MESHES = {
    "cholesky": lambda a, of: plait.linalg.cholesky(a, **of).l,
    "eigh": lambda a, of: plait.linalg.eigvalsh(a, **of),
    "fftn": lambda a, of: jnp.abs(plait.fft.fftn(a.astype(complex), axes=(0, 1), **of)),
    "halo": lambda a, of: plait.halo.pad(a, 1, **of),
    "lu": lambda a, of: plait.linalg.lu(a, **of).solve(jnp.ones(16)),
    "matmul": lambda a, of: plait.linalg.matmul(a, a, mesh=of["mesh"]),
    "redistribute": lambda a, of: plait.redistribute(a, P(None, "a"), mesh=of["mesh"]),
}


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("name", OF_MESHES)
def test_arrays_on_a_mesh_that_a_function_of_a_number_closes_over(name):
    """JAX takes the program's devices from the parameter alone."""
    of = {"mesh": meshes.make((4,)), "spec": P("a")}
    a = np.diag(np.arange(1.0, 17.0)) + 0.1
    data = jax.device_put(a, NamedSharding(of["mesh"], P("a")))
    function = OF_MESHES[name]
    for made in (lambda s: s * data, lambda s: data, lambda s: s * data.T):
        want = function(jax.device_put(made(1.0), NamedSharding(of["mesh"], P("a"))), of)
        got = jax.jit(lambda s, made=made: function(made(s), of))(1.0)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    slope = jax.jit(jax.grad(lambda s: jnp.sum(function(s * data, of) ** 2)))(1.0)
    value = np.sum(np.asarray(function(data, of), float) ** 2)
    power = {"cholesky": 1, "lu": -2, "matmul": 4}.get(name, 2)  # of s
    np.testing.assert_allclose(slope, power * value, rtol=1e-9)


WITH_ANOTHER = {
    "cholesky": lambda a, b, of: plait.linalg.cholesky(a, **of).solve(b),
    "lstsq": lambda a, b, of: plait.linalg.lstsq(a, b, **of),
    "lu": lambda a, b, of: plait.linalg.lu(a, **of).solve(b),
    "matmul": lambda a, b, of: plait.linalg.matmul(a, b, **of),
    "solve": lambda a, b, of: plait.linalg.solve(a, b, **of),
}


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("name", WITH_ANOTHER)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_arrays_on_no_mesh_that_a_function_of_one_on_a_mesh_closes_over(name, kind):
    mesh = jax.make_mesh((4,), ("a",), axis_types=(kind,))
    a = np.diag(np.arange(1.0, 9.0)) + 0.1
    b = np.arange(24.0).reshape(8, 3)
    data = jax.device_put(a, NamedSharding(mesh, P("a")))
    want = a @ b if name == "matmul" else np.linalg.solve(a, b)
    for of in ({"mesh": mesh, "spec": P("a")}, {"mesh": mesh}):
        for jit in (jax.jit, plait.jit):
            call = jit(lambda x, of=of: WITH_ANOTHER[name](x, jnp.asarray(b), of))
            np.testing.assert_allclose(call(data), want, rtol=1e-10)
            held = jnp.asarray(b)
            call = jit(lambda x, of=of, held=held: WITH_ANOTHER[name](x, held, of))
            np.testing.assert_allclose(call(data), want, rtol=1e-10)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("name", ["lstsq", "matmul", "solve"])
def test_a_matrix_on_no_mesh_that_a_function_of_the_other_operand_closes_over(name, kind):
    mesh = jax.make_mesh((4,), ("a",), axis_types=(kind,))
    a, b = np.diag(np.arange(1.0, 9.0)) + 0.1, np.arange(24.0).reshape(8, 3)
    want = a @ b if name == "matmul" else np.linalg.solve(a, b)
    for held in (a, jnp.asarray(a)):
        call = jax.jit(lambda x, held=held: WITH_ANOTHER[name](held, x, {}))
        np.testing.assert_allclose(call(meshes.put(b, mesh, P("a"))), want, rtol=1e-9)


def test_a_factor_on_one_device_has_no_right_hand_sides_on_a_mesh():
    b = meshes.put(np.ones(8), meshes.make((4,)), P("a"))
    for factor in (plait.linalg.cholesky, plait.linalg.lu):
        with pytest.raises(ValueError, match="b is on mesh {'a': 4}, a on one device: factor an a"):
            factor(np.eye(8)).solve(b)
        with pytest.raises(ValueError, match="b is on mesh {'a': 4}, a on one device: factor an a"):
            jax.jit(factor(np.eye(8)).solve)(b)
