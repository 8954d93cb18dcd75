"""Started operations on MPI ranks."""

import functools

import cases
import halves
import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax import lax
from plait import _core


def table(n, dtype, names=("SUM", "MAX", "PROD", "LOR"), seed=0):
    every = cases.reductions(n, names) + cases.movements(n) + cases.on_processes(n)
    return {c.name: (c, c.operands(n, dtype, seed)) for c in every if c.has(dtype)}


def own(chosen, rank):
    return {name: jnp.asarray(xs[rank]) for name, (_, xs) in chosen.items()}


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64", "complex64", "float8_e4m3fn"])
def test_values(world, dtype):
    """All cases under way at once, with a call in between."""
    chosen = table(world.size, dtype)
    f = plait.jit(functools.partial(halves.all_of, chosen, comm=world))
    got = f(own(chosen, world.rank))
    for name, (case, xs) in chosen.items():
        cases.same(got[name], case.want(xs)[world.rank], dtype, world.size)
    assert _core.started() == 0


def test_eager(world):
    chosen = {k: v for k, v in table(world.size, "int32").items() if v[0].is_linear}
    got = halves.all_of(chosen, own(chosen, world.rank), world)
    for name, (case, xs) in chosen.items():
        cases.same(got[name], case.want(xs)[world.rank], "int32", world.size)


def test_operands_in_the_place_of_results(world):
    """Off the root a gather returns its operand as it was when the gather was started."""
    for make in (np.array, jnp.array):
        x = make([1.0, 2.0])
        h = plait.start(plait.gather, x, 0, comm=world)
        if make is np.array:
            x[:] = 99
        else:
            x.delete()
        want = [[1, 2]] * world.size if world.rank == 0 else [1, 2]
        assert plait.wait(h).tolist() == want


def test_scan_and_vmap(world):
    chosen = table(world.size, "float32")
    pair = [own(table(world.size, "float32", seed=s), world.rank) for s in (0, 100)]
    xs = {k: jnp.stack([v[k] for v in pair]) for k in pair[0]}

    def looped(xs):
        return lax.scan(lambda c, v: (c, halves.all_of(chosen, v, world)), 0, xs)[1]

    def batched(f):
        return jax.vmap(lambda v: f(chosen, v, world))

    want = plait.jit(batched(halves.plain))(xs)
    for f in (looped, batched(halves.all_of)):
        jax.tree.map(np.testing.assert_array_equal, plait.jit(f)(xs), want)


DIFFERENTIATED = [
    *("allreduce SUM", "allreduce MAX", "allreduce PROD", "reduce SUM", "reduce_scatterv"),
    *("scan SUM", "bcast", "allgatherv, uneven", "alltoallv, uneven", "permute, one pair"),
    *("gather", "scatter", "pvary"),
]


@pytest.mark.long
def test_derivatives(world):
    """Forward, reverse, and forward over reverse; in a loop."""
    every = table(world.size, "float64")
    chosen = {k: every[k] for k in DIFFERENTIATED}
    xs = own(chosen, world.rank)

    def loss(f, xs):
        ys = f(chosen, jax.tree.map(jnp.sin, xs), world)
        return sum(jnp.sum(jnp.sin((world.rank + 1) * y)) for y in ys.values())

    def derivatives(f):
        value = functools.partial(loss, f)

        def all_kinds(xs):
            half = jax.tree.map(lambda x: x * 0.5, xs)
            twice = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), xs)
            loop = lambda v: lax.scan(lambda c, u: (c + value(u), 0), 0.0, v)[0]  # noqa: E731
            return {
                "jvp": jax.jvp(value, (xs,), (half,))[1],
                "grad": jax.grad(value)(xs),
                "hvp": jax.jvp(jax.grad(value), (xs,), (half,))[1],
                "vmap": jax.vmap(jax.grad(value))(twice),
                "scan": jax.grad(loop)(twice),
            }

        return plait.jit(all_kinds)

    want = derivatives(halves.plain)(xs)
    got = derivatives(halves.all_of)(xs)
    for kind in want:
        room = 100 * float(meshes.eps("float64"))
        same = functools.partial(np.testing.assert_allclose, rtol=room, atol=room, err_msg=kind)
        jax.tree.map(same, got[kind], want[kind])
    assert _core.started() == 0


SIZES = [3, 50_000]  # the second is larger than a send buffers


@pytest.mark.parametrize("n", SIZES)
def test_transfers(world, n):
    """Receives first, then sends, as in MPI; in a ring, with two tags."""
    up, down = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    x = jnp.arange(float(n)) + world.rank

    def ring(x):
        a = plait.start(plait.recv, x, down, tag=1, comm=world)
        b = plait.start(plait.recv, x, down, tag=2, comm=world)
        d = plait.start(plait.send, 2 * x, up, tag=2, comm=world)
        c = plait.start(plait.send, x, up, tag=1, comm=world)
        z = jnp.sum(jnp.sin(x))
        y = plait.allreduce(z, plait.SUM, comm=world)
        assert plait.wait(c) is None and plait.wait(d) is None
        return plait.wait(a), plait.wait(b), y

    a, b, _ = plait.jit(ring)(x)
    assert np.array_equal(a, np.arange(n) + down) and np.array_equal(b, 2 * a)

    def both(x):
        h = plait.start(plait.sendrecv, x, jnp.zeros_like(x), down, up, comm=world)
        k = plait.start(plait.sendrecv, x, jnp.zeros_like(x), up, down, comm=world)
        return plait.wait(h), plait.wait(k)

    h, k = plait.jit(both)(x)
    assert h[0] == down and k[0] == up
    g = plait.jit(jax.grad(lambda x: jnp.sum(both(x)[0] * (world.rank + 1))))(x)
    assert np.array_equal(g, np.full(n, up + 1.0))
    any_source = plait.jit(
        jax.grad(
            lambda x: jnp.sum(
                plait.wait(
                    plait.start(
                        plait.sendrecv, x, jnp.zeros_like(x), plait.ANY_SOURCE, up, comm=world
                    )
                )
            )
        )
    )
    assert np.array_equal(any_source(x), np.ones(n))
    plait.barrier()  # before other ranks send this rank something else


