/* Virtual device memory (cuMemCreate, cuMemMap), which XLA's pool uses since jaxlib 0.11. Other processes map
 * the same allocation by a descriptor, which they take from the owner's process (pidfd_getfd; where the
 * system forbids that, no such memory is shown).
 *
 * The owner keeps a descriptor of each allocation that it has shown, and with it the allocation, until the
 * allocation is no longer at its address. A process that has opened an allocation keeps it until it is
 * dropped. */
#include "base/alloc.h"
#include "base/status.h"
#include "device/cuda_state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    PINNED = 1,        /* CU_MEM_ALLOCATION_TYPE_PINNED */
    DESCRIPTOR = 1,    /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
    DEVICE = 1,        /* CU_MEM_LOCATION_TYPE_DEVICE */
    READ_WRITE = 3,    /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
    INVALID_VALUE = 1, /* CUDA_ERROR_INVALID_VALUE: nothing is mapped there */
    MINIMUM = 0,       /* CU_MEM_ALLOC_GRANULARITY_MINIMUM */
    PIDFD_GETFD = 438  /* of all processors; older headers have no name for it */
};

/* CUmemLocation, CUmemAllocationProp, CUmemAccessDesc. */
typedef struct {
    int type, id;
} location_t;

struct plait_cu_memory_prop {
    int type, handle_types;
    location_t location;
    void *windows;
    unsigned char flags[8];
};

struct plait_cu_memory_access {
    location_t location;
    int flags;
};

_Static_assert(sizeof(plait_cu_memory_prop_t) == 32, "CUmemAllocationProp");
_Static_assert(sizeof(plait_cu_memory_access_t) == 12, "CUmemAccessDesc");

/* An allocation that was shown. While it is kept, no other has its handle. */
typedef struct plait_cuda_granted {
    plait_cu_address_t base;
    size_t n_bytes;
    plait_cu_memory_t handle;
    int fd;
    uint64_t number;
    struct plait_cuda_granted *next;
} granted_t;

/* An allocation that was mapped here. */
typedef struct plait_cuda_mapped {
    plait_cu_address_t base;
    size_t n_bytes;
    struct plait_cuda_mapped *next;
} mapped_t;

/* What other processes get in the place of a CUipcMemHandle. */
typedef struct {
    int32_t pid, fd;
    uint64_t n_bytes;
} grant_t;

_Static_assert(sizeof(grant_t) <= sizeof(plait_device_handle_t), "a handle");

/* A failure is UNSUPPORTED unless the device is lost: there is another way. */
static plait_status_t may(plait_cuda_state_t *state, int result, const char *what)
{
    plait_status_t status = plait_cuda_must(state, result, what);

    return (status != PLAIT_OK && atomic_load(&state->dead) == 0)
               ? PLAIT_ERR_UNSUPPORTED
               : status;
}

static plait_status_t can(const plait_cuda_state_t *state)
{
    plait_status_t status = PLAIT_OK;
    bool has_all = true;

#define HAS(_library, _type, _symbol, _arguments) \
    has_all = has_all && state->cuda->_symbol != NULL;
    PLAIT_CUDA_VIRTUAL_FOR_EACH(HAS)
#undef HAS
    PLAIT_CHECK(has_all, PLAIT_ERR_UNSUPPORTED,
                "CUDA device %d: the driver shows no virtual memory",
                state->device.ordinal);
done:
    return status;
}

/* ---- what is shown ---- */

/* The caller releases the handle. */
static plait_status_t handle_at(plait_cuda_state_t *state, plait_cu_address_t address,
                                plait_cu_memory_t *handle_p)
{
    plait_status_t status = PLAIT_OK;
    int result =
        state->cuda->cuMemRetainAllocationHandle(handle_p, (void *)(uintptr_t)address);

    PLAIT_CHECK(result != INVALID_VALUE, PLAIT_ERR_UNSUPPORTED,
                "CUDA device %d: memory of this allocator cannot be shown to other "
                "processes (a pool as of cuda_async)",
                state->device.ordinal);
    PLAIT_TRY(may(state, result, "finding an allocation of virtual memory"));
done:
    return status;
}

static bool is_at(plait_cuda_state_t *state, plait_cu_address_t address,
                  plait_cu_memory_t handle)
{
    plait_cu_memory_t found = 0;
    bool is_there = state->cuda->cuMemRetainAllocationHandle(
                        &found, (void *)(uintptr_t)address) == PLAIT_CU_OK;

    if (is_there) {
        (void)state->cuda->cuMemRelease(found);
    }
    return is_there && found == handle;
}

