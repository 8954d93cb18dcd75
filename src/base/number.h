/* Numbers of communicators. Within a process a number belongs to one communicator for as long as the process
 * lives. Threads may make communicators at the same time, so making one takes its number first. If that
 * fails later, the number is lost. */
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
