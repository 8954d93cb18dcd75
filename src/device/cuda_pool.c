/* Device memory and pinned memory that outlive a call. Events order the use of device memory: if a buffer is
 * taken on another stream than the one it was given back on, the new stream waits, on the device, for the
 * point where the buffer was given back. CUDA's own allocation waits for the whole device, so only the first
 * call allocates. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_state.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* CUDA takes device memory in blocks of 2 MiB and divides them into smaller ones. Other processes are always
 * shown the whole block (CUDA C++ Programming Guide, Interprocess Communication). */
enum { DEVICE_GRAIN = 2 << 20, PINNED_GRAIN = 256, WHAT_BYTES = 80 };

static char no_stream; /* its address is no stream's */

struct plait_cuda_buffer {
    void *data;
    int64_t n_bytes;
    bool is_taken;
    /* other processes may have it open: if freed, the memory would be theirs too */
    bool is_kept;
    plait_stream_t stream;  /* where it was given back ... */
    plait_cu_event_t event; /* ... and when; NULL for pinned memory */
};

/* The smallest free buffer that is large enough but not over twice as large; of two equal ones, this
 * stream's. */
static plait_cuda_buffer_t *find_fit(const plait_cuda_pool_t *pool,
                                     plait_stream_t stream, int64_t n_bytes)
{
    plait_cuda_buffer_t *best = NULL;

    for (int i = 0; i < pool->n_buffers; i++) {
        plait_cuda_buffer_t *b = &pool->buffers[i];
        bool fits = !b->is_taken && b->n_bytes >= n_bytes && b->n_bytes / 2 <= n_bytes;
        bool is_better = best == NULL || b->n_bytes < best->n_bytes ||
                         (b->n_bytes == best->n_bytes && b->stream == stream);
        best = (fits && is_better) ? b : best;
    }
    return best;
}

static plait_cuda_buffer_t *find(const plait_cuda_pool_t *pool, const void *data)
{
    plait_cuda_buffer_t *found = NULL;

    for (int i = 0; found == NULL && i < pool->n_buffers; i++) {
        found = (pool->buffers[i].data == data) ? &pool->buffers[i] : NULL;
    }
    return found;
}

static int allocate(plait_cuda_state_t *state, plait_cuda_buffer_t *b, bool is_pinned)
{
    const plait_cuda_t *cuda = state->cuda;
    plait_cu_address_t address = 0;
    int result = PLAIT_CU_OK;

    if (is_pinned) {
        result =
            cuda->cuMemHostAlloc(&b->data, (size_t)b->n_bytes, PLAIT_CU_HOST_PORTABLE);
    } else {
        result = cuda->cuEventCreate(&b->event, PLAIT_CU_EVENT_NO_TIMING);
        if (result == PLAIT_CU_OK) {
            result = cuda->cuMemAlloc_v2(&address, (size_t)b->n_bytes);
            b->data = (void *)(uintptr_t)address;
        }
    }
    return result;
}

static void release(plait_cuda_state_t *state, plait_cuda_buffer_t *b)
{
    if (b->event != NULL) {
        if (b->data != NULL) {
            (void)state->cuda->cuMemFree_v2(plait_cu_address(b->data));
        }
        (void)state->cuda->cuEventDestroy_v2(b->event);
    } else if (b->data != NULL) {
        (void)state->cuda->cuMemFreeHost(b->data);
    }
}

bool plait_cuda_keep(plait_cuda_state_t *state, const void *memory)
{
    (void)pthread_mutex_lock(&state->lock);
    plait_cuda_buffer_t *b = find(&state->memory, memory);
    if (b != NULL) {
        b->is_kept = true;
    }
    (void)pthread_mutex_unlock(&state->lock);
    return b != NULL;
}

void plait_cuda_forget_stream(plait_cuda_state_t *state, plait_stream_t stream)
{
    (void)pthread_mutex_lock(&state->lock);
    for (int i = 0; i < state->memory.n_buffers; i++) {
        plait_cuda_buffer_t *b = &state->memory.buffers[i];
        b->stream = (b->stream == stream) ? &no_stream : b->stream;
    }
    (void)pthread_mutex_unlock(&state->lock);
}

/* Frees buffers that are neither taken nor kept. CUDA waits until nothing uses them. */
static void trim(plait_cuda_state_t *state, plait_cuda_pool_t *pool)
{
    int n_kept = 0;

    for (int i = 0; i < pool->n_buffers; i++) {
        if (pool->buffers[i].is_taken || pool->buffers[i].is_kept) {
            pool->buffers[n_kept] = pool->buffers[i];
            n_kept++;
        } else {
            release(state, &pool->buffers[i]);
        }
    }
    pool->n_buffers = n_kept;
}

static bool has_room(plait_cuda_pool_t *pool)
{
    enum { FIRST_ROOM = 16 };
    int n_room = (pool->n_room == 0) ? FIRST_ROOM : 2 * pool->n_room;
    plait_cuda_buffer_t *larger = NULL;

    if (pool->n_buffers == pool->n_room) {
        larger = plait_alloc(n_room, sizeof(*larger));
    }
    if (larger != NULL) {
        if (pool->n_buffers > 0) {
            memcpy(larger, pool->buffers, (size_t)pool->n_buffers * sizeof(*larger));
        }
        plait_free(pool->buffers);
        pool->buffers = larger;
        pool->n_room = n_room;
    }
    return pool->n_buffers < pool->n_room;
}

