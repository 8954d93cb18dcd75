/* How often a waiting rank looks at others, and how long it must have seen a state before the state counts: a
 * message may be under way, or another rank may be about to give a verdict. */
#ifndef PLAIT_GUARD_TIMES_H
#define PLAIT_GUARD_TIMES_H

#include <stdint.h>

#define PLAIT_GUARD_LOOK_EVERY_NS INT64_C(20000000)

/* One look counts for no longer than this: a rank that was stopped in between, perhaps with the others, has not
 * seen what they did. */
#define PLAIT_GUARD_LOOK_COUNTS_NS INT64_C(100000000)

/* A rank has left its program, or is gone. */
#define PLAIT_GUARD_ENDED_NS INT64_C(700000000)

#endif
