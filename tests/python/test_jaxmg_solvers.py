"""plait.compat.jaxmg's solvers: backward errors, statuses, texts, the README's examples."""

import functools
import importlib.util
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import platforms
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from plait.compat import jaxmg, jaxmg_rows

COLUMNS, ROWS, WHOLE = P(None, "a"), P("a", None), P(None, None)
# ndev, N, T_A: tilings that JAXMg takes; the third has padding, the last T_A >= shard.
FEW = [
    (1, 13, 4, "complex64"),
    (2, 12, 2, "float64"),
    (4, 100, 4, "complex128"),
    (4, 24, 64, "float32"),
]
EVERY = [*FEW, (2, 12, 2, "float32"), (4, 100, 4, "complex64"), (8, 64, 1, "float64")]
RANKS = pathlib.Path(__file__).with_name("jaxmg_processes.py")


def on(a, ndev, spec=COLUMNS):
    return meshes.put(a, meshes.make((ndev,)), spec)


def check_inverse(a, y):
    n = len(a)
    error = matrices.norm(a @ np.asarray(y) - np.eye(n))
    assert error <= 10 * n * matrices.limit(n, np.asarray(y).dtype)
    assert np.array_equal(y, np.asarray(y).conj().T)


def check_vectors(a, w, v):
    w, v = np.asarray(w), np.asarray(v)
    assert w.dtype == v.real.dtype and (np.diff(w) >= 0).all()
    matrices.check_orthonormal(v)
    residual = a @ v - v * w
    assert matrices.norm(residual) <= matrices.limit(len(a), v.dtype) * matrices.norm(a)


def indefinite(n, dtype="float64"):
    """Hermitian, with complex vectors if the dtype is complex."""
    a = meshes.random((n, n), dtype)
    return (a + a.conj().T).astype(dtype)


# ---- global arrays -------------------------------------------------------------------------------


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("ndev, n, T_A, dtype", EVERY)
def test_by_columns(ndev, n, T_A, dtype):
    mesh = meshes.make((ndev,))
    a, b = matrices.definite(n, dtype), meshes.random((n, 3), dtype, 1)
    x, y = on(a, ndev), on(b, ndev, WHOLE)
    s, status = jaxmg.potrs(x, y, T_A, mesh, (COLUMNS, WHOLE), return_status=True)
    matrices.check_solution(a, s, b)
    assert status == 0 and status.shape == () and status.dtype == jnp.int32
    assert s.is_fully_replicated and s.dtype == a.dtype
    invert = functools.partial(jaxmg.potri, mesh=mesh, in_specs=(COLUMNS,), return_status=True)
    z, status = jax.jit(invert, static_argnames="T_A")(x, T_A=T_A)
    check_inverse(a, z)
    assert status == 0 and status.shape == () and z.sharding.is_equivalent_to(x.sharding, 2)
    h = indefinite(n, dtype)
    w, v, status = jaxmg.syevd(on(h, ndev), T_A, mesh, COLUMNS, return_status=True)
    check_vectors(h, w, v)
    assert np.array_equal(status, np.zeros(ndev, np.int32)) and status.dtype == jnp.int32
    assert w.is_fully_replicated and v.sharding.is_equivalent_to(x.sharding, 2)
    values = jaxmg.syevd(on(h, ndev), T_A, mesh, COLUMNS, return_eigenvectors=False)
    assert np.abs(values - w).max() <= matrices.limit(n, dtype) * matrices.norm(h)
    assert np.array_equal(x, a)  # the operand is as it was


