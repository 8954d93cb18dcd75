"""plait.compat.jaxmg: JAXMg's layouts, rules and texts, and its README's examples."""

import functools

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from pairwise import pairwise
from plait.compat import jaxmg
from plait.compat.jaxmg import _cyclic_1d

COLUMNS = P(None, "a")
DTYPES = ("float32", "float64", "complex64", "complex128")


def matrix(n, dtype="float64"):
    return meshes.random((n, n), dtype)


def on(a, ndev, kind=AxisType.Auto):
    return meshes.put(a, meshes.make((ndev,), kind), COLUMNS)


def by_hand(a, T_A, ndev):
    """The definition of the layout, column by column."""
    n = a.shape[1]
    shard = n // ndev
    if T_A >= shard:
        return a
    need = -(-shard // T_A) * T_A
    out = np.zeros((len(a), ndev * need), a.dtype)
    for column in range(n):
        device, slot = column // T_A % ndev, column // T_A // ndev
        out[:, device * need + slot * T_A + column % T_A] = a[:, column]
    return out


TILES = [1, 2, 3, 5, 64, 2000]
# Tile, devices, columns: few columns on each device, and other sizes with two tiles each.
TILINGS = [(t, d, d * i) for t, d, i in pairwise(TILES, [1, 2, 4, 8], [2, 3, 4, 10])]
OTHERS = [(1, 1), (1, 3), (1, 33), (1, 257), (2, 100), (4, 100), (8, 1000)]
TILINGS += [(TILES[(i + j) % 6], *size) for i, size in enumerate(OTHERS) for j in (0, 2)]


def refused(shard, T_A, ndev):
    """JAXMg's rule, written out."""
    padding = (T_A * ndev - shard % (T_A * ndev)) % (T_A * ndev)
    return T_A < shard and (shard < ndev or (ndev - 1) * padding > shard)


@pytest.mark.long(keep=4)
@pytest.mark.parametrize("T_A,ndev,n", TILINGS)
def test_layout_is_the_manual_one_and_back(T_A, ndev, n):
    a = matrix(n)
    x = on(a, ndev)
    if refused(n // ndev, T_A, ndev):
        begins = "We require shard_size" if n // ndev < ndev else "Attempting 1d cylic relayout"
        with pytest.raises(ValueError, match=f"^{begins}"):
            jaxmg.cyclic_1d_layout(x, T_A)
        return
    y = jaxmg.cyclic_1d_layout(x, T_A)
    assert np.array_equal(y, by_hand(a, T_A, ndev))
    if n // ndev >= ndev:
        assert np.array_equal(y, jaxmg.manual_cyclic_1d_layout(a, T_A, ndev))
    assert y.sharding.is_equivalent_to(x.sharding, 2)
    back = jaxmg.undo_cyclic_1d_layout(y, T_A)
    assert np.array_equal(back, a) and back.sharding.is_equivalent_to(x.sharding, 2)
    assert np.array_equal(x, a)  # the operand is as it was


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_dtypes_under_jit(dtype, kind):
    a = matrix(48, dtype)
    x = on(a, 4, kind)
    y = jaxmg.cyclic_1d_layout(x, 3)
    assert y.dtype == a.dtype and np.array_equal(y, by_hand(a, 3, 4))
    f = jax.jit(lambda x: jaxmg.undo_cyclic_1d_layout(jaxmg.cyclic_1d_layout(x, 3), 3))
    if kind == AxisType.Explicit:
        assert np.array_equal(f(x), a)
    else:  # the type does not tell the split
        with pytest.raises(ValueError, match="A must be sharded along the columns"):
            f(x)


def local(function, mesh, check=True, **given):
    return jax.jit(
        jax.shard_map(
            functools.partial(function, axis_name="a", ndev=mesh.size, **given),
            mesh=mesh,
            in_specs=COLUMNS,
            out_specs=COLUMNS,
            check_vma=check,
        )
    )


@pytest.mark.parametrize("T_A,ndev,check", pairwise([1, 3, 4], [1, 2, 4, 8], [True, False]))
def test_no_shardmap(T_A, ndev, check):
    n = 12 * ndev
    a, mesh = matrix(n), meshes.make((ndev,))
    if refused(12, T_A, ndev):
        with pytest.raises(ValueError, match="^Attempting 1d cylic relayout"):
            local(jaxmg.cyclic_1d_no_shardmap, mesh, T_A=T_A)(a)
        return
    f = local(jaxmg.cyclic_1d_no_shardmap, mesh, check, T_A=T_A)
    g = local(_cyclic_1d.undo_cyclic_1d_no_shardmap, mesh, check, T_A=T_A)
    y = f(meshes.put(a, mesh, COLUMNS))
    assert np.array_equal(y, by_hand(a, T_A, ndev))
    assert np.array_equal(g(y), a)


def test_no_shardmap_on_part_of_a_mesh():
    mesh = meshes.make((2, 4))
    a = meshes.random((2, 48, 48))
    f = jax.shard_map(
        lambda x: jaxmg.cyclic_1d_no_shardmap(x[0], 3, 4, "b")[None],
        mesh=mesh,
        in_specs=P("a", None, "b"),
        out_specs=P("a", None, "b"),
    )
    y = jax.jit(f)(meshes.put(a, mesh, P("a", None, "b")))
    assert np.array_equal(y, [by_hand(m, 3, 4) for m in a])


def test_adjoint_is_the_inverse():
    mesh = meshes.make((4,))
    x, y = on(matrix(48), 4), on(meshes.random((48, 48), seed=1), 4)
    pairs = [
        (
            functools.partial(jaxmg.cyclic_1d_layout, T_A=3),
            functools.partial(jaxmg.undo_cyclic_1d_layout, T_A=3),
        ),
        (
            local(jaxmg.cyclic_1d_no_shardmap, mesh, T_A=3),
            local(_cyclic_1d.undo_cyclic_1d_no_shardmap, mesh, T_A=3),
        ),
    ]
    for there, back in pairs:
        _, pull = jax.vjp(there, x)
        assert np.array_equal(pull(y)[0], back(y))
        _, pull = jax.vjp(back, x)
        assert np.array_equal(pull(y)[0], there(y))
        _, tangent = jax.jvp(there, (x,), (y,))
        assert np.array_equal(tangent, there(y))


def test_adjoint_with_columns_of_padding():
    n, T_A, ndev = 100, 4, 4
    w = meshes.random((n, 112))
    x = on(matrix(n), ndev)
    f = local(jaxmg.cyclic_1d_no_shardmap, meshes.make((ndev,)), T_A=T_A)
    places = [place for _, _, place in jaxmg.get_cols_cyclic(n, 28, T_A, ndev)]
    for there in (f, functools.partial(jaxmg.cyclic_1d_layout, T_A=T_A)):
        _, pull = jax.vjp(there, x)
        assert np.array_equal(pull(on(w, ndev))[0], w[:, places])


def test_vmap_inside_shard_map():
    mesh, batch = meshes.make((4,)), meshes.random((3, 48, 48))
    f = jax.vmap(lambda m: jaxmg.cyclic_1d_no_shardmap(m, 3, 4, "a"))
    spec = P(None, None, "a")
    mapped = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec))
    want = [by_hand(m, 3, 4) for m in batch]
    assert np.array_equal(mapped(meshes.put(batch, mesh, spec)), want)


