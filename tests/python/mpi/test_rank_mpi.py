"""The rank model on MPI ranks: every dtype and reduction, derivatives, order, errors."""

import copy
import pickle
import threading

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from plait import _core

REDUCTIONS = list(_core.reductions())


def every(world, make):
    """All ranks' arrays."""
    return [np.asarray(make(r)) for r in range(world.size)]


def ring(world):
    return (world.rank - 1) % world.size, (world.rank + 1) % world.size


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("dtype", list(_core.dtypes()))
def test_every_dtype(world, dtype):
    def make(r):
        return jnp.asarray(meshes.random((5,), "float32", r) * 3).astype(dtype)

    xs, x = every(world, make), make(world.rank)
    source, dest = ring(world)
    for root in range(world.size):
        assert np.array_equal(plait.bcast(x, root), oracle.bcast(xs, root)[world.rank])
    assert np.array_equal(plait.sendrecv(x, x, source, dest), xs[source])
    for name in REDUCTIONS:
        if not _core.reduce_is_defined(REDUCTIONS.index(name), dtype):
            with pytest.raises(TypeError):
                plait.allreduce(x, getattr(plait, name))
            continue
        got = np.asarray(plait.allreduce(x, getattr(plait, name)))
        want = oracle.allreduce(xs, name)[world.rank]
        if np.dtype(got.dtype).kind in "iub":
            assert np.array_equal(got, want)
        else:
            eps = float(jnp.finfo(dtype).eps)
            assert np.allclose(
                got.astype(complex), want.astype(complex), rtol=4 * eps, atol=8 * eps
            )
        assert len({b.tobytes() for b in world.allgather(got)}) == 1  # same bits on every rank


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (100000,)])
@pytest.mark.parametrize("jit", [lambda f: f, jax.jit, plait.jit])
def test_shapes(world, shape, jit):
    def make(r):
        return meshes.random(shape, seed=r)

    xs, x = every(world, make), jnp.asarray(make(world.rank))
    source, dest = ring(world)
    assert np.allclose(jit(lambda v: plait.allreduce(v, plait.SUM))(x), sum(xs))
    root = 1 % world.size
    assert np.array_equal(jit(lambda v: plait.bcast(v, root))(x), xs[root])
    f = jit(lambda v: plait.sendrecv(v, v, source, dest, sendtag=3, recvtag=3))
    assert np.array_equal(f(x), xs[source])


def adjoint(world, f, x, ct):
    """Σ y·Ax = Σ Aᵀy·x over ranks."""
    y = f(x)
    [back] = jax.jit(lambda c: jax.linear_transpose(f, x)(c))(ct)
    left = world.allreduce(complex(jnp.sum(ct * y)))
    right = world.allreduce(complex(jnp.sum(back * x)))
    assert np.allclose(left, right, rtol=1e-5 if x.dtype.itemsize < 16 else 1e-12)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_adjoints(world, dtype):
    x = jnp.asarray(meshes.random((4,), dtype, world.rank))
    ct = jnp.asarray(meshes.random((4,), dtype, world.rank + 10))
    source, dest = ring(world)
    adjoint(world, lambda v: plait.allreduce(v, plait.SUM), x, ct)
    for root in range(world.size):
        adjoint(world, lambda v, root=root: plait.bcast(v, root), x, ct)
    tags = {"sendtag": world.rank, "recvtag": source}
    adjoint(world, lambda v: plait.sendrecv(v, jnp.zeros_like(v), source, dest, **tags), x, ct)
    null = plait.PROC_NULL
    first = null if world.rank == 0 else world.rank - 1
    last = null if world.rank == world.size - 1 else world.rank + 1
    adjoint(world, lambda v: plait.sendrecv(v, v * 2, first, last), x, ct)


@pytest.mark.long
def test_gradients_by_finite_differences(world):
    source, dest = ring(world)

    def loss(x):
        y = plait.allreduce(x, plait.SUM) * plait.bcast(x, 1 % world.size)
        y = y + plait.sendrecv(jnp.sin(x), x, source, dest) * plait.allreduce(x, plait.PROD)
        return jnp.sum(y * (world.rank + 1)) + jnp.sum(plait.allreduce(x, plait.MAX) ** 2)

    x = jnp.asarray(meshes.random((3,), seed=world.rank))
    d = jnp.asarray(meshes.random((3,), seed=world.rank + 5))

    def total(v):
        return world.allreduce(float(loss(v)))

    h = 1e-6
    slope = (total(x + h * d) - total(x - h * d)) / (2 * h)
    for grad in (jax.grad(loss), jax.jit(jax.grad(loss)), plait.jit(jax.grad(loss))):
        assert np.allclose(world.allreduce(float(jnp.vdot(grad(x), d))), slope, rtol=1e-7)
    tangent = world.allreduce(float(jax.jvp(loss, (x,), (d,))[1]))
    assert np.allclose(tangent, slope, rtol=1e-7)
    g = plait.jit(jax.grad(loss))
    hvp = plait.jit(lambda v, t: jax.jvp(jax.grad(loss), (v,), (t,))[1])(x, d)
    assert np.allclose(hvp, (g(x + h * d) - g(x - h * d)) / (2 * h), atol=1e-6)


