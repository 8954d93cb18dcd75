"""Ghost cells as in jaxDecomp: the functions of jaxdecomp.halo, and those for padding."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import plait
from jax import Array
from jax.sharding import PartitionSpec as P
from plait import _mesh
from plait.compat.jaxdecomp import _specs
from plait.compat.jaxdecomp.fft import check_backend

__all__ = ["halo_exchange", "slice_pad", "slice_unpad"]


def halo_exchange(
    x: Array,
    halo_extents: Sequence[int],
    halo_periods: Sequence[bool],
    backend: str = "jax",
    *,
    reduce_halo: bool = False,
) -> Array:
    """Fill the ghost cells of padded parts: ``plait.halo.exchange`` of the first two axes.

    With two extents, ghosts of an axis that is not split stay as they are, as in jaxDecomp. With
    three, as in early releases, they are filled from the axis's other end. ``reduce_halo=True``,
    from early releases, then adds the ghosts to the cells beside them, first axis first.

    Collective: over the mesh, in program order.
    Shapes: padded to the same, of three axes, or with one leading batch axis.
    Raises: ValueError for extents that do not fit, or an unknown backend; TypeError for extents
    that are no integers, or periods that are not True or False.
    Adjoint: `plait.halo.reduce`, which is exact; jaxDecomp exchanges the cotangent instead.
    Source: ``halo_exchange`` of jaxDecomp.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> x = jnp.arange(4.0).reshape(4, 1, 1)
        >>> jaxdecomp.halo_exchange(x, (1, 0, 0), (True, True, True)).ravel().tolist()
        [2.0, 1.0, 2.0, 1.0]
    """
    check_backend(backend)
    x, mesh, spec = _specs.locate(x, "halo_exchange")
    try:
        n_given = len(halo_extents)
        is_alike = n_given in (2, 3) and len(halo_periods) == n_given
    except TypeError:
        is_alike = False
    if not is_alike:
        raise ValueError(
            f"halo_exchange: extents {halo_extents}, periods {halo_periods}; expected two of each"
        )
    try:
        given = [operator.index(e) for e in halo_extents]
    except TypeError:
        text = f"halo_exchange: halo_extents is {halo_extents!r}; expected integers"
        raise TypeError(text) from None
    periods = plait.halo.flags(tuple(halo_periods), "halo_exchange", "halo_periods")
    extents = [0] * x.ndim
    periodic = [True] * x.ndim
    for i, (e, is_periodic) in enumerate(zip(given, periods, strict=True)):
        axis = x.ndim - 3 + i
        if n_given == 3 or _specs.parts(mesh, spec[axis]) > 1:
            extents[axis], periodic[axis] = e, is_periodic
    if any(extents):
        where = {"mesh": mesh} if mesh is _mesh.ALONE else {"mesh": mesh, "spec": P(*spec)}
        x = plait.halo.exchange(x, extents, periodic=periodic, **where)
    if reduce_halo:
        x = _on_parts(_added, tuple(extents), mesh, spec)(x)
    return x


# ---- padding -------------------------------------------------------------------------------------


def _added(extents: tuple[int, ...], part: Any) -> Any:
    """The part with its ghosts added to the cells beside them, along the first two axes."""
    for axis in range(part.ndim - 3, part.ndim - 1):
        e, n = extents[axis], part.shape[axis]
        at = lambda lo, hi, a=axis: (slice(None),) * a + (slice(lo, hi),)  # noqa: E731
        part = part.at[at(e, 2 * e)].add(part[at(0, e)])
        part = part.at[at(n - 2 * e, n - e)].add(part[at(n - e, n)])
    return part


@functools.lru_cache(maxsize=1024)
def _mapped(fun: Any, given: Any, mesh: Any, spec: Any) -> Any:
    part = functools.partial(fun, given)
    if mesh is not _mesh.ALONE:
        part = jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec)
    return jax.jit(part)


def _on_parts(fun: Any, given: Any, mesh: Any, spec: tuple) -> Any:
    return _mapped(fun, given, mesh, P(*spec))


def _padded(given: Any, part: Any) -> Any:
    widths, mode = given
    return jnp.pad(part, widths, mode=mode)


def _cut(widths: Any, part: Any) -> Any:
    index = (slice(lo, n - hi) for (lo, hi), n in zip(widths, part.shape, strict=True))
    return part[tuple(index)]


def _widths(width: Any, ndim: int, name: str) -> tuple[tuple[int, int], ...]:
    """One width for all three axes, or one for each axis, as a number or a pair."""
    given = (width,) * 3 if isinstance(width, int) else tuple(width)
    if len(given) != 3:
        raise ValueError(f"{name}: padding_width {width}; expected an integer or one for each axis")
    pairs = ((w, w) if isinstance(w, int) else tuple(w) for w in given)
    return (*((0, 0),) * (ndim - 3), *pairs)


def _pieces(fun: Any, x: Any, pdims: Any, ndim: int) -> Any:
    """``fun`` of each piece that pdims cuts from an array on one device."""
    rows = (pdims[1], pdims[0]) if pdims is not None else (1, 1)
    lines = [
        jnp.concatenate([fun(piece) for piece in jnp.split(line, rows[1], ndim - 2)], ndim - 2)
        for line in jnp.split(x, rows[0], ndim - 3)
    ]
    return jnp.concatenate(lines, ndim - 3)


def slice_pad(
    x: Array, padding_width: Any, pdims: tuple[int, int] | None = None, mode: str = "constant"
) -> Array:
    """Pad each device's part, as early releases of jaxDecomp did.

    ``padding_width`` is an integer, or an integer or a pair for each axis; ``mode`` is that of
    ``jnp.pad``. ``pdims`` says how to cut an array on one device first (axis 0 into ``pdims[1]``
    pieces, axis 1 into ``pdims[0]``); an array on a mesh is cut as it is split.

    Collective: no.  Shapes: n along a split axis to n plus its padding in each part.
    Raises: ValueError for invalid widths.
    Adjoint: `slice_unpad`, for zeros.  Source: ``slice_pad`` of jaxDecomp 0.1.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> jaxdecomp.slice_pad(jnp.ones((2, 2, 2)), ((1, 1), (0, 0), (0, 0)), (1, 2)).shape
        (6, 2, 2)
    """
    x, mesh, spec = _specs.locate(x, "slice_pad")
    widths = _widths(padding_width, x.ndim, "slice_pad")
    fun = _on_parts(_padded, (widths, mode), mesh, spec)
    return _pieces(fun, x, pdims, x.ndim) if mesh is _mesh.ALONE else fun(x)


def slice_unpad(x: Array, padding_width: Any, pdims: tuple[int, int] | None = None) -> Array:
    """Cut off what `slice_pad` has added.

    Collective: no.  Shapes: padded to what was padded.
    Raises: as `slice_pad`.  Adjoint: `slice_pad`.  Source: ``slice_unpad`` of jaxDecomp 0.1.

    Example:
        >>> import jax.numpy as jnp
        >>> from plait.compat import jaxdecomp
        >>> x = jaxdecomp.slice_pad(jnp.ones((2, 2, 2)), 1, (1, 1))
        >>> jaxdecomp.slice_unpad(x, 1, (1, 1)).shape
        (2, 2, 2)
    """
    x, mesh, spec = _specs.locate(x, "slice_unpad")
    widths = _widths(padding_width, x.ndim, "slice_unpad")
    fun = _on_parts(_cut, widths, mesh, spec)
    return _pieces(fun, x, pdims, x.ndim) if mesh is _mesh.ALONE else fun(x)