def test_no_collective_of_xla():
    x = on(matrix(48), 4, AxisType.Explicit)
    assert meshes.xla_collectives(lambda v: jaxmg.cyclic_1d_layout(v, 3), x) == []


# ---- the README ------------------------------------------------------------------------------


def test_readme_diagonal():
    """N = 12, T_A = 2, two devices: the owner of each column."""
    a = jax.device_put(
        jnp.diag(jnp.arange(1, 13, dtype=jnp.float32)),
        NamedSharding(meshes.make((2,)), COLUMNS),
    )
    shards = sorted(jaxmg.cyclic_1d_layout(a, 2).addressable_shards, key=lambda s: s.device.id)
    columns = ([0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11])
    for shard, mine in zip(shards, columns, strict=True):
        assert shard.data.shape == (12, 6) and shard.data.dtype == jnp.float32
        assert np.array_equal(shard.data, np.diag(np.arange(1, 13, dtype=np.float32))[:, mine])
    assert np.asarray(shards[0].data)[0].tolist() == [1, 0, 0, 0, 0, 0]


def test_readme_padding():
    """N = 100, T_A = 4, four devices: seven tiles, or six and four columns of zeros."""
    assert jaxmg.calculate_padding(25, 4, 4) == 7
    a = np.ones((100, 100))
    shards = jaxmg.cyclic_1d_layout(on(a, 4), 4).addressable_shards
    for shard in shards:
        n = 28 if shard.index[1].start in (0, None) else 24
        assert shard.data.shape == (100, 28)
        assert (shard.data[:, :n] == 1).all() and (shard.data[:, n:] == 0).all()


