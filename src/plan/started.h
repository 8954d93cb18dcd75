/* Started operations. They go on by themselves, on threads and buffers of plait's own, from the call that
 * starts them to the call that waits for them.
 *
 * The started operations of one communicator handle run in the order in which they were started, as far as
 * they could take each other's data (plan/lanes.h). Other operations wait behind them in the same way. So
 * started and other operations share the communicator, and every rank carries out the same sequence. */
#ifndef PLAIT_PLAN_STARTED_H
#define PLAIT_PLAN_STARTED_H

#include "base/workers.h"
#include "plan/call.h"
#include "plan/lanes.h"

#include <stdatomic.h>

/* Numbers are below this, so that a double and a pair of floats hold them exactly. */
#define PLAIT_STARTED_LIMIT (INT64_C(1) << 40)

typedef struct plait_started plait_started_t;

/* The operations of one communicator handle that were started and are not done yet, oldest first. All zeros:
 * empty. */
typedef struct {
    plait_started_t *first, *last;
    _Atomic int n;
} plait_started_queue_t;

/* Waits until all of them are done. */
void plait_started_drain(plait_started_queue_t *queue);

/* Waits until the operations that conflict with these lanes are done. */
void plait_started_pass(plait_started_queue_t *queue, const plait_lanes_t *lanes);

/* Copies the operands and begins. The number names the operation until plait_started_take or
 * plait_started_forget. It is a pair of floats, on the call's device if it has one; there, all of this is in
 * the order of the call's stream. The call's rets have no data. plait_started_take reports a failure of the
 * operation itself, planning included. */
plait_status_t plait_started_begin(const plait_call_t *call, float *number);

/* The same for a collective plan and arrays in host memory. They stay the caller's, which leaves them alone
 * until plait_started_wait. queue: the communicator's. */
plait_status_t plait_started_plan(const plait_plan_t *plan, plait_comm_t *comm,
                                  plait_started_queue_t *queue,
                                  const void *const args[], void *const rets[],
                                  int64_t *id_p);

/* Waits for the operation, and forgets it; returns the operation's own status, like plait_started_take. */
plait_status_t plait_started_wait(int64_t id);

/* The operation that a number names; on a device the thread waits until the stream has come to the number. */
plait_status_t plait_started_read(const float *number, plait_device_t *device,
                                  plait_stream_t stream, int64_t *id_p);

/* Whether the operation is not done yet. */
bool plait_started_goes_on(int64_t id);

/* False: the operation is done, or no operation has this number. True: it goes on, and then(context) will be
 * called on the thread that ends it, without any lock. Once for each operation. */
bool plait_started_then(int64_t id, plait_work_fn_t then, void *context);

/* Waits for the operation if need be, copies its results to rets, and forgets it. Returns the operation's own
 * status, with its text and its call site. On a device the results are there in the order of the stream, and
 * the thread does not wait for the work left on the device. */
plait_status_t plait_started_take(int64_t id, int n_rets, const plait_array_t rets[],
                                  plait_device_t *device, plait_stream_t stream);

/* Nobody will wait for the operation: it goes on to its end, without a trace of its results. */
PLAIT_EXPORT void plait_started_forget(int64_t id);

/* Number of operations that were started and neither taken nor forgotten, for tests. */
PLAIT_EXPORT int64_t plait_started_count(void);

#endif
