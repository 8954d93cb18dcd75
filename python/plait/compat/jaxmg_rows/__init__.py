"""The functions of JAXMg 0.0.2 to 0.0.9, where matrices are split by rows, ``P(axis, None)``.

Use ``from plait.compat import jaxmg_rows as jaxmg`` in place of ``import jaxmg``.
"""

from plait.compat.jaxmg import calculate_padding as calculate_padding
from plait.compat.jaxmg import cyclic_1d as cyclic_1d
from plait.compat.jaxmg import determine_distributed_setup as determine_distributed_setup
from plait.compat.jaxmg import get_cols_cyclic as get_cols_cyclic
from plait.compat.jaxmg import pad_rows as pad_rows
from plait.compat.jaxmg import plot_block_to_cyclic as plot_block_to_cyclic
from plait.compat.jaxmg import unpad_rows as unpad_rows
from plait.compat.jaxmg import verify_cyclic as verify_cyclic
from plait.compat.jaxmg._rows import potri as potri
from plait.compat.jaxmg._rows import potri_shardmap_ctx as potri_shardmap_ctx
from plait.compat.jaxmg._rows import potri_symmetrize as potri_symmetrize
from plait.compat.jaxmg._rows import potrs as potrs
from plait.compat.jaxmg._rows import potrs_shardmap_ctx as potrs_shardmap_ctx
from plait.compat.jaxmg._rows import syevd as syevd
from plait.compat.jaxmg._rows import syevd_shardmap_ctx as syevd_shardmap_ctx
from plait.compat.jaxmg_rows import utils as utils

__all__ = [
    "calculate_padding",
    "cyclic_1d",
    "determine_distributed_setup",
    "get_cols_cyclic",
    "pad_rows",
    "plot_block_to_cyclic",
    "potri",
    "potri_shardmap_ctx",
    "potri_symmetrize",
    "potrs",
    "potrs_shardmap_ctx",
    "syevd",
    "syevd_shardmap_ctx",
    "unpad_rows",
    "utils",
    "verify_cyclic",
]
