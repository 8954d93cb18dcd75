"""Solves by lineax between ranks, in programs with much other work that may run first."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest

lx = pytest.importorskip("lineax")
plait.keep_order(pytest.importorskip("lineax.internal").linear_solve_p)

SIDE, BESIDE = 300, 48


def test_solves_one_after_the_other_among_much_else():
    """The first product of each solve is with zeros, so it waits for no data of the solve before.

    XLA's threads begin it at once if they have enough other work and nothing else orders it.
    """
    rank, size = plait.Comm().rank, plait.Comm().size
    rng = np.random.default_rng(0)
    a = rng.standard_normal((SIDE, SIDE)).astype(np.float32)
    a, b = a @ a.T / SIDE + np.eye(SIDE, dtype=np.float32), a[0]
    mine = a * 2 * (rank + 1) / (size * (size + 1))  # the sum over all ranks is a
    kinds = (lx.symmetric_tag, lx.positive_semidefinite_tag)

    def solve(b):
        product = lx.FunctionLinearOperator(
            lambda x: plait.allreduce(mine @ x, plait.SUM),
            jax.ShapeDtypeStruct(b.shape, b.dtype),
            kinds,
        )
        return lx.linear_solve(product, b, lx.CG(1e-5, 1e-5)).value

    def f(b):
        square = jnp.outer(b, b)
        parts = [square[i : i + 50, :50] + i * jnp.eye(50, dtype=b.dtype) for i in range(BESIDE)]
        return solve(solve(solve(b))), [jnp.linalg.qr(part)[0] for part in parts]

    step, want = plait.jit(f), np.linalg.solve(a @ a @ a, b)
    for i in range(20):
        time.sleep(0.02 if i % 3 == rank else 0)
        assert np.abs(step(b)[0] - want).max() < 1e-3 * np.abs(want).max()
