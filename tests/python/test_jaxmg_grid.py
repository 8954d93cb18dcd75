"""plait.compat.jaxmg_grid: functions of JAXMg 1.0 to 1.4, on grids of devices, with its texts."""

import functools

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plait.compat import jaxmg, jaxmg_grid

GRIDS = [
    ((4, 1), P("a", "b"), AxisType.Explicit, "float64"),
    ((2, 4), P("a", "b"), AxisType.Auto, "complex64"),
    ((2, 2), P("b", "a"), AxisType.Explicit, "complex128"),
    ((8,), P("a"), AxisType.Auto, "float32"),
    ((2,), P(None, "a"), AxisType.Explicit, "float64"),
]
EVERY = pytest.mark.parametrize("shape, spec, kind, dtype", GRIDS)
SOME = pytest.mark.parametrize("shape, spec, kind, dtype", GRIDS[1:3])
APART = pytest.mark.parametrize("shape, spec, kind, dtype", GRIDS[::2])
T_A, M, N = 3, 32, 16


def rows_of(spec):
    return P(spec[0])


def is_good(status, mesh):
    return status.dtype == jnp.int32 and np.array_equal(status, np.zeros(mesh.size))


def near(got, want, dtype, factor=1.0):
    error = matrices.norm(np.asarray(got) - want)
    return error <= factor * matrices.limit(M, dtype) * max(matrices.norm(want), 1)


@pytest.mark.long(keep=2)
@EVERY
def test_solvers(shape, spec, kind, dtype):
    mesh = meshes.make(shape, kind)
    a, g = matrices.definite(N, dtype), meshes.random((N, N), dtype, 1)
    b = meshes.random((N, 2), dtype, 2)
    x, y, z = meshes.put(a, mesh, spec), meshes.put(g, mesh, spec), meshes.put(b, mesh)
    s, logdet, status = jaxmg_grid.potrs(x, z, T_A, return_logdet=True, return_status=True)
    matrices.check_solution(a, s, b)
    assert s.sharding.is_fully_replicated and is_good(status, mesh)
    assert abs(float(logdet) - oracle.slogdet(a)[1]) <= 10 * matrices.limit(N, dtype)
    by_rows = jaxmg_grid.potrs(x, meshes.put(b[:, 0], mesh, rows_of(spec)), T_A)
    matrices.check_solution(a, by_rows, b[:, 0])
    assert by_rows.sharding.spec == rows_of(spec)
    s, status = jaxmg_grid.lu_solve(y, jnp.asarray(b), T_A, return_status=True)
    matrices.check_solution(g, s, b)
    assert s.sharding.spec[0] == spec[0] and is_good(status, mesh)
    w, v, status = jaxmg_grid.syevd(x, T_A, return_status=True)
    matrices.check_orthonormal(v)
    matrices.check_product((np.asarray(v) * np.asarray(w), np.asarray(v).conj().T), a, N)
    assert v.sharding.is_equivalent_to(x.sharding, 2) and is_good(status, mesh)
    values, status = jaxmg_grid.syevd(x, T_A, return_eigenvectors=False, return_status=True)
    assert np.allclose(values, w, rtol=100 * meshes.eps(dtype)) and is_good(status, mesh)
    assert np.array_equal(x, a)  # the operand is as it was


@pytest.mark.long(keep=1)
@APART
def test_decompositions(shape, spec, kind, dtype):
    mesh = meshes.make(shape, kind)
    a, b = meshes.random((M, N), dtype), meshes.random((M,), dtype, 1)
    x, y = meshes.put(a, mesh, spec), meshes.put(b, mesh, rows_of(spec))
    s, status = jaxmg_grid.least_squares(x, y, T_A, return_status=True)
    assert near(s, oracle.lstsq(a, b), dtype, np.linalg.cond(a))
    assert s.shape == (N,) and is_good(status, mesh)
    q, r, status = jaxmg_grid.qr(x, T_A, return_status=True)
    assert q.shape == (M, N) and r.shape == (N, N) and np.array_equal(r, np.triu(r))
    matrices.check_orthonormal(q)
    matrices.check_product((q, r), a, M)
    assert q.sharding.is_equivalent_to(x.sharding, 2) and is_good(status, mesh)
    up, h, status = jaxmg_grid.polar(x, T_A, return_status=True)
    matrices.check_orthonormal(up)
    matrices.check_product((up, h), a, M)
    assert is_good(status, mesh)
    alone = jaxmg_grid.polar(x, T_A, compute_h=False)
    assert np.array_equal(alone, up)
    u, s, vh, status = jaxmg_grid.gesvd(x, T_A, return_status=True)
    matrices.check_product((np.asarray(u) * np.asarray(s), vh), a, M)
    assert near(s, oracle.svd(a), dtype) and is_good(status, mesh)
    full, _, full_h = jaxmg_grid.gesvd(x, T_A, full_matrices=True)
    assert full.shape == (M, M) and full_h.shape == (N, N)
    matrices.check_orthonormal(full)
    matrices.check_product((np.asarray(full)[:, :N] * np.asarray(s), full_h), a, M)
    assert [v.shape for v in jaxmg_grid.gesvd(x, T_A, compute_u=False)] == [(N,), (N, N)]
    assert [v.shape for v in jaxmg_grid.gesvd(x, T_A, compute_vh=False)] == [(M, N), (N,)]
    values = jaxmg_grid.gesvd(x, T_A, compute_u=False, compute_vh=False)
    assert near(values, oracle.svd(a), dtype)


