"""plait.linalg.solve: mixed precision with refinement."""

import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import oracle
import plait
import pytest
from jax.sharding import PartitionSpec as P


@pytest.mark.parametrize(
    "assume, dtype, shape", [("general", "complex128", (2, 2)), ("positive", "float64", (4,))]
)
def test_refinement(assume, dtype, shape):
    n, mesh = 50, meshes.make(shape)
    b = meshes.random((n, 3), dtype, 1)

    def solve(a, b):
        return plait.linalg.solve(a, b, assume=assume, refine=True, block=4, mesh=mesh, spec=P())

    program = plait.jit(solve)
    for cond in (1e1, 1e4, 1e11):  # the last one does not converge: it is factored again
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
    for cond in (1e1, 1e5, 1e12):  # the last one does not converge: it is factored again
        a = matrices.definite(n, dtype, cond)
        f = program(meshes.put(a, mesh))
        kinds = {x.dtype.itemsize for x in jax.tree.leaves(f) if x.dtype.kind in "fc"}
        assert kinds == {a.itemsize, a.itemsize // 2} and f.dtype == dtype and f.shape == (n, n)
        matrices.check_solution(a, solve(f, meshes.put(b, mesh)), b, cond)


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
    for i in range(len(a)):  # the last one is factored again
        matrices.check_solution(a[i], x[i], b, i)


def test_without_refinement():
    a, b = matrices.definite(9), meshes.random((9,))
    for assume in ("general", "positive"):
        x = plait.linalg.solve(matrices.put(a, (4,)), b, assume=assume)
        matrices.check_solution(a, x, b)


def test_bad_input():
    a = np.eye(3)
    with pytest.raises(ValueError, match="assume is 'pos'; expected 'general' or 'positive'"):
        plait.linalg.solve(a, a, assume="pos")
    with pytest.raises(ValueError, match="solve: check with refine"):
        plait.linalg.solve(a, a, check=True, refine=True)
    with pytest.raises(ValueError, match="lu: precision is 'half'; expected None or 'single'"):
        plait.linalg.lu(a, precision="half")
    with pytest.raises(ValueError, match="cholesky: check of a factor in single precision"):
        plait.linalg.cholesky(a, precision="single", check=True)
    with pytest.raises(TypeError, match="cholesky: a is float32; of single precision are"):
        plait.linalg.cholesky(a.astype("float32"), precision="single")
    x = plait.linalg.solve(2 * a, a, precision="single", assume="positive")
    assert np.array_equal(x, a / 2)
    with pytest.raises(TypeError, match="solve: refine of float32; expected float64"):
        plait.linalg.solve(a.astype("float32"), a.astype("float32"), refine=True)