@pytest.mark.parametrize("ndev, n, T_A, dtype", FEW)
def test_of_what_is_dealt_out(ndev, n, T_A, dtype):
    mesh = meshes.make((ndev,))
    a, h, b = (
        matrices.definite(n, dtype),
        indefinite(n, dtype),
        meshes.random((n, 2), dtype, 1),
    )
    x, g = (jaxmg.cyclic_1d_layout(on(m, ndev), T_A) for m in (a, h))
    given = {"mesh": mesh, "cyclic_1d": True}
    s = jaxmg.potrs(x, on(b, ndev, WHOLE), T_A, in_specs=(COLUMNS, WHOLE), **given)
    matrices.check_solution(a, s, b)
    y = jaxmg.potri(x, T_A, in_specs=COLUMNS, **given)
    w, v = jaxmg.syevd(g, T_A, in_specs=COLUMNS, **given)
    assert y.shape == v.shape == x.shape and y.sharding.is_equivalent_to(x.sharding, 2)
    check_inverse(a, jaxmg.undo_cyclic_1d_layout(y, T_A))
    check_vectors(h, w, jaxmg.undo_cyclic_1d_layout(v, T_A))
    # A matrix in other tiles than stated is read as a permuted matrix.
    if n == 12 and ndev == 2:
        plain = on(np.diag(np.arange(1.0, n + 1)) + 0.9 * np.eye(n, k=-1), ndev)
        _, status = jaxmg.potrs(
            plain,
            jnp.ones((n, 1)),
            T_A,
            in_specs=(COLUMNS, WHOLE),
            return_status=True,
            **given,
        )
        assert status == 7


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("ndev, n, T_A, dtype", FEW)
@pytest.mark.parametrize("pad", [True, False])
def test_by_rows(pad, ndev, n, T_A, dtype):
    mesh = meshes.make((ndev,))
    a, h, b = (
        matrices.definite(n, dtype),
        indefinite(n, dtype),
        meshes.random((n, 2), dtype, 1),
    )
    padding = 0 if pad or T_A >= n // ndev else jaxmg.calculate_padding(n // ndev, T_A)

    def wide(x):
        parts = [np.pad(part, ((0, padding), (0, 0))) for part in np.split(x, ndev)]
        return on(np.concatenate(parts), ndev, ROWS)

    def bare(x):
        x = np.asarray(x)
        tails = [part[len(part) - padding :] for part in np.split(x, ndev)]
        assert not np.any(tails)
        return np.concatenate([part[: len(part) - padding] for part in np.split(x, ndev)])

    x, g = wide(a), wide(h)
    s, status = jaxmg_rows.potrs(x, b, T_A, mesh, (ROWS, WHOLE), True, pad)
    matrices.check_solution(a, s, b)
    assert status == 0 and status.shape == () and s.is_fully_replicated
    y = jaxmg_rows.potri(x, T_A, mesh, (ROWS,), pad=pad)
    check_inverse(a, bare(y))
    assert y.shape == x.shape and y.sharding.is_equivalent_to(x.sharding, 2)
    w, v, status = jaxmg_rows.syevd(g, T_A, mesh, ROWS, return_status=True, pad=pad)
    check_vectors(h, w, bare(v.T).T)
    assert status == 0 and status.shape == () and v.shape == x.shape[::-1]
    assert np.array_equal(jaxmg.potrs(x, b, T_A, mesh, (ROWS, WHOLE), pad=pad), s)
    for specs in (ROWS, (ROWS,), [ROWS]):  # since 0.0.6
        assert np.array_equal(jaxmg_rows.potrs(x, b, T_A, mesh, specs, pad=pad), s)
    alone = jaxmg_rows.potrs(x, b[:, 0], T_A, mesh, ROWS, pad=pad)
    matrices.check_solution(a, alone, b[:, :1])
    assert np.array_equal(jaxmg.potri(x, T_A, mesh, ROWS, pad=pad), y)
    assert np.array_equal(jaxmg.syevd(g, T_A, mesh, ROWS, pad=pad)[1], v)


def test_triangles():
    """Of a matrix split by columns the lower triangle is read, of one split by rows the upper."""
    n, ndev = 12, 2
    mesh, a, b = meshes.make((ndev,)), matrices.definite(n), meshes.random((n, 1), seed=1)
    low, high = (np.where(np.tri(n, dtype=bool), m, np.nan) for m in (a, a.T))
    want = np.linalg.solve(a, b)
    got = jaxmg.potrs(on(low, ndev), b, 2, mesh, (COLUMNS, WHOLE))
    assert np.allclose(got, want)
    got = jaxmg_rows.potrs(on(high.T, ndev, ROWS), b, 2, mesh, (ROWS, WHOLE))
    assert np.allclose(got, want)


