"""What a program communicates: compared with a real run, and with the sizes."""

import collections
import functools
import inspect
import re
import types

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _core, _describe, _jax

LINE = re.compile(r"^r\d+ \| [0-9a-f]+ \| (.*) at (\S+:\d+)$", re.MULTILINE)
EXPLICIT = (AxisType.Explicit, AxisType.Explicit)


def grid():
    return jax.make_mesh((2, 2), ("x", "y"), axis_types=EXPLICIT)


def on_grid(shape, *spec, dtype=np.float64):
    x = np.random.default_rng(1).normal(size=shape)
    if len(set(shape[-2:])) == 1:
        x = x + np.swapaxes(x, -1, -2) + 40 * np.eye(shape[-1])
    return jax.device_put(x.astype(dtype), NamedSharding(grid(), P(*spec)))


# ---- every operation that runs is explained, and no other ----------------------------------------


def norm(f):
    return jax.grad(lambda x: jnp.abs(f(x)).sum())


def there_and_back(x):
    return plait.fft.pifft3d(plait.fft.pfft3d(x)).real


def turned(x):
    return plait.redistribute(x, P(None, "x", "y"))


def solved(a):
    return plait.linalg.solve(a, a)


def determinant(a):
    return plait.linalg.cholesky(a).logdet()


def halved(x):
    return plait.halo.reduce(plait.halo.exchange(x, 1) ** 2, 1)


def in_a_loop(x):
    def turn(c, _):
        c = plait.redistribute(c, P("y", "x"))
        return plait.redistribute(c, P("x", "y"), spec=P("y", "x")), None

    return lax.scan(turn, x, length=3)[0]


def summed(x):
    return jax.shard_map(
        lambda v: plait.allreduce({"a": v, "b": v.astype(jnp.int32)}, plait.SUM, comm="x"),
        mesh=grid(),
        in_specs=P("x", "y"),
        out_specs=P(None, "y"),
    )(x)


def started(x):
    def f(v):
        slot = plait.start(plait.allreduce, (v, v.astype(jnp.int32)), plait.SUM, comm=("x", "y"))
        return plait.wait(slot)[0]

    return jax.shard_map(f, mesh=grid(), in_specs=P("x", "y"), out_specs=P())(x)


CUBE, MATRIX = ((8, 8, 8), "x", "y"), ((12, 12), "x", "y")
PROGRAMS = {
    "fft": (there_and_back, CUBE),
    "adjoint": (norm(there_and_back), CUBE),
    "remat": (norm(jax.checkpoint(there_and_back)), CUBE),
    "redistribute": (turned, CUBE),
    "batch": (jax.vmap(there_and_back), ((3, 8, 8, 8), None, "x", "y")),
    "halo": (halved, CUBE),
    "sum": (lambda x: plait.sum(x), CUBE),
    "solve": (solved, MATRIX),
    "matrices": (jax.vmap(solved), ((3, 12, 12), None, "x", "y")),
    "many matrices": (jax.vmap(solved), ((8, 12, 12), None, "x", "y")),
    "logdet": (jax.value_and_grad(determinant), MATRIX),
    "eigh": (lambda a: plait.linalg.eigh(a), MATRIX),
    "tall": (lambda a: plait.linalg.qr(a), ((64, 4), ("x", "y"))),
    "scan": (in_a_loop, MATRIX),
    "allreduce": (summed, MATRIX),
    "start": (started, MATRIX),
    "region": (plait.region(solved), MATRIX),
}


def lines_of(capfd, program, x):
    """Texts and sites of the ranks' operations, each as often as it runs."""
    capfd.readouterr()
    plait.set_logging(True)
    try:
        plait.block(program(x))
    finally:
        plait.set_logging(False)
    return collections.Counter(LINE.findall(capfd.readouterr().out))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_runs_is_what_was_explained(capfd, name):
    f, (shape, *spec) = PROGRAMS[name]
    x = on_grid(shape, *spec)
    explained = plait.explain(f, x)
    lines = lines_of(capfd, plait.jit(f), x)
    ran, said = collections.Counter(), collections.Counter()
    for (text, site), n in lines.items():
        ran[None if text.startswith("MPI_") else text, site] += n
    for call in explained.calls:
        has_text = _core.rows()[call.name].line is None
        said[call.title if has_text else None, call.site] += 4 * call.times
        assert not call.where
    assert said == ran
    assert sum(said.values()) == 4 * explained.n_calls > 0


