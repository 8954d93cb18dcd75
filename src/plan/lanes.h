/* Which operations of one communicator may be under way at the same time. Collective operations follow each
 * other, and so do matched transfers that could take each other's messages. */
#ifndef PLAIT_PLAN_LANES_H
#define PLAIT_PLAN_LANES_H

#include "plan/plan.h"

typedef struct {
    bool is_collective;
    int dest;   /* PLAIT_NO_RANK: sends nothing; PLAIT_ANY: known when it runs */
    int source; /* PLAIT_NO_RANK: receives nothing; PLAIT_ANY: from anybody    */
    int tag;    /* of the message that it receives, or PLAIT_ANY               */
} plait_lanes_t;

plait_lanes_t plait_lanes_of(const plait_plan_t *plan);

/* Whether the later one has to wait for the earlier one. Messages to one rank stay in order
 * whatever their tags, since the receiver may take any tag. */
bool plait_lanes_conflict(const plait_lanes_t *a, const plait_lanes_t *b);

#endif
