/* x = a^-1 b with the Cholesky factor of a: both substitutions in one plan; or by the library that takes all
 * devices of a process for one, in the deal in which it factored a. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/joint.h"
#include "dense/params.h"
#include "dense/trsm.h"
#include "plait/dense.h"
#include "plan/op.h"

#include <inttypes.h>

static const plait_attr_t potrs_attrs[] = {
    PLAIT_ATTR(plait_potrs_params_t, n),
    PLAIT_ATTR(plait_potrs_params_t, n_rhs),
    PLAIT_ATTR(plait_potrs_params_t, block),
    PLAIT_ATTR(plait_potrs_params_t, whole),
    PLAIT_ATTR_END,
};

/* ---- By all devices at once ---------------------------------------------------------------------- */

typedef struct {
    int rank;
    plait_dealt_t a, b; /* as the devices have them */
    plait_joint_slots_t slots;
    plait_joint_t joint;
} parts_t;

static plait_status_t call(const void *params, plait_exec_t *exec,
                           const plait_joint_part_t parts[])
{
    const parts_t *p = params;
    int32_t info = 0; /* a solve has no outcome */

    return plait_joint_run(&p->joint, exec, parts, NULL, &info);
}

static plait_status_t joint_run(const void *params, plait_exec_t *exec)
{
    const parts_t *p = params;

    return plait_exec_joint(exec, &p->slots, call, params);
}

static plait_box_copy_t own_box(const plait_dealt_t *d, int rank)
{
    return (plait_box_copy_t){.row_bytes =
                                  plait_dealt_owned(d, rank) * plait_dealt_ld_bytes(d)};
}

static void joint_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const parts_t *p = params;
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};
    const plait_box_copy_t a = own_box(&p->a, p->rank), b = own_box(&p->b, p->rank);

    touch(context, false, PLAIT_ANY, p->slots.info, 0, &info);
    touch(context, false, PLAIT_ANY, p->slots.matrix, 0, &a);
    touch(context, false, PLAIT_ANY, p->slots.rhs, 0, &b);
    touch(context, true, PLAIT_ANY, p->slots.rhs, 0, &b);
}

static void joint_print(const void *params, FILE *file)
{
    const parts_t *p = params;

    (void)fprintf(
        file, "%" PRId64 " columns for %" PRId64 " x %" PRId64 " in blocks of %" PRId64,
        p->b.n, p->a.n, p->a.n, p->a.block);
}

static const plait_kernel_t joint_kernel = {.name = "potrs: by all devices at once",
                                            .run_device = joint_run,
                                            .is_blocking = true,
                                            .touch = joint_touch,
                                            .print = joint_print};

/* Copies the rank's columns of b to x, with zeros behind them. */
static plait_status_t add_outline(plait_plan_t *plan, const plait_trsm_t *t, int src)
{
    const plait_outline_t outline = {.own = t->own,
                                     .n_rows = t->a.n,
                                     .n_stored = plait_dealt_stored(&t->own.d),
                                     .src_slot = src,
                                     .dst_slot = t->x_slot};

    return plait_sweep_outline(plan, &outline);
}

/* Moves block columns of a whole right-hand side. whole_slot has all columns, `slot` has a rank's own columns.
 * Forth: each owner copies its own columns. is_back: the owner's columns go to all ranks. */
