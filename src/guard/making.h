/* Notes that `plait run` keeps in its folder about the ranks that it has started. While a communicator is being
 * made, nothing else is known about its ranks, which may still be reading their data. */
#ifndef PLAIT_GUARD_MAKING_H
#define PLAIT_GUARD_MAKING_H

#include "base/wait.h"

/* Numbers in MPI_COMM_WORLD of the ranks of the communicators that this thread makes from now on;
 * kept until the next call. n 0: not known. */
PLAIT_EXPORT void plait_guard_expect(int n, const int32_t ranks[]);

/* Whether this process is a rank of a `plait run` job, which keeps notes. */
bool plait_guard_has_notes(void);

/* Whether ranks may be held up because nobody reads their output: a person at a pager takes time. */
bool plait_guard_is_held(void);

/* PEER once a rank has been seen as gone for some tenths of a second; by then everything that it did before has
 * arrived. */
plait_status_t plait_guard_look_making(const plait_wait_t *wait, int64_t now);

#endif
