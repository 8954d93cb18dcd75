/* Plans: what one rank does for one operation on arrays of one shape. */
#ifndef PLAIT_PLAN_H
#define PLAIT_PLAN_H

#include "plait/comm.h"
#include "plait/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Immutable. Any number of threads may execute the same plan at once on different communicators that have
 * the same number of ranks and reach each other's memory in the same way. */
typedef struct plait_plan plait_plan_t;

/* What a plan costs one rank. */
typedef struct {
    int64_t n_messages;    /* ranks that data come from, counted in each step */
    int64_t message_bytes; /* bytes of these messages */
    int64_t work_bytes;    /* buffers of the size of the data, besides args and rets */
    int64_t scratch_bytes; /* what kernels keep in caches, or messages under way */
    int64_t n_fences;      /* how often all ranks wait for each other */
} plait_plan_cost_t;

/** Runs a plan.
 *  Collective: over comm, all ranks with plans of the same operation; blocking.
 *  Shapes: args and rets as the plan was made for. They may overlap only where the function that made the
 *  plan says so.
 *  Owns: nothing; everything is borrowed until return.
 *  Errors: MISMATCH (ranks execute different plans. At a fence they learn of it before anything is written.
 *  Where everything goes through MPI alone, rets may have been written in part, or the next operation may be
 *  the one that reports it, see docs/guard.md), PEER (another rank failed), TIMEOUT (a rank did not come),
 *  TRANSPORT, NO_MEMORY. On every rank that gets one of the latter four, rets are undefined; where everything
 *  goes through messages, another rank may get OK, with correct results.
 *  COMM (comm or plan is NULL, comm was freed or given up), INVALID (an array is NULL; the plan was made for
 *  another rank, for arrays elsewhere (cuda.h), or for ranks that reach each other in another way). After
 *  COMM and INVALID nothing was written, and other ranks do not learn of the error.
 *  Source: own. */
PLAIT_EXPORT plait_status_t plait_plan_execute(const plait_plan_t *plan,
                                               plait_comm_t *comm,
                                               const void *const args[],
                                               void *const rets[]);

/* Names an execution that was started. A plain value; zeros name none. */
typedef struct {
    int64_t number;
} plait_request_t;

/** Starts a plan: the call returns, and the plan is executed beside the program. Meanwhile the program may
 *  compute, or send messages. The execution keeps its place in the order of this rank's operations on comm:
 *  later operations that depend on this order wait for it.
 *
 *  A thread of plait's own executes the plan. It wants a core of its own, except while it waits for other
 *  ranks. If the system has no thread left, the plan is executed before the call returns. While a plan of
 *  dense.h for several ranks is under way, a multi-threaded BLAS works with one thread. If MPI was
 *  initialised with MPI_THREAD_SERIALIZED, the program itself must not call MPI meanwhile.
 *  Collective: over comm, all ranks with plans of the same operation; other ranks may use
 *  plait_plan_execute instead.
 *  Shapes: as plait_plan_execute.
 *  Owns: plan and arrays are borrowed until plait_request_wait: until then do not write operands or read
 *  results. *request_p is the caller's. comm may be destroyed earlier; plait_comm_destroy waits for the
 *  plan. Do not free the MPI communicator behind comm, or call MPI_Finalize, earlier.
 *  Errors: COMM and INVALID as plait_plan_execute, UNSUPPORTED (arrays on a device, where plait_plan_execute
 *  itself returns early), NO_MEMORY. After one of these nothing was started.  Source: MPI 4.0, 6.12. */
PLAIT_EXPORT plait_status_t plait_plan_start(const plait_plan_t *plan,
                                             plait_comm_t *comm,
                                             const void *const args[],
                                             void *const rets[],
                                             plait_request_t *request_p);

/** Whether plait_request_wait would return at once: the execution is done, has failed, or there is none.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT bool plait_request_is_done(const plait_request_t *request);

/** Waits until a started execution is done; its results are there then. Called once for each request, on any
 *  thread.
 *  Collective: no.  Shapes: none.  Owns: *request names none afterwards.
 *  Errors: those of plait_plan_execute; INVALID (request is NULL, or a copy of a request that was already
 *  waited for).  Source: own. */
PLAIT_EXPORT plait_status_t plait_request_wait(plait_request_t *request);

/** Prints a plan: a title, then one line per step, with bytes. For NULL it prints that there is no plan.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT void plait_plan_print(const plait_plan_t *plan, FILE *file);

/** Messages, bytes and memory of a plan; zeros for NULL.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT plait_plan_cost_t plait_plan_cost(const plait_plan_t *plan);

/** Frees a plan; NULL and a second call are fine.
 *  Collective: no.  Shapes: none.  Owns: takes *plan_p.  Errors: none.  Source: own. */
PLAIT_EXPORT void plait_plan_destroy(plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
