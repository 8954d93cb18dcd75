/* Executes a plan as a program of JAX does: seen by the guard and by other ranks. */
#ifndef PLAIT_TESTS_OBSERVED_H
#define PLAIT_TESTS_OBSERVED_H

#include "check.h"
#include "comm/comm.h"
#include "plan/observe.h"
#include "plan/plan.h"

/* One operand and one result, or NULL. */
static inline plait_status_t observed_execute(const plait_plan_t *plan,
                                              plait_comm_t *comm, const void *from,
                                              void *to)
{
    const plait_exec_arrays_t arrays = {.args = (const void *[]){from},
                                        .rets = (void *[]){to}};

    return plait_observe_exec(plan, NULL, comm, 0, false, &arrays);
}

static inline void observed_touch_none(const void *params, plait_touch_fn_t touch,
                                       void *context)
{
    (void)params;
    (void)touch;
    (void)context;
}

/* An operation that is this kernel and has no arrays. */
static inline plait_status_t observed_kernel(plait_comm_t *comm, bool is_collective,
                                             const plait_kernel_t *kernel,
                                             const void *params, size_t n_bytes)
{
    const plait_problem_t problem = {.n_ranks = plait_comm_size(comm),
                                     .rank = plait_comm_rank(comm),
                                     .caps = comm->end.caps};
    plait_plan_t *plan = NULL;

    CHECK(plait_plan_create(&problem, &plan, "%s", kernel->name) == PLAIT_OK &&
              plait_plan_kernel_copy(plan, kernel, params, n_bytes) == PLAIT_OK,
          "%s", plait_error_text());
    plan->is_collective = is_collective;
    const plait_status_t status = observed_execute(plan, comm, NULL, NULL);
    plait_plan_destroy(&plan);
    return status;
}

#endif
