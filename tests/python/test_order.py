"""Program order in the log of the C core: with the effect it holds, without it does not."""

import functools

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.interpreters import mlir
from plait import _core

A = jnp.ones((200, 200)) * 1e-3 + jnp.eye(200) * 0.1
ROUNDS = 5


def op(x, mark):
    """An operation whose title shows ``mark``: the number of elements that it moves."""
    y = plait.allreduce(jnp.broadcast_to(jnp.ravel(x)[:1], (mark,)), plait.SUM)
    return x + 0 * y[0]


def logged(run):
    """The marks in the order in which the operations ran."""
    _core.trace_start(True)
    plait.block(run())
    lines = _core.trace()
    _core.trace_start(False)
    return [int(line.split("[")[1].split("]")[0]) for line in lines]


def late(a):
    for _ in range(4):
        a = jnp.sin(a @ a) * 1e-3
    return a


def program(a, op=op):
    y, z = op(late(a), 1), op(a, 2)

    def body(c, _):
        u, v = op(c @ a, 3), op(a, 4)
        return u * 1e-3 + 0 * v, None

    c, _ = lax.scan(body, a, None, length=3)
    q = op(a + 1, 5)
    r = lax.cond(a[0, 0] > 0, lambda t: op(t @ t, 6), lambda t: op(t, 60), a)
    s = op(a, 7)

    def grow(s):
        return (s[0] + 1, op(s[1] @ s[1], 8) * 1e-3)

    _, t = lax.while_loop(lambda s: s[0] < 2, grow, (0, a))
    u = op(a, 9)
    g = jax.jit(lambda t: op(t @ t, 10))
    v, v2, k = g(a), g(a), op(a * 2, 11)
    w = jax.checkpoint(lambda t: op(t @ t, 12))(a)
    return y, z, c, q, r, s, t, u, v, v2, k, w, op(a * 3, 13)


WANT = [1, 2, 3, 4, 3, 4, 3, 4, 5, 6, 7, 8, 8, 9, 10, 10, 11, 12, 13]


@pytest.mark.parametrize("jit", [jax.jit, plait.jit])
def test_order_is_that_of_the_program(jit):
    f = jit(program)
    plait.block(f(A))
    for _ in range(ROUNDS):
        assert logged(lambda: f(A)) == WANT


def test_nested_plait_jit():
    f = plait.jit(
        lambda a: (plait.jit(lambda t: op(late(t), 1))(a), plait.jit(lambda t: op(t, 2))(a))
    )
    plait.block(f(A))
    for _ in range(ROUNDS):
        assert logged(lambda: f(A)) == [1, 2]
    g = jax.jit(lambda a: (plait.jit(lambda t: op(late(t), 1))(a), op(a, 2)))
    plait.block(g(A))
    assert logged(lambda: g(A)) == [1, 2]


def test_without_the_effect_the_order_is_wrong_at_least_once():
    comm = plait.Comm().id()
    plait.block(plait.allreduce(A, plait.SUM))  # from now on XLA knows the core's handlers

    def free(x, mark):
        x = jnp.broadcast_to(jnp.ravel(x)[:1], (mark,))
        call = jax.ffi.ffi_call("plait_allreduce", jax.typeof(x), has_side_effect=True)
        return call(x, reduce=0, comm=comm)

    f = jax.jit(functools.partial(program, op=lambda x, m: x + 0 * free(x, m)[0]))
    plait.block(f(A))
    assert any(logged(lambda: f(A)) != WANT for _ in range(20))


def loss(a):
    b, c = op(a @ a, 1), op(a, 2)
    c, _ = lax.scan(lambda c, _: (op(c @ a, 3) * 1e-2, None), c, None, length=2)
    d = jax.checkpoint(lambda t: jnp.sin(op(t @ t, 4)))(c)
    return jnp.sum(b * c * d)