# ---- rules and texts -------------------------------------------------------------------------


def test_valid_tilings():
    for ndev in (1, 2, 3, 4, 8):
        for shard in range(1, 40):
            valid = [t for t in range(1, 41) if (ndev - 1) * ((-shard) % (t * ndev)) <= shard]
            assert jaxmg.calculate_all_valid_T_A(shard, ndev, 41) == valid
            for t in range(1, 40):
                below = max([v for v in valid if v <= t], default=0)
                above = min([v for v in valid if t <= v < 40], default=40)
                assert jaxmg.calculate_valid_T_A(shard, t, ndev, 40) == (below, above)


def test_refused_tiling_names_the_nearest():
    # 3 · 7 columns of padding would be needed, 25 are there; 5 needs 3 · 15.
    with pytest.raises(ValueError) as caught:
        jaxmg.cyclic_1d_layout(on(matrix(100), 4), 5)
    text = str(caught.value)
    assert text.startswith(
        "Attempting 1d cylic relayout with:\n\t- N = 100\n\t- shard_size = 25\n\t- ndev = 4\n"
        "\t- T_A = 5\n"
    )
    below, above = jaxmg.calculate_valid_T_A(25, 5, 4, 25)
    assert (
        f"Largest 0 < T_A < 5 that would result in ndev * padding <= shard_size: T_A = {below}.\n"
    )
    assert f"T_A = {below}.\nSmallest 5 < T_A <= shard_size" in text
    assert f"shard_size: T_A = {above}.\nUse `calculate_valid_T_A`" in text


