"""send, recv and sendrecv on MPI ranks: matching, order, trees, derivatives by tokens."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from plait import _core, _eager

LARGE = 40000  # numbers: more than a send may complete locally


def ring(world):
    return (world.rank - 1) % world.size, (world.rank + 1) % world.size


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit, plait.jit])
def test_everybody_sends_first(world, jit):
    source, dest = ring(world)

    def f(x):
        plait.send(x, dest)
        return plait.recv(jnp.zeros_like(x), source)

    y = jit(f)(jnp.full((2, 3), world.rank, "int16"))
    assert np.array_equal(y, np.full((2, 3), source)) and y.dtype == jnp.int16


def test_tokens(world):
    source, dest = ring(world)

    def f(x, token):
        token = plait.send(x, dest, token=token)
        y, token = plait.recv(x * 0, source, token=token)
        return y, token

    token = plait.create_token()
    assert not jax.make_jaxpr(f)(jnp.ones(2), token).effects
    y, token = jax.jit(f)(jnp.ones(2) * world.rank, token)
    assert np.array_equal(y, np.ones(2) * source) and token == 0


def test_tokens_of_some_ranks_only(world):
    """The first call by token need not be a call of all ranks."""
    comm = world.Dup()
    assert plait.allreduce(jnp.ones(1), plait.SUM, comm=comm) == world.size
    if world.rank == 0:
        token = plait.send(jnp.arange(3), 0, comm=comm, token=plait.create_token())
        y, _ = plait.recv(jnp.zeros(3, int), 0, comm=comm, token=token)
        assert np.array_equal(y, np.arange(3))
    world.Barrier()
    comm.Free()


def test_a_program_that_only_sends(world):
    source, dest = ring(world)
    f = plait.jit(lambda x: plait.send(x, dest, tag=5))
    assert f(jnp.arange(3) + world.rank) is None
    y = plait.recv(jnp.zeros(3, int), source, tag=5)
    assert np.array_equal(y, np.arange(3) + source)


def test_send_then_recv_of_one_array(world):
    """The sharp bits: program order holds, and recv leaves its argument alone."""
    source, dest = ring(world)

    def f(x):
        plait.send(x, dest)
        y = plait.recv(x, source)
        plait.send(y, dest)
        return y, plait.recv(x, source), x

    x = jnp.zeros((10, 10)) + world.rank
    y, z, same = plait.jit(f)(x)
    assert np.array_equal(same, x) and np.all(y == source)
    assert np.all(z == (world.rank - 2) % world.size)


def test_tags_choose(world):
    source, dest = ring(world)

    def f(x):
        plait.send(x, dest, tag=1)
        plait.send(x * 10, dest, tag=2)
        second = plait.recv(x, source, tag=2)
        return second, plait.recv(x, source, tag=1)

    second, first = plait.jit(f)(jnp.asarray([1 + world.rank]))
    assert first == 1 + source and second == 10 * (1 + source)


def test_tags_that_count(world, monkeypatch):
    """Programs are not compiled for every tag: after some tags, tags and ranks are operands."""
    from mpi4py import MPI

    monkeypatch.setattr(_eager, "_MANY", 8)
    comm = world.Dup()
    source, dest = ring(comm)
    n_steps = 30
    tree = {"a": jnp.arange(3.0) + comm.rank, "b": jnp.full((2, 2), comm.rank, "int8")}
    empty, nothing = jax.tree.map(jnp.zeros_like, tree), {"a": jnp.full(3, -1.0), "b": tree["b"]}
    want = {"a": np.arange(3.0) + source, "b": np.full((2, 2), source)}
    for i in range(n_steps):
        status = MPI.Status()
        y = plait.sendrecv(tree, empty, source, dest, sendtag=i, recvtag=i, comm=comm)
        plait.send(tree, dest, tag=n_steps + i, comm=comm)
        z = plait.recv(empty, source, tag=n_steps + i, comm=comm, status=status)
        nobody = plait.recv(nothing, plait.PROC_NULL, tag=i, comm=comm)
        assert jax.tree.all(jax.tree.map(np.array_equal, y, want)), i
        assert jax.tree.all(jax.tree.map(np.array_equal, z, want)), i
        assert z["b"].dtype == jnp.int8 and jax.tree.all(
            jax.tree.map(np.array_equal, nobody, nothing)
        )
        assert (status.Get_source(), status.Get_tag()) == (source, n_steps + i)
    mine = plait.Comm(comm)
    assert len(_eager._programs[mine.id()]) < 3 * _eager._MANY + 10
    with pytest.raises(ValueError, match="tag"):
        plait.send(tree, dest, tag=-3, comm=comm)
    mine.free()
    comm.Free()


@pytest.mark.parametrize("shared", ["", "off"])
def test_large_tags(world, shared, monkeypatch):
    """Any int within a node; up to MPI's bound where MPI carries the messages."""
    from mpi4py import MPI

    monkeypatch.setenv("PLAIT_SHARED", shared)
    comm = world.Dup()
    source, dest = ring(comm)
    bound = world.Get_attr(MPI.TAG_UB)
    is_of_mpi = plait.Comm(comm).direct.startswith("off")
    x = jnp.arange(3.0) + comm.rank
    theirs = jnp.arange(3.0) + source
    for tag in (32768, 1_000_003, 536870911, bound if is_of_mpi else 2**31 - 1):
        status = MPI.Status()
        plait.send(x, dest, tag=tag, comm=comm)
        y = plait.recv(x, source, tag=tag, comm=comm)
        z = plait.sendrecv(x, x, source, dest, sendtag=tag, comm=comm, status=status)
        assert np.array_equal(plait.block(y), theirs) and np.array_equal(plait.block(z), theirs)
        assert status.Get_tag() == tag and status.Get_source() == source

    def both(v):  # its adjoint is `exchange`
        y = plait.sendrecv(v * v, v, source, dest, sendtag=tag, comm=comm)
        return jnp.sum(y) * (comm.rank + 1)

    assert np.allclose(jax.grad(both)(x), 2 * x * (dest + 1))
    assert issubclass(plait.ArgumentError, ValueError)
    if is_of_mpi and bound < 2**31 - 1:
        text = f"rank {comm.rank} of .*tag {bound + 1} is outside 0..{bound}, .*MPI_TAG_UB"
        for jit in (lambda f: f, jax.jit):
            with pytest.raises(plait.ArgumentError, match=text), plait.errors():
                jit(lambda v: plait.send(v, dest, tag=bound + 1, comm=comm))(x)
                jax.effects_barrier()
            with pytest.raises(plait.ArgumentError, match=text), plait.errors():
                plait.block(jit(lambda v: plait.recv(v, source, tag=bound + 1, comm=comm))(x))
    assert plait.allreduce(jnp.ones(1), plait.SUM, comm=comm)[0] == comm.size
    comm.Free()