@pytest.mark.parametrize("n", SIZES)
def test_a_started_half_meets_a_plain_one(world, n):
    if world.size < 2:
        pytest.skip("needs two ranks")
    x = jnp.arange(float(n))

    def f(x):
        if world.rank == 0:
            h = plait.start(plait.send, x, 1, comm=world)
            y = plait.recv(x, 1, comm=world)
            plait.wait(h)
            return y
        if world.rank == 1:
            h = plait.start(plait.recv, x, 0, comm=world)
            plait.send(2 * x, 0, comm=world)
            return plait.wait(h) * 2
        return 2 * x

    assert np.array_equal(plait.jit(f)(x), 2 * x)
    with_null = plait.jit(
        lambda x: plait.wait(
            plait.start(plait.sendrecv, x, x, plait.PROC_NULL, plait.PROC_NULL, comm=world)
        )
    )
    assert np.array_equal(with_null(x), x)
    g = jax.grad(lambda x: jnp.sum(with_null(x)))(x)
    assert np.array_equal(g, np.ones(n))


def test_two_messages_to_one_rank_keep_their_order(world):
    up, down = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    x = jnp.arange(20_000.0) + world.rank

    def f(x):
        handles = [plait.start(plait.send, k * x, up, tag=k, comm=world) for k in range(4)]
        got = [plait.start(plait.recv, x, down, comm=world) for _ in range(4)]
        got = [plait.wait(h) for h in got]
        [plait.wait(h) for h in handles]
        return got

    for k, y in enumerate(plait.jit(f)(x)):
        assert np.array_equal(y, k * (np.arange(20_000) + down))


def test_mismatch_is_raised_at_wait_on_all_ranks(world):
    comm = world.Dup()
    n = 2 + (world.rank == 0) * (world.size > 1)
    handle = plait.start(plait.allgather, jnp.ones(n), comm=comm)
    if world.size == 1:
        assert plait.wait(handle).shape == (1, 2)
    else:
        with pytest.raises(plait.MismatchError, match="at test_start_mpi.py:"):
            plait.wait(handle)
    handle = plait.start(plait.allreduce, jnp.ones(2), plait.SUM, comm=comm)
    assert plait.wait(handle)[0] == world.size
    f = plait.jit(lambda x: plait.wait(plait.start(plait.allgather, x, comm=comm)))
    if world.size > 1:
        with pytest.raises(plait.MismatchError, match="at test_start_mpi.py:"):
            plait.block(f(jnp.ones(n)))
    assert f(jnp.ones(2)).shape == (world.size, 2)
    plait.Comm(comm).free()
    comm.Free()


def test_the_program_goes_on_meanwhile(world):
    """Rank 0 lets the others begin only after it has started: a blocking call would deadlock."""
    x = jnp.arange(300_000.0)

    def let_begin(v):
        for r in range(1, world.size):
            world.send(None, r, tag=77)
        return v

    def f(x):
        h = plait.start(plait.allreduce, x, plait.SUM, comm=world)
        z = jnp.sum(x[:10])
        if world.rank == 0:
            like = jax.ShapeDtypeStruct((), z.dtype)
            z = jax.pure_callback(let_begin, like, z)
        return plait.wait(h, after=z), z

    if world.rank > 0:
        world.recv(source=0, tag=77)
    y, z = plait.jit(f)(x)
    assert np.array_equal(y, world.size * np.arange(300_000.0)) and z == 45


def test_large_operations(world):
    """Operations larger than the size from which they leave XLA's thread, beside each other."""
    x = jnp.arange(400_000.0)

    @plait.jit
    def f(x):
        h = plait.start(plait.allreduce, x, plait.SUM, comm=world)
        y = plait.allreduce(jnp.cos(x), plait.SUM, comm=world)
        z = plait.allgather(x[:200_000], comm=world)
        return plait.wait(h), y, z

    for _ in range(10):
        h, y, z = f(x)
        assert np.array_equal(h, world.size * np.arange(400_000.0))
        assert np.allclose(y, world.size * np.cos(np.arange(400_000.0)))
        assert np.array_equal(z[-1], np.arange(200_000.0))
    big, small = jnp.ones(300_000), jnp.ones(300_000 + world.rank)
    if world.size > 1:
        with pytest.raises(plait.MismatchError, match="at test_start_mpi.py:"):
            plait.allgather(small, comm=world)
    assert plait.allgather(big, comm=world).shape == (world.size, 300_000)
