"""LU, QR, eigendecompositions, products and norms: backward errors, failures, derivatives."""

import copy
import functools

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

SIZES = (1, 2, 3, 7, 8, 9, 33, 100, 257)
EVERY = [
    (
        n,
        matrices.SHAPES[(i + j) % len(matrices.SHAPES)],
        matrices.BLOCKS[(2 * i + 3 * j) % len(matrices.BLOCKS)],
        matrices.DTYPES[(i + j + 1) % len(matrices.DTYPES)],
        (i + j) % 4,
    )
    for i, n in enumerate(SIZES)
    for j in range(1 + i % 2)
]


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("n, shape, block, dtype, i", EVERY)
def test_lu(n, shape, block, dtype, i):
    a, b = meshes.random((n, n), dtype), meshes.random((n, 3), dtype, 1)
    x, y = matrices.put(a, shape, i), matrices.put(b, shape, i)
    f, cond = plait.linalg.lu(x, block=block), np.linalg.cond(a)
    assert f.status == 0
    low, up = np.asarray(f.l), np.asarray(f.u)
    assert np.array_equal(low, np.tril(low)) and np.array_equal(np.diag(low), np.ones(n))
    assert np.array_equal(up, np.triu(up)) and np.abs(low).max() <= 1.415
    matrices.check_product((low, up), a[np.asarray(f.order)], n)
    order, *want = oracle.lu(a)
    if cond <= 1e4 and np.array_equal(f.order, order):
        for got, factor in zip((low, up), want, strict=True):
            error = matrices.norm(got - factor)
            assert error <= matrices.limit(n, dtype) * cond * matrices.norm(factor)
    solution = f.solve(y)
    matrices.check_solution(a, solution, b)
    inverse = np.asarray(f.inv())
    assert matrices.norm(a @ inverse - np.eye(n)) <= matrices.limit(n, dtype) * cond * n**0.5
    sign, log = f.slogdet()
    want = oracle.slogdet(a)
    assert abs(complex(sign) - want[0]) <= matrices.limit(n, dtype) * cond
    assert abs(float(log) - want[1]) <= matrices.limit(n, dtype) * cond
    if shape is not None:
        assert f.l.sharding.is_equivalent_to(x.sharding, 2)
        assert solution.sharding.is_equivalent_to(y.sharding, 2)


def test_factors_are_compared_as_objects():
    n, mesh = 4, meshes.make((2,))
    a, b = matrices.definite(n), np.ones(n)
    x = meshes.put(a, mesh)
    single = functools.partial(plait.linalg.lu, precision="single")
    for factored in (plait.linalg.cholesky, plait.linalg.lu, single):
        f = factored(x, mesh=mesh)
        other = copy.copy(f)
        assert f == f and f != other and f != factored(x, mesh=mesh)
        assert len({f, f, other}) == 2
        assert np.array_equal(other.solve(b), f.solve(b))


ON_ANOTHER_MESH = {
    "eigvalsh": plait.linalg.eigvalsh,
    "eigh": plait.linalg.eigh,
    "inv": plait.linalg.inv,
    "l": lambda a, mesh: plait.linalg.cholesky(a, mesh=mesh).l,
    "status": lambda a, mesh: plait.linalg.cholesky(a, mesh=mesh).status,
    "lu": lambda a, mesh: plait.linalg.lu(a, mesh=mesh).order,
    "qr": plait.linalg.qr,
    "solve": lambda a, mesh: plait.linalg.solve(a, jnp.ones(6), mesh=mesh),
    "matmul": lambda a, mesh: plait.linalg.matmul(a, a, mesh=mesh),
    "slope": lambda a, mesh: jax.grad(lambda a: plait.linalg.slogdet(a, mesh=mesh)[1])(a),
}


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("name", ON_ANOTHER_MESH)
@pytest.mark.parametrize("jit", [jax.jit, plait.jit])
def test_an_operand_on_one_device(name, jit):
    """A program with mesh= runs on the devices of the mesh; its operands move there."""
    a, mesh = matrices.definite(6), meshes.make((3,), AxisType.Explicit)
    function = functools.partial(ON_ANOTHER_MESH[name], mesh=mesh)
    got = jax.tree.leaves(jit(function)(jnp.asarray(a)))
    want = jax.tree.leaves(jit(function)(meshes.put(a, mesh, P("a"))))
    for g, w in zip(got, want, strict=True):
        assert np.allclose(g, w, atol=1e-12) and g.sharding.device_set == set(mesh.devices.flat)