def test_no_partner(world):
    from mpi4py import MPI

    x = jnp.arange(3.0)
    for null in (plait.PROC_NULL, MPI.PROC_NULL):
        plait.send(x, null)
        assert np.array_equal(plait.recv(x, null), x)
    g = jax.grad(lambda v: jnp.sum(plait.recv(v, plait.PROC_NULL) ** 2))(x)
    assert np.allclose(g, 2 * x)


def test_any_source(world):
    from mpi4py import MPI

    n, rank = world.size, world.rank
    if rank != 0:
        plait.send(jnp.asarray([rank]), 0, tag=rank)
    seen = []
    for _ in range(n - 1 if rank == 0 else 0):
        status = MPI.Status()
        y = plait.block(plait.recv(jnp.zeros(1, int), status=status))
        assert status.Get_source() == status.Get_tag() == y[0]
        seen.append(int(y[0]))
    plait.barrier()  # before other ranks go on and send rank 0 something else
    assert sorted(seen) == list(range(1, n) if rank == 0 else [])


def test_status_of_nobody(world):
    """MPI 4.0, 3.10: source and tag of a receive from MPI_PROC_NULL; MPIs use different values."""
    from mpi4py import MPI

    x = jnp.arange(3)
    for receive in (
        lambda s: plait.recv(x, MPI.PROC_NULL, tag=7, status=s),
        lambda s: plait.sendrecv(x, x, MPI.PROC_NULL, MPI.PROC_NULL, status=s),
    ):
        status = MPI.Status()
        assert np.array_equal(plait.block(receive(status)), x)
        found = status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)
        assert found == (MPI.PROC_NULL, MPI.ANY_TAG, 0)