def test_vmap(world):
    x = jnp.asarray(meshes.random((3, 4), seed=world.rank))
    source, dest = ring(world)
    xs = every(world, lambda r: meshes.random((3, 4), seed=r))
    template = jnp.zeros(4)
    for jit in (lambda f: f, plait.jit):
        f = jit(jax.vmap(lambda v: plait.allreduce(v, plait.SUM)))
        assert np.allclose(f(x), sum(xs))
        f = jit(jax.vmap(lambda v: plait.sendrecv(v, template, source, dest)))
        assert np.array_equal(f(x), xs[source])
        f = jit(jax.vmap(lambda v: plait.bcast(v, 0), in_axes=1, out_axes=1))
        assert np.array_equal(f(x), xs[0])


def test_tokens(world):
    source, dest = ring(world)

    def f(x, t):
        y, t = plait.allreduce(x, plait.SUM, token=t)
        z, t = plait.sendrecv(y * x, x, source, dest, token=t)
        t = plait.barrier(token=t)
        w, t = plait.bcast(z, 0, token=t)
        return jnp.sum(w * (world.rank + 1)), t

    x = jnp.asarray(meshes.random((3,), seed=world.rank))

    def without(v):
        return jnp.sum(
            plait.bcast(plait.sendrecv(plait.allreduce(v, plait.SUM) * v, v, source, dest), 0)
            * (world.rank + 1)
        )

    t = plait.create_token()
    value, _ = jax.jit(f)(x, t)
    assert np.allclose(value, without(x))
    g, _ = jax.jit(jax.grad(f, has_aux=True))(x, t)
    assert np.allclose(g, jax.grad(without)(x))


def test_order_of_many_messages(world):
    source, dest = ring(world)

    def f(x):
        results = []
        for i in range(20):
            late = jnp.sin(x @ x) if i % 2 else x
            results.append(plait.sendrecv(late * 0 + i, x, source, dest)[0, 0])
        return jnp.stack(results)

    x = jnp.ones((60, 60)) * 1e-3
    g = plait.jit(f)
    for _ in range(5):
        assert np.array_equal(plait.block(g(x)), np.arange(20.0))


def test_depend_runs_the_adjoint(world):
    source, dest = ring(world)

    def loss(x):
        y = plait.sendrecv(x, x, source, dest)
        return plait.depend(jnp.sum(x), y) if world.rank == 0 else jnp.sum(y * 2)

    x = jnp.ones(3)
    g = plait.jit(jax.grad(loss))(x)
    own = 1.0 if world.rank == 0 else 0.0
    sent = 2.0 if dest != 0 else 0.0  # rank 0 does not use what it receives
    assert np.allclose(g, own + sent)


def test_two_communicators(world):
    other = world.Dup()
    reverse = world.Split(0, world.size - world.rank)
    x = jnp.asarray([1.0 + world.rank])

    def f(v):
        a = plait.allreduce(v, plait.SUM, comm=world)
        b = plait.allreduce(v, plait.MAX, comm=other)
        c = plait.bcast(v, 0, comm=reverse)
        return a, b, c

    a, b, c = plait.jit(f)(x)
    assert a == world.size * (world.size + 1) / 2 and b == world.size and c == world.size
    reverse.Free()
    other.Free()


def test_halves(world):
    part = world.Split(world.rank % 2, world.rank)
    x = plait.allreduce(jnp.asarray(1), plait.SUM, comm=part)
    assert x == part.size
    part.Free()


def test_freed_communicator(world):
    comm = world.Dup()
    f = plait.jit(lambda v: plait.allreduce(v, plait.SUM, comm=comm))
    assert plait.block(f(jnp.ones(2)))[0] == world.size
    comm.Free()
    text = r"allreduce: communicator #\d+ \(made at test_rank_mpi.py:\d+\) was freed"
    with pytest.raises(plait.CommError, match=text):
        plait.block(f(jnp.ones(2)))
    with pytest.raises(plait.CommError, match=text):
        plait.allreduce(jnp.ones(2), plait.SUM, comm=comm)
    again = world.Dup()  # may have the same handle
    assert plait.allreduce(jnp.ones(2), plait.SUM, comm=again)[0] == world.size
    again.Free()


