/* Products with the Q of a QR factorization: a walk over the panels of its reflectors, forwards for
 * Q^H and backwards for Q; every rank multiplies its own columns. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/factor.h"
#include "dense/params.h"
#include "dense/reflect.h"
#include "dense/sweep.h"
#include "kernel/blas.h"

#include <inttypes.h>

static const plait_attr_t ormqr_attrs[] = {
    PLAIT_ATTR(plait_ormqr_params_t, m),     PLAIT_ATTR(plait_ormqr_params_t, k),
    PLAIT_ATTR(plait_ormqr_params_t, n),     PLAIT_ATTR(plait_ormqr_params_t, trans),
    PLAIT_ATTR(plait_ormqr_params_t, block), PLAIT_ATTR_END,
};

typedef struct {
    int rank;
    int64_t k;     /* the panel, only to be printed */
    bool is_whole; /* all reflectors at once, by LAPACK: on a single rank */
    plait_reflect_t reflect;
} step_t;

static int64_t whole_work(const plait_reflect_t *r, plait_blas_work_t *work)
{
    *work = (plait_blas_work_t){.n = -1};
    (void)plait_blas_ormqr(r->dtype, 'L', r->is_adjoint ? 'C' : 'N', r->panel.n_rows,
                           r->n_columns, r->n, NULL, plait_max(r->panel.ld, 1), NULL,
                           NULL, plait_max(r->ld, 1), work);
    return plait_max(work->n, 1);
}

static plait_status_t reflect_run(const void *params, plait_exec_t *exec)
{
    const step_t *s = params;
    const plait_reflect_t *r = &s->reflect;
    plait_blas_work_t work;

    if (!s->is_whole) {
        plait_reflect_run(r, exec);
    } else if (r->n > 0 && r->n_columns > 0) {
        work = (plait_blas_work_t){.n = whole_work(r, &work), .work = exec->scratch};
        (void)plait_blas_ormqr(r->dtype, 'L', r->is_adjoint ? 'C' : 'N',
                               r->panel.n_rows, r->n_columns, r->n,
                               plait_panel_address(exec, &r->panel), r->panel.ld,
                               exec->slot[r->tau_slot] + r->tau_offset,
                               exec->slot[r->slot] + r->offset, r->ld, &work);
    }
    return PLAIT_OK;
}

static void reflect_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const step_t *s = params;

    plait_reflect_touch(&s->reflect, s->rank, touch, context);
}

static plait_status_t reflect_tiles(const void *params, const plait_tiles_t *tiles)
{
    const step_t *s = params;

    return plait_reflect_tiles(&s->reflect, tiles);
}

static void reflect_print(const void *params, FILE *file)
{
    const step_t *s = params;

    (void)fprintf(file,
                  "panel %" PRId64 ", %" PRId64 " reflectors of %" PRId64
                  " rows%s, to %" PRId64 " columns",
                  s->k + 1, s->reflect.n, s->reflect.panel.n_rows,
                  s->reflect.is_adjoint ? ", adjoint" : "", s->reflect.n_columns);
}

static const plait_kernel_t reflect_kernel = {.name = "ormqr: reflect",
                                              .run = reflect_run,
                                              .tiles = reflect_tiles,
                                              .touch = reflect_touch,
                                              .print = reflect_print};

static plait_status_t add_step(plait_plan_t *plan, const step_t *step)
{
    const plait_reflect_t *r = &step->reflect;
    plait_blas_work_t work;

    if (plan->device == NULL) {
        plait_plan_need_scratch(
            plan, step->is_whole ? whole_work(r, &work) * plait_dtype_bytes(r->dtype)
                                 : plait_reflect_scratch(r->dtype, r->n,
                                                         plait_max(r->n_columns, 0)));
    }
    return plait_plan_kernel_copy(plan, &reflect_kernel, step, sizeof(*step));
}

/* Operands and result of ormqr. */
typedef struct {
    plait_dealt_t qr, c;
    bool is_adjoint;
} ormqr_t;

