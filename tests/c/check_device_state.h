/* The state that the files of the check device share, all of it under one mutex. */
#ifndef PLAIT_TESTS_CHECK_DEVICE_STATE_H
#define PLAIT_TESTS_CHECK_DEVICE_STATE_H

#include "check_device.h"

#include <pthread.h>

enum { MAX_BLOCKS = 512, MAX_PINNED = 64, MAX_IMPORTS = 512, N_MARKS = 1 << 18 };

typedef struct {
    int64_t at, n_bytes;        /* without guards */
    bool is_used, is_returning; /* given back, in the order of a stream */
    bool is_own;                /* plait has taken it */
} block_t;

/* A block of another process, or of this process as if it were another. */
typedef struct {
    char *front, *back; /* that device's whole arena, mapped here; NULL: free */
    int64_t at, n_bytes;
    int index;
    uint64_t number;
    int n_reading; /* copies that are enqueued and read it */
} import_t;

typedef struct {
    char *data;
    int64_t n_bytes;
    bool is_used;
} pinned_t;

typedef struct stream stream_t;

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a stream is idle, an event has come */
    char *front, *back;     /* the arena, as the library and as the device sees it */
    int fd;                 /* of the arena, for other processes */
    block_t blocks[MAX_BLOCKS];
    import_t imports[MAX_IMPORTS];
    uint64_t n_blocks; /* so far */
    check_device_refusal_t refusal;
    pinned_t pinned[MAX_PINNED];
    uint64_t marks[N_MARKS];            /* a hash table; 0: free */
    int n_streams, n_events, n_pending; /* n_pending: work on all streams */
    stream_t *own;
    check_device_counts_t counts;
    int64_t n_until_failure;
    bool is_dying, is_dead;
    int n_faults;
    int driver;
} state_t;

static inline state_t *state_of(const plait_device_t *device)
{
    return device->state;
}

static inline void lock(plait_device_t *device)
{
    (void)pthread_mutex_lock(&state_of(device)->mutex);
}

static inline void unlock(plait_device_t *device)
{
    (void)pthread_mutex_unlock(&state_of(device)->mutex);
}

/* The arena, followed by the blocks' numbers: 0 where there is no block. */
extern const int64_t check_device_arena_bytes;
static inline int64_t arena_and_numbers(void)
{
    return check_device_arena_bytes + MAX_BLOCKS * (int64_t)sizeof(uint64_t);
}
static inline uint64_t *numbers_of(char *back)
{
    return (uint64_t *)(void *)(back + check_device_arena_bytes);
}

/* Under the lock: the block with this address, or NULL. */
block_t *check_device_block(state_t *s, const void *memory);
/* Under the lock: the import with this address, or NULL. */
import_t *check_device_import(state_t *s, const void *memory);
/* Counts a fault for every import that was not dropped. */
void check_device_count_imports(plait_device_t *device);

void check_device_map(state_t *s);
void check_device_unmap(state_t *s);
/* Counts a fault for everything that was not given back. */
void check_device_count_memory(plait_device_t *device);

stream_t *check_device_stream_start(plait_device_t *device);
void check_device_stream_stop(stream_t *stream); /* when all is done on it */

#endif
