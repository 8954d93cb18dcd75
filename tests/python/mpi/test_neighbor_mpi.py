"""Exchanges with neighbours on MPI ranks, in MPI's order of blocks."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import plait
import pytest
from plait import _comm, _core, _topology


def grids(world):
    from mpi4py import MPI

    n = world.size
    two = MPI.Compute_dims(n, 2)
    shapes = [[n], two, [1, n], [*two, 1]]
    return [
        (dims, [(i + first) % 2 == 0 for i in range(len(dims))])
        for dims in shapes
        for first in (0, 1)
    ]


def below(cart, rank, axis, step):
    """The rank at the place of ``rank`` moved along an axis, None beyond the boundary."""
    place = list(cart.Get_coords(rank))
    place[axis] += step
    if not 0 <= place[axis] < cart.dims[axis] and not cart.periods[axis]:
        return None
    return cart.Get_cart_rank([p % d for p, d in zip(place, cart.dims, strict=True)])


def expected(cart, xs):
    """The block from below is the block that the rank below sent up, and vice versa."""
    ys = []
    for rank in range(cart.size):
        blocks = []
        for axis in range(len(cart.dims)):
            for step in (-1, 1):
                other = below(cart, rank, axis, step)
                block = 2 * axis + (step < 0)
                blocks.append(np.zeros_like(xs[0][0]) if other is None else xs[other][block])
        ys.append(np.stack(blocks))
    return ys


def test_grids(world):
    for dims, periods in grids(world):
        cart = world.Create_cart(dims, periods, reorder=False)
        n, rank, k = world.size, cart.rank, 2 * len(dims)
        xs = [cases.random((k, 3), "float64", r) for r in range(n)]
        x = jnp.asarray(xs[rank])
        got = plait.jit(lambda v, c=cart: plait.neighbor_alltoall(v, comm=c))(x)
        assert np.array_equal(got, expected(cart, xs)[rank])
        one = [np.stack([v[0]] * k) for v in xs]
        got = plait.neighbor_allgather(x[0], comm=cart)
        assert np.array_equal(got, expected(cart, one)[rank])
        if min(dims) > 2 or not any(periods):  # otherwise some MPIs differ from the standard
            theirs = np.zeros((k, 3))
            cart.Neighbor_alltoall(np.ascontiguousarray(xs[rank]), theirs)
            assert np.array_equal(expected(cart, xs)[rank], theirs)
        cart.Free()


def test_shift(world):
    n = world.size
    for dims, periods in grids(world):
        cart = world.Create_cart(dims, periods)
        x = jnp.asarray(cart.rank + 1.0)
        for axis in range(len(dims)):
            for step in (-2, -1, 0, 1, 3):
                source = below(cart, cart.rank, axis, -step)
                want = 0 if source is None else source + 1
                assert plait.shift(x, axis, step, comm=cart) == want
        cart.Free()
    cart = world.Create_cart([n], [False])
    g = plait.jit(jax.grad(lambda v: plait.shift(v, 0, 1, comm=cart) * (cart.rank + 1.0)))(x)
    assert g == (cart.rank + 2 if cart.rank + 1 < n else 0)
    cart.Free()


def graphs(world):
    """A star, a graph with a double edge and loops, and a graph in which some have no neighbour."""
    n = world.size
    star = [[r for r in range(1, n)]] + [[0]] * (n - 1)
    double = [[(r + 1) % n, (r + 1) % n, r] for r in range(n)]
    some = [[n - 1] if r == 0 else [] for r in range(n)]
    return [star, double, some]


def sources_of(dests):
    """The sources of every rank, in an order of this test: from the last rank down."""
    n = len(dests)
    return [[s for s in reversed(range(n)) for d in dests[s] if d == r] for r in range(n)]


def along(sources, dests, xs):
    """The k-th edge from i to j is the k-th such edge in both lists."""
    ys = []
    for rank, own in enumerate(sources):
        seen = {}
        blocks = np.zeros((len(own), *xs[rank].shape[1:]))
        for place, s in enumerate(own):
            k = seen[s] = seen.get(s, -1) + 1
            blocks[place] = xs[s][[i for i, d in enumerate(dests[s]) if d == rank][k]]
        ys.append(blocks)
    return ys


def test_graphs(world):
    n, rank = world.size, world.rank
    for dests in graphs(world):
        sources = sources_of(dests)
        comm = world.Create_dist_graph_adjacent(sources[rank], dests[rank])
        xs = [cases.random((len(dests[r]), 2), "float64", r) for r in range(n)]
        f = plait.jit(lambda v, c=comm: plait.neighbor_alltoall(v, comm=c))
        want = along(sources, dests, xs)[rank]
        assert np.array_equal(f(jnp.asarray(xs[rank])), want)
        one = [cases.random((2,), "float64", r) for r in range(n)]
        copies = [
            np.stack([x] * len(d)) if d else np.zeros((0, 2))
            for x, d in zip(one, dests, strict=True)
        ]
        got = plait.neighbor_allgather(jnp.asarray(one[rank]), comm=comm)
        assert np.array_equal(got, along(sources, dests, copies)[rank])
        comm.Free()
    if n == 1:
        return  # MPICH makes no graph without edges
    lists = graphs(world)[0]
    index, flat = np.cumsum([len(v) for v in lists]).tolist(), [d for v in lists for d in v]
    graph = world.Create_graph(index, flat)
    x = jnp.asarray([1.0 + rank] * len(lists[rank]))
    got = plait.neighbor_alltoall(x, comm=graph)
    assert np.array_equal(got, [1.0 + r for r in lists[rank]])
    graph.Free()


def test_adjoints(world):
    """Σ y·Ax = Σ Aᵀy·x for every neighbour operation and graph, for a batch."""
    n, rank = world.size, world.rank
    dests = graphs(world)[1]
    comms = {
        "ring": world.Create_cart([n], [True]),
        "line": world.Create_cart([n], [False]),
        "torus": world.Create_cart([1, n], [True, True]),
        "graph": world.Create_dist_graph_adjacent(sources_of(dests)[rank], dests[rank]),
    }
    n_dests = {k: len(dests[0]) if k == "graph" else 2 * len(c.dims) for k, c in comms.items()}
    calls = {}
    for key, comm in comms.items():
        calls[key, "one"] = lambda v, c=comm: plait.neighbor_allgather(v, comm=c)
        calls[key, "all"] = lambda v, c=comm: plait.neighbor_alltoall(v, comm=c)
    shapes = {(k, w): (3,) if w == "one" else (n_dests[k], 3) for k, w in calls}

    def draw(key, shape, seed):
        return jnp.asarray(cases.random((2, *shape), "complex64", rank + seed + len(key[0])))

    def f(xs, cts):
        out = {}
        for key, call in calls.items():
            y, pull = jax.vjp(jax.vmap(call), xs[key])
            again = jax.linear_transpose(lambda c, pull=pull: pull(c)[0], cts[key])(xs[key])[0]
            out[key] = (y, jnp.stack([call(v) for v in xs[key]]), pull(cts[key])[0], again)
        return out

    xs = {key: draw(key, shape, 0) for key, shape in shapes.items()}
    ys = jax.eval_shape(lambda v: {k: jax.vmap(calls[k])(x) for k, x in v.items()}, xs)
    cts = {key: draw(key, y.shape[1:], 5) for key, y in ys.items()}
    for key, (y, rows, back, again) in jax.device_get(plait.jit(f)(xs, cts)).items():
        assert np.array_equal(y, rows) and np.allclose(again, y, rtol=1e-5)
        sums = np.array([cases.product(cts[key], y), cases.product(back, xs[key])])
        left, right = world.allreduce(sums)
        assert np.allclose(left, right, rtol=1e-4), key
    for comm in comms.values():
        comm.Free()


def test_trees_and_tokens(world):
    n = world.size
    cart = world.Create_cart([n], [True])
    x = {"a": jnp.full((2, 3), cart.rank, "int8"), "b": jnp.full((2,), cart.rank + 0.5)}
    y, token = plait.neighbor_alltoall(x, comm=cart, token=plait.create_token())
    around = np.array([(cart.rank - 1) % n, (cart.rank + 1) % n])
    assert np.array_equal(y["b"], around + 0.5)
    assert np.array_equal(y["a"], np.stack([around] * 3, 1)) and token == 0
    assert np.array_equal(plait.shift(x, 0, 1, comm=cart)["a"], np.full((2, 3), around[0]))
    cart.Free()


def test_plait_comm_of_a_grid(world):
    cart = world.Create_cart([world.size], [True])
    comm = plait.Comm(cart)
    y = plait.neighbor_allgather(jnp.asarray(comm.rank), comm=comm)
    assert np.array_equal(y, [(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size])
    xs = [np.float64(r) for r in range(comm.size)]
    assert np.array_equal(
        plait.allgather(jnp.asarray(xs[comm.rank]), comm=cart), oracle.allgather(xs)[0]
    )
    cart.Free()


def test_ranks_wait_for_each_other_before_they_tell_their_neighbours(world, monkeypatch):
    """The call of MPI that tells them would wait for ever for a rank that does not come."""
    made, found, add, read = [], [], _core.add_mpi, _topology.read
    monkeypatch.setattr(_core, "add_mpi", lambda *facts: made.append(facts) or add(*facts))
    monkeypatch.setattr(_topology, "read", lambda comm: found.append(len(made)) or read(comm))
    ring = world.Create_dist_graph_adjacent([world.rank], [world.rank])
    assert _comm.resolve(ring, "test").topology is not None
    assert found == [4]
    ring.Free()


def test_bad_arguments(world):
    x = jnp.ones((5, 2))
    cart = world.Create_cart([world.size], [True])
    cases_ = [
        (lambda: plait.neighbor_alltoall(x, comm=world), TypeError, "has no topology"),
        (lambda: plait.shift(x, 0, 1), TypeError, "shift: the communicator has no topology"),
        (lambda: plait.shift(x, 1, 1, comm=cart), ValueError, "shift: axis 1 is outside 0..0"),
        (lambda: plait.shift(x, 0, 0.5, comm=cart), TypeError, 'argument "step"'),
        (
            lambda: plait.neighbor_alltoall(x, comm=cart),
            ValueError,
            "neighbor_alltoall: x has shape (5, 2), expected (2, ...)",
        ),
        (
            lambda: plait.permute(x, [(0, 0), (0, 0)]),
            ValueError,
            "permute: rank 0 is a source more than once",
        ),
        (
            lambda: plait.permute(x, [(0, world.size)]),
            ValueError,
            f"permute: perm[0] {world.size} is not a rank",
        ),
        (lambda: plait.permute(x, [(0,)]), ValueError, "permute: perm[0] is (0,); expected a pair"),
        (lambda: plait.neighbor_allgather(x, comm="a"), TypeError, "use plait.permute there"),
    ]
    for call, error, text in cases_:
        with pytest.raises(error) as caught:
            call()
        assert text in str(caught.value)
    cart.Free()
