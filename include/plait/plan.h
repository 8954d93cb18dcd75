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

/* Immutable; any number of threads may execute one at once on different communicators, of as many ranks
 * that reach each other in the same way. */
typedef struct plait_plan plait_plan_t;

/* What a plan costs one rank. */
typedef struct {
    int64_t n_messages;    /* ranks that something comes from, counted in each step */
    int64_t message_bytes; /* their bytes */
    int64_t work_bytes;    /* buffers of the size of the data, besides args and rets */
    int64_t scratch_bytes; /* what kernels need in caches, or messages on their way */
    int64_t n_fences;      /* how often all ranks wait for each other */
} plait_plan_cost_t;

/** Runs a plan.
 *  Collective: over comm, all ranks with plans of the same operation; blocking.
 *  Shapes: args and rets as the plan was made for; they overlap only where the function that made
 *  the plan says that they may.
 *  Owns: nothing; all is borrowed until return.
 *  Errors: MISMATCH (ranks execute different plans; nothing was written. Where all goes through MPI
 *  alone it may be the next operation that says so, see docs/guard.md), PEER (another
 *  rank failed), TIMEOUT (one did not come), TRANSPORT, NO_MEMORY; rets are then undefined on
 *  every rank that gets one of these. Where all goes through messages another one may have OK, and
 *  what it is to have. COMM (comm or plan is NULL, comm was freed or given up), INVALID (an array
 *  is NULL; the plan was made for another rank, for arrays elsewhere (cuda.h), or for ranks that reach
 *  each other in another way): nothing was written, and other ranks do not learn of it.
 *  Source: own. */
PLAIT_EXPORT plait_status_t plait_plan_execute(const plait_plan_t *plan,
                                               plait_comm_t *comm,
                                               const void *const args[],
                                               void *const rets[]);

/* An execution that was started; of zeros: none. A plain value. */
typedef struct {
    int64_t number;
} plait_request_t;

/** Starts a plan: the call returns, and the plan is executed beside the program, in its place
 *  among what this rank executes and calls with this communicator, which wait for it where they need
 *  the ranks' order: so may computations be done meanwhile, or messages be sent. It has a thread
 *  of plait's own and wants a core for that, where it does not wait for other ranks. Where the system has
 *  no thread left it is done before the call returns. As long as a plan of dense.h is under way, a BLAS of
 *  several threads has one.
 *  Collective: over comm, all ranks with plans of the same operation; others may execute it.
 *  Shapes: as plait_plan_execute.
 *  Owns: plan and arrays are borrowed until plait_request_wait, operands not to be written and results not
 *  to be looked at; *request_p is the caller's. comm may be destroyed before, which waits; an MPI
 *  communicator behind it is not freed before, nor is MPI_Finalize called.
 *  Errors: as plait_plan_execute has COMM and INVALID, UNSUPPORTED (arrays on a device: there
 *  plait_plan_execute itself returns early), NO_MEMORY: nothing was started then. Through MPI with
 *  MPI_THREAD_SERIALIZED the program itself calls no MPI meanwhile.  Source: MPI 4.0, 6.12. */
PLAIT_EXPORT plait_status_t plait_plan_start(const plait_plan_t *plan,
                                             plait_comm_t *comm,
                                             const void *const args[],
                                             void *const rets[],
                                             plait_request_t *request_p);

/** Whether plait_request_wait would not wait: it is done, has failed, or there is none.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT bool plait_request_is_done(const plait_request_t *request);

/** Waits for what was started: from here on its results are there. Once for each, on any thread.
 *  Collective: no.  Shapes: none.  Owns: *request is none afterwards.
 *  Errors: what plait_plan_execute returns of an execution; INVALID (request is NULL, or a copy of one
 *  that was waited for).  Source: own. */
PLAIT_EXPORT plait_status_t plait_request_wait(plait_request_t *request);

/** Prints a plan: a title, then one line a step, with bytes; of NULL that there is none.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT void plait_plan_print(const plait_plan_t *plan, FILE *file);

/** Messages, bytes and memory of a plan; zeros of NULL.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT plait_plan_cost_t plait_plan_cost(const plait_plan_t *plan);

/** Frees a plan; NULL and a second time are fine.
 *  Collective: no.  Shapes: none.  Owns: takes *plan_p.  Errors: none.  Source: own. */
PLAIT_EXPORT void plait_plan_destroy(plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
