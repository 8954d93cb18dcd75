"""plait.linalg.solve: mixed precision with refinement."""

import jax
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
    with pytest.raises(TypeError, match="solve: refine of float32; expected float64"):
        plait.linalg.solve(a.astype("float32"), a.astype("float32"), refine=True)