def test_trees(world):
    source, dest = ring(world)

    def make(r):
        return {"a": jnp.full((2,), r, "float32"), "b": (jnp.full((3, 1), r, "int8"), r > 0)}

    def f(x):
        plait.send(x, dest)
        return plait.recv(jax.tree.map(jnp.zeros_like, x), source)

    _core.trace_start(True)
    got = plait.block(plait.jit(f)(make(world.rank)))
    lines = _core.trace()
    _core.trace_start(False)
    assert jax.tree.all(jax.tree.map(np.array_equal, got, make(source)))
    assert len(lines) == 2 and "send" in lines[0] and "recv" in lines[1]


def test_vmap_is_one_message(world):
    source, dest = ring(world)

    def f(x):
        plait.send(x, dest)
        return plait.recv(x, source)

    x = jnp.arange(12.0).reshape(3, 4) + world.rank
    _core.trace_start(True)
    y = plait.block(plait.jit(jax.vmap(f, in_axes=1, out_axes=1))(x))
    assert len(_core.trace()) == 2
    _core.trace_start(False)
    assert np.array_equal(y, np.arange(12.0).reshape(3, 4) + source)


def test_in_a_loop(world):
    source, dest = ring(world)

    def step(x, _):
        plait.send(x, dest)
        y = plait.recv(x, source)
        return y, y

    ys = plait.jit(lambda x: jax.lax.scan(step, x, None, length=4)[1])(jnp.asarray(world.rank))
    assert np.array_equal(ys, [(world.rank - k - 1) % world.size for k in range(4)])


# ---- derivatives ---------------------------------------------------------------------------------


def chained(world, x, token):
    """Received values with weights by rank, on a chain that reaches the loss."""
    source, dest = ring(world)
    token = plait.send(jnp.sin(x), dest, tag=3, token=token)
    y, token = plait.recv(jnp.zeros_like(x), source, tag=3, token=token)
    return plait.depend(jnp.sum(y * (world.rank + 1)), token)


@pytest.mark.parametrize("jit", [jax.jit, plait.jit])
def test_gradient_by_tokens(world, jit):
    _, dest = ring(world)
    x = jnp.arange(3.0) + world.rank
    g = jit(jax.grad(lambda v: chained(world, v, plait.create_token())))(x)
    assert np.allclose(g, np.cos(x) * (dest + 1))
    hvp = jit(
        lambda v: jax.jvp(jax.grad(lambda u: chained(world, u, plait.create_token())), (v,), (v,))[
            1
        ]
    )
    assert np.allclose(hvp(x), -np.sin(x) * x * (dest + 1))
    source, _ = ring(world)
    tangent = jax.jvp(lambda v: chained(world, v, plait.create_token()), (x,), (x,))[1]
    other = np.arange(3.0) + source
    assert np.allclose(tangent, np.sum(np.cos(other) * other) * (world.rank + 1))


def test_gradient_of_who_only_sends(world):
    """Rank 0 distributes; its loss is tied to the token, the others' to the data received."""
    n, rank = world.size, world.rank

    def loss(x, token):
        if rank == 0:
            for r in range(1, n):
                token = plait.send(x * x, r, token=token)
            return plait.depend(jnp.sum(x), token)
        y, token = plait.recv(jnp.zeros_like(x), 0, token=token)
        return jnp.sum(y) * rank

    x = jnp.asarray([1.0, 2.0])
    g = plait.jit(jax.grad(lambda v, t: loss(v, t), argnums=(0, 1)))(x, plait.create_token())[0]
    want = 1 + 2 * x * (n * (n - 1) / 2) if rank == 0 else np.zeros(2)
    assert np.allclose(g, want)