@pytest.mark.parametrize(
    "f",
    [
        jax.jit(jax.grad(loss)),
        plait.jit(jax.grad(loss)),
        jax.jit(jax.grad(plait.region(loss))),
        plait.jit(jax.grad(plait.jit(loss))),
    ],
)
def test_adjoints_run_in_reverse(f):
    plait.block(f(A))
    for _ in range(ROUNDS):
        order = logged(lambda: f(A))
        assert order == [1, 2, 3, 3, 4, 4, 3, 3, 2, 1]


@pytest.mark.parametrize("wrap", [lambda f: f, jax.checkpoint])
def test_derivatives_leave_operations_in_loops(wrap):
    """Also operations whose operands do not change, and operations whose results nobody uses."""

    def repeated(a):
        def body(c, _):
            y = op(a[:1], 1)
            plait.barrier()
            plait.send(jnp.ones(2), 0)
            plait.recv(jnp.zeros(3)[1:], 0)
            jax.jit(lambda: plait.barrier())()
            return c * y[0, 0], None

        return jnp.sum(lax.scan(wrap(body), a, None, length=3)[0])

    def names(f):
        f = plait.jit(f)
        plait.block(f(A))
        _core.trace_start(True)
        plait.block(f(A))
        lines = _core.trace()
        _core.trace_start(False)
        return [line.split()[3].split("(")[0] for line in lines]

    forward = ["allreduce", "barrier", "send", "recv", "barrier"] * 3
    assert [name.strip(",") for name in names(repeated)] == forward
    assert names(jax.grad(repeated)) == [*forward, *["allreduce"] * 3]
    assert names(jax.grad(wrap(repeated))) == [*forward, *["allreduce"] * 3]


def test_both_kinds_of_order_in_one_program():
    """In a region calls by token keep their place among calls by effect."""

    def f(a):
        t = plait.create_token()
        y, t = plait.allreduce(late(a)[0, :1], plait.SUM, token=t)
        op(a, 2)
        z, t = plait.allreduce(late(a)[0, :3], plait.SUM, token=t)

        def body(c, _):
            x, t = c
            u, t = plait.allreduce(x[0, :4], plait.SUM, token=t)
            return (op(x + u[0] * 0, 5), t), None

        (x, t), _ = lax.scan(body, (late(a), t), None, length=2)
        return op(a, 6), y, z, x

    # the same functions, traced outside of a region first
    g = jax.jit(lambda x, t: plait.allreduce(x, plait.SUM, token=t))
    g(A[0, :7], plait.create_token())
    h = plait.jit(lambda a: (f(a), g(late(a)[0, :7], plait.create_token()), op(a, 8)))
    plait.block(h(A))
    for _ in range(ROUNDS):
        assert logged(lambda: h(A)) == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8]


def test_vmap_is_one_operation():
    def two(t):
        return lax.scan(lambda c, _: (plait.allreduce(c, plait.SUM), None), t, None, 2)[0]

    x = jnp.ones((3, 4))
    for f in (plait.jit(jax.vmap(two)), jax.vmap(plait.jit(two))):
        assert logged(lambda f=f: f(x)) == [12, 12]


def test_tokens_order_without_effect():
    def f(a, t):
        y, t = plait.allreduce(late(a)[0, :1], plait.SUM, token=t)
        z, t = plait.allreduce(a[0, :2], plait.SUM, token=t)
        t = plait.barrier(token=t)

        def body(c, _):
            x, t = c
            u, t = plait.allreduce(x[0, :3], plait.SUM, token=t)
            v, t = plait.allreduce(a[0, :4], plait.SUM, token=t)
            return (x + u[0] * 0 + v[0] * 0, t), None

        (x, t), _ = lax.scan(body, (a, t), None, length=2)
        return jnp.sum(y) * jnp.sum(z) * jnp.sum(x), t

    def marks(run):
        _core.trace_start(True)
        plait.block(run())
        lines = [line for line in _core.trace() if "allreduce" in line]
        return [int(line.split("[")[1].split("]")[0]) for line in lines]

    token = plait.create_token()
    g = jax.jit(f)
    plait.block(g(A, token))
    assert not jax.make_jaxpr(f)(A, token).effects
    forward = [1, 2, 3, 4, 3, 4]
    for _ in range(ROUNDS):
        assert marks(lambda: g(A, token)) == forward
    h = jax.jit(jax.grad(f, has_aux=True))
    plait.block(h(A, token))
    assert marks(lambda: h(A, token)) == forward + forward[::-1]
    v = jax.jit(jax.vmap(f, in_axes=(0, None), out_axes=(0, None)))
    both = jnp.stack([A, A])
    plait.block(v(both, token))
    assert marks(lambda: v(both, token)) == [2 * m for m in forward]
    _core.trace_start(False)


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
def test_any_token(dtype, shape):
    t = jnp.ones(shape, dtype)

    def f(x, t):
        y, t = plait.allreduce(x, plait.SUM, token=t)
        y, t = plait.bcast(y * x, 0, token=t)
        return jnp.sum(y), t

    y, out = jax.jit(f)(jnp.arange(3.0), t)
    assert y == 5 and np.array_equal(out, t) and out.dtype == t.dtype
    g, _ = jax.jit(jax.grad(f, has_aux=True))(jnp.arange(3.0), t)
    assert g.tolist() == [0, 2, 4]


