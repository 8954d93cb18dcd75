"""Where a matrix of JAXMg's solvers from 1.0 on lives: on a grid of one or two mesh axes."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from plait import _jax, _mesh, _split
from plait.compat.jaxmg import _solvers


@dataclasses.dataclass(frozen=True)
class Grid:
    """The mesh, its split of the matrix, and whether the matrix comes whole on all devices.

    Results are split in the same way; those of a whole matrix are whole.
    """

    mesh: Any
    spec: P
    is_whole: bool

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of the grid."""
        rows, columns = _mesh.names_of(self.spec, 2, "matrix_specs", "matrix_specs")
        return _split.parts(self.mesh, rows), _split.parts(self.mesh, columns)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that tell `plait.linalg` about the matrix."""
        return {"mesh": self.mesh, "spec": None if self.is_whole else self.spec}

    @property
    def rows(self) -> P:
        """The split of right-hand sides that come without a split."""
        return P(self.spec[0])

    def block(self, n: int, T_A: int) -> int:
        """Columns of a block."""
        return _solvers.block_of(n, self.mesh.size, T_A)


def known(x: Any) -> NamedSharding | None:
    """How an array is split, if it or its type says so; traces on Auto axes do not."""
    array = _jax.underlying(x)
    if not isinstance(array, jax.core.Tracer):
        found = getattr(array, "sharding", None)
        return found if isinstance(found, NamedSharding) else None
    found = jax.typeof(x).sharding
    is_explicit = all(kind == AxisType.Explicit for kind in found.mesh.axis_types)
    return found if is_explicit and not found.mesh.empty else None


def _one_spec(matrix_specs: Any, in_specs: Any) -> P | None:
    if matrix_specs is not None and in_specs is not None:
        raise ValueError("Specify only one of matrix_specs=... or in_specs=...")
    spec = matrix_specs if matrix_specs is not None else in_specs
    text = "matrix_specs/in_specs must be a PartitionSpec or a one-element tuple/list"
    if isinstance(spec, tuple | list) and not isinstance(spec, P):
        if len(spec) != 1:
            raise ValueError(f"{text} containing one.")
        [spec] = spec
    if spec is not None and not isinstance(spec, P):
        raise TypeError(f"{text} containing one.")
    return spec


def _find_mesh(a: Any, mesh: Any) -> Any:
    if mesh is not None:
        return mesh
    own, typed = known(a), jax.typeof(a).sharding.mesh
    around = jax.sharding.get_abstract_mesh()
    if own is not None or not typed.empty:
        return typed if own is None else own.mesh
    if around.empty:
        raise ValueError(
            "cuSOLVERMp routine could not find a mesh for A. Shard A with "
            "jax.sharding.NamedSharding, set a mesh with jax.set_mesh, or pass mesh=..."
        )
    return _jax.concrete_mesh() or around


def _find_spec(a: Any, mesh: Any, spec: P | None) -> P:
    own = known(a)
    if spec is None and own is not None and any(own.spec) and not _is_elsewhere(a, mesh):
        spec = own.spec
    if spec is None:
        if len(mesh.axis_names) > 2:
            raise ValueError(
                "cuSOLVERMp routine could not infer the matrix sharding of A over the mesh axes "
                f"{mesh.axis_names}. Pass matrix_specs=..."
            )
        spec = P(*mesh.axis_names)
    if len(spec) > 2:
        raise ValueError("matrix_specs must describe a rank-2 sharding.")
    if not any(spec):
        raise ValueError(
            "cuSOLVERMp requires at least one matrix axis to be sharded by a named mesh axis, but "
            "matrix_specs leaves both unsharded."
        )
    used = [axis for entry in spec for axis in _split.axes_of(entry)]
    for axis in used:
        if axis not in mesh.shape:
            raise ValueError(f"mesh does not contain axis {axis!r}.")
    if len(set(used)) != len(used):
        raise ValueError("matrix row and column axes must be distinct.")
    return P(*spec, *[None] * (2 - len(spec)))


def check_tiles(shape: tuple[int, int], grid: Grid, T_A: int, pad: bool, what: str) -> None:
    """ValueError if an axis cannot be split, or, without padding, not into whole tiles."""
    if any(n % k for n, k in zip(shape, grid.sizes, strict=True)):
        raise ValueError(
            f"{what} shape {shape} must be divisible by process grid {grid.sizes} before local "
            "tile padding."
        )
    if not pad and any(n // k % T_A for n, k in zip(shape, grid.sizes, strict=True)):
        raise ValueError(
            f"{what} requires tile-aligned local shards when pad=False. Use a tile size that "
            "divides both local dimensions or set pad=True."
        )


def _is_elsewhere(x: Any, mesh: Any) -> bool:
    """Whether the array names a mesh other than this concrete mesh."""
    own = known(x)
    if own is None or not isinstance(mesh, Mesh):
        return False
    return own.mesh != (mesh if isinstance(own.mesh, Mesh) else mesh.abstract_mesh)


def _moved(x: Any, mesh: Mesh, spec: P) -> Any:
    """The array, moved from another mesh to this one."""
    to = NamedSharding(mesh, spec)
    if not isinstance(_jax.underlying(x), jax.core.Tracer):
        return jax.device_put(x, to)
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return jax.sharding.reshard(x, to)


def _laid(x: Any, mesh: Any, spec: P) -> Any:
    """The array, split so if it is not yet; a trace on Auto axes is left to the solver."""
    own, is_traced = known(x), isinstance(_jax.underlying(x), jax.core.Tracer)
    names = _mesh.names_of(spec, x.ndim, "matrix_specs")
    if own is not None and _mesh.names_of(own.spec, x.ndim, "matrix_specs") == names:
        return x
    if is_traced:
        is_auto = own is None
        return x if is_auto else jax.sharding.reshard(x, NamedSharding(own.mesh, spec))
    return jax.device_put(x, NamedSharding(mesh, spec)) if isinstance(mesh, Mesh) else x


def locate(
    a: Any, T_A: int, mesh: Any, matrix_specs: Any, in_specs: Any, pad: bool, name: str
) -> tuple[Any, Grid]:
    """The matrix on its grid."""
    spec = _one_spec(matrix_specs, in_specs)
    mesh = _find_mesh(a, mesh)
    spec = _find_spec(a, mesh, spec)
    own = known(a)
    is_whole, is_elsewhere = own is not None and not any(own.spec), _is_elsewhere(a, mesh)
    grid = Grid(mesh if own is None or is_elsewhere else own.mesh, spec, is_whole)
    check_tiles(a.shape, grid, T_A, pad, f"{name}(A)")
    if is_elsewhere:
        return _moved(a, mesh, P() if is_whole else spec), grid
    return (a if grid.is_whole else _laid(a, mesh, spec)), grid


def rhs(b: Any, grid: Grid) -> tuple[Any, P | None]:
    """Right-hand sides as they are split; by rows if nothing says how, and then that spec."""
    spec = P() if grid.is_whole else grid.rows
    if _is_elsewhere(b, grid.mesh):
        return _moved(b, grid.mesh, spec), spec
    if known(b) is not None:
        return b, None
    return _laid(b, grid.mesh, spec), spec


@contextlib.contextmanager
def around(grid: Grid) -> Iterator[None]:
    """Replaces the mesh around a program by the solver's, if it has as many devices."""
    other = jax.sharding.get_abstract_mesh()
    if other.shape == grid.mesh.shape or other.size != grid.mesh.size:
        yield
    else:
        own = grid.mesh.abstract_mesh if isinstance(grid.mesh, Mesh) else grid.mesh
        with jax.sharding.use_abstract_mesh(own):
            yield
