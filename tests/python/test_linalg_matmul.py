"""plait.linalg.matmul against NumPy: panels that move, and matrices that stay."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import matrices
import meshes
import numpy as np
import plait
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

SPLITS = {
    (4,): (P("a"), P(None, "a"), P()),
    (2, 4): (
        *(P("a", "b"), P("b", "a"), P("a"), P(None, "b"), P()),
        *(P(("a", "b")), P(("b", "a")), P(None, ("b", "a"))),
    ),
    (2, 2, 2): (P("b", "c"), P(("c", "a"), "b"), P("c", ("b", "a"))),
}


def test_panels():
    for i, (m, k, n) in enumerate([(5, 7, 3), (8, 16, 24), (1, 1, 1), (33, 2, 9)]):
        for shape in ((4,), (2, 4), None):
            dtype = matrices.DTYPES[i]
            a, b = meshes.random((m, k), dtype), meshes.random((k, n), dtype, 1)
            x, y = matrices.put(a, shape, i), matrices.put(b, shape, i)
            matrices.check_product((plait.linalg.matmul(x, y, block=1 + i),), a @ b, k)
            z = matrices.put(b[:, 0], shape, i)
            matrices.check_product((plait.linalg.matmul(x, z, block=1),), a @ b[:, 0], k)
    with pytest.raises(ValueError, match="matmul: b has 2 rows, a has 3"):
        plait.linalg.matmul(np.ones((2, 3)), np.ones((2, 3)))


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(st.data())
def test_few_columns(data):
    """Arrays with padding, which is not read, split in any way."""
    shape = data.draw(st.sampled_from(sorted(SPLITS)))
    mesh = meshes.make(shape)
    m, k = data.draw(st.integers(20, 70)), data.draw(st.integers(20, 70))
    n = data.draw(st.sampled_from([None, 1, 2]))
    dtype = data.draw(st.sampled_from(matrices.DTYPES))
    spec = data.draw(st.sampled_from(SPLITS[shape]))
    spec_b = P(*data.draw(st.sampled_from([(), ("a",)])))
    a, b = meshes.random((m, k), dtype), meshes.random((k,) if n is None else (k, n), dtype, 1)
    given = {"shape": a.shape, "shape_b": b.shape, "spec": spec, "spec_b": spec_b, "mesh": mesh}
    more = data.draw(st.sampled_from([0, 1, 9]))  # padding of the extents, before rounding
    x, y = (
        meshes.put(
            meshes.padded(v, meshes.rounded(tuple(n + more for n in v.shape), mesh, s)), mesh, s
        )
        for v, s in ((a, spec), (b, spec_b))
    )
    got = plait.linalg.matmul(x, y, **given)
    assert got.shape == (x.shape[0], *y.shape[1:])
    matrices.check_product((meshes.data(got, (m, *b.shape[1:])),), a @ b, k)


def put_padded(v, mesh, spec):
    return meshes.put(meshes.padded(v, meshes.rounded(v.shape, mesh, spec)), mesh, spec)


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(st.data())
def test_rows_that_move(data):
    """Both operands split by rows, in any way; then b moves unless it is the larger."""
    mesh = meshes.make((2, 4))
    rows = [P("a"), P("b"), P(("b", "a"))]
    spec, spec_b = data.draw(st.sampled_from(rows)), data.draw(st.sampled_from(rows))
    m, k, n = (data.draw(st.integers(1, 40)) for _ in range(3))
    dtype = data.draw(st.sampled_from(matrices.DTYPES))
    a, b = meshes.random((m, k), dtype), meshes.random((k, n), dtype, 1)
    product = functools.partial(
        plait.linalg.matmul,
        block=data.draw(st.sampled_from([None, 1, 5])),
        **{"shape": a.shape, "shape_b": b.shape, "spec": spec, "spec_b": spec_b, "mesh": mesh},
    )
    got, back = jax.vjp(product, put_padded(a, mesh, spec), put_padded(b, mesh, spec_b))
    matrices.check_product((meshes.data(got, (m, n)),), a @ b, k)
    c = meshes.random((m, n), dtype, 2)
    of_a, of_b = back(put_padded(c, mesh, spec))
    matrices.check_product((meshes.data(of_a, (m, k)),), c @ b.T, n)
    matrices.check_product((meshes.data(of_b, (k, n)),), a.T @ c, m)


def test_which_rows_move():
    """Of two matrices split by rows, the smaller, without a transposition in memory."""
    mesh = meshes.make((4,))
    for m, n in [(512, 256), (256, 512)]:
        shapes = (m, 256), (256, n)
        split = NamedSharding(mesh, P("a"))
        a, b = (jax.ShapeDtypeStruct(shape, np.float32, sharding=split) for shape in shapes)
        given = {"mesh": mesh, "spec": P("a"), "spec_b": P("a")}
        found = plait.explain(functools.partial(plait.linalg.matmul, **given), a, b).calls
        assert [call.name for call in found] == [*["redistribute"] * 2, "gemm", "redistribute"]
        assert any("turned" in call.title for call in found) == (n > m)
        assert found[2].n_bytes == 256 * 256 * 4 * 3 // 4


@pytest.mark.parametrize("spec", [P("a"), P(None, "a"), P()])
def test_a_matrix_that_stays(spec):
    """The data that moves is of the size of the vectors, except with block=."""
    n, mesh = 4096, meshes.make((4,))
    a = jax.ShapeDtypeStruct((n, n), np.float64, sharding=NamedSharding(mesh, spec))
    b = jax.ShapeDtypeStruct((n,), np.float64, sharding=NamedSharding(mesh, P("a")))
    product = functools.partial(plait.linalg.matmul, mesh=mesh, spec=spec, spec_b=P("a"))
    assert plait.explain(product, a, b).n_bytes <= 2 * 8 * n
    assert plait.explain(functools.partial(product, block=64), a, b).n_bytes >= n * n


def test_where_the_result_is():
    mesh = meshes.make((2, 4))
    a, b = np.ones((64, 64)), np.ones((64, 2))
    for spec, spec_b, want in [
        (P("a", "b"), P("b"), P("a")),
        (P("b"), P(None, "a"), P("b", "a")),
        (P(None, "b"), P("b"), P()),
        (P(), P("a"), P()),
    ]:
        y = plait.linalg.matmul(meshes.put(a, mesh, spec), meshes.put(b, mesh, spec_b))
        assert y.sharding.is_equivalent_to(NamedSharding(mesh, want), 2), (spec, spec_b)


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("spec", SPLITS[2, 4])
def test_derivatives(spec):
    """Derivatives by both operands, forward and back, and again; no collective of XLA."""
    mesh, (m, k) = meshes.make((2, 4)), (24, 40)
    a, da, dda = (meshes.random((m, k), "complex128", i) for i in range(3))
    b, db = (meshes.random((k,), "complex128", 3 + i) for i in range(2))
    c = meshes.random((m,), "complex128", 5)
    product = functools.partial(plait.linalg.matmul, mesh=mesh, spec=spec, spec_b=P())
    x, dx, ddx = (meshes.put(v, mesh, spec) for v in (a, da, dda))
    y, dy = jax.jvp(product, (x, b), (dx, db))
    np.testing.assert_allclose(y, a @ b, rtol=1e-12)
    np.testing.assert_allclose(dy, da @ b + a @ db, rtol=1e-12)
    of_a, of_b = jax.vjp(product, x, b)[1](jnp.asarray(c))
    np.testing.assert_allclose(of_a, np.outer(c, b), rtol=1e-12)
    np.testing.assert_allclose(of_b, a.T @ c, rtol=1e-12)

    def size(x, b):
        return jnp.sum(jnp.abs(product(x, b)) ** 2)

    slope = jax.grad(size)
    _, second = jax.jvp(lambda x: slope(x, jnp.asarray(b)), (x,), (ddx,))
    np.testing.assert_allclose(second, 2 * np.outer(np.conj(dda @ b), b), rtol=1e-12)
    every = jax.grad(size, argnums=(0, 1))
    assert not meshes.xla_collectives(every, x, meshes.put(b, mesh))


def test_batches():
    mesh = meshes.make((2, 2))
    a, b = meshes.random((3, 16, 20)), meshes.random((3, 20), seed=1)
    product = functools.partial(plait.linalg.matmul, mesh=mesh, spec=P("a", "b"), spec_b=P("b"))
    of_both = jax.jit(jax.vmap(product))(a, b)
    np.testing.assert_allclose(of_both, np.einsum("nij,nj->ni", a, b), rtol=1e-12)
    of_one = jax.jit(jax.vmap(product, in_axes=(None, 0)))(a[0], b)
    np.testing.assert_allclose(of_one, b @ a[0].T, rtol=1e-12)
    slopes = jax.jit(jax.vmap(jax.grad(lambda a, b: jnp.sum(product(a, b)), argnums=1)))(a, b)
    np.testing.assert_allclose(slopes, a.sum(1), rtol=1e-12)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_batch_that_a_mesh_axis_splits(kind):
    mesh = meshes.make((2, 4), kind)
    a, b = meshes.random((4, 16, 24)), meshes.random((4, 24), seed=1)
    x, y = meshes.put(a, mesh, P("a", "b")), meshes.put(b, mesh, P("a"))
    product = functools.partial(plait.linalg.matmul, mesh=mesh, spec=P("b"), spec_b=P())
    slope = jax.grad(lambda a, b: jnp.sum(product(a, b)), argnums=1)
    over = "a" if kind == AxisType.Auto else None  # Explicit types name it
    slopes = jax.jit(jax.vmap(slope, spmd_axis_name=over))(x, y)
    np.testing.assert_allclose(slopes, a.sum(1), rtol=1e-12)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_in_loops_of_programs(kind):
    """The power method, which finds the eigenvalue of the largest magnitude."""
    mesh = meshes.make((4,), kind)
    a = matrices.definite(32, cond=100.0)
    x = meshes.put(a, mesh, P("a"))
    v = meshes.put(np.ones(32), mesh, P("a"))

    def largest(x, v):
        def step(_, v):
            w = plait.linalg.matmul(x, v, mesh=mesh, spec=P("a"), spec_b=P("a"))
            return w / jnp.sqrt(plait.sum(w * w, mesh=mesh, spec=P("a")))

        v = jax.lax.fori_loop(0, 200, step, v)
        w = plait.linalg.matmul(x, v, mesh=mesh, spec=P("a"), spec_b=P("a"))
        return plait.sum(v * w, mesh=mesh, spec=P("a"))

    np.testing.assert_allclose(jax.jit(largest)(x, v), np.linalg.eigvalsh(a)[-1], rtol=1e-9)
