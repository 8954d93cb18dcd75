/* Counted allocation: every test ends at balance 0. */
#ifndef PLAIT_BASE_ALLOC_H
#define PLAIT_BASE_ALLOC_H

#include "plait/status.h"

#include <stdint.h>

/* Zeroed array of n elements; NULL if the product overflows or memory is short.
 * n = 0 gives a valid pointer. */
void *plait_alloc(int64_t n, int64_t size);

/* Uninitialised bytes at a 64-byte boundary, large blocks in huge pages; never for n_bytes < 0. Freed by
 * plait_free, like all others. */
void *plait_alloc_aligned(int64_t n_bytes);

void plait_free(void *p);

/* Bytes that this thread has allocated less those that it has freed. */
int64_t plait_alloc_tally(void);

/* Counts for this thread bytes of a shared block that another holder has allocated; negative: no longer. */
void plait_alloc_share(int64_t n_bytes);

/* Allocations minus frees of this process; Python asks, too. A thread that finds it balanced sees what other
 * threads did before their frees. */
PLAIT_EXPORT int64_t plait_alloc_balance(void);

#endif
