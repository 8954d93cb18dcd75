/* Reduce elementwise over the ranks up to this one, or from this one on. Every rank reads what it needs and
 * reduces for itself. On few ranks this is the cheapest way, and no rank waits for a chain of others. */
#include "base/alloc.h"
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t scan_attrs[] = {
    PLAIT_ATTR(plait_scan_params_t, reduce),
    PLAIT_ATTR(plait_scan_params_t, exclusive),
    PLAIT_ATTR(plait_scan_params_t, reverse),
    PLAIT_ATTR_END,
};

static plait_part_t part_of(const plait_scan_params_t *p, int rank, int n_ranks,
                            int64_t n)
{
    int lo = 0;
    int hi = rank + 1;

    if (p->reverse) {
        lo = rank;
        hi = n_ranks;
    }
    if (p->exclusive) {
        lo += p->reverse ? 1 : 0;
        hi -= p->reverse ? 0 : 1;
    }
    return (plait_part_t){.first = lo, .n_pieces = hi - lo, .n = n};
}

static plait_status_t add_steps(plait_plan_t *plan, const plait_problem_t *problem,
                                const plait_scan_params_t *p, int64_t n)
{
    plait_status_t status = PLAIT_OK;
    plait_part_t *parts = plait_alloc(plan->n_ranks, sizeof(*parts));
    const plait_reduction_t reduction = {.op = (plait_reduce_t)p->reduce,
                                         .dtype = problem->args[0].dtype,
                                         .src_slot = plait_slot_arg(plan, 0),
                                         .dst_slot = plait_slot_ret(plan, 0),
                                         .parts = parts};

    PLAIT_CHECK(parts != NULL, PLAIT_ERR_NO_MEMORY, "scan: no memory for a plan");
    for (int r = 0; r < plan->n_ranks; r++) {
        parts[r] = part_of(p, r, plan->n_ranks, n);
    }
    PLAIT_TRY(plait_coll_reduce(plan, problem, &reduction));
done:
    plait_free(parts);
    return status;
}

static plait_status_t scan_plan(const void *params, const plait_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_scan_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    plait_plan_t *plan = NULL;
    int64_t n = 0;
    int64_t n_bytes = 0;

    PLAIT_TRY(plait_coll_same("scan", x, &problem->rets[0]));
    PLAIT_TRY(plait_coll_check_reduce("scan", p->reduce, x->dtype));
    PLAIT_TRY(plait_coll_check_flag("scan", "exclusive", p->exclusive));
    PLAIT_TRY(plait_coll_check_flag("scan", "reverse", p->reverse));
    PLAIT_TRY(plait_array_size(x, &n, &n_bytes));
    PLAIT_TRY(plait_plan_create(
        problem, &plan, "scan(%s[%lld], %s%s%s)", plait_dtype_name(x->dtype),
        (long long)n, plait_reduce_name((plait_reduce_t)p->reduce),
        p->exclusive ? ", exclusive" : "", p->reverse ? ", reverse" : ""));
    plait_plan_agree(plan, (uint64_t)n);
    plait_plan_agree(plan, x->dtype);
    plait_plan_agree(plan, (uint64_t)p->reduce);
    plait_plan_agree(plan, (uint64_t)(2 * p->exclusive + p->reverse));
    PLAIT_TRY(add_steps(plan, problem, p, n));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_scan = {
    .name = "scan",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_scan_params_t),
    .attrs = scan_attrs,
    .adjoint = "scan",
    .alias = -1,
    .model = "rank",
    .doc = "Reduce elementwise over the ranks up to this one.",
    .line = "MPI_Scan ({items} items)",
    .plan = scan_plan,
};
