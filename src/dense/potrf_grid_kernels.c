/* Kernels of Cholesky factorization on a grid of ranks, in host memory and on devices. */
#include "base/status.h"
#include "dense/potrf_grid.h"
#include "dense/scalar.h"
#include "kernel/blas.h"

#include <inttypes.h>
#include <string.h>

static char *local_at(const plait_grid_factor_t *f, const plait_exec_t *exec, int64_t i,
                      int64_t j)
{
    return exec->slot[f->local_slot] + plait_grid_at(&f->g, f->row, i, j);
}

static int32_t *info_of(const plait_grid_factor_t *f, const plait_exec_t *exec)
{
    return (int32_t *)(void *)exec->slot[f->info_slot];
}

static void touch_info(const plait_grid_factor_t *f, bool is_written,
                       plait_touch_fn_t touch, void *context)
{
    const plait_box_copy_t word = {.row_bytes = sizeof(int32_t)};

    touch(context, is_written, f->rank, f->info_slot, 0, &word);
}

/* n_rows own rows from block i on, in block column j. */
static void touch_local(const plait_grid_factor_t *f, bool is_written, int64_t i,
                        int64_t j, int64_t n_rows, plait_touch_fn_t touch,
                        void *context)
{
    const plait_box_copy_t box =
        plait_columns_box(n_rows, plait_dealt_width(&f->g.d, j),
                          plait_grid_ld(&f->g, f->row), plait_on_grid_item(f));

    touch(context, is_written, f->rank, f->local_slot,
          plait_grid_at(&f->g, f->row, i, j), &box);
}

static void touch_panel(const plait_grid_factor_t *f, const plait_panel_t *panel,
                        plait_touch_fn_t touch, void *context)
{
    const plait_box_copy_t box = plait_panel_box(panel, plait_on_grid_item(f));

    touch(context, false, panel->peer, panel->slot, panel->offset, &box);
}

/* ---- Kernels ---- */

/* Of the own diagonal blocks only the lower triangle counts, and of the diagonal only the real part. */
static plait_status_t start_run(const void *params, plait_exec_t *exec)
{
    const plait_grid_factor_t *f = params;
    const int64_t item = plait_on_grid_item(f);
    const int64_t ld = plait_grid_ld(&f->g, f->row);

    *info_of(f, exec) = 0;
    for (int64_t k = plait_grid_common(&f->g, f->row, f->column, 0);
         k < plait_dealt_n_blocks(&f->g.d); k += plait_grid_step(&f->g)) {
        for (int64_t j = 0; j < plait_dealt_width(&f->g.d, k); j++) {
            char *column = local_at(f, exec, k, k) + j * ld * item;
            memset(column, 0, (size_t)(j * item));
            if (plait_is_complex(f->g.d.dtype)) {
                memset(column + j * item + item / 2, 0, (size_t)item / 2);
            }
        }
    }
    return PLAIT_OK;
}

static plait_spot_t local_spot(const plait_grid_factor_t *f, int64_t i, int64_t j)
{
    return (plait_spot_t){.slot = f->local_slot,
                          .offset = plait_grid_at(&f->g, f->row, i, j)};
}

static plait_spot_t info_spot(const plait_grid_factor_t *f)
{
    return (plait_spot_t){.slot = f->info_slot};
}

static plait_status_t start_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_grid_factor_t *f = params;
    const int64_t ld = plait_grid_ld(&f->g, f->row);

    PLAIT_TRY(plait_tile_zero(tiles, info_spot(f), sizeof(int32_t)));
    for (int64_t k = plait_grid_common(&f->g, f->row, f->column, 0);
         k < plait_dealt_n_blocks(&f->g.d); k += plait_grid_step(&f->g)) {
        const int64_t width = plait_dealt_width(&f->g.d, k);
        const plait_tile_t trim = {.call = {.op = PLAIT_TILE_TRIM,
                                            .dtype = f->g.d.dtype,
                                            .diag = 'R',
                                            .m = width,
                                            .n = width,
                                            .k = width,
                                            .lda = ld,
                                            .ldc = ld},
                                   .a = local_spot(f, k, k),
                                   .c = local_spot(f, k, k)};
        PLAIT_TRY(plait_tile_add(tiles, &trim));
    }
done:
    return status;
}

static void start_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_grid_factor_t *f = params;

    touch_info(f, true, touch, context);
    for (int64_t k = plait_grid_common(&f->g, f->row, f->column, 0);
         k < plait_dealt_n_blocks(&f->g.d); k += plait_grid_step(&f->g)) {
        touch_local(f, true, k, k, plait_dealt_width(&f->g.d, k), touch, context);
    }
}

