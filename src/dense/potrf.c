/* Cholesky factorization A = L L^H by block columns, right-looking with look-ahead (factor.h); on a grid of
 * ranks where that pays (potrf_grid.c); by the library of several devices if it was chosen (potrf_joint.c).
 * Source: Golub, Van Loan, Matrix Computations, 4th edition, section 4.2.9; LAPACK potrf for the
 * diagonal blocks. */
#include "dense/potrf.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/params.h"
#include "dense/scalar.h"
#include "kernel/blas.h"

#include <string.h>

static const plait_attr_t potrf_attrs[] = {
    PLAIT_ATTR(plait_potrf_params_t, n),
    PLAIT_ATTR(plait_potrf_params_t, block),
    PLAIT_ATTR(plait_potrf_params_t, grid),
    PLAIT_ATTR_END,
};

/* Copies the lower triangle of the operand's columns, with zeros above it. */
static plait_status_t start_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t item = plait_dealt_item(d);

    *plait_factor_info(f, exec) = 0;
    for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(d, k); j++) {
            int64_t row = plait_dealt_column(d, k) + j;
            int64_t at = plait_dealt_at(d, k, 0) + j * plait_dealt_ld_bytes(d);
            char *to = exec->slot[f->slot] + at;
            const char *from = exec->slot[f->src_slot] + at;
            memset(to, 0, (size_t)(row * item));
            if (to != from) {
                memcpy(to + row * item, from + row * item,
                       (size_t)((d->m - row) * item));
            }
            if (plait_is_complex(d->dtype)) {
                memset(to + row * item + item / 2, 0, (size_t)item / 2);
            }
        }
    }
    plait_factor_zero_padding(f, exec);
    return PLAIT_OK;
}

plait_status_t plait_potrf_trim_tiles(const plait_factor_t *f, char diag,
                                      const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_dealt_t *d = &f->d;

    for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        const plait_tile_t trim = {
            .call = {.op = PLAIT_TILE_TRIM,
                     .dtype = d->dtype,
                     .diag = diag,
                     .m = d->m,
                     .n = plait_dealt_width(d, k),
                     .k = d->m,
                     .row = plait_dealt_column(d, k),
                     .lda = d->m,
                     .ldc = d->m},
            .a = {.slot = f->src_slot, .offset = plait_dealt_at(d, k, 0)},
            .c = plait_factor_spot(f, k, 0)};
        PLAIT_TRY(plait_tile_add(tiles, &trim));
    }
    PLAIT_TRY(plait_factor_tile_padding(f, tiles));
done:
    return status;
}

static plait_status_t begin_tiles(const plait_factor_t *f, char diag,
                                  const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_tile_zero(tiles, plait_factor_info_spot(f), sizeof(int32_t)));
    PLAIT_TRY(plait_potrf_trim_tiles(f, diag, tiles));
done:
    return status;
}

static plait_status_t start_tiles(const void *params, const plait_tiles_t *tiles)
{
    return begin_tiles(params, 'R', tiles);
}

/* The caller made the factor's diagonal: it is real only if potrf wrote it. */
static plait_status_t factor_tiles(const void *params, const plait_tiles_t *tiles)
{
    return begin_tiles(params, 'N', tiles);
}

void plait_potrf_trim_touch(const plait_factor_t *f, plait_touch_fn_t touch,
                            void *context)
{
    const plait_dealt_t *d = &f->d;

    for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(d, k); j++) {
            const int64_t row = plait_dealt_column(d, k) + j;
            const plait_box_copy_t column = {.row_bytes =
                                                 (d->m - row) * plait_dealt_item(d)};
            touch(context, false, f->rank, f->src_slot,
                  plait_dealt_at(d, k, row) + j * plait_dealt_ld_bytes(d), &column);
        }
    }
    plait_factor_touch_blocks(f, true, f->slot, 0, plait_dealt_n_blocks(d), false,
                              touch, context);
    plait_factor_touch_padding(f, touch, context);
}

static void start_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    plait_potrf_trim_touch(params, touch, context);
    plait_factor_touch_info(params, true, touch, context);
}

void plait_potrf_block(plait_dtype_t dtype, int64_t row, int64_t width, void *block,
                       int64_t ld, int32_t *info_p)
{
    if (*info_p == 0) {
        int64_t minor = plait_blas_potrf(dtype, 'L', width, block, ld);
        int64_t bad =
            plait_dense_first_bad(dtype, block, (minor > 0) ? minor - 1 : width, ld);
        minor = (bad > 0) ? bad : minor;
        *info_p = (minor > 0) ? (int32_t)(row + minor) : 0;
    }
}

