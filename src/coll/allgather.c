/* The blocks of all ranks, in rank order, on all ranks. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t allgather_attrs[] = {
    PLAIT_ATTR_LIST(plait_allgather_params_t, counts),
    PLAIT_ATTR_END,
};

static plait_piece_t piece_of(const void *context, int from, int to)
{
    const plait_blocks_t *blocks = context;

    (void)to;
    return (plait_piece_t){.dst_offset = blocks->start[from],
                           .n_bytes = plait_block_bytes(blocks, from)};
}

static plait_status_t allgather_plan(const void *params, const plait_problem_t *problem,
                                     plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_allgather_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    const plait_blocks_spec_t spec = {.op = "allgather",
                                      .problem = problem,
                                      .joined = &problem->rets[0],
                                      .part = x,
                                      .n_counts = p->n_counts,
                                      .counts = p->counts};
    plait_blocks_t blocks = {0};
    plait_plan_t *plan = NULL;

    PLAIT_TRY(plait_blocks_create(&spec, &blocks));
    PLAIT_TRY(plait_plan_create(problem, &plan, "allgather(%s%s%s)",
                                plait_dtype_name(x->dtype), plait_coll_shape(x).text,
                                plait_coll_counts(p->n_counts, p->counts).text));
    plait_blocks_agree(plan, &blocks);
    plait_plan_agree(plan, x->dtype);
    PLAIT_TRY(plait_coll_exchange(plan, problem, piece_of, &blocks));
    *plan_p = plan;
    plan = NULL;
done:
    plait_blocks_clear(&blocks);
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_allgather = {
    .name = "allgather",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_allgather_params_t),
    .attrs = allgather_attrs,
    .adjoint = "reduce_scatter",
    .alias = -1,
    .model = "rank",
    .doc = "The arrays of all ranks, in rank order, on all ranks.",
    .line = "MPI_Allgather ({items} items)",
    .plan = allgather_plan,
};