def test_bad_communicators(world):
    from mpi4py import MPI

    x = jnp.ones(2)
    with pytest.raises(TypeError, match="allreduce: comm is MPI.COMM_NULL"):
        plait.allreduce(x, plait.SUM, comm=MPI.COMM_NULL)
    with pytest.raises(TypeError, match="MINLOC and MAXLOC need pairs"):
        plait.allreduce(x, MPI.MINLOC)
    own = MPI.Op.Create(lambda a, b, t: b)
    with pytest.raises(TypeError, match="expected one of plait"):
        plait.allreduce(x, own)
    assert np.array_equal(plait.allreduce(x, MPI.SUM), x * world.size)
    with pytest.raises(ValueError, match=rf"dest {world.size} is not a rank .*size {world.size}"):
        plait.sendrecv(x, x, 0, world.size)
    with pytest.raises(ValueError, match=rf"bcast: root {MPI.PROC_NULL} is not a rank"):
        plait.bcast(x, MPI.PROC_NULL)
    assert np.array_equal(plait.sendrecv(x, x * 3, MPI.PROC_NULL, MPI.PROC_NULL), x * 3)


def test_inter_communicator(world):
    if world.size < 2:
        pytest.skip("an inter-communicator needs two groups of ranks")
    side = min(world.rank, 1)  # rank 0 alone, and the other ranks
    part = world.Split(side, world.rank)
    inter = part.Create_intercomm(0, world, 1 - side)
    with pytest.raises(TypeError, match="inter-communicator"):
        plait.allreduce(jnp.ones(2), plait.SUM, comm=inter)
    inter.Free()
    part.Free()


def test_status(world):
    from mpi4py import MPI

    source, dest = ring(world)
    status = MPI.Status()
    x = jnp.ones(4)
    f = plait.jit(lambda v: plait.sendrecv(v, v, plait.ANY_SOURCE, dest, sendtag=7, status=status))
    plait.block(f(x))
    plait.barrier()  # before other ranks send this rank something else
    assert status.Get_source() == source and status.Get_tag() == 7


def test_truncation_on_both_partners(world):
    source, dest = ring(world)
    first = 3 if world.rank == 0 and world.size > 1 else 5  # rank 0's message fits
    for sent in (first, 5):
        f = plait.jit(lambda v: plait.sendrecv(v, jnp.zeros(3), source, dest))
        with pytest.raises(plait.TruncationError, match="40 bytes of float64.* expects 24 bytes"):
            plait.block(f(jnp.ones(sent)))
    assert plait.allreduce(jnp.ones(1), plait.SUM)[0] == world.size


def test_programs_are_equal_on_all_ranks(world):
    def f(x):
        y = plait.allreduce(x, plait.SUM) + plait.bcast(x, 0)
        return jnp.sum(plait.allreduce(y, plait.PROD))

    text = jax.jit(jax.grad(f)).lower(jnp.ones(3)).as_text()
    assert len(set(world.allgather(text))) == 1


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("turn", [1, -1])
def test_communicators_first_used_by_several_threads(world, turn):
    """Communicators of all ranks and of one, in another order on each rank: each has its number."""
    for _ in range(5):
        comms = [world.Dup(), world.Split(world.rank, 0), world.Dup(), world.Split(0, -world.rank)]
        found = {}

        def use(comm, i, found=found):
            try:
                found[i] = float(plait.allreduce(jnp.ones(3), plait.SUM, comm=comm)[0])
            except Exception as error:
                found[i] = error

        numbered = list(enumerate(comms))[:: turn if world.rank % 2 == 0 else 1]
        threads = [threading.Thread(target=use, args=(comm, i)) for i, comm in numbered]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert [found[i] for i in range(4)] == [c.size for c in comms], found
        numbers = [plait.Comm(c).id() for c in comms]
        assert len(set(numbers)) == 4
        shared = [n for n, c in zip(numbers, comms, strict=True) if c.size == world.size]
        assert len(set(world.allgather(tuple(shared)))) == 1 or world.size == 1
        for comm in comms:
            plait.Comm(comm).free()
            comm.Free()


def test_a_pickled_communicator_is_that_of_the_reader(world):
    from mpi4py import MPI

    last = world.size - 1
    for comm in (None, MPI.COMM_WORLD, MPI.COMM_SELF):
        own = plait.Comm(comm)
        read = pickle.loads(world.bcast(pickle.dumps(own), root=last))  # the last rank's pickle
        assert (read, read.rank, read.size) == (own, own.rank, own.size)
        ranks = range(world.size) if read.size > 1 else [world.rank]
        found = plait.allgather(jnp.int32(world.rank), comm=read)
        assert found.tolist() == list(ranks)


def test_communicators_without_a_name_are_not_pickled(world):
    cart = world.Create_cart([world.size])
    text = r"communicator #\d+ .*test_rank_mpi.*in each process"
    for made in (world.Dup(), world.Split(world.rank % 2, world.rank), cart):
        comm = plait.Comm(made)
        with pytest.raises(TypeError, match=text):
            pickle.dumps({"comm": comm})
        assert copy.copy(comm) is comm and copy.deepcopy(comm) is comm
        assert float(plait.allreduce(jnp.float32(1), plait.SUM, comm=comm)) == made.size
        comm.free()
        made.Free()
