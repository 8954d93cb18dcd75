/* Proof that the plans of all ranks fit together, by running them on shadow memory: one
 * process, no data, small shapes. Proven are
 *   - same number of fences on every rank, and one value to agree on;
 *   - what is read was written, by its owner before the last fence or by the reader itself;
 *   - nothing is overwritten in the phase in which a peer reads it;
 *   - what a rank writes to a peer's memory nobody else touches in that phase, nor the peer;
 *   - no byte of a result is written twice by moves, none is missed;
 *   - no message sends what its own move has overwritten;
 *   - each message sent is received, with the same size, in the same order. */
#ifndef PLAIT_PLAN_CHECK_H
#define PLAIT_PLAN_CHECK_H

#include "plan/plan.h"

typedef struct {
    /* Result 0 has the memory of this operand (donated); -1: of its own. */
    int alias;
} plait_check_t;

/* plans[r] is the plan of rank r. INTERNAL with what is wrong where. */
plait_status_t plait_plans_check(plait_plan_t *const plans[], int n_ranks,
                                 const plait_check_t *options);

#endif