@pytest.mark.parametrize("shape, spec, kind, dtype", GRIDS[2:3])
def test_in_programs(shape, spec, kind, dtype):
    """Functions for an outer jax.jit return operands, too, so that it may donate them."""
    mesh = meshes.make(shape, kind)
    a, t = matrices.definite(N, dtype), meshes.random((M, N), dtype, 1)
    b, c = meshes.random((N, 2), dtype, 2), meshes.random((M, 2), dtype, 3)
    given = {"T_A": T_A, "mesh": mesh, "matrix_specs": spec}

    @functools.partial(jax.jit, donate_argnums=0)
    def square(a, b):
        return (
            jaxmg_grid.potrs_shardmap_ctx(a, b, return_logdet=True, **given),
            jaxmg_grid.lu_solve_shardmap_ctx(a, b, **given),
            jaxmg_grid.syevd_shardmap_ctx(a, **given),
            jaxmg_grid.syevd_shardmap_ctx(a, return_eigenvectors=False, **given),
        )

    def tall(a, b):
        return (
            jaxmg_grid.least_squares_shardmap_ctx(a, b, **given),
            jaxmg_grid.qr_shardmap_ctx(a, **given),
            jaxmg_grid.gesvd_shardmap_ctx(a, **given),
            jaxmg_grid.polar_shardmap_ctx(a, compute_h=False, **given),
        )

    of_square = square(meshes.put(a, mesh, spec), meshes.put(b, mesh, rows_of(spec)))
    (work, x, logdet, status), lu, (_, w, v, _), (_, values, _) = of_square
    assert np.array_equal(work, a) and is_good(status, mesh)
    matrices.check_solution(a, x, b)
    matrices.check_solution(a, lu[1], b)
    assert abs(float(logdet) - oracle.slogdet(a)[1]) <= 10 * matrices.limit(N, dtype)
    matrices.check_product((np.asarray(v) * np.asarray(w), np.asarray(v).conj().T), a, N)
    assert np.allclose(values, w, rtol=100 * meshes.eps(dtype))
    of_tall = jax.jit(tall)(meshes.put(t, mesh, spec), meshes.put(c, mesh, rows_of(spec)))
    (_, begun, x, status), (q, r, _), (_, u, s, vh, _), (up, _) = of_tall
    assert near(x, oracle.lstsq(t, c), dtype, np.linalg.cond(t)) and is_good(status, mesh)
    assert begun.shape == c.shape and np.array_equal(np.asarray(begun)[:N], x)
    matrices.check_product((q, r), t, M)
    matrices.check_product((np.asarray(u) * np.asarray(s), vh), t, M)
    matrices.check_orthonormal(up)


@SOME
def test_derivatives_and_batches(shape, spec, kind, dtype):
    mesh = meshes.make(shape, kind)
    dtype = np.result_type(dtype, "float64")
    a, b = matrices.definite(8, dtype), meshes.random((8,), dtype, 1)

    def ours(a, b):
        x, logdet = jaxmg_grid.potrs(a, b, 2, mesh, spec, return_logdet=True)
        return logdet + jnp.sum(jnp.abs(x) ** 2)

    def theirs(a, b):
        return jnp.linalg.slogdet(a)[1] + jnp.sum(jnp.abs(jnp.linalg.solve(a, b)) ** 2)

    def slopes(f, a, b):
        da, db = jax.grad(f, (0, 1))(a, b)
        return (da + jnp.conj(da.T)) / 2, db

    x, y = meshes.put(a, mesh, spec), meshes.put(b, mesh)
    da, db = jax.jit(jax.grad(ours, (0, 1)))(x, y)
    da = (np.asarray(da) + np.asarray(da).conj().T) / 2
    for g, w in zip((da, db), slopes(theirs, a, b), strict=True):
        assert np.allclose(g, w, rtol=1e-9, atol=1e-9 * np.abs(w).max())
    many = np.stack([b, 2 * b, -b])
    solve = jax.vmap(lambda b: jaxmg_grid.lu_solve(x, b, 2))
    for i, z in enumerate(np.asarray(jax.jit(solve)(meshes.put(many, mesh)))):
        matrices.check_solution(a, z, many[i])


