/* The lower triangle of a^-1 = L^-H L^-1 with the Cholesky factor L of a: the inverse of L in a work slot, then the
 * product of its adjoint with it; or by the library that takes all devices of a process for one. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/gemm.h"
#include "dense/joint.h"
#include "dense/scalar.h"
#include "dense/trsm.h"
#include "dense/whole.h"
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

static int64_t bytes_of(const plait_dealt_t *d)
{
    return plait_dealt_stored(d) * plait_dealt_ld_bytes(d);
}

static plait_status_t identity_run(const void *params, plait_exec_t *exec)
{
    const identity_t *p = params;
    const plait_dealt_t *d = &p->d;
    char *x = exec->slot[p->slot];

    memset(x, 0, (size_t)bytes_of(d));
    for (int64_t k = p->rank; k < plait_dealt_n_blocks(d); k += d->n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(d, k); j++) {
            const int64_t row = plait_dealt_column(d, k) + j;
            char *column = x + plait_dealt_at(d, k, 0) + j * plait_dealt_ld_bytes(d);
            plait_scalar_put(d->dtype, column, row, 1);
        }
    }
    return PLAIT_OK;
}

/* Zeros, of which the first that count in each column become 1. */
static plait_status_t identity_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const identity_t *p = params;
    const plait_dealt_t *d = &p->d;

    PLAIT_TRY(plait_tile_zero(tiles, (plait_spot_t){.slot = p->slot}, bytes_of(d)));
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
    const plait_box_copy_t all = {.row_bytes = bytes_of(&p->d)};

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

    PLAIT_TRY(plait_plan_add_work(plan, bytes_of(d), &start.slot));
    invert.x_slot = invert.b_slot = square.a_slot = square.b_slot = start.slot;
    PLAIT_TRY(plait_plan_kernel_copy(plan, &identity_kernel, &start, sizeof(start)));
    PLAIT_TRY(plait_trsm_fence(plan, &invert));
    PLAIT_TRY(plait_trsm_add(plan, &invert));
    PLAIT_TRY(plait_gemm_add(plan, &square));
done:
    return status;
}

/* ---- By all devices at once ---------------------------------------------------------------------- */

typedef struct {
    int rank;
    plait_dealt_t d, there; /* of the result, and as the devices have it */
    int ret;
    plait_joint_slots_t slots;
    plait_joint_t joint;
} parts_t;

static plait_status_t call(const void *params, plait_exec_t *exec,
                           const plait_joint_part_t parts[])
{
    plait_status_t status = PLAIT_OK;
    const parts_t *p = params;
    int32_t info = 0;

    PLAIT_TRY(plait_joint_run(&p->joint, exec, parts, NULL, &info));
    PLAIT_TRY(plait_exec_store(exec, p->slots.info, &info, sizeof(info)));
done:
    return status;
}

static plait_status_t joint_run(const void *params, plait_exec_t *exec)
{
    const parts_t *p = params;

    return plait_exec_joint(exec, &p->slots, call, params);
}

static void joint_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const parts_t *p = params;
    const plait_box_copy_t own = {.row_bytes = plait_dealt_owned(&p->there, p->rank) *
                                               plait_dealt_ld_bytes(&p->there)};
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};

    touch(context, false, PLAIT_ANY, p->slots.info, 0, &info);
    touch(context, false, PLAIT_ANY, p->slots.matrix, 0, &own);
    touch(context, true, PLAIT_ANY, p->slots.matrix, 0, &own);
    if (p->rank == PLAIT_WHOLE_ROOT) {
        touch(context, true, PLAIT_ANY, p->slots.info, 0, &info);
    }
}

static void joint_print(const void *params, FILE *file)
{
    const parts_t *p = params;

    (void)fprintf(file, "%" PRId64 " x %" PRId64 " in blocks of %" PRId64, p->there.n,
                  p->there.n, p->there.block);
}

/* An element of the diagonal that is 0 has no inverse. */
static plait_status_t finish_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const parts_t *p = params;
    const plait_dealt_t *d = &p->d;

    for (int64_t k = p->rank; k < plait_dealt_n_blocks(d); k += d->n_ranks) {
        const plait_tile_t spoil = {
            .call = {.op = PLAIT_TILE_SPOIL,
                     .dtype = d->dtype,
                     .m = d->m,
                     .n = plait_dealt_width(d, k),
                     .row = plait_dealt_column(d, k),
                     .ldc = d->m},
            .c = {.slot = p->ret, .offset = plait_dealt_at(d, k, 0)},
            .info = {.slot = p->slots.info}};
        PLAIT_TRY(plait_tile_add(tiles, &spoil));
    }
done:
    return status;
}

static void finish_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const parts_t *p = params;
    const plait_box_copy_t own = {.row_bytes = plait_dealt_owned(&p->d, p->rank) *
                                               plait_dealt_ld_bytes(&p->d)};
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};

    touch(context, false, PLAIT_ANY, p->slots.info, 0, &info);
    touch(context, true, PLAIT_ANY, p->ret, 0, &own);
}

static const plait_kernel_t joint_kernel = {.name = "potri: by all devices at once",
                                            .run_device = joint_run,
                                            .is_blocking = true,
                                            .touch = joint_touch,
                                            .print = joint_print};
static const plait_kernel_t finish_kernel = {.name = "potri: NaN where there is none",
                                             .tiles = finish_tiles,
                                             .touch = finish_touch,
                                             .print = joint_print};

static plait_status_t add_joint(plait_plan_t *plan, const plait_dealt_t *d,
                                const plait_joint_t *joint)
{
    plait_status_t status = PLAIT_OK;
    const int from = plait_slot_arg(plan, 0);
    parts_t p = {.rank = plan->rank,
                 .d = *d,
                 .there = *d,
                 .ret = plait_slot_ret(plan, 0),
                 .slots = {.matrix = plait_slot_ret(plan, 0), .rhs = -1},
                 .joint = *joint};
    const bool is_moved = joint->call.block != d->block;
    plait_outline_t outline = {.own = {.d = *d, .rank = plan->rank, .is_lower = true},
                               .n_rows = d->m,
                               .n_stored = plait_dealt_stored(d),
                               .src_slot = from,
                               .dst_slot = p.ret};

    p.there.block = joint->call.block;
    plait_plan_need_scratch(plan, joint->work_bytes);
    plait_plan_agree(plan, (uint64_t)p.there.block);
    if (is_moved) {
        PLAIT_TRY(plait_plan_add_work(plan, bytes_of(&p.there), &p.slots.matrix));
        PLAIT_TRY(
            plait_joint_add_redeal(plan, d, from, &p.there, p.slots.matrix, false));
    } else {
        PLAIT_TRY(plait_sweep_outline(plan, &outline));
    }
    PLAIT_TRY(plait_joint_info(plan, &p.slots.info));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &joint_kernel, &p, sizeof(p)));
    if (is_moved) {
        PLAIT_TRY(
            plait_joint_add_redeal(plan, &p.there, p.slots.matrix, d, p.ret, false));
    }
    outline.src_slot = -1; /* what the library leaves above the diagonal becomes zero */
    PLAIT_TRY(plait_sweep_outline(plan, &outline));
    PLAIT_TRY(plait_joint_add_share(plan, p.slots.info));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &finish_kernel, &p, sizeof(p)));
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
