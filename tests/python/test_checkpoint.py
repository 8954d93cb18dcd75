"""jax.checkpoint does not change derivatives, not even of complex factorizations."""

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from jax._src.custom_derivatives import custom_jvp_call_p
from jax._src.interpreters import partial_eval
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

N = 6
FUNCTIONS = {
    "inv": lambda a, kw: plait.linalg.inv(a, **kw),
    "solve": lambda a, kw: plait.linalg.solve(a, a[:, :2] ** 2, **kw),
    "lu": lambda a, kw: plait.linalg.lu(a, **kw).l,
    "slogdet": lambda a, kw: plait.linalg.slogdet(a, **kw)[1],
    "cholesky": lambda a, kw: plait.linalg.cholesky(a @ a.conj().T, **kw).l,
    "eigh": lambda a, kw: plait.linalg.eigvalsh(a + a.conj().T, **kw),
    "qr": lambda a, kw: plait.linalg.qr(a, **kw).r,
}


def matrix(dtype):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((N, N)) + 1j * rng.standard_normal((N, N))
    return jnp.asarray((a if dtype == np.complex128 else a.real) + 3 * np.eye(N), dtype)


@pytest.fixture
def kw():
    mesh = jax.make_mesh((2,), ("x",), (AxisType.Auto,), devices=jax.devices()[:2])
    return {"mesh": mesh, "spec": P()}


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_factorizations(name, dtype, kw):
    a, loops = matrix(dtype), dtype == np.complex128 and name == "inv"

    def loss(a, wrap):
        found = wrap(lambda a: FUNCTIONS[name](a, kw))(a)
        return jnp.sum(jnp.abs(found) ** 2).real

    def looped(a):
        step = jax.checkpoint(lambda c, _: (FUNCTIONS[name](c, kw), None))
        return jnp.sum(jnp.abs(jax.lax.scan(step, a, None, length=1)[0]) ** 2)

    want = jax.jit(jax.grad(lambda a: loss(a, lambda f: f)))(a)
    got = jax.jit(jax.grad(lambda a: loss(a, jax.checkpoint)))(a)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
    if loops:
        np.testing.assert_allclose(jax.jit(jax.grad(looped))(a), want, rtol=1e-9, atol=1e-9)


POLICIES = [
    None,
    jax.checkpoint_policies.everything_saveable,
    jax.checkpoint_policies.dots_saveable,
    jax.checkpoint_policies.save_only_these_names("kept"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=["none", "all", "dots", "names"])
def test_functions_of_jax_are_as_without_plait(policy, monkeypatch):
    """Like plait's factorizations they have rules of their own; JAX decides what is saved."""
    x = jnp.linspace(-1.0, 1.0, 5)

    def f(x):
        y = checkpoint_name(jax.nn.relu(jnp.sin(x)), "kept")
        return jnp.sum(jnp.logaddexp(y, x) * jax.nn.relu(y @ jnp.outer(x, x)))

    def program():
        g = jax.grad(jax.checkpoint(lambda x: f(x), policy=policy))
        return g(x), str(jax.make_jaxpr(g)(x))

    got, text = program()
    np.testing.assert_allclose(got, jax.grad(f)(x), rtol=1e-12)
    monkeypatch.delitem(partial_eval.partial_eval_jaxpr_custom_rules, custom_jvp_call_p)
    assert program()[1] == text
