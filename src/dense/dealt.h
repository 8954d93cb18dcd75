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
    int64_t block; /* columns of a block, >= 1; the last one may have less */
    int n_ranks;
    plait_dtype_t dtype;
    int n_readers; /* ranks from 0 on that want what is fetched; 0: all of them */
} plait_dealt_t;

/* Bytes of an element, and of a column. */
int64_t plait_dealt_item(const plait_dealt_t *d);
int64_t plait_dealt_ld_bytes(const plait_dealt_t *d);

/* Blocks of the matrix; columns of block k; its first column; whose it is. */
int64_t plait_dealt_n_blocks(const plait_dealt_t *d);
int64_t plait_dealt_width(const plait_dealt_t *d, int64_t k);
int64_t plait_dealt_column(const plait_dealt_t *d, int64_t k);
int plait_dealt_owner(const plait_dealt_t *d, int64_t k);

/* First column of block k in its owner's array. */
int64_t plait_dealt_local(const plait_dealt_t *d, int64_t k);

/* The first block >= k of a rank; its next one is n_ranks further. May be >= n_blocks. */
int64_t plait_dealt_next(const plait_dealt_t *d, int rank, int64_t k);

/* Columns that a rank owns, and columns of every rank's array. */
int64_t plait_dealt_owned(const plait_dealt_t *d, int rank);
int64_t plait_dealt_stored(const plait_dealt_t *d);

/* Bytes of every rank's array. */
int64_t plait_dealt_bytes(const plait_dealt_t *d);

/* Byte offset of row `row` of block k in its owner's array. */
int64_t plait_dealt_at(const plait_dealt_t *d, int64_t k, int64_t row);

/* INVALID unless the numbers make sense, OVERFLOW if they are too large; then other functions may
 * be called. `what` starts the text. */
plait_status_t plait_dealt_check(const plait_dealt_t *d, const char *what);

/* The same, and the array is a rank's part. */
plait_status_t plait_dealt_fits(const plait_dealt_t *d, const plait_array_t *array,
                                const char *what);

/* What kernels call is there: BLAS and LAPACK for the host's. Before anything else of a plan. */
plait_status_t plait_dense_require(const plait_problem_t *problem);

/* INVALID unless the array is one int32: how an operation ended. */
plait_status_t plait_dense_info_fits(const plait_array_t *array, const char *what);

/* Makes the matrix part of what ranks must agree on. */
void plait_dealt_agree(plait_plan_t *plan, const plait_dealt_t *d);

/* Where a kernel finds rows of a block: at the address of the peer's slot plus offset. */
typedef struct {
    int peer, slot;
    int64_t offset;
    int64_t ld;            /* elements from column to column */
    int64_t n_rows, width; /* of what is there */
} plait_panel_t;

/* Rows [row, row + n_rows) of block k of the matrix in `slot`, for all ranks: where the owner's
 * memory can be addressed they stay there, else a move (a step of the plan) brings them into
 * work_slot, densely, on every rank that reads but the owner; by messages in a tree (fan.h). All ranks
 * call it, in the same order, with the same values. extra: blocks that travel along, see
 * plait_dealt_share; emptied. */
plait_status_t plait_dealt_fetch(plait_plan_t *plan, const plait_dealt_t *d, int slot,
                                 int64_t k, int64_t row, int64_t n_rows, int work_slot,
                                 plait_move_t *extra, plait_panel_t *panel_p);

/* Appends to what is to be fanned out that n_bytes of `owner` come to the same place on others. */
plait_status_t plait_dealt_share(int owner, int slot, int64_t offset, int64_t n_bytes,
                                 plait_move_t *what);

/* Appends to a move this rank's side of a block that goes from `owner` to `reader`, who may be the same:
 * nothing if it is neither, or if the block is empty. */
plait_status_t plait_dealt_between(const plait_plan_t *plan, int owner, int reader,
                                   const plait_block_t *block, plait_move_t *move);

/* Bytes of a work slot for fetched panels of at most n_rows rows; 0 where none is needed. */
int64_t plait_dealt_panel_bytes(const plait_plan_t *plan, const plait_dealt_t *d,
                                int64_t n_rows);

/* Address of a panel while a kernel runs. */
static inline const char *plait_panel_address(const plait_exec_t *exec,
                                              const plait_panel_t *panel)
{
    return plait_exec_peer(exec, panel->peer, panel->slot) + panel->offset;
}

/* The panel as a box for plait_touch_fn_t, its columns being rows of the box. */
plait_box_copy_t plait_panel_box(const plait_panel_t *panel, int64_t item_bytes);

/* n_columns columns of n_rows elements, ld elements apart, as such a box. */
plait_box_copy_t plait_columns_box(int64_t n_rows, int64_t n_columns, int64_t ld,
                                   int64_t item_bytes);

#endif