def test_gradient_of_trees(world):
    source, dest = ring(world)

    def loss(t, token):
        token = plait.send(t, dest, token=token)
        y, token = plait.recv(jax.tree.map(jnp.zeros_like, t), source, token=token)
        return plait.depend(jnp.sum(y["a"] ** 2) + y["b"].astype(float), token)

    t = {"a": jnp.arange(2.0), "b": jnp.float32(3), "n": jnp.int8(1)}
    g = plait.jit(jax.grad(loss, allow_int=True))(t, plait.create_token())
    assert np.allclose(g["a"], 2 * np.arange(2.0)) and g["b"] == 1


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_remat(world, dtype):
    """Backward mode repeats the communication on both partners, or on neither."""
    source, dest = ring(world)

    @jax.checkpoint
    def f(x, token):
        token = plait.send(x * x, dest, token=token)
        y, token = plait.recv(jnp.zeros_like(x), source, token=token)
        return y * y, token

    @jax.checkpoint
    def g(x):
        y = plait.sendrecv(x * x, jnp.zeros_like(x), source, dest)
        return plait.allgather(y * y)[world.rank]

    def loss(x):
        y, token = f(x, plait.create_token())
        return plait.depend(jnp.real(jnp.sum(y)) + jnp.real(jnp.sum(g(x))), token)

    x = jnp.arange(3.0).astype(dtype) + world.rank
    assert np.allclose(plait.jit(jax.grad(loss))(x), 8 * np.asarray(x) ** 3)


def test_send_without_token_has_no_gradient(world):
    source, dest = ring(world)

    def loss(x, token=None):
        plait.send(x, dest, token=token)
        return jnp.sum(x)

    text = "send: .*Pass token= of a floating dtype .* or use plait.sendrecv"
    with pytest.raises(TypeError, match=text):
        jax.make_jaxpr(jax.grad(loss))(jnp.ones(2))
    with pytest.raises(TypeError, match=text):
        jax.make_jaxpr(jax.grad(loss))(jnp.ones(2), jnp.zeros((), int))

    def other(x):
        plait.send(jax.lax.stop_gradient(x), dest)
        plait.send(jnp.arange(2), dest)
        y = plait.recv(jnp.zeros(2), source)
        return jnp.sum(x * y) + plait.recv(jnp.zeros(2, int), source)[0].astype(float)

    assert np.allclose(jax.grad(other)(jnp.ones(2)), 1)


def test_adjoint_of_any_source_and_tag(world):
    """The adjoint goes back along the message, whatever its source and tag."""
    source, dest = ring(world)
    n, rank = world.size, world.rank
    x = jnp.arange(3.0) + rank

    def both(v):
        y = plait.sendrecv(jnp.sin(v), v, plait.ANY_SOURCE, dest, sendtag=rank + 1)
        return jnp.sum(y * (rank + 1))

    assert np.allclose(plait.jit(jax.grad(both))(x), np.cos(x) * (dest + 1))
    g = plait.jit(jax.vmap(jax.grad(both), in_axes=1, out_axes=1))(jnp.stack([x, 2 * x], 1))
    assert np.allclose(g, np.cos(np.stack([x, 2 * x], 1)) * (dest + 1))
    hvp = plait.jit(lambda v: jax.jvp(jax.grad(both), (v,), (v,))[1])(x)
    assert np.allclose(hvp, -np.sin(x) * x * (dest + 1))
    plait.barrier()  # rank 0 still takes from any source what only its partner is to send

    def one_way(v, token):
        """The others send with tags of their own; rank 0 takes the messages as they come."""
        if rank > 0:
            token = plait.send(v * v, 0, tag=10 + rank, token=token)
            return plait.depend(0.0, token)
        total = 0.0
        for _ in range(1, n):
            y, token = plait.recv({"a": jnp.zeros(3)}, token=token)
            total = total + jnp.sum(y["a"]) * 3.0
        return plait.depend(total, token)

    g, _ = plait.jit(jax.grad(one_way, argnums=(0, 1)))(x, plait.create_token())
    assert np.allclose(g, 6 * x if rank > 0 else 0)

    def in_order(v, token):
        token = plait.send(v, dest, tag=5, token=token)
        token = plait.send(v * v, dest, tag=6, token=token)
        y, token = plait.recv(v * 0, source, token=token)
        z, token = plait.recv(v * 0, source, token=token)
        return plait.depend(jnp.sum(y) + 2 * jnp.sum(z), token)

    g = plait.jit(jax.grad(in_order))(x, plait.create_token())
    assert np.allclose(g, 1 + 4 * x)
    with pytest.raises(ValueError, match="recv: source=ANY_SOURCE has no adjoint"):
        jax.make_jaxpr(lambda c: jax.linear_transpose(lambda v: plait.recv(v), x)(c))(x)