static void take_back(plait_cuda_state_t *state, granted_t *granted)
{
    (void)close(granted->fd);
    (void)state->cuda->cuMemRelease(granted->handle);
    plait_free(granted);
}

/* Takes back allocations that their allocator has unmapped since. */
static void sweep(plait_cuda_state_t *state)
{
    granted_t **place = &state->granted;

    while (*place != NULL) {
        granted_t *granted = *place;
        if (is_at(state, granted->base, granted->handle)) {
            place = &granted->next;
        } else {
            *place = granted->next;
            take_back(state, granted);
        }
    }
}

/* Takes over the handle. */
static plait_status_t grant(plait_cuda_state_t *state, plait_cu_address_t base,
                            size_t n_bytes, plait_cu_memory_t handle)
{
    plait_status_t status = PLAIT_OK;
    granted_t *granted = plait_alloc(1, sizeof(*granted));
    int fd = -1;

    PLAIT_CHECK(granted != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a descriptor");
    PLAIT_CHECK(is_at(state, base + n_bytes - 1, handle), PLAIT_ERR_UNSUPPORTED,
                "CUDA device %d: a block of several allocations of virtual memory",
                state->device.ordinal);
    PLAIT_TRY(may(state,
                  state->cuda->cuMemExportToShareableHandle(&fd, handle, DESCRIPTOR, 0),
                  "showing virtual memory to other processes"));
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    sweep(state);
    *granted = (granted_t){.base = base,
                           .n_bytes = n_bytes,
                           .handle = handle,
                           .fd = fd,
                           .number = PLAIT_CUDA_VIRTUAL | ++state->n_granted,
                           .next = state->granted};
    state->granted = granted;
    granted = NULL;
    handle = 0;
done:
    if (handle != 0) {
        (void)state->cuda->cuMemRelease(handle);
    }
    plait_free(granted);
    return status;
}

static const granted_t *find(const plait_cuda_state_t *state, plait_cu_address_t base,
                             plait_cu_memory_t handle)
{
    const granted_t *g = state->granted;

    while (g != NULL && (g->base != base || g->handle != handle)) {
        g = g->next;
    }
    return g;
}

plait_status_t plait_cuda_virtual_export(plait_cuda_state_t *state,
                                         plait_cu_address_t address, int64_t n_bytes,
                                         plait_device_shown_t *shown_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cu_address_t base = 0;
    plait_cu_memory_t handle = 0;
    const granted_t *granted = NULL;
    grant_t theirs;
    size_t n_block = 0;

    (void)pthread_mutex_lock(&state->lock);
    PLAIT_TRY(can(state));
    PLAIT_TRY(may(state, state->cuda->cuMemGetAddressRange_v2(&base, &n_block, address),
                  "finding a block of virtual memory"));
    PLAIT_CHECK((size_t)n_bytes <= n_block - (size_t)(address - base),
                PLAIT_ERR_UNSUPPORTED,
                "CUDA device %d: an array in several blocks of virtual memory",
                state->device.ordinal);
    PLAIT_TRY(handle_at(state, base, &handle));
    granted = find(state, base, handle);
    if (granted == NULL) {
        PLAIT_TRY(grant(state, base, n_block, handle));
        granted = state->granted;
    } else {
        (void)state->cuda->cuMemRelease(handle);
    }
    theirs = (grant_t){(int32_t)getpid(), granted->fd, granted->n_bytes};
    *shown_p = (plait_device_shown_t){
        .base = base, .number = granted->number, .offset = (int64_t)(address - base)};
    memcpy(&shown_p->handle, &theirs, sizeof(theirs));
done:
    (void)pthread_mutex_unlock(&state->lock);
    return status;
}

/* ---- what is mapped ---- */

static void unmap(plait_cuda_state_t *state, mapped_t *mapped)
{
    (void)state->cuda->cuMemUnmap(mapped->base, mapped->n_bytes);
    (void)state->cuda->cuMemAddressFree(mapped->base, mapped->n_bytes);
    plait_free(mapped);
}

/* Maps memory for this device, at an address of its own. */
static plait_status_t map(plait_cuda_state_t *state, plait_cu_memory_t handle,
                          size_t n_bytes, void **base_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = state->cuda;
    const plait_cu_memory_access_t access = {.location = {DEVICE, state->id},
                                             .flags = READ_WRITE};
    mapped_t *mapped = plait_alloc(1, sizeof(*mapped));
    plait_cu_address_t base = 0;
    bool is_mapped = false;

    PLAIT_CHECK(mapped != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a mapping");
    PLAIT_TRY(may(state, cuda->cuMemAddressReserve(&base, n_bytes, 0, 0, 0),
                  "reserving addresses"));
    PLAIT_TRY(may(state, cuda->cuMemMap(base, n_bytes, 0, handle, 0),
                  "mapping virtual memory"));
    is_mapped = true;
    PLAIT_TRY(may(state, cuda->cuMemSetAccess(base, n_bytes, &access, 1),
                  "reaching virtual memory"));
    (void)pthread_mutex_lock(&state->lock);
    *mapped = (mapped_t){.base = base, .n_bytes = n_bytes, .next = state->mapped};
    state->mapped = mapped;
    (void)pthread_mutex_unlock(&state->lock);
    *base_p = (void *)(uintptr_t)base;
    mapped = NULL;
    base = 0;
done:
    if (base != 0 && is_mapped) {
        (void)cuda->cuMemUnmap(base, n_bytes);
    }
    if (base != 0) {
        (void)cuda->cuMemAddressFree(base, n_bytes);
    }
    plait_free(mapped);
    return status;
}

/* A descriptor of another process, opened here; -1: the system does not give it. */
static int descriptor_of(const grant_t *grant)
{
    const int pid_fd = (int)syscall(SYS_pidfd_open, grant->pid, 0);
    int fd = -1;

    if (pid_fd >= 0) {
        fd = (int)syscall(PIDFD_GETFD, pid_fd, grant->fd, 0);
        (void)close(pid_fd);
    }
    return fd;
}

plait_status_t plait_cuda_virtual_import(plait_cuda_state_t *state,
                                         const plait_device_handle_t *handle,
                                         void **base_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cu_memory_t memory = 0;
    grant_t theirs;
    int fd = -1;

    memcpy(&theirs, handle, sizeof(theirs));
    PLAIT_TRY(can(state));
    fd = descriptor_of(&theirs);
    PLAIT_CHECK(fd >= 0, PLAIT_ERR_UNSUPPORTED,
                "CUDA device %d: process %d does not give a descriptor of its memory",
                state->device.ordinal, (int)theirs.pid);
    PLAIT_TRY(may(state,
                  state->cuda->cuMemImportFromShareableHandle(
                      &memory, (void *)(uintptr_t)fd, DESCRIPTOR),
                  "opening virtual memory of another process"));
    PLAIT_TRY(map(state, memory, (size_t)theirs.n_bytes, base_p));
done:
    if (memory != 0) { /* the mapping keeps the memory */
        (void)state->cuda->cuMemRelease(memory);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

bool plait_cuda_virtual_drop(plait_cuda_state_t *state, const void *base)
{
    mapped_t *mapped = NULL;

    (void)pthread_mutex_lock(&state->lock);
    mapped_t **place = &state->mapped;
    while (*place != NULL && (*place)->base != plait_cu_address(base)) {
        place = &(*place)->next;
    }
    mapped = *place;
    if (mapped != NULL) {
        *place = mapped->next;
    }
    (void)pthread_mutex_unlock(&state->lock);
    if (mapped != NULL) {
        unmap(state, mapped);
    }
    return mapped != NULL;
}

plait_status_t plait_cuda_virtual_take(plait_device_t *device, int64_t n_bytes,
                                       void **memory_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    const plait_cu_memory_prop_t prop = {
        .type = PINNED, .handle_types = DESCRIPTOR, .location = {DEVICE, state->id}};
    plait_cu_memory_t handle = 0;
    size_t grain = 0, n_padded = 0;

    PLAIT_TRY(can(state));
    PLAIT_TRY(may(state,
                  state->cuda->cuMemGetAllocationGranularity(&grain, &prop, MINIMUM),
                  "asking for the least of virtual memory"));
    n_padded = ((size_t)n_bytes + grain - 1) / grain * grain;
    PLAIT_TRY(may(state, state->cuda->cuMemCreate(&handle, n_padded, &prop, 0),
                  "allocating virtual memory"));
    PLAIT_TRY(map(state, handle, n_padded, memory_p));
done:
    if (handle != 0) {
        (void)state->cuda->cuMemRelease(handle);
    }
    return status;
}

void plait_cuda_virtual_give(plait_device_t *device, void *memory)
{
    (void)plait_cuda_virtual_drop(plait_cuda_state(device), memory);
}

void plait_cuda_virtual_release(plait_cuda_state_t *state)
{
    while (state->granted != NULL) {
        granted_t *granted = state->granted;

        state->granted = granted->next;
        take_back(state, granted);
    }
    while (state->mapped != NULL) {
        mapped_t *mapped = state->mapped;

        state->mapped = mapped->next;
        unmap(state, mapped);
    }
}
