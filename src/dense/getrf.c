/* LU factorization with partial pivoting, P A = L U, by block columns with look-ahead (factor.h).
 * Panels are whole columns, so that the search for a pivot needs no messages. Row exchanges in a rank's own
 * columns left of a panel are made at the end, when no peer reads these columns any more.
 * Source: Golub, Van Loan, Matrix Computations, 4th edition, section 3.4; LAPACK getrf for panels. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/factor.h"
#include "dense/params.h"
#include "kernel/blas.h"

#include <string.h>

static const plait_attr_t getrf_attrs[] = {
    PLAIT_ATTR(plait_panels_params_t, m),
    PLAIT_ATTR(plait_panels_params_t, n),
    PLAIT_ATTR(plait_panels_params_t, block),
    PLAIT_ATTR_END,
};

static int32_t *pivots_of(const plait_factor_t *f, const plait_exec_t *exec)
{
    return (int32_t *)(void *)exec->slot[f->side_slot];
}

/* Pivots [first, end) in scratch, as LAPACK counts them: in rows from `first` on. */
static const int64_t *local_pivots(const plait_factor_t *f, const plait_exec_t *exec,
                                   int64_t first, int64_t end)
{
    int64_t *local = (int64_t *)(void *)exec->scratch;
    const int32_t *pivots = pivots_of(f, exec);

    for (int64_t i = first; i < end; i++) {
        local[i - first] = pivots[i] - first + 1;
    }
    return local;
}

static plait_status_t panel_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t row = plait_dealt_column(d, f->k);
    const int64_t n = plait_factor_n_pivots(d, f->k);
    int64_t *local = (int64_t *)(void *)exec->scratch;
    int32_t *pivots = pivots_of(f, exec);
    int32_t *info = plait_factor_info(f, exec);
    char *block = plait_factor_at(f, exec, f->k, row);

    int64_t zero = plait_blas_getrf(d->dtype, d->m - row, plait_dealt_width(d, f->k),
                                    block, d->m, local);
    for (int64_t i = 0; i < n; i++) {
        pivots[row + i] = (int32_t)(row + local[i] - 1);
    }
    int64_t bad =
        plait_dense_first_bad(d->dtype, block, (zero > 0) ? zero - 1 : n, d->m);
    bad = (bad > 0) ? bad : zero;
    *info = (*info == 0 && bad > 0) ? (int32_t)(row + bad) : *info;
    return PLAIT_OK;
}

static plait_spot_t pivots_spot(const plait_factor_t *f, int64_t first)
{
    return (plait_spot_t){.slot = f->side_slot,
                          .offset = first * (int64_t)sizeof(int32_t)};
}

static plait_status_t panel_tiles(const void *params, const plait_tiles_t *tiles)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t row = plait_dealt_column(d, f->k);
    const plait_tile_t factor = {.call = {.op = PLAIT_TILE_GETRF,
                                          .dtype = d->dtype,
                                          .m = d->m - row,
                                          .n = plait_dealt_width(d, f->k),
                                          .row = row,
                                          .ldc = d->m},
                                 .c = plait_factor_spot(f, f->k, row),
                                 .extra = pivots_spot(f, row),
                                 .info = plait_factor_info_spot(f)};

    return plait_tile_add(tiles, &factor);
}

/* Exchanges rows [row, end) of n_columns columns, which begin at `top`, with the rows that the pivots name. */
static plait_tile_t exchange_of(const plait_factor_t *f, int64_t row, int64_t end,
                                int64_t n_columns, plait_spot_t top)
{
    return (plait_tile_t){.call = {.op = PLAIT_TILE_LASWP,
                                   .dtype = f->d.dtype,
                                   .m = f->d.m - row,
                                   .n = n_columns,
                                   .k = end - row,
                                   .row = row,
                                   .ldc = f->d.m},
                          .c = top,
                          .extra = pivots_spot(f, row)};
}

static void touch_pivots(const plait_factor_t *f, bool is_written, int64_t first,
                         int64_t end, plait_touch_fn_t touch, void *context)
{
    const plait_box_copy_t box = {.row_bytes =
                                      (end - first) * (int64_t)sizeof(int32_t)};

    touch(context, is_written, f->rank, f->side_slot, first * (int64_t)sizeof(int32_t),
          &box);
}

