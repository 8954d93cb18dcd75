"""Right-hand sides that all devices have whole: the parts of the factor work where they are."""

import functools

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from plait import _dense_args, _groups
from plait._dealt import Deal, Whole
from plait._dealt_inside import Inside
from plait.compat import jaxmg


@pytest.fixture(params=[True, False], ids=["whole", "dealt"])
def forced(request, monkeypatch):
    monkeypatch.setattr(_dense_args, "FORCED_WHOLE", request.param)
    return request.param


def is_whole(program, *args):
    """Whether the program solves for whole right-hand sides; all its solves must agree."""
    text = program.lower(*args).as_text()
    assert ("whole = 1" in text) != ("whole = 0" in text)
    return "whole = 1" in text


CASES = [
    (n, shape, block, matrices.DTYPES[i % 4], k)
    for i, (n, shape, block, k) in enumerate(
        [(1, (2,), 1, 1), (7, (4,), 2, 3), (33, (2, 2), 5, 1), (40, (8,), 3, 4), (50, (2,), 60, 2)]
        + [(100, (4,), 8, 1), (24, (2, 4), 1, 2), (31, (2,), 4, 40)]
    )
]


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("n, shape, block, dtype, k", CASES)
def test_backward_errors(forced, n, shape, block, dtype, k):
    mesh = meshes.make(shape)
    a, g = matrices.definite(n, dtype), matrices.definite(n, dtype) + meshes.random((n, n), dtype)
    b, c = meshes.random((n, k), dtype, 1), meshes.random((n,), dtype, 2)
    split = P(None, mesh.axis_names[0]) if k % shape[0] == 0 else P()
    whole, columns = meshes.put(b, mesh), meshes.put(b, mesh, split)
    f = plait.linalg.cholesky(meshes.put(a, mesh), block=block)
    h = plait.linalg.lu(meshes.put(g, mesh), block=block)
    for factor, matrix in ((f, a), (h, g)):
        for x in (whole, columns):
            got = factor.solve(x)
            assert got.sharding.is_equivalent_to(x.sharding, 2)
            matrices.check_solution(matrix, got, b)
        matrices.check_solution(matrix, factor.solve(meshes.put(c, mesh)), c)
    matrices.check_solution(g, plait.linalg.solve(meshes.put(g, mesh), whole, block=block), b)


def test_the_program_has_it(forced):
    """A whole right-hand side is not dealt out, and no device needs another one's result."""
    mesh = meshes.make((4,))
    f = plait.linalg.cholesky(meshes.put(matrices.definite(16), mesh), block=2)
    solve = plait.jit(lambda f, b: f.solve(b))
    assert is_whole(solve, f, meshes.put(np.ones(16), mesh)) == forced


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "name, dtype", [("cholesky", "complex128"), ("lu", "complex128"), ("lu", "float64")]
)
def test_derivatives(forced, name, dtype):
    n, mesh = 12, meshes.make((4,))
    a = matrices.definite(n, dtype)
    a = a if name == "cholesky" else a + meshes.random((n, n), dtype, 4)
    b, c = meshes.random((n, 2), dtype, 1), meshes.random((n, 2), dtype, 2)
    factor = getattr(plait.linalg, name)

    def loss(a, b):
        x = factor(a, block=2, mesh=mesh, spec=P()).solve(b, spec=P())
        return plait.sum((x * c).real, mesh=mesh, spec=P())

    def want(a, b):
        a = (a + a.conj().T) / 2 if name == "cholesky" else a
        return jnp.sum((jnp.linalg.solve(a, b) * c).real)

    given = meshes.put(a, mesh), meshes.put(b, mesh)
    got = jax.jit(jax.grad(loss, (0, 1)))(*given)
    for x, y in zip(got, jax.jit(jax.grad(want, (0, 1)))(a, b), strict=True):
        assert np.allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max())
    da, db = meshes.random((n, n), dtype, 5), meshes.random((n, 2), dtype, 6)
    da = da + da.conj().T if name == "cholesky" else da
    tangents = meshes.put(da, mesh), meshes.put(db, mesh)
    _, slope = jax.jit(lambda x, t: jax.jvp(loss, x, t))(given, tangents)
    assert np.allclose(
        slope, jax.jit(lambda x, t: jax.jvp(want, x, t))((a, b), (da, db))[1], rtol=1e-9
    )
    twice = jax.jit(
        jax.grad(
            lambda b: plait.sum(jnp.abs(jax.grad(loss, 0)(given[0], b)) ** 2, mesh=mesh, spec=P())
        )
    )(given[1])
    also = jax.jit(jax.grad(lambda b: jnp.sum(jnp.abs(jax.grad(want, 0)(a, b)) ** 2)))(b)
    assert np.allclose(twice, also, rtol=1e-8, atol=1e-8 * np.abs(also).max())


