/* The guard ends waits that cannot end by themselves.
 *
 * A rank that has waited for some milliseconds looks at the ranks that it waits for, as far as they can be
 * seen (base/process.h), a few dozen times a second. It gives up with the status that says why:
 *   PEER      one of them is gone, has left its program, raised, or gave up before;
 *   MISMATCH  one of them is in another collective at the same place, or the ranks wait for
 *             each other in a circle;
 *   TIMEOUT   none of them made progress for PLAIT_TIMEOUT seconds (60; 0: never).
 * Operations that end normally never get here. */
#ifndef PLAIT_GUARD_GUARD_H
#define PLAIT_GUARD_GUARD_H

#include "base/wait.h"

/* The wait hook; installed when the library is loaded. */
plait_status_t plait_guard_look(const plait_wait_t *wait);

/* PLAIT_TIMEOUT, in ns; 0: never. */
PLAIT_EXPORT int64_t plait_guard_limit_ns(void);

/* Before this process ends with an exception: gives others that are in a wait time to see it, limit_ns at
 * most. */
PLAIT_EXPORT void plait_guard_leave(int64_t limit_ns);

/* Number of processes that did not end well. MPI_Finalize would wait for them. */
PLAIT_EXPORT int plait_guard_lost(void);

/* Whether a wait for others ran out of time: MPI_Finalize might wait for them just as long. */
PLAIT_EXPORT int plait_guard_late(void);

#endif
