/* Sends blocks that one rank has to all ranks of a group. */
#ifndef PLAIT_DENSE_FAN_H
#define PLAIT_DENSE_FAN_H

#include "plan/plan.h"

/* n ranks: first, first + stride, ...; and perhaps one more, the guest. */
typedef struct {
    int first, stride, n;
    bool has_guest;
    int guest;
} plait_group_t;

/* Adds the moves that bring every block of what->in from its root, in->peer, to all other members of the group,
 * to the same place on each member; `what` is emptied. All ranks call this. Members of one group pass the same
 * blocks; other ranks, and members of another group of the same size, pass theirs.
 *
 * If peers can be read, this is one move, and any rank may be a root. If moves are messages, roots are members,
 * and each root has a binomial tree. In move i, of ceil(log2 n), members less than 2^i places behind the root
 * send to the member 2^i places further on. So a rank sends at most one message in a move and gets at most one;
 * blocks of several roots share these messages.
 * is_kept: a root that is a member also has its own block at that place, from the first move on.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
 * IJHPCA 19(1), 2005; for several roots it is Bruck's algorithm. */
plait_status_t plait_fan_out(plait_plan_t *plan, const plait_group_t *group,
                             bool is_kept, plait_move_t *what);

#endif
