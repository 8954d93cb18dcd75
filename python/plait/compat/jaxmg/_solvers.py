"""The solvers of JAXMg on `plait.linalg`'s functions of dealt matrices.

Shared by 0.0.1, which splits matrices by columns, and later releases, which split them by rows; for
global arrays and, inside ``jax.shard_map``, for the parts of devices.
"""

import functools
import warnings
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec as P
from plait import _dealt_inside, _dense, _dense_args, _dense_eigh, _jax, _split
from plait._dealt import Deal
from plait.compat.jaxmg import _cyclic_1d, _forms, utils
from plait.compat.jaxmg._forms import Form

NOT_DEFINITE = 7  # CUSOLVER_STATUS_INTERNAL_ERROR, as passed on by JAXMg
MAX_T_A = 1024  # of cusolverMgSyevd


# ---- programs on dealt matrices --------------------------------------------------------------


def _status(info: Any) -> Any:
    return jnp.where(info == 0, jnp.int32(0), jnp.int32(NOT_DEFINITE))


def solve(a: Any, b: Any, *, form: Form, deal: Deal) -> tuple[Any, Any]:
    low, info = _dense.cholesky(_forms.deal_in(a, form, deal))
    x = _dense.cholesky_solve(low, _forms.rhs_in(b, deal))
    return _forms.solution_back(x), _status(info)


def invert(a: Any, *, form: Form, deal: Deal) -> tuple[Any, Any]:
    low, info = _dense.cholesky(_forms.deal_in(a, form, deal))
    return _forms.back(_dense.cholesky_inverse(low), form, a.shape), _status(info)


def decompose(a: Any, *, form: Form, deal: Deal) -> tuple[Any, Any, Any]:
    w, v, info = _dense_eigh.eigh(_forms.deal_in(a, form, deal), "check")
    v = _forms.columns_back(v, form, a.shape)
    return _nan_where(w, info), _nan_where(v, info), _status(info)


def values(a: Any, *, form: Form, deal: Deal) -> tuple[Any, Any]:
    w, info = _dense_eigh.eigvalsh(_forms.deal_in(a, form, deal))
    return _nan_where(w, info), _status(info)


def _nan_where(x: Any, info: Any) -> Any:
    return jnp.where(info == 0, x, jnp.full((), jnp.nan, x.dtype))


# ---- checks of arguments ---------------------------------------------------------------------


def _split_only(spec: Any, axis: int) -> tuple[str, ...]:
    """The mesh axes that split this axis of a matrix; none if another axis is split, too."""
    entries = (*spec, None, None)[:2]
    return () if entries[1 - axis] is not None else _split.axes_of(entries[axis])


def _is_several(in_specs: Any) -> bool:
    """Whether it is a sequence of PartitionSpecs; a single PartitionSpec may be a tuple itself."""
    return isinstance(in_specs, tuple | list) and not isinstance(in_specs, P)


def one_spec(in_specs: Any) -> Any:
    """The spec of 0.0.1's potri and syevd: a PartitionSpec, or a tuple of one."""
    if _is_several(in_specs):
        assert len(in_specs) == 1, f"expected only one `in_specs`, received {in_specs}"
        return in_specs[0]
    return in_specs


def two_specs(in_specs: Any) -> tuple[Any, Any]:
    """The specs of 0.0.1's potrs."""
    assert _is_several(in_specs), (
        f"expected `in_specs` to be a tuple or list of `PartitionSpec` objects, received {in_specs}"
    )
    assert len(in_specs) == 2, f"expected two `in_specs`, received {in_specs}"
    return in_specs[0], in_specs[1]


def check_rhs_spec(spec: Any) -> None:
    """ValueError unless the spec splits nothing."""
    if any(entry is not None for entry in spec):
        raise ValueError("b must be replicated along all shards with PartitionSpec P(None, None).")


def check_columns(spec: Any, name: str) -> None:
    """ValueError for specs other than 0.0.1's."""
    if not _split_only(spec, 1):
        which = "`a`" if name == "potri" else "A"
        raise ValueError(
            f"{which} must be sharded along the columns with PartitionSpec P(None, str)."
        )


def check_rows(spec: Any, name: str) -> None:
    """ValueError for specs other than later releases'; their text for potrs says "columns"."""
    if not _split_only(spec, 0):
        how = "columns with PartitionSpec P(None, str)"
        how = how if name == "potrs" else "rows with PartitionSpec P(str, None)"
        raise ValueError(f"A must be sharded along the {how}.")


