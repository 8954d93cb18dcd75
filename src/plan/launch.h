/* One call of an operation: find its plan, or make it, and execute it. */
#ifndef PLAIT_PLAN_LAUNCH_H
#define PLAIT_PLAN_LAUNCH_H

#include "comm/comm.h"
#include "plan/op.h"

/* A plan for this communicator's rank, made anew. args and rets: shapes and dtypes. */
plait_status_t plait_op_plan(const plait_op_t *op, const void *params,
                             const plait_endpoint_t *end, const plait_array_t args[],
                             const plait_array_t rets[], plait_plan_t **plan_p);

/* Executes op on the arrays; its plan is kept for the next call with the same parameters and
 * shapes. run: the launch, see plait_session_t. The error text begins with operation and
 * rank. */
plait_status_t plait_op_launch(const plait_op_t *op, const void *params,
                               plait_comm_t *comm, int64_t run,
                               const plait_array_t args[], const plait_array_t rets[]);

/* Before the process ends: new calls fail with COMM; waits until those under way are done,
 * at most limit_ns. Returns the number still under way. */
PLAIT_EXPORT int64_t plait_shutdown(int64_t limit_ns);

/* Calls under way, for tests. */
PLAIT_EXPORT int64_t plait_in_flight(void);

#endif
