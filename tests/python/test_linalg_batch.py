"""vmap of plait.linalg: batches of small matrices; each device takes whole matrices."""

import re

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from plait import _dense_batch


def definite(n_batch, n, dtype="float64"):
    return np.stack([matrices.definite(n, dtype, seed=i) for i in range(n_batch)])


ONE = re.compile(r"plait_mesh_(potrf|potri|potrs|getrf|geqrf|ormqr|trsm|gemm|heevd|solve)\[")


def operations(function, *args):
    """Counts of a program's operations that deal out whole matrices, and that deal out parts."""
    text = str(jax.make_jaxpr(function)(*args))
    return text.count("plait_mesh_batch["), len(ONE.findall(text))


def everything(a, g, tall, b, **given):
    """All functions, on a definite matrix, a square matrix, a tall matrix and a right-hand side."""
    f, h = plait.linalg.cholesky(a, **given), plait.linalg.lu(g, **given)
    return {
        "cholesky": (f.l, f.status, f.solve(b), f.inv(), f.logdet()),
        "lu": (h.l, h.u, h.order, h.status, h.solve(b), h.slogdet()),
        "qr": plait.linalg.qr(tall, **given),
        "eigh": plait.linalg.eigh(a, **given),
        "matmul": plait.linalg.matmul(tall, g, **given),
    }


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "n_batch, shape, dtype, block, kind",
    [
        (5, (2,), "float64", 3, AxisType.Auto),
        (4, (4,), "complex64", None, AxisType.Explicit),
        (9, (2, 4), "complex128", 2, AxisType.Auto),
        (11, (8,), "float32", 1, AxisType.Auto),
    ],
)
def test_backward_errors(n_batch, shape, dtype, block, kind):
    n, mesh = 7, meshes.make(shape, kind)
    a, g = definite(n_batch, n, dtype), meshes.random((n_batch, n, n), dtype, 1)
    tall, b = meshes.random((n_batch, n + 4, n), dtype, 2), meshes.random((n_batch, n, 3), dtype, 3)
    args = [meshes.put(x, mesh) for x in (a, g, tall, b)]

    def every(*args):
        return everything(*args, mesh=mesh, spec=P(), block=block)

    n_spread, n_others = operations(jax.vmap(every), *args)
    assert n_spread >= 9 and n_others == 0
    got = plait.jit(jax.vmap(every))(*args)
    for i in range(n_batch):
        one = jax.tree.map(lambda x: np.asarray(x)[i], got)  # noqa: B023 - used in this round
        low, status, x, inverse, log = one["cholesky"]
        assert status == 0 and np.array_equal(low, np.tril(low))
        matrices.check_product((low, low.conj().T), a[i], n)
        matrices.check_solution(a[i], x, b[i])
        matrices.check_solution(a[i], inverse, np.eye(n))
        assert np.isclose(log, np.linalg.slogdet(a[i])[1], rtol=matrices.limit(n, dtype))
        low, up, order, status, x, (sign, log) = one["lu"]
        assert status == 0
        matrices.check_product((low, up), g[i][order], n)
        matrices.check_solution(g[i], x, b[i])
        want = np.linalg.slogdet(g[i].astype(np.result_type(dtype, "float64")))
        assert np.allclose((sign, log), want, atol=matrices.limit(n, dtype) * np.linalg.cond(g[i]))
        q, r = one["qr"]
        matrices.check_orthonormal(q)
        matrices.check_product((q, r), tall[i], n + 4)
        w, v = one["eigh"]
        matrices.check_orthonormal(v)
        matrices.check_product((v * w, v.conj().T), a[i], n)
        matrices.check_product((one["matmul"],), tall[i] @ g[i], n)


def test_which_batches_are_spread(monkeypatch):
    mesh = meshes.make((4,))

    def low(a):
        return plait.linalg.cholesky(a, mesh=mesh, spec=P(), block=2).l

    def count(n_batch, n):
        def program(a):  # a new function, so that nothing is remembered
            return jax.vmap(low)(a)

        return operations(program, meshes.put(definite(n_batch, n), mesh))

    assert count(4, 5) == (1, 0)
    assert count(3, 5) == (0, 1)  # one device would be idle
    monkeypatch.setattr(_dense_batch, "SMALL", 5)
    assert count(4, 5) == (1, 0)
    jax.clear_caches()
    assert count(4, 6) == (0, 1)  # the matrices are large now
    assert [_dense_batch.is_spread(n, 4, 5) for n in (3, 4, 5, 400)] == [False, True, True, True]
    assert not _dense_batch.is_spread(8, 1, 5)