plait_tile_t plait_potrf_tile(plait_dtype_t dtype, int64_t row, int64_t width,
                              plait_spot_t block, int64_t ld, plait_spot_t info)
{
    return (plait_tile_t){.call = {.op = PLAIT_TILE_POTRF,
                                   .dtype = dtype,
                                   .m = width,
                                   .n = width,
                                   .row = row,
                                   .ldc = ld},
                          .c = block,
                          .info = info};
}

static plait_status_t panel_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t row = plait_dealt_column(d, f->k);
    const int64_t width = plait_dealt_width(d, f->k);
    int32_t *info = plait_factor_info(f, exec);
    char *block = plait_factor_at(f, exec, f->k, row);
    char *below = plait_factor_at(f, exec, f->k, row + width);

    plait_potrf_block(d->dtype, row, width, block, d->m, info);
    if (*info == 0) {
        plait_blas_trsm(d->dtype, 'R', 'L', 'C', 'N', d->n - row - width, width, 1,
                        block, d->m, below, d->m);
    }
    return PLAIT_OK;
}

static plait_status_t panel_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t row = plait_dealt_column(d, f->k);
    const int64_t width = plait_dealt_width(d, f->k);
    const plait_spot_t block = plait_factor_spot(f, f->k, row);
    const plait_tile_t factor =
        plait_potrf_tile(d->dtype, row, width, block, d->m, plait_factor_info_spot(f));
    const plait_tile_t solve = {.call = {.op = PLAIT_TILE_TRSM,
                                         .dtype = d->dtype,
                                         .side = 'R',
                                         .uplo = 'L',
                                         .trans = 'C',
                                         .diag = 'N',
                                         .m = d->n - row - width,
                                         .n = width,
                                         .lda = d->m,
                                         .ldc = d->m},
                                .a = block,
                                .c = plait_factor_spot(f, f->k, row + width)};

    PLAIT_TRY(plait_tile_add(tiles, &factor));
    PLAIT_TRY(plait_tile_add(tiles, &solve));
done:
    return status;
}

static void panel_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;

    plait_factor_touch_info(f, false, touch, context);
    plait_factor_touch_blocks(f, false, f->slot, f->k, f->k + 1, true, touch, context);
    plait_factor_touch_info(f, true, touch, context);
    plait_factor_touch_blocks(f, true, f->slot, f->k, f->k + 1, true, touch, context);
}

/* C_ij -= L_ik L_jk^H for the own block columns j, i >= j. The panel begins below block k. */
static plait_status_t update_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t item = plait_dealt_item(d);
    const char *panel = plait_panel_address(exec, &f->panel);
    const int64_t ld = f->panel.ld;
    const int64_t first_row = d->n - f->panel.n_rows;

    if (*plait_factor_info(f, exec) != 0) {
        return PLAIT_OK;
    }
    for (int64_t j = plait_dealt_next(d, f->rank, f->first); j < f->end;
         j += d->n_ranks) {
        const int64_t row = plait_dealt_column(d, j);
        const int64_t width = plait_dealt_width(d, j);
        const char *facing = panel + (row - first_row) * item;
        plait_blas_herk(d->dtype, 'L', 'N', width, f->panel.width, -1, facing, ld, 1,
                        plait_factor_at(f, exec, j, row), d->m);
        plait_blas_gemm(d->dtype, 'N', 'C', d->n - row - width, width, f->panel.width,
                        -1, facing + width * item, ld, facing, ld, 1,
                        plait_factor_at(f, exec, j, row + width), d->m);
    }
    return PLAIT_OK;
}

plait_status_t plait_potrf_update_tiles(const plait_potrf_update_t *u,
                                        const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const int64_t below = u->n_square * plait_dtype_bytes(u->dtype);
    const plait_tile_t square = {.call = {.op = PLAIT_TILE_HERK,
                                          .dtype = u->dtype,
                                          .m = u->n_square,
                                          .n = u->n_square,
                                          .k = u->depth,
                                          .lda = u->rows_ld,
                                          .ldc = u->ld,
                                          .alpha = -1,
                                          .beta = 1},
                                 .a = u->rows,
                                 .c = u->c};
    const plait_tile_t rest = {
        .call = {.op = PLAIT_TILE_GEMM,
                 .dtype = u->dtype,
                 .trans = 'N',
                 .trans_b = 'C',
                 .m = u->n_rows - u->n_square,
                 .n = u->width,
                 .k = u->depth,
                 .lda = u->rows_ld,
                 .ldb = u->facing_ld,
                 .ldc = u->ld,
                 .alpha = -1,
                 .beta = 1},
        .a = {.slot = u->rows.slot, .offset = u->rows.offset + below},
        .b = u->facing,
        .c = {.slot = u->c.slot, .offset = u->c.offset + below}};

    PLAIT_TRY(plait_tile_add(tiles, &square));
    PLAIT_TRY(plait_tile_add(tiles, &rest));
done:
    return status;
}

