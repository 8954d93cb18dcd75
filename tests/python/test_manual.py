"""Rank-model operations inside jax.shard_map: mesh axes as communicator."""

import cases
import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plait import _jax

REPLICATED, SPLIT = P(), P("a", "b")


def mapped(f, mesh, out=REPLICATED, check=True, spec=SPLIT):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=out, check_vma=check))


def blocks(a, mesh):
    rows = np.split(a, mesh.shape["a"], 0)
    return [[b for b in np.split(r, mesh.shape["b"], 1)] for r in rows]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("name", ["SUM", "PROD", "MIN", "MAX"])
def test_allreduce(name, kind, check):
    mesh = meshes.make((2, 2), kind)
    a = meshes.random((4, 6))
    x = meshes.put(a, mesh, P("a", "b"))
    op = getattr(plait, name)
    b = blocks(a, mesh)
    f = mapped(lambda v: plait.allreduce(v, op, comm=("a", "b")), mesh, P(), check)
    assert np.allclose(f(x), oracle.allreduce([*b[0], *b[1]], name)[0])
    f = mapped(lambda v: plait.allreduce(v, op, comm="a"), mesh, P(None, "b"), check)
    want = [oracle.allreduce([b[0][j], b[1][j]], name)[0] for j in range(2)]
    assert np.allclose(f(x), np.concatenate(want, 1))
    f = mapped(lambda v: plait.allreduce(v, op, comm="b"), mesh, P("a"), check)
    want = [oracle.allreduce(b[i], name)[0] for i in range(2)]
    assert np.allclose(f(x), np.concatenate(want, 0))


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint8", "float32", "float8_e5m2", "complex64"])
def test_bcast(dtype):
    mesh = meshes.make((2, 2))
    a = np.asarray(jnp.asarray(meshes.random((4, 6), "float32")).astype(dtype))
    x = meshes.put(a, mesh, P("a", "b"))
    b = blocks(a, mesh)
    f = mapped(lambda v: plait.bcast(v, 2, comm=("a", "b")), mesh)
    assert np.array_equal(f(x), b[1][0])
    f = mapped(lambda v: plait.bcast(v, 2, comm=("b", "a")), mesh)
    assert np.array_equal(f(x), b[0][1])
    f = mapped(lambda v: plait.bcast(v, 1, comm="a"), mesh, P(None, "b"))
    assert np.array_equal(f(x), np.concatenate(b[1], 1))


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("axes", [("a", "b"), "a", "b"])
def test_gradient_equals_that_of_psum(axes, check):
    mesh = meshes.make((2, 2))
    x = meshes.put(meshes.random((4, 6)), mesh, P("a", "b"))
    out = {"a": P(None, "b"), "b": P("a")}.get(axes, P())

    def mine(v):
        return plait.allreduce(v**2, plait.SUM, comm=axes)

    def theirs(v):
        return jax.lax.psum(v**2, axes)

    def grad(f):
        return jax.jit(jax.grad(lambda v: jnp.sum(jnp.sin(mapped(f, mesh, out, check)(v)))))

    assert np.allclose(grad(mine)(x), grad(theirs)(x), rtol=1e-13)

    def root(v):
        return plait.bcast(v**2, 1, comm=axes)

    def pick(v):
        rank = jax.lax.axis_index(axes)
        return jax.lax.psum(jnp.where(rank == 1, v**2, 0), axes)

    assert np.allclose(grad(root)(x), grad(pick)(x), rtol=1e-13)
    value = jax.jit(jax.shard_map(mine, mesh=mesh, in_specs=P("a", "b"), out_specs=out))(x)
    assert np.allclose(value, mapped(theirs, mesh, out)(x))


def test_order_tokens_loops():
    mesh = meshes.make((2,))
    x = meshes.put(np.arange(4.0), mesh, P("a"))

    def f(v):
        t = _jax.pcast_varying(plait.create_token(), ("a",))
        y, t = plait.allreduce(v, plait.SUM, comm="a", token=t)
        plait.barrier(comm="a")

        def step(c, _):
            return (c + plait.allreduce(v, plait.SUM, comm="a"), None)

        z, _ = jax.lax.scan(step, jnp.zeros_like(y), None, length=3)
        return y + z

    g = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=P()))
    assert g(x).tolist() == [8, 16]
    h = plait.jit(jax.vmap(jax.shard_map(f, mesh=mesh, in_specs=P("a"), out_specs=P())))
    assert h(jnp.stack([x, x])).tolist() == [[8, 16], [8, 16]]


