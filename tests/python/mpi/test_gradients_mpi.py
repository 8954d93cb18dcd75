"""The two conventions of gradients: programs of docs/gradients.md and of the peers' tests."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest


def own(rank):
    """A function that differs from rank to rank, and its derivative."""
    k = rank + 1.0
    return lambda y: jnp.sum(jnp.sin(k * y)), lambda y: k * np.cos(k * y)


def common(y):
    return jnp.sum(jnp.sin(y))


def programs(world, replicated):
    """Name, loss, and gradient of the one global loss S, by rank; x is a vector."""
    n, rank = world.size, world.rank
    f, _ = own(rank)
    slopes = [own(r)[1] for r in range(n)]

    def allreduce(x):
        return plait.allreduce(x, plait.SUM, comm=world, replicated=replicated)

    def bcast(x):
        return plait.bcast(x, n - 1, comm=world, replicated=replicated)

    def allgather(x):
        return plait.allgather(x, comm=world, replicated=replicated)

    def vary(y):
        return plait.pvary(y, comm=world) if replicated else y

    x = np.array([0.3, -0.2]) * (rank + 1)
    total = np.array([0.3, -0.2]) * n * (n + 1) / 2
    root = np.array([0.3, -0.2]) * n
    at_root = float(rank == n - 1)
    return jnp.asarray(x), {
        "g(AR x)": (lambda v: common(allreduce(v)), np.cos(total), n),
        "f_r(AR x)": (lambda v: f(vary(allreduce(v))), sum(s(total) for s in slopes), 1),
        "AR(f_r(AR x))": (
            lambda v: allreduce(f(vary(allreduce(v)))),
            sum(s(total) for s in slopes),
            n,
        ),
        "AR(f_r(bcast x))": (
            lambda v: allreduce(f(vary(bcast(v)))),
            at_root * sum(s(root) for s in slopes),
            n,
        ),
        "g(AG x)": (lambda v: common(allgather(v)), np.cos(x), n),
        "f_r(AG x)": (
            lambda v: f(vary(allgather(v))),
            sum(s(x) for s in slopes),
            1,
        ),
    }


def grads(every):
    """The gradients of all programs, as one program."""
    losses = {name: loss for name, (loss, _, _) in every.items()}
    return lambda x: {name: jax.grad(loss)(x) for name, loss in losses.items()}


def test_exact(world):
    """The loss is the sum over ranks: a value that all ranks hold counts once per rank."""
    x, every = programs(world, False)
    got = plait.jit(grads(every))(x)
    for name, (_, want, copies) in every.items():
        assert np.allclose(got[name], copies * want), name


@pytest.mark.parametrize("replicated", [True, "check"])
def test_replicated(world, replicated):
    """A result counts once; where ranks use a result in their own way, after pvary."""
    x, every = programs(world, replicated)
    f, h = plait.jit(grads(every)), 1e-6
    got, up, down = f(x), f(x + h * x), f(x - h * x)
    hvp = plait.jit(lambda v: jax.jvp(grads(every), (v,), (v,))[1])(x)
    for name, (_, want, _) in every.items():
        assert np.allclose(got[name], want), name
        assert np.allclose(hvp[name], (up[name] - down[name]) / (2 * h), atol=1e-5), name


def test_without_pvary_the_gradient_is_wrong_and_the_check_finds_it(world, monkeypatch):
    n, rank = world.size, world.rank
    f, _ = own(rank)
    x = jnp.asarray([0.3])
    slopes = [own(r)[1](0.3 * n) for r in range(n)]

    def loss(v, replicated):
        return f(plait.allreduce(v, plait.SUM, comm=world, replicated=replicated))

    g = plait.jit(jax.grad(lambda v: loss(v, True)))(x)
    assert np.allclose(g, slopes[rank])  # not the sum of the slopes
    text = (
        "allreduce: replicated=True, but the cotangents of its result differ"
        r".* at test_gradients_mpi.py:\d+"
    )
    if n > 1:
        with pytest.raises(plait.ReplicationError, match=text), plait.errors():
            plait.block(plait.jit(jax.grad(lambda v: loss(v, "check")))(x))
        monkeypatch.setenv("PLAIT_CHECK_REPLICATED", "1")
        with pytest.raises(plait.MismatchError, match=text), plait.errors():
            plait.block(plait.jit(jax.grad(lambda v: loss(v, True)))(x))
    batch = jax.vmap(
        jax.grad(lambda v: jnp.sum(jnp.sin(plait.allreduce(v, plait.SUM, replicated="check"))))
    )
    assert np.allclose(plait.jit(batch)(jnp.ones((2, 3))), np.cos(n))
    assert plait.allreduce(jnp.ones(1), plait.SUM)[0] == n


@pytest.mark.parametrize(
    "by_rank, are_alike",
    [
        (([np.inf, 1], [np.inf, 1]), True),
        (([np.inf, 1], [np.inf, 2]), False),
        (([np.inf, 1], [-np.inf, 1]), False),
        (([np.nan, 1], [np.nan, 1 + 1e-15]), True),
        (([np.nan, 1], [2, 1]), False),
    ],
)
def test_cotangents_are_compared_beside_those_that_are_not_finite(world, by_rank, are_alike):
    ct = jnp.asarray(by_rank[min(world.rank, 1)], jnp.float64)
    f = plait.jit(
        lambda x: jax.vjp(lambda v: plait.allreduce(v, plait.SUM, replicated="check"), x)[1](ct)[0]
    )
    if are_alike or world.size == 1:
        assert np.array_equal(plait.block(f(jnp.ones(2))), ct, equal_nan=True)
    else:
        with pytest.raises(plait.ReplicationError), plait.errors():
            plait.block(f(jnp.ones(2)))
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # not raised again at the end
            jax.effects_barrier()


def test_what_the_peers_expect(world):
    """Gradients that the tests of mpi4jax and JPI encode, seed 1 on every rank."""
    n, rank = world.size, world.rank
    rows = [(r + 1) % 3 for r in range(n)]
    weights = jnp.arange(sum(rows), dtype=float)

    def allreduce(v, op=plait.SUM):
        return plait.allreduce(v, op, comm=world, replicated=True)

    def transposed(v):
        return jax.linear_transpose(allreduce, v)(v)[0]

    def grad(f):
        return jax.grad(lambda v: jnp.sum(f(v)))

    def allgatherv(v):
        return weights * plait.allgatherv(v, rows, comm=world, replicated=True)

    programs = {
        "sum": grad(allreduce),
        "chained": grad(lambda v: allreduce(v) + allreduce(v)),
        "transpose": transposed,
        "transpose twice": lambda v: jax.linear_transpose(transposed, v)(v)[0],
        "jvp": lambda v: jax.jvp(allreduce, (v,), (v,))[1],
        "product": lambda v: grad(lambda u: allreduce(u, plait.PROD))(0 * v + 3),
        "winner": grad(lambda v: allreduce(v[:1], plait.MAX)),
        "allgather": grad(lambda v: plait.allgather(v, comm=world, replicated=True)),
        "bcast": grad(lambda v: plait.bcast(v, 0, comm=world, replicated=True)),
        "allgatherv": lambda v: grad(allgatherv)(jnp.resize(v, rows[rank])),
    }
    x = jnp.asarray([1.0 + rank, 2.0])
    total = np.array([n * (n + 1) / 2, 2.0 * n])
    start = sum(rows[:rank])
    want = {
        "sum": 1,
        "chained": 2,
        "transpose": x,
        "transpose twice": total,
        "jvp": total,
        "product": 3.0 ** (n - 1),
        "winner": np.array([rank == n - 1, 0]),
        "allgather": 1,
        "bcast": float(rank == 0),
        "allgatherv": np.arange(start, start + rows[rank]),
    }
    got = plait.jit(lambda v: {name: f(v) for name, f in programs.items()})(x)
    for name in programs:
        assert np.allclose(got[name], want[name]), name


def test_matrix_products_of_mpi4jax(world):
    """Mᵀ(ARᵀ y) with a column block of M on each rank: replicated, and its transposes."""
    rank = world.rank
    m = np.random.default_rng(0).standard_normal((3, 2 * world.size))
    mine = jnp.asarray(m[:, 2 * rank : 2 * rank + 2])

    def matvec(v):
        return plait.allreduce(mine @ v, plait.SUM, comm=world, replicated=True)

    y = jnp.asarray([1.0, -2.0, 3.0])
    v = jnp.ones(2)
    assert np.allclose(matvec(v), m @ np.ones(m.shape[1]))
    [back] = jax.linear_transpose(matvec, v)(y)
    assert np.allclose(back, mine.T @ y)
    [again] = jax.linear_transpose(lambda c: jax.linear_transpose(matvec, v)(c)[0], y)(v)
    assert np.allclose(again, matvec(v))


def test_jpi_token_programs(world):
    """Gather, scatter and barrier with tokens: each element counts once in both conventions."""
    n, rank = world.size, world.rank
    x = jnp.asarray([1.0 + rank])

    def gathered(v, token):
        y, token = plait.gather(v, 0, comm=world, token=token)
        token = plait.barrier(comm=world, token=token)
        return plait.depend(jnp.sum(y) if rank == 0 else 0.0 * jnp.sum(y), token)

    g = jax.jit(jax.grad(gathered))(x, plait.create_token())
    assert np.allclose(g, 1)

    def scattered(v, token):
        y, token = plait.scatter(v, 0, comm=world, token=token)
        return jnp.sum(y) * (rank + 1)

    v = jnp.ones((n, 2)) if rank == 0 else jnp.zeros(2)
    g = jax.jit(jax.grad(scattered))(v, plait.create_token())
    want = np.repeat(np.arange(1.0, n + 1)[:, None], 2, 1) if rank == 0 else np.zeros(2)
    assert np.allclose(g, want)


@pytest.mark.parametrize("solver", ["gmres", "bicgstab"])
def test_gradient_of_a_solver_that_all_ranks_run(world, solver):
    """As in docs/ranks.md: the matrix is the sum of the ranks' matrices, and is not symmetric."""
    numbers = np.random.default_rng(8)
    parts = numbers.normal(size=(world.size, 4, 4)) / 4 + 4 * np.eye(4)
    b = jnp.asarray(numbers.normal(size=4))
    solve = getattr(jax.scipy.sparse.linalg, solver)

    def loss(part):
        def apply(v):
            mine = part @ plait.pvary(v, comm=world)
            return plait.allreduce(mine, plait.SUM, comm=world, replicated=True)

        return common(solve(apply, b, tol=1e-6)[0])

    slope = plait.jit(jax.grad(loss))(jnp.asarray(parts[world.rank]))
    want = jax.grad(lambda a: common(jnp.linalg.solve(a, b)))(jnp.asarray(parts.sum(0)))
    assert np.allclose(slope, want, atol=1e-5)


def test_bad_convention(world):
    with pytest.raises(
        TypeError, match='allreduce: replicated is 1; expected False, True or "check"'
    ):
        plait.allreduce(jnp.ones(1), plait.SUM, replicated=1)