static plait_status_t diagonal_run(const void *params, plait_exec_t *exec)
{
    const plait_grid_factor_t *f = params;

    plait_potrf_block(f->g.d.dtype, plait_dealt_column(&f->g.d, f->k),
                      plait_on_grid_width(f), local_at(f, exec, f->k, f->k),
                      plait_grid_ld(&f->g, f->row), info_of(f, exec));
    return PLAIT_OK;
}

static plait_status_t diagonal_tiles(const void *params, const plait_tiles_t *tiles)
{
    const plait_grid_factor_t *f = params;
    const plait_tile_t factor = plait_potrf_tile(
        f->g.d.dtype, plait_dealt_column(&f->g.d, f->k), plait_on_grid_width(f),
        local_spot(f, f->k, f->k), plait_grid_ld(&f->g, f->row), info_spot(f));

    return plait_tile_add(tiles, &factor);
}

static void diagonal_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_grid_factor_t *f = params;

    touch_info(f, false, touch, context);
    touch_local(f, false, f->k, f->k, plait_on_grid_width(f), touch, context);
    touch_info(f, true, touch, context);
    touch_local(f, true, f->k, f->k, plait_on_grid_width(f), touch, context);
}

/* The block in which the own rows below the diagonal block begin. */
static int64_t first_below(const plait_grid_factor_t *f)
{
    return plait_dealt_next(&f->g.rows, f->row, f->k + 1);
}

static plait_status_t solve_run(const void *params, plait_exec_t *exec)
{
    const plait_grid_factor_t *f = params;

    if (*info_of(f, exec) == 0 && plait_on_grid_rows_below(f, f->row) > 0) {
        plait_blas_trsm(f->g.d.dtype, 'R', 'L', 'C', 'N',
                        plait_on_grid_rows_below(f, f->row), plait_on_grid_width(f), 1,
                        plait_panel_address(exec, &f->diagonal), f->diagonal.ld,
                        local_at(f, exec, first_below(f), f->k),
                        plait_grid_ld(&f->g, f->row));
    }
    return PLAIT_OK;
}

static plait_status_t solve_tiles(const void *params, const plait_tiles_t *tiles)
{
    const plait_grid_factor_t *f = params;
    const int64_t n_rows = plait_on_grid_rows_below(f, f->row);
    const plait_tile_t solve = {
        .call = {.op = PLAIT_TILE_TRSM,
                 .dtype = f->g.d.dtype,
                 .side = 'R',
                 .uplo = 'L',
                 .trans = 'C',
                 .diag = 'N',
                 .m = n_rows,
                 .n = plait_on_grid_width(f),
                 .lda = f->diagonal.ld,
                 .ldc = plait_grid_ld(&f->g, f->row)},
        .a = {.slot = f->diagonal.slot, .offset = f->diagonal.offset},
        .c = (n_rows > 0) ? local_spot(f, first_below(f), f->k)
                          : (plait_spot_t){.slot = f->local_slot}};

    return plait_tile_add(tiles, &solve);
}

static void solve_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_grid_factor_t *f = params;
    const int64_t n_rows = plait_on_grid_rows_below(f, f->row);

    touch_info(f, false, touch, context);
    if (n_rows > 0) {
        touch_panel(f, &f->diagonal, touch, context);
        touch_local(f, false, first_below(f), f->k, n_rows, touch, context);
        touch_local(f, true, first_below(f), f->k, n_rows, touch, context);
    }
}

/* The part of an own block column j that is updated: rows from block `row` on. And where the data for the
 * update begin, in bytes from the panel's first own row and first own column. */
typedef struct {
    int64_t row, n_rows;
    int64_t rows_at, columns_at;
} target_t;

static target_t target_of(const plait_grid_factor_t *f, int64_t j)
{
    const plait_grid_t *g = &f->g;
    const int64_t row = plait_dealt_next(&g->rows, f->row, j);

    return (target_t){.row = row,
                      .n_rows = plait_grid_behind(&g->rows, f->row, j),
                      .rows_at = plait_grid_between(&g->rows, f->row, f->k + 1, row) *
                                 plait_on_grid_item(f),
                      .columns_at =
                          plait_grid_between(&g->columns, f->column, f->k + 1, j) *
                          plait_on_grid_item(f)};
}

