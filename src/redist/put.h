/* Moves in which a rank writes into peers' memory, because reading would have shorter rows. */
#ifndef PLAIT_REDIST_PUT_H
#define PLAIT_REDIST_PUT_H

#include "plan/plan.h"

/* Whether the source of a block between two ranks puts it: its rows are short at the source, and longer at the
 * destination. */
bool plait_redist_is_put(const plait_block_t *block);

/* Adds the step that puts the outgoing blocks of a move, and removes these from the move. Adds no step if there
 * are none, or if moves are messages. */
plait_status_t plait_redist_put(plait_plan_t *plan, plait_move_t *move);

#endif
