"""The examples of docs/gradients.md and docs/compat.md, and docstrings that need MPI, on ranks."""

import doctest
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from plait import _neighbor

DOCS = pathlib.Path(__file__).parents[3] / "docs"


def blocks(name):
    """The programs in a text."""
    return re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)


EXAMPLES = blocks("gradients.md")


def total(n):
    return n * (n + 1) / 2


# The gradient that each example says, on each rank.
WANT = [
    lambda n, rank: total(n),
    lambda n, rank: 2 * n,
    lambda n, rank: total(n),
    None,
    lambda n, rank: 1 + 2 * (n - 1) if rank == 0 else 0,
]


def test_every_example_is_judged():
    assert len(EXAMPLES) == len(WANT)


@pytest.mark.parametrize("number", range(len(WANT)))
def test_example(world, number):
    names = {"jax": jax, "jnp": jnp, "plait": plait, "comm": plait.Comm(world)}
    exec(EXAMPLES[number], names)
    if WANT[number] is not None:
        assert np.allclose(names["g"], WANT[number](world.size, world.rank))
        return
    if world.size == 1:
        assert np.allclose(names["gradient"](jnp.ones(2)), 1)
        return
    with pytest.raises(plait.ReplicationError), plait.errors():
        plait.block(names["gradient"](jnp.ones(2)))


def test_docstrings_of_neighbors(world):
    if world.size > 1:
        pytest.skip("they are written for one rank")
    for name in ("neighbor_allgather", "neighbor_alltoall", "shift"):
        text = getattr(_neighbor, name).__doc__.replace("  # doctest: +SKIP", "")
        example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
        assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


def test_examples_of_the_adapters(world, capsys):
    n, rank = world.size, world.rank
    programs = [{}, {}, {}]
    for text, names in zip(blocks("compat.md"), programs, strict=True):
        exec(text, names)
    assert capsys.readouterr().out.split()[-1] == f"{n}.]]"
    assert np.array_equal(programs[0]["sum_of_all"](jnp.ones((5, 4))), np.full((5, 4), n))
    factor = 2 if rank == 0 else 1
    assert programs[1]["value"] == factor * n * (n - 1) / 2
    assert np.array_equal(programs[1]["gradient"], [factor])
    last = programs[2]
    assert np.all(last["y"] == (rank - 1) % n) and np.all(last["x"] == rank)
    assert last["text"] == "of mpi4py"
