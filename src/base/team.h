/* A computation by several threads at once: threads of base/workers.h and the calling thread. */
#ifndef PLAIT_BASE_TEAM_H
#define PLAIT_BASE_TEAM_H

#include "plait/status.h"

#include <sys/types.h>

enum { PLAIT_MAX_THREADS = 64 };

/* Part i of n of a computation; its parts neither wait for each other nor share what they write. */
typedef plait_status_t (*plait_part_fn_t)(void *context, int i, int n);

/* Runs all n parts and returns when all have; where the system has no thread left, fewer run at
 * once. The status of the first part that failed, with its text. */
plait_status_t plait_team_run(int n, plait_part_fn_t part, void *context);

/* What PLAIT_THREADS says; 0: nothing, or auto. INVALID: it is no number from 1 to
 * PLAIT_MAX_THREADS, nor auto. */
plait_status_t plait_team_wish(int *n_threads_p);

/* How many threads one rank may compute with: that, or its share of the processors that
 * it may run on, which `pids` (itself among them; NULL: n_sharing ranks of this process) may run
 * on, too. INVALID as above. */
plait_status_t plait_team_size(int n_sharing, const pid_t pids[], int *n_threads_p);

#endif
