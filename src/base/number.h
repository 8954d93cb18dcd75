/* Numbers of communicators. Within a process a number belongs to one communicator for as long as the process
 * lives. Threads may make communicators at the same time, so making one takes its number first. If that
 * fails later, the number is lost. */
#ifndef PLAIT_BASE_NUMBER_H
#define PLAIT_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* In place of a number: the ranks are to agree on a number that is free on all of them. */
enum { PLAIT_NUMBER_NEW = -1 };

/* The next number, from 1 on; it belongs to the caller. */
int64_t plait_number_take(void);

/* Takes this number for the caller if it is larger than all numbers taken so far; false if not. */
bool plait_number_claim(int64_t number);

/* The number that plait_number_take would return. */
int64_t plait_number_next(void);

#endif
