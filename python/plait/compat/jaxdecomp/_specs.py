"""How jaxDecomp splits a result, and the mesh and spec of an operand."""

from typing import Any

import jax
from jax.lax import FftType
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _args, _jax, _mesh, _split
from plait.compat.jaxdecomp._config import Decomposition, config

# For each axis of the result, the entry of the operand's spec that it gets. The inverse transform
# reads this table backwards; with contiguous axes both directions are alike.
_CONTIGUOUS = {
    Decomposition.SLAB_XY: (1, 0, 2),
    Decomposition.SLAB_YZ: (2, 1, 0),
    Decomposition.PENCILS: (0, 1, 2),
    Decomposition.NO_DECOMP: (0, 1, 2),
}
_IN_PLACE = {
    Decomposition.SLAB_XY: (2, 1, 0),
    Decomposition.SLAB_YZ: (0, 2, 1),
    Decomposition.PENCILS: (2, 0, 1),
    Decomposition.NO_DECOMP: (0, 1, 2),
}
# Real transforms leave the halved axis whole, so that it has no padding.
_REAL_CONTIGUOUS, _REAL_IN_PLACE = (0, 2, 1), (1, 0, 2)

FORWARD = (FftType.FFT, FftType.RFFT)


def _three(spec: Any) -> tuple:
    return (*spec, *(None,) * (3 - len(spec)))


def parts(mesh: Any, entry: Any) -> int:
    """The number of parts into which an entry of a spec splits its axis."""
    return _split.parts(mesh, _split.axes_of(entry))


def order(fft_type: FftType) -> tuple[int, int, int]:
    """For each axis of the result, the axis of the operand."""
    if not config.transpose_axis_contiguous:
        return (0, 1, 2)
    return (1, 2, 0) if fft_type in FORWARD else (2, 0, 1)


def _entries(fft_type: FftType, kind: Decomposition) -> tuple[int, int, int]:
    if fft_type in (FftType.RFFT, FftType.IRFFT):
        return _REAL_CONTIGUOUS if config.transpose_axis_contiguous else _REAL_IN_PLACE
    if config.transpose_axis_contiguous:
        return _CONTIGUOUS[kind]
    table = _IN_PLACE[kind]
    return table if fft_type == FftType.FFT else tuple(table.index(i) for i in range(3))


def get_output_specs(
    fft_type: FftType, pencil_type: Decomposition, spec: P, backend: str = "JAX"
) -> tuple[Any, ...]:
    """The spec of a transform's result, for an operand with this spec.

    Collective: no.  Shapes: three entries.
    Raises: TypeError for an invalid pencil_type.
    Source: ``get_output_specs`` of jaxDecomp.

    Example:
        >>> from jax.lax import FftType
        >>> from jax.sharding import PartitionSpec as P
        >>> from plait.compat import jaxdecomp
        >>> jaxdecomp.get_output_specs(FftType.FFT, jaxdecomp.SLAB_XY, P("x", None))
        (None, 'x', None)
    """
    try:
        kind = Decomposition(pencil_type)
    except ValueError:
        raise TypeError("Unknown pencil type") from None
    spec = _three(spec)
    return tuple(spec[i] for i in _entries(fft_type, kind))


def kind_of(mesh: Any, spec: Any, *, is_spectrum: bool = False) -> Decomposition:
    """Slab or pencil, by which of a spec's three axes are really split."""
    split = tuple(parts(mesh, e) > 1 for e in _three(spec))
    if sum(split) != 1:
        return Decomposition.PENCILS if any(split) else Decomposition.NO_DECOMP
    if not is_spectrum:
        return Decomposition.SLAB_YZ if split[1] else Decomposition.SLAB_XY
    # A slab's spectrum is split along the same axis wherever it comes from. Where it goes back to
    # differs: the place of the mesh axis in the mesh tells.
    axis = next(n for e in spec for n in _split.axes_of(e) if mesh.shape[n] > 1)
    is_second = convention(mesh, 3)[1] == axis
    return Decomposition.SLAB_YZ if is_second else Decomposition.SLAB_XY


