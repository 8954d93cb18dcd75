/* Memory and events of a CUDA device for use by other processes of the node: memory from cuMemAlloc, virtual
 * memory (cuda_virtual.c), and events. Handles are passed by value: their size is part of the ABI. */
#include "base/alloc.h"
#include "base/status.h"
#include "device/cuda_state.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    BUFFER_ID = 7,        /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    LEGACY_CAPABLE = 10,  /* CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE */
    LAZY_PEER_ACCESS = 1, /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
    INTERPROCESS = 4,     /* CU_EVENT_INTERPROCESS */
    GRAIN = 512           /* allocators pad requests to this, or to less */
};

_Static_assert(sizeof(plait_cu_ipc_t) == sizeof(plait_device_handle_t), "a handle");

/* Whether the block is not freed while others have it open, which CUDA leaves undefined. Blocks of plait's own
 * and pools of allocators are not. A block that one array fills is freed with the array; an environment
 * variable of XLA says whether all arrays have such blocks. */
static bool is_lasting(plait_cuda_state_t *state, plait_cu_address_t base,
                       size_t n_block, plait_cu_address_t address, int64_t n_bytes)
{
    const char *allocator = getenv("XLA_PYTHON_CLIENT_ALLOCATOR");
    bool is_by_array = allocator != NULL && (strcasecmp(allocator, "platform") == 0 ||
                                             strcasecmp(allocator, "address") == 0);
    bool is_whole = address == base && (size_t)n_bytes + GRAIN > n_block;

    return plait_cuda_keep(state, (const void *)(uintptr_t)base) ||
           !(is_by_array || is_whole);
}

/* The driver's handle, which depends on base and number alone. */
static plait_status_t handle_of(plait_cuda_state_t *state, plait_cu_address_t base,
                                uint64_t number, plait_cu_ipc_t *handle_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_handed_t *h = NULL;

    (void)pthread_mutex_lock(&state->lock);
    for (int i = 0; i < PLAIT_CUDA_HANDED && h == NULL; i++) {
        bool is_it = state->handed[i].base == base && state->handed[i].number == number;
        h = is_it ? &state->handed[i] : NULL;
    }
    if (h == NULL) {
        h = &state->handed[state->n_handed % PLAIT_CUDA_HANDED];
        *h = (plait_cuda_handed_t){.base = 0};
        PLAIT_TRY(plait_cuda_must(state,
                                  state->cuda->cuIpcGetMemHandle(&h->handle, base),
                                  "showing memory to other processes"));
        h->base = base;
        h->number = number;
        state->n_handed++;
    }
    *handle_p = h->handle;
done:
    (void)pthread_mutex_unlock(&state->lock);
    return status;
}

plait_status_t plait_cuda_memory_export(plait_device_t *device, const void *memory,
                                        int64_t n_bytes, bool may_be_virtual,
                                        plait_device_shown_t *shown_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    const plait_cu_address_t address = plait_cu_address(memory);
    plait_device_shown_t shown = {.offset = 0};
    plait_cu_ipc_t handle;
    unsigned long long number = 0;
    size_t n_block = 0;
    int is_capable = 0;

    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuPointerGetAttribute(&is_capable, LEGACY_CAPABLE, address),
        "asking whether memory can be shown to other processes"));
    if (is_capable == 0 && may_be_virtual) {
        PLAIT_TRY(plait_cuda_virtual_export(state, address, n_bytes, shown_p));
        goto done;
    }
    PLAIT_CHECK(is_capable != 0, PLAIT_ERR_UNSUPPORTED,
                "CUDA device %d: memory of this allocator cannot be shown to other "
                "processes (virtual memory, or a pool as of cuda_async)",
                device->ordinal);
    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuMemGetAddressRange_v2(&shown.base, &n_block, address),
        "finding a block of memory"));
    PLAIT_CHECK(is_lasting(state, shown.base, n_block, address, n_bytes),
                PLAIT_ERR_UNSUPPORTED,
                "CUDA device %d: an array with a block of memory of its own, which its "
                "allocator may free while other processes have it open",
                device->ordinal);
    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuPointerGetAttribute(&number, BUFFER_ID, address),
        "asking for the number of a block of memory"));
    PLAIT_TRY(handle_of(state, shown.base, number, &handle));
    memcpy(&shown.handle, &handle, sizeof(handle));
    shown.number = number;
    shown.offset = (int64_t)(address - shown.base);
    *shown_p = shown;
