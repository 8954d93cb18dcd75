"""Call sites: the user's line in messages and programs, kept by derivatives, free of recompiles."""

import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _core, _eager, _sites


def line():
    """``file:line`` of the caller."""
    return f"test_sites.py:{inspect.currentframe().f_back.f_lineno}"


def too_long(x):
    return plait.sendrecv(x, x[:2], 0, 0), line()


def jaxprs_in(params):
    """The jaxprs in an equation's parameters; jax.extend has no function for this before 0.10."""
    for value in jax.tree.leaves(list(params.values())):
        jaxpr = getattr(value, "jaxpr", value)
        if hasattr(jaxpr, "eqns"):
            yield jaxpr


def sites_of(jaxpr):
    """Texts of the sites of all operations in a program, in order."""
    found = []
    for eqn in jaxpr.eqns:
        if "site" in eqn.params:
            found.append(_core.site_text(eqn.params["site"]))
        for inner in jaxprs_in(eqn.params):
            found += sites_of(inner)
    return found


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, plait.jit])
def test_errors_end_with_the_line(transform):
    where = []

    def f(x):
        y, at = too_long(x)
        where.append(at)
        return y

    with pytest.raises(plait.TruncationError) as caught, plait.errors():
        jax.block_until_ready(transform(f)(jnp.arange(3)))
    at = f"test_sites.py:{too_long.__code__.co_firstlineno + 1}"
    assert str(caught.value).splitlines()[0].endswith(f" at {at}")


def test_an_error_of_the_registry_ends_with_the_line():
    comm = plait.Comm._make(None, 1, 0)

    @plait.jit
    def f(x):
        return plait.allreduce(x, plait.SUM, comm=comm)

    f(jnp.ones(2))
    comm.free()
    with pytest.raises(plait.CommError) as caught:
        plait.block(f(jnp.ones(2)))
    at = f"test_sites.py:{f.__wrapped__.__code__.co_firstlineno + 2}"
    assert str(caught.value).splitlines()[0].endswith(f"was freed at {at}")


def summed(x):
    return plait.allreduce(x, plait.SUM).sum()


def multiplied(x):
    return plait.allreduce(x, plait.PROD).sum()


def exchanged(x):
    return plait.sendrecv(x, x, 0, 0).sum()


def given(x):
    return plait.bcast(x, 0).sum()


def gathered(x):
    return plait.allgather(x).sum()


def dealt(x):
    return plait.scatter(plait.gather(x, 0), 0).sum()


def scanned(x):
    return plait.scan(x, plait.SUM).sum()


@pytest.mark.parametrize(
    "f", [summed, multiplied, exchanged, given, gathered, dealt, scanned], ids=lambda f: f.__name__
)
def test_derivatives_keep_the_line_of_the_forward_call(f):
    at = f"test_sites.py:{f.__code__.co_firstlineno + 1}"
    x = jnp.ones(3)
    for g in (jax.grad(f), jax.vmap(f), lambda x: jax.jvp(f, (x,), (x,)), jax.hessian(f)):
        found = sites_of(jax.make_jaxpr(g)(x if g is not jax.vmap(f) else x[None]).jaxpr)
        assert found and set(found) == {at}, found


def spectrum(x):
    return plait.fft.pfft3d(x)


def around(x):
    return plait.halo.exchange(x, 1, spec=P("x"))


def moved(x):
    return plait.redistribute(x, P())


def attribute(text):
    """Texts of the sites in a lowered program."""
    words = text.replace(",", " ").replace("}", " ").split()
    numbers = [words[i + 2] for i, word in enumerate(words) if word == "site"]
    return [_core.site_text(int(number)) for number in numbers]


@pytest.mark.parametrize("f", [spectrum, around, moved])
def test_operations_on_a_mesh_know_the_line_too(f):
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
    x = jax.device_put(jnp.ones((16, 8, 8), jnp.complex64), NamedSharding(mesh, P("x")))
    at = f"test_sites.py:{f.__code__.co_firstlineno + 1}"

    def scalar(x):
        return jnp.real(f(x)).sum()

    with jax.set_mesh(mesh):
        lowered = jax.jit(jax.grad(scalar)).lower(x)
    found = attribute(lowered.as_text())
    assert found and set(found) == {at}, found


def test_eager_calls_on_other_lines_share_one_program(monkeypatch):
    x = jnp.full(3, 2.0)
    plait.allreduce(x, plait.SUM)
    monkeypatch.setattr(_eager, "program", None)  # no program is searched for again
    np.testing.assert_array_equal(plait.allreduce(x, plait.SUM), x)
    np.testing.assert_array_equal(plait.allreduce(x, plait.SUM), x)


def test_numbers_do_not_depend_on_the_rest_of_the_file():
    """A function that moves down keeps its numbers; two of its lines have different numbers."""
    text = "def f(see):\n    see()\n    return see()\n"
    seen = []

    def see():
        frame = sys._getframe(1)
        seen.append((_sites._number(frame), _sites._text(frame)))

    for lead in ("", "\n\n# comment\n"):
        names = {}
        exec(compile(lead + text, "/somewhere/program.py", "exec"), names)
        names["f"](see)
    (one, at), (two, _), (moved_one, moved_at), (moved_two, _) = seen
    assert (one, two) == (moved_one, moved_two) and one != two
    assert (at, moved_at) == ("program.py:2", "program.py:5")


def test_numbers_that_collide_and_long_texts():
    first = _core.put_site(12345, "a.py:1")
    second = _core.put_site(12345, "b.py:1")
    assert first == 12345 and second == 12346
    assert _core.put_site(12345, "b.py:1") == second
    assert [_core.site_text(n) for n in (first, second, 99, 0)] == ["a.py:1", "b.py:1", "", ""]
    long = _core.put_site(777, "x" * 200 + ".py:123456")
    assert _core.site_text(long).endswith("x.py:123456") and len(_core.site_text(long)) == 55