@pytest.mark.parametrize("dtype", matrices.DTYPES)
def test_vectors_that_are_not_real(dtype):
    """[[2, i], [-i, 2]], where conj(V) would be wrong."""
    i = 1j if np.dtype(dtype).kind == "c" else 1
    two = np.array([[2, i], [np.conj(i), 2]])
    a = np.kron(np.diag(np.arange(1.0, 5)), two).astype(dtype)
    mesh = meshes.make((2,))
    for w, v in (
        jaxmg.syevd(on(a, 2), 2, mesh, COLUMNS),
        jaxmg_rows.syevd(on(a, 2, ROWS), 2, mesh, ROWS),
    ):
        check_vectors(a, w, v)
        assert np.allclose(w, np.linalg.eigvalsh(a), atol=1e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_on_part_of_a_mesh(kind):
    """README 5: all columns on every host; and over both axes, where nothing is gathered."""
    mesh = meshes.make((2, 4), kind)
    a, b = matrices.definite(64), meshes.random((64, 2), seed=1)
    for names in ("b", ("a", "b"), ("b", "a")):
        x, spec = meshes.put(a, mesh, P(None, names)), P(None, names)
        T_A = 4 if names == "b" else 1
        f = jax.jit(functools.partial(jaxmg.potrs, T_A=T_A, mesh=mesh, in_specs=(spec, WHOLE)))
        matrices.check_solution(a, f(x, meshes.put(b, mesh)), b)


def test_gradient():
    mesh, n = meshes.make((4,)), 16
    a, b = matrices.definite(n), meshes.random((n, 2), seed=1)

    def loss(x, y):
        s = jaxmg.potrs(x, y, 1, mesh, (COLUMNS, WHOLE))
        w = jaxmg.syevd(x, 1, mesh, COLUMNS, return_eigenvectors=False)
        return jnp.sum(s**2) + jnp.sum(jaxmg.potri(x, 1, mesh, COLUMNS) ** 2) + jnp.sum(w**3)

    def reference(a, b):
        a = (a + a.T) / 2
        w = jnp.linalg.eigvalsh(a)
        return (
            jnp.sum(jnp.linalg.solve(a, b) ** 2) + jnp.sum(jnp.linalg.inv(a) ** 2) + jnp.sum(w**3)
        )

    got = jax.jit(jax.grad(loss, (0, 1)))(on(a, 4), on(b, 4, WHOLE))
    for g, w in zip(got, jax.jit(jax.grad(reference, (0, 1)))(a, b), strict=True):
        assert np.allclose(g, w, rtol=1e-9, atol=1e-9 * np.abs(w).max())


# ---- inside shard_map ----------------------------------------------------------------------------


def mapped(function, mesh, in_specs, out_specs, check=False, **given):
    f = functools.partial(function, **given)
    return jax.jit(
        jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check)
    )


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("ndev, n, T_A, dtype", FEW)
@pytest.mark.parametrize("cyclic", [False, True])
def test_no_shardmap(cyclic, ndev, n, T_A, dtype):
    mesh = meshes.make((ndev,))
    a, h, b = (
        matrices.definite(n, dtype),
        indefinite(n, dtype),
        meshes.random((n, 2), dtype, 1),
    )
    x, g = on(a, ndev), on(h, ndev)
    plain = x.shape
    if cyclic:
        x, g = (jaxmg.cyclic_1d_layout(m, T_A) for m in (x, g))
    given = {"T_A": T_A, "cyclic_1d": cyclic, "axis_name": "a"}
    solve = mapped(jaxmg.potrs_no_shardmap, mesh, (COLUMNS, P()), (P(), P()), True, **given)
    s, status = solve(x, b)
    matrices.check_solution(a, s, b)
    assert np.array_equal(status, np.zeros(1, np.int32)) and status.dtype == jnp.int32
    y, status = mapped(jaxmg.potri_no_shardmap, mesh, (COLUMNS,), (COLUMNS, P()), **given)(x)
    w, v, status2 = mapped(
        jaxmg.syevd_no_shardmap, mesh, (COLUMNS,), (P(), COLUMNS, P()), True, **given
    )(g)
    assert y.shape == v.shape == x.shape and status.shape == status2.shape == (1,)
    assert not status.any() and not status2.any()
    if cyclic and x.shape != plain or (cyclic and T_A < n // ndev):
        y, v = (jaxmg.undo_cyclic_1d_layout(m, T_A) for m in (y, v))
    check_inverse(a, y)
    check_vectors(h, w, v)
    values = functools.partial(jaxmg.syevd_no_shardmap, return_eigenvectors=False)
    w2, _ = mapped(values, mesh, (COLUMNS,), (P(), P()), **given)(g)
    assert np.abs(w2 - w).max() <= matrices.limit(n, dtype) * matrices.norm(h)


@pytest.mark.parametrize("ndev, n, T_A, dtype", FEW[1:3])
def test_shardmap_ctx(ndev, n, T_A, dtype):
    mesh = meshes.make((ndev,))
    a, h, b = (
        matrices.definite(n, dtype),
        indefinite(n, dtype),
        meshes.random((n, 2), dtype, 1),
    )
    x, g = on(a, ndev, ROWS), on(h, ndev, ROWS)
    s, status = mapped(jaxmg.potrs_shardmap_ctx, mesh, (ROWS, P()), (P(), P()), T_A=T_A)(x, b)
    matrices.check_solution(a, s, b)
    y, status2 = mapped(jaxmg.potri_shardmap_ctx, mesh, (ROWS,), (ROWS, P()), T_A=T_A)(x)
    check_inverse(a, y)
    assert np.array_equal(jaxmg.potri_symmetrize(y), y)
    w, v, status3 = mapped(jaxmg.syevd_shardmap_ctx, mesh, (ROWS,), (P(), COLUMNS, P()), T_A=T_A)(g)
    check_vectors(h, w, v)
    assert [s.tolist() for s in (status, status2, status3)] == [[0]] * 3


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("spec", [P("a", None), P(None, "a"), P()])
def test_potri_symmetrize(kind, spec):
    a = matrices.definite(6, "complex128")
    x = meshes.put(np.triu(a), meshes.make((3,), kind), spec)
    y = jaxmg.potri_symmetrize(x)
    assert np.array_equal(y, a) and y.sharding.is_equivalent_to(x.sharding, 2)


def test_shardmap_ctx_of_rows_with_padding():
    n, ndev, T_A = 100, 4, 4
    mesh, a, b = meshes.make((ndev,)), matrices.definite(n), meshes.random((n, 2), seed=1)
    padding = jaxmg.calculate_padding(n // ndev, T_A)
    wide = np.concatenate([np.pad(part, ((0, padding), (0, 0))) for part in np.split(a, ndev)])
    x, given = on(wide, ndev, ROWS), {"T_A": T_A, "pad": False}
    s, _ = mapped(jaxmg.potrs_shardmap_ctx, mesh, (ROWS, P()), (P(), P()), **given)(x, b)
    matrices.check_solution(a, s, b)
    y, _ = mapped(jaxmg.potri_shardmap_ctx, mesh, (ROWS,), (ROWS, P()), **given)(x)
    w, v, _ = mapped(jaxmg.syevd_shardmap_ctx, mesh, (ROWS,), (P(), COLUMNS, P()), **given)(x)
    assert y.shape == v.shape[::-1] == wide.shape
    bare = np.concatenate([part[: n // ndev] for part in np.split(np.asarray(y), ndev)])
    check_inverse(a, bare)
    check_vectors(a, w, np.concatenate([p[:, :25] for p in np.split(np.asarray(v), ndev, 1)], 1))
    with pytest.raises(AssertionError, match="we need padding of 3 rows per device"):
        mapped(jaxmg.potri_shardmap_ctx, mesh, (ROWS,), (ROWS, P()), **given)(on(a, ndev, ROWS))


def test_along_one_axis_of_a_mesh():
    """Two systems at once, each on four devices; rows over the axis that their number implies."""
    mesh = meshes.make((2, 4))
    a = np.stack([matrices.definite(16, seed=i) for i in range(2)])
    b = meshes.random((2, 16, 1), seed=1)

    def columns(a, b):
        return jaxmg.potrs_no_shardmap(a[0], b[0], 1, axis_name="b")[0][None]

    def rows(a, b):
        return jaxmg.potrs_shardmap_ctx(a[0], b[0], 2)[0][None]

    for f, spec in ((columns, P("a", None, "b")), (rows, P("a", "b", None))):
        solve = mapped(f, mesh, (spec, P("a")), P("a"))
        assert np.allclose(solve(meshes.put(a, mesh, spec), b), np.linalg.solve(a, b))
    both = P(("a", "b"), None)
    solve = mapped(jaxmg.potrs_shardmap_ctx, mesh, (both, P()), (P(), P()), T_A=1)
    assert np.allclose(solve(meshes.put(a[0], mesh, both), b[0])[0], np.linalg.solve(a[0], b[0]))
    square = meshes.make((2, 2))
    with pytest.raises(ValueError, match="several axes of the mesh.*give axis_name="):
        mapped(jaxmg.potrs_shardmap_ctx, square, (ROWS, P()), (P(), P()), T_A=1)(a[0], b[0])


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dtype, check", [("float64", True), ("complex128", False)])
def test_derivatives_inside(dtype, check):
    mesh, n = meshes.make((4,)), 16
    a, b = matrices.definite(n, dtype), meshes.random((n, 2), dtype, 1)
    da, db = meshes.random((n, n), dtype, 2), meshes.random((n, 2), dtype, 3)
    weights = meshes.random((n, n), seed=4)

    def local(x, y):
        s, _ = jaxmg.potrs_no_shardmap(x, y, 1, axis_name="a")
        z, _ = jaxmg.potri_no_shardmap(x, 1, axis_name="a")
        w, v, _ = jaxmg.syevd_no_shardmap(x, 1, axis_name="a")
        return s, z, w, v

    def loss(parts):
        *rest, v = parts  # of the vectors only the part independent of phases
        weighted = jnp.sum(jnp.abs(v) ** 2 * weights)
        return weighted + sum(jnp.sum(jnp.abs(x) ** 2) for x in rest)

    def reference(a, b):
        a = (a + a.conj().T) / 2
        return loss((jnp.linalg.solve(a, b), jnp.linalg.inv(a), *jnp.linalg.eigh(a)))

    out = (P(), COLUMNS, P(), COLUMNS)
    f = jax.shard_map(local, mesh=mesh, in_specs=(COLUMNS, P()), out_specs=out, check_vma=check)

    def ours(x, y):
        return loss(f(x, y))

    def all_of(of):
        def slope(a, b):
            ga, gb = jax.grad(of, (0, 1))(a, b)
            return jnp.sum(jnp.real(ga * da)) + jnp.sum(jnp.real(gb * db))

        def every(a, b):
            tangent = jax.jvp(of, (a, b), (jnp.asarray(da), jnp.asarray(db)))
            return *tangent, jax.grad(of, (0, 1))(a, b), jax.grad(slope, (0, 1))(a, b)

        return jax.jit(every)

    got, want = all_of(ours)(on(a, 4), on(b, 4, P())), all_of(reference)(a, b)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-8, atol=1e-8 * np.abs(w).max())


@pytest.mark.parametrize("check", [False, True])
def test_equal_eigenvalues_inside(check):
    """Equal eigenvalues have the weights that all devices together give them."""
    mesh, n = meshes.make((4,)), 16
    q, w = matrices.orthogonal(n), np.repeat([1.0, 3.0], 8)
    a = (q * w) @ q.T

    def of_weights(weights):
        def local(x):
            w, *_ = jaxmg.syevd_no_shardmap(x, 1, axis_name="a")
            return jnp.sum(w * jnp.asarray(weights)[lax.axis_index("a")])[None]

        f = jax.shard_map(local, mesh=mesh, in_specs=COLUMNS, out_specs=P("a"), check_vma=check)
        return jax.jit(jax.grad(lambda x: jnp.sum(f(x))))(on((a + a.T) / 2, 4))

    of_one = np.concatenate([np.eye(4)] * 4, axis=1)  # each device has two of either eigenvalue
    same = np.where(w == 1, 2.0, 5.0)
    assert np.allclose(of_weights(of_one * same), (q * same) @ q.T)
    assert np.isnan(of_weights(of_one * np.arange(n))).any()


def test_vmap_inside():
    mesh = meshes.make((4,))
    a, b = matrices.definite(8), meshes.random((3, 8, 1), seed=1)
    many = np.stack([matrices.definite(8, seed=i) for i in range(3)])
    solve = functools.partial(jaxmg.potrs_no_shardmap, T_A=2, axis_name="a")
    f = mapped(jax.vmap(solve, (None, 0)), mesh, (COLUMNS, P()), (P(), P()))
    assert np.allclose(f(on(a, 4), b)[0], np.linalg.solve(a, b))
    f = mapped(jax.vmap(solve), mesh, (P(None, None, "a"), P()), (P(), P()))
    assert np.allclose(f(on(many, 4, P(None, None, "a")), b)[0], np.linalg.solve(many, b))


# ---- failures ------------------------------------------------------------------------------------


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    "ndev, n, T_A, dtype",
    [
        (1, 8, 2, "float32"),
        (2, 12, 2, "complex64"),
        (4, 48, 3, "complex128"),
        (4, 48, 3, "float64"),
    ],
)
def test_not_definite(ndev, n, T_A, dtype):
    mesh, b = meshes.make((ndev,)), np.ones((n, 1), dtype)
    first = np.diag(np.arange(n) - 1.0).astype(dtype)
    last = np.diag(np.where(np.arange(n) == n - 1, -1.0, 1.0)).astype(dtype)
    skew = np.diag(np.arange(n) + 1.0).astype(dtype)
    skew[1, 0] = 2
    for a in (first, last, skew):
        x, status = jaxmg.potrs(on(a, ndev), b, T_A, mesh, (COLUMNS, WHOLE), return_status=True)
        y, status2 = jaxmg.potri(on(a, ndev), T_A, mesh, COLUMNS, return_status=True)
        z, status3 = jaxmg_rows.potri(on(a.T, ndev, ROWS), T_A, mesh, ROWS, return_status=True)
        s, status4 = mapped(
            jaxmg.potrs_no_shardmap, mesh, (COLUMNS, P()), (P(), P()), T_A=T_A, axis_name="a"
        )(on(a, ndev), b)
        assert [int(v) for v in (status, status2, status3, status4[0])] == [7] * 4
        assert status.dtype == status4.dtype == jnp.int32
        assert all(np.isnan(v).all() for v in (x, y, z, s))


def test_eigenvalues_of_nan():
    mesh, a = meshes.make((2,)), np.eye(12)
    a[5, 3] = np.nan
    w, v, status = jaxmg.syevd(on(a, 2), 2, mesh, COLUMNS, return_status=True)
    assert status.tolist() == [7, 7] and np.isnan(w).all() and np.isnan(v).all()


# ---- rules and texts -----------------------------------------------------------------------------


def test_refusals_of_potrs():
    mesh = meshes.make((1,))
    a, b = jnp.eye(4), jnp.ones((4, 1))
    call = functools.partial(jaxmg.potrs, T_A=1, mesh=mesh, in_specs=(COLUMNS, WHOLE))
    with pytest.raises(AssertionError, match="A and b must have the same number of rows"):
        call(a, jnp.ones((5, 1)))
    with pytest.raises(AssertionError, match="a must be a 2D array"):
        call(jnp.ones(4), b, in_specs=(P("a"), WHOLE))
    with pytest.raises(AssertionError, match="b must be a 2D array"):
        call(a, jnp.ones(4), in_specs=(COLUMNS, P(None)))
    with pytest.raises(AssertionError, match="expected two `in_specs`"):
        call(a, b, in_specs=(ROWS,))
    with pytest.raises(AssertionError, match="expected `in_specs` to be a tuple or list"):
        call(a, b, in_specs=COLUMNS)
    for spec in (ROWS, P("a"), P(None, None), P()):
        with pytest.raises(ValueError, match="^A must be sharded along the columns"):
            call(a, b, in_specs=(spec, WHOLE))
    with pytest.raises(ValueError, match="b must be replicated along all shards"):
        call(a, b, in_specs=(COLUMNS, ROWS))
    with pytest.raises(TypeError, match="one dtype"):
        call(a, b.astype("float32"))


def test_refusals_of_potri_and_syevd():
    mesh, a = meshes.make((1,)), jnp.eye(4)
    for call in (jaxmg.potri, jaxmg.syevd):
        with pytest.raises(AssertionError, match="a must be a 2D array"):
            call(jnp.ones(4), 1, mesh, (P("a"),))
        with pytest.raises(AssertionError, match="expected only one `in_specs`"):
            call(a, 1, mesh, (COLUMNS, COLUMNS))
        for spec in (ROWS, P("a", "a"), WHOLE):
            with pytest.raises(ValueError, match="must be sharded along the columns"):
                call(a, 1, mesh, (spec,))
    with pytest.raises(ValueError, match="T_A has a maximum value of 1024 .* received T_A=2048"):
        jaxmg.syevd(a, 2048, mesh, COLUMNS)
    with pytest.warns(jaxmg_rows.utils.JaxMgWarning, match="2048, T_A is lowered to 1024"):
        assert np.allclose(jaxmg_rows.syevd(a, 2048, mesh, ROWS)[0], 1)
    with pytest.raises(ValueError, match="T_A is 0; expected 1 or more"):
        jaxmg.potri(a, 0, mesh, COLUMNS)
    for call, spec in ((jaxmg.potri, COLUMNS), (jaxmg_rows.potri, ROWS), (jaxmg.cyclic_1d, ROWS)):
        with pytest.raises(TypeError, match="mesh is NoneType; expected jax.sharding.Mesh"):
            call(a, 1, None, spec)
        with pytest.raises(ValueError, match="'a' of the spec is no axis of the mesh"):
            call(a, 1, jax.make_mesh((1,), ("q",)), spec)


def test_refusals_of_rows():
    mesh = meshes.make((2,))
    a, b = jnp.eye(12), jnp.ones((12, 1))
    call = functools.partial(jaxmg_rows.potrs, T_A=1, mesh=mesh, in_specs=(ROWS, WHOLE))
    with pytest.raises(ValueError, match="A must be sharded along the columns"):
        call(a, b, in_specs=(COLUMNS, WHOLE))
    with pytest.raises(AssertionError, match="the same number of columns"):
        call(a, jnp.ones((5, 1)))
    with pytest.raises(AssertionError, match="b must be a 2D array"):
        call(a, jnp.ones(12))
    with pytest.raises(AssertionError, match="b must be a 1D or 2D array"):
        call(a, jnp.ones((12, 1, 1)), in_specs=ROWS)
    with pytest.raises(ValueError, match="1-element list/tuple"):
        call(a, b, in_specs=(ROWS, WHOLE, WHOLE))
    for call in (jaxmg_rows.potri, jaxmg_rows.syevd):
        with pytest.raises(ValueError, match="sharded along the rows with PartitionSpec P"):
            call(a, 1, mesh, COLUMNS)
        with pytest.raises(ValueError, match="1-element list/tuple"):
            call(a, 1, mesh, (ROWS, ROWS))
        with pytest.raises(TypeError, match="in_specs must be a PartitionSpec"):
            call(a, 1, mesh, "a")
        with pytest.raises(AssertionError, match="we need padding of 4 rows per device.*20 rows"):
            call(a, 5, mesh, ROWS, pad=False)


def test_padded_rows_compile_once():
    mesh, a = meshes.make((2,)), matrices.definite(12)
    parts = [np.pad(part, ((0, 4), (0, 0))) for part in np.split(a, 2)]
    x = meshes.put(np.concatenate(parts), mesh, ROWS)
    compiles = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiles.append(event) if "compile" in event else None
    )
    for _ in range(2):
        compiles.clear()
        jaxmg_rows.potri(x, 5, mesh, ROWS, pad=False)
        jaxmg_rows.cyclic_1d(x, 5, mesh, ROWS, pad=False)
    jax.monitoring.clear_event_listeners()
    assert compiles == []


def test_tilings_that_are_refused():
    mesh, a = meshes.make((4,)), matrices.definite(100)
    for call in (
        lambda: jaxmg.potrs(on(a, 4), a[:, :1], 5, mesh, (COLUMNS, WHOLE)),
        lambda: jaxmg.potri(on(a, 4), 5, mesh, COLUMNS),
        lambda: jaxmg.syevd(on(a, 4), 5, mesh, COLUMNS),
        lambda: mapped(
            jaxmg.potri_no_shardmap, mesh, (COLUMNS,), (COLUMNS, P()), T_A=5, axis_name="a"
        )(a),
    ):
        with pytest.raises(ValueError, match="^Attempting 1d cylic relayout with:\n\t- N = 100"):
            call()
    with pytest.raises(ValueError, match="a is 100 x 100; expected 100 x 112, for 4 devices"):
        jaxmg.potri(on(a, 4), 4, mesh, COLUMNS, cyclic_1d=True)


# ---- the README ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ndev", [1, 2])
def test_readme_solve(ndev):
    n, T_A, dtype = 12, 2, jnp.float64
    a = jnp.diag(jnp.arange(n, dtype=dtype) + 1)
    b = jnp.ones((n, 1), dtype=dtype)
    mesh = jax.make_mesh((ndev,), ("x",), devices=jax.devices()[:ndev])
    a = jax.device_put(a, NamedSharding(mesh, P(None, "x")))
    b = jax.device_put(b, NamedSharding(mesh, P(None, None)))
    out = jaxmg.potrs(a, b, T_A=T_A, mesh=mesh, in_specs=(P(None, "x"), P(None, None)))
    assert jnp.allclose(out.flatten(), 1.0 / (jnp.arange(n, dtype=dtype) + 1))


@pytest.mark.parametrize("ndev", [1, 2])
def test_readme_inside_shard_map(ndev, capfd):
    n, T_A, dtype = 8, 2, jnp.complex64
    a = jnp.diag(jnp.arange(n, dtype=dtype) + 1)
    b = jnp.ones((n, 1), dtype=dtype)
    mesh = jax.make_mesh((ndev,), ("x",), devices=jax.devices()[:ndev])
    a = jax.device_put(a, NamedSharding(mesh, P(None, "x")))
    b = jax.device_put(b, NamedSharding(mesh, P(None, None)))

    @functools.partial(jax.jit, static_argnames=("_T_A",))
    def shift_and_solve(_a, _b, _ds, _T_A):
        idx = jnp.arange(_a.shape[0])
        shard_size = _a.shape[1]
        _a = _a.at[idx + shard_size * jax.lax.axis_index("x"), idx].add(_ds)
        jax.debug.print("dev{}:_a=\n{}\n", jax.lax.axis_index("x"), _a)
        return jaxmg.potrs_no_shardmap(_a, _b, _T_A)

    @functools.partial(jax.jit, static_argnames=("_T_A",))
    def jitted_potrs(_a, _b, _ds, _T_A):
        return jax.shard_map(
            functools.partial(shift_and_solve, _T_A=_T_A),
            mesh=mesh,
            in_specs=(P(None, "x"), P(None, None), P()),
            out_specs=(P(None, None), P(None)),
            check_vma=False,
        )(_a, _b, _ds)

    with jax.numpy_dtype_promotion("standard"):
        out, status = jitted_potrs(a, b, 0.1, T_A)
    assert f"Status: {status}" == "Status: [0]"
    want = 1.0 / (np.arange(n) + 1 + 0.1)
    assert np.allclose(out.flatten(), want)
    jax.effects_barrier()
    printed = capfd.readouterr().out
    assert all(f"dev{rank}:_a=\n[[" in printed for rank in range(ndev)) and "1.1+0.j" in printed


def test_readme_processes_in_one():
    """Two hosts of four devices, here one process with eight."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    n = jax.device_count()
    a = jax.device_put(
        jnp.diag(jnp.arange(1, n + 1, dtype=jnp.float32)),
        NamedSharding(mesh, P(None, ("x", "y"))),
    )
    b = jnp.ones((n, 1), dtype=jnp.float32)
    gathered = jax.lax.with_sharding_constraint(a, NamedSharding(mesh, P(None, "y")))
    assert {shard.data.shape for shard in gathered.addressable_shards} == {(8, 2)}
    for x, names in ((gathered, "y"), (a, ("x", "y"))):
        out = jaxmg.potrs(x, b, T_A=256, mesh=mesh, in_specs=(P(None, names), P(None, None)))
        assert np.allclose(out[:, 0], 1 / np.arange(1.0, n + 1))


def test_readme_processes():
    """Two processes of one device each, with and without gathering."""
    platforms.need(2)
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    command = [sys.executable, "-m", "plait", "run", "-n", "2", "--timeout", "120", RANKS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("True") == 4, done.stdout


@pytest.mark.parametrize("release", [jaxmg, jaxmg_rows])
def test_utils_are_imported_from_either(release):
    utils = importlib.import_module(release.__name__ + ".utils")
    assert utils.random_psd is release.utils.random_psd is jaxmg.utils.random_psd
