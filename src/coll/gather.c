/* The blocks of all ranks, in rank order, on the root. Without direct access only the root
 * and each other rank exchange a message. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t gather_attrs[] = {
    PLAIT_ATTR(plait_gather_params_t, root),
    PLAIT_ATTR(plait_gather_params_t, elsewhere),
    PLAIT_ATTR_LIST(plait_gather_params_t, counts),
    PLAIT_ATTR_END,
};

typedef struct {
    plait_blocks_t blocks;
    int root;
} gather_t;

static plait_piece_t piece_of(const void *context, int from, int to)
{
    const gather_t *g = context;

    return (plait_piece_t){
        .dst_offset = g->blocks.start[from],
        .n_bytes = (to == g->root) ? plait_block_bytes(&g->blocks, from) : 0};
}

static plait_status_t check(const plait_gather_params_t *p,
                            const plait_problem_t *problem, plait_blocks_t *blocks)
{
    plait_status_t status = PLAIT_OK;
    bool is_root = problem->rank == p->root;
    const plait_blocks_spec_t spec = {.op = "gather",
                                      .problem = problem,
                                      .joined = is_root ? &problem->rets[0] : NULL,
                                      .part = &problem->args[0],
                                      .n_counts = p->n_counts,
                                      .counts = p->counts};

    PLAIT_TRY(plait_coll_check_root("gather", p->root, problem->n_ranks));
    PLAIT_TRY(plait_coll_check_flag("gather", "elsewhere", p->elsewhere));
    if (!is_root) {
        PLAIT_TRY(plait_coll_same("gather", &problem->args[0], &problem->rets[0]));
    }
    PLAIT_TRY(plait_blocks_create(&spec, blocks));
done:
    return status;
}

static plait_status_t gather_plan(const void *params, const plait_problem_t *problem,
                                  plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_gather_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    gather_t g = {.root = (int)p->root};
    plait_plan_t *plan = NULL;

    PLAIT_TRY(check(p, problem, &g.blocks));
    PLAIT_TRY(plait_plan_create(problem, &plan, "gather(%s%s%s, root %d)",
                                plait_dtype_name(x->dtype), plait_coll_shape(x).text,
                                plait_coll_counts(p->n_counts, p->counts).text,
                                g.root));
    plait_plan_agree(plan, (uint64_t)p->root);
    plait_plan_agree(plan, (uint64_t)p->elsewhere);
    plait_blocks_agree(plan, &g.blocks);
    plait_plan_agree(plan, x->dtype);
    PLAIT_TRY(plait_coll_exchange(plan, problem, piece_of, &g));
    if (problem->rank != g.root) {
        PLAIT_TRY(plait_coll_elsewhere(plan, p->elsewhere != 0));
    }
    *plan_p = plan;
    plan = NULL;
done:
    plait_blocks_clear(&g.blocks);
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_gather = {
    .name = "gather",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_gather_params_t),
    .attrs = gather_attrs,
    .adjoint = "scatter",
    .alias = -1,
    .model = "rank",
    .doc = "The arrays of all ranks, in rank order, on the root.",
    .line = "MPI_Gather ({items} items, root={root})",
    .plan = gather_plan,
};
