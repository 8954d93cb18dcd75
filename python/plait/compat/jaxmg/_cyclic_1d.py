"""Columns of a matrix dealt out to devices in tiles of T_A, as in JAXMg.

Tile k, columns k T_A to (k + 1) T_A - 1, is tile k div ndev of device k mod ndev. A device's part
has its shard's width rounded up to whole tiles, with zeros behind the columns that it owns.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import plait
from jax import Array
from jax.sharding import PartitionSpec as P
from plait import _call, _groups, _layout, _mesh
from plait.compat.jaxmg.utils import get_mesh_and_spec_from_array

# ---- tilings -------------------------------------------------------------------------------------


def calculate_padding(shard_size: int, T_A: int, ndev: int = 1) -> int:
    """Columns that a shard lacks to a multiple of ``T_A * ndev``; later releases take no ndev.

    Example:
        >>> from plait.compat import jaxmg
        >>> jaxmg.calculate_padding(25, 4, 4), jaxmg.calculate_padding(25, 4)
        (7, 3)
    """
    return -shard_size % (T_A * ndev)


def _is_valid(shard_size: int, T_A: int, ndev: int) -> bool:
    """JAXMg's rule, from its single all_to_all after a shift; plait does not need it."""
    return (ndev - 1) * calculate_padding(shard_size, T_A, ndev) <= shard_size


def calculate_valid_T_A(shard_size: int, T_A: int, ndev: int, T_A_max: int) -> tuple[int, int]:
    """The largest valid tile width ≤ T_A, or 0; the smallest ≥ T_A, or T_A_max, valid or not.

    Example:
        >>> from plait.compat import jaxmg
        >>> jaxmg.calculate_valid_T_A(25, 5, 4, 25)
        (4, 7)
    """
    below = next((t for t in range(T_A, 0, -1) if _is_valid(shard_size, t, ndev)), min(T_A, 0))
    above = (t for t in range(T_A, T_A_max) if _is_valid(shard_size, t, ndev))
    return below, next(above, max(T_A, T_A_max))


def calculate_all_valid_T_A(shard_size: int, ndev: int, T_A_max: int) -> list[int]:
    """All valid tile widths below T_A_max.

    Example:
        >>> from plait.compat import jaxmg
        >>> jaxmg.calculate_all_valid_T_A(25, 4, 8)
        [1, 2, 4, 7]
    """
    return [t for t in range(1, T_A_max) if _is_valid(shard_size, t, ndev)]


def _check_tiling(shard_size: int, T_A: int, ndev: int) -> None:
    """ValueError for tilings that JAXMg cannot lay out, in its words."""
    if shard_size < ndev:
        raise ValueError(
            f"We require shard_size >= ndev, but received shard_size = {shard_size} "
            f"with {ndev} devices."
        )
    if not _is_valid(shard_size, T_A, ndev):
        _refuse_tiling(shard_size, T_A, ndev)


def _refuse_tiling(shard_size: int, T_A: int, ndev: int) -> None:
    padding = calculate_padding(shard_size, T_A, ndev)
    below, above = calculate_valid_T_A(shard_size, T_A, ndev, T_A_max=shard_size)
    fits = "that would result in ndev * padding <= shard_size: T_A ="
    smaller = f"Largest 0 < T_A < {T_A} {fits} {below}.\n" if below > 0 else ""
    raise ValueError(
        "Attempting 1d cylic relayout with:\n"
        f"\t- N = {ndev * shard_size}\n"
        f"\t- shard_size = {shard_size}\n"
        f"\t- ndev = {ndev}\n"
        f"\t- T_A = {T_A}\n"
        "In order to use an all-to-all call to remap the matrix, we would need to add zero padding "
        f"of\n\t- padding: {padding}\n"
        "This would require a shift of the last matrix of (ndev - 1) * padding = "
        f"{(ndev - 1) * padding} cols,which is larger than the shard_size {shard_size}.\n"
        f"{smaller}"
        f"Smallest {T_A} < T_A <= shard_size {fits} {above}.\n"
        "Use `calculate_valid_T_A` to calculate a valid T_A for 1d cyclic resharding."
    )


