/* Reduce elementwise to the root; elsewhere the result is zero: the exact adjoint of bcast.
 * All ranks share the work of the reduction, as in allreduce. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t reduce_attrs[] = {
    PLAIT_ATTR(plait_reduce_params_t, reduce),
    PLAIT_ATTR(plait_reduce_params_t, root),
    PLAIT_ATTR_END,
};

/* After the last fence nobody reads this rank's result. */
static plait_status_t add_zero(plait_plan_t *plan, int slot)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};
    const plait_block_t block = {.peer = plan->rank,
                                 .kind = PLAIT_BLOCK_ZERO,
                                 .src_slot = slot,
                                 .dst_slot = slot,
                                 .box = {.row_bytes = plan->slot_bytes[slot]}};

    PLAIT_TRY(plait_move_add_in(&move, &block));
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

static plait_status_t reduce_plan(const void *params, const plait_problem_t *problem,
                                  plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_reduce_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    plait_plan_t *plan = NULL;
    int64_t n = 0;
    int64_t n_bytes = 0;

    PLAIT_TRY(plait_coll_same("reduce", x, &problem->rets[0]));
    PLAIT_CHECK(p->reduce >= 0 && p->reduce < PLAIT_REDUCE_COUNT &&
                    plait_reduce_is_defined((plait_reduce_t)p->reduce, x->dtype),
                PLAIT_ERR_INVALID, "reduce: %s is not defined for %s",
                plait_reduce_name((plait_reduce_t)p->reduce),
                plait_dtype_name(x->dtype));
    PLAIT_CHECK(p->root >= 0 && p->root < problem->n_ranks, PLAIT_ERR_INVALID,
                "reduce: root %lld is not a rank of this communicator (size %d)",
                (long long)p->root, problem->n_ranks);
    PLAIT_TRY(plait_array_size(x, &n, &n_bytes));
    PLAIT_TRY(plait_plan_create(problem, &plan, "reduce(%s[%lld], %s, root %lld)",
                                plait_dtype_name(x->dtype), (long long)n,
                                plait_reduce_name((plait_reduce_t)p->reduce),
                                (long long)p->root));
    plait_plan_agree(plan, (uint64_t)p->root);
    PLAIT_TRY(
        plait_coll_allreduce(plan, problem, (plait_reduce_t)p->reduce, (int)p->root));
    if (problem->rank != p->root) {
        PLAIT_TRY(add_zero(plan, plait_slot_ret(plan, 0)));
    }
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_reduce = {
    .name = "reduce",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_reduce_params_t),
    .attrs = reduce_attrs,
    .adjoint = "bcast",
    .alias = 0,
    .model = "rank",
    .doc = "Reduce elementwise to the root; elsewhere the result is zero.",
    .line = "MPI_Reduce ({items} items, root={root})",
    .plan = reduce_plan,
};