def test_refusals():
    text = "We require shard_size >= ndev, but received shard_size = 2 with 4 devices."
    for call in (
        lambda: jaxmg.manual_cyclic_1d_layout(matrix(8), 1, 4),
        lambda: jaxmg.cyclic_1d_layout(on(matrix(8), 4), 1),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(ValueError, match="not sharded with a NamedSharding"):
        jaxmg.cyclic_1d_layout(jnp.eye(4), 1)
    with pytest.raises(ValueError, match="each of 4 devices has 6"):
        g = local(_cyclic_1d.undo_cyclic_1d_no_shardmap, meshes.make((4,)), T_A=3)
        g(meshes.random((24, 36)))


# ---- later releases --------------------------------------------------------------------------


@pytest.mark.parametrize("T_A,dtype,each", pairwise([1, 2, 3, 5, 64], DTYPES, [2, 3, 10]))
def test_cyclic_1d_of_rows(T_A, dtype, each):
    ndev = jax.device_count()
    n, mesh = each * ndev, meshes.make((ndev,))
    a = matrix(n, dtype)
    x = meshes.put(a, mesh, P("a", None))
    y = jaxmg.cyclic_1d(x, T_A, mesh, (P("a", None),))
    assert np.array_equal(y, by_hand(a.T, T_A, ndev).T)
    if T_A < each:
        jaxmg.verify_cyclic(x, y, T_A)
        with pytest.raises(AssertionError):
            jaxmg.verify_cyclic(x, jnp.roll(y, 1, axis=0), T_A)
        padding = jaxmg.calculate_padding(each, T_A)
        rows = P("a", None)
        pad = functools.partial(jaxmg.pad_rows, padding=padding)
        wide = jax.shard_map(pad, mesh=mesh, in_specs=rows, out_specs=rows)(x)
        z = jaxmg.cyclic_1d(wide, T_A, mesh, [rows], pad=False)
        assert np.array_equal(z, y)


def test_cyclic_1d_refusals():
    mesh, a = meshes.make((2,)), matrix(12)
    with pytest.raises(ValueError, match="sharded along the rows with PartitionSpec"):
        jaxmg.cyclic_1d(a, 2, mesh, P(None, "a"))
    with pytest.raises(ValueError, match="1-element list/tuple"):
        jaxmg.cyclic_1d(a, 2, mesh, (P("a", None), P()))
    with pytest.raises(TypeError, match="in_specs must be a PartitionSpec"):
        jaxmg.cyclic_1d(a, 2, mesh, "a")
    with pytest.raises(AssertionError, match="a must be a 2D array"):
        jaxmg.cyclic_1d(a[0], 2, mesh, P("a", None))
    with pytest.raises(AssertionError, match="we need padding of 4 rows per device.*Expected 20"):
        jaxmg.cyclic_1d(a, 5, mesh, P("a", None), pad=False)


@pytest.mark.parametrize("padding", [0, 1, 3])
def test_pad_rows(padding):
    a = matrix(4)
    wide = jaxmg.pad_rows(jnp.asarray(a), padding)
    assert wide.shape == (4 + padding, 4) and not np.asarray(wide[4:]).any()
    assert np.array_equal(jaxmg.unpad_rows(wide, padding), a)


@pytest.mark.parametrize("n,ndev,T_A", [(12, 2, 2), (100, 4, 4), (24, 8, 2), (7, 1, 3)])
def test_columns_of_the_layout(n, ndev, T_A):
    need = -(-(n // ndev) // T_A) * T_A
    rows = jaxmg.get_cols_cyclic(n, need, T_A, ndev)
    a = matrix(n)
    wide = np.concatenate(
        [np.pad(part, ((0, 0), (0, need - n // ndev))) for part in np.split(a, ndev, axis=1)], 1
    )
    dealt = by_hand(a, T_A, ndev)
    for column, before, after in rows:
        assert np.array_equal(wide[:, before], a[:, column])
        assert np.array_equal(dealt[:, after], a[:, column])


# ---- utils -----------------------------------------------------------------------------------


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_psd(dtype):
    a = np.asarray(jaxmg.utils.random_psd(33, dtype, 7))
    key = jax.random.key(7)
    g = np.asarray(jax.random.normal(key, (33, 33), dtype)) / np.sqrt(33).astype(a.real.dtype)
    want = g @ g.conj().T + 1e-5 * np.eye(33)
    assert a.dtype == dtype and np.abs(a - want).max() <= 100 * meshes.eps(dtype)
    assert np.linalg.eigvalsh(a).min() > 0
    assert jaxmg.utils.maybe_real_dtype_from_complex(dtype) == a.real.dtype


def test_setup(monkeypatch):
    n = jax.device_count()
    assert jaxmg.determine_distributed_setup() == (1, n, n, "SPMD")
    monkeypatch.setattr(jax, "process_count", lambda *_: 2)
    monkeypatch.setattr(jaxmg.utils, "_n_machines", lambda: 1)
    if n != 2:
        with pytest.raises(ValueError, match="^Invalid distributed configuration.*\n.*2 process"):
            jaxmg.determine_distributed_setup()
    monkeypatch.setattr(jax, "process_count", lambda *_: n)
    assert jaxmg.determine_distributed_setup() == (1, n, 1, "SPMD" if n == 1 else "MPMD")


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    before, after = _cyclic_1d._owners(12, 2, 2)
    assert before.tolist() == [0] * 6 + [2, 2] + [1] * 6 + [2, 2]
    assert after.tolist() == [0, 0, 1, 1] * 3 + [2] * 4
    fig, axs = jaxmg.plot_block_to_cyclic(100, 4, 4)
    for ax, owners in zip(axs, _cyclic_1d._owners(100, 4, 4), strict=True):
        assert np.array_equal(ax.images[0].get_array(), np.broadcast_to(owners, (8, 128)))
    matplotlib.pyplot.close(fig)
    with pytest.raises(ValueError, match="must be positive integers"):
        jaxmg.plot_block_to_cyclic(3, 1, 4)
    with pytest.raises(ValueError, match="Attempting 1d cylic"):
        jaxmg.plot_block_to_cyclic(100, 5, 4)
