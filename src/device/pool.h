/* Work buffers that outlive an execution, so that no execution allocates twice. */
#ifndef PLAIT_DEVICE_POOL_H
#define PLAIT_DEVICE_POOL_H

#include "plait/status.h"

#include <stdint.h>

/* A buffer of at least n_bytes at a 64-byte boundary, from the pool if one is there that is
 * not more than twice as large. n_bytes = 0 gives NULL. */
plait_status_t plait_pool_take(int64_t n_bytes, void **buffer_p);

/* Back into the pool; NULL is fine. */
void plait_pool_give(void *buffer);

/* Frees what is not in use; returns the bytes freed. */
int64_t plait_pool_trim(void);

#endif
