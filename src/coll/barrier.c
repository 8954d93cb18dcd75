/* No rank leaves the barrier before all ranks have come. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t barrier_attrs[] = {PLAIT_ATTR_END};

static plait_status_t barrier_plan(const void *params, const plait_problem_t *problem,
                                   plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    plait_plan_t *plan = NULL;
    const plait_native_step_t native = {
        .native = PLAIT_NATIVE_BARRIER, .src_slot = -1, .dst_slot = -1};

    (void)params;
    PLAIT_TRY(plait_plan_create(problem, &plan, "barrier()"));
    PLAIT_TRY(problem->caps.publish_bytes < 0 && problem->caps.has_native
                  ? plait_plan_native(plan, &native)
                  : plait_plan_meet(plan));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_barrier = {
    .name = "barrier",
    .params_size = sizeof(plait_barrier_params_t),
    .attrs = barrier_attrs,
    .alias = -1,
    .model = "rank",
    .doc = "No rank leaves before all have come.",
    .line = "MPI_Barrier",
    .plan = barrier_plan,
};
