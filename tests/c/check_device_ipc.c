/* Memory of a check device in other processes: the whole arena is mapped there, and a block known by
 * its number. A process may open its own handles, so that threads can stand for processes. */
#include "base/status.h"
#include "check_device_parts.h"
#include "check_device_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    int32_t pid, fd;
    int32_t index;
    uint64_t number;
    int64_t at, n_bytes;
    int64_t is_virtual;
} handle_t;

_Static_assert(sizeof(handle_t) <= sizeof(plait_device_handle_t), "a handle");

void check_device_refuse(plait_device_t *device, check_device_refusal_t refusal)
{
    lock(device);
    state_of(device)->refusal = refusal;
    unlock(device);
}

import_t *check_device_import(state_t *s, const void *memory)
{
    import_t *found = NULL;

    for (int i = 0; i < MAX_IMPORTS && found == NULL; i++) {
        import_t *import = &s->imports[i];
        const char *at = memory;
        bool is_in = import->front != NULL && at >= import->front + import->at &&
                     at < import->front + import->at + import->n_bytes;
        found = is_in ? import : NULL;
    }
    return found;
}

/* Whether a block is shown, as plain or as virtual memory. */
static bool is_shown_as(const state_t *s, const block_t *b, bool is_virtual)
{
    const bool has_virtual = s->refusal == CHECK_DEVICE_SHOWS_VIRTUAL ||
                             s->refusal == CHECK_DEVICE_OPENS_OWN;
    const bool is_plain = s->refusal == CHECK_DEVICE_SHOWS_ALL ||
                          (b->is_own && s->refusal != CHECK_DEVICE_SHOWS_NONE);

    return is_plain || (is_virtual && has_virtual);
}

plait_status_t check_device_memory_export(plait_device_t *device, const void *memory,
                                          int64_t n_bytes, bool may_be_virtual,
                                          plait_device_shown_t *shown_p)
{
    plait_status_t status = PLAIT_OK;
    state_t *s = state_of(device);
    handle_t handle = {.pid = (int32_t)getpid(), .fd = s->fd};

    PLAIT_TRY(check_device_count_call(device, "memory_export"));
    lock(device);
    const block_t *b = check_device_block(s, memory);
    bool is_shown = b != NULL && is_shown_as(s, b, may_be_virtual);
    if (is_shown) {
        handle.index = (int32_t)(b - s->blocks);
        handle.number = numbers_of(s->back)[handle.index];
        handle.at = b->at;
        handle.n_bytes = b->n_bytes;
        handle.is_virtual = !is_shown_as(s, b, false);
        *shown_p =
            (plait_device_shown_t){.base = (uint64_t)(uintptr_t)(s->front + b->at),
                                   .number = handle.number,
                                   .offset = (const char *)memory - (s->front + b->at)};
        memcpy(&shown_p->handle, &handle, sizeof(handle));
    }
    unlock(device);
    if (is_shown) {
        check_device_need_live(device, "showing", memory, n_bytes);
    }
    PLAIT_CHECK(is_shown, PLAIT_ERR_UNSUPPORTED,
                "check device %d: this memory is shown to nobody", device->ordinal);
done:
    return status;
}

/* Maps the arena of another process; the caller owns the mapping. */
static char *map_arena(const handle_t *handle)
{
    char path[64];
    char *back = MAP_FAILED;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)handle->pid,
                   (int)handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        back = mmap(NULL, (size_t)arena_and_numbers(), PROT_READ | PROT_WRITE,
                    MAP_SHARED, fd, 0);
        (void)close(fd);
    }
    return (back == MAP_FAILED) ? NULL : back;
}

plait_device_handle_t check_device_show(plait_device_t *device, const void *memory)
{
    state_t *s = state_of(device);
    handle_t handle = {.pid = (int32_t)getpid(), .fd = s->fd};
    plait_device_handle_t shown = {{0}};

    handle.at = (const char *)memory - s->front;
    memcpy(&shown, &handle, sizeof(handle));
    return shown;
}

char *check_device_open_shown(const plait_device_handle_t *handle)
{
    handle_t theirs;

    memcpy(&theirs, handle, sizeof(theirs));
    char *back = map_arena(&theirs);
    return (back == NULL) ? NULL : back + theirs.at;
}