def test_singular():
    a = np.eye(9)
    a[4, 4] = 0
    x = matrices.put(a, (4,))
    f = plait.linalg.lu(x, block=2)
    assert f.status == 5 and f.slogdet()[1] == -np.inf and f.det() == oracle.det(a) == 0
    failure = "the matrix is singular, pivot 5 is zero or not finite"
    with pytest.raises(plait.LinAlgError, match=f"inv: {failure}"):
        plait.linalg.inv(x, check=True)
    with pytest.raises(plait.LinAlgError, match=f"^solve: {failure}"):
        plait.linalg.solve(x, np.ones(9), check=True)


@pytest.mark.parametrize("pivot", [complex(1, np.inf), complex(1, np.nan), complex(np.inf, 1)])
def test_a_pivot_of_which_one_part_is_not_finite(pivot):
    a = np.diag(np.array([1, 2, pivot, 3, 4]))
    assert plait.linalg.lu(matrices.put(a, (2,)), block=2).status == 3
    assert plait.linalg.lu(jnp.asarray(a)).status == 3


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("n, shape, block, dtype, i", EVERY)
def test_qr(n, shape, block, dtype, i):
    m, n = [(n + 5, n), (n, n), (n, n + 3), (4 * n, n)][i]
    a = meshes.random((m, n), dtype)
    x = matrices.put(a, shape, i)
    q, r = plait.linalg.qr(x, block=block)
    assert np.array_equal(plait.linalg.qr(x, mode="r", block=block), r)
    k = min(m, n)
    assert q.shape == (m, k) and r.shape == (k, n)
    assert np.array_equal(r, np.triu(r))
    matrices.check_product((q, r), a, m)
    matrices.check_orthonormal(q)
    sizes = np.abs(np.diagonal(oracle.qr(a)[1]))
    bound = matrices.limit(m, dtype) * np.linalg.cond(a) * matrices.norm(a)
    assert np.abs(np.abs(np.diagonal(r)) - sizes).max() <= bound


def test_lstsq():
    for shape, dtype in (((4,), "float64"), ((2, 4), "complex128"), (None, "float32")):
        a, b = meshes.random((40, 9), dtype), meshes.random((40,), dtype, 1)
        x = plait.linalg.lstsq(matrices.put(a, shape), matrices.put(b, shape))
        want = oracle.lstsq(a, b)
        assert np.allclose(x, want, rtol=100 * meshes.eps(dtype), atol=100 * meshes.eps(dtype))


@pytest.mark.parametrize("n, shape, block, dtype, i", EVERY)
def test_eigh(n, shape, block, dtype, i):
    a = meshes.random((n, n), dtype)
    a = (a + a.conj().T) / 2
    x = matrices.put(a, shape, i)
    w, v = plait.linalg.eigh(x, block=block)
    want = oracle.eigh(a)
    assert np.abs(np.asarray(w) - want).max() <= matrices.limit(n, dtype) * np.abs(want).max()
    matrices.check_orthonormal(v)
    v = np.asarray(v)
    matrices.check_product((v * np.asarray(w), v.conj().T), a, n)
    values = plait.linalg.eigvalsh(x, block=block)
    assert np.abs(np.asarray(values) - want).max() <= matrices.limit(n, dtype) * np.abs(want).max()
    if i == 1:
        assert np.array_equal(plait.linalg.syevd(x, block=block)[0], w)


def test_eigenvectors_are_not_conjugated():
    a = np.array([[2, 1j], [-1j, 2]])
    w, v = plait.linalg.eigh(matrices.put(a, (2,)))
    assert np.allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w))


