/* Memory of the check device: the arena, its blocks between guards, and pinned memory. */
#include "base/status.h"
#include "check_device_parts.h"
#include "check_device_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD_BYTES = 256, GUARD = 0x6b, GIVEN = 0xdd };
/* Only touched pages count. */
const int64_t check_device_arena_bytes = INT64_C(1) << 28;

static bool is_in_arena(const state_t *s, const void *p)
{
    return (const char *)p >= s->front &&
           (const char *)p < s->front + check_device_arena_bytes;
}

void *check_device_view(const plait_device_t *device, const void *memory)
{
    state_t *s = state_of(device);
    char *base = s->back + ((const char *)memory - s->front);

    if (memory != NULL && !is_in_arena(s, memory)) {
        (void)pthread_mutex_lock(&s->mutex);
        const import_t *import = check_device_import(s, memory);
        base = (import != NULL) ? import->back + ((const char *)memory - import->front)
                                : base;
        (void)pthread_mutex_unlock(&s->mutex);
    }
    return (memory == NULL) ? NULL : base;
}

block_t *check_device_block(state_t *s, const void *memory)
{
    const int64_t at = (const char *)memory - s->front;
    block_t *found = NULL;

    for (int i = 0; i < MAX_BLOCKS && found == NULL && is_in_arena(s, memory); i++) {
        block_t *b = &s->blocks[i];
        found =
            (b->is_used && !b->is_returning && at >= b->at && at < b->at + b->n_bytes)
                ? b
                : NULL;
    }
    return found;
}

/* Under the lock: bytes [p, p + n_bytes) are in one block that was not given back. */
static bool is_live(const state_t *s, const char *p, int64_t n_bytes)
{
    bool is_live = false;

    for (int i = 0; i < MAX_BLOCKS && !is_live && is_in_arena(s, p); i++) {
        const block_t *b = &s->blocks[i];
        int64_t at = p - s->front;
        is_live = b->is_used && !b->is_returning && at >= b->at &&
                  at + n_bytes <= b->at + b->n_bytes;
    }
    return is_live;
}

void check_device_need_live(plait_device_t *device, const char *what, const void *p,
                            int64_t n_bytes)
{
    lock(device);
    if (n_bytes > 0 && !is_live(state_of(device), p, n_bytes)) {
        check_device_fault(device, "%s of %lld bytes at %p, not the device's", what,
                           (long long)n_bytes, p);
    }
    unlock(device);
}

/* Under the lock: the lowest place with so many free bytes. */
static int64_t find_room(const state_t *s, int64_t n_bytes)
{
    int64_t at = GUARD_BYTES;
    bool is_moving = true;

    while (is_moving) {
        is_moving = false;
        for (int i = 0; i < MAX_BLOCKS; i++) {
            const block_t *b = &s->blocks[i];
            if (b->is_used && at < b->at + b->n_bytes + GUARD_BYTES &&
                b->at - GUARD_BYTES < at + n_bytes) {
                at = (b->at + b->n_bytes + 2 * GUARD_BYTES - 1) / GUARD_BYTES *
                         GUARD_BYTES +
                     GUARD_BYTES;
                is_moving = true;
            }
        }
    }
    return at;
}

static block_t *block_at(state_t *s, const void *memory)
{
    block_t *found = NULL;

    for (int i = 0; i < MAX_BLOCKS && found == NULL; i++) {
        block_t *b = &s->blocks[i];
        found =
            (b->is_used && !b->is_returning && s->front + b->at == memory) ? b : NULL;
    }
    return found;
}

static void set_guards(state_t *s, const block_t *b)
{
    memset(s->back + b->at - GUARD_BYTES, GUARD, GUARD_BYTES);
    memset(s->back + b->at + b->n_bytes, GUARD, GUARD_BYTES);
}

static bool are_guards_whole(const state_t *s, const block_t *b)
{
    bool is_whole = true;

    for (int64_t i = 0; i < GUARD_BYTES; i++) {
        is_whole = is_whole && s->back[b->at - 1 - i] == GUARD &&
                   s->back[b->at + b->n_bytes + i] == GUARD;
    }
    return is_whole;
}

void *check_device_alloc(plait_device_t *device, int64_t n_bytes)
{
    state_t *s = state_of(device);
    void *memory = NULL;

    lock(device);
    for (int i = 0; i < MAX_BLOCKS && memory == NULL && n_bytes > 0; i++) {
        block_t *b = &s->blocks[i];
        int64_t at = b->is_used ? 0 : find_room(s, n_bytes);
        if (!b->is_used && at + n_bytes + GUARD_BYTES <= check_device_arena_bytes) {
            *b = (block_t){.at = at, .n_bytes = n_bytes, .is_used = true};
            numbers_of(s->back)[i] = ++s->n_blocks;
            set_guards(s, b);
            memory = s->front + at;
        }
    }
    unlock(device);
    return memory;
}

/* Under the lock. */
static void put_back(plait_device_t *device, block_t *b)
{
    state_t *s = state_of(device);

    if (!are_guards_whole(s, b)) {
        check_device_fault(device, "something was written beside %lld bytes",
                           (long long)b->n_bytes);
    }
    memset(s->back + b->at, GIVEN, (size_t)b->n_bytes);
    b->is_used = false;
    numbers_of(s->back)[b - s->blocks] = 0;
}

