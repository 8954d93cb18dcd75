"""The examples of the pages about ranks, and docstrings that need MPI."""

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


# The gradient that each example states, on each rank.
WANT = [
    lambda n, rank: total(n),
    lambda n, rank: 2 * n,
    lambda n, rank: total(n),
    lambda n, rank: total(n),
    None,
    lambda n, rank: 1 + 2 * (n - 1) if rank == 0 else 0,
]

# The example that computes the gradient of shared parameters in two ways.
PARAMETERS = 2


def test_every_example_is_judged():
    assert len(EXAMPLES) == len(WANT)


@pytest.mark.parametrize("number", range(len(WANT)))
def test_example(world, number):
    names = {}
    for text in EXAMPLES[: number + 1]:  # as a reader runs them
        exec(text, names)
    if WANT[number] is not None:
        assert np.allclose(names["g"], WANT[number](world.size, world.rank))
        if number == PARAMETERS:
            assert np.array_equal(names["h"], names["g"])
        return
    if world.size == 1:
        assert np.allclose(names["gradient"](jnp.ones(2)), 1)
        return
    with pytest.raises(plait.ReplicationError), plait.errors():
        plait.block(names["gradient"](jnp.ones(2)))


def test_guide_to_ranks(world):
    """All blocks of docs/ranks.md as one program, and each result that the page states."""
    n, rank, names = world.size, world.rank, {}
    for text in blocks("ranks.md"):
        exec(text, names)
    mean = (n + 1) / 2
    assert np.allclose(names["average"], mean)
    assert all(np.all(leaf == 1) for leaf in names["weights"].values())
    every = np.repeat(np.arange(1.0, n + 1), 3)
    while np.sum(every**2) > 1:
        every = every / 2
    assert np.allclose(names["small"], every[3 * rank : 3 * rank + 3])
    ring = np.arange(4.0 * n)
    ring = ring + 0.25 * (np.roll(ring, 1) - 2 * ring + np.roll(ring, -1))
    assert np.allclose(names["cells"], ring[4 * rank : 4 * rank + 4])
    assert np.array_equal(names["from_below"], np.full(3, rank))
    assert names["of_half"] == len(range(rank % 2, n, 2))
    product = n * mean * 3 * np.sin(rank + 1.0) * np.cos(rank + 1.0)
    assert np.allclose(names["product"], product, rtol=1e-5)
    assert np.allclose(names["slope"], 2 * mean)
    assert names["devices"] == jax.local_device_count()


def test_docstrings_of_neighbors(world):
    if world.size > 1:
        pytest.skip("they are written for one rank")
    for name in ("neighbor_allgather", "neighbor_alltoall", "shift"):
        text = getattr(_neighbor, name).__doc__.replace("  # doctest: +SKIP", "")
        example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
        assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


def test_examples_of_the_adapters(world, capsys):
    n, rank = world.size, world.rank
    programs = [{} for _ in range(5)]
    for text, names in zip(blocks("compat.md"), programs, strict=True):
        exec(text, names)
    sums, tokens, parts, doubled, sharp = programs
    assert capsys.readouterr().out.split()[-1] == f"{n}.]]"
    assert np.array_equal(sums["sum_of_all"](jnp.ones((5, 4))), np.full((5, 4), n))
    assert np.array_equal(tokens["total"], np.full((3, 3), n * (n - 1) / 2))
    weights = np.where(np.arange(2 * n) < 2 * (n - 1), 1, 2)
    assert float(parts["value"]) == weights @ np.arange(2 * n)
    assert np.array_equal(parts["gradient"], weights * (rank == 0))
    factor = 2 if rank == 0 else 1
    assert doubled["value"] == factor * n * (n - 1) / 2
    assert np.array_equal(doubled["gradient"], [factor])
    assert np.all(sharp["y"] == (rank - 1) % n) and np.all(sharp["x"] == rank)
    assert sharp["text"] == "of mpi4py"