done:
    return status;
}

plait_status_t plait_cuda_memory_import(plait_device_t *device,
                                        const plait_device_shown_t *shown,
                                        void **base_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    plait_cu_address_t base = 0;
    plait_cu_ipc_t theirs;

    if ((shown->number & PLAIT_CUDA_VIRTUAL) != 0) {
        PLAIT_TRY(plait_cuda_virtual_import(state, &shown->handle, base_p));
        goto done;
    }
    memcpy(&theirs, &shown->handle, sizeof(theirs));
    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuIpcOpenMemHandle_v2(&base, theirs, LAZY_PEER_ACCESS),
        "opening memory of another process"));
    *base_p = (void *)(uintptr_t)base;
done:
    return status;
}

void plait_cuda_memory_drop(plait_device_t *device, void *base)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    if (!plait_cuda_virtual_drop(state, base)) {
        (void)state->cuda->cuIpcCloseMemHandle(plait_cu_address(base));
    }
}

/* CUDA does not say what happens to a process that uses an event after its owner has destroyed it, and the
 * owner does not see when others are done with it. So the event is kept as long as the device. */
struct plait_cuda_shown {
    plait_cu_event_t event;
    plait_cuda_shown_t *next;
};

plait_status_t plait_cuda_event_export(plait_device_t *device, plait_event_t **event_p,
                                       plait_device_handle_t *handle_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    plait_cuda_shown_t *shown = plait_alloc(1, sizeof(*shown));
    plait_cu_event_t event = NULL;
    plait_cu_ipc_t handle;

    PLAIT_CHECK(shown != NULL, PLAIT_ERR_NO_MEMORY, "no memory for an event");
    PLAIT_TRY(plait_cuda_must(
        state,
        state->cuda->cuEventCreate(&event, PLAIT_CU_EVENT_NO_TIMING | INTERPROCESS),
        "making an event for other processes"));
    PLAIT_TRY(plait_cuda_must(state, state->cuda->cuIpcGetEventHandle(&handle, event),
                              "showing an event to other processes"));
    memcpy(handle_p, &handle, sizeof(handle));
    *event_p = (plait_event_t *)(void *)event;
    (void)pthread_mutex_lock(&state->lock);
    *shown = (plait_cuda_shown_t){.event = event, .next = state->shown};
    state->shown = shown;
    (void)pthread_mutex_unlock(&state->lock);
    event = NULL;
    shown = NULL;
done:
    if (event != NULL) {
        (void)state->cuda->cuEventDestroy_v2(event);
    }
    plait_free(shown);
    return status;
}

bool plait_cuda_event_is_shown(plait_cuda_state_t *state, const plait_event_t *event)
{
    bool is_shown = false;

    (void)pthread_mutex_lock(&state->lock);
    for (const plait_cuda_shown_t *s = state->shown; s != NULL && !is_shown;
         s = s->next) {
        is_shown = (const void *)s->event == (const void *)event;
    }
    (void)pthread_mutex_unlock(&state->lock);
    return is_shown;
}

void plait_cuda_shown_release(plait_cuda_state_t *state)
{
    while (state->shown != NULL) {
        plait_cuda_shown_t *shown = state->shown;

        state->shown = shown->next;
        (void)state->cuda->cuEventDestroy_v2(shown->event);
        plait_free(shown);
    }
}

plait_status_t plait_cuda_event_import(plait_device_t *device,
                                       const plait_device_handle_t *handle,
                                       plait_event_t **event_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    plait_cu_event_t event = NULL;
    plait_cu_ipc_t theirs;

    memcpy(&theirs, handle, sizeof(theirs));
    PLAIT_TRY(plait_cuda_must(state, state->cuda->cuIpcOpenEventHandle(&event, theirs),
                              "opening an event of another process"));
    *event_p = (plait_event_t *)(void *)event;
done:
    return status;
}