def test_batched_tokens_keep_their_values():
    x, t, w = jnp.ones((3, 2)), jnp.arange(1.0, 4.0), jnp.arange(2.0, 5.0)

    def out(x, t):
        return plait.allreduce(x, plait.SUM, token=t)[1]

    def halves(x, t):
        h, t = plait.start(plait.allreduce, x, plait.SUM, token=t)
        return plait.wait(h, token=t)[1]

    for f in (out, halves):
        for axes in ((0, 0), (None, 0)):
            batched = jax.vmap(f, in_axes=axes)
            given = x if axes[0] == 0 else x[0]
            assert np.array_equal(batched(given, t), t)
            loss = lambda t, f=batched, x=given: jnp.sum(w * f(x, t) ** 2)  # noqa: E731
            assert np.array_equal(jax.grad(loss)(t), 2 * w * t)
    columns = jax.vmap(out, in_axes=(0, 1), out_axes=1)
    assert np.array_equal(columns(x, jnp.outer(w, t)), jnp.outer(w, t))
    assert np.array_equal(jax.vmap(lambda t: plait.barrier(token=t))(t), t)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_depend_keeps_tokens_and_results_of_any_dtype(dtype):
    def f(x):
        t = plait.barrier(token=jnp.zeros((), dtype))
        y, t = plait.allgather(jnp.ones(3, dtype), token=t)
        key, _ = plait.bcast(jax.random.key(1), 0, token=plait.create_token())
        return plait.depend(x, t, y, key)

    text = jax.jit(f).lower(jnp.ones(2)).as_text()
    counts = [text.count(f"plait_{name}") for name in ("barrier", "allgather", "bcast")]
    assert counts == [1, 1, 1] and f(jnp.ones(2)).tolist() == [1, 1]


def test_a_function_without_results_runs():
    ran = logged(lambda: plait.jit(lambda x: (op(x, 5), None)[1])(A))
    assert ran == [] or ran == [5]
    f = plait.jit(lambda x: (op(x, 5), None)[1])
    assert f(A) is None
    _core.trace_start(True)
    f(A)
    jax.block_until_ready(f.last)
    assert any("[5]" in line for line in _core.trace())
    _core.trace_start(False)


def test_jit_passes_everything_through():
    f = plait.jit(
        lambda tree, n, *, flip=False: {"y": plait.allreduce(tree["x"], plait.SUM) * n, "f": flip},
        static_argnums=1,
        static_argnames="flip",
    )
    out = f({"x": jnp.ones(2)}, 3, flip=True)
    assert out["y"].tolist() == [3, 3] and out["f"]
    assert plait.jit(static_argnames="n")(lambda x, n: x * n)(jnp.ones(2), n=2).tolist() == [2, 2]
    donated = plait.jit(lambda x: plait.allreduce(x, plait.SUM, donate=True), donate_argnums=0)
    x = jnp.ones(8)
    assert donated(x).tolist() == [1] * 8 and x.is_deleted()
    y = jnp.ones(8)
    assert plait.allreduce(y, plait.SUM, donate=True).tolist() == [1] * 8 and y.is_deleted()


