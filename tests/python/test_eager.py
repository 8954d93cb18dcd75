"""Eager calls that remember their programs: equal to jitted calls, judged as the first time."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _eager

CALLS = {
    "allreduce": lambda x: plait.allreduce(x, plait.SUM),
    "allgather": plait.allgather,
    "alltoall": lambda x: plait.alltoall(x[None]),
    "bcast": lambda x: plait.bcast(x, 0),
    "gather": lambda x: plait.gather(x, 0),
    "reduce": lambda x: plait.reduce(x, plait.MAX, root=0),
    "reduce_scatter": lambda x: plait.reduce_scatter(x[None], plait.SUM),
    "scan": lambda x: plait.scan(x, plait.SUM),
    "exscan": lambda x: plait.exscan(x, plait.SUM),
    "sendrecv": lambda x: plait.sendrecv(x, x + 1, 0, 0, sendtag=3, recvtag=3),
    "sendrecv nobody": lambda x: plait.sendrecv(x, x + 1, plait.PROC_NULL, plait.PROC_NULL),
}


@pytest.fixture
def programs(monkeypatch):
    """Record each search for a program, which takes the whole way."""
    looked_for = []
    whole_way = _eager.program
    monkeypatch.setattr(_eager, "program", lambda *key: looked_for.append(key) or whole_way(*key))
    return looked_for


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_time_as_jitted(call):
    for n in (3, 5, 3):
        for dtype in (jnp.float32, jnp.int32, jnp.float32):
            for k in range(3):
                x = jnp.arange(n).astype(dtype) + jnp.asarray(k, dtype)
                np.testing.assert_array_equal(call(x), plait.jit(call)(x))


def test_second_call_takes_the_short_way(programs):
    x = jnp.full(11, 2.0)
    plait.allgather(x)
    assert len(programs) == 1
    for i in range(3):
        np.testing.assert_array_equal(plait.allgather(x + i), (x + i)[None])
    assert len(programs) == 1
    plait.allgather(x[:7])
    plait.allgather(x.astype(jnp.int32))
    assert len(programs) == 3


def test_without_arrays(programs):
    plait.barrier()
    n = len(programs)
    assert plait.barrier() is None
    assert len(programs) == n


def test_arguments_are_judged_every_time():
    x = jnp.arange(3.0)
    plait.bcast(x, 0)
    plait.bcast(x, 0)
    with pytest.raises(TypeError, match="root"):
        plait.bcast(x, False)  # equal to 0, with the same hash
    with pytest.raises(ValueError, match="1"):
        plait.bcast(x, 1)
    with pytest.raises(TypeError, match="op is 0"):
        plait.allreduce(x, 0)
    comm = plait.Comm._make(None, 1, 0)
    plait.allreduce(x, plait.SUM, comm=comm)
    plait.allreduce(x, plait.SUM, comm=comm)
    comm.free()
    with pytest.raises(plait.CommError, match="allreduce"):
        plait.allreduce(x, plait.SUM, comm=comm)


def test_a_value_of_the_environment_is_read_every_time(monkeypatch):
    x = jnp.arange(3.0)
    for value in ("0", "1", "0"):
        monkeypatch.setenv("PLAIT_CHECK_REPLICATED", value)
        y, back = jax.vjp(lambda x: plait.allreduce(x, plait.SUM, replicated=True), x)
        np.testing.assert_array_equal(back(y)[0], x)
        np.testing.assert_array_equal(plait.allreduce(x, plait.SUM, replicated=True), x)


def test_under_transformations():
    x = jnp.arange(3.0)
    plait.allreduce(x, plait.SUM)
    plait.allreduce(x, plait.SUM)
    grad = jax.grad(lambda x: (plait.allreduce(x, plait.SUM) ** 2).sum())(x)
    np.testing.assert_allclose(grad, 2 * x)
    np.testing.assert_array_equal(
        jax.vmap(lambda x: plait.allreduce(x, plait.SUM))(jnp.stack([x, 2 * x])), [x, 2 * x]
    )
    constant = jax.jit(lambda: plait.allreduce(x, plait.SUM) + 1)  # concrete, but in a trace
    np.testing.assert_array_equal(constant(), x + 1)


def test_donated_operands_are_gone_every_time():
    for _ in range(3):
        x = jnp.arange(1000.0)
        np.testing.assert_array_equal(plait.allreduce(x, plait.SUM, donate=True), np.arange(1000.0))
        assert x.is_deleted()


def test_donated_operands_of_a_derivative_are_its_own():
    x = jnp.arange(1.0, 4.0)
    for op in (plait.SUM, plait.PROD, plait.MAX):
        grad = jax.grad(lambda x, op=op: jnp.sum(plait.allreduce(x * 1, op, donate=True)))
        np.testing.assert_array_equal(grad(x), np.ones(3))
    tangent = jnp.ones(3)
    jax.jvp(lambda x: plait.bcast(x * 1, 0, donate=True), (x,), (tangent,))
    assert not tangent.is_deleted() and not x.is_deleted()


def test_what_no_result_takes_the_place_of_is_not_donated():
    a, b, given = jnp.ones(4), jnp.ones(4), (jnp.zeros(4), jnp.zeros(4))
    plait.sendrecv((a, b), given, 0, 0, donate=True)
    plait.allreduce((a, b), plait.SUM, donate=True)
    assert not any(x.is_deleted() for x in (a, b, *given))
    for _ in range(2):  # an operand that is also the template
        np.testing.assert_array_equal(plait.sendrecv(a, a, 0, 0, donate=True), a)
    template = jnp.zeros(4)
    plait.sendrecv(a, template, 0, 0, donate=True)
    assert template.is_deleted() and not a.is_deleted()


def test_keywords_in_any_order():
    """If all arrays of a call are one object, nobody can tell them apart."""
    x, y, other = jnp.full(2, 1.0), jnp.full(2, 5.0), jnp.full(2, -7.0)
    plait.sendrecv(recvbuf=x, sendbuf=x, source=0, dest=0)
    assert plait.sendrecv(recvbuf=other, sendbuf=y, source=0, dest=0).tolist() == [5, 5]
    plait.allreduce(token=x, x=x, op=plait.SUM)
    got, token = plait.allreduce(token=other, x=y, op=plait.SUM)
    assert got.tolist() == [5, 5] and token.tolist() == [-7, -7]
    with pytest.raises(TypeError, match="unexpected keyword argument 'root'"):
        plait.allreduce(token=other, x=y, op=plait.SUM, root=0)


def test_tokens():
    x, token = jnp.arange(3.0), plait.create_token()
    for _ in range(3):
        y, token = plait.allreduce(x, plait.SUM, token=token)
        np.testing.assert_array_equal(y, x)
        token = plait.barrier(token=token)
        assert token.shape == ()


def test_pytrees_and_numbers_take_the_whole_way(programs):
    for _ in range(2):
        result = plait.allreduce({"a": jnp.ones(2), "b": 3}, plait.SUM)
        assert result["b"] == 3
        assert plait.allreduce(2.5, plait.SUM) == 2.5
        np.testing.assert_array_equal(plait.allreduce(np.ones(4), plait.SUM), np.ones(4))
    assert len(programs) > 3


SPLIT = NamedSharding(jax.make_mesh((2,), ("x",), devices=jax.devices()[:2]), P("x"))
ONE_BY_ONE = {
    "short way": lambda x: plait.allreduce(x, plait.SUM),
    "token": lambda x: plait.allreduce(x, plait.SUM, token=plait.create_token())[0],
    "region": plait.region(lambda x: 2 * plait.scan(x, plait.SUM)),
    "halves": lambda x: plait.wait(plait.start(plait.allreduce, x, plait.SUM)),
    "pytree": lambda x: plait.bcast({"x": x, "n": jnp.arange(2)}, 0)["x"],
    "gradient": jax.grad(lambda x: jnp.sum(plait.allreduce(x, plait.SUM) ** 3)),
    "vmap": jax.vmap(lambda x: plait.bcast(x, 0) + 1),
    "scan": lambda x: jax.lax.scan(lambda c, _: (plait.bcast(c, 0) + 1, c), x, None, length=2),
    "mesh": lambda x: plait.fft.fftn(jax.device_put(x, SPLIT), axes=(0,)),
    "dense": lambda x: plait.linalg.det(jax.device_put(jnp.diag(x), SPLIT)),
}


@pytest.mark.parametrize("call", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_without_jit(call):
    """jax.disable_jit: operations run as usual, the code around them runs as Python."""
    x = jnp.arange(1.0, 5.0)
    want = plait.jit(call)(x)
    seen = []
    with jax.disable_jit():
        for _ in range(2):  # the second time by the short way
            got = plait.jit(lambda x: seen.append(type(x)) or call(x))(x)
            jax.tree.map(np.testing.assert_array_equal, got, want)
    assert not any(issubclass(kind, jax.core.Tracer) for kind in seen)
    assert plait.jit(lambda x: plait.send(x, plait.PROC_NULL))(x) is None


def test_regions_run_where_nothing_is_traced():
    double = plait.region(lambda x: 2 * plait.allreduce(x, plait.SUM))
    np.testing.assert_array_equal(double(jnp.arange(3.0)), 2 * jnp.arange(3.0))


def test_nans_are_found_where_they_arise():
    quotient = plait.jit(lambda x: plait.allreduce(x, plait.SUM) / 0.0)
    assert jnp.isnan(quotient(jnp.zeros(3))).all()
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="div"):
        quotient(jnp.zeros(3))
