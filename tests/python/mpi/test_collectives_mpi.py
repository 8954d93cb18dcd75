"""Every collective on MPI ranks: values, vmap, loops, tokens, derivatives, trees."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import plait
import pytest
from plait import _core

DTYPES = ["bool", "int16", "bfloat16", "float64", "complex64", "float8_e4m3fn"]


def table(n, dtype, seed=0):
    """Cases with all ranks' operands."""
    names = _core.reductions()
    every = cases.reductions(n, names) + cases.movements(n) + cases.on_processes(n)
    return {c.name: (c, c.operands(n, dtype, seed)) for c in every if c.has(dtype)}


def own(chosen, rank):
    return {name: jnp.asarray(xs[rank]) for name, (_, xs) in chosen.items()}


def check(got, chosen, rank, dtype, n):
    for name, (case, xs) in chosen.items():
        cases.same(got[name], case.want(xs)[rank], dtype, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(world, dtype):
    chosen = table(world.size, dtype)
    f = plait.jit(lambda xs: {k: chosen[k][0].call(x, world) for k, x in xs.items()})
    check(f(own(chosen, world.rank)), chosen, world.rank, dtype, world.size)


def test_eager(world):
    chosen = {k: v for k, v in table(world.size, "int32").items() if v[0].is_linear}
    got = {k: chosen[k][0].call(x, world) for k, x in own(chosen, world.rank).items()}
    check(got, chosen, world.rank, "int32", world.size)


def test_vmap_and_scan(world):
    n = world.size
    pair = [table(n, "float32", seed) for seed in (0, 100)]
    x = [own(chosen, world.rank) for chosen in pair]
    front = {k: jnp.stack([v[k] for v in x]) for k in x[0]}

    def batched(xs):
        def f(name, v):
            call = jax.vmap(lambda u: pair[0][name][0].call(u, world), in_axes=-1, out_axes=-1)
            return jnp.moveaxis(call(jnp.moveaxis(v, 0, -1)), -1, 0)

        return {k: f(k, v) for k, v in xs.items()}

    def looped(xs):
        def step(c, v):
            return c, {k: pair[0][k][0].call(u, world) for k, u in v.items()}

        return jax.lax.scan(step, 0, xs)[1]

    for f in (batched, looped):
        got = jax.device_get(plait.jit(f)(front))
        for i, chosen in enumerate(pair):
            check({k: v[i] for k, v in got.items()}, chosen, world.rank, "float32", n)


def test_lanes_of_a_loop_go_on_until_all_ranks_are_done(world):
    """The condition communicates: each lane ends when its last rank does, at its own time."""
    n = jnp.arange(3.0) + world.rank

    def count(n):
        def goes_on(k):
            return plait.allreduce(n - k, plait.MAX, comm=world) > 0

        return jax.lax.while_loop(goes_on, lambda k: k + 1, 0 * n)

    for wrap in (plait.jit, jax.jit):
        assert np.array_equal(wrap(jax.vmap(count))(n), np.arange(3.0) + world.size - 1)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("is_remat", [False, True])
def test_exact_adjoints(world, dtype, is_remat):
    """Σ y·Ax = Σ Aᵀy·x over ranks; jvp is the operation; the transpose of the transpose, too."""
    n, rank = world.size, world.rank
    chosen = {k: v for k, v in table(n, dtype).items() if v[0].is_linear}
    other = {k: (c, c.operands(n, dtype, 7)) for k, (c, _) in chosen.items()}
    ys = {k: c.want(xs) for k, (c, xs) in chosen.items()}
    cts = {k: jnp.asarray(cases.random(y[rank].shape, dtype, 3 + rank)) for k, y in ys.items()}

    def f(xs, dxs, cts):
        out = {}
        for name, x in xs.items():

            def call(v, name=name):
                return chosen[name][0].call(v, world)

            y, pull = jax.vjp(jax.checkpoint(call) if is_remat else call, x)
            back = pull(cts[name])[0]
            again = jax.linear_transpose(lambda c, pull=pull: pull(c)[0], cts[name])(x)[0]
            out[name] = (jax.jvp(call, (x,), (dxs[name],))[1], back, again)
        return out

    xs, dxs = own(chosen, rank), own(other, rank)
    got = jax.device_get(plait.jit(f)(xs, dxs, cts))
    for name in chosen:
        dy, back, again = got[name]
        cases.same(dy, other[name][0].want(other[name][1])[rank], dtype, n)
        cases.same(again, ys[name][rank], dtype, n)
        left = cases.product(cts[name], again)
        left, right = world.allreduce(np.array([left, cases.product(back, xs[name])]))
        norms = [float(np.linalg.norm(v)) for v in (cts[name], again)]
        scale = n * n * max(world.allgather(norms[0])) * max(world.allgather(norms[1]))
        cases.same_products(left, right, scale, dtype)


def test_tokens(world):
    """Tokens give the same results and gradients as the effect, without the effect."""
    n, rank = world.size, world.rank
    calls = {
        "allgather": lambda x, **k: plait.allgather(x, comm=world, **k),
        "reduce": lambda x, **k: plait.reduce(x, plait.SUM, n - 1, comm=world, **k),
        "permute": lambda x, **k: plait.permute(x, cases.ring(n), comm=world, **k),
        "gather": lambda x, **k: plait.gather(x, 0, comm=world, **k),
        "exscan": lambda x, **k: plait.exscan(x, plait.SUM, comm=world, **k),
        "pvary": lambda x, **k: plait.pvary(x, comm=world, **k),
    }

    def loss(x, token):
        total = 0.0
        for call in calls.values():
            if token is None:
                y = call(x * x)
            else:
                y, token = call(x * x, token=token)
            total = total + jnp.sum(jnp.sin(y))
        return total, token

    x = jnp.asarray(cases.random((3,), "float64", rank))
    token = plait.create_token()
    assert not jax.make_jaxpr(loss)(x, token).effects
    plain = plait.jit(jax.value_and_grad(loss, has_aux=True))(x, None)
    chained = jax.jit(jax.value_and_grad(loss, has_aux=True))(x, token)
    assert np.allclose(plain[0][0], chained[0][0]) and np.allclose(plain[1], chained[1])


def test_trees(world):
    """Several dtypes in one message; PRNG keys among them; gradients by leaf."""
    n, rank = world.size, world.rank

    def make(r):
        return {
            "f": cases.random((n, 2), "float32", r),
            "i": [cases.random((n,), "int8", r + 1), cases.random((n, 1, 3), "bool", r + 2)],
            "c": cases.random((n, 3), "complex128", r + 3),
            "h": cases.random((n,), "float16", r + 4),
        }

    trees = [make(r) for r in range(n)]
    leaves = [jax.tree.leaves(t) for t in trees]

    def every(want):
        columns = [want([t[i] for t in leaves])[rank] for i in range(len(leaves[0]))]
        return jax.tree.unflatten(jax.tree.structure(trees[0]), columns)

    x = jax.tree.map(jnp.asarray, trees[rank])
    source, dest = (rank - 1) % n, (rank + 1) % n

    def f(x):
        return (
            plait.alltoall(x, comm=world),
            plait.allgather(x, comm=world),
            plait.bcast(x, n - 1, comm=world),
            plait.sendrecv(x, x, source, dest, comm=world),
            plait.permute(x, cases.ring(n), comm=world),
        )

    _core.trace_start(True)
    got = plait.block(plait.jit(f)(x))
    assert len(_core.trace()) == len(got)
    _core.trace_start(False)
    ring = [(r - 1) % n for r in range(n)]
    wants = (
        oracle.alltoall,
        oracle.allgather,
        lambda xs: oracle.bcast(xs, n - 1),
        lambda xs: oracle.sendrecv(xs, xs, ring),
        lambda xs: oracle.sendrecv(xs, xs, ring),
    )
    for g, want in zip(got, wants, strict=True):
        assert jax.tree.all(jax.tree.map(np.array_equal, g, every(want)))

    floats = {"a": jnp.full(3, 1.0 + rank), "b": (jnp.float32(2), jnp.arange(2))}

    def loss(t):
        y = plait.permute(t, cases.ring(n), comm=world)
        z = plait.allreduce(t, plait.SUM, comm=world)
        scale = rank + 1.0
        return jnp.sum(y["a"]) * scale + jnp.sum(z["a"]) + z["b"][0].astype(float)

    g = plait.jit(jax.grad(loss, allow_int=True))(floats)
    assert np.allclose(g["a"], dest + 1.0 + n) and np.allclose(g["b"][0], n)
    key = jax.random.key(rank)
    got = plait.allgather({"key": key, "x": jnp.arange(2)}, comm=world)
    assert jnp.array_equal(got["key"], jnp.stack([jax.random.key(r) for r in range(n)]))
    assert plait.allgather({}, comm=world) == {}
    with pytest.raises(TypeError, match="allreduce: SUM is not defined for"):
        plait.allreduce({"key": key}, plait.SUM, comm=world)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_scalars_and_empty_arrays(world, shape):
    n, rank = world.size, world.rank
    xs = [cases.random(shape, "float64", r) for r in range(n)]
    x = jnp.asarray(xs[rank])
    many = [cases.random((n, *shape), "float64", r) for r in range(n)]

    def f(x, m):
        return (
            plait.allgather(x, comm=world),
            plait.scan(x, plait.SUM, comm=world),
            plait.reduce(x, plait.SUM, 0, comm=world),
            plait.gather(x, 0, comm=world),
            plait.permute(x, cases.ring(n), comm=world),
            plait.alltoall(m, comm=world),
            plait.reduce_scatter(m, plait.SUM, comm=world),
            plait.scatter(m if rank == 0 else x, 0, comm=world),
        )

    ring = [xs[(r - 1) % n] for r in range(n)]
    wants = (
        oracle.allgather(xs),
        oracle.scan(xs, "SUM"),
        oracle.reduce(xs, "SUM", 0),
        oracle.gather(xs, 0),
        ring,
        oracle.alltoall(many),
        oracle.reduce_scatter(many, "SUM"),
        oracle.scatter(many, 0),
    )
    for got, want in zip(plait.jit(f)(x, jnp.asarray(many[rank])), wants, strict=True):
        cases.same(got, want[rank], "float64", n)


def test_minloc_and_maxloc(world):
    n, rank = world.size, world.rank
    zeros = [[-0.0 if r else 0.0, 0.0 if r else -0.0] for r in range(n)]
    xs = [np.array([r, -r, 5, np.nan if r == n - 1 else 0, np.inf, *zeros[r]]) for r in range(n)]
    x = jnp.asarray(xs[rank])

    def f(x):
        tree = plait.minloc({"i": jnp.int8(rank), "f": jnp.float32(-rank)})
        batch = jax.vmap(lambda v: plait.maxloc(v)[1], out_axes=1)(jnp.stack([x, -x]))
        g = jax.grad(lambda v: jnp.sum(plait.minloc(v)[0]))(rank * jnp.ones(2))
        return plait.minloc(x), plait.maxloc(x), tree, batch, g

    low, high, tree, batch, g = plait.jit(f)(x)
    for (value, where), want in (low, oracle.minloc(xs)[0]), (high, oracle.maxloc(xs)[0]):
        assert np.array_equal(value, want[0], equal_nan=True)
        assert np.array_equal(where, want[1]) and where.dtype == jnp.int32
    assert tree == ({"i": 0, "f": -(n - 1)}, {"i": 0, "f": n - 1})
    assert np.array_equal(batch[:, 1], oracle.maxloc([-v for v in xs])[rank][1])
    assert np.allclose(g, n if rank == 0 else 0)
    assert np.array_equal(plait.minloc(x)[1], low[1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_extremes_that_are_subnormal(world, dtype):
    """XLA takes each of these numbers for zero."""
    n, last = world.size, world.size - 1
    tiny = jnp.dtype(dtype)
    least = np.frombuffer((1).to_bytes(tiny.itemsize, "little"), tiny)[0]
    mine = least if world.rank == last else np.zeros((), tiny)
    high, where = plait.maxloc(jnp.asarray(mine))
    assert np.asarray(high).tobytes() == least.tobytes() and where == last
    low, where = plait.minloc(jnp.asarray(mine))
    assert where == (0 if n > 1 else last)
    assert np.asarray(low).tobytes() == (mine if n == 1 else np.zeros((), tiny)).tobytes()


@pytest.mark.parametrize("count", [1, 4096])
def test_products_of_infinite_complex_numbers(world, count):
    """As in numpy, whichever way the data goes."""
    first, other = complex(np.inf, np.inf), complex(1, 0)
    x = jnp.full(count, first if world.rank == 0 else other, jnp.complex128)
    y = np.asarray(plait.allreduce(x, plait.PROD))
    if world.size > 1:
        assert np.isnan(y.real).all() and np.isnan(y.imag).all()


def test_derivatives_of_reductions(world):
    """Compare every loss of products and extremes with finite differences, twice."""
    n, rank = world.size, world.rank

    def loss(x):
        y = plait.allreduce(x, plait.PROD, comm=world) * (rank + 2)
        y = y + plait.reduce(x, plait.PROD, n - 1, comm=world) ** 2
        y = y + plait.reduce(x, plait.MAX, 0, comm=world) * x
        y = y + plait.allreduce(x, plait.MIN, comm=world) ** 2 + plait.allreduce(x, plait.MAX)
        return jnp.sum(y * jnp.sin(plait.scan(x, plait.SUM, comm=world)))

    x = jnp.asarray(cases.random((4,), "float64", rank))
    d = jnp.asarray(cases.random((4,), "float64", rank + 50))
    f = plait.jit(jax.value_and_grad(loss))
    h = 1e-6
    (_, grad), (up, grad_up), (down, grad_down) = f(x), f(x + h * d), f(x - h * d)

    def forward(v, t):
        return jax.jvp(jax.value_and_grad(loss), (v,), (t,))[1]

    tangent, hvp = plait.jit(forward)(x, d)
    slope = world.allreduce(float(up - down)) / (2 * h)
    assert np.allclose(world.allreduce(float(np.vdot(grad, d))), slope, rtol=1e-6)
    assert np.allclose(world.allreduce(float(tangent)), slope, rtol=1e-6)
    assert np.allclose(hvp, (grad_up - grad_down) / (2 * h), rtol=1e-5, atol=1e-5)


def test_products_with_zeros(world):
    n, rank = world.size, world.rank
    x = jnp.asarray([0.0 if rank == 0 else 2.0, 0.0, 3.0])
    g = plait.jit(jax.grad(lambda v: jnp.sum(plait.allreduce(v, plait.PROD, comm=world))))(x)
    others = np.array([2.0 ** (n - 1) if rank == 0 else 0.0, 0.0 if n > 1 else 1.0, 3.0 ** (n - 1)])
    assert np.allclose(g, n * others)


def test_ties_share(world):
    x = jnp.ones(2)
    g = plait.jit(jax.grad(lambda v: jnp.sum(plait.allreduce(v, plait.MAX, comm=world))))(x)
    assert np.allclose(g, 1.0)
    g = plait.jit(jax.grad(lambda v: jnp.sum(plait.reduce(v, plait.MAX, 0, comm=world))))(x)
    passed = 0.0 if world.rank == 0 else 1.0
    assert np.allclose(g, 1.0 / world.size + passed)


@pytest.mark.parametrize(
    "call,text",
    [
        (lambda x: plait.scan(x, plait.PROD), "scan: PROD has no derivative"),
        (lambda x: plait.exscan(x, plait.MIN), "exscan: MIN has no derivative"),
        (lambda x: plait.reduce_scatter(x, plait.MAX), "reduce_scatter: MAX has no derivative"),
    ],
)
def test_no_derivative(world, call, text):
    x = jnp.ones((world.size, 2))
    with pytest.raises(TypeError, match=text):
        jax.grad(lambda v: jnp.sum(call(v)))(x)
    call(jnp.ones((world.size, 2), int))


def test_part_of_the_world_in_backward_mode(world):
    """Adjoints run on the communicator of the call, not on the world."""
    part = world.Split(world.rank % 2, world.rank)
    n = part.size

    def loss(x):
        y = plait.allgather(x, comm=part) * (part.rank + 1)
        z = plait.alltoall(jnp.stack([x] * n), comm=part)
        return jnp.sum(y) + jnp.sum(z * (part.rank + 1)) + jnp.sum(plait.bcast(x, 0, comm=part))

    g = plait.jit(jax.grad(loss))(jnp.ones(2))
    want = n * (n + 1) + (n if part.rank == 0 else 0)
    assert np.allclose(g, want)
    part.Free()


def test_transposed_operand(world):
    """An operand whose layout is not row-major: jit = eager."""
    n = world.size
    xs = [cases.random((3, n), "float64", r) for r in range(n)]
    x = jnp.asarray(xs[world.rank])
    f = plait.jit(lambda v: plait.alltoall(v.T * 1.0, comm=world).T)
    want = oracle.alltoall([v.T for v in xs])[world.rank].T
    assert np.array_equal(f(x), want)
    assert np.array_equal(plait.alltoall(x.T, comm=world).T, want)


def test_large_arrays(world):
    """Larger than one piece of a transfer, through every way of a transport."""
    n, rank = world.size, world.rank
    xs = [cases.random((n, 40000), "float64", r) for r in range(n)]
    x = jnp.asarray(xs[rank])

    def f(v):
        return (
            plait.alltoall(v),
            plait.allgather(v[0]),
            plait.reduce_scatter(v, plait.SUM),
            plait.scan(v, plait.SUM),
            plait.gather(v[0], 0),
            plait.permute(v, cases.ring(n)),
        )

    wants = (
        oracle.alltoall(xs),
        oracle.allgather([v[0] for v in xs]),
        oracle.reduce_scatter(xs, "SUM"),
        oracle.scan(xs, "SUM"),
        oracle.gather([v[0] for v in xs], 0),
        [xs[(r - 1) % n] for r in range(n)],
    )
    for got, want in zip(plait.jit(f)(x), wants, strict=True):
        cases.same(got, want[rank], "float64", n)


def test_same_bits_on_every_rank(world):
    x = jnp.asarray(cases.random((1000,), "float32", world.rank)) * 1e3
    for y in (plait.allreduce(x, plait.SUM), plait.allgather(plait.scan(x, plait.SUM))):
        assert len({b.tobytes() for b in world.allgather(np.asarray(y))}) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda r: plait.allgather(jnp.ones(3 + r)),
        lambda r: plait.scan(jnp.ones(3, "float32" if r else "float64"), plait.SUM),
        lambda r: plait.reduce_scatterv(jnp.ones(6), plait.MAX if r else plait.MIN, [3, 3]),
        lambda r: plait.reduce(jnp.ones(30000), plait.SUM, min(r, 1)),
        lambda r: plait.alltoall(jnp.ones((2, 2))) if r else plait.allgather(jnp.ones(2)),
        lambda r: plait.permute(jnp.ones(3), [(0, 1)] if r else [(1, 0)]),
    ],
)
def test_ranks_that_differ(world, call):
    """All ranks get the same named error, and all go on."""
    if world.size != 2:
        pytest.skip("written for two ranks")
    with pytest.raises(plait.MismatchError), plait.errors():
        plait.block(call(world.rank))
    assert plait.allreduce(jnp.ones(1), plait.SUM)[0] == world.size


A, B = jnp.arange(4.0, dtype="float32"), jnp.arange(4, dtype="int32")


@pytest.mark.parametrize(
    "call",
    [
        lambda r: plait.bcast([A, B] if r else [B, A], 0),
        lambda r: plait.bcast([A, B] if r else [A, B.astype("uint32")], 0),
        lambda r: plait.bcast({"a": A, "b": B} if r else jnp.zeros(8, "uint32"), 0),
        lambda r: plait.allreduce([A, A[:2]] if r else [A[:2], A], plait.SUM),
        lambda r: plait.allgather([A, B] if r else [B, A]),
        lambda r: plait.gather([A, A[:2]] if r else [A[:2], A], 0),
        lambda r: plait.alltoall([A.reshape(2, 2), B.reshape(2, 2)][:: 2 * r - 1]),
    ],
)
def test_trees_that_differ(world, call):
    """The same number of bytes in all, but other arrays."""
    if world.size != 2:
        pytest.skip("written for two ranks")
    with pytest.raises(plait.MismatchError) as caught, plait.errors():
        plait.block(call(world.rank))
    assert "32[4] " in str(caught.value) or "32[2] " in str(caught.value)
    assert plait.allreduce(jnp.ones(1), plait.SUM)[0] == world.size


def test_trees_of_uneven_rows(world):
    """Row counts that differ from rank to rank are no mismatch."""
    n, rank = world.size, world.rank
    counts = [r + 1 for r in range(n)]
    table = [[1 + (i + j) % 2 for j in range(n)] for i in range(n)]

    def tree(rows, r):
        x = np.arange(2.0 * rows).reshape(rows, 2) + 10 * r
        return {"f": x.astype("float32"), "i": x.astype("int16")}

    own = tree(counts[rank], rank)
    rows = sum(counts) if rank == 0 else counts[rank]
    got = (
        plait.allgatherv(own, counts),
        plait.gatherv(own, counts, 0),
        plait.scatterv(tree(rows, rank), counts, 0),
        plait.alltoallv(tree(sum(table[rank]), rank), table),
    )
    start = sum(counts[:rank])
    sent = [np.split(tree(sum(table[r]), r)["f"], np.cumsum(table[r])[:-1]) for r in range(n)]
    every = np.concatenate([tree(counts[r], r)["f"] for r in range(n)])
    wants = (
        every,
        every if rank == 0 else own["f"],
        tree(sum(counts), 0)["f"][start : start + counts[rank]],
        np.concatenate([sent[r][rank] for r in range(n)]),
    )
    for y, want in zip(got, wants, strict=True):
        assert np.array_equal(y["f"], want) and np.array_equal(y["i"], want)
