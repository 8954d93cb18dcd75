"""plait.linalg.solve: mixed precision with refinement."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "assume, dtype, shape", [("general", "complex128", (2, 2)), ("positive", "float64", (4,))]
)
def test_refinement(assume, dtype, shape):
    n, mesh = 50, meshes.make(shape)
    b = meshes.random((n, 3), dtype, 1)

    def solve(a, b):
        return plait.linalg.solve(a, b, assume=assume, refine=True, block=4, mesh=mesh, spec=P())

    program = plait.jit(solve)
    for cond in (1e1, 1e4, 1e11):  # the last does not converge: a is factored again
        for scale in (1.0, 1e100, 1e-100):
            a = matrices.definite(n, dtype, cond) * scale
            if assume == "general":
                a = matrices.orthogonal(n, dtype, 3) @ a
            x = np.asarray(program(meshes.put(a, mesh), meshes.put(b, mesh)))
            matrices.check_solution(a / scale, x * scale, b, (cond, scale))
    a = matrices.definite(n, dtype, 1e3)
    c = meshes.random((n, 3), dtype, 2)

    def loss(a, b):
        return plait.sum((solve(a, b) * c).real, mesh=mesh, spec=P())

    ga, gb = jax.jit(jax.grad(loss, (0, 1)))(meshes.put(a, mesh), meshes.put(b, mesh))
    z = oracle.solve(a.T, c)
    slope = -z @ oracle.solve(a, b).T
    slope = (slope + slope.conj().T) / 2 if assume == "positive" else slope
    assert np.allclose(gb, z, rtol=1e-8)
    assert np.allclose(ga, slope, rtol=1e-8, atol=1e-8 * np.abs(slope).max())


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "make, dtype, shape",
    [(plait.linalg.cholesky, "complex128", (4,)), (plait.linalg.lu, "float64", (2, 2))],
)
def test_factor_in_single_precision(make, dtype, shape):
    n, mesh = 40, meshes.make(shape)
    b = meshes.random((n,), dtype, 1)

    def factor(a):
        return make(a, precision="single", block=4, mesh=mesh, spec=P())

    program = jax.jit(factor)
    solve = jax.jit(lambda f, b: f.solve(b, spec=P()))
    for cond in (1e1, 1e5, 1e12):  # the last does not converge: a is factored again
        a = matrices.definite(n, dtype, cond)
        f = program(meshes.put(a, mesh))
        kinds = {x.dtype.itemsize for x in jax.tree.leaves(f) if x.dtype.kind in "fc"}
        assert kinds == {a.itemsize, a.itemsize // 2} and f.dtype == dtype and f.shape == (n, n)
        matrices.check_solution(a, solve(f, meshes.put(b, mesh)), b, cond)


@pytest.mark.long
@pytest.mark.parametrize(
    "make, dtype", [(plait.linalg.cholesky, "float64"), (plait.linalg.lu, "complex128")]
)
def test_refinement_of_columns_of_any_size(make, dtype):
    """Squares of some leave the exponents' range; each column is as good as on its own."""
    n, mesh = 30, meshes.make((4,))
    a, b = matrices.definite(n, dtype, 1e4), meshes.random((n, 6), dtype, 1)
    sizes = np.array([1.0, 1e-60, 1e200, 1e-250, 0.0, 1e-8])

    def factor(a):
        return make(a, precision="single", block=4, mesh=mesh, spec=P())

    program, solve = jax.jit(factor), jax.jit(lambda f, b: f.solve(b, spec=P()))
    each = jax.jit(lambda f, b: jax.vmap(lambda c: f.solve(c, spec=P()), 1, 1)(b))
    for scale in (1.0, 1e160, 1e-160, 1e300, 1e-300):
        f = program(meshes.put(a * scale, mesh))
        logs = np.log10(np.where(sizes == 0, 1, sizes)) - np.log10(scale)
        given = np.where(np.abs(logs) < 290, sizes, 0)  # the columns that have a solution
        for solution in (solve, each):
            x = np.asarray(solution(f, meshes.put(b * given, mesh)))
            for i, size in enumerate(given):
                y = x[:, i] * scale / size if size and scale < 1 else x[:, i] / (size or 1) * scale
                matrices.check_solution(a, y, b[:, i] * (size > 0), (scale, size))