/* Does not look at info: if a panel has failed, nobody reads the others. */
static plait_status_t update_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t first_row = d->n - f->panel.n_rows;

    for (int64_t j = plait_dealt_next(d, f->rank, f->first); j < f->end;
         j += d->n_ranks) {
        const int64_t row = plait_dealt_column(d, j);
        const int64_t width = plait_dealt_width(d, j);
        const plait_spot_t facing = plait_factor_panel_spot(f, row - first_row);
        const plait_potrf_update_t u = {.dtype = d->dtype,
                                        .n_rows = d->n - row,
                                        .n_square = width,
                                        .width = width,
                                        .depth = f->panel.width,
                                        .rows = facing,
                                        .facing = facing,
                                        .c = plait_factor_spot(f, j, row),
                                        .rows_ld = f->panel.ld,
                                        .facing_ld = f->panel.ld,
                                        .ld = d->m};
        PLAIT_TRY(plait_potrf_update_tiles(&u, tiles));
    }
done:
    return status;
}

static void update_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;
    const int64_t next = plait_dealt_next(&f->d, f->rank, f->first);
    const plait_box_copy_t box = plait_panel_box(&f->panel, plait_dealt_item(&f->d));

    plait_factor_touch_info(f, false, touch, context);
    if (next < f->end) {
        touch(context, false, f->panel.peer, f->panel.slot, f->panel.offset, &box);
    }
    plait_factor_touch_blocks(f, false, f->slot, f->first, f->end, true, touch,
                              context);
    plait_factor_touch_blocks(f, true, f->slot, f->first, f->end, true, touch, context);
}

static plait_status_t finish_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;

    if (*plait_factor_info(f, exec) != 0) {
        for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
             k += d->n_ranks) {
            for (int64_t j = 0; j < plait_dealt_width(d, k); j++) {
                int64_t row = plait_dealt_column(d, k) + j;
                plait_dense_set_nan(d->dtype,
                                    plait_factor_at(f, exec, k, row) +
                                        j * plait_dealt_ld_bytes(d),
                                    d->m - row);
            }
        }
    }
    return PLAIT_OK;
}

static plait_status_t finish_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;

    for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        const plait_tile_t spoil = {.call = {.op = PLAIT_TILE_SPOIL,
                                             .dtype = d->dtype,
                                             .m = d->m,
                                             .n = plait_dealt_width(d, k),
                                             .row = plait_dealt_column(d, k),
                                             .ldc = d->m},
                                    .c = plait_factor_spot(f, k, 0),
                                    .info = plait_factor_info_spot(f)};
        PLAIT_TRY(plait_tile_add(tiles, &spoil));
    }
done:
    return status;
}

static void finish_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;

    plait_factor_touch_info(f, false, touch, context);
    plait_factor_touch_blocks(f, true, f->slot, 0, plait_dealt_n_blocks(&f->d), true,
                              touch, context);
}

static plait_status_t zero_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;

    for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(d, k); j++) {
            memset(plait_factor_at(f, exec, k, 0) + j * plait_dealt_ld_bytes(d), 0,
                   (size_t)(plait_dealt_column(d, k) * plait_dealt_item(d)));
        }
    }
    plait_factor_zero_padding(f, exec);
    return PLAIT_OK;
}

static plait_status_t zero_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;

    for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        const plait_spot_t at = plait_factor_spot(f, k, 0);
        const plait_box_copy_t box =
            plait_columns_box(plait_dealt_column(d, k), plait_dealt_width(d, k), d->m,
                              plait_dealt_item(d));
        PLAIT_TRY(plait_tile_box(tiles, PLAIT_DEVICE_ZERO, PLAIT_U8, at, at, &box));
    }
    PLAIT_TRY(plait_factor_tile_padding(f, tiles));
done:
    return status;
}

static void zero_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;

    for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        const plait_box_copy_t box =
            plait_columns_box(plait_dealt_column(d, k), plait_dealt_width(d, k), d->m,
                              plait_dealt_item(d));
        touch(context, true, f->rank, f->slot, plait_dealt_at(d, k, 0), &box);
    }
    plait_factor_touch_padding(f, touch, context);
}

const plait_kernel_t plait_potrf_start_kernel = {.name = "potrf: lower triangle",
                                                 .run = start_run,
                                                 .tiles = start_tiles,
                                                 .touch = start_touch,
                                                 .print = plait_factor_print};
const plait_kernel_t plait_potri_start_kernel = {.name = "potri: lower triangle",
                                                 .tiles = factor_tiles,
                                                 .touch = start_touch,
                                                 .print = plait_factor_print};
