"""plait.linalg on processes of one device each, any number of them."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plait import _dense_args
from plait.compat import jaxmg_grid
from spread import put, whole

KINDS = [AxisType.Auto, AxisType.Explicit]


def make(kind):
    return meshes.make((jax.device_count(),), kind)


@pytest.fixture(params=KINDS)
def mesh(request):
    return make(request.param)


# The dtypes, alternating between both kinds of meshes.
EVERY_DTYPE = pytest.mark.parametrize(
    "dtype, kind", list(zip(matrices.DTYPES, [*KINDS, *KINDS[::-1]], strict=True))
)


@pytest.mark.long(keep=1)
@EVERY_DTYPE
def test_everything(dtype, kind):
    mesh = make(kind)
    n = 12 * jax.device_count()
    a, g = matrices.definite(n, dtype), meshes.random((n, n), dtype, 1)
    b = meshes.random((n, 5), dtype, 2)
    x, y, z = put(a, mesh, P("a")), put(g, mesh, P(None, "a")), put(b, mesh, P("a"))
    f = plait.linalg.cholesky(x, block=5)
    assert int(f.status.addressable_data(0)) == 0
    low = whole(f.l, mesh)
    matrices.check_product((low, low.conj().T), a, n)
    matrices.check_solution(a, whole(f.solve(z), mesh), b)
    cond = np.linalg.cond(g)
    assert np.allclose(whole(f.inv(), mesh) @ a, np.eye(n), atol=100 * matrices.limit(n, dtype))
    matrices.check_solution(g, whole(plait.linalg.lu_solve(y, z, block=3), mesh), b)
    log = float(plait.linalg.slogdet(y)[1].addressable_data(0))
    assert abs(log - np.linalg.slogdet(g)[1]) <= cond * matrices.limit(n, dtype)
    q, r = plait.linalg.qr(y, block=7)
    matrices.check_product((whole(q, mesh), whole(r, mesh)), g, n)
    w, v = plait.linalg.eigh(x, block=4)
    v = whole(v, mesh)
    w = np.asarray(w.addressable_data(0))
    matrices.check_product((v * w, v.conj().T), a, n)
    some, of_some = plait.linalg.eigh(x, subset=slice(n // 2, n - 1), block=4)
    of_some, size = whole(of_some, mesh), matrices.norm(a)
    matrices.check_orthonormal(of_some)
    assert np.abs(np.asarray(some.addressable_data(0)) - w[n // 2 : n - 1]).max() <= 1e-5 * size
    residual = a @ of_some - of_some * w[n // 2 : n - 1]
    assert matrices.norm(residual) <= matrices.limit(n, dtype) * size
    matrices.check_product((whole(plait.linalg.matmul(x, y), mesh),), a @ g, n)
    few = put(g[:, :1], mesh, P("a"))
    matrices.check_product((whole(plait.linalg.matmul(x, few), mesh),), a @ g[:, :1], n)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_eigenvalues_that_no_rank_has_whole(dtype):
    """The matrix is so large that it stays dealt out."""
    mesh = make(AxisType.Explicit)
    n = 264  # for 2, 3 and 4 ranks
    a = matrices.definite(n, dtype)
    w, v = plait.linalg.eigh(put(a, mesh, P("a")))
    v, w = whole(v, mesh), np.asarray(w.addressable_data(0))
    matrices.check_orthonormal(v)
    matrices.check_product((v * w, v.conj().T), a, n)
    assert np.abs(w - np.linalg.eigvalsh(a)).max() <= matrices.limit(n, dtype) * matrices.norm(a)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dtype", [np.complex128, np.float32])
def test_a_few_of_many_eigenvectors(dtype, request):
    """Through a band, which one rank reduces to tridiagonal form."""
    matrices.choose_two_stages(request)
    mesh = make(AxisType.Explicit)
    n = 276  # for 2, 3 and 4 ranks
    a = meshes.random((n, n), dtype, 0)
    a = a + a.conj().T
    x = put(a, mesh, P("a"))
    want, limit = np.linalg.eigvalsh(a), matrices.limit(n, dtype) * matrices.norm(a)
    values = np.asarray(plait.linalg.eigvalsh(x).addressable_data(0))
    assert np.abs(values - want).max() <= limit
    w, v = plait.linalg.eigh(x, subset=slice(-24, None))
    v, w = whole(v, mesh), np.asarray(w.addressable_data(0))
    matrices.check_orthonormal(v)
    assert np.abs(w - want[-24:]).max() <= limit
    assert matrices.norm(a @ v - v * w) <= limit


@pytest.mark.long(keep=1)
@EVERY_DTYPE
def test_tall_matrices(dtype, kind):
    """By rows, of which each rank has some."""
    mesh = make(kind)
    n_ranks = jax.device_count()
    m, n = 1000 * n_ranks, 7
    a, b = meshes.random((m, n), dtype), meshes.random((m,), dtype, 1)
    x, y = put(a, mesh, P("a")), put(b, mesh, P("a"))
    text = str(jax.make_jaxpr(lambda a: plait.linalg.qr(a, mesh=mesh, spec=P("a")))(x))
    assert ("plait_mesh_tsqr[" in text) == (n_ranks > 1)
    q, r = plait.linalg.qr(x)
    q, r = whole(q, mesh), whole(r, mesh)
    matrices.check_product((q, r), a, m)
    matrices.check_orthonormal(q)
    want = np.linalg.lstsq(a, b, rcond=None)[0]
    error = matrices.norm(whole(plait.linalg.lstsq(x, y), mesh) - want)
    assert error <= matrices.limit(m, dtype) * np.linalg.cond(a) * matrices.norm(want)

    def loss(x, y):
        z = plait.linalg.lstsq(x, y, mesh=mesh, spec=P("a"))
        return jnp.sum(jnp.real(z * jnp.conj(z)))

    slope = whole(jax.jit(jax.grad(loss, 1))(x, y), mesh)
    expected = 2 * np.linalg.pinv(a).T @ want.conj()
    assert matrices.norm(slope - expected) <= matrices.limit(m, dtype) * matrices.norm(expected)


@pytest.mark.long(keep=1)
def test_gradients(mesh):
    n = 8 * jax.device_count()
    a, b = matrices.definite(n), meshes.random((n,), seed=1)

    def loss(x, y):
        f = plait.linalg.cholesky(x, mesh=mesh, spec=P("a"), block=3)
        return f.logdet() + plait.sum(y * f.solve(y, spec=P("a")), mesh=mesh, spec=P("a"))

    x, y = put(a, mesh, P("a")), put(b, mesh, P("a"))
    ga, gy = jax.jit(jax.grad(loss, (0, 1)))(x, y)
    z = np.linalg.solve(a, b)
    assert np.allclose(whole(ga, mesh), np.linalg.inv(a) - np.outer(z, z))
    assert np.allclose(whole(gy, mesh), 2 * z)


def test_failure_is_the_same_everywhere(mesh):
    n = 6 * jax.device_count()
    a = np.eye(n)
    a[n - 2, n - 2] = -1
    f = plait.linalg.cholesky(put(a, mesh, P("a")), block=2)
    assert int(f.status.addressable_data(0)) == n - 1
    assert np.isnan(whole(f.solve(put(np.ones(n), mesh, P("a"))), mesh)).all()
    with pytest.raises(plait.LinAlgError, match=f"minor of order {n - 1}"):
        plait.linalg.cholesky(put(a, mesh, P("a")), block=2, check=True)


CHECKED = {
    "solve": lambda a, b, **given: plait.linalg.solve(a, b, assume="positive", **given),
    "eigh": lambda a, b, **given: plait.linalg.eigh(a * b[:, None], **given).eigenvectors,
    "eigh's gradient": lambda a, b, **given: jax.grad(
        lambda a: plait.linalg.eigh(a * b[:, None], **given).eigenvalues.sum()
    )(a),
}


@pytest.mark.parametrize("name", CHECKED)
def test_a_program_that_fails_leaves_no_operation_behind(name):
    """Operations that do not need the checked result: no rank may have begun them alone."""
    mesh, n = make(AxisType.Auto), 4 * jax.device_count()
    given = {"mesh": mesh, "spec": P("a"), "check": True}
    call = plait.jit(lambda a, b: CHECKED[name](a, b, **given))
    bad = np.eye(n)
    bad[1, 1] = -1 if name == "solve" else np.nan
    good, b = put(matrices.definite(n), mesh, P("a")), put(np.ones(n), mesh, P("a"))
    for _ in range(2):
        with pytest.raises(plait.LinAlgError, match=name.split("'")[0]):
            plait.block(call(put(bad, mesh, P("a")), b))
        assert np.isfinite(whole(call(good, b), mesh)).all()


def test_in_one_program(mesh):
    n = 4 * jax.device_count()
    a = matrices.definite(n)

    @jax.jit
    def both(x):
        f = plait.linalg.cholesky(x, mesh=mesh, spec=P("a"))
        w = plait.linalg.eigvalsh(x, mesh=mesh, spec=P("a"))
        return f.logdet() - jnp.sum(jnp.log(w))

    assert abs(float(both(put(a, mesh, P("a"))).addressable_data(0))) <= matrices.limit(
        n, "float64"
    )


@pytest.mark.parametrize("dtype, kind", [("float64", KINDS[0]), ("complex64", KINDS[1])])
def test_few_right_hand_sides(dtype, kind, monkeypatch):
    """Whole right-hand sides on all ranks, which share the factor, and the same dealt out."""
    n, mesh = 45, make(kind)
    a, g = matrices.definite(n, dtype), matrices.definite(n, dtype) + meshes.random((n, n), dtype)
    b = meshes.random((n, 2), dtype, 2)
    x, y, z = put(a, mesh, P()), put(g, mesh, P()), put(b, mesh, P())
    for forced in (True, False):
        monkeypatch.setattr(_dense_args, "FORCED_WHOLE", forced)
        got = plait.linalg.cholesky(x, block=4).solve(z)
        assert got.is_fully_replicated
        matrices.check_solution(a, whole(got, mesh), b)
        matrices.check_solution(g, whole(plait.linalg.lu_solve(y, z, block=4), mesh), b)


@pytest.mark.long(keep=1)
@EVERY_DTYPE
def test_batch_of_small_matrices(dtype, kind):
    n, n_batch, mesh = 7, 2 * jax.device_count() + 1, make(kind)
    a = np.stack([matrices.definite(n, dtype, seed=i) for i in range(n_batch)])
    a[1, 3, 3] = -1
    b = meshes.random((n_batch, n), dtype, 1)

    def solve(a, b):
        f = plait.linalg.cholesky(a, mesh=mesh, spec=P(), block=2)
        return f.status, f.solve(b, spec=P())

    def loss(a, b):
        return jnp.sum(jnp.real(jax.vmap(solve)(a, b)[1][2:]))

    args = put(a, mesh, P()), put(b, mesh, P())
    status, x = jax.jit(jax.vmap(solve))(*args)
    slope = jax.jit(jax.grad(loss, 1))(*args)
    status, x, slope = (np.asarray(y.addressable_data(0)) for y in (status, x, slope))
    assert status.tolist() == [4 * (i == 1) for i in range(n_batch)]
    for i in range(n_batch):
        if i == 1:
            assert np.isnan(x[i]).all()
        else:
            matrices.check_solution(a[i], x[i], b[i])
        if i >= 2:
            matrices.check_solution(a[i].T, slope[i], np.ones(n))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", KINDS)
def test_readme_of_jaxmg(kind):
    """The README of 1.4, with a process for each device; and its statements on other functions."""
    n_procs = jax.device_count()
    n, t = 12 * n_procs, 3
    mesh = jax.make_mesh((n_procs, 1), ("pr", "pc"), axis_types=(kind, kind))
    a, b = np.diag(np.arange(n) + 1.0), np.ones((n, 1))
    x = put(a, mesh, P("pr", "pc"))
    with jax.set_mesh(mesh):
        y, logdet, status = jaxmg_grid.potrs(
            x, put(b, mesh, P("pr", None)), T_A=t, return_logdet=True, return_status=True
        )
        q, r, of_qr = jaxmg_grid.qr(x, t, return_status=True)
        w, of_w = jaxmg_grid.syevd(x, t, return_eigenvectors=False, return_status=True)
    assert np.allclose(whole(y, mesh)[:, 0], 1 / (np.arange(n) + 1.0))
    assert np.isclose(logdet.addressable_data(0), np.sum(np.log(np.arange(n) + 1.0)))
    matrices.check_product((whole(q, mesh), whole(r, mesh)), a, n)
    assert np.allclose(w.addressable_data(0), np.arange(n) + 1.0)
    for found in (status, of_qr, of_w):
        assert np.array_equal(found.addressable_data(0), np.zeros(n_procs))