def row_spec(in_specs: Any, name: str) -> Any:
    """The spec of potri and syevd in later releases."""
    if _is_several(in_specs):
        if len(in_specs) != 1:
            raise ValueError("in_specs must be a single PartitionSpec or a 1-element list/tuple.")
        in_specs = in_specs[0]
    if not isinstance(in_specs, P):
        raise TypeError(
            "in_specs must be a PartitionSpec or a 1-element list/tuple containing one."
        )
    check_rows(in_specs, name)
    return in_specs


def row_spec_of_potrs(in_specs: Any) -> tuple[Any, bool]:
    """The spec of the matrix, and whether it is given alone, as since 0.0.6."""
    if _is_several(in_specs) and len(in_specs) == 2:
        check_rows(in_specs[0], "potrs")
        check_rhs_spec(in_specs[1])
        return in_specs[0], False
    return row_spec(in_specs, "potrs"), True


def n_devices(mesh: Any, spec: Any, axis: int) -> int:
    """The number of devices that split an axis."""
    return _cyclic_1d._parts(mesh, spec, axis)


def check_width(T_A: int) -> None:
    """ValueError for tiles that cuSolverMg's eigensolver does not take."""
    if T_A > MAX_T_A:
        raise ValueError(f"T_A has a maximum value of {MAX_T_A} for SyevdMg, received T_A={T_A}")


def lowered_width(T_A: int) -> int:
    """The same as since 0.0.6: reduces the width, with a warning."""
    if T_A > MAX_T_A:
        warnings.warn(
            f"T_A has a maximum value of {MAX_T_A} for SyevdMg, received T_A={T_A}, "
            f"T_A is lowered to {MAX_T_A}",
            utils.JaxMgWarning,
            stacklevel=3,
        )
    return min(T_A, MAX_T_A)


def _form(shape: tuple[int, int], names: tuple, ndev: int, T_A: int, cyclic: bool) -> Form:
    """The form of a matrix that is split by columns; shape: that of the whole array."""
    n, width = shape
    form, shard_size = Form(n, 1, names), n // ndev
    if not cyclic and T_A < shard_size and ndev > 1:
        _cyclic_1d._check_tiling(shard_size, T_A, ndev)
    want = n
    if cyclic and T_A < shard_size and not (ndev == 1 and width == n):
        form, want = Form(n, 1, names, T_A), ndev * _cyclic_1d._need(shard_size, T_A)
    if width != want:
        raise ValueError(
            f"a is {n} x {width}; expected {n} x {want}, for {ndev} devices and T_A={T_A}"
        )
    return form


def _check_tile(T_A: int, name: str) -> None:
    if T_A < 1:
        raise ValueError(f"{name}: T_A is {T_A}; expected 1 or more")


def _check_padding(n_rows: int, n: int, ndev: int, T_A: int, pad: bool) -> int:
    """Padding rows in every device's part; by pad either none, or those that fill the tiles."""
    shard_size = n // ndev
    is_whole = pad or T_A >= shard_size
    padding = 0 if is_whole else _cyclic_1d.calculate_padding(shard_size, T_A)
    assert n_rows == n + ndev * padding, (
        f"pad={pad}, but with T_A={T_A}, we need padding of {padding} rows per device."
        f"Expected {n + ndev * padding} rows, but received {n_rows}"
    )
    return padding