def test_failures_are_those_of_each_matrix():
    n_batch, n, mesh = 6, 9, meshes.make((4,))
    a = np.stack([np.eye(n)] * n_batch)
    minors = {1: 4, 4: 9}
    for i, minor in minors.items():
        a[i, minor - 1, minor - 1] = -1.0
    a[2, 3, 1] = np.nan

    def every(a):
        given = {"mesh": mesh, "spec": P(), "block": 2}
        f, h = plait.linalg.cholesky(a, **given), plait.linalg.lu(a, **given)
        return f.status, f.l, f.solve(a[0]), h.status, plait.linalg.eigvalsh(a, **given)

    status, low, x, pivot, w = map(np.asarray, plait.jit(jax.vmap(every))(meshes.put(a, mesh)))
    for i in range(n_batch):
        is_bad = i in minors or i == 2
        assert status[i] == minors.get(i, 0) if i != 2 else status[i] != 0
        assert np.isnan(x[i]).all() == is_bad and np.isnan(low[i]).any() == is_bad
        assert np.isnan(w[i]).all() == (i == 2)
        assert (pivot[i] != 0) == (i == 2)
    a[4, 8, 3] = 0.0

    def checked(a):
        return plait.linalg.cholesky(a, block=2, check=True, mesh=mesh, spec=P()).l

    failure = "^cholesky: the leading minor of order 4 is not positive"
    with pytest.raises(plait.LinAlgError, match=failure):
        jax.vmap(checked)(meshes.put(a[:2].repeat(2, axis=0), mesh)).block_until_ready()


# ---- derivatives ---------------------------------------------------------------------------------


def slopes(function, a, b):
    """For a batch: values, a tangent, gradients, and gradients of a gradient's component."""
    da, db = meshes.random(a.shape, a.dtype, 5), meshes.random(b.shape, b.dtype, 6)

    def value(a, b):
        return sum(
            jnp.sum(jnp.abs(y) ** 2) + jnp.sum(jnp.real(y)) for y in jax.tree.leaves(function(a, b))
        )

    def component(a, b):
        ga, gb = jax.grad(value, (0, 1))(a, b)
        return jnp.sum(jnp.real(ga * da)) + jnp.sum(jnp.real(gb * db))

    def every(a, b):
        tangent = jax.jvp(value, (a, b), (jnp.asarray(da), jnp.asarray(db)))
        return tangent, jax.grad(value, (0, 1))(a, b), jax.grad(component, (0, 1))(a, b)

    return jax.jit(every)


def test_gradients_of_gradients():
    n_batch, n, mesh, dtype = 5, 4, meshes.make((4,)), "complex128"
    a, b = definite(n_batch, n, dtype) + np.eye(n), meshes.random((n_batch, n, 2), dtype, 1)

    def ours(a, b):
        f = plait.linalg.cholesky(a, block=2, mesh=mesh, spec=P())
        return f.l, f.solve(b, spec=P())

    def theirs(a, b):
        a = (a + a.conj().T) / 2
        return jnp.linalg.cholesky(a), jnp.linalg.solve(a, b)

    got = slopes(jax.vmap(ours), a, b)(meshes.put(a, mesh), meshes.put(b, mesh))
    want = slopes(jax.vmap(theirs), a, b)(a, b)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-9, atol=1e-9 * np.abs(w).max())


def test_batch_of_gradients_and_batch_of_batches():
    mesh, n = meshes.make((2,)), 4
    given = {"mesh": mesh, "spec": P(), "block": 2}
    a, b = meshes.random((2, 3, n, n), "complex128"), meshes.random((2, n), "complex128", 1)

    def of(solve, qr):
        def value(a, b):
            q, r = qr(a)
            phase = jnp.conj(jnp.sign(jnp.diagonal(r)))
            return jnp.sum(jnp.abs(solve(a, b)) ** 2) + jnp.sum(jnp.real(r * phase[:, None]) ** 3)

        return jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(value, (0, 1)), (0, None))))

    def solve(a, b):
        return plait.linalg.lu(a, **given).solve(b, spec=P())

    got = of(solve, lambda a: plait.linalg.qr(a, **given))(meshes.put(a, mesh), meshes.put(b, mesh))
    want = of(jnp.linalg.solve, jnp.linalg.qr)(a, b)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-9, atol=1e-9 * np.abs(w).max())


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_singular_values_of_batches(kind):
    mesh, a = meshes.make((2,), kind), meshes.random((3, 4, 4))
    a[1, :, 0] = 0  # the vectors of its zero are completed
    x = meshes.put(a, mesh, P(None, "a"))
    f = plait.jit(jax.vmap(lambda a: plait.linalg.svd(a, mesh=mesh, spec=P("a"))))
    u, s, vh = map(np.asarray, f(x))
    for i in range(3):
        matrices.check_orthonormal(u[i])
        matrices.check_product((u[i] * s[i], vh[i]), a[i], 4)
    values = plait.jit(jax.vmap(lambda a: plait.linalg.svdvals(a, mesh=mesh, spec=P("a"))))(x)
    assert np.allclose(values, s, atol=1e-13)


# ---- batches that mesh axes split ----------------------------------------------------------------

