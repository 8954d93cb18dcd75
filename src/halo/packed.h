/* Boxes of short rows that travel by one-copy reads: the owner packs them before the fence. */
#ifndef PLAIT_HALO_PACKED_H
#define PLAIT_HALO_PACKED_H

#include "plan/plan.h"

/* Which rank has what for which rank. */
typedef struct {
    /* Appends the incoming blocks of `to` from `from` to move->in; there may be none. The result is the same on
     * every rank. `block` gives kind and slots. */
    plait_status_t (*blocks)(const void *context, int from, int to,
                             const plait_block_t *block, plait_move_t *move);
    const void *context;
} plait_flow_t;

/* Adds work memory, and the step that fills it from block->src_slot with what other ranks read. All ranks call
 * this before the first fence, or none does. */
plait_status_t plait_packed_fill(plait_plan_t *plan, const plait_flow_t *flow,
                                 const plait_block_t *block, int *work_p);

/* Appends plan->rank's blocks from `peer` to move->in. Short rows come from the peer's work memory. */
plait_status_t plait_packed_take(const plait_plan_t *plan, const plait_flow_t *flow,
                                 int peer, int work, const plait_block_t *block,
                                 plait_move_t *move);

#endif
