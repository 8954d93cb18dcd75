"""Arrays on no mesh beside operands on a mesh, in functions that JAX splits for derivatives.

Outside jax.jit JAX runs separately what depends on no operand of a loop or a checkpoint. Nothing
then says on which devices.
"""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import PartitionSpec as P

N = 8
KERNEL = meshes.random((3, 2), "float64", 1)
MATRIX = 3 * np.eye(N) + meshes.random((N, N), "float64", 2) / N

# The operations; ALONE has their counterparts in JAX, on one device.
OPERATIONS = {
    "fftconvolve": lambda x: plait.fft.fftconvolve(x, jnp.asarray(KERNEL), mode="same"),
    "fftconvolve, the other": lambda x: plait.fft.fftconvolve(x, jnp.flip(x), mode="same"),
    "solve": lambda x: plait.linalg.solve(jnp.asarray(MATRIX), x),
    "matmul": lambda x: plait.linalg.matmul(jnp.asarray(MATRIX), x),
}
ALONE = {
    "fftconvolve": lambda x: jax.scipy.signal.fftconvolve(x, jnp.asarray(KERNEL), mode="same"),
    "fftconvolve, the other": lambda x: jax.scipy.signal.fftconvolve(x, jnp.flip(x), mode="same"),
    "solve": lambda x: jnp.linalg.solve(jnp.asarray(MATRIX), x),
    "matmul": lambda x: jnp.asarray(MATRIX) @ x,
}
WAYS = {
    "scan": lambda f: lambda x: jax.lax.scan(lambda v, _: (f(v), None), x, None, length=2)[0],
    "fori_loop": lambda f: lambda x: jax.lax.fori_loop(0, 2, lambda _, v: f(v), x),
    "checkpoint": jax.checkpoint,
    "cond": lambda f: lambda x: jax.lax.cond(x[0, 0] < 1e9, f, lambda v: v + 1, x),
}


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("shape", [(4,), (2, 2)])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_derivatives_outside_of_jit(name, way, shape):
    mesh = meshes.make(shape)
    a = meshes.random((N, N), "float64", 3)
    x = meshes.put(a, mesh, P(*"ab"[: len(shape)]))
    c = meshes.put(meshes.random((N, N), "float64", 4), mesh, P(*"ab"[: len(shape)]))
    f, alone = WAYS[way](OPERATIONS[name]), WAYS[way](ALONE[name])
    y, pull = jax.vjp(f, x)
    want, pull_alone = jax.vjp(alone, jnp.asarray(a))
    (got,), (wanted,) = pull(c), pull_alone(jnp.asarray(np.asarray(c)))
    along = jax.jvp(f, (x,), (c,))[1]
    along_alone = jax.jvp(alone, (jnp.asarray(a),), (jnp.asarray(np.asarray(c)),))[1]
    for ours, theirs in ((y, want), (got, wanted), (along, along_alone)):
        scale = np.abs(np.asarray(theirs)).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("way", ["scan", "checkpoint"])
@pytest.mark.parametrize("name", ["fftconvolve", "solve", "matmul"])
def test_to_a_linear_transpose_it_is_constant(name, way):
    mesh = meshes.make((4,))
    x = meshes.put(meshes.random((N, N), "float64", 3), mesh, P("a"))
    c = meshes.put(meshes.random((N, N), "float64", 4), mesh, P("a"))
    f, alone = WAYS[way](OPERATIONS[name]), WAYS[way](ALONE[name])
    (got,) = jax.jit(lambda c: jax.linear_transpose(f, x)(c))(c)
    (want,) = jax.vjp(alone, jnp.zeros((N, N)))[1](jnp.asarray(np.asarray(c)))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-11 * np.abs(np.asarray(want)).max())
