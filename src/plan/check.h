/* Proof that the plans of all ranks fit together, by running them on shadow memory: one process, no data,
 * small shapes. It proves that
 *   - every rank has the same number of fences, and the same value to agree on;
 *   - bytes that are read were written, by their owner before the last fence or by the reader itself;
 *   - nothing is overwritten in the phase in which a peer reads it;
 *   - bytes that a rank writes to a peer's memory are touched by no other rank in that phase, nor by the peer;
 *   - no byte of a result is written twice by moves, and none is missed;
 *   - no message sends bytes that its own move has overwritten;
 *   - each message sent is received, with the same size, in the same order. */
#ifndef PLAIT_PLAN_CHECK_H
#define PLAIT_PLAN_CHECK_H

#include "plan/plan.h"

typedef struct {
    /* Result 0 shares the memory of this operand (donated); -1: it has its own. */
    int alias;
} plait_check_t;

/* plans[r] is the plan of rank r. INTERNAL, and the text says what is wrong and where. */
plait_status_t plait_plans_check(plait_plan_t *const plans[], int n_ranks,
                                 const plait_check_t *options);

#endif