def test_failures():
    shape, spec, kind, _ = GRIDS[0]
    mesh = meshes.make(shape, kind)

    def on(a):
        return meshes.put(a, mesh, spec)

    def bad(m):
        a = meshes.random((m, N))
        a[3, 5] = a[5, 3] = np.nan
        return on(a)

    negative, singular = np.eye(N), np.eye(N)
    negative[6, 6], singular[4, 4] = -1, 0
    b = jnp.ones(N)
    x, logdet, status = jaxmg_grid.potrs(
        on(negative), b, T_A, return_logdet=True, return_status=True
    )
    assert np.isnan(x).all() and np.isnan(logdet) and status.tolist() == [7] * 4
    x, status = jaxmg_grid.lu_solve(on(singular), b, T_A, return_status=True)
    assert np.isnan(x).all() and status.tolist() == [5] * 4
    x, status = jaxmg_grid.least_squares(bad(M), jnp.ones(M), T_A, return_status=True)
    assert np.isnan(x).all() and status.tolist() == [1] * 4
    calls = (jaxmg_grid.qr, jaxmg_grid.syevd, jaxmg_grid.gesvd, jaxmg_grid.polar)
    for call, m in zip(calls, (M, N, M, M), strict=True):
        *found, status = call(bad(m), T_A, return_status=True)
        assert np.isnan(found[0]).all() and status.tolist() == [1] * 4, call


def test_where_a_matrix_is():
    mesh, spec = meshes.make((2, 2)), P("a", "b")
    a, b = matrices.definite(N), np.ones(N)
    x = meshes.put(a, mesh, spec)
    want = jaxmg_grid.syevd(x, T_A)[1]
    for given in ({"in_specs": (spec,)}, {"matrix_specs": [spec], "mesh": mesh}, {"mesh": mesh}):
        v = jaxmg_grid.syevd(x, T_A, **given)[1]
        assert v.sharding.is_equivalent_to(want.sharding, 2) and np.array_equal(v, want)
    moved = jaxmg_grid.syevd(x, T_A, matrix_specs=P(None, "a"))[1]
    assert moved.sharding.spec == P(None, "a") and np.array_equal(moved, want)
    whole = jaxmg_grid.syevd(meshes.put(a, mesh), T_A)[1]
    assert whole.sharding.is_fully_replicated
    for kind in (AxisType.Auto, AxisType.Explicit):
        own = meshes.make((2, 2), kind)
        v = jaxmg_grid.syevd(a, T_A, own)[1]  # NumPy's
        assert v.sharding.is_equivalent_to(want.sharding, 2) and np.array_equal(v, want)
        with jax.set_mesh(own):
            s, v = jaxmg_grid.potrs(jnp.asarray(a), b, T_A), jaxmg_grid.syevd(a, T_A)[1]
            in_jit = jax.jit(lambda a: jaxmg_grid.syevd(a, T_A)[1])(meshes.put(a, own, spec))
        matrices.check_solution(a, s, b)
        assert np.array_equal(v, want) and np.array_equal(in_jit, want)
        # The context may have another mesh.
        with jax.set_mesh(meshes.make((4,), kind)):
            y = meshes.put(a, own, spec)
            s, status = jaxmg_grid.potrs(y, meshes.put(b, own), T_A, return_status=True)
            assert np.array_equal(jaxmg_grid.syevd(y, T_A, own)[1], want)
        matrices.check_solution(a, s, b)
        assert status.tolist() == [0] * 4


def refused():
    """A mesh of 2 x 2, a square matrix, a wide matrix, a right-hand side, and all functions."""
    mesh = meshes.make((2, 2))
    others = ("__version__", "device_supports_vmm", "utils")
    names = [name for name in jaxmg_grid.__all__ if name not in others]
    every = {name: getattr(jaxmg_grid, name) for name in names}
    assert len(every) == 14
    return mesh, *(meshes.put(np.ones(n), mesh) for n in ((4, 4), (4, 6), (4,))), every


HAS_RHS = ("potrs", "lu_solve", "least")


