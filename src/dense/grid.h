/* A square matrix that is dealt out by block columns (dealt.h) and, for a while, in both directions.
 * Factorizations on many ranks work in the second form.
 *
 * The P ranks form a grid of Pr rows and Pc columns, P = Pr Pc: rank r is in row r div Pc, column r mod Pc.
 * Block (i, j) belongs to the rank in row i mod Pr, column j mod Pc. A rank's array is column-major and has
 * the rank's own rows and columns one after the other. Rank j mod P stores block column j. Since Pc divides
 * P, this rank is in the column of the grid that gets the blocks of column j. So the way to the grid and
 * back exchanges rows within the columns of the grid only. */
#ifndef PLAIT_DENSE_GRID_H
#define PLAIT_DENSE_GRID_H

#include "dense/dealt.h"

typedef struct {
    plait_dealt_t d; /* as it is stored */
    plait_dealt_t rows,
        columns; /* its blocks, dealt to the rows and the columns of the grid */
} plait_grid_t;

/* n_rows: of the grid; divides d->n_ranks. */
plait_grid_t plait_grid_make(const plait_dealt_t *d, int n_rows);

/* Number of rows of the grid on which the lower triangle of a matrix is to be factored; 1: keep block columns.
 * The reasons are at the function's body. */
int plait_grid_choose(const plait_dealt_t *d, plait_direct_t direct);

int plait_grid_rank(const plait_grid_t *g, int row, int column);
int plait_grid_row(const plait_grid_t *g, int rank);
int plait_grid_column(const plait_grid_t *g, int rank);

/* Number of indices in blocks >= k that a row (axis: g->rows) or a column (g->columns) of the grid owns. */
int64_t plait_grid_behind(const plait_dealt_t *axis, int place, int64_t k);

/* Place of the first of these indices, counted in own indices from the first one in block `from`. */
int64_t plait_grid_between(const plait_dealt_t *axis, int place, int64_t from,
                           int64_t k);

/* The first block >= k in row `row` and column `column` of the grid; at least n_blocks if there is none. The
 * next such block is plait_grid_step further. */
int64_t plait_grid_common(const plait_grid_t *g, int row, int column, int64_t k);
int64_t plait_grid_step(const plait_grid_t *g);

/* A rank's array: bytes, elements from column to column, byte offset of block (i, j). */
int64_t plait_grid_bytes(const plait_grid_t *g, int rank);
int64_t plait_grid_ld(const plait_grid_t *g, int row);
int64_t plait_grid_at(const plait_grid_t *g, int row, int64_t i, int64_t j);

/* Rows of the blocks first, first + step, ... of `width` columns, in two column-major arrays. */
typedef struct {
    int64_t first, step, width;
    int64_t src_ld, dst_ld;
    int64_t src_stride, dst_stride; /* rows from one block to the next */
} plait_strip_t;

/* Appends a strip to a move; `block` gives peer, slots, and the offsets of the first row. */
plait_status_t plait_strip_add(const plait_dealt_t *axis, const plait_strip_t *strip,
                               bool is_out, const plait_block_t *block,
                               plait_move_t *move);

/* Adds the move of the lower triangle, in whole blocks, from block columns in dealt_slot to the grid in
 * grid_slot; is_back: from grid_slot to dealt_slot. */
plait_status_t plait_grid_deal(plait_plan_t *plan, const plait_grid_t *g,
                               int dealt_slot, int grid_slot, bool is_back);

#endif
