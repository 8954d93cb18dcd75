"""Factors of tall matrices by rows, and least squares: oracles, padding, derivatives, traffic."""

import re

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
import test_linalg_factors as factors
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from meshes import padded
from plait import _dense_batch, _tall
from plait._dealt import Deal
from test_linalg_shape import data


@pytest.fixture
def forced(monkeypatch):
    """Factor by rows wherever possible, even small matrices."""
    monkeypatch.setattr(_tall, "FORCED", True)


def is_by_rows(function, *args, is_alone=True):
    """Whether a program factors by rows; is_alone: then it does not also factor by columns."""
    text = str(jax.make_jaxpr(function)(*args))
    found = [name in text for name in ("plait_mesh_tsqr[", "plait_mesh_geqrf[")]
    assert not is_alone or found[0] != found[1]
    return found[0]


KINDS = (AxisType.Auto, AxisType.Explicit)
CASES = [
    (m, n, shape, spec, matrices.DTYPES[i % 4], KINDS[i % 2])
    for i, (m, n, shape, spec) in enumerate(
        [(2, 1, (2,), P("a")), (40, 5, (8,), P("a")), (37, 5, (4,), P()), (64, 16, (4,), P("a"))]
        + [(48, 4, (2, 4), P("a", "b")), (66, 33, (2,), P(None)), (30, 10, (2,), P(None, "a"))]
        + [(90, 3, (2, 4), P("a")), (33, 2, (8,), P()), (200, 8, (4,), P("a"))]
        + [(16, 2, (2, 2), P(("a", "b"))), (56, 7, (8,), P("a"))]
    )
]


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("m, n, shape, spec, dtype, kind", CASES)
def test_qr(forced, m, n, shape, spec, dtype, kind):
    mesh, a = meshes.make(shape, kind), meshes.random((m, n), dtype)
    x = meshes.put(a, mesh, spec)
    assert is_by_rows(plait.linalg.qr, x)
    q, r = plait.linalg.qr(x)
    assert q.shape == (m, n) and r.shape == (n, n)
    assert np.array_equal(r, np.triu(r))
    matrices.check_product((q, r), a, m)
    matrices.check_orthonormal(q)
    sizes = np.abs(np.diagonal(oracle.qr(a)[1]))
    bound = matrices.limit(m, dtype) * np.linalg.cond(a) * matrices.norm(a)
    assert np.abs(np.abs(np.diagonal(r)) - sizes).max() <= bound
    by_columns = plait.linalg.qr(x, block=2)
    for ours, theirs in zip((q, r), by_columns, strict=True):
        assert ours.sharding.is_equivalent_to(theirs.sharding, 2)
    for block, same in ((None, r), (2, by_columns.r)):
        alone = plait.linalg.qr(x, mode="r", block=block)
        assert np.array_equal(alone, same) and alone.sharding.is_equivalent_to(r.sharding, 2)
    assert np.array_equal(x, a)  # the operand still lives


@pytest.mark.parametrize("dtype", matrices.DTYPES)
def test_nothing_is_formed_for_r_alone(forced, dtype):
    x = meshes.put(meshes.random((40, 5), dtype), meshes.make((4,)), P("a"))
    given = {"mesh": x.sharding.mesh, "spec": P("a")}

    def alone(x):
        return plait.linalg.qr(x, mode="r", **given), plait.linalg.svdvals(x, **given)

    text = str(jax.make_jaxpr(alone)(x))
    assert text.count("plait_mesh_tsqr[") == 2 == text.count("without_q=True")
    by_columns = str(jax.make_jaxpr(lambda x: plait.linalg.qr(x, mode="r", block=2))(x))
    assert "plait_mesh_geqrf[" in by_columns and "plait_mesh_ormqr[" not in by_columns


