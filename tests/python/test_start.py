"""Started operations on one rank and on the devices of one process."""

import functools
import gc

import cases
import halves
import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from plait import _core

SPLIT = P("a")
X = jnp.arange(3.0)


def mapped(f, n, check=True):
    """``f`` of each device's arrays, on arrays stacked along a new leading axis."""
    mesh = meshes.make((n,))

    def local(*xs):
        ys = f(*jax.tree.map(lambda x: x[0], xs))
        return jax.tree.map(lambda y: y[None], ys)

    return jax.jit(
        jax.shard_map(local, mesh=mesh, in_specs=SPLIT, out_specs=SPLIT, check_vma=check)
    )


def table(n, dtype, names=("SUM", "MAX", "PROD", "LOR")):
    every = cases.reductions(n, names) + cases.movements(n) + cases.on_devices(n)
    return {c.name: (c, c.operands(n, dtype)) for c in every if c.has(dtype)}


def operands(chosen):
    return {name: jnp.asarray(np.stack(xs)) for name, (_, xs) in chosen.items()}


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex128", "float8_e5m2"])
def test_values(n, dtype):
    """All cases under way at once, with a call in between."""
    chosen = table(n, dtype)
    f = functools.partial(halves.all_of, chosen, comm="a")
    got = jax.device_get(mapped(f, n)(operands(chosen)))
    for name, (case, xs) in chosen.items():
        for rank, want in enumerate(case.want(xs)):
            cases.same(got[name][rank], want, dtype, n)
    assert _core.started() == 0


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("check", [True, False])
def test_scan_and_vmap(check):
    n = 4
    chosen = table(n, "float32")
    pair = [operands(chosen), operands(table(n, "float32"))]
    xs = jax.tree.map(lambda *v: jnp.stack(v, 1), *pair)

    def looped(xs):
        body = lambda c, v: (c, halves.all_of(chosen, v, "a"))  # noqa: E731
        return lax.scan(body, 0, xs)[1]

    def batched(f):
        return jax.vmap(lambda v: f(chosen, v, "a"))

    want = mapped(batched(halves.plain), n, check)(xs)
    for f in (looped, batched(halves.all_of)):
        got = mapped(f, n, check)(xs)
        jax.tree.map(np.testing.assert_array_equal, got, want)


DIFFERENTIATED = [
    *("allreduce SUM", "allreduce MAX", "allreduce PROD", "reduce SUM", "reduce_scatter SUM"),
    *("scan SUM", "bcast", "allgather", "alltoallv", "permute, one pair", "gather", "pvary"),
]


KINDS = ("jvp", "grad", "vhp", "vmap", "of vmap", "scan", "checkpoint")


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "dtype,check,kinds",
    [
        ("float32", True, KINDS),
        ("float32", False, ("jvp", "grad")),
        ("complex128", False, ("jvp", "grad", "of vmap")),
    ],
)
def test_derivatives(dtype, check, kinds):
    """Forward and reverse, and reverse of reverse; through vmap, scan and checkpoint."""
    n = 2
    every = table(n, dtype)
    chosen = {k: every[k] for k in DIFFERENTIATED if k in every}
    if dtype == "complex128":
        del chosen["allreduce PROD"]  # JAX has no derivative of complex cumprod in reverse
    xs = operands(chosen)

    def loss(f, xs):
        ys = f(chosen, jax.tree.map(jnp.sin, xs), "a")
        terms = [jnp.sum(jnp.sin(plait.pvary(y, comm="a"))) for y in ys.values()]
        return sum(t.real for t in terms)

    def derivatives(f):
        value = functools.partial(loss, f)

        def all_kinds(xs):
            half = jax.tree.map(lambda x: x * 0.5, xs)
            twice = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), xs)
            grad = jax.grad(value)
            loop = lambda v: lax.scan(lambda c, u: (c + value(u), 0), value(xs), v)[0]  # noqa: E731
            square = lambda v: sum(jnp.sum(g**2).real for g in grad(v).values())  # noqa: E731
            every = {
                "jvp": lambda: jax.jvp(value, (xs,), (half,))[1],
                "grad": lambda: grad(xs),
                "vhp": lambda: jax.grad(square)(xs),
                "vmap": lambda: jax.vmap(grad)(twice),
                "of vmap": lambda: jax.grad(lambda v: jnp.sum(jax.vmap(value)(v)))(twice),
                "scan": lambda: jax.grad(loop)(twice),
                "checkpoint": lambda: jax.grad(jax.checkpoint(value))(xs),
            }
            return {kind: every[kind]() for kind in kinds}

        return mapped(all_kinds, n, check)

    want, got = (derivatives(f)(xs) for f in (halves.plain, halves.all_of))
    room = 100 * float(meshes.eps(dtype))
    for kind in want:
        same = functools.partial(np.testing.assert_allclose, rtol=room, atol=room, err_msg=kind)
        jax.tree.map(same, got[kind], want[kind])
    assert _core.started() == 0


