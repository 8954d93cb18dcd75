/* The steps of sweeps. In a sweep every rank walks over the panels of a dealt matrix that is only read, gets
 * each panel through plait_dealt_fetch, and updates its own columns of the result with it. All steps are
 * large BLAS calls, on as many of a rank's columns as there are. */
#ifndef PLAIT_DENSE_SWEEP_H
#define PLAIT_DENSE_SWEEP_H

#include "dense/dealt.h"
#include "plan/tiles.h"

/* Columns of a tile if one rank has the whole matrix, and only part of it is computed. */
enum { PLAIT_SWEEP_TILE = 256 };

/* This rank's columns of a result. is_lower: in block j, only the rows from the block's first column on are
 * computed, and count in operands of the same form. */
typedef struct {
    plait_dealt_t d;
    int rank;
    bool is_lower;
} plait_own_t;

/* Columns of a walk's blocks, for a matrix with n columns: the storage's blocks; on a single rank, where blocks
 * do not change the storage, tiles, or all columns at once. */
int64_t plait_sweep_block(int n_ranks, int64_t block, int64_t n, bool has_tiles);

/* A fence, if there are other ranks to wait for. */
plait_status_t plait_sweep_fence(plait_plan_t *plan);

/* How many of the rank's columns, from the first column on, have a computed row < row_end; and how many ranks
 * have such a column. */
int64_t plait_own_columns(const plait_own_t *own, int64_t row_end);
int plait_own_readers(const plait_own_t *own, int64_t row_end);

/* A part of a panel that starts in this row and column of the panel. */
plait_panel_t plait_panel_part(const plait_panel_t *panel, int64_t item_bytes,
                               int64_t row, int64_t n_rows, int64_t column,
                               int64_t n_columns);

/* Where steps work: the rows of a slot from `row` on. The slot has a matrix ld rows high. */
typedef struct {
    int slot;
    int64_t ld, row;
} plait_rows_t;

/* On which side the columns of a lower matrix begin at their block's first column. */
typedef enum { PLAIT_STAIRS_NONE, PLAIT_STAIRS_DST, PLAIT_STAIRS_SRC } plait_stairs_t;

/* dst = alpha op(part) src + beta dst in the first n_columns of the rank's columns. */
typedef struct {
    plait_own_t own;
    plait_panel_t part;
    char trans;         /* 'N', 'T', 'C' */
    double alpha, beta; /* 0: dst is not read */
    plait_rows_t src, dst;
    int64_t n_columns;
    plait_stairs_t stairs;
} plait_product_t;

plait_status_t plait_sweep_product(plait_plan_t *plan, const plait_product_t *product);

/* dst = op(part) src or op(part)^-1 src, in the first n_columns of the rank's columns. `part` is a square of
 * which one triangle is read; src and dst may be the same rows. */
typedef struct {
    plait_own_t own;
    plait_panel_t part;
    bool is_solve;
    char uplo, trans, diag; /* as BLAS has them */
    plait_rows_t src, dst;
    int64_t n_columns;
} plait_triangle_t;

plait_status_t plait_sweep_triangle(plait_plan_t *plan,
                                    const plait_triangle_t *triangle);

/* Zeroes what is not computed of the rank's array: rows from n_rows on, columns behind the rank's own, and in a
 * lower matrix what is above the diagonal. Copies everything else from src_slot, which may be the same memory
 * (-1: leaves the rest as it is). */
typedef struct {
    plait_own_t own;
    int64_t n_rows;
    int64_t n_stored; /* columns of the array */
    int src_slot, dst_slot;
} plait_outline_t;

plait_status_t plait_sweep_outline(plait_plan_t *plan, const plait_outline_t *outline);

#endif
