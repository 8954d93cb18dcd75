"""The functions of JAXMg that lay matrices out for its solvers.

``from plait.compat import jaxmg`` in place of ``import jaxmg``. Columns are dealt out by
`plait.redistribute`, so that every tile width works; those that JAXMg refuses are refused here as
well, with its texts. Names and arguments are those of 0.0.1, and of later releases `cyclic_1d`,
`pad_rows`, `unpad_rows`, `verify_cyclic` and `get_cols_cyclic`.
"""

from plait.compat.jaxmg import utils as utils
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
    "undo_cyclic_1d_layout",
    "undo_cyclic_1d_no_shardmap",
    "unpad_rows",
    "utils",
    "verify_cyclic",
]