static void panel_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;
    const int64_t row = plait_dealt_column(&f->d, f->k);

    plait_factor_touch_info(f, false, touch, context);
    plait_factor_touch_blocks(f, false, f->slot, f->k, f->k + 1, true, touch, context);
    plait_factor_touch_info(f, true, touch, context);
    plait_factor_touch_blocks(f, true, f->slot, f->k, f->k + 1, true, touch, context);
    touch_pivots(f, true, row, row + plait_factor_n_pivots(&f->d, f->k), touch,
                 context);
}

/* In the own columns behind panel k: exchanges rows; U_k = L_kk^-1 A_k; A -= L_k U_k. */
static plait_status_t update_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const char *panel = plait_panel_address(exec, &f->panel);
    const int64_t row = plait_dealt_column(d, f->k);
    const int64_t n = plait_factor_n_pivots(d, f->k);
    const int64_t n_columns = plait_factor_n_columns(f);
    const int64_t first = plait_dealt_next(d, f->rank, f->first);

    if (n_columns > 0) {
        char *top = plait_factor_at(f, exec, first, row);
        char *rest = plait_factor_at(f, exec, first, row + n);
        plait_blas_laswp(d->dtype, n_columns, top, d->m, n,
                         local_pivots(f, exec, row, row + n), false);
        plait_blas_trsm(d->dtype, 'L', 'L', 'N', 'U', n, n_columns, 1, panel,
                        f->panel.ld, top, d->m);
        plait_blas_gemm(d->dtype, 'N', 'N', d->m - row - n, n_columns, n, -1,
                        panel + n * plait_dealt_item(d), f->panel.ld, top, d->m, 1,
                        rest, d->m);
    }
    return PLAIT_OK;
}

static plait_status_t update_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t row = plait_dealt_column(d, f->k), n = plait_factor_n_pivots(d, f->k);
    const int64_t first = plait_dealt_next(d, f->rank, f->first);
    const plait_spot_t top = plait_factor_spot(f, first, row);
    const int64_t n_columns = plait_factor_n_columns(f);
    const plait_tile_t exchange = exchange_of(f, row, row + n, n_columns, top);
    const plait_tile_t solve = {.call = {.op = PLAIT_TILE_TRSM,
                                         .dtype = d->dtype,
                                         .side = 'L',
                                         .uplo = 'L',
                                         .trans = 'N',
                                         .diag = 'U',
                                         .m = n,
                                         .n = n_columns,
                                         .lda = f->panel.ld,
                                         .ldc = d->m},
                                .a = plait_factor_panel_spot(f, 0),
                                .c = top};
    const plait_tile_t product = {.call = {.op = PLAIT_TILE_GEMM,
                                           .dtype = d->dtype,
                                           .trans = 'N',
                                           .trans_b = 'N',
                                           .m = d->m - row - n,
                                           .n = n_columns,
                                           .k = n,
                                           .lda = f->panel.ld,
                                           .ldb = d->m,
                                           .ldc = d->m,
                                           .alpha = -1,
                                           .beta = 1},
                                  .a = plait_factor_panel_spot(f, n),
                                  .b = top,
                                  .c = plait_factor_spot(f, first, row + n)};

    PLAIT_TRY(plait_tile_add(tiles, &exchange));
    PLAIT_TRY(plait_tile_add(tiles, &solve));
    PLAIT_TRY(plait_tile_add(tiles, &product));
done:
    return status;
}

static void update_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;
    const int64_t row = plait_dealt_column(&f->d, f->k);

    plait_factor_touch_info(f, false, touch, context);
    touch_pivots(f, false, row, row + plait_factor_n_pivots(&f->d, f->k), touch,
                 context);
    plait_factor_touch_update(f, touch, context);
}

/* Exchanges rows of the own block columns for the pivots of later panels. */
static plait_status_t finish_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t end = plait_min(d->m, d->n);

    for (int64_t j = plait_dealt_next(d, f->rank, 0); j < plait_factor_n_panels(d);
         j += d->n_ranks) {
        int64_t row = plait_dealt_column(d, j) + plait_dealt_width(d, j);
        if (row < end) {
            plait_blas_laswp(d->dtype, plait_dealt_width(d, j),
                             plait_factor_at(f, exec, j, row), d->m, end - row,
                             local_pivots(f, exec, row, end), false);
        }
    }
    return PLAIT_OK;
}

