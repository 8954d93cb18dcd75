"""Regions and plait.jit inside JAX's transformations: loops, references, functions of JAX."""

import functools
import pickle

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P

total = functools.partial(plait.allreduce, op=plait.SUM)
WRAPS = {"plait.jit": plait.jit, "jax.jit": jax.jit, "eager": lambda f: f}
EVERY_WRAP = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
OF_SUM = pytest.mark.parametrize("op", [total, plait.region(total)], ids=["plain", "region"])


# ---- loops under vmap --------------------------------------------------------------------------


@EVERY_WRAP
@OF_SUM
def test_lanes_of_a_loop_that_are_done_stay_as_they_are(wrap, op):
    def count(n, op):
        return jax.lax.while_loop(lambda k: op(k) < n, lambda k: k + 1, jnp.zeros_like(n))

    n = jnp.array([3.0, 7.0, 5.0])
    for many in (jax.vmap, lambda f: lambda n: jax.vmap(jax.vmap(f))(n[None])[0]):
        assert np.array_equal(wrap(many(lambda n: count(n, op)))(n), n)
    one = wrap(jax.vmap(lambda n: count(3.0, op) + 0 * n))(n)  # the same round for all lanes
    assert np.array_equal(one, [3, 3, 3])
    named = jax.vmap(lambda n: count(n, op) + jax.lax.psum(op(n), "i"), axis_name="i")
    assert np.array_equal(wrap(named)(n), n + 15)


@OF_SUM
def test_conjugate_gradients_that_stop_by_a_sum(op):
    """Each right-hand side stops at its own step; one is solved before the first step."""
    a = jnp.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])

    def solve(b):
        def goes_on(s):
            return (op(jnp.vdot(s[1], s[1])) > 1e-10) & (s[3] < 50)

        def step(s):
            x, r, p, k = s
            q, rr = a @ p, op(jnp.vdot(r, r))
            x, r = x + rr / op(jnp.vdot(p, q)) * p, r - rr / op(jnp.vdot(p, q)) * q
            return x, r, r + op(jnp.vdot(r, r)) / rr * p, k + 1

        return jax.lax.while_loop(goes_on, step, (jnp.zeros_like(b), b, b, 0))

    b = jnp.stack([jnp.array([1.0, 2, 3]), jnp.zeros(3), jnp.array([1.0, 0, 0])])
    x, _, _, k = plait.jit(jax.vmap(solve))(b)
    assert np.allclose(x, np.linalg.solve(np.asarray(a), np.asarray(b).T).T, atol=1e-5)
    assert k[1] == 0 and k[0] > 1


# ---- transposes ----------------------------------------------------------------------------------


def test_transposes():
    """Transposes as solvers take them; a transposed region is a region."""
    a = jnp.array([[4.0, 1, 0], [0, 3, 1], [1, 0, 2]])
    operator = plait.region(lambda x: total(a @ x))
    b = jnp.array([1.0, 2, 3])
    transposed = jax.linear_transpose(operator, b)
    assert np.allclose(transposed(b)[0], a.T @ b)
    assert "plait_region" in str(jax.make_jaxpr(transposed)(b))
    scaled = plait.region(lambda x, y: total(x) * y)  # y is constant
    assert np.allclose(jax.linear_transpose(lambda x: scaled(x, b), b)(b)[0], b * b)

    def loss(solve):
        return jax.grad(lambda b: jnp.sum(solve(b) ** 2))

    want = loss(lambda b: jnp.linalg.solve(a, b))(b)
    for solver in (jax.scipy.sparse.linalg.gmres, jax.scipy.sparse.linalg.bicgstab):
        for wrap in (plait.jit, jax.jit):
            got = wrap(loss(lambda b, solver=solver: solver(operator, b)[0]))(b)
            assert np.allclose(got, want, atol=1e-4)


def test_an_axis_of_vmap_is_known_inside():
    x = jnp.ones((3, 2))
    f = plait.region(lambda x: jax.lax.psum(total(x), "i"))
    for call in (jax.vmap(f, axis_name="i"), jax.jit(jax.vmap(f, axis_name="i"))):
        assert np.array_equal(call(x), 3 * x)


# ---- what JAX lowers first -----------------------------------------------------------------------


def interpolated(x):
    return jnp.sum(jnp.interp(total(x) + 0.5, x, x**2) ** 2)


def binned(x):
    bins = jnp.digitize(total(x), jnp.array([2.0, 4.0], x.dtype))
    return jnp.sum(bins.astype(x.dtype) * total(x))