/* C_ij -= L_ik L_jk^H for i >= j in one own block column. */
static void update_column(const plait_grid_factor_t *f, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = f->g.d.dtype;
    const target_t t = target_of(f, j);
    const int64_t width = plait_dealt_width(&f->g.d, j);
    const int64_t ld = plait_grid_ld(&f->g, f->row);
    const char *facing = exec->slot[f->columns_slot] + t.columns_at;
    const char *rows = plait_panel_address(exec, &f->rows) + t.rows_at;
    const int64_t n_square = (t.row == j) ? width : 0;
    char *c = (t.n_rows > 0) ? local_at(f, exec, t.row, j) : NULL;

    if (n_square > 0) {
        plait_blas_herk(dtype, 'L', 'N', width, plait_on_grid_width(f), -1, rows,
                        f->rows.ld, 1, c, ld);
    }
    if (t.n_rows > n_square) {
        plait_blas_gemm(dtype, 'N', 'C', t.n_rows - n_square, width,
                        plait_on_grid_width(f), -1,
                        rows + n_square * plait_on_grid_item(f), f->rows.ld, facing,
                        plait_on_grid_columns_below(f), 1,
                        c + n_square * plait_on_grid_item(f), ld);
    }
}

static plait_status_t update_run(const void *params, plait_exec_t *exec)
{
    const plait_grid_factor_t *f = params;

    if (*info_of(f, exec) == 0) {
        for (int64_t j = plait_dealt_next(&f->g.columns, f->column, f->first);
             j < f->end; j += f->g.columns.n_ranks) {
            update_column(f, exec, j);
        }
    }
    return PLAIT_OK;
}

static plait_status_t update_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_grid_factor_t *f = params;

    for (int64_t j = plait_dealt_next(&f->g.columns, f->column, f->first); j < f->end;
         j += f->g.columns.n_ranks) {
        const target_t t = target_of(f, j);
        const int64_t width = plait_dealt_width(&f->g.d, j);
        const plait_potrf_update_t u = {
            .dtype = f->g.d.dtype,
            .n_rows = t.n_rows,
            .n_square = (t.row == j) ? width : 0,
            .width = width,
            .depth = plait_on_grid_width(f),
            .rows = {.slot = f->rows.slot, .offset = f->rows.offset + t.rows_at},
            .facing = {.slot = f->columns_slot, .offset = t.columns_at},
            .c = (t.n_rows > 0) ? local_spot(f, t.row, j)
                                : (plait_spot_t){.slot = f->local_slot},
            .rows_ld = f->rows.ld,
            .facing_ld = plait_on_grid_columns_below(f),
            .ld = plait_grid_ld(&f->g, f->row)};
        if (t.n_rows > 0) {
            PLAIT_TRY(plait_potrf_update_tiles(&u, tiles));
        }
    }
done:
    return status;
}

static void touch_targets(const plait_grid_factor_t *f, bool is_written,
                          plait_touch_fn_t touch, void *context)
{
    for (int64_t j = plait_dealt_next(&f->g.columns, f->column, f->first); j < f->end;
         j += f->g.columns.n_ranks) {
        target_t t = target_of(f, j);
        if (t.n_rows > 0) {
            touch_local(f, is_written, t.row, j, t.n_rows, touch, context);
        }
    }
}

static void update_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_grid_factor_t *f = params;
    const int64_t next = plait_dealt_next(&f->g.columns, f->column, f->first);
    const plait_box_copy_t facing = {.row_bytes = plait_on_grid_columns_below(f) *
                                                  plait_on_grid_width(f) *
                                                  plait_on_grid_item(f)};

    touch_info(f, false, touch, context);
    if (next < f->end && target_of(f, next).n_rows > 0) {
        touch_panel(f, &f->rows, touch, context);
        touch(context, false, f->rank, f->columns_slot, 0, &facing);
    }
    touch_targets(f, false, touch, context);
    touch_targets(f, true, touch, context);
}

static void print(const void *params, FILE *file)
{
    const plait_grid_factor_t *f = params;

    (void)fprintf(file, "block %" PRId64 " of %" PRId64, f->k + 1,
                  plait_dealt_n_blocks(&f->g.d));
    if (f->end > f->first) {
        (void)fprintf(file, ", to own ones from %" PRId64 " on below %" PRId64,
                      f->first + 1, f->end + 1);
    }
}

const plait_kernel_t plait_on_grid_start_kernel = {.name = "potrf: lower triangle",
                                                   .run = start_run,
                                                   .tiles = start_tiles,
                                                   .touch = start_touch,
                                                   .print = print};
const plait_kernel_t plait_on_grid_diagonal_kernel = {
    .name = "potrf: factor diagonal block",
    .run = diagonal_run,
    .tiles = diagonal_tiles,
    .touch = diagonal_touch,
    .print = print};
const plait_kernel_t plait_on_grid_solve_kernel = {.name =
                                                       "potrf: solve for rows below",
                                                   .run = solve_run,
                                                   .tiles = solve_tiles,
                                                   .touch = solve_touch,
                                                   .print = print};
const plait_kernel_t plait_on_grid_update_kernel = {.name = "potrf: update by",
                                                    .run = update_run,
                                                    .tiles = update_tiles,
                                                    .touch = update_touch,
                                                    .print = print};
