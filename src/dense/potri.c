/* The lower triangle of a^-1 = L^-H L^-1 with the Cholesky factor L of a: the inverse of L in a work slot,
 * then its adjoint times itself; or by the library that takes all devices of a process for one. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/gemm.h"
#include "dense/joint.h"
#include "dense/potrf.h"
#include "dense/scalar.h"
#include "dense/trsm.h"
#include "plait/dense.h"

#include <inttypes.h>
#include <string.h>

static const plait_attr_t potri_attrs[] = {PLAIT_ATTR(plait_potri_params_t, n),
                                           PLAIT_ATTR(plait_potri_params_t, block),
                                           PLAIT_ATTR_END};

/* ---- The identity -------------------------------------------------------------------------------- */

typedef struct {
    plait_dealt_t d;
    int rank, slot;
} identity_t;

static plait_status_t identity_run(const void *params, plait_exec_t *exec)
{
    const identity_t *p = params;
    const plait_dealt_t *d = &p->d;
    char *x = exec->slot[p->slot];

    memset(x, 0, (size_t)plait_dealt_bytes(d));
    for (int64_t k = p->rank; k < plait_dealt_n_blocks(d); k += d->n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(d, k); j++) {
            const int64_t row = plait_dealt_column(d, k) + j;
            char *column = x + plait_dealt_at(d, k, 0) + j * plait_dealt_ld_bytes(d);
            plait_scalar_put(d->dtype, column, row, 1);
        }
    }
    return PLAIT_OK;
}

/* Zeros; then the first element that counts in each column becomes 1. */
static plait_status_t identity_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const identity_t *p = params;
    const plait_dealt_t *d = &p->d;

    PLAIT_TRY(
        plait_tile_zero(tiles, (plait_spot_t){.slot = p->slot}, plait_dealt_bytes(d)));
    for (int64_t k = p->rank; k < plait_dealt_n_blocks(d); k += d->n_ranks) {
        const plait_spot_t at = {.slot = p->slot, .offset = plait_dealt_at(d, k, 0)};
        const plait_tile_t ones = {.call = {.op = PLAIT_TILE_TRIM,
                                            .dtype = d->dtype,
                                            .diag = 'U',
                                            .m = d->m,
                                            .n = plait_dealt_width(d, k),
                                            .k = d->m,
                                            .row = plait_dealt_column(d, k),
                                            .lda = d->m,
                                            .ldc = d->m},
                                   .a = at,
                                   .c = at};
        PLAIT_TRY(plait_tile_add(tiles, &ones));
    }
done:
    return status;
}

static void identity_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const identity_t *p = params;
    const plait_box_copy_t all = {.row_bytes = plait_dealt_bytes(&p->d)};

    touch(context, true, PLAIT_ANY, p->slot, 0, &all);
}

static void identity_print(const void *params, FILE *file)
{
    const identity_t *p = params;

    (void)fprintf(file, "%" PRId64 " of %" PRId64 " columns",
                  plait_dealt_owned(&p->d, p->rank), p->d.n);
}

static const plait_kernel_t identity_kernel = {.name = "potri: identity",
                                               .run = identity_run,
                                               .tiles = identity_tiles,
                                               .touch = identity_touch,
                                               .print = identity_print};

/* ---- By the inverse of the factor ---------------------------------------------------------------- */

static plait_status_t add_product(plait_plan_t *plan, const plait_dealt_t *d)
{
    plait_status_t status = PLAIT_OK;
    identity_t start = {.d = *d, .rank = plan->rank};
    plait_trsm_t invert = {
        .a = *d,
        .own = {.d = *d, .rank = plan->rank, .is_lower = true},
        .uplo = 'L',
        .trans = 'N',
        .diag = 'N',
        .a_slot = plait_slot_arg(plan, 0),
        .work_slot = -1,
    };
    plait_gemm_t square = {.a = *d,
                           .b = *d,
                           .c = *d,
                           .is_trans = true,
                           .is_lower = true,
                           .is_lower_c = true,
                           .trans = 'C',
                           .c_slot = plait_slot_ret(plan, 0)};

    PLAIT_TRY(plait_plan_add_work(plan, plait_dealt_bytes(d), &start.slot));
    invert.x_slot = invert.b_slot = square.a_slot = square.b_slot = start.slot;
    PLAIT_TRY(plait_plan_kernel_copy(plan, &identity_kernel, &start, sizeof(start)));
    PLAIT_TRY(plait_trsm_fence(plan, &invert));
    PLAIT_TRY(plait_trsm_add(plan, &invert));
    PLAIT_TRY(plait_gemm_add(plan, &square));
done:
    return status;
}

static plait_status_t add_joint(plait_plan_t *plan, const plait_dealt_t *d,
                                const plait_joint_t *joint)
{
    plait_status_t status = PLAIT_OK;
    plait_factor_t f = {.d = *d, .rank = plan->rank, .side_slot = -1};

    PLAIT_TRY(plait_plan_add_work(plan, sizeof(int32_t), &f.info_slot));
    PLAIT_TRY(plait_potri_joint_steps(plan, joint, &f));
done:
    return status;
}

/* ---- The plan ------------------------------------------------------------------------------------ */

static plait_status_t potri_plan(const void *params, const plait_problem_t *problem,
                                 plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_potri_params_t *p = params;
    const plait_joint_wish_t wish = {.op = PLAIT_JOINT_POTRI};
    const bool is_joint =
        problem->caps.device != NULL &&
        plait_joint_is_chosen(problem->choices, p->n, problem->n_ranks);
    const plait_dealt_t d = {.m = p->n,
                             .n = p->n,
                             .block = p->block,
                             .n_ranks = problem->n_ranks,
                             .dtype = problem->args[0].dtype};
    plait_plan_t *plan = NULL;
    plait_joint_t joint;

    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(plait_dealt_fits(&d, &problem->args[0], "potri: the factor"));
    PLAIT_TRY(plait_dealt_fits(&d, &problem->rets[0], "potri: the inverse"));
    if (is_joint) {
        PLAIT_TRY(plait_joint_ask(problem, &d, &wish, &joint));
    }
    PLAIT_TRY(plait_plan_create(problem, &plan, "potri %s %lldx%lld in blocks of %lld",
                                plait_dtype_name(d.dtype), (long long)p->n,
                                (long long)p->n, (long long)p->block));
    plan->uses_blas = plan->device == NULL;
    plait_dealt_agree(plan, &d);
    if (p->n > 0) {
        PLAIT_TRY(is_joint ? add_joint(plan, &d, &joint) : add_product(plan, &d));
    }
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_potri = {
    .name = "potri",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_potri_params_t),
    .attrs = potri_attrs,
    .alias = 0,
    .family = PLAIT_FAMILY_DENSE,
    .model = "mesh",
    .doc = "Inverse of a dealt Hermitian matrix by its Cholesky factor.",
    .plan = potri_plan,
};