void check_device_free(plait_device_t *device, void *memory)
{
    lock(device);
    block_t *b = block_at(state_of(device), memory);
    if (b != NULL) {
        put_back(device, b);
    } else if (memory != NULL) {
        check_device_fault(device, "free of %p", memory);
    }
    unlock(device);
}

plait_status_t check_device_host_take(plait_device_t *device, int64_t n_bytes,
                                      void **host_p)
{
    plait_status_t status = PLAIT_OK;
    state_t *s = state_of(device);
    pinned_t *found = NULL;

    PLAIT_TRY(check_device_count_call(device, "host_take"));
    lock(device);
    for (int i = 0; i < MAX_PINNED && found == NULL; i++) {
        pinned_t *p = &s->pinned[i];
        found = (!p->is_used && p->n_bytes == n_bytes) ? p : NULL;
    }
    for (int i = 0; i < MAX_PINNED && found == NULL; i++) {
        pinned_t *p = &s->pinned[i];
        found = (p->data == NULL) ? p : NULL;
    }
    if (found != NULL && found->data == NULL) {
        *found = (pinned_t){.data = malloc((size_t)n_bytes), .n_bytes = n_bytes};
    }
    if (found != NULL) {
        found->is_used = true;
        *host_p = found->data;
    }
    unlock(device);
    PLAIT_CHECK(found != NULL && found->data != NULL, PLAIT_ERR_NO_MEMORY,
                "check device: no pinned memory");
done:
    return status;
}

/* The memory is overwritten but not freed: copies under way may still read or write it. */
void check_device_host_give(plait_device_t *device, void *host)
{
    state_t *s = state_of(device);
    bool is_known = host == NULL;

    lock(device);
    for (int i = 0; i < MAX_PINNED; i++) {
        pinned_t *p = &s->pinned[i];
        if (p->is_used && p->data == host) {
            memset(p->data, GIVEN, (size_t)p->n_bytes);
            p->is_used = false;
            is_known = true;
        }
    }
    if (!is_known) {
        check_device_fault(device, "host_give of %p", host);
    }
    unlock(device);
}

void check_device_need_pinned(plait_device_t *device, const void *host, int64_t n_bytes)
{
    const state_t *s = state_of(device);
    bool is_pinned = n_bytes == 0;

    lock(device);
    for (int i = 0; i < MAX_PINNED && !is_pinned; i++) {
        const pinned_t *p = &s->pinned[i];
        const char *at = host;
        is_pinned = p->is_used && at >= p->data && at + n_bytes <= p->data + p->n_bytes;
    }
    if (!is_pinned) {
        check_device_fault(device, "a copy with host memory that is not pinned");
    }
    unlock(device);
}

plait_status_t check_device_take(plait_device_t *device, plait_stream_t stream,
                                 int64_t n_bytes, void **memory_p)
{
    plait_status_t status = PLAIT_OK;

    (void)stream;
    PLAIT_TRY(check_device_count_call(device, "take"));
    *memory_p = check_device_alloc(device, n_bytes);
    PLAIT_CHECK(*memory_p != NULL, PLAIT_ERR_NO_MEMORY, "check device: no memory");
    lock(device);
    check_device_block(state_of(device), *memory_p)->is_own = true;
    unlock(device);
done:
    return status;
}

static void run_put_back(plait_device_t *device, void *argument)
{
    block_t *b = *(block_t **)argument;

    lock(device);
    put_back(device, b);
    unlock(device);
}

void check_device_give(plait_device_t *device, plait_stream_t stream, void *memory)
{
    lock(device);
    block_t *b = block_at(state_of(device), memory);
    if (b == NULL) {
        check_device_fault(device, "give of %p", memory);
    } else {
        b->is_returning = true;
    }
    unlock(device);
    if (b != NULL) {
        check_device_enqueue(stream, run_put_back, &b, sizeof(b));
    }
}

/* Maps the two views of the memory. */
void check_device_map(state_t *s)
{
    const size_t n = (size_t)arena_and_numbers();

    s->fd = memfd_create("plait check device", MFD_CLOEXEC);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)n) != 0) {
        abort();
    }
    s->front = mmap(NULL, n, PROT_NONE, MAP_SHARED, s->fd, 0);
    s->back = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->front == MAP_FAILED || s->back == MAP_FAILED) {
        abort();
    }
}

void check_device_open(plait_device_t *device, const void *memory, int64_t n_bytes,
                       bool is_open)
{
    const state_t *s = state_of(device);
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t at = (const char *)memory - s->front;
    const int64_t first = at / page * page;
    const int64_t end = (at + n_bytes + page - 1) / page * page;

    if (n_bytes > 0 && is_in_arena(s, memory) &&
        mprotect(s->front + first, (size_t)(end - first),
                 is_open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
        abort();
    }
}

void check_device_unmap(state_t *s)
{
    for (int i = 0; i < MAX_PINNED; i++) {
        free(s->pinned[i].data);
    }
    (void)munmap(s->front, (size_t)arena_and_numbers());
    (void)munmap(s->back, (size_t)arena_and_numbers());
    (void)close(s->fd);
}

void check_device_count_memory(plait_device_t *device)
{
    const state_t *s = state_of(device);

    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (s->blocks[i].is_used) {
            check_device_fault(device, "%lld bytes were not given back",
                               (long long)s->blocks[i].n_bytes);
        }
    }
    for (int i = 0; i < MAX_PINNED; i++) {
        if (s->pinned[i].is_used) {
            check_device_fault(device, "%lld pinned bytes were not given back",
                               (long long)s->pinned[i].n_bytes);
        }
    }
}
