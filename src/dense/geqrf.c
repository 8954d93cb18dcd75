/* QR factorization by block columns with look-ahead (factor.h): Householder reflectors, applied in blocks as
 * I - V T V^H. Every rank computes T from the V that it received.
 * Source: Golub, Van Loan, Matrix Computations, 4th edition, section 5.2; LAPACK geqrf for panels. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/factor.h"
#include "dense/params.h"
#include "dense/reflect.h"
#include "kernel/blas.h"

static const plait_attr_t geqrf_attrs[] = {
    PLAIT_ATTR(plait_panels_params_t, m),
    PLAIT_ATTR(plait_panels_params_t, n),
    PLAIT_ATTR(plait_panels_params_t, block),
    PLAIT_ATTR_END,
};

/* Elements of work memory that LAPACK wants for the widest panel. */
static int64_t panel_work(const plait_dealt_t *d, plait_blas_work_t *work)
{
    *work = (plait_blas_work_t){.n = -1};
    (void)plait_blas_geqrf(d->dtype, d->m, plait_min(d->block, d->n), NULL,
                           plait_max(d->m, 1), NULL, work);
    return plait_max(work->n, 1);
}

static plait_status_t panel_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t row = plait_dealt_column(d, f->k);
    plait_blas_work_t work;

    work = (plait_blas_work_t){.n = panel_work(d, &work), .work = exec->scratch};
    plait_reflect_factor(d->dtype, d->m - row, plait_dealt_width(d, f->k),
                         plait_factor_at(f, exec, f->k, row), d->m,
                         exec->slot[f->side_slot] + row * plait_dealt_item(d), &work);
    return PLAIT_OK;
}

static plait_status_t panel_tiles(const void *params, const plait_tiles_t *tiles)
{
    const plait_factor_t *f = params;
    const plait_dealt_t *d = &f->d;
    const int64_t row = plait_dealt_column(d, f->k);
    const plait_tile_t factor = {
        .call = {.op = PLAIT_TILE_GEQRF,
                 .dtype = d->dtype,
                 .m = d->m - row,
                 .n = plait_dealt_width(d, f->k),
                 .ldc = d->m},
        .c = plait_factor_spot(f, f->k, row),
        .extra = {.slot = f->side_slot, .offset = row * plait_dealt_item(d)}};

    return plait_tile_add(tiles, &factor);
}

static void panel_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;
    const int64_t item = plait_dealt_item(&f->d);
    const plait_box_copy_t tau = {.row_bytes =
                                      plait_factor_n_pivots(&f->d, f->k) * item};

    plait_factor_touch_blocks(f, false, f->slot, f->k, f->k + 1, true, touch, context);
    plait_factor_touch_blocks(f, true, f->slot, f->k, f->k + 1, true, touch, context);
    touch(context, true, f->rank, f->side_slot, plait_dealt_column(&f->d, f->k) * item,
          &tau);
}

/* Applies the panel's reflectors to the own columns that are to be updated. */
static plait_reflect_t reflect_of(const plait_factor_t *f)
{
    const plait_dealt_t *d = &f->d;
    const int64_t row = plait_dealt_column(d, f->k);

    return (plait_reflect_t){
        .dtype = d->dtype,
        .panel = f->panel,
        .n = plait_factor_n_pivots(d, f->k),
        .tau_slot = f->side_slot,
        .tau_offset = row * plait_dealt_item(d),
        .slot = f->slot,
        .offset = plait_dealt_at(d, plait_dealt_next(d, f->rank, f->first), row),
        .ld = d->m,
        .n_columns = plait_factor_n_columns(f),
        .is_adjoint = true};
}

static plait_status_t update_run(const void *params, plait_exec_t *exec)
{
    const plait_reflect_t reflect = reflect_of(params);

    plait_reflect_run(&reflect, exec);
    return PLAIT_OK;
}

static plait_status_t update_tiles(const void *params, const plait_tiles_t *tiles)
{
    const plait_reflect_t reflect = reflect_of(params);

    return plait_reflect_tiles(&reflect, tiles);
}

static void update_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;
    const plait_reflect_t reflect = reflect_of(f);

    plait_reflect_touch(&reflect, f->rank, touch, context);
}

static const plait_kernel_t panel_kernel = {.name = "geqrf: factor",
                                            .run = panel_run,
                                            .tiles = panel_tiles,
                                            .touch = panel_touch,
                                            .print = plait_factor_print};
static const plait_kernel_t update_kernel = {.name = "geqrf: update by",
                                             .run = update_run,
                                             .tiles = update_tiles,
                                             .touch = update_touch,
                                             .print = plait_factor_print};

/* Scratch of LAPACK: for panels, and for the whole matrix, which one rank may have. */
static void need_scratch(plait_plan_t *plan, const plait_factor_t *f)
{
    const int64_t item = plait_dealt_item(&f->d);
    plait_dealt_t whole = f->d;
    plait_blas_work_t work;

    whole.block = plait_max(f->d.n, 1);
    plait_plan_need_scratch(
        plan, plait_reflect_scratch(f->d.dtype, plait_min(f->d.block, f->d.n),
                                    plait_dealt_owned(&f->d, f->rank)));
    plait_plan_need_scratch(plan, panel_work(&f->d, &work) * item);
    plait_plan_need_scratch(plan, panel_work(&whole, &work) * item);
}

static plait_status_t geqrf_plan(const void *params, const plait_problem_t *problem,
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
                        .rank = problem->rank,
                        .info_slot = -1};
    const plait_factor_kind_t kind = {.start = &plait_factor_copy_kernel,
                                      .panel = &panel_kernel,
                                      .update = &update_kernel,
                                      .keeps_diagonal = true,
                                      .side_bytes = plait_dtype_bytes(f.d.dtype),
                                      .n_flops = 2};

    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(plait_dealt_fits(&f.d, &problem->args[0], "geqrf: the operand"));
    PLAIT_TRY(plait_dealt_fits(&f.d, &problem->rets[0], "geqrf: the factors"));
    PLAIT_TRY(plait_reflect_tau_fits(&f.d, &problem->rets[1], "geqrf"));
    PLAIT_TRY(plait_plan_create(problem, &plan, "geqrf %s %lldx%lld in blocks of %lld",
                                plait_dtype_name(f.d.dtype), (long long)p->m,
                                (long long)p->n, (long long)p->block));
    f.side_slot = plait_slot_ret(plan, 1);
    if (plan->device == NULL) {
        need_scratch(plan, &f);
    }
    PLAIT_TRY(plait_factor_steps(plan, &kind, &f));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_geqrf = {
    .name = "geqrf",
    .n_args = 1,
    .n_rets = 2,
    .params_size = sizeof(plait_panels_params_t),
    .attrs = geqrf_attrs,
    .adjoint = NULL,
    .alias = 0,
    .model = "mesh",
    .doc = "QR factors of a distributed matrix, as Householder reflectors.",
    .plan = geqrf_plan,
};