static plait_status_t add_whole(plait_plan_t *plan, const plait_dealt_t *b,
                                int whole_slot, int slot, bool is_back)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    for (int64_t k = 0; k < plait_dealt_n_blocks(b); k++) {
        const int owner = plait_dealt_owner(b, k);
        const int64_t at = plait_dealt_column(b, k) * plait_dealt_ld_bytes(b);
        const int64_t dealt_at = plait_dealt_at(b, k, 0);
        const plait_block_t block = {
            .src_slot = is_back ? slot : whole_slot,
            .dst_slot = is_back ? whole_slot : slot,
            .src_offset = is_back ? dealt_at : at,
            .dst_offset = is_back ? at : dealt_at,
            .box = {.row_bytes = plait_dealt_width(b, k) * plait_dealt_ld_bytes(b)}};
        for (int r = 0; r < plan->n_ranks; r++) {
            if (is_back || r == owner) {
                PLAIT_TRY(plait_dealt_between(plan, owner, r, &block, &move));
            }
        }
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* Brings the right-hand side to the devices' deal: into the result's place if the deals are equal. */
static plait_status_t add_rhs(plait_plan_t *plan, const plait_trsm_t *t, parts_t *p)
{
    plait_status_t status = PLAIT_OK;

    p->slots.rhs = t->x_slot;
    if (!t->is_whole && p->b.block == t->own.d.block) {
        PLAIT_TRY(add_outline(plan, t, t->b_slot));
        goto done;
    }
    PLAIT_TRY(plait_plan_add_work(plan, plait_dealt_bytes(&p->b), &p->slots.rhs));
    PLAIT_TRY(t->is_whole ? add_whole(plan, &p->b, t->b_slot, p->slots.rhs, false)
                          : plait_joint_add_redeal(plan, &t->own.d, t->b_slot, &p->b,
                                                   p->slots.rhs, false));
done:
    return status;
}

/* Brings the solution to its place. */
static plait_status_t add_result(plait_plan_t *plan, const plait_trsm_t *t,
                                 const parts_t *p)
{
    plait_status_t status = PLAIT_OK;

    if (t->is_whole) {
        PLAIT_TRY(add_whole(plan, &p->b, t->x_slot, p->slots.rhs, true));
        goto done;
    }
    if (p->slots.rhs != t->x_slot) {
        PLAIT_TRY(plait_joint_add_redeal(plan, &p->b, p->slots.rhs, &t->own.d,
                                         t->x_slot, false));
    }
    PLAIT_TRY(add_outline(plan, t, -1)); /* zero behind the columns */
done:
    return status;
}

static plait_status_t add_joint(plait_plan_t *plan, const plait_trsm_t *t,
                                const plait_joint_t *joint)
{
    plait_status_t status = PLAIT_OK;
    parts_t p = {.rank = plan->rank,
                 .a = t->a,
                 .b = t->a,
                 .slots = {.matrix = t->a_slot},
                 .joint = *joint};

    p.a.block = p.b.block = joint->call.block;
    p.b.n = t->own.d.n;
    plait_plan_need_scratch(plan, joint->work_bytes);
    plait_plan_agree(plan, (uint64_t)p.a.block);
    if (p.a.block != t->a.block) {
        PLAIT_TRY(plait_plan_add_work(plan, plait_dealt_bytes(&p.a), &p.slots.matrix));
        PLAIT_TRY(plait_joint_add_redeal(plan, &t->a, t->a_slot, &p.a, p.slots.matrix,
                                         false));
    }
    PLAIT_TRY(add_rhs(plan, t, &p));
    PLAIT_TRY(plait_joint_info(plan, &p.slots.info));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &joint_kernel, &p, sizeof(p)));
    PLAIT_TRY(add_result(plan, t, &p));
done:
    return status;
}

/* ---- By two substitutions ------------------------------------------------------------------------ */

static plait_status_t add_both(plait_plan_t *plan, plait_trsm_t *t)
{
    plait_status_t status = PLAIT_OK;

    t->stays = true;
    PLAIT_TRY(plait_trsm_fence(plan, t));
    PLAIT_TRY(plait_trsm_add(plan, t));
    t->stays = false;
    t->trans = 'C';
    t->b_slot = t->x_slot;
    PLAIT_TRY(plait_trsm_add(plan, t));
    PLAIT_TRY(plait_trsm_fence(plan, t));
done:
    return status;
}

static plait_status_t potrs_plan(const void *params, const plait_problem_t *problem,
                                 plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_potrs_params_t *p = params;
    const plait_trsm_params_t solve = {
        .n = p->n, .n_rhs = p->n_rhs, .block = p->block, .whole = p->whole};
    const plait_joint_wish_t wish = {.op = PLAIT_JOINT_POTRS, .n_rhs = p->n_rhs};
    const bool is_joint =
        problem->caps.device != NULL && p->n_rhs > 0 &&
        plait_joint_is_chosen(problem->choices, p->n, problem->n_ranks);
    plait_plan_t *plan = NULL;
    plait_joint_t joint;
    plait_trsm_t t;

    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(plait_trsm_describe("potrs", &solve, problem, &t));
    if (is_joint) {
        PLAIT_TRY(plait_joint_ask(problem, &t.a, &wish, &joint));
    }
    PLAIT_TRY(plait_plan_create(
        problem, &plan, "potrs %s %lld for %lld columns%s in blocks of %lld",
        plait_dtype_name(t.a.dtype), (long long)p->n, (long long)p->n_rhs,
        t.is_whole ? " on all ranks" : "", (long long)p->block));
    plan->uses_blas = plan->device == NULL;
    plait_dealt_agree(plan, &t.a);
    plait_dealt_agree(plan, &t.own.d);
    plait_plan_agree(plan, (uint64_t)p->whole);
    t.a_slot = plait_slot_arg(plan, 0);
    t.b_slot = plait_slot_arg(plan, 1);
    t.x_slot = plait_slot_ret(plan, 0);
    PLAIT_TRY(is_joint ? add_joint(plan, &t, &joint) : add_both(plan, &t));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_potrs = {
    .name = "potrs",
    .n_args = 2,
    .n_rets = 1,
    .params_size = sizeof(plait_potrs_params_t),
    .attrs = potrs_attrs,
    .alias = 1,
    .family = PLAIT_FAMILY_DENSE,
    .model = "mesh",
    .doc = "Solve with the Cholesky factor of a dealt matrix.",
    .plan = potrs_plan,
};