def test_linear_transpose():
    chosen = {k: v for k, v in table(2, "float64", ("SUM",)).items() if v[0].is_linear}

    def back(f):
        def run(xs, cts):
            return jax.linear_transpose(lambda v: f(chosen, v, "a"), xs)(cts)[0]

        return mapped(run, 2, False)

    xs = operands(chosen)
    cts = mapped(lambda v: halves.plain(chosen, v, "a"), 2, False)(xs)
    want = back(halves.plain)(xs, cts)
    jax.tree.map(np.testing.assert_allclose, back(halves.all_of)(xs, cts), want)


def step(x):
    """Communication beside a computation."""
    h = plait.start(plait.allreduce, x**2, plait.SUM)
    z = jnp.sin(x)
    return jnp.sum(plait.wait(h, after=z) * z)


def in_order(jaxpr):
    """The primitives that start and wait, and the sine."""
    names = [str(eqn.primitive) for eqn in jaxpr.eqns]
    return [n.split("_")[1] if "plait" in n else n for n in names if "plait" in n or n == "sin"]


def test_backward_overlaps():
    """The adjoint starts where the result was waited for, and ends where the operation started."""
    assert in_order(jax.make_jaxpr(step)(X)) == ["start", "sin", "wait"]
    backward = jax.make_jaxpr(jax.grad(step))(X)
    names = [str(eqn.primitive) for eqn in backward.eqns]
    begun = [i for i, name in enumerate(names) if name == "plait_start_allreduce"]
    ended = [i for i, name in enumerate(names) if name == "plait_wait_allreduce"]
    assert begun[0] < ended[0] < begun[1] < ended[1]
    assert "mul" in names[begun[1] : ended[1]]  # meanwhile the derivative of the sine


@pytest.mark.parametrize("jit", [jax.jit, plait.jit, lambda f: f], ids=["jax", "plait", "eager"])
def test_one_rank(jit):
    want = jnp.sum(X**2 * jnp.sin(X))
    assert np.allclose(jit(step)(X), want)
    slope = 2 * X * jnp.sin(X) + X**2 * jnp.cos(X)
    assert np.allclose(jit(jax.grad(step))(X), slope)
    assert np.allclose(jit(jax.vmap(jax.grad(step)))(jnp.stack([X, X]))[1], slope)
    tree = {"a": X, "b": (jnp.arange(2), jnp.ones((2, 2), jnp.float32))}

    def several(t):
        h = plait.start(plait.allreduce, t, plait.SUM)
        k = plait.start(plait.bcast, t, 0)
        value, rank = plait.wait(plait.start(plait.minloc, t["a"]))
        assert plait.wait(plait.start(plait.barrier)) is None
        return plait.wait(k), plait.wait(h), value, rank, plait.wait(plait.start(plait.pvary, t))

    k, h, value, rank, same = jit(several)(tree)
    for got in (k, h, same):
        jax.tree.map(np.testing.assert_array_equal, got, tree)
    assert np.array_equal(value, X) and not rank.any()
    assert plait.wait(plait.start(plait.bcast, {}, 0)) == {}
    assert _core.started() == 0


