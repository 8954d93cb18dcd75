"""The constants of jaxDecomp, its configuration, and its description of pencils."""

import dataclasses
import enum
import math
from typing import Any

import jax
import numpy as np
import plait
from plait import _mesh, _split


class TransposeCommBackend(enum.IntEnum):
    """How transforms and transposes communicate, in cuDecomp's words."""

    TRANSPOSE_COMM_MPI_P2P = 1
    TRANSPOSE_COMM_MPI_P2P_PL = 2
    TRANSPOSE_COMM_MPI_A2A = 3
    TRANSPOSE_COMM_NCCL = 4
    TRANSPOSE_COMM_NCCL_PL = 5
    TRANSPOSE_COMM_NVSHMEM = 6
    TRANSPOSE_COMM_NVSHMEM_PL = 7


class HaloCommBackend(enum.IntEnum):
    """How ghost cells are exchanged, in cuDecomp's words."""

    HALO_COMM_MPI = 1
    HALO_COMM_MPI_BLOCKING = 2
    HALO_COMM_NCCL = 3
    HALO_COMM_NVSHMEM = 4
    HALO_COMM_NVSHMEM_BLOCKING = 5


class TransposeType(enum.IntEnum):
    """From which pencils to which pencils."""

    TRANSPOSE_XY = 0
    TRANSPOSE_YZ = 1
    TRANSPOSE_ZY = 2
    TRANSPOSE_YX = 3
    TRANSPOSE_XZ = 4
    TRANSPOSE_ZX = 5


class Decomposition(enum.IntEnum):
    """Which of the first two axes are split: the first, the second, both, none."""

    SLAB_XY = 0
    SLAB_YZ = 1
    PENCILS = 2
    NO_DECOMP = 3


# ---- configuration -------------------------------------------------------------------------------


_KINDS: dict[str, type[enum.IntEnum]] = {
    "halo_comm_backend": HaloCommBackend,
    "transpose_comm_backend": TransposeCommBackend,
}


def _backend(kind: type[enum.IntEnum], key: str, value: Any) -> enum.IntEnum:
    """The constant for a constant, its number or a name; 'MPI' means the default one of MPI."""
    if not isinstance(value, str):
        try:
            return kind(None if isinstance(value, bool) else value)  # True is 1 to Python
        except ValueError:
            raise ValueError(f"{value!r} is not a valid value of {key}") from None
    prefix = key.removesuffix("backend").upper()
    name = value.upper()
    name = name if name.startswith(prefix) else prefix + name
    default = {prefix + "MPI": 1 if kind is HaloCommBackend else 3}  # A2A, as in its examples
    try:
        return kind[name] if name in kind.__members__ else kind(default[name])
    except KeyError:
        known = ", ".join(sorted({"MPI", *(m.removeprefix(prefix) for m in kind.__members__)}))
        raise ValueError(f"{value!r} is not a valid value of {key}; expected {known}") from None


@dataclasses.dataclass
class JAXDecompConfig:
    """The library's configuration; `update` and assignments take constants or strings.

    The backends choose plait's transport, and never change a result. transpose_axis_contiguous does
    change results: as in jaxDecomp, it is read when a function is traced.
    """

    halo_comm_backend: HaloCommBackend = HaloCommBackend.HALO_COMM_NCCL
    transpose_comm_backend: TransposeCommBackend = TransposeCommBackend.TRANSPOSE_COMM_NCCL
    transpose_axis_contiguous: bool = True

    def update(self, key: str, value: Any) -> None:
        """Set a value; ValueError for an unknown key or an invalid value."""
        if key in _KINDS:
            value = _backend(_KINDS[key], key, value)
            if key in vars(self):  # a new configuration's defaults are no choice
                _forward(key, value)
        elif key != "transpose_axis_contiguous":
            raise ValueError(f"key {key} is not a valid configuration key")
        elif not isinstance(value, bool | np.bool_):
            text = f"{value!r} is not a valid value of {key}; expected True or False"
            raise ValueError(text)
        object.__setattr__(self, key, value)

    def __setattr__(self, key: str, value: Any) -> None:
        self.update(key, value)


def _forward(key: str, value: enum.IntEnum) -> None:
    """Pass the choice to plait: messages for MPI, else what is fastest here."""
    plait.config.update(key, "MPI" if "_MPI" in value.name else "auto")


config: JAXDecompConfig = JAXDecompConfig()