def test_not_finite():
    a = np.eye(9)
    a[5, 2] = np.nan
    x = matrices.put(a, (4,))
    assert np.isnan(plait.linalg.eigvalsh(x)).all()
    with pytest.raises(plait.LinAlgError, match="eigh: not finite"):
        plait.linalg.eigh(x, check=True)


@pytest.mark.parametrize("size", [1, 1e200, 1e-200])  # squares of the last two leave the range
def test_norms(size):
    a = meshes.random((12, 20), "complex128")
    for shape in ((4,), (2, 2), None):
        x = matrices.put(a * size, shape)
        for order in ("fro", 1, np.inf):
            want = np.linalg.norm(a, order) * size
            assert np.isclose(plait.linalg.matrix_norm(x, order), want, rtol=1e-14, atol=0)
        assert plait.linalg.matrix_norm(x, "max") == np.abs(a * size).max()


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_norms_of_a_batch(kind):
    mesh = meshes.make((4,), kind)
    a = meshes.random((12, 20), "complex128") * 1e200
    norm = functools.partial(plait.linalg.matrix_norm, mesh=mesh, spec=P("a"))
    x = meshes.put(a, mesh, P("a"))
    got = jax.jit(jax.vmap(norm))(jnp.stack([x, x * 1e-200]))
    want = np.linalg.norm(a * 1e-200) * np.array([1e200, 1])
    assert np.allclose(got, want, rtol=1e-14, atol=0)


def test_norms_of_what_is_special():
    assert plait.linalg.matrix_norm(np.zeros((3, 3))) == 0
    bad = np.ones((132, 132))
    bad[7, 131] = np.nan
    for shape in ((4,), None):  # jnp.max leaves NaN out of large arrays
        x = matrices.put(bad, shape)
        assert all(np.isnan(plait.linalg.matrix_norm(x, p)) for p in ("fro", 1, np.inf, "max"))
    for order in (2, np.array([1, 2])):
        with pytest.raises(ValueError, match="ord is .*2.*; expected 'fro', 1, inf or 'max'"):
            plait.linalg.matrix_norm(bad, order)
    with pytest.raises(ValueError, match="matrix_norm: a is 0 x 3; expected elements"):
        plait.linalg.matrix_norm(np.zeros((0, 3)))
    with pytest.raises(TypeError, match="matrix_norm: it has no derivative"):
        jax.grad(plait.linalg.matrix_norm)(np.ones((3, 3)))


# ---- derivatives ---------------------------------------------------------------------------------


def weighed(function, like):
    """A scalar of all results, and a direction for derivatives."""
    leaves = jax.tree.leaves(jax.eval_shape(function, like))
    weights = [np.asarray(meshes.random(y.shape, y.dtype, i)) for i, y in enumerate(leaves)]

    def value(a):
        parts = zip(jax.tree.leaves(function(a)), weights, strict=True)
        return sum(jnp.sum(jnp.real(y * w) + jnp.real(y * jnp.conj(y)) ** 2) for y, w in parts)

    return value, meshes.random(like.shape, like.dtype, 7)


def slopes(function, like):
    """All values, a tangent, a gradient, and the gradient of a gradient's component."""
    value, da = weighed(function, like)

    def component(a):
        return jnp.sum(jnp.real(jax.grad(value)(a) * da))

    def every(a):
        tangent = jax.jvp(value, (a,), (jnp.asarray(da),))[1]
        return function(a), tangent, jax.grad(value)(a), jax.grad(component)(a)

    return jax.jit(every)


def compare(ours, theirs, a, shape):
    mesh = meshes.make(shape)
    got = slopes(lambda a: ours(a, mesh=mesh, spec=P(), block=2), a)(meshes.put(a, mesh))
    want = slopes(theirs, a)(a)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(g, w, rtol=1e-8, atol=1e-8 * np.abs(w).max())


BOTH = pytest.mark.parametrize("dtype, shape", [("float64", (4,)), ("complex128", (2, 2))])