# Kind of axes, mesh, split of the batch's arrays, spmd_axis_name, and largest small matrix.
SPLIT = {
    "alone": (AxisType.Explicit, (4,), P("a"), None, 512),
    "together": (AxisType.Explicit, (2, 2), P("a", "b"), None, 1),
    "told": (AxisType.Auto, (2, 2), P("a", "b"), "a", 512),
    "one beside": (AxisType.Explicit, (2, 1), P("a", "b"), None, 512),
}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("case", SPLIT)
def test_batches_that_mesh_axes_split(case, monkeypatch):
    kind, shape, spec, told, small = SPLIT[case]
    monkeypatch.setattr(_dense_batch, "SMALL", small)
    n_batch, n, mesh = 4, 6, meshes.make(shape, kind)
    given = {"mesh": mesh, "spec": P(*spec[1:])}
    a, b = definite(n_batch, n), meshes.random((n_batch, n))

    def value(a, b):
        f = plait.linalg.cholesky(a, **given)
        return jnp.dot(b, f.solve(b, spec=P())) + f.logdet()

    def every(a, b):
        w = plait.linalg.eigvalsh(a, **given)
        inverse = plait.linalg.inv(a, **given)
        return jax.value_and_grad(value)(a, b), w, inverse, inverse @ b

    program = jax.jit(jax.vmap(every, spmd_axis_name=told))
    args = (meshes.put(a, mesh, spec), meshes.put(b, mesh, P("a")))
    (y, slope), w, inverse, x = results = program(*args)
    want = np.linalg.solve(a, b[..., None])[..., 0]
    y_want = np.sum(b * want, axis=1) + np.linalg.slogdet(a)[1]
    slope_want = np.linalg.inv(a) - want[:, :, None] * want[:, None, :]
    for got, right in ((y, y_want), (slope, slope_want), (w, np.linalg.eigvalsh(a)), (x, want)):
        assert np.allclose(got, right, rtol=1e-11, atol=1e-11)
    assert np.allclose(inverse, np.linalg.inv(a), rtol=1e-11, atol=1e-11)
    if kind == AxisType.Explicit:
        assert {z.sharding.spec[0] for z in jax.tree.leaves(results)} == {"a"}
    if case == "alone":
        assert not meshes.xla_collectives(program, *args)


@pytest.mark.parametrize("is_split", [(True, False), (False, True)])
def test_eager_split_batch_beside_what_is_on_no_mesh(is_split):
    """An axis of one device splits nothing, wherever types name it."""
    n_batch, n, mesh = 4, 6, meshes.make((2, 1), AxisType.Explicit)
    args = definite(n_batch, n), meshes.random((n_batch, n, 2))
    a, b = (x if here else x[:1] for x, here in zip(args, is_split, strict=True))
    given = [
        meshes.put(x, mesh, P("a")) if here else jnp.asarray(x[0])
        for x, here in zip((a, b), is_split, strict=True)
    ]
    x = jax.vmap(plait.linalg.solve, [0 if here else None for here in is_split])(*given)
    assert x.sharding.spec[0] == "a"
    assert np.allclose(x, np.linalg.inv(a) @ b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_split_right_hand_sides_of_one_matrix(shape):
    n_batch, n, mesh = 8, 6, meshes.make(shape, AxisType.Explicit)
    a, b = definite(1, n)[0] + np.triu(np.ones((n, n))), meshes.random((n_batch, n))

    def solve(b):
        f = plait.linalg.lu(jnp.asarray(a), mesh=mesh)
        return f.solve(b), f.slogdet()[1] * b[0]

    x, y = jax.jit(jax.vmap(solve))(meshes.put(b, mesh, P("a")))
    assert x.sharding.spec[0] == y.sharding.spec[0] == "a"
    assert np.allclose(x, np.linalg.solve(a, b.T).T, atol=1e-13)
    assert np.allclose(y, np.linalg.slogdet(a)[1] * b[:, 0])


def test_determinants_and_singular_vectors_of_a_split_batch():
    n_batch, n, mesh = 4, 4, meshes.make((2,), AxisType.Explicit)
    a = meshes.random((n_batch, n, n))
    a[1, :, 0] = 0  # the vectors of its zero are completed
    x = meshes.put(a, mesh, P("a"))
    det = jax.vmap(plait.linalg.det)(x)
    u, s, vh = map(np.asarray, jax.vmap(plait.linalg.svd)(x))
    assert np.allclose(det, np.linalg.det(a))
    for i in range(n_batch):
        matrices.check_orthonormal(u[i])
        matrices.check_product((u[i] * s[i], vh[i]), a[i], n)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind, told", [(AxisType.Explicit, None), (AxisType.Auto, "a")])
def test_gradient_of_a_sum_over_a_split_batch(kind, told):
    n_batch, n, mesh = 4, 4, meshes.make((2, 2), kind)
    given = {"mesh": mesh, "spec": P("b")}
    a = definite(n_batch, n)

    def value(a):
        w, v = plait.linalg.eigh(a, degenerate="check", **given)
        return plait.linalg.lu(a, **given).slogdet()[1] + jnp.sum((v * w[None, :]) ** 2)

    def loss(a):
        return jnp.sum(jax.vmap(value, spmd_axis_name=told)(a))

    slope = jax.jit(jax.grad(loss))(meshes.put(a, mesh, P("a", "b")))
    assert np.allclose(slope, np.linalg.inv(a) + 2 * a, atol=1e-10)  # the second is tr(a aᵀ)