def init() -> None:
    """Does nothing: plait starts when it is imported."""


def finalize() -> None:
    """Does nothing: plait ends with the program."""


# ---- pencils -------------------------------------------------------------------------------------


@dataclasses.dataclass
class GridConfig:
    """A global grid and its processes, in cuDecomp's order: the fastest axis first."""

    gdims: tuple[int, int, int] = (0, 0, 0)
    pdims: tuple[int, int] = (0, 0)
    transpose_comm_backend: TransposeCommBackend = TransposeCommBackend.TRANSPOSE_COMM_MPI_P2P
    halo_comm_backend: HaloCommBackend = HaloCommBackend.HALO_COMM_MPI


make_config = GridConfig


@dataclasses.dataclass(frozen=True)
class PencilInfo:
    """One process's pencil: shape, lo and hi in the pencil's own order of axes, which is order."""

    shape: tuple[int, int, int]
    lo: tuple[int, int, int]
    hi: tuple[int, int, int]
    order: tuple[int, int, int]
    halo_extents: tuple[int, int, int]
    size: int


def get_pencil_info(config: GridConfig, axis: int, *, rank: int | None = None) -> PencilInfo:
    """The pencil of a process along an axis; by default of this process.

    Collective: no.  Shapes: three numbers each, the pencil's axis first.
    Raises: ValueError for an invalid axis, rank or grid.
    Source: ``cudecompGetPencilInfo`` of cuDecomp, with contiguous axes.

    Example:
        >>> from plait.compat import jaxdecomp
        >>> config = jaxdecomp.make_config(gdims=(8, 6, 4), pdims=(2, 2))
        >>> jaxdecomp.get_pencil_info(config, 1, rank=3).shape
        (6, 2, 4)
    """
    if axis not in (0, 1, 2):
        raise ValueError(f"get_pencil_info: axis is {axis}; expected 0, 1 or 2")
    n_ranks = math.prod(config.pdims)
    rank = jax.process_index() if rank is None else rank
    if min(*config.gdims, *config.pdims) < 1 or not 0 <= rank < n_ranks:
        raise ValueError(f"get_pencil_info: rank {rank} of {config}")
    place = divmod(rank, config.pdims[1])
    bounds = [(0, config.gdims[axis])] * 3
    for i, n_parts, part in zip(
        [i for i in range(3) if i != axis], config.pdims, place, strict=True
    ):
        n, more = divmod(config.gdims[i], n_parts)
        lo = part * n + min(part, more)
        bounds[i] = (lo, lo + n + (part < more))
    order = tuple((axis + i) % 3 for i in range(3))
    lo = tuple(bounds[i][0] for i in order)
    hi = tuple(bounds[i][1] - 1 for i in order)
    shape = tuple(h - low + 1 for low, h in zip(lo, hi, strict=True))
    return PencilInfo(shape, lo, hi, order, (0, 0, 0), math.prod(shape))


# ---- tuning --------------------------------------------------------------------------------------


def autotune(shape: Any, **kwargs: Any) -> Any:
    """`plait.fft.autotune`: a mesh on which transforms of this shape are fast, with its ``.spec``.

    jaxDecomp's README promises this function. ``NamedSharding(mesh, mesh.spec)`` is the sharding of
    an array to be transformed.

    Collective: over all devices.  Shapes: of the global array.  Raises: as `plait.fft.autotune`.
    Source: `plait.fft.autotune`.
    """
    return plait.fft.autotune(tuple(shape), **kwargs)


def get_autotuned_config(
    config: GridConfig,
    double_precision: bool,
    disable_nccl_backends: bool,
    disable_nvshmem_backends: bool,
    tune_with_transpose: bool,
    halo_extents: Any,
    halo_periods: Any,
) -> GridConfig:
    """The configuration with the grid of processes on which its transforms are fastest.

    The grid is that of `autotune`. The arguments after the precision tell cuDecomp what to try, and
    change nothing here.

    Collective: over all devices.  Shapes: gdims to pdims.  Raises: as `autotune`.
    Source: ``get_autotuned_config`` of jaxDecomp.
    """
    shape = tuple(config.gdims)[::-1]
    mesh = autotune(shape, dtype=np.complex128 if double_precision else np.complex64)
    parts = [_split.parts(mesh, axes) for axes in _mesh.names_of(mesh.spec, 3, "autotune")]
    return dataclasses.replace(config, pdims=(parts[1], parts[0]))
