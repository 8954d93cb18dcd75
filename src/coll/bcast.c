/* The root's array on all ranks. Small: the transport's own; large with direct access: all
 * read the root's memory at once. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t bcast_attrs[] = {
    PLAIT_ATTR(plait_bcast_params_t, root),
    PLAIT_ATTR_END,
};

static plait_status_t add_blocks(plait_plan_t *plan, int root, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};
    plait_block_t block = {.peer = root,
                           .src_slot = plait_slot_arg(plan, 0),
                           .dst_slot = plait_slot_ret(plan, 0),
                           .box = {.row_bytes = n_bytes}};

    if (n_bytes > 0) {
        PLAIT_TRY(plait_move_add_in(&move, &block));
    }
    if (plan->direct == PLAIT_DIRECT_NONE && plan->rank == root && n_bytes > 0) {
        for (int peer = 0; peer < plan->n_ranks; peer++) {
            block.peer = peer;
            if (peer != root) {
                PLAIT_TRY(plait_move_add_out(&move, &block));
            }
        }
    }
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_plan_move(plan, &move));
    PLAIT_TRY(plait_plan_fence(plan));
done:
    plait_move_clear(&move);
    return status;
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
    PLAIT_CHECK(p->root >= 0 && p->root < problem->n_ranks, PLAIT_ERR_INVALID,
                "bcast: root %lld is not a rank of this communicator (size %d)",
                (long long)p->root, problem->n_ranks);
    PLAIT_TRY(plait_array_size(x, &n, &n_bytes));
    PLAIT_TRY(plait_plan_create(problem, &plan, "bcast(%s[%lld], root %lld)",
                                plait_dtype_name(x->dtype), (long long)n,
                                (long long)p->root));
    plait_plan_agree(plan, (uint64_t)p->root);
    plait_plan_agree(plan, (uint64_t)n);
    plait_plan_agree(plan, x->dtype);
    if (plan->n_ranks > 1 && problem->caps.has_native &&
        (plan->direct == PLAIT_DIRECT_NONE || n_bytes <= PLAIT_NATIVE_BYTES)) {
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
        PLAIT_TRY(add_blocks(plan, (int)p->root, n_bytes));
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
