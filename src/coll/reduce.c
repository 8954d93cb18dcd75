/* Reduce elementwise to the root. On other ranks the result is zero (the exact adjoint of bcast) or the
 * operand. All ranks share the work of the reduction, as in allreduce. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t reduce_attrs[] = {
    PLAIT_ATTR(plait_reduce_params_t, reduce),
    PLAIT_ATTR(plait_reduce_params_t, root),
    PLAIT_ATTR(plait_reduce_params_t, elsewhere),
    PLAIT_ATTR_END,
};

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
    PLAIT_TRY(plait_coll_check_reduce("reduce", p->reduce, x->dtype));
    PLAIT_TRY(plait_coll_check_root("reduce", p->root, problem->n_ranks));
    PLAIT_TRY(plait_coll_check_flag("reduce", "elsewhere", p->elsewhere));
    PLAIT_TRY(plait_array_size(x, &n, &n_bytes));
    PLAIT_TRY(plait_plan_create(problem, &plan, "reduce(%s[%lld], %s, root %lld)",
                                plait_dtype_name(x->dtype), (long long)n,
                                plait_reduce_name((plait_reduce_t)p->reduce),
                                (long long)p->root));
    plait_plan_agree(plan, (uint64_t)p->root);
    plait_plan_agree(plan, (uint64_t)p->elsewhere);
    PLAIT_TRY(
        plait_coll_allreduce(plan, problem, (plait_reduce_t)p->reduce, (int)p->root));
    if (problem->rank != p->root) {
        PLAIT_TRY(plait_coll_elsewhere(plan, p->elsewhere != 0));
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
    .doc = "Reduce elementwise over all ranks; the result is on the root.",
    .line = "MPI_Reduce ({items} items, root={root})",
    .plan = reduce_plan,
};