def test_sendrecv_of_other_dtypes(world):
    """The array sent and the array received differ in dtype and shape."""
    if world.size % 2:
        pytest.skip("two neighbours in the ring would be alike")
    source, dest = ring(world)
    kinds = [jnp.ones(2, "float32"), jnp.ones((3, 1), "complex128")]
    mine, theirs = kinds[world.rank % 2], kinds[1 - world.rank % 2]

    def loss(x):
        y = plait.sendrecv(x, jnp.zeros_like(theirs), source, dest)
        return jnp.sum(jnp.real(y)).astype(float) * (world.rank + 1)

    g = plait.jit(jax.grad(loss))(mine)
    assert g.dtype == mine.dtype and np.allclose(g, dest + 1)


# ---- faults --------------------------------------------------------------------------------------


def test_truncation_on_both_partners(world):
    if world.size == 1:
        pytest.skip("needs two ranks")

    def f(x):
        if world.rank == 0:
            return plait.send(x, 1)
        return plait.recv(jnp.zeros(3), 0)

    text = f"{8 * LARGE} bytes of float64.* expects 24 bytes"
    if world.rank < 2:
        with pytest.raises(plait.TruncationError, match=text), plait.errors():
            f(jnp.ones(LARGE))
    assert plait.allreduce(jnp.ones(1), plait.SUM)[0] == world.size


def test_messages_of_mpi4py_do_not_mix(world):
    source, dest = ring(world)
    request = world.isend({"pickled": world.rank}, dest, tag=0)
    y = plait.sendrecv(jnp.ones(2) * world.rank, jnp.zeros(2), source, dest, comm=world)
    assert world.recv(source=source, tag=0) == {"pickled": source}
    request.wait()
    assert np.all(y == source)


def test_bad_arguments(world):
    x, n = jnp.ones(2), world.size
    cases_ = [
        (lambda: plait.send(x, n), ValueError, f"send: dest {n} is not a rank"),
        (lambda: plait.send(x, 0, tag=-1), ValueError, "send: tag -1 is outside 0..2147483647"),
        (lambda: plait.send(x, True), TypeError, 'send got unexpected type for argument "dest"'),
        (lambda: plait.send(x, plait.ANY_SOURCE), ValueError, "send: dest plait.ANY_SOURCE is not"),
        (lambda: plait.recv(x, n), ValueError, f"recv: source {n} is not a rank"),
        (lambda: plait.recv(x, 0, status=3), TypeError, "recv: status is int"),
        (lambda: plait.send(x, 0, comm="a"), TypeError, "send: not possible in shard_map; use"),
    ]
    for call, error, text in cases_:
        with pytest.raises(error) as caught:
            call()
        assert text in str(caught.value)


def test_example_of_jpi(world):
    """4 ranks: results 12, 6, 6, 6; the exact gradient is P + 1 on every rank."""
    n, rank = world.size, world.rank

    def func(data):
        token = plait.create_token()
        result, _ = plait.allreduce(data, plait.SUM, token=token, comm=world)
        return jnp.sum(result * 2 if rank == 0 else result)

    data = jnp.asarray([rank], jnp.float32)
    total = n * (n - 1) / 2
    assert jax.jit(func)(data) == (2 * total if rank == 0 else total)
    assert np.allclose(jax.grad(func)(data), n + 1)


def test_large_messages(world):
    """Longer than a send completes locally, on both partners of every pair at once."""
    source, dest = ring(world)
    x = jnp.asarray(cases.random((LARGE,), "float64", world.rank))
    y = plait.sendrecv(x, jnp.zeros_like(x), source, dest)
    assert np.array_equal(y, cases.random((LARGE,), "float64", source))
    if world.size == 1:
        return

    def f(x):
        if world.rank % 2 == 0:
            plait.send(x, dest, tag=1)
            return plait.recv(x, source, tag=1)
        y = plait.recv(x, source, tag=1)
        plait.send(x, dest, tag=1)
        return y

    if world.size % 2 == 0:
        assert np.array_equal(plait.jit(f)(x), y)


