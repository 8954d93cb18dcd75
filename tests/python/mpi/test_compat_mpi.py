"""Programs written for mpi4jax and JPI: their READMEs, and gradients from their tests."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from plait.compat import jpi, mpi4jax, mpi4jax_tokens


@pytest.fixture
def mpi():
    from mpi4py import MPI

    return MPI


def ring(world):
    return (world.rank - 1) % world.size, (world.rank + 1) % world.size


# ---- mpi4jax: README and sharp bits ------------------------------------------------------------


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit, plait.jit])
def test_readme_of_mpi4jax(world, mpi, jit):
    x = jnp.ones((5, 4))
    small = [
        lambda x: mpi4jax.allreduce(x, op=mpi.SUM, comm=world),
        lambda x: mpi4jax.Allreduce(x, op=mpi.SUM, comm=world),
        lambda x: mpi4jax_tokens.allreduce(x, op=mpi.SUM, comm=world)[0],
    ]
    for f in small:
        assert np.array_equal(jit(f)(x), np.full((5, 4), world.size))


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit, plait.jit])
def test_send_then_recv_of_the_sharp_bits(world, jit):
    source, dest = ring(world)

    def without(x):
        mpi4jax.send(x, dest, comm=world)
        return mpi4jax.recv(x, source, comm=world)

    def threaded(x):
        token = mpi4jax_tokens.send(x, dest, comm=world)
        return mpi4jax_tokens.recv(x, source, comm=world, token=token)[0]

    def dropped(x):
        mpi4jax_tokens.send(x, dest, comm=world)
        return mpi4jax_tokens.recv(x, source, comm=world)[0]

    def capital(x):
        token = mpi4jax_tokens.Send(x, dest, 3, world, None)
        return mpi4jax_tokens.Recv(x, source, 3, world, None, token)[0]

    x = jnp.zeros((10, 10)) + world.rank
    for f in (without, threaded, dropped, capital):
        assert np.all(jit(f)(x) == source) and np.all(x == world.rank)


def test_the_ends_of_a_chain(world):
    """A branch that a rank never takes names a neighbour that does not exist."""
    rank, size = world.rank, world.size

    def without(x):
        mpi4jax.send(x, dest=rank + 1, comm=world)
        return x

    branches = [
        (without, lambda x: mpi4jax.recv(x, source=rank - 1, comm=world)),
        (
            lambda x: (mpi4jax_tokens.send(x, rank + 1, comm=world), x)[1],
            lambda x: mpi4jax_tokens.recv(x, rank - 1, comm=world)[0],
        ),
        (
            lambda x: jpi.send(x, jpi.gen_token(), rank + 1, comm=world)[0],
            lambda x: jpi.recv(x, jpi.gen_token(), rank - 1, comm=world)[0],
        ),
    ]
    x = jnp.arange(3.0) + rank
    if size % 2 and rank == size - 1:
        return
    for sends, receives in branches:
        y = jax.jit(lambda x, f=sends, g=receives: jax.lax.cond(rank % 2 == 0, f, g, x))(x)
        assert np.array_equal(y, x if rank % 2 == 0 else x - 1)


def test_messages_of_mpi4py_do_not_mix(world):
    source, dest = ring(world)
    request = world.isend("pickled", dest, tag=0)
    mpi4jax.send(jnp.arange(3), dest, tag=0, comm=world)
    y = mpi4jax.recv(jnp.zeros(3, int), source, tag=0, comm=world)
    assert np.array_equal(y, np.arange(3))
    assert world.recv(source=source, tag=0) == "pickled"
    request.wait()


def test_status(world, mpi):
    source, dest = ring(world)
    status = mpi.Status()
    x = jnp.ones(3)
    y = mpi4jax.sendrecv(x, x, source, dest, sendtag=7, comm=world, status=status)
    jax.block_until_ready(y)
    assert (status.Get_source(), status.Get_tag()) == (source, 7)


# ---- mpi4jax: results --------------------------------------------------------------------------


def results_of_mpi4jax(world, mpi, module, wrap):
    """Result and expectation of each operation; wrap adds the token where there is one."""
    n, rank = world.size, world.rank
    source, dest = ring(world)
    x = jnp.full((2, 3), rank + 1.0)
    total = n * (n + 1) / 2
    every = np.broadcast_to(np.arange(1.0, n + 1)[:, None, None], (n, 2, 3))
    blocks = jnp.broadcast_to((jnp.arange(float(n)) * 10.0 + rank)[:, None], (n, 2))
    root = n - 1
    return {
        "allgather": (wrap(module.allgather)(x), every),
        "allreduce": (wrap(module.allreduce)(x, mpi.SUM), np.full((2, 3), total)),
        "alltoall": (
            wrap(module.alltoall)(blocks),
            np.broadcast_to((rank * 10.0 + np.arange(n))[:, None], (n, 2)),
        ),
        "bcast": (wrap(module.bcast)(x, root), np.full((2, 3), n)),
        "gather": (wrap(module.gather)(x, root), every if rank == root else x),
        "reduce": (wrap(module.reduce)(x, mpi.SUM, root), x * 0 + total if rank == root else x),
        "scan": (wrap(module.scan)(x, mpi.MAX), x),
        "scatter": (
            wrap(module.scatter)(jnp.asarray(every) if rank == root else x, root),
            np.full((2, 3), rank + 1),
        ),
        "sendrecv": (wrap(module.sendrecv)(x, x, source, dest), np.full((2, 3), source + 1)),
    }


def test_results_without_tokens(world, mpi):
    found = results_of_mpi4jax(world, mpi, mpi4jax, lambda f: f)
    for name, (result, expected) in found.items():
        assert result.shape == expected.shape and np.array_equal(result, expected), name
    assert mpi4jax.barrier(comm=world) is None


def test_results_in_one_chain(world, mpi):
    tokens = [plait.create_token() + 2]

    def wrap(f):
        def call(*args):
            result, token = f(*args, comm=world, token=tokens[-1])
            tokens.append(token)
            return result

        return call

    found = results_of_mpi4jax(world, mpi, mpi4jax_tokens, wrap)
    for name, (result, expected) in found.items():
        assert result.shape == expected.shape and np.array_equal(result, expected), name
    assert len(tokens) == 10 and mpi4jax_tokens.barrier(token=tokens[-1]) == 2


def test_a_token_through_a_loop(world, mpi):
    def f(x):
        def body(_, carry):
            y, token = carry
            y, token = mpi4jax_tokens.allreduce(y, mpi.MAX, comm=world, token=token)
            return y + 1, mpi4jax_tokens.barrier(comm=world, token=token)

        return jax.lax.fori_loop(0, 3, body, (x, plait.create_token()))[0]

    assert np.array_equal(jax.jit(f)(jnp.ones(2) * world.rank), np.full(2, world.size + 2.0))


# ---- mpi4jax: gradients -------------------------------------------------------------------------


def sums(world, mpi):
    return [
        lambda x: mpi4jax.allreduce(x, op=mpi.SUM, comm=world),
        lambda x: mpi4jax_tokens.allreduce(x, op=mpi.SUM, comm=world)[0],
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_gradients_of_allreduce(world, mpi, which):
    f = sums(world, mpi)[which]
    x = jnp.arange(6.0).reshape(3, 2)
    for jit in (lambda f: f, jax.jit):
        assert np.array_equal(jit(jax.grad(lambda x: f(x).sum()))(x), np.ones((3, 2)))
        chained = jax.grad(lambda x: (f(x) + f(x)).sum())
        assert np.array_equal(jit(chained)(x), np.full((3, 2), 2.0))
    y, pullback = jax.vjp(f, x)
    assert np.array_equal(y, x * world.size) and np.array_equal(pullback(y)[0], y)
    y, dy = jax.jvp(f, (x,), (x,))
    assert np.array_equal(y, dy) and np.array_equal(y, x * world.size)
    assert np.array_equal(jax.vmap(f)(x), y)


@pytest.mark.parametrize("which", [0, 1])
def test_transposes_of_allreduce(world, mpi, which):
    f = sums(world, mpi)[which]
    x = jnp.arange(4.0)

    def transposed(function):
        return lambda y: jax.linear_transpose(function, x)(y)[0]

    expected = [x, x * world.size, x]
    found = f
    for value in expected:
        found = transposed(found)
        assert np.array_equal(found(x), value)
        assert np.array_equal(jax.jit(found)(x), value)


def test_matrix_vector_products(world, mpi):
    """A split by columns: A x is the sum of the parts; the transpose needs no message."""
    n, rank = world.size, world.rank
    whole = np.arange(4.0 * 2 * n).reshape(4, 2 * n) + 1
    mine = jnp.asarray(whole[:, 2 * rank : 2 * rank + 2])
    x, y = jnp.ones(2) * (rank + 1), jnp.arange(4.0)
    every = np.repeat(np.arange(1.0, n + 1), 2)

    def product(v):
        return mpi4jax.allreduce(mine @ v, op=mpi.SUM, comm=world)

    def transposed(w):
        return jax.linear_transpose(product, x)(w)[0]

    def twice(v):
        return jax.linear_transpose(transposed, y)(v)[0]

    assert np.allclose(product(x), whole @ every)
    assert np.allclose(transposed(y), mine.T @ y)
    assert np.allclose(twice(x), whole @ every)
    assert np.allclose(jax.jvp(product, (x,), (x,))[1], whole @ every)
    assert np.allclose(jax.vjp(product, x)[1](y)[0], mine.T @ y)
    assert np.allclose(jax.vjp(transposed, y)[1](x)[0], whole @ every)


def test_gradients_of_sendrecv(world):
    source, dest = ring(world)
    rank = world.rank
    x = jnp.arange(1.0, 6.0)

    def f(x):
        y = mpi4jax.sendrecv(x, x, source=source, dest=dest, comm=world)
        return y * (rank + 1)

    loss = jax.grad(lambda x: f(x).sum())
    assert np.array_equal(loss(x), np.full(5, dest + 1.0))
    assert np.array_equal(jax.jit(loss)(x), np.full(5, dest + 1.0))

    def squares(x):
        return (f(f(x)) ** 2).sum() / 2

    back = (dest + 1.0) ** 2 * ((dest + 1) % world.size + 1.0) ** 2
    assert np.allclose(jax.grad(squares)(x), back * x)
    assert np.array_equal(jax.jacrev(f)(x), np.eye(5) * (dest + 1))
    assert np.array_equal(jax.jacfwd(f)(x), np.eye(5) * (rank + 1))


# ---- JPI: README --------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit])
def test_first_readme_of_jpi(world, mpi, jit):
    n = world.size

    def func(data):
        token = jpi.gen_token()
        result, _ = jpi.allreduce(data, token, op=mpi.SUM, comm=world)
        if world.rank == 0:
            result = result * 2
        return jnp.sum(result)

    data = jnp.asarray([world.rank], jnp.float32)
    factor = 2 if world.rank == 0 else 1
    assert jit(func)(data) == factor * n * (n - 1) / 2
    assert np.array_equal(jit(jax.grad(func))(data), [factor])
    exact = jax.grad(lambda x: jnp.sum(plait.allreduce(x, plait.SUM, comm=world)) * factor)
    assert np.array_equal(exact(data), [n + 1.0])


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit])
def test_readme_of_jpi(world, mpi, jit):
    rank, size = world.rank, world.size
    x = jnp.arange(2 * size, dtype=jnp.float32) * float(rank == 0)

    def func(x):
        token = jpi.gen_token()
        x, token = jpi.scatter(x, token, root=0, comm=world)
        if rank == size - 1:
            x = x * 2
        result, token = jpi.allreduce(x, token, op=mpi.SUM, comm=world)
        return jnp.sum(result)

    factors = np.where(np.arange(2 * size) < 2 * size - 2, 1, 2)
    assert float(jit(func)(x)) == np.sum(np.arange(2 * size) * factors)
    assert np.array_equal(jit(jax.grad(func))(x), factors * (rank == 0))


# ---- JPI: results and gradients -----------------------------------------------------------------

SHAPES = [(1,), (4,), (2, 3)]


def jpi_grad(f, x):
    def loss(x):
        return jnp.sum(f(x, jpi.gen_token())[0])

    found = jax.grad(loss)(x)
    assert np.array_equal(found, jax.jit(jax.grad(loss))(x))
    return found


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["SUM", "PROD", "MAX", "MIN"])
def test_allreduce_of_jpi(world, mpi, shape, name):
    n, rank = world.size, world.rank
    base = 1 + jnp.arange(np.prod(shape) * 1.0).reshape(shape)
    x = base + (rank if name in ("MAX", "MIN") else 0)
    result, slope = {
        "SUM": (base * n, base**0),
        "PROD": (base**n, base ** (n - 1)),
        "MAX": (base + n - 1, base * 0 + float(rank == n - 1)),
        "MIN": (base, base * 0 + float(rank == 0)),
    }[name]

    def f(x, token):
        return jpi.allreduce(x, token, getattr(mpi, name), comm=world)

    y, token = f(x, jpi.gen_token())
    assert np.allclose(y, result) and token == 0 and token.dtype == jnp.float32
    assert np.allclose(jpi_grad(f, x), slope)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("shape", SHAPES)
def test_moves_of_jpi(world, shape):
    n, rank, root = world.size, world.rank, world.size - 1
    x = jnp.ones(shape) * (rank + 1)
    every = np.stack([np.full(shape, r + 1.0) for r in range(n)])

    def allgather(x, token):
        return jpi.allgather(x, token, comm=world)

    def bcast(x, token):
        return jpi.bcast(x, token, root, comm=world)

    def gather(x, token):
        return jpi.gather(x, token, root, comm=world)

    token = jpi.gen_token()
    assert np.array_equal(allgather(x, token)[0], every)
    assert np.array_equal(bcast(x, token)[0], every[root])
    assert np.array_equal(gather(x, token)[0], every * (rank == root))
    assert gather(x.astype(int), token)[0].dtype == jnp.int64
    assert np.array_equal(jpi_grad(allgather, x), np.ones(shape))
    assert np.array_equal(jpi_grad(bcast, x), np.full(shape, rank == root))
    assert np.array_equal(jpi_grad(gather, x), np.ones(shape))


@pytest.mark.parametrize("rows,shape", [(1, (3,)), (2, ()), (3, (2,)), (0, (2,))])
def test_scatter_of_jpi(world, rows, shape):
    n, rank, root = world.size, world.rank, world.size - 1
    whole = np.arange(float(n * rows * int(np.prod(shape)))).reshape(n * rows, *shape)
    x = jnp.asarray(whole) if rank == root else jnp.full(whole.shape, -1.0)

    def f(x, token):
        return jpi.scatter(x, token, root, comm=world)

    y, _ = f(x, jpi.gen_token())
    part = whole[rank * rows : rank * rows + rows]
    expected = part[0] if rows == 1 else part
    assert y.shape == expected.shape and np.array_equal(y, expected)
    assert np.array_equal(jpi_grad(f, x), np.full(whole.shape, rank == root))
    if n > 1:
        with pytest.raises(ValueError, match="number of processes"):
            f(jnp.ones(n + 1), jpi.gen_token())


@pytest.mark.parametrize("shape", SHAPES)
def test_send_and_recv_of_jpi(world, shape):
    source, dest = ring(world)
    rank = world.rank
    x = jnp.ones(shape) * (rank + 1)

    def f(x, token):
        x = x * rank
        same, token = jpi.send(x, token, dest=dest, tag=0, comm=world)
        y = jnp.empty_like(same)
        return jpi.recv(y, token, source=source, tag=0, comm=world)

    for jit in (lambda f: f, jax.jit):
        y, token = jit(f)(x, jpi.gen_token())
        assert np.array_equal(y, np.full(shape, source * (source + 1.0))) and token == 0
    assert np.array_equal(jpi_grad(f, x), np.full(shape, rank))


def test_send_of_jpi_returns_its_array(world):
    """A rank that uses what send returns runs its adjoint, so that the receiver need not wait."""
    source, dest = ring(world)
    x = jnp.ones(3) * (world.rank + 1)

    def loss(x):
        same, token = jpi.send(x, jpi.gen_token(), dest, comm=world)
        y, _ = jpi.recv(x, token, source, comm=world)
        return jnp.sum(same * 10) + jnp.sum(y * (world.rank + 1))

    assert np.array_equal(jax.grad(loss)(x), np.full(3, 10.0 + dest + 1))
    same, token = jpi.send(jnp.arange(3), jpi.gen_token(), dest, comm=world)
    y, _ = jpi.recv(jnp.zeros(3, int), token, source, comm=world)
    assert np.array_equal(same, np.arange(3)) and np.array_equal(y, np.arange(3))


def test_one_way_of_jpi(world):
    """Rank 0 sends, the last rank receives; the sender's loss uses only what send returned."""
    n, rank = world.size, world.rank

    def loss(x):
        token = jpi.gen_token()
        if rank == 0:
            x, token = jpi.send(x, token, n - 1, tag=4, comm=world)
        if rank == n - 1:
            y, _ = jpi.recv(x, token, 0, tag=4, comm=world)
            return jnp.sum(y) * 3
        return jnp.sum(x) * 2

    expected = {0: 3.0 if n == 1 else 5.0, n - 1: 3.0 if n == 1 else 0.0}.get(rank, 2.0)
    assert np.array_equal(jax.grad(loss)(jnp.ones(2)), np.full(2, expected))


@pytest.mark.parametrize("shape", [(), (4,)])
def test_barrier_of_jpi(world, shape):
    def f(x):
        return jnp.sum(jpi.barrier(jpi.gen_token().astype(x.dtype) + x, comm=world))

    x = jnp.ones(shape)
    assert jax.jit(f)(x) == x.size and np.array_equal(jax.grad(f)(x), x)
    token = jpi.barrier(jpi.gen_token())
    assert token.shape == () and token.dtype == jnp.float32


def test_default_communicator_of_jpi(world):
    comm = jpi.get_default_comm()
    assert comm is jpi.get_default_comm() and comm.Get_size() == world.size
    y, _ = jpi.allreduce(jnp.ones(2), jpi.gen_token(), plait.SUM, comm=comm)
    assert np.array_equal(y, np.full(2, world.size))
