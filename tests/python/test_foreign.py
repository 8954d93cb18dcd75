"""Operations inside primitives of other libraries: those of lineax, which optimistix solves by."""

import functools

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P

lx = pytest.importorskip("lineax")
optx = pytest.importorskip("optimistix")
plait.keep_order(pytest.importorskip("lineax.internal").linear_solve_p)

total = functools.partial(plait.allreduce, op=plait.SUM)
WRAPS = {"plait.jit": plait.jit, "jax.jit": jax.jit, "eager": lambda f: f}
EVERY_WRAP = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
COMPILED = pytest.mark.parametrize("wrap", [plait.jit, jax.jit])
A = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]], np.float32)
B = np.array([1.0, 2, 3], np.float32)
SOLVERS = {"CG": lx.CG, "GMRES": lx.GMRES, "BiCGStab": lx.BiCGStab}


def operator(product, x):
    kinds = (lx.symmetric_tag, lx.positive_semidefinite_tag)
    return lx.FunctionLinearOperator(product, jax.ShapeDtypeStruct(x.shape, x.dtype), kinds)


def solve(b, scale=1.0, solver=lx.CG):
    product = operator(lambda x: total(scale * (A @ x)), b)
    return lx.linear_solve(product, b, solver(1e-6, 1e-6)).value


# ---- lineax --------------------------------------------------------------------------------------


@pytest.mark.long(keep=4)
@EVERY_WRAP
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_solves(wrap, solver):
    x = wrap(lambda b: solve(b, solver=solver))(B)
    assert np.allclose(x, np.linalg.solve(A, B), atol=1e-4)


@pytest.mark.long(keep=1)
@COMPILED
def test_derivatives_of_a_solve_by_everything_in_it(wrap):
    """Backwards and forwards, by the right-hand side and by what the operator closes over."""

    def loss(b, scale):
        return jnp.sum(solve(b, scale) ** 2)

    x = np.linalg.solve(A, B)
    by_b, by_scale = wrap(jax.grad(loss, (0, 1)))(B, 2.0)
    assert np.allclose(by_b, np.linalg.solve(A, 2 * x) / 4, atol=1e-4)
    assert np.isclose(by_scale, -2 * x @ x / 8, rtol=1e-4)
    tangent = wrap(lambda b: jax.jvp(lambda b: solve(b, 2.0), (b,), (b,))[1])(B)
    assert np.allclose(tangent, x / 2, atol=1e-4)
    second = wrap(jax.hessian(lambda s: loss(B, s)))(2.0)
    assert np.isclose(second, 6 * x @ x / 16, rtol=1e-3)


@pytest.mark.long(keep=1)
@COMPILED
def test_batches_of_solves(wrap):
    many = jnp.stack([B, 2 * B, 0 * B])
    x = wrap(jax.vmap(solve))(many)
    assert np.allclose(x, np.linalg.solve(A, many.T).T, atol=1e-4)
    slopes = wrap(jax.vmap(jax.grad(lambda b: jnp.sum(solve(b)))))(many)
    assert np.allclose(slopes, np.linalg.solve(A, np.ones(3)), atol=1e-4)


@pytest.mark.long(keep=1)
@COMPILED
def test_solves_in_loops_and_branches(wrap):
    def step(x, _):
        return jax.lax.cond(total(x[0]) > 100, lambda x: x, solve, x), total(x[0])

    def steps(b):
        return jax.lax.scan(step, b, length=3)

    x, heads = wrap(steps)(B)
    want = [B, *(np.linalg.solve(np.linalg.matrix_power(A, k), B) for k in (1, 2, 3))]
    assert np.allclose(x, want[3], atol=1e-4)
    assert np.allclose(heads, [x[0] for x in want[:3]], atol=1e-4)
    slope = wrap(jax.grad(lambda b: jnp.sum(steps(b)[0])))(B)
    assert np.allclose(slope, np.linalg.solve(np.linalg.matrix_power(A, 3), np.ones(3)), atol=1e-4)