def test_operations_of_this_rank(capfd):
    @plait.jit
    def f(x):
        y = plait.allreduce((x, x.astype(jnp.int32), x + 1), plait.SUM)
        return plait.bcast(y[0], 0)

    explained = plait.explain(f, jnp.ones(3))
    assert sum(lines_of(capfd, f, jnp.ones(3)).values()) == explained.n_calls == 3
    assert {(call.n_ranks, call.way) for call in explained.calls} == {(1, "threads")}


def test_how_often_loops_turn_that_the_trace_does_not_say():
    def f(x):
        x = lax.while_loop(
            lambda c: plait.allreduce(c, plait.SUM)[0] < 3,
            lambda c: lax.scan(lambda c, _: (plait.bcast(c, 0), None), c, length=4)[0],
            x,
        )
        return lax.cond(x[0] > 0, lambda x: plait.scan(x, plait.SUM), lambda x: x, x)

    found = plait.explain(f, jnp.ones(3))
    assert [(call.name, call.times, call.where) for call in found.calls] == [
        ("allreduce", 1, "before each turn of a while loop"),
        ("bcast", 4, "in each turn of a while loop"),
        ("scan", 1, "in branch 1 of 2"),
    ]
    assert "bcast(float64[3], root 0), at test_explain.py:" in str(found)


def test_solvers_of_derivatives_run_once():
    def f(b):
        return lax.custom_linear_solve(
            lambda x: 2 * plait.allreduce(x, plait.SUM),
            b,
            lambda matvec, b: plait.bcast(b, 0) / 2,
            symmetric=True,
        )

    assert [call.name for call in plait.explain(f, jnp.ones(3)).calls] == ["bcast"]
    names = [call.name for call in plait.explain(jax.grad(lambda b: f(b).sum()), jnp.ones(3)).calls]
    assert names == ["bcast", "bcast"]


# ---- numbers -------------------------------------------------------------------------------------


def like(n_devices, shape, *spec, dtype=jnp.complex64, axes=("x",)):
    mesh = AbstractMesh(n_devices, axes, axis_types=(AxisType.Explicit,) * len(axes))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


@pytest.mark.parametrize("way", _describe.WAYS)
@pytest.mark.parametrize(("p", "q"), [(16, 1), (4, 4), (32, 8)])
def test_transforms_take_what_is_others(p, q, way):
    n = 64
    x = like((p, q), (n, n, n), *("x", "y")[: 1 + (q > 1)], axes=("x", "y"))
    part = n**3 * 8 // (p * q)
    turns = [part // q * (q - 1), part // p * (p - 1)]
    found = plait.explain(plait.fft.pfft3d, x, way=way)
    assert found.n_bytes == sum(turns)
    assert found.messages == (q - 1) + (p - 1)
    assert [call.n_ranks for call in found.calls] == [p * q]


def test_sums_count_every_turn():
    x = like((8,), (64, 64), "x")

    def f(x):
        return lax.scan(lambda c, _: (plait.redistribute(c, P("x")), None), x, length=5)[0]

    def back(x):
        return plait.redistribute(plait.redistribute(x, P(None, "x")), P("x"))

    one = plait.explain(back, x)
    many = plait.explain(lambda x: lax.scan(lambda c, _: (back(c), None), x, length=5)[0], x)
    assert one.n_bytes == 2 * (64 * 64 * 8 // 64 * 7)
    assert (many.n_calls, many.n_bytes) == (10, 5 * one.n_bytes)
    assert (many.messages, many.work_bytes) == (5 * one.messages, one.work_bytes)
    assert plait.explain(f, x).n_bytes == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_meshes_need_no_devices(name):
    f, (shape, *spec) = PROGRAMS[name]
    x = on_grid(shape, *spec)
    abstract = like((2, 2), shape, *spec, dtype=x.dtype, axes=("x", "y"))
    assert plait.explain(f, abstract) == plait.explain(f, x)


def test_auto_axes_and_operands_without_a_mesh():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    x = jnp.ones((8, 8, 8), jnp.complex64)
    for m in (mesh, AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))):
        f = functools.partial(plait.fft.pfft3d, mesh=m, spec=P("x"))
        found = plait.explain(f, x)
        assert found.n_bytes == 8**3 * 8 // 16 * 3
        assert [call.n_ranks for call in found.calls] == [4]


