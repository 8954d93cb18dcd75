"""What the solvers refuse, with JAXMg's texts, and their reports of failures."""

from typing import Any

import jax
import jax.numpy as jnp
from plait import _redist
from plait._dense_args import DTYPES, run
from plait.compat.jaxmg_grid import _grid
from plait.compat.jaxmg_grid._grid import Grid

# ---- what is refused -----------------------------------------------------------------------------


def check(a: Any, T_A: int, name: str, **flags: Any) -> None:
    """Checks a matrix of a dtype that solvers have, a tile, and choices made while tracing."""
    if a.ndim != 2:
        raise ValueError(f"{name} expects a rank-2 matrix A.")
    if a.dtype.name not in DTYPES:
        routine = name.removesuffix("_shardmap_ctx")
        raise TypeError(f"{routine} supports float32, float64, complex64, and complex128.")
    if int(T_A) <= 0:
        raise ValueError("T_A must be positive.")
    for argument, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{argument} must be a Python bool.")


def check_square(a: Any, name: str) -> None:
    if a.shape[0] != a.shape[1]:
        raise ValueError(f"{name} expects A to be square.")


def check_rhs(a: Any, b: Any, name: str) -> None:
    if b.ndim not in (1, 2):
        what = "solve input" if name.startswith("least_squares") else "RHS"
        raise ValueError(f"{name} expects a rank-1 or rank-2 {what} B.")
    if a.dtype != b.dtype:
        raise TypeError(f"{name} requires matching A/B dtypes.")
    if a.shape[0] != b.shape[0]:
        raise ValueError("A and B must have matching leading dimensions.")


def check_rhs_tiles(b: Any, grid: Grid, T_A: int, pad: bool, name: str) -> None:
    """Without padding, the columns of right-hand sides are split and tiled, too."""
    n_rhs, parts = (*b.shape, 1)[1], grid.sizes[1]
    if pad:
        return
    if n_rhs % parts:
        raise ValueError(
            "pad=False requires the RHS column count to be divisible by the process-grid column "
            "count. Set pad=True to add routing columns for skinny RHS matrices."
        )
    _grid.check_tiles((b.shape[0], n_rhs), grid, T_A, pad, f"{name}(B)")


# ---- what has failed -----------------------------------------------------------------------------


def judged(x: Any, info: Any, *, n: int) -> tuple:
    """The result, NaN after a failure, and the status for each of n devices."""
    nan = jnp.full((), jnp.nan, x.dtype)
    return jnp.where(info == 0, x, nan), jnp.full((n,), info, jnp.int32)


def finite(values: Any, *, n: int) -> Any:
    """The status of a decomposition, by values that all devices have."""
    is_finite = jnp.all(jnp.isfinite(jax.lax.stop_gradient(values)))
    return jnp.full((n,), jnp.where(is_finite, 0, 1), jnp.int32)


def _finite_parts(x: Any, *, mesh: Any) -> Any:
    """The same, by a result that is split."""
    bad = ~jnp.isfinite(jax.lax.stop_gradient(x))
    n_bad = _redist.sum(bad.astype(jnp.int32), mesh=mesh)
    return jnp.full((mesh.size,), jnp.where(n_bad == 0, 0, 1), jnp.int32)


def chosen(*results: tuple[Any, bool]) -> Any:
    """The results that are wanted; a single one without a tuple."""
    found = tuple(x for x, is_wanted in results if is_wanted)
    return found if len(found) > 1 else found[0]


def with_status(results: list, judged: Any, grid: Grid, is_wanted: bool) -> Any:
    """Results of a decomposition, and the status by whether a split one of them is finite."""
    if is_wanted:
        with _grid.around(grid):
            results = [*results, run(_finite_parts, judged, mesh=grid.mesh)]
    return chosen(*((x, True) for x in results))