def test_what_was_sent_may_be_overwritten(world):
    """An eager send has read NumPy's memory when it returns, as MPI's send has."""
    x = np.ones(3_000_000, np.float32)
    if world.rank == 0 and world.size > 1:
        for _ in range(2):  # by a new program, and by a remembered program
            plait.send(x, 1)
            x[:] += 1
    elif world.rank == 1:
        for value in (1, 2):
            y = plait.recv(jnp.zeros(x.shape, x.dtype), 0)
            assert np.array_equal(y, np.full_like(x, value))


@pytest.mark.parametrize("n", [4, LARGE])
def test_trees_that_differ(world, n):
    """As many bytes, but other arrays: both partners raise, and later calls are right."""
    if world.size != 2:
        pytest.skip("written for two ranks")
    a, b = jnp.ones(n, "float32"), jnp.arange(n, dtype="int32")
    other = 1 - world.rank
    for sent, expected in (
        ([a, b], [b, a]),
        ([a, a[:2]], [a[:2], a]),
        ([a, a], jnp.ones(2 * n, a.dtype)),
    ):
        with pytest.raises(plait.MismatchError, match="of other arrays that were joined"):
            plait.block(plait.sendrecv(sent, expected, other, other))
    if world.rank == 0:
        with pytest.raises(plait.MismatchError), plait.errors():
            try:
                plait.block(plait.send([a, b], 1))
            finally:  # if the send was copied, the next call may raise its error, and still runs
                if n != LARGE:
                    plait.barrier()
    else:
        with pytest.raises(plait.MismatchError), plait.errors():
            plait.block(plait.recv([b, a], 0))
    if world.rank == 1 or n == LARGE:
        plait.barrier()
    x, y = plait.sendrecv([a, b], [a, b], other, other)
    assert np.array_equal(x, a) and np.array_equal(y, b)


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit, plait.jit])
def test_a_partner_that_is_not_there_in_a_branch_never_taken(world, jit):
    rank, size = world.rank, world.size

    def down(x, has_lower, has_upper):  # a chain, whose end ranks have one neighbour
        def passed_on(x):
            plait.send(x, rank + 1, tag=3, comm=world)
            return x

        x = jax.lax.cond(has_upper, passed_on, lambda x: x, x)
        given = jax.lax.cond(
            has_lower, lambda x: plait.recv(x, rank - 1, tag=3, comm=world), jnp.zeros_like, x
        )
        far = jax.lax.cond(
            rank > size,
            lambda x: plait.sendrecv(x, x, source=-7, dest=size + 5, comm=world),
            lambda x: x * 0,
            x,
        )
        return given + far

    x = jnp.arange(3.0) + rank
    for _ in range(2):
        y = jit(down)(x, rank > 0, rank < size - 1)
        assert np.array_equal(plait.block(y), x - 1 if rank else np.zeros(3))


@pytest.mark.parametrize("jit", [jax.jit, plait.jit])
def test_a_partner_that_is_not_there_when_it_runs(world, jit):
    comm, x = world.Clone(), jnp.ones(3)
    calls = {
        f"send: dest {comm.size} is": lambda x: plait.send(x, comm.size, comm=comm),
        "send: dest -7 is": lambda x: plait.send(x, -7, comm=comm),
        f"recv: source {comm.size} is": lambda x: plait.recv(x, comm.size, comm=comm),
        "sendrecv: source -9 is": lambda x: plait.sendrecv(x, x, -9, comm.rank, comm=comm),
    }
    for text, call in calls.items():
        text = f"rank {comm.rank} of .*{text} not a rank of this communicator .size {comm.size}."
        with pytest.raises(plait.ArgumentError, match=text), plait.errors():
            jax.block_until_ready(jit(call)(x))
            jax.effects_barrier()
        with pytest.raises(ValueError, match="is not a rank"):
            call(x)  # outside of a program: at once
    assert plait.allreduce(x, plait.SUM, comm=comm)[0] == comm.size
    comm.Free()
