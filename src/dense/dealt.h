/* Matrices whose block columns are dealt out to the ranks in turn, and how a rank gets a block of another
 * rank. All dense algorithms build on this.
 *
 * An m x n matrix is cut into blocks of `block` columns. Block k belongs to rank k mod P and is block
 * k div P of that rank. A rank's array is column-major with leading dimension m (row-major, as JAX sees it,
 * it is a `columns x m` array). All ranks' arrays have the same size, enough for the most blocks that a rank
 * can have. What lies behind a rank's own columns is zero in results and never read. */
#ifndef PLAIT_DENSE_DEALT_H
#define PLAIT_DENSE_DEALT_H

#include "plan/exec.h"
#include "plan/plan.h"

typedef struct {
    int64_t m, n;  /* of the whole matrix */
    int64_t block; /* columns of a block, >= 1; the last block may have fewer */
    int n_ranks;
    plait_dtype_t dtype;
    int n_readers; /* ranks from 0 on that want what is fetched; 0: all ranks */
} plait_dealt_t;

/* Bytes of an element, and of a column. */
int64_t plait_dealt_item(const plait_dealt_t *d);
int64_t plait_dealt_ld_bytes(const plait_dealt_t *d);

/* Number of blocks; columns of block k; its first column; its owner. */
int64_t plait_dealt_n_blocks(const plait_dealt_t *d);
int64_t plait_dealt_width(const plait_dealt_t *d, int64_t k);
int64_t plait_dealt_column(const plait_dealt_t *d, int64_t k);
int plait_dealt_owner(const plait_dealt_t *d, int64_t k);

/* First column of block k in its owner's array. */
int64_t plait_dealt_local(const plait_dealt_t *d, int64_t k);

/* The rank's first block >= k. Its next block is n_ranks further. May be >= n_blocks. */
int64_t plait_dealt_next(const plait_dealt_t *d, int rank, int64_t k);

/* Columns that a rank owns, and columns of every rank's array. */
int64_t plait_dealt_owned(const plait_dealt_t *d, int rank);
int64_t plait_dealt_stored(const plait_dealt_t *d);

/* Bytes of every rank's array. */
int64_t plait_dealt_bytes(const plait_dealt_t *d);

/* Byte offset of row `row` of block k in its owner's array. */
int64_t plait_dealt_at(const plait_dealt_t *d, int64_t k, int64_t row);

/* INVALID unless the numbers make sense, OVERFLOW if they are too large. Other functions may be called only
 * after OK. `what` starts the text. */
plait_status_t plait_dealt_check(const plait_dealt_t *d, const char *what);

/* plait_dealt_check, and a check that the array is a rank's part. */
plait_status_t plait_dealt_fits(const plait_dealt_t *d, const plait_array_t *array,
                                const char *what);

/* Makes sure that the libraries that kernels call are there: BLAS and LAPACK for kernels on the host. A plan
 * calls this first. */
plait_status_t plait_dense_require(const plait_problem_t *problem);

/* INVALID unless the array is one int32, which says how an operation ended. */
plait_status_t plait_dense_info_fits(const plait_array_t *array, const char *what);

/* Adds the matrix to what ranks must agree on. */
void plait_dealt_agree(plait_plan_t *plan, const plait_dealt_t *d);

/* Where a kernel finds rows of a block: at `offset` from the address of the peer's slot. */
typedef struct {
    int peer, slot;
    int64_t offset;
    int64_t ld;            /* elements from column to column */
    int64_t n_rows, width; /* rows and columns that are there */
} plait_panel_t;

/* Makes rows [row, row + n_rows) of block k of the matrix in `slot` available to all ranks. If the owner's
 * memory can be addressed, the rows stay there. Otherwise a move (a step of the plan) brings them, densely
 * packed, into work_slot on every rank that reads, except the owner; messages go along a tree (fan.h). All
 * ranks call this in the same order with the same values. extra: blocks that travel along, see
 * plait_dealt_share; emptied. */
plait_status_t plait_dealt_fetch(plait_plan_t *plan, const plait_dealt_t *d, int slot,
                                 int64_t k, int64_t row, int64_t n_rows, int work_slot,
                                 plait_move_t *extra, plait_panel_t *panel_p);

/* Appends to what is to be fanned out: n_bytes of `owner` go to the same place on the other ranks. */
plait_status_t plait_dealt_share(int owner, int slot, int64_t offset, int64_t n_bytes,
                                 plait_move_t *what);

/* Appends to a move this rank's side of a block that goes from `owner` to `reader`, which may be the same rank.
 * Appends nothing if this rank is neither, or if the block is empty. */
plait_status_t plait_dealt_between(const plait_plan_t *plan, int owner, int reader,
                                   const plait_block_t *block, plait_move_t *move);

/* Bytes of a work slot for fetched panels of at most n_rows rows; 0 if none is needed. */
int64_t plait_dealt_panel_bytes(const plait_plan_t *plan, const plait_dealt_t *d,
                                int64_t n_rows);

/* Address of a panel while a kernel runs. */
static inline const char *plait_panel_address(const plait_exec_t *exec,
                                              const plait_panel_t *panel)
{
    return plait_exec_peer(exec, panel->peer, panel->slot) + panel->offset;
}

/* The panel as a box for plait_touch_fn_t. Its columns are the rows of the box. */
plait_box_copy_t plait_panel_box(const plait_panel_t *panel, int64_t item_bytes);

/* n_columns columns of n_rows elements, ld elements apart, as a box of this kind. */
plait_box_copy_t plait_columns_box(int64_t n_rows, int64_t n_columns, int64_t ld,
                                   int64_t item_bytes);

#endif
