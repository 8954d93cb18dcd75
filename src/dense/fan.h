/* Blocks that one rank has come to all ranks of a group. */
#ifndef PLAIT_DENSE_FAN_H
#define PLAIT_DENSE_FAN_H

#include "plan/plan.h"

/* Ranks first, first + stride, ...: n of them; and one more, the guest. */
typedef struct {
    int first, stride, n;
    bool has_guest;
    int guest;
} plait_group_t;

/* Adds the moves that bring every block of what->in from its root, in->peer, a member, to all other
 * members, at the same place of all of them; `what` is emptied. All ranks call it with the same
 * blocks, members or not. Where peers can be read that is one move. Where moves are messages it is
 * a binomial tree for each root, in ceil(log2 n) moves, in each of which a rank sends one message at most and
 * gets one at most: after move i those have a block who are less than 2^i places behind its root. Blocks
 * of several roots share the messages.
 * is_kept: the root's own come to the same place there, too, in the first move.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
 * IJHPCA 19(1), 2005; for several roots it is Bruck's algorithm. */
plait_status_t plait_fan_out(plait_plan_t *plan, const plait_group_t *group,
                             bool is_kept, plait_move_t *what);

#endif
