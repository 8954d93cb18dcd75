/* Each rank gets its block of the root's array. Without direct access only the root and each other rank
 * exchange a message. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t scatter_attrs[] = {
    PLAIT_ATTR(plait_scatter_params_t, root),
    PLAIT_ATTR_LIST(plait_scatter_params_t, counts),
    PLAIT_ATTR_END,
};

typedef struct {
    plait_blocks_t blocks;
    int root;
} scatter_t;

static plait_piece_t piece_of(const void *context, int from, int to)
{
    const scatter_t *s = context;

    return (plait_piece_t){
        .src_offset = s->blocks.start[to],
        .n_bytes = (from == s->root) ? plait_block_bytes(&s->blocks, to) : 0};
}

static plait_status_t check(const plait_scatter_params_t *p,
                            const plait_problem_t *problem, plait_blocks_t *blocks)
{
    plait_status_t status = PLAIT_OK;
    bool is_root = problem->rank == p->root;
    const plait_blocks_spec_t spec = {.op = "scatter",
                                      .problem = problem,
                                      .joined = is_root ? &problem->args[0] : NULL,
                                      .part = &problem->rets[0],
                                      .n_counts = p->n_counts,
                                      .counts = p->counts};

    PLAIT_TRY(plait_coll_check_root("scatter", p->root, problem->n_ranks));
    if (!is_root) {
        PLAIT_TRY(plait_coll_same("scatter", &problem->args[0], &problem->rets[0]));
    }
    PLAIT_TRY(plait_blocks_create(&spec, blocks));
done:
    return status;
}

static plait_status_t scatter_plan(const void *params, const plait_problem_t *problem,
                                   plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_scatter_params_t *p = params;
    const plait_array_t *y = &problem->rets[0];
    scatter_t s = {.root = (int)p->root};
    plait_plan_t *plan = NULL;

    PLAIT_TRY(check(p, problem, &s.blocks));
    PLAIT_TRY(plait_plan_create(problem, &plan, "scatter(%s%s%s, root %d)",
                                plait_dtype_name(y->dtype), plait_coll_shape(y).text,
                                plait_coll_counts(p->n_counts, p->counts).text,
                                s.root));
    plait_plan_agree(plan, (uint64_t)p->root);
    plait_blocks_agree(plan, &s.blocks);
    plait_plan_agree(plan, y->dtype);
    PLAIT_TRY(plait_coll_exchange(plan, problem, piece_of, &s));
    *plan_p = plan;
    plan = NULL;
done:
    plait_blocks_clear(&s.blocks);
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_scatter = {
    .name = "scatter",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_scatter_params_t),
    .attrs = scatter_attrs,
    .adjoint = "gather",
    .alias = -1,
    .model = "rank",
    .doc = "To each rank its block of the root's array.",
    .line = "MPI_Scatter ({items} items, root={root})",
    .plan = scatter_plan,
};
