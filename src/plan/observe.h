/* Execution of a plan with its observers: flight recorder, trace, lines of the log. */
#ifndef PLAIT_PLAN_OBSERVE_H
#define PLAIT_PLAN_OBSERVE_H

#include "base/trace.h"
#include "comm/comm.h"
#include "plan/describe.h"
#include "plan/exec.h"

/* What this thread runs, for the guard. */
typedef struct {
    const plait_comm_t *comm;
    const plait_plan_t
        *plan; /* of a refusal: a plan without steps that agrees with none */
    plait_flight_entry_t *entry;
    bool is_given_up; /* set by the guard: the communicator must not be used any more */
} plait_observed_t;

/* NULL: no operation. */
plait_observed_t *plait_observe_here(void);

/* Runs the plan as the next operation of the communicator. about: NULL: only the plan's title is known.
 * is_started: the program goes on meanwhile. */
plait_status_t plait_observe_exec(const plait_plan_t *plan, const plait_about_t *about,
                                  plait_comm_t *comm, int64_t run, bool is_started,
                                  const plait_exec_arrays_t *arrays);

/* This rank takes no further part in the communicator's operations. */
void plait_observe_give_up(plait_comm_t *comm, const char *title);

/* A collective has failed, on all ranks if the communicator can still be used. What ranks ran before may differ
 * between them, and a plan that they were to agree on was not agreed on. */
void plait_observe_forget(plait_comm_t *comm);

/* Takes part in the communicator's next collective, which this rank cannot plan, so that the others learn of it
 * where they would wait for this rank: their collective ends with PEER. Returns `status`, whose text is
 * there. */
plait_status_t plait_observe_refuse(const char *name, plait_comm_t *comm, int64_t run,
                                    plait_status_t status);

/* The next operation of the communicator failed before it had a plan, and no other rank is told. */
void plait_observe_failure(const char *name, plait_comm_t *comm, plait_status_t status);

#endif
