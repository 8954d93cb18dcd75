/* One call of an operation: finds its plan, or makes it, and executes it. */
#ifndef PLAIT_PLAN_LAUNCH_H
#define PLAIT_PLAN_LAUNCH_H

#include "comm/comm.h"
#include "plan/call.h"
#include "plan/exec.h"
#include "plan/op.h"
#include "plan/started.h"

/* A plan for this communicator's rank, made anew. args and rets: shapes and dtypes. */
plait_status_t plait_op_plan(const plait_op_t *op, const void *params,
                             const plait_endpoint_t *end, const plait_array_t args[],
                             const plait_array_t rets[], plait_plan_t **plan_p);

/* The plan of a call, on an endpoint for the place of its arrays. */
plait_status_t plait_op_plan_call(const plait_call_t *call, const plait_endpoint_t *end,
                                  plait_plan_t **plan_p);

/* Executes the call; its plan is kept for the next call with the same parameters and shapes. The error text
 * begins with operation and rank. */
plait_status_t plait_op_run(const plait_call_t *call);

/* The call of an operation on arrays where a C program's handle has them, under the current choices; args and
 * rets may be NULL if there are none. */
plait_call_t plait_op_call(const plait_op_t *op, const void *params, plait_comm_t *comm,
                           const plait_array_t args[], const plait_array_t rets[]);

/* Executes this call. */
plait_status_t plait_op_launch(const plait_op_t *op, const void *params,
                               plait_comm_t *comm, const plait_array_t args[],
                               const plait_array_t rets[]);

/* The same for a call that plait_started_begin has put in line among the started operations. */
plait_status_t plait_op_run_started(const plait_call_t *call);

/* Puts the rank and the operation before the text of a failure, as the calls above do. */
void plait_op_tell(const plait_plan_t *plan, const plait_comm_t *comm);

/* Executes the caller's collective plan, behind the started operations; or as one of them (arrays->is_beside),
 * as in plait_op_start. */
plait_status_t plait_op_run_plan(const plait_plan_t *plan, plait_comm_t *comm,
                                 const plait_exec_arrays_t *arrays);
plait_status_t plait_op_start(const plait_plan_t *plan, plait_comm_t *comm,
                              const void *const args[], void *const rets[],
                              int64_t *id_p);

/* For an operation that this rank cannot begin, and that has no place at which to tell the others. */
void plait_op_give_up(const plait_call_t *call, plait_status_t status);

/* The line in which the call's operation stands among the started operations of its communicator. */
plait_status_t plait_op_queue(const plait_call_t *call, plait_started_queue_t **queue_p,
                              plait_lanes_t *lanes_p);

/* Between plait_op_hold and plait_op_release, a call that another thread launches later counts as under way. */
void plait_op_hold(void);
void plait_op_release(void);

/* Before the process ends: waits until calls under way are done, at most limit_ns; then new calls fail with
 * COMM, and waits that go on end with PEER. Returns the number of calls still under way. */
PLAIT_EXPORT int64_t plait_shutdown(int64_t limit_ns);

/* Calls under way, for tests. */
PLAIT_EXPORT int64_t plait_in_flight(void);

#endif