@pytest.mark.parametrize("dtype, shape", [("float64", (4,)), ("complex64", (2, 2))])
def test_lstsq(forced, dtype, shape):
    m, n, mesh = 40, 6, meshes.make(shape)
    a, b = meshes.random((m, n), dtype), meshes.random((m, 8), dtype, 1)
    x = meshes.put(a, mesh, P("a"))
    for rhs, spec in ((b, P("a")), (b, P(None, "a")), (b[:, 0], P("a")), (b[:, :0], P())):
        y = meshes.put(rhs, mesh, spec)
        got = plait.linalg.lstsq(x, y)
        want = oracle.lstsq(a, rhs)
        bound = matrices.limit(m, dtype) * np.linalg.cond(a) ** 2
        assert got.shape == want.shape
        assert matrices.norm(np.asarray(got) - want) <= bound * (
            matrices.norm(want) + matrices.norm(rhs)
        )
        by_columns = plait.linalg.lstsq(x, y, block=2)
        assert got.sharding.is_equivalent_to(by_columns.sharding, rhs.ndim)
    assert is_by_rows(plait.linalg.lstsq, x, meshes.put(b, mesh))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("m, n, shape, spec, dtype, kind", CASES[::3])
def test_svd(forced, m, n, shape, spec, dtype, kind):
    mesh, a = meshes.make(shape, kind), meshes.random((m, n), dtype)
    wide = spec if spec == P(None, "a") else P(*(*spec, None, None)[1::-1])
    for whole, split in ((a, spec), (a.conj().T, wide)):
        x = meshes.put(whole, mesh, split)
        assert is_by_rows(plait.linalg.svd, x, is_alone=False)
        u, s, vh = plait.linalg.svd(x)
        assert u.shape == (len(whole), n) and s.shape == (n,) and vh.shape == (n, whole.shape[1])
        matrices.check_product((np.asarray(u) * np.asarray(s), vh), whole, m)
        matrices.check_orthonormal(u)
        matrices.check_orthonormal(np.asarray(vh).conj().T)
        want = oracle.svd(whole)
        bound = matrices.limit(m, dtype) * want[0]
        assert np.abs(np.asarray(s) - want).max() <= bound
        assert is_by_rows(plait.linalg.svdvals, x, is_alone=False)
        assert np.abs(np.asarray(plait.linalg.svdvals(x)) - want).max() <= bound
        by_columns = plait.linalg.svd(x, block=2)
        for ours, theirs in zip((u, s, vh), by_columns, strict=True):
            assert ours.sharding.is_equivalent_to(theirs.sharding, ours.ndim)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("m, n, shape, spec, dtype, kind", CASES[1::3])
def test_polar(forced, m, n, shape, spec, dtype, kind):
    mesh, a = meshes.make(shape, kind), meshes.random((m, n), dtype)
    x = meshes.put(a, mesh, spec)
    assert is_by_rows(plait.linalg.polar, x, is_alone=False)
    u, h = plait.linalg.polar(x)
    matrices.check_orthonormal(u)
    matrices.check_product((u, h), a, m)
    bound = matrices.limit(m, dtype) * np.linalg.cond(a)
    for ours, want in zip((u, h), oracle.polar(a), strict=True):
        assert matrices.norm(np.asarray(ours) - want) <= bound * matrices.norm(want)
    for ours, theirs in zip((u, h), plait.linalg.polar(x, block=2), strict=True):
        assert ours.sharding.is_equivalent_to(theirs.sharding, 2)


def test_svd_of_deficient_rank(forced):
    """Q is orthonormal even if R is singular."""
    a = meshes.random((40, 2)) @ meshes.random((2, 5), seed=1)
    u, s, vh = plait.linalg.svd(meshes.put(a, meshes.make((4,)), P("a")))
    matrices.check_product((np.asarray(u) * np.asarray(s), vh), a, 40)
    matrices.check_orthonormal(u)
    assert np.abs(s[2:]).max() <= matrices.limit(40, "float64") * s[0]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dtype", matrices.DTYPES)