@pytest.mark.long
@pytest.mark.parametrize("assume, dtype", [("general", "complex128"), ("positive", "float64")])
def test_refinement_of_numbers_near_the_largest(assume, dtype):
    n, most = 12, np.finfo(dtype).max * 0.8
    a, b = matrices.definite(n, dtype, 1e4), meshes.random((n,), dtype, 1)
    given = {"assume": assume, "refine": True, "block": 2}
    x, y = (matrices.put(z / np.abs(z).max() * most, (4,)) for z in (a, b))
    found = np.asarray(plait.linalg.solve(x, y, **given)) * np.abs(b).max() / np.abs(a).max()
    matrices.check_solution(a, found, b)


@pytest.mark.long
def test_refinement_reads_one_triangle():
    n, mesh = 12, meshes.make((4,))
    a, b = matrices.definite(n, "complex128", 1e4), meshes.random((n,), "complex128", 1)
    low = np.tril(a) + np.triu(np.full((n, n), np.nan), 1)
    given = {"block": 2, "mesh": mesh, "spec": P()}

    def by_factor(a):
        return plait.linalg.cholesky(a, precision="single", **given).solve(b, spec=P())

    def at_once(a):
        return plait.linalg.solve(a, b, assume="positive", refine=True, **given)

    def in_double(a):
        return plait.linalg.cholesky(a, **given).solve(b, spec=P())

    def slope(solution):
        return jax.grad(lambda a: jnp.sum(jnp.abs(solution(a)) ** 2))(meshes.put(low, mesh))

    want = np.asarray(slope(in_double))
    for solution in (by_factor, at_once):
        matrices.check_solution(a, solution(meshes.put(low, mesh)), b)
        assert np.allclose(slope(solution), want, rtol=1e-8, atol=1e-8 * np.abs(want).max())


def test_gradient_of_a_general_complex_matrix():
    """The scale of single precision, the largest magnitude, has no gradient."""
    n, mesh = 12, meshes.make((4,))
    b, c = (meshes.random((n,), "complex128", i) for i in (1, 2))

    def loss(a):
        x = plait.linalg.solve(a, b, refine=True, block=2, mesh=mesh, spec=P())
        return jnp.sum((x * c).real)

    program = jax.jit(jax.grad(loss))
    for seed in range(4):
        a = meshes.random((n, n), "complex128", seed)
        slope = -np.outer(oracle.solve(a.T, c), oracle.solve(a, b))
        got = program(meshes.put(a, mesh))
        assert np.allclose(got, slope, rtol=1e-8, atol=1e-8 * np.abs(slope).max())


def test_gradient_by_a_factor_in_single_precision():
    n, mesh = 12, meshes.make((4,))
    a, b = matrices.definite(n, cond=1e3), meshes.random((n,), seed=1)

    def loss(a):
        f = plait.linalg.cholesky(a, precision="single", block=2, mesh=mesh, spec=P())
        return jnp.sum(f.solve(b, spec=P()))

    got = np.asarray(jax.jit(jax.grad(loss))(meshes.put(a, mesh)))
    slope = -np.outer(oracle.solve(a, np.ones(n)), oracle.solve(a, b))
    assert np.allclose(got, (slope + slope.T) / 2, rtol=1e-8, atol=1e-8 * np.abs(slope).max())


def test_batch_of_factors_in_single_precision():
    n, mesh = 6, meshes.make((2,))
    a = np.stack([matrices.definite(n, cond=10.0 ** (4 * i), seed=i) for i in range(4)])
    b = meshes.random((n,), seed=1)

    def solve(a):
        return plait.linalg.lu(a, precision="single", mesh=mesh, spec=P()).solve(b, spec=P())

    x = plait.jit(jax.vmap(solve))(meshes.put(a, mesh))
    for i in range(len(a)):  # the last matrix is factored again
        matrices.check_solution(a[i], x[i], b, i)


