"""Every collective on the devices of one process: values, vmap, loops, derivatives, trees."""

import cases
import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P
from plait import _core

SPLIT = P("a")


def mapped(f, n, check=True):
    """``f`` of each device's array, on arrays stacked along a new leading axis."""
    mesh = meshes.make((n,))

    def local(*xs):
        ys = f(*jax.tree.map(lambda x: x[0], xs))
        return jax.tree.map(lambda y: y[None], ys)

    return jax.jit(
        jax.shard_map(local, mesh=mesh, in_specs=SPLIT, out_specs=SPLIT, check_vma=check)
    )


def stacked(parts):
    return jnp.asarray(np.stack(parts))


def values(f, *args):
    """The results in NumPy: comparing them compiles nothing."""
    return jax.device_get(f(*args))


def table(n, dtype):
    """Cases with their operands."""
    names = _core.reductions()
    every = cases.reductions(n, names) + cases.movements(n) + cases.on_devices(n)
    return {c.name: (c, c.operands(n, dtype)) for c in every if c.has(dtype)}


# Every dtype on 4 devices, one dtype of each kind on one: each is a program of all operations.
VALUES = [(4, dtype) for dtype in cases.DTYPES]
VALUES += [(1, dtype) for dtype in ("bool", "int16", "bfloat16", "complex128", "float8_e5m2")]


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("n, dtype", VALUES)
def test_values(n, dtype):
    """All cases of a dtype in one program."""
    chosen = table(n, dtype)

    def f(xs):
        return {name: chosen[name][0].call(x, "a") for name, x in xs.items()}

    got = values(mapped(f, n), {name: stacked(xs) for name, (_, xs) in chosen.items()})
    for name, (case, xs) in chosen.items():
        for rank, want in enumerate(case.want(xs)):
            cases.same(got[name][rank], want, dtype, n)


LINEAR = ["float32", "complex128"]


def linear(n, dtype):
    return {k: v for k, v in table(n, dtype).items() if v[0].is_linear}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_vmap_scan_and_jit(n, dtype):
    """The batch axis in the middle; the same in a loop over the axis; one message in both cases."""
    chosen = table(n, dtype)

    def batched(xs):
        def f(name, x):
            case = chosen[name][0]
            return jax.vmap(lambda v: case.call(v, "a"), in_axes=1, out_axes=-1)(x)

        return {name: f(name, x) for name, x in xs.items()}

    def looped(xs):
        def step(c, x):
            return c, {name: chosen[name][0].call(v, "a") for name, v in x.items()}

        first = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), xs)
        return jax.tree.map(lambda y: jnp.moveaxis(y, 0, -1), jax.lax.scan(step, 0, first)[1])

    pairs = {k: (c, [c.operands(n, dtype, s) for s in (0, 100)]) for k, (c, _) in chosen.items()}
    xs = {k: jnp.asarray(np.stack(b, 2)) for k, (_, b) in pairs.items()}
    want = {k: np.stack([np.stack(c.want(b)) for b in both], -1) for k, (c, both) in pairs.items()}
    for f in (batched, looped):
        got = values(mapped(f, n), xs)
        for name in chosen:
            cases.same(got[name], want[name], dtype, n)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("dtype", LINEAR)
def test_exact_adjoints(n, dtype):
    """Σ y·Ax = Σ Aᵀy·x over the devices; jvp is the operation itself."""
    chosen = linear(n, dtype)

    def f(xs, dxs, cts):
        out = {}
        for name, x in xs.items():

            def call(v, name=name):
                return chosen[name][0].call(v, "a")

            y, pull = jax.vjp(call, x)
            ct = cts[name]
            back = pull(ct)[0]
            again = jax.linear_transpose(lambda c, pull=pull: pull(c)[0], ct)(x)[0]
            out[name] = (y, jax.jvp(call, (x,), (dxs[name],))[1], back, again)
        return out

    xs = {k: stacked(v) for k, (_, v) in chosen.items()}
    dxs = {k: stacked(c.operands(n, dtype, 7)) for k, (c, _) in chosen.items()}
    ys = {k: np.stack(c.want(v)) for k, (c, v) in chosen.items()}
    cts = {k: jnp.asarray(cases.random(y.shape, dtype, 3)) for k, y in ys.items()}
    got = values(mapped(f, n, check=False), xs, dxs, cts)
    for name, (case, _) in chosen.items():
        y, dy, back, again = got[name]
        cases.same(dy, np.stack(case.want(list(np.asarray(dxs[name])))), dtype, n)
        left, right = cases.product(cts[name], y), cases.product(back, xs[name])
        scale = n * np.linalg.norm(cts[name]) * np.linalg.norm(y)
        cases.same_products(left, right, scale, dtype)
        cases.same(again, y, dtype, n)  # the transpose of the transpose