def _need(shard_size: int, T_A: int) -> int:
    """Width of a device's part, in whole tiles."""
    return -(-shard_size // T_A) * T_A


# ---- global arrays -------------------------------------------------------------------------------


def _parts(mesh: Any, spec: Any, axis: int) -> int:
    """The number of devices that split an axis of the array."""
    entry = spec[axis] if len(spec) > axis else None
    names = () if entry is None else (entry,) if isinstance(entry, str) else entry
    return math.prod(mesh.shape[name] for name in names)


def check_mesh(mesh: Any, spec: Any, name: str) -> None:
    """TypeError for anything but a mesh, ValueError for a mesh without the axes of the spec."""
    if not hasattr(mesh, "axis_names"):
        raise TypeError(f"{name}: mesh is {type(mesh).__name__}; expected jax.sharding.Mesh")
    _mesh.check_spec(_mesh.names_of(spec, 2, name, "in_specs"), mesh, (0, 0), name)


def _columns(a: Array) -> tuple[Any, Any, int]:
    """Mesh and spec of a matrix, and the number of devices that split its columns."""
    mesh, spec = get_mesh_and_spec_from_array(a)
    ndev = _parts(mesh, spec, 1)
    if ndev == 1 and mesh.size > 1:
        raise ValueError(
            f"A must be sharded along the columns, its spec is {spec} (inside jax.jit the type of "
            "an array does not say how Auto axes split it)"
        )
    return mesh, spec, ndev


def cyclic_1d_layout(a: Array, T_A: int) -> Array:
    """Deal out the columns of a matrix; mesh and spec are those of ``a.sharding``.

    Collective: over the mesh, in program order.
    Shapes: (N, ndev shard) to (N, ndev need), need = ``ceil(shard / T_A) T_A``; unchanged if T_A ≥
    shard.
    Raises: ValueError for an array without a NamedSharding that splits its columns, fewer columns
    in a shard than devices, or a tiling that JAXMg refuses.
    Adjoint: `undo_cyclic_1d_layout`.  Source: `plait.redistribute`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import NamedSharding, PartitionSpec as P
        >>> from plait.compat import jaxmg
        >>> mesh = jax.make_mesh((1,), ("x",))
        >>> a = jax.device_put(jnp.eye(12), NamedSharding(mesh, P(None, "x")))
        >>> jaxmg.cyclic_1d_layout(a, 2).shape
        (12, 12)
    """
    mesh, spec, ndev = _columns(a)
    shard_size = a.shape[1] // ndev
    if T_A >= shard_size:
        return a
    _check_tiling(shard_size, T_A, ndev)
    return plait.redistribute(a, spec, block=T_A, mesh=mesh, spec=spec)


def undo_cyclic_1d_layout(a: Array, T_A: int) -> Array:
    """Undo `cyclic_1d_layout` of a square matrix.

    Collective: over the mesh, in program order.  Shapes: (N, ndev need) to (N, N).
    Raises: ValueError for an array without a NamedSharding, or widths that are not a tiling's.
    Adjoint: `cyclic_1d_layout`.  Source: `plait.redistribute`.
    """
    mesh, spec, ndev = _columns(a)
    n, width = a.shape
    if T_A >= width // ndev:
        return a
    return plait.redistribute(a, spec, from_block=T_A, shape=(n, n), mesh=mesh, spec=spec)


def cyclic_1d(a: Array, T_A: int, mesh: Any, in_specs: Any, pad: bool = True) -> Array:
    """Deal out the rows of a matrix, as in later releases; rows of zeros fill the last tiles.

    Collective: over the mesh, in program order.
    Shapes: (ndev shard, N) to (ndev need, N), need = ``ceil(shard / T_A) T_A``.
    Raises: TypeError, ValueError for specs other than ``P(axis, None)``; AssertionError for an
    array that is no matrix, or that does not fit ``pad=False``.
    Adjoint: the inverse.  Source: `plait.redistribute`.
    """
    if isinstance(in_specs, list | tuple) and not isinstance(in_specs, P):
        if len(in_specs) != 1:
            raise ValueError("in_specs must be a single PartitionSpec or a 1-element list/tuple.")
        in_specs = in_specs[0]
    if not isinstance(in_specs, P):
        raise TypeError(
            "in_specs must be a PartitionSpec or a 1-element list/tuple containing one."
        )
    entries = (*in_specs, None, None)
    if entries[0] is None or entries[1] is not None:
        raise ValueError("A must be sharded along the rows with PartitionSpec P(str, None).")
    check_mesh(mesh, in_specs, "cyclic_1d")
    assert a.ndim == 2, "a must be a 2D array."
    ndev = _parts(mesh, in_specs, 0)
    n_rows, n = a.shape
    shard_size = n // ndev if not pad else n_rows // ndev
    if T_A >= shard_size:
        return a
    padding = calculate_padding(shard_size, T_A)
    if not pad:
        assert n_rows == n + ndev * padding, (
            f"pad=False, but with T_A={T_A}, we need padding of {padding} rows per device."
            f"Expected {n + ndev * padding} rows, but received {n_rows}"
        )
        a = shards(mesh, in_specs, first_rows, n=shard_size)(a)
    return plait.redistribute(a, in_specs, block=T_A, mesh=mesh, spec=in_specs)


@functools.lru_cache(maxsize=1024)
def shards(mesh: Any, spec: Any, function: Any, **given: Any) -> Any:
    """A function of each device's part, compiled once."""
    part = functools.partial(function, **given)
    return jax.jit(jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec))


