"""The functions of JAXMg from 1.0 to 1.4: matrices on a grid of one or two mesh axes.

Use ``from plait.compat import jaxmg_grid as jaxmg`` in place of ``import jaxmg``. Here the devices
may belong to one process or several, and all results have derivatives. Limits of cuSOLVERMp alone
do not apply: fewer tiles than places in the grid, further axes of the mesh, and an axis of the
matrix along two of them are accepted.
"""

from plait.compat.jaxmg_grid import utils as utils
from plait.compat.jaxmg_grid._decompose import gesvd as gesvd
from plait.compat.jaxmg_grid._decompose import gesvd_shardmap_ctx as gesvd_shardmap_ctx
from plait.compat.jaxmg_grid._decompose import polar as polar
from plait.compat.jaxmg_grid._decompose import polar_shardmap_ctx as polar_shardmap_ctx
from plait.compat.jaxmg_grid._decompose import qr as qr
from plait.compat.jaxmg_grid._decompose import qr_shardmap_ctx as qr_shardmap_ctx
from plait.compat.jaxmg_grid._decompose import syevd as syevd
from plait.compat.jaxmg_grid._decompose import syevd_shardmap_ctx as syevd_shardmap_ctx
from plait.compat.jaxmg_grid._device import device_supports_vmm as device_supports_vmm
from plait.compat.jaxmg_grid._solve import least_squares as least_squares
from plait.compat.jaxmg_grid._solve import (
    least_squares_shardmap_ctx as least_squares_shardmap_ctx,
)
from plait.compat.jaxmg_grid._solve import lu_solve as lu_solve
from plait.compat.jaxmg_grid._solve import lu_solve_shardmap_ctx as lu_solve_shardmap_ctx
from plait.compat.jaxmg_grid._solve import potrs as potrs
from plait.compat.jaxmg_grid._solve import potrs_shardmap_ctx as potrs_shardmap_ctx

__version__ = "1.4.1"  # the release with this interface

__all__ = [
    "__version__",
    "device_supports_vmm",
    "gesvd",
    "gesvd_shardmap_ctx",
    "least_squares",
    "least_squares_shardmap_ctx",
    "lu_solve",
    "lu_solve_shardmap_ctx",
    "polar",
    "polar_shardmap_ctx",
    "potrs",
    "potrs_shardmap_ctx",
    "qr",
    "qr_shardmap_ctx",
    "syevd",
    "syevd_shardmap_ctx",
    "utils",
]
