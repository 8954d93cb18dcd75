/* A plan executed as a program of JAX executes it: where the guard and other ranks see it. */
#ifndef PLAIT_TESTS_OBSERVED_H
#define PLAIT_TESTS_OBSERVED_H

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

#endif
