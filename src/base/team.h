/* A computation by several threads at once: threads of base/workers.h and the calling thread. */
#ifndef PLAIT_BASE_TEAM_H
#define PLAIT_BASE_TEAM_H

#include "plait/status.h"

#include <sys/types.h>

enum { PLAIT_MAX_THREADS = 64 };

/* Part i of n of a computation. Parts neither wait for each other nor write to the same memory. */
typedef plait_status_t (*plait_part_fn_t)(void *context, int i, int n);

/* Runs all n parts and returns when all are done; if the system has no thread left, fewer run at once. Returns
 * the status of the first part that failed, with its text. */
plait_status_t plait_team_run(int n, plait_part_fn_t part, void *context);

/* The number in PLAIT_THREADS; 0: nothing, or auto. INVALID: neither a number from 1 to PLAIT_MAX_THREADS nor
 * auto. */
plait_status_t plait_team_wish(int *n_threads_p);

/* How many threads one rank may compute with: plait_team_wish's number, or else the rank's share of the
 * processors that it may run on. `pids` (the rank's own among them; NULL: n_sharing ranks of this process) may
 * run on these processors, too. INVALID as above. */
plait_status_t plait_team_size(int n_sharing, const pid_t pids[], int *n_threads_p);

#endif
