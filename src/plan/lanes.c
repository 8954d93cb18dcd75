#include "plan/lanes.h"

plait_lanes_t plait_lanes_of(const plait_plan_t *plan)
{
    plait_lanes_t lanes = {.is_collective = plan->is_collective,
                           .dest = PLAIT_ANY,
                           .source = PLAIT_ANY,
                           .tag = PLAIT_ANY};

    for (int i = 0; i < plan->n_steps; i++) {
        const plait_native_step_t *n = &plan->steps[i].u.native;
        if (plan->steps[i].kind == PLAIT_STEP_NATIVE &&
            n->native == PLAIT_NATIVE_SENDRECV) {
            lanes.dest = n->dest;
            lanes.source = n->source;
            lanes.tag = n->recv_tag;
        }
    }
    return lanes;
}

static bool meet(int a, int b)
{
    return a == b || a == PLAIT_ANY || b == PLAIT_ANY;
}

static bool ranks_meet(int a, int b)
{
    return a != PLAIT_NO_RANK && b != PLAIT_NO_RANK && meet(a, b);
}

bool plait_lanes_conflict(const plait_lanes_t *a, const plait_lanes_t *b)
{
    if (a->is_collective || b->is_collective) {
        return a->is_collective && b->is_collective;
    }
    return ranks_meet(a->dest, b->dest) ||
           (ranks_meet(a->source, b->source) && meet(a->tag, b->tag));
}