static int64_t grain_of(const plait_cuda_state_t *state, const plait_cuda_pool_t *pool)
{
    return (pool == &state->pinned) ? PINNED_GRAIN : DEVICE_GRAIN;
}

/* The bytes of a new buffer. Freeing makes CUDA wait for the device, so nothing is freed while there is
 * memory, and a program of growing sizes would keep a buffer of each size. So if an idle buffer is nearly
 * large enough, the next power of two is taken, which fits all sizes down to its half. */
static int64_t roomy(const plait_cuda_pool_t *pool, int64_t n_bytes)
{
    bool is_growing = false;
    int64_t power = n_bytes;

    for (int i = 0; i < pool->n_buffers; i++) {
        const plait_cuda_buffer_t *b = &pool->buffers[i];
        is_growing |= !b->is_taken && b->n_bytes < n_bytes && b->n_bytes > n_bytes / 2;
    }
    if (is_growing && n_bytes <= INT64_MAX / 2) {
        for (power = 1; power < n_bytes;) {
            power *= 2;
        }
    }
    return power;
}

/* Adds a new buffer; if memory is short, idle buffers are freed for it. */
static plait_status_t add(plait_cuda_state_t *state, plait_cuda_pool_t *pool,
                          int64_t n_bytes, plait_cuda_buffer_t **buffer_p)
{
    plait_status_t status = PLAIT_OK;
    const bool is_pinned = pool == &state->pinned;
    plait_cuda_buffer_t b = {.n_bytes = roomy(pool, n_bytes)};
    char what[WHAT_BYTES];

    int result = allocate(state, &b, is_pinned);
    if (result == PLAIT_CU_NO_MEMORY) {
        release(state, &b);
        b = (plait_cuda_buffer_t){.n_bytes = n_bytes};
        trim(state, pool);
        result = allocate(state, &b, is_pinned);
    }
    (void)snprintf(what, sizeof(what), "%lld bytes of %s memory", (long long)b.n_bytes,
                   is_pinned ? "pinned" : "device");
    PLAIT_TRY(plait_cuda_must(state, result, what));
    PLAIT_CHECK(has_room(pool), PLAIT_ERR_NO_MEMORY, "no memory for a list of buffers");
    pool->buffers[pool->n_buffers] = b;
    *buffer_p = &pool->buffers[pool->n_buffers];
    pool->n_buffers++;
    b.event = NULL;
    b.data = NULL;
done:
    release(state, &b);
    return status;
}

static plait_status_t take(plait_cuda_state_t *state, plait_cuda_pool_t *pool,
                           plait_stream_t stream, int64_t n_bytes, void **data_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_buffer_t *b = NULL;

    *data_p = NULL;
    if (n_bytes == 0) {
        return PLAIT_OK;
    }
    (void)pthread_mutex_lock(&state->lock);
    n_bytes = (n_bytes + grain_of(state, pool) - 1) / grain_of(state, pool) *
              grain_of(state, pool);
    b = find_fit(pool, stream, n_bytes);
    if (b == NULL) {
        PLAIT_TRY(add(state, pool, n_bytes, &b));
    } else if (b->event != NULL && b->stream != stream) {
        PLAIT_TRY(plait_cuda_must(state,
                                  state->cuda->cuStreamWaitEvent(stream, b->event, 0),
                                  "waiting for who had the memory before"));
    }
    b->is_taken = true;
    *data_p = b->data;
done:
    (void)pthread_mutex_unlock(&state->lock);
    return status;
}

plait_status_t plait_cuda_take(plait_device_t *device, plait_stream_t stream,
                               int64_t n_bytes, void **memory_p)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    return take(state, &state->memory, stream, n_bytes, memory_p);
}

plait_status_t plait_cuda_host_take(plait_device_t *device, int64_t n_bytes,
                                    void **host_p)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    return take(state, &state->pinned, NULL, n_bytes, host_p);
}

/* If the event cannot be recorded, the device is lost, and the order with it. */
static void give(plait_cuda_state_t *state, plait_cuda_pool_t *pool,
                 plait_stream_t stream, const void *data)
{
    plait_cuda_buffer_t *b = NULL;

    if (data == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&state->lock);
    b = find(pool, data);
    if (b != NULL && b->event != NULL) {
        (void)state->cuda->cuEventRecord(b->event, stream);
        b->stream = stream;
    }
    if (b != NULL) {
        b->is_taken = false;
    }
    (void)pthread_mutex_unlock(&state->lock);
}

void plait_cuda_give(plait_device_t *device, plait_stream_t stream, void *memory)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    give(state, &state->memory, stream, memory);
}

void plait_cuda_host_give(plait_device_t *device, void *host)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    give(state, &state->pinned, NULL, host);
}

void plait_cuda_pools_release(plait_cuda_state_t *state)
{
    plait_cuda_pool_t *pools[] = {&state->memory, &state->pinned};

    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < pools[p]->n_buffers; i++) {
            release(state, &pools[p]->buffers[i]);
        }
        plait_free(pools[p]->buffers);
        *pools[p] = (plait_cuda_pool_t){.buffers = NULL};
    }
}
