"""The functions of JAXMg 0.0.1: its solvers, and those that lay matrices out for them.

Use ``from plait.compat import jaxmg`` in place of ``import jaxmg``. The solvers are those of
`plait.linalg`, with derivatives, also inside ``jax.shard_map``. plait takes tiles of any width;
tiles that JAXMg refuses are refused here as well, with its texts.

Releases up to 0.0.9 split matrices by rows: `plait.compat.jaxmg_rows` is like these. Releases from
1.0 on have grids: `plait.compat.jaxmg_grid`. Functions that have other names up to 0.0.9 are here,
too, and ``pad=`` chooses the later form of the others.
"""

from plait.compat.jaxmg import utils as utils
from plait.compat.jaxmg._columns import potri as potri
from plait.compat.jaxmg._columns import potri_no_shardmap as potri_no_shardmap
from plait.compat.jaxmg._columns import potrs as potrs
from plait.compat.jaxmg._columns import potrs_no_shardmap as potrs_no_shardmap
from plait.compat.jaxmg._columns import syevd as syevd
from plait.compat.jaxmg._columns import syevd_no_shardmap as syevd_no_shardmap
from plait.compat.jaxmg._cyclic_1d import calculate_all_valid_T_A as calculate_all_valid_T_A
from plait.compat.jaxmg._cyclic_1d import calculate_padding as calculate_padding
from plait.compat.jaxmg._cyclic_1d import calculate_valid_T_A as calculate_valid_T_A
from plait.compat.jaxmg._cyclic_1d import cyclic_1d as cyclic_1d
from plait.compat.jaxmg._cyclic_1d import cyclic_1d_layout as cyclic_1d_layout
from plait.compat.jaxmg._cyclic_1d import cyclic_1d_no_shardmap as cyclic_1d_no_shardmap
from plait.compat.jaxmg._cyclic_1d import get_cols_cyclic as get_cols_cyclic
from plait.compat.jaxmg._cyclic_1d import manual_cyclic_1d_layout as manual_cyclic_1d_layout
from plait.compat.jaxmg._cyclic_1d import pad_rows as pad_rows
from plait.compat.jaxmg._cyclic_1d import plot_block_to_cyclic as plot_block_to_cyclic
from plait.compat.jaxmg._cyclic_1d import undo_cyclic_1d_layout as undo_cyclic_1d_layout
from plait.compat.jaxmg._cyclic_1d import undo_cyclic_1d_no_shardmap as undo_cyclic_1d_no_shardmap
from plait.compat.jaxmg._cyclic_1d import unpad_rows as unpad_rows
from plait.compat.jaxmg._cyclic_1d import verify_cyclic as verify_cyclic
from plait.compat.jaxmg._rows import potri_shardmap_ctx as potri_shardmap_ctx
from plait.compat.jaxmg._rows import potri_symmetrize as potri_symmetrize
from plait.compat.jaxmg._rows import potrs_shardmap_ctx as potrs_shardmap_ctx
from plait.compat.jaxmg._rows import syevd_shardmap_ctx as syevd_shardmap_ctx
from plait.compat.jaxmg.utils import determine_distributed_setup as determine_distributed_setup

__all__ = [
    "calculate_all_valid_T_A",
    "calculate_padding",
    "calculate_valid_T_A",
    "cyclic_1d",
    "cyclic_1d_layout",
    "cyclic_1d_no_shardmap",
    "determine_distributed_setup",
    "get_cols_cyclic",
    "manual_cyclic_1d_layout",
    "pad_rows",
    "plot_block_to_cyclic",
    "potri",
    "potri_no_shardmap",
    "potri_shardmap_ctx",
    "potri_symmetrize",
    "potrs",
    "potrs_no_shardmap",
    "potrs_shardmap_ctx",
    "syevd",
    "syevd_no_shardmap",
    "syevd_shardmap_ctx",
    "undo_cyclic_1d_layout",
    "undo_cyclic_1d_no_shardmap",
    "unpad_rows",
    "utils",
    "verify_cyclic",
]