def test_numbers_near_either_end(forced, dtype):
    """Squares overflow or vanish, and reciprocals of the largest numbers are subnormal."""
    a, number = meshes.random((40, 5), dtype), np.finfo(dtype)
    a /= np.linalg.norm(a, axis=0).max()
    for size in (number.max * 0.3, number.max / 8, number.tiny / number.eps):
        x = meshes.put((a * size).astype(dtype), meshes.make((4,)), P("a"))
        pairs = {block: plait.linalg.qr(x, block=block) for block in (None, 2)}
        pairs["polar"] = plait.linalg.polar(x)
        u, s, vh = plait.linalg.svd(x)
        pairs["svd"] = (u, np.asarray(s)[:, None] * np.asarray(vh))
        for name, (q, r) in pairs.items():
            matrices.check_orthonormal(q)
            matrices.check_product((q, np.asarray(r) / size), a, 40, f"{name} {size}")


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "dtype, shape, spec, room",
    [("float64", (4,), P("a"), (44, 8)), ("complex128", (2, 2), P("a", "b"), (42, 6))],
)
def test_padding_is_not_read(forced, dtype, shape, spec, room):
    m, n, mesh = 41, 5, meshes.make(shape)
    a, b = meshes.random((m, n), dtype), meshes.random((m, 3), dtype, 1)
    x = meshes.put(padded(a, room), mesh, spec)
    y = meshes.put(padded(b, (room[0], 3)), mesh, P("a"))
    given = {"mesh": mesh, "spec": spec, "shape": (m, n)}

    def every(x, y):
        factors = [f(x, **given) for f in (plait.linalg.qr, plait.linalg.polar, plait.linalg.svd)]
        return *factors, plait.linalg.lstsq(x, y, **given)

    assert is_by_rows(every, x, y, is_alone=False)
    (q, r), (w, h), (u, s, vh), solution = plait.jit(every)(x, y)
    assert w.shape == u.shape == room and h.shape == vh.shape == (room[1], room[1])
    assert s.shape == (n,)
    matrices.check_product((data(w, m, n), data(h, n, n)), a, m)
    matrices.check_product((data(u, m, n) * np.asarray(s), data(vh, n, n)), a, m)
    assert q.shape == room and r.shape == (room[1], room[1])
    assert q.sharding.is_equivalent_to(x.sharding, 2)
    q, r = data(q, m, n), data(r, n, n)
    matrices.check_orthonormal(q)
    matrices.check_product((q, r), a, m)
    assert solution.shape == (room[1], 3)
    assert np.allclose(data(solution, n, 3), oracle.lstsq(a, b))
    eager = plait.linalg.lstsq(x, meshes.put(b[:, 0], mesh), shape=(m, n))
    assert np.allclose(data(eager, n), oracle.lstsq(a, b[:, 0]))


def test_not_finite(forced):
    a = meshes.random((40, 5))
    a[13, 2] = np.nan
    q, r = plait.linalg.qr(meshes.put(a, meshes.make((4,)), P("a")))
    assert np.isnan(np.asarray(q)[:, 2:]).all() and np.isnan(np.diagonal(r)[2:]).all()