@pytest.mark.parametrize("check", [True, False])
def test_groups_of_a_mesh(check):
    """Each place along the unnamed axes is a group; the first named axis varies slowest."""
    mesh = meshes.make((2, 2, 2))
    every = P("a", "b", "c")
    chosen = {c.name: c for c in cases.movements(4) + cases.reductions(4, ["SUM", "MAX"])}
    xs = {
        k: meshes.random((2, 2, 2, *c.shape(0)), seed=i) for i, (k, c) in enumerate(chosen.items())
    }

    def f(xs):
        ys = {k: chosen[k].call(x[0, 0, 0], ("c", "a")) for k, x in xs.items()}
        return jax.tree.map(lambda y: y[None, None, None], ys)

    got = mapped(f, mesh, every, check, every)(xs)
    for name, case in chosen.items():
        for b in range(2):
            ranks = [(r % 2, b, r // 2) for r in range(4)]
            want = case.want([xs[name][place] for place in ranks])
            for place, y in zip(ranks, want, strict=True):
                cases.same(got[name][place], y, "float64", 4)


def test_gradients_in_groups():
    """Σ W·Ax = Σ (AᵀW)·x over the whole mesh, for a communicator along one of two axes."""
    mesh = meshes.make((2, 2))
    every = P("a", "b")
    chosen = {
        c.name: c
        for c in cases.movements(2) + cases.on_devices(2) + cases.reductions(2, ["SUM"])
        if c.is_linear
    }

    def f(xs):
        ys = {k: chosen[k].call(x[0, 0], "a") for k, x in xs.items()}
        return jax.tree.map(lambda y: y[None, None], ys)

    g = mapped(f, mesh, every, True, every)
    xs = {k: meshes.random((2, 2, *c.shape(0)), seed=i) for i, (k, c) in enumerate(chosen.items())}
    ys = g(xs)
    weights = {k: meshes.random(y.shape, seed=99) for k, y in ys.items()}
    grads = jax.jit(jax.grad(lambda v: sum(jnp.sum(y * weights[k]) for k, y in g(v).items())))(xs)
    for name in chosen:
        left, right = np.vdot(ys[name], weights[name]), np.vdot(xs[name], grads[name])
        assert np.allclose(left, right, rtol=1e-12), name


def test_bad_input():
    mesh = meshes.make((2, 2))
    x = meshes.put(np.ones((2, 2)), mesh, P("a", "b"))

    def run(f):
        return mapped(f, mesh, P("a", "b"))(x)

    with pytest.raises(
        TypeError, match="comm=None in a manual region .* over 4 devices; name mesh"
    ):
        run(lambda v: plait.allreduce(v, plait.SUM))
    with pytest.raises(ValueError, match="'z' is no axis of the mesh"):
        run(lambda v: plait.allreduce(v, plait.SUM, comm="z"))
    with pytest.raises(ValueError, match="names an axis twice"):
        run(lambda v: plait.allreduce(v, plait.SUM, comm=("a", "a")))
    with pytest.raises(ValueError, match="root 4 is not a rank of this communicator .size 4."):
        run(lambda v: plait.bcast(v, 4, comm=("a", "b")))
    instead = "use plait.permute or jax.lax.ppermute there"
    for name, call in (
        ("send", lambda v: plait.send(v, 0, comm="a")),
        ("recv", lambda v: plait.recv(v, 0, comm="a")),
        ("sendrecv", lambda v: plait.sendrecv(v, v, 0, 0)),
    ):
        with pytest.raises(TypeError, match=f"{name}: not possible in shard_map; {instead}"):
            run(call)
    with pytest.raises(TypeError, match="shift: not possible in shard_map; use plait.permute"):
        run(lambda v: plait.shift(v, 0, 1, comm="a"))
    with pytest.raises(ValueError, match=r"allgatherv: counts \(1, 2\) differ, but inside"):
        run(lambda v: plait.allgatherv(v, [1, 2], comm="a"))
    with pytest.raises(ValueError, match="alltoallv: the sums of counts' rows or columns differ"):
        run(lambda v: plait.alltoallv(v, [[1, 0], [1, 0]], comm="a"))
    with pytest.raises(ValueError, match="Alltoall input must have shape .* with nproc 2"):
        run(lambda v: plait.alltoall(v, comm="a"))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: plait.allreduce(x, plait.SUM),
        lambda x: plait.bcast({"a": x, "b": 2 * x}, 0),
        lambda x: plait.wait(plait.start(plait.allgather, x)),
        lambda x: plait.scan(x, plait.SUM, token=plait.create_token())[0],
    ],
)
def test_a_global_array_is_no_rank_s(call):
    """XLA would divide the call among devices itself, and stop with an internal error."""
    x = meshes.put(jnp.ones((4, 2)), meshes.make((4,)), P("a"))
    for f in (call, jax.jit(call), plait.jit(call)):
        with pytest.raises(TypeError, match="operand is on 4 devices.*plait.redistribute"):
            f(x)