@pytest.mark.parametrize("jit", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_tokens(jit):
    def f(x, t):
        h, t = plait.start(plait.allreduce, x**2, plait.SUM, token=t)
        k, t = plait.start(plait.bcast, x, 0, token=t)
        t = plait.barrier(token=t)
        z, t = plait.wait(k, token=t)
        y, t = plait.wait(h, token=t, after=(z, x + 1))
        n, t = plait.start(plait.barrier, token=t)
        return jnp.sum(y * z), plait.wait(n, token=t)

    y, t = jit(f)(X, plait.create_token())
    assert y == jnp.sum(X**3) and t == 0
    if jit is jax.jit:
        assert not jax.make_jaxpr(f)(X, plait.create_token()).effects
    g, _ = jit(jax.grad(f, has_aux=True))(X, plait.create_token())
    assert np.allclose(g, 3 * X**2)
    both = jit(jax.vmap(jax.grad(f, has_aux=True), in_axes=(0, None), out_axes=(0, None)))
    assert np.allclose(both(jnp.stack([X, X]), plait.create_token())[0][1], 3 * X**2)
    h, _ = plait.start(plait.allreduce, X, plait.SUM, token=plait.create_token())
    with pytest.raises(TypeError, match="needs token="):
        plait.wait(h)
    assert plait.wait(h, token=plait.create_token())[0].tolist() == [0, 1, 2]
    h = plait.start(plait.allreduce, X, plait.SUM)
    with pytest.raises(TypeError, match="was started without token="):
        plait.wait(h, token=plait.create_token())
    plait.wait(h)


def begin(x):
    return plait.start(plait.allreduce, x, plait.SUM)


def test_an_operation_that_was_called_before():
    """A started operation does not take the program that eager calls remember."""
    before = plait.allreduce(X, plait.SUM)
    handle = begin(X)
    assert _core.started() == 1
    assert np.array_equal(plait.wait(handle), before)
    assert _core.started() == 0


def test_nobody_waits():
    text = r"allreduce, started at test_start.py:\d+: nobody waits for it"
    for jit in (jax.jit, plait.jit):
        with pytest.raises(ValueError, match=text):
            jit(lambda x: (begin(x), x)[1])(X)
        with pytest.raises(ValueError, match=text):
            jit(lambda x: lax.scan(lambda c, v: (begin(v), (c, v))[1], 0, x)[1])(X)
    with pytest.warns(UserWarning, match="nobody waited for it"):
        begin(X)
        gc.collect()
    assert _core.started() == 0
    for wrap in (jax.vmap, lambda f: lambda x: jax.jvp(f, (x,), (x,))):  # their operations run
        with pytest.warns(UserWarning, match="nobody waited for it"):
            wrap(lambda v: (begin(jax.lax.stop_gradient(v)), v)[1])(X)
            gc.collect()
        assert _core.started() == 0


def test_waited_twice():
    def twice(x):
        h = begin(x)
        return plait.wait(h) + plait.wait(h)

    for f in (twice, jax.jit(twice), plait.jit(twice)):
        with pytest.raises(ValueError, match="was waited for already"):
            f(X)


def test_operands_may_be_gone_or_changed():
    x = jnp.arange(3.0)
    h = plait.start(plait.allreduce, x, plait.SUM)
    moved = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted() and moved.tolist() == [1, 2, 3]
    assert plait.wait(h).tolist() == [0, 1, 2]
    key = jax.random.key(3)
    h = plait.start(plait.bcast, key, 0)
    want = jax.random.key(3)
    key.delete()
    assert jnp.array_equal(plait.wait(h), want)
    x = np.arange(3.0)
    h = plait.start(plait.bcast, x, 0)
    x[:] = 99
    assert plait.wait(h).tolist() == [0, 1, 2]


def test_arguments_that_can_be_read_once():
    for pairs in (lambda: [(0, 0)], lambda: zip([0], [0], strict=True)):
        f = lambda x, pairs=pairs: plait.wait(plait.start(plait.permute, x, pairs()))  # noqa: E731
        assert jax.grad(lambda x, f=f: jnp.sum(3 * f(x)))(jnp.ones(2)).tolist() == [3, 3]
    h = plait.start(plait.allgatherv, jnp.ones(2), iter([2]))
    assert plait.wait(h).tolist() == [1, 1]


def test_a_wrong_after_leaves_the_handle():
    h = begin(X)
    with pytest.raises(TypeError, match="wait: after is str"):
        plait.wait(h, after="no array")
    assert np.array_equal(plait.wait(h), X) and _core.started() == 0


def test_another_trace():
    text = "in another function, loop body or transformation"

    def in_scan(x):
        h = begin(x)
        return lax.scan(lambda c, _: (c + plait.wait(h), None), x, None, length=2)[0]

    def in_cond(x):
        h = begin(x)
        return lax.cond(x[0] > 0, lambda: plait.wait(h), lambda: x)

    def in_jit(x):
        h = begin(x)
        return jax.jit(lambda v: v + plait.wait(h))(x)

    def in_vmap(x):
        h = begin(x)
        return jax.vmap(lambda v: v + plait.wait(h))(x)

    for f in (in_scan, in_cond, in_jit, in_vmap):
        with pytest.raises(ValueError, match=text):
            jax.jit(f)(X)
    h = begin(X)
    with pytest.raises(ValueError, match=text):
        jax.jit(lambda x: x + plait.wait(h))(X)
    assert plait.wait(h).tolist() == [0, 1, 2]
    for leave in (jax.jit(begin), jax.vmap(begin), lambda x: jax.tree.leaves(begin(x))):
        with pytest.raises(TypeError, match="leaves the function that started it"):
            leave(X)
    gc.collect()


def test_what_can_be_started():
    for thing in (
        jnp.sum,
        lambda x, comm: x,
        plait.redistribute,
        plait.Comm,
        3,
        plait.create_token,
    ):
        with pytest.raises(TypeError, match="is no operation of plait with comm="):
            plait.start(thing, X)
    part = functools.partial(plait.allreduce, op=plait.SUM)
    assert plait.wait(plait.start(part, X)).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="is no handle of plait.start"):
        plait.wait(X)
    with pytest.raises(TypeError, match="allreduce: SUM is not defined for bool"):
        plait.start(plait.allreduce, X > 1, plait.SUM)
    with pytest.raises(ValueError, match="root 1 is not a rank"):
        plait.start(plait.bcast, X, 1)
    donated = plait.wait(plait.start(plait.allreduce, X, plait.SUM, donate=True))
    assert donated.tolist() == X.tolist()


def test_freed_communicator():
    """The call that starts the operation raises the failure."""
    comm = plait.Comm.__new__(plait.Comm)
    comm.__dict__.update(plait.Comm._make(None, 1, 0).__dict__)
    f = plait.jit(lambda x: plait.wait(plait.start(plait.allreduce, x, plait.SUM, comm=comm)))
    assert f(X).tolist() == [0, 1, 2]
    comm.free()
    with pytest.raises(plait.CommError, match="was freed"), plait.errors():
        plait.block(f(X))


def test_large_operands_are_copied():
    """XLA may reuse the operand's memory once the operation has started."""
    x = jnp.arange(300_000.0)

    def f(x):
        h = plait.start(plait.allreduce, x, plait.SUM)
        for _ in range(3):
            x = jnp.sin(x) + 1
        return plait.wait(h), x

    f = plait.jit(f, donate_argnums=0)
    for _ in range(5):
        y, _ = f(x + 0)
        assert np.array_equal(y, x)