@pytest.mark.long(keep=1)
@BOTH
def test_gradients_of_lu(dtype, shape):
    n = 6
    a, b = meshes.random((n, n), dtype), meshes.random((n,), dtype, 1)

    def ours(a, **given):
        f = plait.linalg.lu(a, **given)
        return f.l, f.u, f.solve(b), f.inv(), f.slogdet()

    def theirs(a):
        factor, _, _ = jax.lax.linalg.lu(a)
        low, up = jnp.tril(factor, -1) + jnp.eye(n, dtype=a.dtype), jnp.triu(factor)
        return low, up, jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.slogdet(a)

    compare(ours, theirs, a, shape)


def phased(q, r):
    """The factors, with phases that do not depend on the algorithm."""
    phase = jax.lax.stop_gradient(jnp.sign(jnp.diagonal(r)))
    return q * phase[None], r * jnp.conj(phase)[:, None]


def phased_qr(a, **given):
    """Both factors, and the second factor computed without the first."""
    q, r = plait.linalg.qr(a, **given)
    return phased(q, r), phased(q, plait.linalg.qr(a, mode="r", **given))[1]


@pytest.mark.long(keep=1)
@BOTH
def test_gradients_of_qr(dtype, shape):
    def theirs(a):
        q, r = phased(*jnp.linalg.qr(a))
        return (q, r), r

    compare(phased_qr, theirs, meshes.random((7, 4), dtype), shape)


@pytest.mark.long(keep=1)
@BOTH
def test_gradients_of_eigh(dtype, shape):
    def seen(w, v):
        return w, (v * jnp.exp(w)[None].astype(v.dtype)) @ v.conj().T, jnp.abs(v)

    def ours(a, **given):
        return seen(*plait.linalg.eigh(a, **given)), plait.linalg.eigvalsh(a, **given)

    def theirs(a):
        return seen(*jnp.linalg.eigh(a)), jnp.linalg.eigvalsh(a)

    compare(ours, theirs, matrices.definite(6, dtype), shape)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("mode", ["nan", "zero", "check", "lorentzian"])
def test_equal_eigenvalues(mode):
    n, mesh = 7, meshes.make((4,))
    q, w = matrices.orthogonal(n, "complex128"), np.array([1.0, 2, 2, 2, 3, 4, 4])
    a = (q * w) @ q.conj().T
    a = (a + a.conj().T) / 2
    b = meshes.random((n, n), "complex128", 1)

    def vectors(a):
        return plait.linalg.eigh(a, degenerate=mode, mesh=mesh, spec=P(), block=2).eigenvectors

    def projector(a):  # on the first two clusters: independent of the choice of vectors
        v = vectors(a)[:, :4]
        return jnp.sum(jnp.real(v @ v.conj().T * b))

    def choice(a):
        return jnp.sum(jnp.abs(vectors(a)[:, 1]) ** 2 * np.arange(n, dtype=float))

    def values(a):
        return plait.linalg.eigh(a, degenerate=mode, mesh=mesh, spec=P(), block=2).eigenvalues

    def trace(a):  # of exp(a): equal eigenvalues have equal weights
        return jnp.sum(jnp.exp(values(a)))

    def order(a):  # equal eigenvalues have different weights
        return jnp.sum(values(a) * np.arange(n, dtype=float))

    losses = (projector, choice, trace, order)
    good, bad, of_trace, of_order = jax.jit(lambda a: [jax.grad(f)(a) for f in losses])(
        meshes.put(a, mesh)
    )

    def want(h):
        first, step = q[:, :4], 1e-6
        projected = [np.linalg.eigh(a + s * h)[1][:, :4] for s in (step, -step)]
        assert first.shape == projected[0].shape
        up, down = (np.sum(np.real(v @ v.conj().T * b)) for v in projected)
        return (up - down) / (2 * step)

    h = meshes.random((n, n), "complex128", 9)
    h = (h + h.conj().T) / 2
    slope = np.sum(np.real(np.asarray(good) * h))
    if mode != "nan":
        assert np.isclose(slope, want(h), rtol=1e-4)
        assert np.isnan(bad).any() == np.isnan(of_order).any() == (mode == "check")
        assert np.allclose(of_trace, ((q * np.exp(w)) @ q.conj().T).T)