def test_vmap(forced):
    n, mesh = 9, meshes.make((4,))
    a, b = matrices.definite(n), meshes.random((3, n, 2), seed=1)
    f = plait.linalg.cholesky(meshes.put(a, mesh), block=2)
    got = jax.jit(jax.vmap(lambda b: f.solve(b, spec=P())))(meshes.put(b, mesh))
    for x, y in zip(got, b, strict=True):
        matrices.check_solution(a, x, y)


def test_choice():
    """Whole for few right-hand sides of a large matrix, dealt out for many, or a small matrix."""

    def chosen(n, k, n_ranks=4, block=128):
        deal = Deal(meshes.make((n_ranks,)), block)
        return isinstance(_dense_args.deal_of_rhs(deal, (n, k), np.dtype("float64")), Whole)

    assert chosen(8192, 1) and chosen(8192, 64) and chosen(16384, 128, 8)
    assert not chosen(64, 1, block=4) and not chosen(8192, 8192) and not chosen(8192, 0)
    assert chosen(64, 64, n_ranks=1)  # no device without columns
    vector = _dense_args.deal_of_rhs(Deal(meshes.make((4,)), 128), (8192,), np.dtype("complex64"))
    assert isinstance(vector, Whole) and vector.dealt == Deal(meshes.make((4,)), 128)
    inside = Inside(None, 128, _groups.Group(None, 4))
    found = _dense_args.deal_of_rhs(inside, (8192, 1), np.dtype("float64"))
    assert isinstance(found, Whole) and found.dealt == inside and found.group == inside.group


def test_failure(forced):
    """NaN for a matrix that is not definite; the oracle's solution for a definite matrix."""
    mesh = meshes.make((4,))
    a = matrices.definite(10)
    bad = a.copy()
    bad[6, 6] = -1
    b = meshes.random((10,), seed=3)
    f = plait.linalg.cholesky(meshes.put(bad, mesh), block=2)
    assert f.status == 7 and np.isnan(f.solve(meshes.put(b, mesh))).all()
    got = plait.linalg.potrs(meshes.put(a, mesh), meshes.put(b, mesh), block=2)
    assert np.allclose(got, oracle.solve(a, b))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("name", ["cholesky", "lu"])
def test_refined(forced, name):
    n, mesh = 20, meshes.make((4,))
    a, b = matrices.definite(n), meshes.random((n, 2), seed=1)
    a = a if name == "cholesky" else a + meshes.random((n, n), seed=2)
    f = getattr(plait.linalg, name)(meshes.put(a, mesh), block=2, precision="single")
    matrices.check_solution(a, f.solve(meshes.put(b, mesh)), b)
    given = {"refine": True, "block": 2, "mesh": mesh, "spec": P()}
    solve = plait.jit(functools.partial(plait.linalg.solve, **given))
    x, y = meshes.put(a, mesh), meshes.put(b, mesh)
    matrices.check_solution(a, solve(x, y), b)
    assert is_whole(solve, x, y) == forced


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("check", [False, True])
def test_inside_shard_map(forced, check):
    """On the parts of devices, with derivatives of different functions of x on each device, too."""
    n, mesh = 16, meshes.make((4,))
    a, b = matrices.definite(n), meshes.random((n, 3), seed=1)
    columns = P(None, "a")

    def local(a, b):
        x, status = jaxmg.potrs_no_shardmap(a, b, 1, axis_name="a")
        weight = 1.0 + lax.axis_index("a").astype(x.dtype)
        return x, status, jnp.sum(weight * x**2)[None]

    out = (P(), P(), P("a"))
    given = {"mesh": mesh, "in_specs": (columns, P()), "out_specs": out, "check_vma": check}
    f = jax.shard_map(local, **given)

    def loss(a, b):
        x, _, each = f(a, b)
        return jnp.sum(jnp.sin(x)) + jnp.sum(each)

    def reference(a, b):
        x = jnp.linalg.solve((a + a.T) / 2, b)
        return jnp.sum(jnp.sin(x)) + 10 * jnp.sum(x**2)

    given = meshes.put(a, mesh, columns), meshes.put(b, mesh)
    program = jax.jit(lambda a, b: (*f(a, b)[:2], jax.grad(loss, (0, 1))(a, b)))
    assert is_whole(program, *given) == forced
    x, status, got = program(*given)
    matrices.check_solution(a, x, b)
    assert not status.any()
    tangents = jnp.asarray(meshes.random((n, n), seed=2)), jnp.asarray(meshes.random((n, 3)))
    slope = jax.jit(lambda *x: jax.jvp(loss, x, tangents)[1])(*given)
    assert np.isclose(slope, jax.jit(lambda *x: jax.jvp(reference, x, tangents)[1])(a, b))
    for g, w in zip(got, jax.jit(jax.grad(reference, (0, 1)))(a, b), strict=True):
        assert np.allclose(g, w, rtol=1e-9, atol=1e-9 * np.abs(w).max())