def test_refinement_on_explicit_axes():
    """Without jax.set_mesh; new values in the iteration are split as its types say."""
    n, mesh = 8, meshes.make((4,), AxisType.Explicit)
    a, b = matrices.definite(n), meshes.random((n,))
    f = plait.linalg.cholesky(meshes.put(a, mesh, P("a")), precision="single")
    x = f.solve(meshes.put(b, mesh, P("a")))
    assert x.sharding.spec == P("a")
    matrices.check_solution(a, x, b)


def test_without_refinement_or_elements():
    a, b = matrices.definite(9), meshes.random((9,))
    for assume in ("general", "positive"):
        assert plait.linalg.solve(a[:0, :0], a[:0], assume=assume, refine=True).shape == (0, 9)
        x = plait.linalg.solve(matrices.put(a, (4,)), b, assume=assume)
        matrices.check_solution(a, x, b)


def test_bad_input():
    a = np.eye(3)
    with pytest.raises(ValueError, match="assume is 'pos'; expected 'general' or 'positive'"):
        plait.linalg.solve(a, a, assume="pos")
    with pytest.raises(ValueError, match="solve: check=True with refinement"):
        plait.linalg.solve(a, a, check=True, refine=True)
    with pytest.raises(ValueError, match="lu: precision is 'half'; expected None or 'single'"):
        plait.linalg.lu(a, precision="half")
    with pytest.raises(ValueError, match="cholesky: check=True with precision='single'"):
        plait.linalg.cholesky(a, precision="single", check=True)
    with pytest.raises(TypeError, match="cholesky: a is float32; precision='single' expects"):
        plait.linalg.cholesky(a.astype("float32"), precision="single")
    x = plait.linalg.solve(2 * a, a, precision="single", assume="positive")
    assert np.array_equal(x, a / 2)
    with pytest.raises(TypeError, match="solve: a is float32; refinement expects float64"):
        plait.linalg.solve(a.astype("float32"), a.astype("float32"), refine=True)


@pytest.mark.parametrize("where", ["eager", "jit"])
def test_operands_in_the_hosts_memory(where):
    """Operands move to the devices: JAX computes with arrays of one memory, as do factors."""
    mesh, b = meshes.make((4,)), meshes.random((12, 2), "float64", 2)
    a = meshes.random((12, 12), "float64", 1) + 12 * np.eye(12)
    host = NamedSharding(mesh, P("a"), memory_kind="pinned_host")
    given = jax.device_put(a, host)
    calls = {
        "solve": (lambda a: plait.linalg.solve(a, b, mesh=mesh, spec=P()), np.linalg.solve(a, b)),
        "rhs": (lambda b: plait.linalg.solve(a, b, mesh=mesh, spec=P()), np.linalg.solve(a, a)),
        "inv": (lambda a: plait.linalg.inv(a, mesh=mesh, spec=P("a")), np.linalg.inv(a)),
        "svdvals": (
            lambda a: plait.linalg.svdvals(a, mesh=mesh, spec=P("a")),
            np.linalg.svd(a, compute_uv=False),
        ),
    }
    for name, (call, expected) in calls.items():
        found = (plait.jit(call) if where == "jit" else call)(given)
        assert np.allclose(found, expected, rtol=1e-11, atol=1e-12), name
    q, r = plait.linalg.qr(given)
    assert np.allclose(q @ r, a, atol=1e-12)


FAILS_ON_ALL = """
import jax, jax.numpy as jnp, plait
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
a = jax.device_put(jnp.zeros((64, 64)), NamedSharding(mesh, P("x")))
given = {"mesh": mesh, "spec": P("x"), "check": True}
for f in (
    lambda a: plait.linalg.lu(a, **given).inv(),
    lambda a: plait.linalg.cholesky(a, **given).logdet(),
    lambda a: plait.linalg.solve(a, jnp.ones(64), **given),
):
    try:
        plait.block(plait.jit(f)(a))
        print("nothing raised")
    except plait.LinAlgError as error:
        print("raised", error)
"""


def test_no_device_waits_for_one_that_found_a_failure():
    """The operations after a check need all devices: each must know that they do not come."""
    env = os.environ | {"PLAIT_TIMEOUT": "0", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", FAILS_ON_ALL], env=env, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.count("raised") == 3 and "nothing" not in done.stdout, done.stdout