def test_ways():
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)

    def f(n, x):
        mesh = AbstractMesh((n,), ("x",), axis_types=(AxisType.Auto,))
        return plait.redistribute(x, P(), mesh=mesh, spec=P("x"))

    few = [call.way for call in plait.explain(functools.partial(f, 4), x).calls]
    many = [call.way for call in plait.explain(functools.partial(f, 64), jnp.ones((64, 2))).calls]
    assert (few, many) == (["threads"], ["messages"])
    for way, by in zip(
        _describe.WAYS, ["shared addresses", "one-copy reads", "messages"], strict=True
    ):
        [call] = plait.explain(functools.partial(f, 4), x, way=way).calls
        assert call.way == way
        assert f"rank 0 of 4 by {by}: 3 messages, 96 bytes" in call.plan


# ---- words ---------------------------------------------------------------------------------------


def test_the_table():
    x = like((4,), (16, 16), "x", dtype=jnp.float32)

    def f(x):
        y = plait.redistribute(x, P(None, "x"))
        return plait.redistribute(y, P("x"))

    first = inspect.getsourcelines(f)[1] + 1
    lines = str(plait.explain(f, x, way="messages")).splitlines()
    assert lines[0] == "rank 0 of 4 by messages: 2 operations, 384 B from other ranks, work 0 B"
    assert lines[1].split() == ["times", "pieces", "bytes", "fences", "work", "operation"]
    title = "redistribute float32 16x16 over 4: |0 whole -> 16x16 over 4: whole |0"
    assert lines[2] == f"    1       3  192 B       0   0 B  {title}, at test_explain.py:{first}"
    assert len(lines) == 4


def test_a_cell_that_ends_in_an_explanation_shows_the_table():
    shown = []
    found = plait.explain(plait.sum, like((4,), (8,), "x"))
    found._repr_pretty_(types.SimpleNamespace(text=shown.append), False)
    assert shown == [str(found)] and "1 operation" in shown[0]


def test_equal_operations_share_a_line():
    def f(x):
        for _ in range(3):
            x = plait.allreduce(x, plait.SUM)
        return x

    found = plait.explain(f, jnp.ones(2))
    assert [line.split()[0] for line in str(found).splitlines()[2:]] == ["3"]
    assert len(found.calls) == 3
    assert found.plans == found.calls[0].plan


def test_ranks_of_several_groups_are_named():
    def f(x):
        return jax.shard_map(
            lambda v: plait.allreduce(plait.allreduce(v, plait.SUM, comm="x"), plait.SUM, comm="y"),
            mesh=jax.typeof(x).sharding.mesh,
            in_specs=P("x", "y"),
            out_specs=P(),
        )(x)

    text = str(plait.explain(f, like((2, 8), (16, 16), "x", "y", axes=("x", "y"))))
    assert text.startswith("rank 0 of 2 by threads, rank 0 of 8 by threads: 2 operations")
    assert ", rank 0 of 8 by threads, at test_explain.py:" in text


def test_nothing_to_explain():
    found = plait.explain(lambda x: 2 * x, jnp.ones(2))
    assert (found.calls, found.n_calls, found.n_bytes, found.work_bytes) == ((), 0, 0, 0)
    assert str(found) == "no rank: 0 operations, 0 B from other ranks, work 0 B"


def test_lines_of_derivatives_are_the_programs():
    found = plait.explain(PROGRAMS["logdet"][0], like((4,), (16, 16), "x", dtype=jnp.float32))
    assert {call.site.partition(":")[0] for call in found.calls} == {"test_explain.py"}


# ---- wrong questions -----------------------------------------------------------------------------


def test_unknown_way():
    with pytest.raises(ValueError, match="explain: way is 'wire'; expected None or one of"):
        plait.explain(plait.sum, jnp.ones(2), way="wire")


def test_what_the_function_raises():
    with pytest.raises(ValueError, match="root"):
        plait.explain(lambda x: plait.bcast(x, 7), jnp.ones(2))


def test_primitives_that_hide_communication():
    hidden = jex.Primitive("hidden")
    hidden.def_effectful_abstract_eval(lambda x: (x, {_jax.EFFECT}))
    with pytest.raises(plait.Error, match="explain: cannot look into a hidden, which communicates"):
        plait.explain(lambda x: hidden.bind(x), jnp.ones(2))
