/* Threads of plait's own, for work that must not hold up the thread that hands it over. There are as many
 * threads as pieces of work at the same time: a piece may wait for another one, on this rank or on a peer,
 * so no piece may wait in a queue. */
#ifndef PLAIT_BASE_WORKERS_H
#define PLAIT_BASE_WORKERS_H

#include "plait/status.h"

typedef void (*plait_work_fn_t)(void *context);

/* Runs work(context) on another thread, soon. context is kept until work returns. NO_MEMORY: the system has no
 * thread left, and nothing runs. */
plait_status_t plait_workers_run(plait_work_fn_t work, void *context);

#endif