def block_of(n: int, n_ranks: int, T_A: int) -> int:
    """Columns of a block: T_A, or fewer if some devices would have nothing."""
    return max(1, min(T_A, -(-n // n_ranks)))


# ---- global arrays -----------------------------------------------------------------------------


def _run(program: Any, xs: dict, spec: Any, mesh: Any, T_A: int, form: Form, name: str) -> Any:
    found = _dense_args.operands(xs, mesh, {"a": spec, "b": P()}, name)
    mesh = found["a"].place.mesh
    deal = Deal(mesh, block_of(form.n, mesh.size, T_A))
    return _dense_args.run(program, *(f.x for f in found.values()), form=form, deal=deal)


def by_columns(
    program: Any, xs: dict, spec: Any, mesh: Any, T_A: int, cyclic: bool, name: str
) -> Any:
    """Runs the program on global arrays, with the matrix split as in 0.0.1."""
    _check_tile(T_A, name)
    _cyclic_1d.check_mesh(mesh, spec, name)
    names, ndev = _split_only(spec, 1), n_devices(mesh, spec, 1)
    form = _form(xs["a"].shape, names, ndev, T_A, cyclic)
    return _run(program, xs, spec, mesh, T_A, form, name)


def by_rows(program: Any, xs: dict, spec: Any, mesh: Any, T_A: int, pad: bool, name: str) -> Any:
    """Runs the program on global arrays, with the matrix split as in later releases.

    Also returns a function that pads an array split along an axis: it gives each device's part the
    rows of padding that the operand had.
    """
    _check_tile(T_A, name)
    _cyclic_1d.check_mesh(mesh, spec, name)
    names, ndev = _split_only(spec, 0), n_devices(mesh, spec, 0)
    n_rows, n = xs["a"].shape
    padding = _check_padding(n_rows, n, ndev, T_A, pad)
    if padding:
        bare = _cyclic_1d.shards(mesh, spec, _cyclic_1d.first_rows, n=n // ndev)
        xs = xs | {"a": bare(xs["a"])}

    def padded(x: Array, axis: int) -> Array:
        split = P(*[None] * axis, spec[0])
        return _cyclic_1d.shards(mesh, split, _pad, axis=axis, padding=padding)(x)

    results = _run(program, xs, spec, mesh, T_A, Form(n, 0, names), name)
    return results, padded if padding else (lambda x, axis: x)


def _pad(x: Array, axis: int, padding: int) -> Array:
    return jnp.pad(x, [(0, padding if i == axis else 0) for i in range(x.ndim)])


# ---- inside shard_map ----------------------------------------------------------------------------


def _local(xs: dict, name: str) -> list:
    """The operands in one dtype that the solvers have."""
    made = {argument: _dense_args.as_inexact(x, name, argument) for argument, x in xs.items()}
    kinds = {argument: x.dtype.name for argument, x in made.items()}
    if len(set(kinds.values())) > 1:
        given = ", ".join(f"{argument} is {kind}" for argument, kind in kinds.items())
        raise TypeError(f"{name}: {given}; expected one dtype, convert with .astype")
    return list(made.values())


def columns_inside(
    program: Any, xs: dict, T_A: int, cyclic: bool, axis_name: Any, name: str
) -> Any:
    """On one device's columns."""
    _check_tile(T_A, name)
    deal = _dealt_inside.along(axis_name, 1, name)
    n, width = xs["a"].shape
    form = _form((n, width * deal.n_ranks), deal.axes, deal.n_ranks, T_A, cyclic)
    deal = deal.with_block(block_of(n, deal.n_ranks, T_A))
    return program(*_local(xs, name), form=form, deal=deal)


def rows_inside(program: Any, xs: dict, T_A: int, pad: bool, axis_name: Any, name: str) -> Any:
    """On one device's rows; with a function that pads, as `by_rows`."""
    _check_tile(T_A, name)
    n_rows, n = xs["a"].shape
    deal = _dealt_inside.along(_axes_of(axis_name, n, n_rows, name), 1, name)
    ndev = deal.n_ranks
    padding = _check_padding(n_rows * ndev, n, ndev, T_A, pad)
    xs = xs | {"a": xs["a"][: n // ndev]}
    deal = deal.with_block(block_of(n, ndev, T_A))
    results = program(*_local(xs, name), form=Form(n, 0, deal.axes), deal=deal)
    return results, functools.partial(_pad, padding=padding)


def _axes_of(axis_name: Any, n: int, n_rows: int, name: str) -> Any:
    """The mesh axes that split n rows into parts of n_rows; JAXMg takes all devices."""
    mesh = _jax.manual_mesh()
    if axis_name is not None or mesh is None:
        return axis_name or "x"
    sizes = {axis: size for axis, size in mesh.shape.items() if size > 1}
    ndev = n // max(n_rows, 1)
    one = [axis for axis, size in sizes.items() if size == ndev]
    if len(sizes) > 1 and mesh.size != ndev and len(one) != 1:
        raise ValueError(f"{name}: several axes of the mesh {dict(mesh.shape)}; give axis_name=")
    if mesh.size == ndev or not one:
        return tuple(sizes) or mesh.axis_names
    return one[0]
