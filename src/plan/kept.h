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

/* Made at its first use, by whichever thread is first; the communicator's. NULL: no memory. */
plait_kept_t *plait_kept_of(plait_comm_t *comm);

/* Its started operations. */
plait_started_queue_t *plait_kept_queue(plait_kept_t *kept);

/* The plan of a call, from there or made now; it stays until plait_kept_give, if OK is returned. */
plait_status_t plait_kept_get(plait_kept_t *kept, const plait_call_t *call,
                              const plait_kept_plan_t **plan_p);
void plait_kept_give(plait_kept_t *kept);

/* How many there are, with those that are not freed yet; for tests. */
int64_t plait_kept_count(plait_kept_t *kept);

#endif
