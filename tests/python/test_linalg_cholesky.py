"""plait.linalg.cholesky and its solutions: backward errors, failures, derivatives."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

SIZES = (1, 2, 3, 7, 8, 9, 33, 100, 257)
EVERY = [
    (
        n,
        matrices.SHAPES[(i + j) % len(matrices.SHAPES)],
        matrices.BLOCKS[(2 * i + 3 * j) % len(matrices.BLOCKS)],
        matrices.DTYPES[(i + 2 * j) % len(matrices.DTYPES)],
        (i + j) % 4,
    )
    for i, n in enumerate(SIZES)
    for j in range(2)
]


def everything(a, b, c, **given):
    f = plait.linalg.cholesky(a, **given)
    return f.l, f.solve(b), f.solve(c), f.inv(), f.logdet(), f.status


@pytest.mark.long(keep=5)
@pytest.mark.parametrize("n, shape, block, dtype, i", EVERY)
def test_backward_errors(n, shape, block, dtype, i):
    a = matrices.definite(n, dtype)
    b, c = meshes.random((n, 3), dtype, 1), meshes.random((n,), dtype, 2)
    x, y, z = (matrices.put(v, shape, i) for v in (a, b, c))
    low, s, t, inverse, logdet, status = everything(x, y, z, block=block)
    assert status == 0
    assert np.array_equal(low, np.tril(low))
    matrices.check_product((low, np.asarray(low).conj().T), a, n)
    matrices.check_solution(a, s, b)
    matrices.check_solution(a, t, c)
    assert matrices.norm(a @ np.asarray(inverse) - np.eye(n)) <= 10 * matrices.limit(n, dtype) * n
    assert np.array_equal(inverse, np.asarray(inverse).conj().T)
    want = oracle.slogdet(a)[1]
    error = matrices.norm(np.asarray(low) - oracle.cholesky(a))
    assert error <= 100 * matrices.limit(n, dtype) * matrices.norm(low)  # the condition is 10
    assert abs(float(logdet) - want) <= 10 * matrices.limit(n, dtype) * max(1, abs(want))
    if shape is not None:
        for got, like in ((low, x), (inverse, x), (s, y), (t, z)):
            assert got.sharding.is_equivalent_to(like.sharding, got.ndim)
    assert jnp.asarray(x).shape == (n, n)  # x is still there


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_factor_stays_distributed_across_programs(kind):
    mesh = meshes.make((2, 4), kind)
    a, b = matrices.definite(24), meshes.random((24, 5), seed=1)
    x = meshes.put(a, mesh, P("a", "b"))
    f = jax.jit(lambda x: plait.linalg.cholesky(x, mesh=mesh, spec=P("a", "b")))(x)
    matrices.check_solution(a, f.solve(b), b)
    matrices.check_solution(a, jax.jit(lambda f, b: f.solve(b))(f, b), b)
    y = plait.jit(lambda x, b: plait.linalg.cholesky(x, mesh=mesh, spec=P("a", "b")).solve(b))(x, b)
    matrices.check_solution(a, y, b)
    part = max(s.data.size for s in jax.tree.leaves(f)[1].addressable_shards)
    assert part <= 24 * 24 / 8 + 24 * 3  # an eighth, rounded up to whole blocks


def test_conditions():
    n, mesh = 33, meshes.make((4,))
    f = plait.jit(lambda a, b: everything(a, b, b[:, 0], block=5, mesh=mesh, spec=P())[:2])
    b = meshes.random((n, 2), seed=1)
    for cond in (1.0, 1e4, 1e8):
        for scale in (1.0, 1e-150, 1e150):
            a = matrices.definite(n, cond=cond) * scale
            low, x = f(meshes.put(a, mesh), meshes.put(b, mesh))
            unit = np.asarray(low) / scale**0.5
            matrices.check_product((unit, unit.T), a / scale, n, (cond, scale))
            matrices.check_solution(a / scale, np.asarray(x) * scale, b, (cond, scale))


def test_not_definite():
    n, mesh = 33, meshes.make((4,))
    f = plait.jit(lambda a: everything(a, a, a[:, 0], block=5, mesh=mesh, spec=P()))
    for minor in (1, 3, 5, 6, 17, 31, 33):
        a = np.eye(n)
        a[minor - 1, minor - 1] = -1.0
        *rest, status = f(meshes.put(a, mesh))
        assert status == minor
        assert all(np.isnan(x).all() for x in rest[1:])
        with pytest.raises(np.linalg.LinAlgError, match=f"minor of order {minor} is not positive"):
            plait.linalg.cholesky(meshes.put(a, mesh), block=5, check=True)
    for value in (np.nan, np.inf):
        a = np.eye(n)
        a[7, 3] = value
        assert f(meshes.put(a, mesh))[-1] != 0
    a = np.eye(n)
    a[3, 7] = np.nan  # the upper triangle is not read
    assert f(meshes.put(a, mesh))[-1] == 0


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_matrices_of_integers(dtype):
    a = np.eye(3, dtype=dtype)
    want = jnp.linalg.inv(a).dtype
    for x in (plait.linalg.cholesky(a), plait.linalg.inv(a), plait.linalg.eigh(a)[1]):
        assert x.dtype == want


def test_right_hand_sides_of_integers():
    a, b = matrices.definite(8, "float32"), np.arange(8)
    f = plait.linalg.cholesky(a)
    for x in (f.solve(b), plait.linalg.potrs(a, b), plait.linalg.lstsq(a, b)):
        assert x.dtype == "float32"
        matrices.check_solution(a, x, b)
    matrices.check_product((plait.linalg.matmul(b[None], a),), b[None] @ a.astype(float), 8)


def test_bad_input():
    with pytest.raises(ValueError, match="cholesky: a is 2 x 3; expected a square matrix"):
        plait.linalg.cholesky(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="cholesky: a has 1 axes"):
        plait.linalg.cholesky(np.zeros(3))
    with pytest.raises(ValueError, match="cholesky: block is 0; expected 1 or more"):
        plait.linalg.cholesky(np.eye(3), block=0)
    with pytest.raises(TypeError, match="cholesky: block is 1.5"):
        plait.linalg.cholesky(np.eye(3), block=1.5)
    with pytest.raises(TypeError, match="cholesky: a has dtype float16"):
        plait.linalg.cholesky(np.eye(3, dtype="float16"))
    f = plait.linalg.cholesky(np.eye(3))
    with pytest.raises(ValueError, match="solve: b has 2 rows, a has 3"):
        f.solve(np.zeros(2))
    with pytest.raises(ValueError, match="b has 3 axes"):
        f.solve(np.zeros((3, 1, 1)))
    with pytest.raises(TypeError, match="b is float32, a is float64"):
        f.solve(np.zeros(3, "float32"))
    with pytest.raises(TypeError, match="potrs: a is float64, b is complex128"):
        plait.linalg.potrs(np.eye(3), np.zeros(3, "complex128"))
    for bad, what in ((None, "None"), ("abc", "str"), ([[1.0], [0.0, 1.0]], "list")):
        with pytest.raises(TypeError, match=f"cholesky: a is {what}; expected an array"):
            plait.linalg.cholesky(bad)
        with pytest.raises(TypeError, match=f"solve: b is {what}; expected an array"):
            plait.linalg.solve(np.eye(3), bad)


def test_failures_name_the_function():
    failure = "the leading minor of order 1 is not positive definite"
    for name in ("cholesky", "potri"):
        with pytest.raises(plait.LinAlgError, match=f"^{name}: {failure}"):
            getattr(plait.linalg, name)(-np.eye(3), check=True)
    with pytest.raises(plait.LinAlgError, match=f"^potrs: {failure}"):
        plait.linalg.potrs(-np.eye(3), np.ones(3), check=True)
    with pytest.raises(plait.LinAlgError, match=f"^solve: {failure}"):
        plait.linalg.solve(-np.eye(3), np.ones(3), assume="positive", check=True)


def test_operands_on_other_devices():
    one, four = meshes.make((2,)), meshes.make((4,))
    other = Mesh(four.devices[2:], one.axis_names, axis_types=one.axis_types)
    a, b = meshes.put(np.eye(4), one, P("a")), meshes.put(np.ones(4), other, P("a"))
    pair = r"a is on devices \[0, 1\], b is on devices \[2, 3\]; expected the same"
    for refine in (False, True):
        with pytest.raises(ValueError, match="solve: " + pair):
            plait.linalg.solve(a, b, refine=refine)
    with pytest.raises(ValueError, match="matmul: " + pair):
        plait.linalg.matmul(a, b)
    for f in (plait.linalg.lu(a), plait.linalg.cholesky(a, precision="single")):
        with pytest.raises(ValueError, match="solve: " + pair):
            f.solve(b)


# ---- derivatives ---------------------------------------------------------------------------------


def both(a, b, of):
    """A scalar of all results of a Cholesky factorization; of: computes the results."""
    low, x, inverse, logdet = of(a, b)
    return (
        jnp.sum(jnp.real(low) ** 2 * 0.3 + jnp.imag(low))
        + jnp.sum(jnp.abs(x) ** 2)
        + jnp.sum(jnp.real(inverse) ** 3)
        + logdet**2
    )


def reference(a, b):
    a = (a + a.conj().T) / 2
    low = jnp.linalg.cholesky(a)
    return low, jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.slogdet(a)[1]


@pytest.mark.long
@pytest.mark.parametrize("dtype, shape", [("float64", (4,)), ("complex128", (2, 2))])
def test_gradients_of_gradients(dtype, shape):
    n, mesh = 7, meshes.make(shape)
    a, b = matrices.definite(n, dtype) + np.eye(n), meshes.random((n, 2), dtype, 1)
    da, db = meshes.random((n, n), dtype, 2), meshes.random((n, 2), dtype, 3)

    def ours(a, b):
        f = plait.linalg.cholesky(a, block=2, mesh=mesh, spec=P())
        return f.l, f.solve(b, spec=P()), f.inv(), f.logdet()

    def all_of(of):
        def value(a, b):
            return both(a, b, of)

        def slope(a, b):
            ga, gb = jax.grad(value, (0, 1))(a, b)
            return jnp.sum(jnp.real(ga * da)) + jnp.sum(jnp.real(gb * db))

        def every(a, b):
            y, dy = jax.jvp(value, (a, b), (jnp.asarray(da), jnp.asarray(db)))
            return y, dy, jax.grad(value, (0, 1))(a, b), jax.grad(slope, (0, 1))(a, b)

        return jax.jit(every)

    got = all_of(ours)(meshes.put(a, mesh), meshes.put(b, mesh))
    want = all_of(reference)(a, b)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-9, atol=1e-9 * np.abs(w).max())


def test_gradient_is_split_as_the_matrix():
    mesh = meshes.make((8,))
    a = matrices.definite(32)

    def loss(x, y):
        f = plait.linalg.cholesky(x, mesh=mesh, spec=P(None, "a"))
        return f.logdet() + jnp.vdot(y, f.solve(y, spec=P("a")))

    x, y = meshes.put(a, mesh, P(None, "a")), meshes.put(meshes.random((32,)), mesh, P("a"))
    ga, gy = jax.grad(loss, (0, 1))(x, y)
    z = oracle.solve(a, y)
    assert np.allclose(ga, oracle.inv(a) - np.outer(z, z))
    assert np.allclose(gy, 2 * z)
    assert ga.sharding.is_equivalent_to(x.sharding, 2)


def test_xla_moves_nothing():
    mesh = meshes.make((8,))
    x = meshes.put(matrices.definite(64), mesh, P("a"))
    y = meshes.put(np.ones((64, 2)), mesh, P("a"))
    given = {"mesh": mesh, "spec": P("a")}

    def loss(x, y):
        f = plait.linalg.cholesky(x, **given)
        parts = (f.solve(y, spec=P("a")) ** 2, f.l, f.inv())
        return f.logdet() + sum(plait.sum(v, **given) for v in parts)

    def slope(x, y):
        return plait.sum(jax.grad(loss)(x, y) ** 2, **given)

    assert meshes.xla_collectives(jax.grad(slope), x, y) == []


def test_vmap():
    n, mesh = 6, meshes.make((2,))
    a = np.stack([matrices.definite(n, seed=i) for i in range(3)])
    b = meshes.random((3, 2, n), seed=1)

    def solve(a, b):
        return plait.linalg.cholesky(a, block=2, mesh=mesh, spec=P()).solve(b, spec=P())

    every = plait.jit(jax.vmap(jax.vmap(solve, (None, 0)), (0, 0)))
    got = every(meshes.put(a, mesh), meshes.put(b, mesh))
    want = np.linalg.solve(a[:, None], b[..., None])[..., 0]
    assert np.allclose(got, want)
    jacobian = plait.jit(jax.jacrev(solve, 1))(meshes.put(a[0], mesh), meshes.put(b[0, 0], mesh))
    assert np.allclose(jacobian, np.linalg.inv(a[0]))


def test_programs_after_one_that_failed():
    """A failure is that of its own program, even if JAX passes the order on between programs."""
    mesh = meshes.make((2,))
    given = {"check": True, "mesh": mesh, "spec": P()}
    f = jax.jit(lambda a: plait.linalg.cholesky(a, **given).logdet())
    with pytest.raises(plait.LinAlgError, match="order 1"):
        plait.block(f(-np.eye(3)))
    assert plait.block(f(np.eye(3))) == 0