def root(x):
    def newton(f, y):
        return jax.lax.fori_loop(0, 30, lambda i, y: y - f(y) / (2 * y), y)

    def tangent(g, y):
        return y / g(jnp.ones_like(y))

    return jax.lax.custom_root(lambda y: total(y**2) - x[0], 0 * x[0] + 1, newton, tangent)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("f", [interpolated, binned, root])
def test_functions_that_jax_lowers_by_itself(f):
    x = jnp.array([3.0, 5.0, 7.0])
    want = f(x), jax.grad(f)(x)
    for wrap in (plait.jit, lambda f: jax.jit(plait.region(f)), lambda f: plait.jit(jax.jit(f))):
        got = wrap(f)(x), wrap(jax.grad(f))(x), jax.grad(wrap(f))(x)
        assert np.allclose(got[0], want[0], rtol=1e-5)
        assert all(np.allclose(slope, want[1], rtol=1e-5) for slope in got[1:])


def test_such_a_function_beside_global_arrays():
    mesh = meshes.make((4,))
    x = meshes.put(np.linspace(0, 1, 8), mesh, P("a"))

    def f(x):
        return plait.sum(jnp.interp(x, jnp.linspace(0, 1, 3), jnp.arange(3.0)), mesh=mesh)

    assert np.isclose(plait.jit(f)(x), 8.0)


# ---- references, and arguments that are none -----------------------------------------------------


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="JAX has no references")
@EVERY_WRAP
def test_references(wrap):
    def own(x):
        r = jax.new_ref(x)
        r[0] = total(r[0] + 1)
        jax.lax.fori_loop(1, 3, lambda i, _: r.__setitem__(i, total(r[i] * i)), None)
        return r[...]

    x = jnp.arange(1.0, 4)
    assert np.array_equal(wrap(own)(x), [2, 2, 6])
    if wrap is not WRAPS["eager"]:
        assert np.array_equal(wrap(jax.grad(lambda x: jnp.sum(own(x))))(x), [1, 1, 2])
    given = jax.new_ref(x)
    wrap(lambda r: r.__setitem__(0, total(r[1] + 1)))(given)
    assert np.array_equal(given[...], [3, 2, 3])

    @wrap
    def around(y):
        given[1] = total(y)
        return y

    around(jnp.asarray(9.0))
    assert np.array_equal(given[...], [3, 9, 3])


class Grid:
    """A static argument, compared by identity."""

    def __init__(self, n):
        self.n = n


jax.tree_util.register_pytree_node(Grid, lambda g: ((g.n,), None), lambda _, n: Grid(n[0]))


def test_static_arguments_are_the_objects_that_were_given():
    grid = Grid(np.arange(3))

    def first(x, g, k):
        assert g is grid
        return total(x[: int(g.n[2])]) + k[0]

    x = jnp.ones(4)
    for jit in (jax.jit, plait.jit):
        assert np.array_equal(jit(first, static_argnums=1)(x, grid, (x[0],)), [2, 2])


# ---- started operations --------------------------------------------------------------------------


def test_derivatives_of_derivatives_through_a_wait_after_something():
    def step(u):
        begun = plait.start(plait.allreduce, u, plait.SUM)
        own = 2 * u
        return own + plait.wait(begun, after=own)

    def loss(step):
        return lambda u: jnp.sum(jax.lax.scan(lambda u, _: (step(u), None), u, None, 2)[0] ** 4)

    u = jnp.arange(1.0, 4)
    for second in (
        lambda f: jax.grad(lambda w: jax.jvp(f, (w,), (u,))[1]),
        lambda f: lambda w: jax.jvp(lambda w: jax.jvp(f, (w,), (u,))[1], (w,), (u,))[1],
        lambda f: jax.grad(lambda w: jnp.vdot(jax.grad(f)(w), u)),
    ):
        want = second(loss(lambda u: 3 * u))(u)
        for jit in (plait.jit, jax.jit):
            assert np.allclose(jit(second(loss(step)))(u), want)


# ---- ahead of time -------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [plait.jit, jax.jit])
def test_programs_compiled_ahead_of_time_run_more_than_once(jit):
    x = jnp.arange(3.0)
    for f in (lambda x: total(x) * 2, jax.grad(lambda x: jnp.sum(total(x) ** 2))):
        compiled = jit(f).lower(x).compile()
        for _ in range(3):
            assert np.array_equal(compiled(x), 2 * x)