def test_what_does_not_depend_on_vectors_of_equal_eigenvalues():
    """It has derivatives, as `jax.numpy` has for eigenvalues alone; else they are NaN."""
    n, mesh = 6, meshes.make((2,))
    a = np.diag([1.0, 1, 1, 2, 3, 3])  # equal to the last bit
    weights = meshes.random((n, n))

    def eigh(a, *rest, **given):
        return plait.linalg.eigh(a, *rest, mesh=mesh, spec=P(), block=2, **given)

    def single(a, mode="nan"):
        return jnp.sum(eigh(a, degenerate=mode)[1][:, 3] * weights[0])

    def of_vectors(a):
        return jnp.sum(eigh(a)[1] * weights)

    def square(w):
        return jnp.sum(w**2)

    alone = (
        lambda a: square(eigh(a)[0]),
        lambda a: square(eigh(a, 1.0 * np.eye(n))[0]),
        lambda a: square(plait.jit(eigh)(a)[0]),
        lambda a: square(jax.vmap(eigh)(jnp.stack([a, 1.0 * np.eye(n)]))[0]),
        lambda a: square(eigh(a, subset=slice(0, n - 1))[0]) + a[n - 1, n - 1] ** 2,
    )
    x = meshes.put(a, mesh)
    want = jax.grad(lambda a: square(jnp.linalg.eigh(a)[0]))(a)
    for slope in jax.jit(slopes_of(alone))(x):
        assert np.allclose(slope, want, atol=1e-12)
    others = single, functools.partial(single, mode="zero"), of_vectors
    got, zero, bad = jax.jit(slopes_of(others))(x)
    assert np.any(got) and np.array_equal(got, zero)
    assert np.isnan(bad).any()
    assert np.isnan(jax.jit(lambda a: jax.jvp(of_vectors, (a,), (weights,))[1])(x))


def slopes_of(losses):
    return lambda a: [jax.grad(f)(a) for f in losses]


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_choices_are_found_by_cotangents_of_any_size(size):
    n, mesh = 6, meshes.make((2,))
    q = matrices.orthogonal(n, "float64")
    a = (q * np.array([1.0, 2, 2, 3, 4, 5])) @ q.T
    weights = np.arange(n, dtype=float)

    def found(a):
        return plait.linalg.eigh(a, degenerate="check", mesh=mesh, spec=P(), block=2)

    def choice(a):
        return size * jnp.sum(found(a).eigenvectors[:, 1] ** 2 * weights)

    def projector(a):
        return size * jnp.sum(found(a).eigenvectors[:, :3] ** 2 * weights[:, None])

    def order(a):
        return size * jnp.sum(found(a).eigenvalues * weights)

    losses = (choice, order, projector)
    *bad, good = jax.jit(lambda a: [jax.grad(f)(a) for f in losses])(meshes.put(a, mesh))
    assert all(np.isnan(x).any() for x in bad)
    assert np.isfinite(good).all()
    assert np.any(good)


def test_vmap_of_factors():
    mesh = meshes.make((2,))
    a = meshes.random((3, 5, 5))
    x = meshes.put(a, mesh)

    def every(a):
        given = {"mesh": mesh, "spec": P(), "block": 2}
        f = plait.linalg.lu(a, **given)
        return (
            f.inv(),
            f.slogdet()[1],
            plait.linalg.qr(a, **given),
            plait.linalg.eigvalsh(a, **given),
        )

    inverse, log, (q, r), w = plait.jit(jax.vmap(every))(x)
    assert np.allclose(inverse, np.linalg.inv(a))
    assert np.allclose(log, np.linalg.slogdet(a)[1])
    assert np.allclose(q @ r, a)
    assert np.allclose(w, np.linalg.eigvalsh(a))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_factor_from_the_host(kind):
    """A factor that jax.device_get has moved to the host goes back to its devices."""
    a, mesh = matrices.definite(8), meshes.make((4,), kind)
    for factor in (plait.linalg.cholesky, plait.linalg.lu):
        f = factor(meshes.put(a, mesh, P("a")))
        kept = jax.device_get(f)
        assert np.array_equal(kept.solve(np.ones(8)), f.solve(np.ones(8)))
        assert np.array_equal(kept.inv(), f.inv())