def test_a_solve_is_in_the_order_of_the_program():
    """The solve uses the token of the operations around it; no new token begins."""

    def f(b):
        return total(solve(total(b)))

    program = jax.make_jaxpr(f)(B)
    assert program.effects and all(eqn.effects == program.effects for eqn in program.eqns)
    text = jax.jit(f).lower(B).as_text()
    assert "create_token" not in text and text.count("@plait_allreduce") > 3


def test_solves_without_operations_stay_as_they_are():
    def f(b):
        return lx.linear_solve(operator(lambda x: A @ x, b), b, lx.CG(1e-6, 1e-6)).value

    assert not jax.make_jaxpr(f)(B).effects
    assert np.allclose(f(B), np.linalg.solve(A, B), atol=1e-4)


class Summed(lx.AbstractLinearOperator):
    """An operator of the user, whose program nobody sees before the operator is called."""

    matrix: jax.Array

    def mv(self, vector):
        return total(self.matrix @ vector)

    def as_matrix(self):
        return total(self.matrix)

    def transpose(self):
        return Summed(self.matrix.T)

    def in_structure(self):
        return jax.ShapeDtypeStruct((3,), self.matrix.dtype)

    out_structure = in_structure


lx.is_symmetric.register(Summed, lambda _: True)
lx.is_positive_semidefinite.register(Summed, lambda _: True)
lx.is_negative_semidefinite.register(Summed, lambda _: False)
lx.linearise.register(Summed, lambda operator: operator)


@COMPILED
def test_operators_of_the_users_own(wrap):
    def f(m):
        return lx.linear_solve(Summed(m), B, lx.CG(1e-6, 1e-6)).value

    assert jax.make_jaxpr(f)(A).effects
    assert np.allclose(wrap(f)(A), np.linalg.solve(A, B), atol=1e-4)


# ---- optimistix ----------------------------------------------------------------------------------


def newton(b):
    def f(y, b):
        return total(A @ y + 0.1 * y**3) - b

    solver = optx.Newton(1e-6, 1e-6, linear_solver=lx.GMRES(1e-6, 1e-6))
    return optx.root_find(f, solver, jnp.zeros_like(b), args=b, max_steps=32).value


@pytest.mark.long(keep=1)
@COMPILED
def test_newton_krylov(wrap):
    """Newton's method linearizes its function, and solves by products with the linearization."""
    y = wrap(newton)(B)
    assert np.allclose(A @ y + 0.1 * y**3, B, atol=1e-4)
    slope = wrap(jax.grad(lambda b: jnp.sum(newton(b))))(B)
    assert np.allclose(slope, np.linalg.solve(A + np.diag(0.3 * y**2), np.ones(3)), atol=1e-4)


# ---- global arrays -------------------------------------------------------------------------------


@COMPILED
def test_global_arrays(wrap):
    """The operator's product is a sum over the devices of a mesh; in lineax its axes are Auto."""
    mesh = meshes.make((4,))
    rng = np.random.default_rng(0)
    u, b = rng.standard_normal((2, 8)).astype(np.float32)
    want = np.linalg.solve(2 * np.eye(8) + np.outer(u, u), b)
    u, b = (meshes.put(x, mesh, P("a")) for x in (u, b))

    def solved(u, b):
        product = operator(lambda x: 2 * x + u * plait.sum(u * x, mesh=mesh), b)
        return lx.linear_solve(product, b, lx.CG(1e-6, 1e-6)).value

    assert np.allclose(wrap(solved)(u, b), want, atol=1e-4)


# ---- what keep_order takes -----------------------------------------------------------------------


def test_only_primitives_that_do_what_they_lower():
    with pytest.raises(TypeError, match=r"is no primitive; expected .*linear_solve_p"):
        plait.keep_order(lx.linear_solve)
    with pytest.raises(TypeError, match="is compiled by JAX when it is called eagerly"):
        plait.keep_order(jax.lax.sin_p)


def test_saying_it_twice_is_saying_it_once():
    twice = jex.Primitive("twice")
    twice.def_impl(lambda x: total(x) + x)
    twice.def_abstract_eval(lambda x: x)
    plait.keep_order(twice)
    typed = twice.abstract_eval
    plait.keep_order(twice)
    assert twice.abstract_eval is typed and jax.make_jaxpr(twice.bind)(1.0).effects