static const plait_kernel_t panel_kernel = {.name = "potrf: factor",
                                            .run = panel_run,
                                            .tiles = panel_tiles,
                                            .touch = panel_touch,
                                            .print = plait_factor_print};
static const plait_kernel_t update_kernel = {.name = "potrf: update by",
                                             .run = update_run,
                                             .tiles = update_tiles,
                                             .touch = update_touch,
                                             .print = plait_factor_print};
const plait_kernel_t plait_potrf_finish_kernel = {.name = "potrf: NaN where it failed",
                                                  .run = finish_run,
                                                  .tiles = finish_tiles,
                                                  .touch = finish_touch,
                                                  .print = plait_factor_print};
const plait_kernel_t plait_potrf_zero_kernel = {.name = "potrf: zero above",
                                                .run = zero_run,
                                                .tiles = zero_tiles,
                                                .touch = zero_touch,
                                                .print = plait_factor_print};

static const plait_factor_kind_t potrf_kind = {.start = &plait_potrf_start_kernel,
                                               .panel = &panel_kernel,
                                               .update = &update_kernel,
                                               .finish = &plait_potrf_finish_kernel,
                                               .is_lower = true,
                                               .n_flops = 0.5};

/* Rows of the grid: as given by the caller, or chosen here. */
static plait_status_t grid_rows(const plait_potrf_params_t *p,
                                const plait_problem_t *problem, const plait_dealt_t *d,
                                int *n_rows_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(p->grid >= 0 && p->grid <= problem->n_ranks &&
                    (p->grid == 0 || problem->n_ranks % p->grid == 0),
                PLAIT_ERR_INVALID,
                "potrf: a grid of %lld rows of %d ranks; expected 0, or a divisor",
                (long long)p->grid, problem->n_ranks);
    *n_rows_p = (p->grid != 0) ? (int)p->grid
                : plait_factor_is_whole(&potrf_kind, d)
                    ? 1
                    : plait_grid_choose(d, problem->caps.direct);
done:
    return status;
}

static plait_status_t potrf_plan(const void *params, const plait_problem_t *problem,
                                 plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_potrf_params_t *p = params;
    plait_plan_t *plan = NULL;
    char grid[40] = "";
    int n_rows = 1;
    plait_joint_t joint;
    bool is_joint = p->grid == 0 && problem->caps.device != NULL &&
                    plait_joint_is_chosen(problem->choices, p->n, problem->n_ranks);
    plait_factor_t f = {.d = {.m = p->n,
                              .n = p->n,
                              .block = p->block,
                              .n_ranks = problem->n_ranks,
                              .dtype = problem->args[0].dtype},
                        .rank = problem->rank,
                        .side_slot = -1};

    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(plait_dealt_fits(&f.d, &problem->args[0], "potrf: the operand"));
    PLAIT_TRY(plait_dealt_fits(&f.d, &problem->rets[0], "potrf: the factor"));
    PLAIT_TRY(plait_dense_info_fits(&problem->rets[1], "potrf"));
    if (is_joint) {
        PLAIT_TRY(plait_joint_ask(
            problem, &f.d, &(plait_joint_wish_t){.op = PLAIT_JOINT_POTRF}, &joint));
    } else {
        PLAIT_TRY(grid_rows(p, problem, &f.d, &n_rows));
    }
    if (n_rows > 1) {
        (void)snprintf(grid, sizeof(grid), ", on a grid of %dx%d", n_rows,
                       problem->n_ranks / n_rows);
    }
    PLAIT_TRY(plait_plan_create(problem, &plan,
                                "potrf %s %lldx%lld in blocks of %lld%s",
                                plait_dtype_name(f.d.dtype), (long long)p->n,
                                (long long)p->n, (long long)p->block, grid));
    f.info_slot = plait_slot_ret(plan, 1);
    if (is_joint) {
        PLAIT_TRY(plait_potrf_joint_steps(plan, &joint, &f));
    } else if (n_rows > 1) {
        const plait_grid_t g = plait_grid_make(&f.d, n_rows);
        PLAIT_TRY(plait_potrf_grid_steps(plan, &g, &f));
    } else {
        PLAIT_TRY(plait_factor_steps(plan, &potrf_kind, &f));
    }
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_potrf = {
    .name = "potrf",
    .n_args = 1,
    .n_rets = 2,
    .params_size = sizeof(plait_potrf_params_t),
    .attrs = potrf_attrs,
    .adjoint = NULL,
    .alias = 0,
    .family = PLAIT_FAMILY_DENSE,
    .model = "mesh",
    .doc = "Cholesky factor of a distributed Hermitian matrix.",
    .plan = potrf_plan,
};