def test_when_rows_are_split():
    def is_tall(m, n, n_ranks, block=None, dtype="float64"):
        mesh = meshes.make((n_ranks,))
        deal = Deal(mesh, max(1, min(32, n // 8)))
        return _tall.rows_of((m, n), np.dtype(dtype), deal, block) is not None

    assert is_tall(200000, 32, 2) and is_tall(200000, 32, 8, dtype="complex64")
    assert not is_tall(200000, 32, 2, block=4)  # block= asks for dealing out
    assert not is_tall(200000, 32, 1)
    assert not is_tall(32, 200000, 2) and not is_tall(1000, 0, 2)
    assert not is_tall(4000, 501, 8)  # a device has fewer rows than there are columns
    # the tree takes as many operations as all the rest, or more
    assert not is_tall(16000, 2000, 8) and is_tall(1600000, 2000, 8)


# ---- derivatives ---------------------------------------------------------------------------------


@pytest.mark.long(keep=1)
@factors.BOTH
@pytest.mark.parametrize("spec", [P("a"), P()])
def test_gradients(forced, dtype, shape, spec):
    m, n, mesh = 20, 3, meshes.make(shape)
    a, b = meshes.random((m, n), dtype), meshes.random((m, 2), dtype, 1)

    def ours(a):
        given = {"mesh": mesh, "spec": spec}
        return *factors.phased_qr(a, **given), plait.linalg.lstsq(a, b, **given)

    def theirs(a):
        q, r = jnp.linalg.qr(a)
        x = jax.scipy.linalg.solve_triangular(r, jnp.conj(q.T) @ b)
        return factors.phased(q, r), factors.phased(q, r)[1], x

    assert is_by_rows(ours, a)
    got = factors.slopes(ours, a)(meshes.put(a, mesh, spec))
    want = factors.slopes(theirs, a)(a)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-8, atol=1e-8 * np.abs(w).max())


@pytest.mark.long
@factors.BOTH
def test_gradients_of_singular_values_and_polar(forced, dtype, shape):
    m, n, mesh = 20, 3, meshes.make(shape)
    a = meshes.random((m, n), dtype)

    def projected(u, s, vh):
        """Functions independent of the phases of singular vectors, and not constant."""
        weights = jnp.arange(1, n + 1, dtype=dtype)[None]
        return (u * weights) @ jnp.conj(u.T), s, (vh.T * weights) @ jnp.conj(vh)

    def ours(a):
        given = {"mesh": mesh, "spec": P("a")}
        wide = plait.linalg.svd(jnp.conj(a.T), mesh=mesh, spec=P(None, "a"))
        u, h = plait.linalg.polar(a, **given)
        return projected(*plait.linalg.svd(a, **given)), projected(*wide)[1], u, h

    def theirs(a):
        u, s, vh = jnp.linalg.svd(a, full_matrices=False)
        return projected(u, s, vh), s, u @ vh, (jnp.conj(vh.T) * s[None].astype(dtype)) @ vh

    assert is_by_rows(ours, a, is_alone=False)
    got = factors.slopes(ours, a)(meshes.put(a, mesh, P("a")))
    want = factors.slopes(theirs, a)(a)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-8, atol=1e-8 * np.abs(w).max())


@pytest.mark.long
@pytest.mark.parametrize("is_forced, shape", [(True, (20, 3)), (True, (3, 20)), (False, (12, 8))])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients_where_columns_are_dependent(monkeypatch, dtype, is_forced, shape):
    """Polynomials of the matrix, by its factors: through Q and R little would be right."""
    monkeypatch.setattr(_tall, "FORCED", is_forced)
    is_wide, n = shape[0] < shape[1], min(shape)
    mesh, spec = meshes.make((4,)), P(None, "a") if shape[0] < shape[1] else P("a")
    weights, square = meshes.random(shape, dtype, 1), meshes.random((n, n), dtype, 2)

    def cubed(a):
        u, s, vh = plait.linalg.svd(a, mesh=mesh, spec=spec)
        return jnp.sum(weights * ((u * (s**3)[None].astype(dtype)) @ vh)).real

    def squared(a):
        tall = jnp.conj(a.T) if is_wide else a
        h = plait.linalg.polar(tall, mesh=mesh, spec=P("a")).h
        return jnp.sum(square * (h @ h)).real

    def theirs(a):
        tall = jnp.conj(a.T) if is_wide else a
        cube = jnp.sum(weights * (a @ jnp.conj(a.T) @ a)).real
        return cube, jnp.sum(square * (jnp.conj(tall.T) @ tall)).real

    u, s, vh = np.linalg.svd(meshes.random(shape, dtype), full_matrices=False)
    both = jax.jit(lambda a: (jax.grad(cubed)(a), jax.grad(squared)(a)))
    for least in (1e-4, 1e-9, 0):
        s[-1] = least
        a = (u * s) @ vh
        want = [jax.grad(lambda a, i=i: theirs(a)[i])(a) for i in range(2)]
        got = both(meshes.put(a, mesh, spec))
        # for a singular matrix H has no gradient; near it the last vector's phase is ill-determined
        phase = 0 if least == 0 or dtype == "float64" else 1e-15 / least
        for ours, w, bound in zip(got, want, (1e-11, 1e-11 + phase), strict=True):
            if least > 0 or ours is got[0]:
                assert np.abs(ours - w).max() <= bound * np.abs(w).max(), least


@pytest.mark.long
@pytest.mark.parametrize("make", [lambda a: a.at[:, 2].set(0), lambda a: a.at[:, 2].set(a[:, 1])])
def test_gradients_where_a_singular_value_is_zero(make):
    mesh = meshes.make((4,))
    weights = meshes.random((12, 8), seed=1)

    def slope(a):
        u, s, vh = plait.linalg.svd(a, mesh=mesh, spec=P("a"))
        return jnp.sum(weights * ((u * (s**3)[None]) @ vh))

    for seed in range(4):
        a = make(jnp.asarray(meshes.random((12, 8), seed=seed)))
        want = jax.grad(lambda a: jnp.sum(weights * (a @ a.T @ a)))(a)
        got = jax.jit(jax.grad(slope))(meshes.put(a, mesh, P("a")))
        assert np.abs(got - want).max() <= 1e-11 * np.abs(want).max(), seed


def test_gradients_of_right_hand_sides_and_padding(forced):
    m, n, mesh = 22, 3, meshes.make((4,))
    a, b = meshes.random((m, n)), meshes.random((m, 2), seed=1)
    x = meshes.put(padded(a, (24, 4)), mesh, P("a"))
    y = meshes.put(padded(b, (24, 2)), mesh, P("a"))

    def ours(x, y):
        return jnp.sum(plait.linalg.lstsq(x, y, mesh=mesh, spec=P("a"), shape=(m, n)) ** 3)

    def theirs(a, b):
        return jnp.sum(jnp.linalg.solve(a.T @ a, a.T @ b) ** 3)

    for wrap in (jax.jit, lambda f: f):  # also eager
        got = wrap(jax.grad(ours, (0, 1)))(x, y)
        want = jax.grad(theirs, (0, 1))(jnp.asarray(a), jnp.asarray(b))
        for g, w in zip(got, want, strict=True):
            assert np.allclose(data(g, *w.shape), w, rtol=1e-9, atol=1e-9)


# ---- batches -------------------------------------------------------------------------------------


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("n_batch, is_spread", [(5, True), (3, False)])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_vmap(forced, n_batch, is_spread, kind):
    m, n, mesh = 24, 4, meshes.make((4,), kind)
    a, b = meshes.random((n_batch, m, n)), meshes.random((n_batch, m), seed=1)
    x, y = meshes.put(a, mesh), meshes.put(b, mesh)

    def every(a, b):
        given = {"mesh": mesh, "spec": P()}
        alone = plait.linalg.qr(a, mode="r", **given)
        return plait.linalg.qr(a, **given), alone, plait.linalg.lstsq(a, b, **given)

    text = str(jax.make_jaxpr(jax.vmap(every))(x, y))
    assert ("plait_mesh_batch[" in text) == is_spread
    assert ("plait_mesh_tsqr[" in text) != is_spread
    (q, r), alone, z = plait.jit(jax.vmap(every))(x, y)
    assert np.array_equal(alone, r)
    for i in range(n_batch):
        matrices.check_orthonormal(q[i])
        matrices.check_product((q[i], r[i]), a[i], m)
        assert np.allclose(z[i], oracle.lstsq(a[i], b[i]))

    def loss(a, b):
        return jnp.sum(plait.linalg.lstsq(a, b, mesh=mesh, spec=P()) ** 2)

    def want(a, b):
        return jnp.sum(jnp.linalg.solve(a.T @ a, a.T @ b) ** 2)

    got = jax.jit(jax.vmap(jax.grad(loss, (0, 1))))(x, y)
    for g, w in zip(got, jax.vmap(jax.grad(want, (0, 1)))(a, b), strict=True):
        assert np.allclose(g, w, rtol=1e-8, atol=1e-8 * np.abs(w).max())


def test_batches_of_large_matrices(forced, monkeypatch):
    m, n, mesh = 28, 4, meshes.make((4,))  # of no other test, so that nothing is remembered
    x = meshes.put(meshes.random((5, m, n)), mesh)
    monkeypatch.setattr(_dense_batch, "SMALL", m - 1)
    text = str(jax.make_jaxpr(jax.vmap(lambda a: plait.linalg.qr(a, mesh=mesh, spec=P())))(x))
    assert "plait_mesh_tsqr[" in text and "plait_mesh_batch[" not in text


# ---- what travels --------------------------------------------------------------------------------


def test_nothing_gathers_the_matrix(forced):
    """No array of a device is larger than its part, and no foreign collective moves anything."""
    m, n, n_ranks = 800, 5, 4
    mesh = meshes.make((n_ranks,))
    x = meshes.put(meshes.random((m, n)), mesh, P("a"))
    y = meshes.put(meshes.random((m,), seed=1), mesh, P("a"))

    def loss(x, y):
        q, r = plait.linalg.qr(x, mesh=mesh, spec=P("a"))
        z = plait.linalg.lstsq(x, y, mesh=mesh, spec=P("a"))
        return plait.sum(q**3, mesh=mesh, spec=P("a")) + jnp.sum(r**3) + jnp.sum(z**2)

    slope = jax.grad(loss, (0, 1))
    assert meshes.xla_collectives(slope, x, y) == []
    text = jax.jit(slope).lower(x, y).compile().as_text()
    sizes = [
        int(np.prod([int(k) for k in dims.split(",")]))
        for dims in re.findall(r"\bf64\[([0-9,]+)\]", text)
    ]
    assert "plait_tsqr" in text and max(sizes) == m * n // n_ranks
