/* One call on the devices of all ranks, which are threads of one process: they meet, rank 0's thread
 * makes the call on behalf of all, and the others wait until it is over. */
#ifndef PLAIT_PLAN_JOINT_H
#define PLAIT_PLAN_JOINT_H

#include "plan/exec.h"

/* What a rank brings. */
typedef struct {
    void *matrix, *work; /* of its device */
    int32_t found;       /* what was found there before, 0: nothing */
} plait_joint_part_t;

/* By rank 0, when all ranks have come and none of them has failed. parts: by rank. */
typedef plait_status_t (*plait_joint_fn_t)(const void *params, plait_exec_t *exec,
                                           const plait_joint_part_t parts[]);

/* In a kernel that is_blocking: each rank brings what is in its matrix_slot, its scratch, and the
 * int32 in its info_slot. All that the ranks have enqueued is done before the call. Returns this
 * rank's failure. */
plait_status_t plait_exec_joint(plait_exec_t *exec, int matrix_slot, int info_slot,
                                plait_joint_fn_t call, const void *params);

#endif
