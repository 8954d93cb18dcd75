/* Sends blocks that one rank has to all ranks of a group. */
#ifndef PLAIT_DENSE_FAN_H
#define PLAIT_DENSE_FAN_H

#include "plan/plan.h"

/* Ranks first, first + stride, ...: n of them; and one more, the guest. */
typedef struct {
    int first, stride, n;
    bool has_guest;
    int guest;
} plait_group_t;

/* Adds the moves that bring every block of what->in from its root, in->peer, to all members of the
 * group but the root, at the same place of all of them; `what` is emptied. All ranks call it: members
 * of one group with the same blocks, others, or those of another group of as many, with theirs.
 *
 * Where peers can be read it is one move, and a root may be any rank. Where moves are messages roots
 * are members, and each has a binomial tree: in move i, of ceil(log2 n), those who are less than 2^i
 * places behind the root send to who is 2^i places further. So a rank sends one message at most in
 * a move and gets one at most; blocks of several roots share them.
 * is_kept: a root among the members has its own at that place, too, from the first move on.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
 * IJHPCA 19(1), 2005; for several roots it is Bruck's algorithm. */
plait_status_t plait_fan_out(plait_plan_t *plan, const plait_group_t *group,
                             bool is_kept, plait_move_t *what);

#endif