@pytest.mark.parametrize("n", [4])
def test_gradients_through_shard_map(n):
    """With check_vma a result that is equal on all devices counts once, as in JAX."""
    chosen = linear(n, "float64")

    def loss(xs, weights):
        def f(xs):
            return {name: chosen[name][0].call(x, "a") for name, x in xs.items()}

        ys = mapped(f, n)(xs)
        return sum(jnp.sum(jnp.real(ys[k] * weights[k])) for k in ys)

    xs = {k: stacked(v) for k, (_, v) in chosen.items()}
    ys = {k: np.stack(c.want(v)) for k, (c, v) in chosen.items()}
    weights = {k: jnp.asarray(cases.random(y.shape, "float64", 5)) for k, y in ys.items()}
    grads = jax.jit(jax.grad(loss))(xs, weights)
    for name, (_, x) in chosen.items():
        left = np.vdot(ys[name], weights[name])
        assert np.allclose(left, np.vdot(np.stack(x), grads[name]), rtol=1e-12), name


def test_one_message_for_a_batch_and_for_a_tree():
    n = 2
    x = {"a": jnp.ones((n, n, 3)), "b": [jnp.ones((n, n), "int8"), jnp.ones((n, n, 2), bool)]}
    batch = jax.tree.map(lambda v: jnp.stack([v] * 5, 1), x)
    moves = {
        "alltoall": lambda v: plait.alltoall(v, comm="a"),
        "allgather": lambda v: plait.allgather(v, comm="a"),
        "bcast": lambda v: plait.bcast(v, 0, comm="a"),
        "route": lambda v: plait.permute(v, [(0, 1)], comm="a"),
    }
    for name, call in moves.items():
        for f, v in ((call, x), (jax.vmap(call), batch)):
            g = mapped(f, n)
            plait.block(g(v))
            _core.trace_start(True)
            plait.block(g(v))
            lines = [line for line in _core.trace() if name in line]
            _core.trace_start(False)
            assert len(lines) == n, lines


def test_tokens_in_a_manual_region():
    """Tokens give the same values and gradients as the effect, without the effect."""
    n = 4
    chosen = {
        "allgather": lambda x, **k: plait.allgather(x, comm="a", **k),
        "alltoall": lambda x, **k: plait.alltoall(x, comm="a", **k),
        "scan": lambda x, **k: plait.scan(x, plait.SUM, comm="a", **k),
        "gather": lambda x, **k: plait.gather(x, 1, comm="a", **k),
        "maxloc": lambda x, **k: plait.maxloc(x, comm="a", **k),
        "permute": lambda x, **k: plait.permute({"x": x}, [(0, 1)], comm="a", **k),
    }

    def total(x, token):
        out = 0.0
        for call in chosen.values():
            y, token = call(x, token=token) if token is not None else (call(x), None)
            out = out + sum(jnp.sum(jnp.sin(v)) for v in jax.tree.leaves(y) if v.dtype == x.dtype)
        return out

    x = stacked([cases.random((n, 2), "float64", r) for r in range(n)])
    for check in (True, False):
        plain = mapped(lambda v: total(v, None), n, check)
        chained = mapped(lambda v: total(v, plait.create_token()), n, check)
        assert not jax.make_jaxpr(chained)(x).effects
        assert np.allclose(plain(x), chained(x))
        grads = [jax.jit(jax.grad(lambda v, f=f: jnp.sum(f(v) ** 2)))(x) for f in (plain, chained)]
        assert np.allclose(*grads)