def convention(mesh: Any, ndim: int) -> tuple:
    """The entries for an array in real space: mesh axis i splits array axis i.

    In a mesh with more than two axes, axes with one device do not count. If three axes still count,
    the first is for the batch axis of a four-axis array.
    """
    known, batch = tuple(mesh.axis_names), None
    found = known
    if len(known) > 2:
        found = tuple(n for n in known if mesh.shape[n] > 1)
        if len(found) > 2:
            batch, found = (found[0] if ndim == 4 else None), found[-2:]
        elif set(found) <= set(known[:2]):
            found = known[:2]
    entries = (*found, None, None, None)[:3]
    return entries if ndim == 3 else (batch, *entries)


def _one_reading(x: Any, mesh: Any, name: str) -> tuple:
    """`convention`, for functions whose result depends on it.

    With a batch, and two axes of several devices in a mesh of more than two axes, the first of them
    may or may not be for the batch. If its place in the mesh says that it is, the convention may be
    wrong.
    """
    entries, known = convention(mesh, x.ndim), tuple(mesh.axis_names)
    if (x.ndim == 4 or _jax.is_batched(x)) and len(known) > 2:
        by_place = (*known, None)[4 - x.ndim : 4]
        pairs = zip(entries, by_place, strict=True)
        if any(e != q and parts(mesh, e) * parts(mesh, q) > 1 for e, q in pairs):
            sizes = tuple(mesh.shape[n] for n in known)
            raise ValueError(
                f"{name}: under jax.jit a mesh {known} of {sizes} with Auto axes does not say how "
                f"a batch of arrays is split: each along {entries[-3:]} or along {by_place[-3:]}; "
                "give the mesh Explicit axes, or call this outside of jit"
            )
    return entries


def validate_spec_matches_mesh(spec: Any, mesh: Mesh) -> None:
    """Whether each array axis is split by the mesh axis in its place.

    plait's transforms take any spec; this function is for programs that ask.

    Collective: no.  Shapes: three entries at most.
    Raises: ValueError that says where they do not match.
    Source: ``validate_spec_matches_mesh`` of jaxDecomp.

    Example:
        >>> import jax
        >>> from jax.sharding import PartitionSpec as P
        >>> from plait.compat import jaxdecomp
        >>> jaxdecomp.validate_spec_matches_mesh(P("x"), jax.make_mesh((1, 1), ("x", "y")))
    """
    spec, known = _three(spec), mesh.axis_names
    for i, entry in enumerate(spec[:3]):
        name = known[i] if i < len(known) else None
        text = f"Spec {spec} does not match mesh axis names {known}. At position {i}: "
        if entry is not None and entry != name:
            wanted = "nothing (trailing)" if name is None else name
            raise ValueError(f"{text}spec has '{entry}' but mesh expects '{wanted}'.")
        if entry is None and name is not None and mesh.shape[name] > 1:
            size = mesh.shape[name]
            raise ValueError(f"{text}spec has None but mesh axis '{name}' has size {size}.")


def get_fft_output_sharding(fft_sharding: NamedSharding) -> NamedSharding:
    """The sharding of `pfft3d`'s result, for an operand with this sharding.

    Collective: no.  Shapes: three axes, or four with the batch axis first.
    Raises: TypeError for anything but a NamedSharding.
    Source: ``get_fft_output_sharding`` of jaxDecomp.

    Example:
        >>> import jax
        >>> from jax.sharding import NamedSharding, PartitionSpec as P
        >>> from plait.compat import jaxdecomp
        >>> mesh = jax.make_mesh((1, 1), ("x", "y"))
        >>> jaxdecomp.get_fft_output_sharding(NamedSharding(mesh, P("x", "y"))).spec
        P('x', 'y', None)
    """
    if not isinstance(fft_sharding, NamedSharding):
        kind = type(fft_sharding).__name__
        raise TypeError(f"get_fft_output_sharding: {kind}; expected NamedSharding")
    mesh, spec = fft_sharding.mesh, tuple(fft_sharding.spec)
    n_batch = int(_is_batched(mesh, spec))
    kind = kind_of(mesh, spec[n_batch:])
    result = get_output_specs(FftType.FFT, kind, spec[n_batch:])
    return NamedSharding(mesh, P(*spec[:n_batch], *result))