def test_other_ordered_effects_stay_in_order():
    def f(x, mark):
        for i in range(3):
            io_callback(mark, None, i, ordered=True)
            x = op(x, i + 1)
        return x

    for wrap in (plait.jit, lambda g: jax.jit(plait.region(g))):
        seen = []
        plait.block(wrap(lambda x, seen=seen: f(x, lambda i: seen.append(int(i))))(A))
        jax.effects_barrier()
        assert seen == [0, 1, 2]


def test_a_primitive_that_drops_the_order_is_an_error_with_its_cures():
    dropping = jex.Primitive("drops_effects")
    dropping.multiple_results = True
    dropping.def_abstract_eval(lambda *args, jaxpr: jaxpr.out_avals)
    mlir.register_lowering(
        dropping, mlir.lower_fun(lambda *args, jaxpr: jex.jaxpr_as_fun(jaxpr)(*args))
    )

    def wrapped(f):
        return lambda x: dropping.bind(x, jaxpr=jax.make_jaxpr(f)(x))[0]

    def double(x, token=None):
        y = plait.allreduce(x, plait.SUM, token=token)
        return 2 * (y if token is None else y[0])

    cures = "call plait.keep_order.* wrap .* plait.region .* token="
    with pytest.raises(plait.Error, match=f"drops its order: {cures}"):
        plait.jit(wrapped(double))(jnp.ones(2))
    with pytest.raises(KeyError, match=f"plait's order .* {cures}"):
        jax.jit(wrapped(double))(jnp.ones(2))
    with pytest.raises(plait.Error, match="drops its order"), plait.errors():
        jax.jit(wrapped(double))(jnp.ones(2))
    for jit in (jax.jit, plait.jit):
        assert np.array_equal(jit(wrapped(plait.region(double)))(jnp.ones(2)), [2, 2])
    by_token = wrapped(lambda x: double(x, plait.create_token()))
    assert np.array_equal(jax.jit(by_token)(jnp.ones(2)), [2, 2])


def test_static_arguments_may_be_numpys():
    f = plait.jit(
        lambda x, n, dtype: plait.allreduce(x.astype(dtype), plait.SUM) * jnp.ones(n, dtype),
        static_argnums=1,
        static_argnames="dtype",
    )
    for n, dtype in ((2, np.float32), (np.int64(2), np.dtype("float32"))):
        y = f(jnp.ones(()), n, dtype=dtype)
        assert y.tolist() == [1, 1] and y.dtype == dtype


def test_results_that_are_numbers_are_arrays():
    f = plait.jit(lambda x: (op(x, 5), {"n": 3, "none": None})[1])
    for _ in range(2):
        out = f(A)
        assert isinstance(out["n"], jax.Array) and out["n"] == 3 and out["none"] is None


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit, plait.jit])
@pytest.mark.parametrize("with_condition", [False, True])
def test_loop_without_derivative_runs_once(jit, with_condition):
    """The differentiated value enters the loop, but no result depends on it."""

    def loss(r):
        def goes_on(c):
            n = op(c[0], 2) if with_condition else c[0]
            return (c[1] < 3) & jnp.isfinite(n[0])

        def step(c):
            return 0.5 * op(c[0], 1) + lax.stop_gradient(r), c[1] + 1

        return (lax.while_loop(goes_on, step, (jnp.ones(4), 0))[0] * r).sum()

    value_and_grad = jit(jax.value_and_grad(loss))
    want = 4 * (1 / 8 + 2.0 * (1 + 1 / 2 + 1 / 4))
    assert np.allclose(value_and_grad(2.0), (2 * want, want), rtol=1e-12)
    marks = [2, 1, 2, 1, 2, 1, 2] if with_condition else [1, 1, 1]
    assert logged(lambda: value_and_grad(2.0)) == marks
    value, derivative = jax.linearize(loss, 2.0)
    assert np.allclose([value, derivative(1.0)], [2 * want, want], rtol=1e-12)