void check_device_close_shown(const plait_device_handle_t *handle, char *view)
{
    handle_t theirs;

    memcpy(&theirs, handle, sizeof(theirs));
    (void)munmap(view - theirs.at, (size_t)arena_and_numbers());
}

plait_status_t check_device_memory_import(plait_device_t *device,
                                          const plait_device_shown_t *shown,
                                          void **base_p)
{
    plait_status_t status = PLAIT_OK;
    state_t *s = state_of(device);
    import_t *place = NULL;
    handle_t theirs;

    memcpy(&theirs, &shown->handle, sizeof(theirs));
    PLAIT_TRY(check_device_count_call(device, "memory_import"));
    PLAIT_CHECK(theirs.is_virtual == 0 || s->refusal != CHECK_DEVICE_OPENS_OWN,
                PLAIT_ERR_UNSUPPORTED, "check device %d: no virtual memory of others",
                device->ordinal);
    char *back = map_arena(&theirs);
    char *front = mmap(NULL, (size_t)arena_and_numbers(), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PLAIT_CHECK(back != NULL && front != MAP_FAILED, PLAIT_ERR_TRANSPORT,
                "check device %d: process %d does not show its memory", device->ordinal,
                (int)theirs.pid);
    lock(device);
    for (int i = 0; i < MAX_IMPORTS && place == NULL; i++) {
        place = (s->imports[i].front == NULL) ? &s->imports[i] : NULL;
    }
    if (place != NULL) {
        *place = (import_t){front,        back,          theirs.at, theirs.n_bytes,
                            theirs.index, theirs.number, 0};
    }
    unlock(device);
    PLAIT_CHECK(place != NULL, PLAIT_ERR_NO_MEMORY, "check device: too many imports");
    *base_p = front + theirs.at;
done:
    return status;
}

void check_device_memory_drop(plait_device_t *device, void *base)
{
    state_t *s = state_of(device);

    lock(device);
    import_t *import = check_device_import(s, base);
    if (import == NULL) {
        check_device_fault(device, "drop of %p", base);
    } else if (import->n_reading > 0) {
        check_device_fault(device, "drop of a block that %d copies read",
                           import->n_reading);
    } else {
        (void)munmap(import->front, (size_t)arena_and_numbers());
        (void)munmap(import->back, (size_t)arena_and_numbers());
        *import = (import_t){.front = NULL};
    }
    unlock(device);
}

plait_status_t check_device_virtual_take(plait_device_t *device, int64_t n_bytes,
                                         void **memory_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "virtual_take"));
    *memory_p = check_device_alloc(device, n_bytes);
    PLAIT_CHECK(*memory_p != NULL, PLAIT_ERR_NO_MEMORY, "check device: no memory");
done:
    return status;
}

void check_device_virtual_give(plait_device_t *device, void *memory)
{
    check_device_free(device, memory);
}

void check_device_begin_read(plait_device_t *device, const void *p, int64_t n_bytes)
{
    state_t *s = state_of(device);
    bool is_import = false;

    lock(device);
    import_t *import = check_device_import(s, p);
    if (import != NULL) {
        import->n_reading++;
        int64_t end = (const char *)p + n_bytes - (import->front + import->at);
        is_import = true;
        if (end > import->n_bytes) {
            check_device_fault(device, "%lld bytes beyond a block of another process",
                               (long long)(end - import->n_bytes));
        }
        if (numbers_of(import->back)[import->index] != import->number) {
            check_device_fault(device, "a block of another process that is no more");
        }
    }
    unlock(device);
    if (!is_import) {
        check_device_need_live(device, "copy from", p, n_bytes);
    }
}

void check_device_end_read(plait_device_t *device, const void *p)
{
    lock(device);
    import_t *import = check_device_import(state_of(device), p);
    if (import != NULL) {
        import->n_reading--;
    }
    unlock(device);
}

void check_device_count_imports(plait_device_t *device)
{
    for (int i = 0; i < MAX_IMPORTS; i++) {
        if (state_of(device)->imports[i].front != NULL) {
            check_device_fault(device, "a block of another process was not dropped");
        }
    }
}
