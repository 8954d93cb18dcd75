/* One call on the devices of all ranks, which meet for it. If the ranks are threads of one process, rank 0
 * makes the call on behalf of all, and the others wait until it is over. If each rank is a process, all of
 * them make the call. */
#ifndef PLAIT_PLAN_JOINT_H
#define PLAIT_PLAN_JOINT_H

#include "plan/exec.h"

/* What a rank brings to the call. */
typedef struct {
    void *matrix, *rhs, *work; /* on its device */
    int32_t found;             /* in its info slot before the call; 0: nothing */
} plait_joint_part_t;

/* The slots of these; rhs -1: there is none. */
typedef struct {
    int matrix, rhs, info;
} plait_joint_slots_t;

/* Called by rank 0 when all ranks have come and none of them has failed. parts: by rank. */
typedef plait_status_t (*plait_joint_fn_t)(const void *params, plait_exec_t *exec,
                                           const plait_joint_part_t parts[]);

/* For a kernel that is_blocking: each rank brings the memory of its slots (info is an int32) and its scratch.
 * All work that the ranks have enqueued is done before the call. Returns this rank's failure. */
plait_status_t plait_exec_joint(plait_exec_t *exec, const plait_joint_slots_t *slots,
                                plait_joint_fn_t call, const void *params);

/* The steps of each of several processes. */
typedef struct {
    /* What the rank can do alone: if it fails on one rank, no rank calls. */
    plait_status_t (*begin)(const void *params, plait_exec_t *exec);
    /* Together with all others: if it fails on one rank, others may be in it for ever. */
    plait_status_t (*call)(const void *params, plait_exec_t *exec);
    /* Waits until the call is over. *info_p: its outcome, 0: all is well. */
    plait_status_t (*end)(const void *params, plait_exec_t *exec, int32_t *info_p);
} plait_grid_call_t;

/* The same for processes. No call is made if a rank has found something in its info_slot. That word, or the
 * word in which the call has ended, is then in the info_slot of all ranks. */
plait_status_t plait_exec_grid(plait_exec_t *exec, int info_slot,
                               const plait_grid_call_t *call, const void *params);

#endif
