/* Notes that `plait run` keeps in its folder about the ranks that it has started. While a communicator is
 * being made nothing else is known of its ranks, which may still be reading their data. */
#ifndef PLAIT_GUARD_MAKING_H
#define PLAIT_GUARD_MAKING_H

#include "base/wait.h"

/* Numbers in MPI_COMM_WORLD of the ranks of the communicators that this thread makes from now on;
 * kept until the next call. n 0: not known. */
PLAIT_EXPORT void plait_guard_expect(int n, const int32_t ranks[]);

/* Whether a job of `plait run` is there to note anything. */
bool plait_guard_has_notes(void);

/* Whether ranks may be held up, as nobody takes what they print: who reads a pager takes time. */
bool plait_guard_is_held(void);

/* PEER once one of them has been seen to have left for some tenths of a second, which is when what it
 * did before has come. */
plait_status_t plait_guard_look_making(const plait_wait_t *wait, int64_t now);

#endif
