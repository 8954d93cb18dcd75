/* Reduce elementwise over all ranks. Each rank gets its block of the result, and reduces only that block. */
#include "base/alloc.h"
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t reduce_scatter_attrs[] = {
    PLAIT_ATTR(plait_reduce_scatter_params_t, reduce),
    PLAIT_ATTR_LIST(plait_reduce_scatter_params_t, counts),
    PLAIT_ATTR_END,
};

static plait_status_t add_steps(plait_plan_t *plan, const plait_problem_t *problem,
                                plait_reduce_t op, const plait_blocks_t *blocks)
{
    plait_status_t status = PLAIT_OK;
    plait_dtype_t dtype = problem->args[0].dtype;
    plait_part_t *parts = plait_alloc(plan->n_ranks, sizeof(*parts));
    const plait_reduction_t reduction = {.op = op,
                                         .dtype = dtype,
                                         .src_slot = plait_slot_arg(plan, 0),
                                         .dst_slot = plait_slot_ret(plan, 0),
                                         .parts = parts};

    PLAIT_CHECK(parts != NULL, PLAIT_ERR_NO_MEMORY,
                "reduce_scatter: no memory for a plan");
    for (int r = 0; r < plan->n_ranks; r++) {
        parts[r] = (plait_part_t){.n_pieces = plan->n_ranks,
                                  .offset = blocks->start[r],
                                  .n = plait_block_bytes(blocks, r) /
                                       plait_dtype_bytes(dtype)};
    }
    PLAIT_TRY(plait_coll_reduce(plan, problem, &reduction));
done:
    plait_free(parts);
    return status;
}

static plait_status_t reduce_scatter_plan(const void *params,
                                          const plait_problem_t *problem,
                                          plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_reduce_scatter_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    const plait_blocks_spec_t spec = {.op = "reduce_scatter",
                                      .problem = problem,
                                      .joined = x,
                                      .part = &problem->rets[0],
                                      .n_counts = p->n_counts,
                                      .counts = p->counts};
    plait_blocks_t blocks = {0};
    plait_plan_t *plan = NULL;

    PLAIT_TRY(plait_coll_check_reduce("reduce_scatter", p->reduce, x->dtype));
    PLAIT_TRY(plait_blocks_create(&spec, &blocks));
    PLAIT_TRY(plait_plan_create(problem, &plan, "reduce_scatter(%s%s, %s%s)",
                                plait_dtype_name(x->dtype), plait_coll_shape(x).text,
                                plait_reduce_name((plait_reduce_t)p->reduce),
                                plait_coll_counts(p->n_counts, p->counts).text));
    plait_blocks_agree(plan, &blocks);
    plait_plan_agree(plan, x->dtype);
    plait_plan_agree(plan, (uint64_t)p->reduce);
    PLAIT_TRY(add_steps(plan, problem, (plait_reduce_t)p->reduce, &blocks));
    *plan_p = plan;
    plan = NULL;
done:
    plait_blocks_clear(&blocks);
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_reduce_scatter = {
    .name = "reduce_scatter",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_reduce_scatter_params_t),
    .attrs = reduce_scatter_attrs,
    .adjoint = "allgather",
    .alias = -1,
    .model = "rank",
    .doc = "Reduce elementwise over all ranks; each rank gets its block.",
    .line = "MPI_Reduce_scatter with {items} items {dtype} {reduce}",
    .plan = reduce_scatter_plan,
};
