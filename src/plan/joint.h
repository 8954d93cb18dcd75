/* One call on the devices of all ranks, which meet for it. If the ranks are threads of one process, rank 0
 * makes the call on behalf of all, and the others wait until it is over. If each rank is a process, all of
 * them make the call. */
#ifndef PLAIT_PLAN_JOINT_H
#define PLAIT_PLAN_JOINT_H

#include "plan/exec.h"

/* What a rank brings. */
typedef struct {
    void *matrix, *rhs, *work; /* of its device */
    int32_t found;             /* what was found there before, 0: nothing */
} plait_joint_part_t;

/* Where it has that; rhs -1: there is none. */
typedef struct {
    int matrix, rhs, info;
} plait_joint_slots_t;

/* By rank 0, when all ranks have come and none of them has failed. parts: by rank. */
typedef plait_status_t (*plait_joint_fn_t)(const void *params, plait_exec_t *exec,
                                           const plait_joint_part_t parts[]);

/* In a kernel that is_blocking: each rank brings what is in its slots, info being an int32, and its
 * scratch. All that the ranks have enqueued is done before the call. Returns this rank's failure. */
plait_status_t plait_exec_joint(plait_exec_t *exec, const plait_joint_slots_t *slots,
                                plait_joint_fn_t call, const void *params);

/* What each of several processes does. */
typedef struct {
    /* What it can do alone: none calls where it fails on one. */
    plait_status_t (*begin)(const void *params, plait_exec_t *exec);
    /* Together with all others: where it fails on one, others may be in it for ever. */
    plait_status_t (*call)(const void *params, plait_exec_t *exec);
    /* Until it is over. *info_p: what came of it, 0: all is well. */
    plait_status_t (*end)(const void *params, plait_exec_t *exec, int32_t *info_p);
} plait_grid_call_t;

/* The same by processes. No call is made where a rank has found something in its info_slot; then, and
 * where the call has come to something, it is in that of all ranks. */
plait_status_t plait_exec_grid(plait_exec_t *exec, int info_slot,
                               const plait_grid_call_t *call, const void *params);

#endif
