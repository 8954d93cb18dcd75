/* Steps that all PEs of NVSHMEM do together, in which each waits for the others inside the library: its start,
 * and the allocation of the pool. A separate thread does them, so that a wait that does not end can be given
 * up. */
#ifndef PLAIT_TRANSPORT_NVSHMEM_TOGETHER_H
#define PLAIT_TRANSPORT_NVSHMEM_TOGETHER_H

#include "device/device.h"

#include <stdbool.h>

typedef struct {
    const plait_device_nvshmem_t *call;
    plait_device_t *device;
    plait_nvshmem_id_t id;
    int pe, n_pes;
    int64_t pool_bytes; /* to be allocated; 0: the job is to be started */
} plait_nvshmem_job_call_t;

typedef struct plait_together plait_together_t;

/* UNSUPPORTED: a call was given up; its thread may still write to what this process knows of the job. */
plait_status_t plait_together_can(void);

/* Starts a thread that enters the device, and then waits for `end` or `go`. */
plait_status_t plait_together_begin(const plait_nvshmem_job_call_t *what,
                                    plait_together_t **together_p);

/* Lets the thread make the call. Either all PEs have begun, or none goes. */
void plait_together_go(plait_together_t *together);

/* Waits until the call is over, and returns its status; OK if it was not made. If the wait hook gives up, its
 * status; the thread goes on by itself. NULL: nothing was begun. */
plait_status_t plait_together_end(plait_together_t *together);

#endif