def first_rows(x: Array, n: int) -> Array:
    """The rows before the padding."""
    return x[:n]


def pad_rows(_a: Array, padding: int) -> Array:
    """Rows of zeros below a shard."""
    return jnp.pad(_a, ((0, padding), (0, 0)))


def unpad_rows(_a: Array, padding: int) -> Array:
    """Undo `pad_rows`."""
    return _a[: _a.shape[0] - padding]


# ---- inside shard_map ----------------------------------------------------------------------------


def _layouts(shape: tuple[int, int], ndev: int, T_A: int, need: int) -> tuple[tuple, tuple]:
    """Layout words of a matrix in equal shards, and dealt out to parts of `need` columns."""
    plain = _layout.words(shape, (ndev,), ((), (0,)), (0, shape[1] // ndev))
    return plain, _layout.words(shape, (ndev,), ((), (0,)), (0, need), (0, T_A))


def _relayout(x: Array, axis_name: Any, name: str, ways: tuple, out_shape: tuple) -> Array:
    comm = axis_name if isinstance(axis_name, str) else tuple(axis_name)
    group, tree = _groups.of(comm, name, None), _call.Tree(x, name)
    to = {"from": ways[0], "to": ways[1], "turn": 0, "out_shape": out_shape}
    return _call.run("redistribute", name, tree, group, None, **to)


def cyclic_1d_no_shardmap(x_block: Array, T_A: int, ndev: int, axis_name: Any) -> Array:
    """`cyclic_1d_layout` of a device's columns, inside ``jax.shard_map``.

    Collective: over the mesh axis, in program order.
    Shapes: (N, shard) to (N, need).  Raises: as `cyclic_1d_layout`.
    Adjoint: `undo_cyclic_1d_no_shardmap`.  Source: the core's redistribute.
    """
    n, shard_size = x_block.shape
    if T_A >= shard_size:
        return x_block
    _check_tiling(shard_size, T_A, ndev)
    need = _need(shard_size, T_A)
    ways = _layouts((n, ndev * shard_size), ndev, T_A, need)
    return _relayout(x_block, axis_name, "cyclic_1d_no_shardmap", ways, (n, need))


def undo_cyclic_1d_no_shardmap(x_block_bc: Array, T_A: int, ndev: int, axis_name: Any) -> Array:
    """Undo `cyclic_1d_no_shardmap` of a square matrix.

    Collective: over the mesh axis, in program order.
    Shapes: (N, need) to (N, N / ndev).  Raises: ValueError for widths that are not a tiling's.
    Adjoint: `cyclic_1d_no_shardmap`.  Source: the core's redistribute.
    """
    n, need = x_block_bc.shape
    if T_A >= need:
        return x_block_bc
    shard_size = n // ndev
    if need != _need(shard_size, T_A):
        raise ValueError(
            f"undo_cyclic_1d_no_shardmap: {need} columns; of {n} columns in tiles of {T_A} each of "
            f"{ndev} devices has {_need(shard_size, T_A)}"
        )
    plain, dealt = _layouts((n, ndev * shard_size), ndev, T_A, need)
    name = "undo_cyclic_1d_no_shardmap"
    return _relayout(x_block_bc, axis_name, name, (dealt, plain), (n, shard_size))


# ---- references ----------------------------------------------------------------------------------


def manual_cyclic_1d_layout(a: Array, T_A: int, ndev: int) -> Array:
    """What `cyclic_1d_layout` returns on ndev devices, made on one device.

    Collective: no.  Shapes: (N, M) to (N, ndev need).
    Raises: ValueError for fewer columns in a shard than devices.
    Adjoint: by JAX.  Source: the definition of the layout.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxmg
        >>> jaxmg.manual_cyclic_1d_layout(jnp.arange(12)[None], 2, 2)[0].tolist()
        [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]
    """
    shard_size = a.shape[1] // ndev
    if shard_size < ndev:
        _check_tiling(shard_size, T_A, ndev)
    if T_A >= shard_size:
        return a
    columns, need = np.arange(ndev * shard_size), _need(shard_size, T_A)
    tile = columns // T_A
    places = tile % ndev * need + tile // ndev * T_A + columns % T_A
    return jnp.zeros((a.shape[0], ndev * need), a.dtype).at[:, places].set(a[:, columns])


def get_cols_cyclic(N: int, N_batch: int, T_A: int, num_devices: int) -> list[tuple[int, ...]]:
    """For each column, its number and its places before and after it is dealt out.

    N_batch is the width of a device's part, before and after.

    Example:
        >>> from plait.compat import jaxmg
        >>> jaxmg.get_cols_cyclic(4, 2, 1, 2)
        [(0, 0, 0), (1, 1, 2), (2, 2, 1), (3, 3, 3)]
    """
    shard_size = N // num_devices
    offset = N_batch - shard_size
    rows = []
    for column in range(N):
        tile = column // T_A
        place = tile // num_devices * T_A + column % T_A
        before = column + offset * (column // shard_size)
        rows.append((column, before, place + tile % num_devices * N_batch))
    return rows


def verify_cyclic(A: Array, A_cyclic: Array, T_A: int) -> None:
    """AssertionError unless A_cyclic has the rows of A, dealt out to all devices."""
    n, ndev = A.shape[0], jax.device_count()
    need = n // ndev + calculate_padding(n // ndev, T_A)
    before, after = np.asarray(A), np.asarray(A_cyclic)
    for number, _, place in get_cols_cyclic(n, need, T_A, ndev):
        assert np.allclose(before[number], after[place]), f"row {number} is not row {place}"


# ---- a picture -----------------------------------------------------------------------------------


def _owners(N: int, T_A: int, ndev: int) -> tuple[np.ndarray, np.ndarray]:
    """Device of each column before and after; ndev for columns of padding."""
    shard_size = N // ndev
    padding = calculate_padding(shard_size, T_A, ndev)
    n, width = ndev * shard_size, ndev * (shard_size + padding)
    device, column = np.divmod(np.arange(width), shard_size + padding)
    before = np.where(column < shard_size, device, ndev)
    after = np.where(np.arange(width) < n, np.arange(width) // T_A % ndev, ndev)
    return before, after


def plot_block_to_cyclic(N: int, T_A: int, ndev: int, N_rows: int = 8) -> tuple[Any, Any]:
    """Draw which device owns each column, in equal shards and dealt out; needs matplotlib.

    Collective: no.  Shapes: the figure and its two axes.
    Raises: ValueError for numbers that are not positive, or a tiling that JAXMg refuses.
    Source: ``plot_block_to_cyclic`` of JAXMg.
    """
    if N // max(ndev, 1) < 1 or T_A < 1 or ndev < 1:
        raise ValueError("shard_size, T_A, and ndev must be positive integers.")
    shard_size = N // ndev
    if not _is_valid(shard_size, T_A, ndev):
        _refuse_tiling(shard_size, T_A, ndev)
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colors = [plt.get_cmap("tab20")(d % 20) for d in range(ndev)] + [(0.85, 0.85, 0.85, 1.0)]
    fig, axs = plt.subplots(2, 1, figsize=(8, 6), constrained_layout=True)
    padding = calculate_padding(shard_size, T_A, ndev)
    titles = (
        f"Column-block sharded (shard_size={shard_size}, required padding={padding})",
        f"1D block-cyclic (tile size = {T_A})",
    )
    for ax, owners, title in zip(axs, _owners(N, T_A, ndev), titles, strict=True):
        rows = np.broadcast_to(owners, (N_rows, len(owners)))
        ax.imshow(rows, aspect="auto", cmap=ListedColormap(colors), vmin=-0.5, vmax=ndev + 0.5)
        ticks = np.arange(0, len(owners) + 1, T_A)
        ax.set(title=title, xlabel="Columns", ylabel="Rows", yticks=[], xticks=ticks - 0.5)
        ax.set_xticklabels(ticks, fontsize=max(5, min(12, 400 // len(ticks))))
    labels = [*(f"device {d}" for d in range(ndev)), "padding"]
    handles = [Patch(facecolor=c, label=text) for c, text in zip(colors, labels, strict=True)]
    axs[1].legend(handles=handles, loc="upper right", frameon=True)
    fig.suptitle(f"N={N}, ndev={ndev}")
    return fig, axs
