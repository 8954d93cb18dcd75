/* One call of an operation: the operation, its arrays, the place where it runs, and the line of the program
 * that calls it. */
#ifndef PLAIT_PLAN_CALL_H
#define PLAIT_PLAN_CALL_H

#include "comm/comm.h"
#include "device/lender.h"
#include "plan/op.h"

typedef struct {
    const plait_op_t *op;
    const void *params; /* borrowed, like the lists and dims below */
    plait_comm_t *comm;
    int64_t run;              /* the launch, see plait_session_t */
    int64_t site;             /* base/site.h */
    plait_choices_t choices;  /* at the time of the call */
    uint64_t trees;           /* of joined arrays (base/tree.h); 0: there are none */
    plait_device_t *device;   /* where the arrays are; NULL: in host memory */
    plait_stream_t stream;    /* the order of work on these arrays */
    plait_lender_t *lender;   /* of memory on the device; NULL: the device itself */
    plait_matched_t *matched; /* tells a caller that waits who sent; or NULL */
    plait_array_t args[PLAIT_MAX_ARRAYS];
    plait_array_t rets[PLAIT_MAX_ARRAYS];
} plait_call_t;

/* Copies the call with its parameters, lists and dims into one piece of memory, for plait_free: the copy
 * outlives what the original borrows. The arrays' data stay where they are. */
plait_status_t plait_call_copy(const plait_call_t *call, plait_call_t **copy_p);

/* Bytes of operands and results together; 0 if the sum overflows. */
int64_t plait_call_bytes(const plait_call_t *call);

#endif