# ---- under other transformations -----------------------------------------------------------------


def loops():
    """Double a number until it is large: the condition communicates, or the body."""
    return {
        "condition": lambda x: jax.lax.while_loop(lambda c: total(c) < 100, lambda c: 2 * c, x),
        "body": lambda x: jax.lax.while_loop(lambda c: c < 100, lambda c: total(2 * c), x),
    }


@pytest.mark.parametrize("loop", loops().values(), ids=loops())
@EVERY_WRAP
def test_loops_under_checkpoint_and_jacobians(loop, wrap):
    def loss(x):
        return x * loop(jax.lax.stop_gradient(x))

    assert wrap(jax.grad(jax.checkpoint(loss)))(3.0) == 192
    assert wrap(jax.jacfwd(loop))(3.0) == 64  # one condition for all directions
    pair = jax.vmap(lambda x: (loop(3.0), x * loop(3.0)), out_axes=(None, 0))
    assert np.array_equal(wrap(pair)(jnp.arange(2.0))[1], [0, 192])


@pytest.mark.parametrize("outer", [jax.jit, plait.jit])
def test_methods_are_not_those_of_a_function_inside(outer):
    """functools.wraps copies an object's dictionary from a function to the result of jax.grad."""
    loss = plait.jit(lambda x: jnp.sum(total(x) ** 2))
    x = jnp.arange(3.0)
    for f in (jax.grad(loss), jax.vmap(loss), jax.value_and_grad(loss)):
        given = jnp.stack([x, x]) if f is not None and "vmap" in f.__name__ else x
        want = jax.eval_shape(f, given)
        jitted = outer(f)
        for shape in (jitted.eval_shape(given), jitted.trace(given).out_info):
            assert jax.tree.map(jnp.shape, shape) == jax.tree.map(jnp.shape, want)
        got, want = jitted.lower(given).compile()(given), f(given)
        assert all(map(np.array_equal, jax.tree.leaves(got), jax.tree.leaves(want)))


class Model:
    scale = 2.0

    @plait.jit
    def method(self, x):
        return self.scale * total(x)


jax.tree_util.register_static(Model)


def test_methods_of_classes():
    assert np.array_equal(Model().method(jnp.ones(2)), [2, 2])
    assert "plait.jit of" in repr(Model.method)
    assert Model.method.__name__ == "method"


# ---- arguments, and NaN --------------------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class Node:
    """A mutable node."""

    def __init__(self, **fields):
        self.fields = fields

    def tree_flatten(self):
        return list(self.fields.values()), tuple(self.fields)

    @classmethod
    def tree_unflatten(cls, names, values):
        return cls(**dict(zip(names, values, strict=True)))


@pytest.mark.parametrize("wrap", [plait.jit, jax.jit, lambda f: jax.jit(plait.region(f))])
def test_nodes_of_arguments_are_made_anew(wrap):
    """Also nodes without values, inside arguments with values."""
    model = Node(weight=jnp.ones(3), inner=Node(name=None, more=Node()))
    seen = []

    def step(model, x):
        seen.append((model, model.fields["inner"], model.fields["inner"].fields["more"]))
        return total(model.fields["weight"] * x)

    assert np.array_equal(wrap(step)(model, 2.0), [2, 2, 2])
    given = (model, model.fields["inner"], model.fields["inner"].fields["more"])
    assert all(node not in given for node in seen[-1])


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_debug_nans_and_infs_end_at_once(wrap):
    mesh = meshes.make((4,))
    bad = jax.device_put(-jnp.eye(16), jax.NamedSharding(mesh, P("a")))
    x = jnp.array([jnp.nan, 1.0])
    with jax.debug_nans(True):
        for f, given in ((total, x), (lambda a: plait.linalg.cholesky(a).logdet(), bad)):
            with pytest.raises(FloatingPointError, match="nan"):
                wrap(f)(given)
        assert np.array_equal(wrap(total)(x[1:]), [1])
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match="inf"):
        wrap(total)(jnp.array([jnp.inf]))


def times(x, n):
    return n * plait.allreduce(x, plait.SUM)


def test_a_pickled_function_has_its_options():
    read = pickle.loads(pickle.dumps({"f": plait.jit(times, static_argnames="n")}))["f"]
    assert read(jnp.ones(2), n=3).tolist() == [3, 3]
    assert read.__name__ == "times" and read.__wrapped__ is times
    with pytest.raises(ValueError, match="unhashable|[Nn]on-hashable"):
        read(jnp.ones(2), n=[3])
