/* Shared by the kernels (potrf_grid_kernels.c) and the steps (potrf_grid.c) of Cholesky factorization on a
 * grid of ranks. */
#ifndef PLAIT_DENSE_POTRF_GRID_H
#define PLAIT_DENSE_POTRF_GRID_H

#include "dense/potrf.h"

/* What kernels and steps work on. */
typedef struct {
    plait_grid_t g;
    int rank, row, column;
    int info_slot;
    int local_slot;                             /* the rank's blocks */
    int diagonal_slot, rows_slot, columns_slot; /* what it gets of a panel, densely */
    int64_t k;                                  /* the panel */
    int64_t first, end;     /* own block columns among these are updated */
    plait_panel_t diagonal; /* where block (k, k) is */
    plait_panel_t rows;     /* and the own rows below it */
} plait_grid_factor_t;

static inline int64_t plait_on_grid_item(const plait_grid_factor_t *f)
{
    return plait_dealt_item(&f->g.d);
}

static inline int64_t plait_on_grid_width(const plait_grid_factor_t *f)
{
    return plait_dealt_width(&f->g.d, f->k);
}

/* The row and the column of the grid that have block (k, k). */
static inline int plait_on_grid_row(const plait_grid_factor_t *f)
{
    return plait_dealt_owner(&f->g.rows, f->k);
}

static inline int plait_on_grid_column(const plait_grid_factor_t *f)
{
    return plait_dealt_owner(&f->g.columns, f->k);
}

static inline bool plait_on_grid_is_diagonal(const plait_grid_factor_t *f)
{
    return f->row == plait_on_grid_row(f) && f->column == plait_on_grid_column(f);
}

/* Rows of panel k below block k that belong to a row of the grid. */
static inline int64_t plait_on_grid_rows_below(const plait_grid_factor_t *f, int row)
{
    return plait_grid_behind(&f->g.rows, row, f->k + 1);
}

/* Rows of panel k below block k that match the own columns. */
static inline int64_t plait_on_grid_columns_below(const plait_grid_factor_t *f)
{
    return plait_grid_behind(&f->g.columns, f->column, f->k + 1);
}

/* Kernels with plait_grid_factor_t as params. start: trims the own diagonal blocks to what counts. diagonal:
 * factors block (k, k). solve: solves for the own rows below it. update: updates own block columns of [first,
 * end). */
extern const plait_kernel_t plait_on_grid_start_kernel;
extern const plait_kernel_t plait_on_grid_diagonal_kernel;
extern const plait_kernel_t plait_on_grid_solve_kernel;
extern const plait_kernel_t plait_on_grid_update_kernel;

#endif
