/* The plans of one communicator handle. They are kept for the next call with the same parameters and shapes.
 * If there are very many, those that were not called for the longest time are dropped. */
#ifndef PLAIT_PLAN_KEPT_H
#define PLAIT_PLAN_KEPT_H

#include "comm/comm.h"
#include "plan/call.h"
#include "plan/describe.h"
#include "plan/lanes.h"
#include "plan/started.h"

typedef struct plait_kept plait_kept_t;

typedef struct {
    plait_plan_t *plan;
    plait_lanes_t lanes;
    plait_about_t about;
} plait_kept_plan_t;

/* The communicator's plans, made at the first use by whichever thread is first. NULL: no memory. */
plait_kept_t *plait_kept_of(plait_comm_t *comm);

/* The started operations of the communicator. */
plait_started_queue_t *plait_kept_queue(plait_kept_t *kept);

/* The plan of a call, kept or made now. If OK is returned, the plan stays until plait_kept_give. */
plait_status_t plait_kept_get(plait_kept_t *kept, const plait_call_t *call,
                              const plait_kept_plan_t **plan_p);
void plait_kept_give(plait_kept_t *kept);

/* Number of plans, including those not yet freed; for tests. */
int64_t plait_kept_count(plait_kept_t *kept);

#endif