static plait_status_t finish_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t end = plait_min(d->m, d->n);

    for (int64_t j = plait_dealt_next(d, f->rank, 0); j < plait_factor_n_panels(d);
         j += d->n_ranks) {
        const int64_t width = plait_dealt_width(d, j);
        const int64_t row = plait_dealt_column(d, j) + width;
        const plait_tile_t exchange =
            exchange_of(f, row, end, width, plait_factor_spot(f, j, row));
        if (row < end) {
            PLAIT_TRY(plait_tile_add(tiles, &exchange));
        }
    }
done:
    return status;
}

static void finish_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;

    plait_factor_touch_info(f, false, touch, context);
    touch_pivots(f, false, 0, plait_min(d->m, d->n), touch, context);
    plait_factor_touch_blocks(f, false, f->slot, 0, plait_factor_n_panels(d), true,
                              touch, context);
    plait_factor_touch_blocks(f, true, f->slot, 0, plait_factor_n_panels(d), true,
                              touch, context);
}

static const plait_kernel_t panel_kernel = {.name = "getrf: factor",
                                            .run = panel_run,
                                            .tiles = panel_tiles,
                                            .touch = panel_touch,
                                            .print = plait_factor_print};
static const plait_kernel_t update_kernel = {.name = "getrf: update by",
                                             .run = update_run,
                                             .tiles = update_tiles,
                                             .touch = update_touch,
                                             .print = plait_factor_print};
static const plait_kernel_t finish_kernel = {.name = "getrf: exchange rows on the left",
                                             .run = finish_run,
                                             .tiles = finish_tiles,
                                             .touch = finish_touch,
                                             .print = plait_factor_print};

static const plait_factor_kind_t getrf_kind = {.start = &plait_factor_copy_kernel,
                                               .panel = &panel_kernel,
                                               .update = &update_kernel,
                                               .finish = &finish_kernel,
                                               .keeps_diagonal = true,
                                               .side_bytes = sizeof(int32_t),
                                               .n_flops = 1};

static plait_status_t pivots_fit(const plait_dealt_t *d, const plait_array_t *array)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(array->dtype == PLAIT_S32 && array->ndim == 1 &&
                    array->dims[0] == plait_min(d->m, d->n),
                PLAIT_ERR_INVALID, "getrf: the pivots are %s; expected %lld of int32",
                plait_dtype_name(array->dtype), (long long)plait_min(d->m, d->n));
    PLAIT_CHECK(d->m <= INT32_MAX, PLAIT_ERR_OVERFLOW,
                "getrf: %lld rows; pivots are 32-bit integers", (long long)d->m);
done:
    return status;
}

static plait_status_t getrf_plan(const void *params, const plait_problem_t *problem,
                                 plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_panels_params_t *p = params;
    plait_plan_t *plan = NULL;
    plait_factor_t f = {.d = {.m = p->m,
                              .n = p->n,
                              .block = p->block,
                              .n_ranks = problem->n_ranks,
                              .dtype = problem->args[0].dtype},
                        .rank = problem->rank};

    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(plait_dealt_fits(&f.d, &problem->args[0], "getrf: the operand"));
    PLAIT_TRY(plait_dealt_fits(&f.d, &problem->rets[0], "getrf: the factors"));
    PLAIT_TRY(pivots_fit(&f.d, &problem->rets[1]));
    PLAIT_TRY(plait_dense_info_fits(&problem->rets[2], "getrf"));
    PLAIT_TRY(plait_plan_create(problem, &plan, "getrf %s %lldx%lld in blocks of %lld",
                                plait_dtype_name(f.d.dtype), (long long)p->m,
                                (long long)p->n, (long long)p->block));
    f.side_slot = plait_slot_ret(plan, 1);
    f.info_slot = plait_slot_ret(plan, 2);
    plait_plan_need_scratch(plan, plait_min(p->m, p->n) * (int64_t)sizeof(int64_t));
    PLAIT_TRY(plait_factor_steps(plan, &getrf_kind, &f));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_getrf = {
    .name = "getrf",
    .n_args = 1,
    .n_rets = 3,
    .params_size = sizeof(plait_panels_params_t),
    .attrs = getrf_attrs,
    .adjoint = NULL,
    .alias = 0,
    .model = "mesh",
    .doc = "LU factors of a distributed matrix, with partial pivoting.",
    .plan = getrf_plan,
};