def test_refused_places():
    mesh, a, _, b, every = refused()
    spec = P("a", "b")
    for name, call in every.items():
        rest = (b,) if name.startswith(HAS_RHS) else ()
        with pytest.raises(ValueError, match=r"requires tile-aligned local shards when pad=False"):
            call(a, *rest, 3, mesh, spec, pad=False)
        with pytest.raises(ValueError, match="Specify only one of matrix_specs"):
            call(a, *rest, 1, mesh, spec, in_specs=spec)
        with pytest.raises(TypeError, match="must be a PartitionSpec or a one-element"):
            call(a, *rest, 1, mesh, "a")
        with pytest.raises(ValueError, match="must be a PartitionSpec or a one-element"):
            call(a, *rest, 1, mesh, (spec, spec))
        with pytest.raises(ValueError, match="at least one matrix axis to be sharded"):
            call(a, *rest, 1, mesh, P())
        with pytest.raises(ValueError, match="must describe a rank-2 sharding"):
            call(a, *rest, 1, mesh, P("a", "b", None))
        with pytest.raises(ValueError, match="could not find a mesh for A"):
            call(np.ones((4, 4)), *(np.ones(4) for _ in rest), 1)
    three = meshes.make((2, 2, 2))
    with pytest.raises(ValueError, match="could not infer the matrix sharding of A"):
        jaxmg_grid.qr(meshes.put(np.ones((4, 4)), three), 1)
    uneven = meshes.put(np.ones((5, 5)), mesh)
    with pytest.raises(ValueError, match=r"qr\(A\) shape \(5, 5\) must be divisible by process"):
        jaxmg_grid.qr(uneven, 1)
    with pytest.raises(ValueError, match="mesh does not contain axis 'q'"):
        jaxmg_grid.qr(np.eye(4), 1, mesh, P("q", "b"))
    with pytest.raises(ValueError, match="matrix row and column axes must be distinct"):
        jaxmg_grid.qr(np.eye(4), 1, mesh, P("b", ("a", "b")))


def test_refused_matrices():
    mesh, a, wide, b, every = refused()
    for name, call in every.items():
        rest = (b,) if name.startswith(HAS_RHS) else ()
        with pytest.raises(ValueError, match="expects a rank-2 matrix A"):
            call(b, *rest, 1)
        with pytest.raises(TypeError, match="supports float32, float64, complex64, and complex128"):
            call(a.astype(jnp.int32), *rest, 1)
        with pytest.raises(ValueError, match="T_A must be positive"):
            call(a, *rest, 0)
        if name.startswith(("potrs", "lu_solve", "syevd")):
            with pytest.raises(ValueError, match="expects A to be square"):
                call(wide, *rest, 1)
        if name.startswith(("qr", "polar")):
            with pytest.raises(ValueError, match="requires a tall or square matrix with m >= n"):
                call(wide, 1)
        if rest:
            what = "solve input" if name.startswith("least_squares") else "RHS"
            with pytest.raises(ValueError, match=f"expects a rank-1 or rank-2 {what} B"):
                call(a, np.ones((4, 1, 1)), 1)
            with pytest.raises(TypeError, match="requires matching A/B dtypes"):
                call(a, b.astype(jnp.float32), 1)
            with pytest.raises(ValueError, match="must have matching leading dimensions"):
                call(a, np.ones(5), 1)
            with pytest.raises(ValueError, match="requires the RHS column count to be divisible"):
                call(a, b, 2, mesh, P("a", "b"), pad=False)
    with pytest.raises(ValueError, match="least_squares currently requires M >= N"):
        jaxmg_grid.least_squares(wide, b, 1)
    with pytest.raises(TypeError, match="return_eigenvectors must be a Python bool"):
        jaxmg_grid.syevd(a, 1, return_eigenvectors=1)
    with pytest.raises(TypeError, match="compute_u must be a Python bool"):
        jaxmg_grid.gesvd(a, 1, compute_u=None)
    with pytest.raises(TypeError, match="compute_h must be a Python bool"):
        jaxmg_grid.polar(a, 1, compute_h=1)


def test_virtual_memory_is_asked_of_the_driver(monkeypatch):
    def absent(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", absent)
    with pytest.raises(RuntimeError, match="libcuda.so.1.* is not available"):
        jaxmg_grid.device_supports_vmm()


def test_utils():
    assert jaxmg_grid.utils.random_psd is jaxmg.utils.random_psd
    assert issubclass(jaxmg_grid.utils.JaxMgWarning, UserWarning)


@pytest.mark.parametrize("own", [P("a", None), P()])
@pytest.mark.parametrize(
    "kind, way",
    [(AxisType.Auto, "eager"), (AxisType.Explicit, "eager"), (AxisType.Explicit, "jit")],
)
def test_mesh_that_is_given(kind, way, own):
    given = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("r", "c"), (kind,) * 2)
    other = meshes.make((4,), kind)
    a, b = matrices.definite(12, "float64"), meshes.random((12, 2), "float64", 1)

    def solve(a, b, spec):
        return jaxmg_grid.potrs(a, b, 3, mesh=given, matrix_specs=spec)

    solve = jax.jit(solve, static_argnums=2) if way == "jit" else solve
    x, y = meshes.put(a, other, own), meshes.put(b, other, own)
    for spec in (P("r", "c"), P("r", None), P(None, "c")):
        s = solve(x, y, spec)
        matrices.check_solution(a, s, b)
        assert s.sharding.mesh.shape == given.shape
