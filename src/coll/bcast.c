/* The root's array on all ranks. A small array is published at a fence, or goes by the transport's own
 * broadcast. With direct access all ranks read a large array from the root's memory at once. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t bcast_attrs[] = {
    PLAIT_ATTR(plait_bcast_params_t, root),
    PLAIT_ATTR_END,
};

typedef struct {
    int root;
    int64_t n_bytes;
} bcast_t;

static plait_piece_t piece_of(const void *context, int from, int to)
{
    const bcast_t *b = context;

    (void)to;
    return (plait_piece_t){.n_bytes = (from == b->root) ? b->n_bytes : 0};
}

static plait_status_t bcast_plan(const void *params, const plait_problem_t *problem,
                                 plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_bcast_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    plait_plan_t *plan = NULL;
    int64_t n = 0;
    int64_t n_bytes = 0;

    PLAIT_TRY(plait_coll_same("bcast", x, &problem->rets[0]));
    PLAIT_TRY(plait_coll_check_root("bcast", p->root, problem->n_ranks));
    PLAIT_TRY(plait_array_size(x, &n, &n_bytes));
    PLAIT_TRY(plait_plan_create(problem, &plan, "bcast(%s[%lld], root %lld)",
                                plait_dtype_name(x->dtype), (long long)n,
                                (long long)p->root));
    plait_plan_agree(plan, (uint64_t)p->root);
    plait_plan_agree(plan, (uint64_t)n);
    plait_plan_agree(plan, x->dtype);
    if (plan->n_ranks > 1 && problem->caps.has_native &&
        !plait_coll_publishes(problem, n_bytes) &&
        (plan->direct == PLAIT_DIRECT_NONE ||
         (problem->caps.publish_bytes < 0 && n_bytes <= PLAIT_NATIVE_BYTES))) {
        const plait_native_step_t native = {.native = PLAIT_NATIVE_BCAST,
                                            .dtype = x->dtype,
                                            .n = n,
                                            .src_slot = plait_slot_arg(plan, 0),
                                            .dst_slot = plait_slot_ret(plan, 0),
                                            .n_recv = n,
                                            .recv_dtype = x->dtype,
                                            .root = (int)p->root};
        PLAIT_TRY(plait_plan_native(plan, &native));
    } else {
        const bcast_t bcast = {.root = (int)p->root, .n_bytes = n_bytes};
        PLAIT_TRY(plait_coll_exchange(plan, problem, piece_of, &bcast));
    }
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_bcast = {
    .name = "bcast",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_bcast_params_t),
    .attrs = bcast_attrs,
    .adjoint = "reduce",
    .alias = 0,
    .model = "rank",
    .doc = "The root's array on all ranks.",
    .line = "MPI_Bcast ({items} items, root={root})",
    .plan = bcast_plan,
};
