/* Work buffers that outlive an execution, so that no execution allocates twice. */
#ifndef PLAIT_DEVICE_POOL_H
#define PLAIT_DEVICE_POOL_H

#include "plait/status.h"

#include <stdint.h>

/* A buffer of at least n_bytes at a 64-byte boundary, from the pool if the pool has a buffer that is at most
 * twice as large. n_bytes = 0 gives NULL. */
plait_status_t plait_pool_take(int64_t n_bytes, void **buffer_p);

/* The same, but other processes of the node can map the memory while it is taken: *token_p names it to them.
 * 0: ordinary memory, because the system has no huge pages for shared memory; without them reading it would
 * cost more than it saves. */
plait_status_t plait_pool_take_shown(int64_t n_bytes, void **buffer_p,
                                     uint64_t *token_p);

/* Parts of a token: the descriptor in the process that shows the memory, and the end of its inode. */
static inline int plait_token_descriptor(uint64_t token)
{
    return (int)(token & UINT32_MAX);
}

static inline uint32_t plait_token_inode(uint64_t token)
{
    return (uint32_t)(token >> 32);
}

/* Gives a buffer back to the pool; NULL is fine. */
void plait_pool_give(void *buffer);

/* Frees what is not in use; returns the bytes freed. */
int64_t plait_pool_trim(void);

#endif
