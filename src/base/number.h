/* Numbers of communicators: each is one communicator's in this process, for as long as it lives. Threads may
 * make some at once, so a number is taken before anything else is done for it. Those of failures are lost. */
#ifndef PLAIT_BASE_NUMBER_H
#define PLAIT_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* In the place of a number: the ranks are to agree on one that is free for all of them. */
enum { PLAIT_NUMBER_NEW = -1 };

/* The next one, from 1 on, which is the caller's. */
int64_t plait_number_take(void);

/* That one, which is the caller's then if it is beyond all that were taken: false if not. */
bool plait_number_claim(int64_t number);

/* What plait_number_take would give. */
int64_t plait_number_next(void);

#endif