static plait_status_t add_panels(plait_plan_t *plan, const ormqr_t *o)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_panels = plait_factor_n_panels(&o->qr);
    const int64_t item = plait_dealt_item(&o->qr);
    int work_slot = -1;

    PLAIT_TRY(plait_plan_add_work(plan, plait_dealt_panel_bytes(plan, &o->qr, o->qr.m),
                                  &work_slot));
    for (int64_t i = 0; i < n_panels; i++) {
        const int64_t k = o->is_adjoint ? i : n_panels - 1 - i;
        const int64_t row = plait_dealt_column(&o->qr, k);
        step_t step = {.rank = plan->rank,
                       .k = k,
                       .is_whole = plan->n_ranks == 1,
                       .reflect = {.dtype = o->c.dtype,
                                   .n = plait_factor_n_pivots(&o->qr, k),
                                   .tau_slot = plait_slot_arg(plan, 1),
                                   .tau_offset = row * item,
                                   .slot = plait_slot_ret(plan, 0),
                                   .offset = row * item,
                                   .ld = o->c.m,
                                   .n_columns = plait_dealt_owned(&o->c, plan->rank),
                                   .is_adjoint = o->is_adjoint}};
        PLAIT_TRY(plait_dealt_fetch(plan, &o->qr, plait_slot_arg(plan, 0), k, row,
                                    o->qr.m - row, work_slot, NULL,
                                    &step.reflect.panel));
        PLAIT_TRY(add_step(plan, &step));
    }
done:
    return status;
}

static plait_status_t check(const ormqr_t *o, const plait_ormqr_params_t *p,
                            const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_dealt_fits(&o->qr, &problem->args[0], "ormqr: the reflectors"));
    PLAIT_TRY(plait_reflect_tau_fits(&o->qr, &problem->args[1], "ormqr"));
    PLAIT_TRY(plait_dealt_fits(&o->c, &problem->args[2], "ormqr: the operand"));
    PLAIT_TRY(plait_dealt_fits(&o->c, &problem->rets[0], "ormqr: the result"));
    PLAIT_CHECK(p->trans == 0 || p->trans == 1, PLAIT_ERR_INVALID,
                "ormqr: trans is %lld; expected 0 (Q) or 1 (its adjoint)",
                (long long)p->trans);
done:
    return status;
}

static plait_status_t ormqr_plan(const void *params, const plait_problem_t *problem,
                                 plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_ormqr_params_t *p = params;
    plait_plan_t *plan = NULL;
    ormqr_t o = {.is_adjoint = p->trans == 1};
    plait_outline_t outline;

    o.qr = (plait_dealt_t){.m = p->m,
                           .n = p->k,
                           .block = p->block,
                           .n_ranks = problem->n_ranks,
                           .dtype = problem->args[0].dtype};
    o.c = o.qr;
    o.c.n = p->n;
    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(check(&o, p, problem));
    PLAIT_TRY(plait_plan_create(
        problem, &plan, "ormqr %s %s of %lldx%lld, %lldx%lld in blocks of %lld",
        plait_dtype_name(o.c.dtype), o.is_adjoint ? "Q^H" : "Q", (long long)p->m,
        (long long)p->k, (long long)p->m, (long long)p->n, (long long)p->block));
    plan->uses_blas = plan->device == NULL;
    plait_dealt_agree(plan, &o.qr);
    plait_dealt_agree(plan, &o.c);
    plait_plan_agree(plan, (uint64_t)p->trans);
    outline = (plait_outline_t){.own = {.d = o.c, .rank = plan->rank},
                                .n_rows = o.c.m,
                                .n_stored = plait_dealt_stored(&o.c),
                                .src_slot = plait_slot_arg(plan, 2),
                                .dst_slot = plait_slot_ret(plan, 0)};
    if (problem->n_ranks == 1) {
        o.qr.block = plait_max(p->k, 1); /* the same array, for LAPACK as a whole */
    }
    PLAIT_TRY(plait_sweep_fence(plan));
    PLAIT_TRY(plait_sweep_outline(plan, &outline));
    PLAIT_TRY(add_panels(plan, &o));
    PLAIT_TRY(plait_sweep_fence(plan));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_ormqr = {
    .name = "ormqr",
    .n_args = 3,
    .n_rets = 1,
    .params_size = sizeof(plait_ormqr_params_t),
    .attrs = ormqr_attrs,
    .adjoint = NULL,
    .alias = 2,
    .model = "mesh",
    .doc = "Product of the Q of a distributed QR factorization, or its adjoint, with a "
           "matrix.",
    .plan = ormqr_plan,
};