def _is_batched(mesh: Any, spec: tuple) -> bool:
    """Whether a spec has four axes: three named, or the first one None, by jaxDecomp's rule.

    The mesh overrides the rule: for P(None, 'y') with y second, and for P('x', 'y', 'z') with one
    device along z.
    """
    named = [i for i, e in enumerate(spec) if e is not None]
    home = convention(mesh, 3)
    if len(spec) == 4 or not named:
        return len(spec) == 4
    if len(named) == 3:
        return spec[:2] != home[:2] or parts(mesh, spec[2]) > 1
    return named[0] > 0 and home[named[0]] != spec[named[0]]


# ---- operands ------------------------------------------------------------------------------------


def _mesh_of(x: Any) -> Any:
    """The mesh of an operand, or the mesh around it; None: the operand is on one device."""
    typed = jax.typeof(x).sharding.mesh
    if not typed.empty:
        return typed
    array = _jax.underlying(x)
    if not isinstance(array, jax.core.Tracer):
        sharding = getattr(array, "sharding", None)  # NumPy arrays, as under jax.grad, have none
        return sharding.mesh if isinstance(sharding, NamedSharding) else None
    around = jax.sharding.get_abstract_mesh()
    return (_jax.concrete_mesh() or around) if not around.empty else _jax.entered_mesh()


def _own_spec(x: Any, ndim: int) -> tuple | None:
    """The spec in an operand's type or, outside traces, its sharding, which has Auto axes, too."""
    typed = jax.typeof(x).sharding
    found = _jax.eager_sharding(x)
    known = None if found is None else found[1]
    if typed.mesh.empty or all(t == AxisType.Auto for t in typed.mesh.axis_types):
        return known
    own = (*typed.spec, *(None,) * (ndim - len(typed.spec)))
    return known if known is not None and _agree(typed.mesh, known, own) else own


def _agree(mesh: Any, known: tuple, own: tuple) -> bool:
    """Whether an array is split along Explicit axes as its type says."""
    names = [_mesh.names_of(P(*spec), len(own), "spec") for spec in (known, own)]
    return _mesh.explicit(mesh, names[0]) == names[1]


def locate(x: Any, name: str, guess: Any = None) -> tuple[Any, Any, tuple]:
    """The operand, its mesh (`plait._mesh.ALONE`: one device) and its spec.

    guess: from mesh and number of axes to the spec of a traced operand, if JAX does not tell the
    spec. A wrong guess costs time, but never changes the result. None: the spec affects the result,
    so the library's convention applies.
    """
    _mesh.check_global(name)
    x = _args.as_array(x, name)
    if x.ndim not in (3, 4):
        raise ValueError(f"{name}: Unsupported input shape {x.shape}")
    mesh = _mesh_of(x)
    if mesh is None:
        return x, _mesh.ALONE, (None,) * x.ndim
    spec = _own_spec(x, x.ndim)
    is_typed = spec is not None and _jax.eager_sharding(x) is None
    if is_typed and guess is None and _mesh.has_unknown(x, mesh):
        raise ValueError(
            f"{name}: the result depends on how x is split, which a trace does not know of Auto "
            f"axes beside Explicit ones; the type says {P(*spec)}"
        )
    if spec is None:
        spec = _one_reading(x, mesh, name) if guess is None else guess(mesh, x.ndim)
    return x, mesh, spec
