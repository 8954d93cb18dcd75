/* A CUDA driver on the host, for tests of what calls it: memory is the host's, every call is done at
 * once, and kernels are those of fake_cuda_kernels.c. */
#include "device/cuda/params.h"
#include "fake_cuda.h"
#include "fake_cuda_kernels.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = 2, NO_IMAGE = 200, NOT_FOUND = 500, LAUNCH_FAILED = 719 };

/* ---- Failures ------------------------------------------------------------------------------- */

static int fail_result, fail_after = -1; /* calls until it begins; -1: never */
static char fail_name[64];
static bool is_failing;

/* Read when the device is made; each function asks for itself. */
static void plan_failure(void)
{
    const char *text = getenv("PLAIT_FAKE_FAIL");

    is_failing = false;
    fail_after = -1;
    if (text != NULL &&
        sscanf(text, "%63[^:]:%d:%d", fail_name, &fail_result, &fail_after) != 3) {
        fail_after = -1;
    }
}

static int result_of(const char *name)
{
    if (fail_after >= 0 && !is_failing && strcmp(name, fail_name) == 0) {
        is_failing = fail_after == 0;
        fail_after--;
    }
    return is_failing ? fail_result : PLAIT_CU_OK;
}

#define MAY_FAIL                          \
    do {                                  \
        int result = result_of(__func__); \
        if (result != PLAIT_CU_OK) {      \
            return result;                \
        }                                 \
    } while (0)

/* ---- Device and context --------------------------------------------------------------------- */

enum { CAPABILITY = 90 };

enum { MAX_DEVICES = 8, NOT_ENABLED = 705, ALREADY_ENABLED = 704, TOO_MANY = 711 };

static int n_current;
static char contexts[MAX_DEVICES];
static bool is_enabled[MAX_DEVICES][MAX_DEVICES]; /* by device and peer */
static int current[64];

int cuInit(unsigned flags)
{
    (void)flags;
    plan_failure();
    return number_of_environment("PLAIT_FAKE_INIT", 0);
}

int cuDriverGetVersion(int *version)
{
    *version = number_of_environment("PLAIT_FAKE_DRIVER", 13000);
    return 0;
}

int cuGetErrorName(int result, const char **name)
{
    *name = (result == 700)             ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : (result == OUT_OF_MEMORY) ? "CUDA_ERROR_OUT_OF_MEMORY"
            : (result == 100)           ? "CUDA_ERROR_NO_DEVICE"
                                        : "CUDA_ERROR";
    return 0;
}

int cuGetErrorString(int result, const char **text)
{
    (void)result;
    *text = "a failure that was ordered";
    return 0;
}

int cuDeviceGet(plait_cu_device_t *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDeviceGetCount(int *n_devices)
{
    *n_devices = number_of_environment("PLAIT_FAKE_DEVICES", 1);
    return 0;
}

int cuDeviceGetName(char *name, int n, plait_cu_device_t device)
{
    (void)device;
    (void)snprintf(name, (size_t)n, "stand-in");
    return 0;
}

int cuDeviceTotalMem_v2(size_t *n, plait_cu_device_t device)
{
    (void)device;
    *n = (size_t)1 << 30;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, plait_cu_device_t device)
{
    (void)device;
    *value = (attribute == PLAIT_CU_MAJOR)   ? CAPABILITY / 10
             : (attribute == PLAIT_CU_MINOR) ? CAPABILITY % 10
                                             : 0;
    return 0;
}

int cuDevicePrimaryCtxRetain(plait_cu_context_t *context, plait_cu_device_t device)
{
    *context = (plait_cu_context_t)(void *)&contexts[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(plait_cu_device_t device)
{
    (void)device;
    return 0;
}

int cuCtxPushCurrent_v2(plait_cu_context_t context)
{
    MAY_FAIL;
    current[n_current] = (int)((char *)(void *)context - contexts);
    n_current++;
    return 0;
}

int cuCtxPopCurrent_v2(plait_cu_context_t *context)
{
    *context = NULL;
    n_current--;
    return 0;
}

/* For the stand-in of cuSolverMg, which makes another device current in the place of the one that is,
 * and for the tests: which one that is (-1: none), how many are below it, what reaches what, and
 * how often a device was waited for. */
void fake_cuda_set_current(int device);
int fake_cuda_current(void);
int fake_cuda_n_current(void);
int fake_cuda_is_enabled(int device, int peer);
int fake_cuda_n_synchronized(void);
static int n_synchronized;

void fake_cuda_set_current(int device)
{
    n_current += n_current == 0;
    current[n_current - 1] = device;
}

int fake_cuda_current(void)
{
    return (n_current > 0) ? current[n_current - 1] : -1;
}

int fake_cuda_n_current(void)
{
    return n_current;
}

int fake_cuda_is_enabled(int device, int peer)
{
    return device == peer || is_enabled[device][peer];
}

int fake_cuda_n_synchronized(void)
{
    return n_synchronized;
}

/* Without a current context nothing works. */
enum { INVALID_CONTEXT = 201 };
#define NEEDS_CONTEXT               \
    do {                            \
        MAY_FAIL;                   \
        if (n_current <= 0) {       \
            return INVALID_CONTEXT; \
        }                           \
    } while (0)

int cuCtxSynchronize(void)
{
    NEEDS_CONTEXT;
    n_synchronized++;
    return 0;
}

/* ---- Memory --------------------------------------------------------------------------------- */

enum { ALIGNMENT = 256 };

static void *allocate(size_t n)
{
    return aligned_alloc(ALIGNMENT, (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

/* PLAIT_FAKE_HIDDEN=1: an address of the device is none of the host. */
static plait_cu_address_t hiding(void)
{
    return (plait_cu_address_t)number_of_environment("PLAIT_FAKE_HIDDEN", 0) << 46;
}

static void *memory_of(plait_cu_address_t address)
{
    return (void *)(uintptr_t)(address ^ hiding());
}

/* Blocks that there are; the number of one is never another's. */
enum { MAX_BLOCKS = 4096 };

static struct {
    plait_cu_address_t base;
    size_t n;
    unsigned long long number;
    bool is_shown;
    plait_cu_memory_t virtual; /* what was mapped there; 0: nothing */
} blocks[MAX_BLOCKS];

static int block_of(plait_cu_address_t memory)
{
    int found = -1;

    for (int i = 0; i < MAX_BLOCKS && found < 0; i++) {
        bool is_in = blocks[i].n > 0 && memory >= blocks[i].base &&
                     memory < blocks[i].base + blocks[i].n;
        found = is_in ? i : found;
    }
    return found;
}

static void add_block(plait_cu_address_t base, size_t n, plait_cu_memory_t virtual)
{
    static unsigned long long n_ever;
    int i = 0;

    while (i < MAX_BLOCKS && blocks[i].n > 0) {
        i++;
    }
    if (i < MAX_BLOCKS) {
        blocks[i].base = base;
        blocks[i].n = n;
        blocks[i].number = ++n_ever;
        blocks[i].is_shown = false;
        blocks[i].virtual = virtual;
    }
}

int cuMemAlloc_v2(plait_cu_address_t *memory, size_t n)
{
    void *allocated = NULL;

    NEEDS_CONTEXT;
    allocated = allocate(n);
    *memory = (plait_cu_address_t)(uintptr_t)allocated ^ hiding();
    if (allocated != NULL) {
        add_block(*memory, n, 0);
    }
    return (allocated != NULL) ? 0 : OUT_OF_MEMORY;
}

/* How often memory was freed that other processes may have; for the tests. */
int fake_cuda_n_lost(void);
static int n_lost;

int fake_cuda_n_lost(void)
{
    return n_lost;
}

int cuMemFree_v2(plait_cu_address_t memory)
{
    int i = block_of(memory);

    if (i >= 0) {
        n_lost += blocks[i].is_shown;
        blocks[i].n = 0;
    }
    free(memory_of(memory));
    return 0;
}

/* PLAIT_FAKE_FORGIVES=1: memory of a device that has failed, for which nothing is called any more, goes
 * with the driver. */
__attribute__((destructor)) static void free_blocks(void)
{
    for (int i = 0; i < MAX_BLOCKS && number_of_environment("PLAIT_FAKE_FORGIVES", 0);
         i++) {
        if (blocks[i].n > 0) {
            free(memory_of(blocks[i].base));
        }
    }
}

/* ---- Other processes: this one, for which a handle is the address in it ---- */

enum { BUFFER_ID = 7, LEGACY_CAPABLE = 10, INVALID_VALUE = 1, INVALID_HANDLE = 400 };

int cuPointerGetAttribute(void *value, int attribute, plait_cu_address_t memory)
{
    int i = block_of(memory);

    NEEDS_CONTEXT;
    if (i < 0) {
        return INVALID_VALUE;
    }
    if (attribute == LEGACY_CAPABLE) {
        *(int *)value = blocks[i].virtual == 0 &&
                        number_of_environment("PLAIT_FAKE_IPC", 1) != 0;
    } else if (attribute == BUFFER_ID) {
        *(unsigned long long *)value = blocks[i].number;
    }
    return 0;
}

/* PLAIT_FAKE_WIDE=n: a block seems to go on for so many bytes, as where others are mapped behind it. */
int cuMemGetAddressRange_v2(plait_cu_address_t *base, size_t *n,
                            plait_cu_address_t memory)
{
    int i = block_of(memory);

    NEEDS_CONTEXT;
    if (i < 0) {
        return INVALID_VALUE;
    }
    *base = blocks[i].base;
    *n = blocks[i].n + (size_t)number_of_environment("PLAIT_FAKE_WIDE", 0);
    return 0;
}

int cuIpcGetMemHandle(plait_cu_ipc_t *handle, plait_cu_address_t base)
{
    int i = block_of(base);

    NEEDS_CONTEXT;
    if (i < 0 || blocks[i].base != base) {
        return INVALID_VALUE;
    }
    blocks[i].is_shown = true;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &base, sizeof(base));
    return 0;
}

int cuIpcOpenMemHandle_v2(plait_cu_address_t *base, plait_cu_ipc_t handle,
                          unsigned flags)
{
    NEEDS_CONTEXT;
    memcpy(base, &handle, sizeof(*base));
    return (flags == 1 && block_of(*base) >= 0) ? 0 : INVALID_VALUE;
}

int cuIpcCloseMemHandle(plait_cu_address_t base)
{
    return (block_of(base) >= 0) ? 0 : INVALID_VALUE;
}

/* An event is its flags; one of another process is that one's, which it needs. */
typedef struct event {
    unsigned flags;
    bool is_shown, is_destroyed;
    struct event *owners, *next;
} event_t;

static event_t *event_of(plait_cu_event_t event)
{
    return (event_t *)(void *)event;
}

/* What is done with the event of another process after that has destroyed it is undefined; here an error. */
static int use_of(plait_cu_event_t event)
{
    const event_t *e = event_of(event);

    return (e->owners != NULL && e->owners->is_destroyed) ? INVALID_HANDLE : 0;
}

int cuIpcGetEventHandle(plait_cu_ipc_t *handle, plait_cu_event_t event)
{
    NEEDS_CONTEXT;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, (const void *)&event, sizeof(event));
    event_of(event)->is_shown = true;
    return (event_of(event)->flags == 6) ? 0 : INVALID_VALUE; /* made for it */
}

int cuIpcOpenEventHandle(plait_cu_event_t *event, plait_cu_ipc_t handle)
{
    event_t *made = NULL;

    NEEDS_CONTEXT;
    made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return OUT_OF_MEMORY;
    }
    memcpy((void *)&made->owners, &handle, sizeof(made->owners));
    *event = (plait_cu_event_t)(void *)made;
    return 0;
}

/* ---- Virtual memory: files without names, mapped where addresses were reserved ---- */

#ifndef PLAIT_FAKE_OLD /* a driver that has none */

enum { GRAIN = 1 << 16 };

/* By its address a handle. */
typedef struct {
    int fd;
    size_t n;
    int n_held; /* by who has the handle, and by mappings */
} physical_t;

/* How many there are; for the tests. */
int fake_cuda_n_physical(void);
static int n_physical;

int fake_cuda_n_physical(void)
{
    return n_physical;
}

static physical_t *physical_of(plait_cu_memory_t handle)
{
    return (physical_t *)(uintptr_t)handle;
}

static void hold(plait_cu_memory_t handle, int n)
{
    physical_t *p = physical_of(handle);

    p->n_held += n;
    if (p->n_held == 0) {
        (void)close(p->fd);
        free(p);
        n_physical--;
    }
}

/* Takes the file. */
static plait_cu_memory_t physical(int fd, size_t n)
{
    physical_t *p = malloc(sizeof(*p));

    *p = (physical_t){.fd = fd, .n = n, .n_held = 1};
    n_physical++;
    return (plait_cu_memory_t)(uintptr_t)p;
}

int cuMemGetAllocationGranularity(size_t *grain, const plait_cu_memory_prop_t *prop,
                                  int option)
{
    NEEDS_CONTEXT;
    (void)prop;
    *grain = GRAIN;
    return (option == 0) ? 0 : INVALID_VALUE;
}

int cuMemCreate(plait_cu_memory_t *memory, size_t n, const plait_cu_memory_prop_t *prop,
                unsigned long long flags)
{
    static const int of_device[] = {1, 1, 1,
                                    0}; /* pinned, by descriptors, on device 0 */
    int fd = -1;

    NEEDS_CONTEXT;
    if (n % GRAIN != 0 || flags != 0 ||
        memcmp((const void *)prop, of_device, sizeof(of_device)) != 0) {
        return INVALID_VALUE;
    }
    fd = memfd_create("stand-in", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)n) != 0) {
        return OUT_OF_MEMORY;
    }
    *memory = physical(fd, n);
    return 0;
}

int cuMemRelease(plait_cu_memory_t memory)
{
    hold(memory, -1);
    return 0;
}

int cuMemRetainAllocationHandle(plait_cu_memory_t *memory, void *address)
{
    int i = block_of((plait_cu_address_t)(uintptr_t)address);

    NEEDS_CONTEXT;
    if (i < 0 || blocks[i].virtual == 0) {
        return INVALID_VALUE;
    }
    *memory = blocks[i].virtual;
    hold(*memory, 1);
    return 0;
}

int cuMemExportToShareableHandle(void *handle, plait_cu_memory_t memory, int type,
                                 unsigned long long flags)
{
    int fd = -1;

    NEEDS_CONTEXT;
    if (type != 1 || flags != 0) {
        return INVALID_VALUE;
    }
    fd = dup(physical_of(memory)->fd);
    memcpy(handle, &fd, sizeof(fd));
    return (fd >= 0) ? 0 : OUT_OF_MEMORY;
}

int cuMemImportFromShareableHandle(plait_cu_memory_t *memory, void *handle, int type)
{
    struct stat file;

    NEEDS_CONTEXT;
    if (type != 1 || fstat((int)(uintptr_t)handle, &file) != 0) {
        return INVALID_VALUE;
    }
    *memory = physical(dup((int)(uintptr_t)handle), (size_t)file.st_size);
    return 0;
}

int cuMemAddressReserve(plait_cu_address_t *base, size_t n, size_t alignment,
                        plait_cu_address_t wish, unsigned long long flags)
{
    void *here = NULL;

    NEEDS_CONTEXT;
    (void)alignment;
    (void)wish;
    here = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *base = (plait_cu_address_t)(uintptr_t)here ^ hiding();
    return (here != MAP_FAILED && flags == 0) ? 0 : OUT_OF_MEMORY;
}

int cuMemAddressFree(plait_cu_address_t base, size_t n)
{
    return (munmap(memory_of(base), n) == 0) ? 0 : INVALID_VALUE;
}

/* What is mapped cannot be reached yet. */
int cuMemMap(plait_cu_address_t base, size_t n, size_t offset, plait_cu_memory_t memory,
             unsigned long long flags)
{
    const physical_t *p = physical_of(memory);
    void *here = memory_of(base);

    NEEDS_CONTEXT;
    if (offset != 0 || flags != 0 || n > p->n || n % GRAIN != 0 ||
        mmap(here, n, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, 0) != here) {
        return INVALID_VALUE;
    }
    hold(memory, 1);
    add_block(base, n, memory);
    return 0;
}

int cuMemUnmap(plait_cu_address_t base, size_t n)
{
    int i = block_of(base);

    if (i < 0 || blocks[i].virtual == 0 || blocks[i].base != base || blocks[i].n != n) {
        return INVALID_VALUE;
    }
    hold(blocks[i].virtual, -1);
    blocks[i].n = 0;
    (void)mmap(memory_of(base), n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0);
    return 0;
}

int cuMemSetAccess(plait_cu_address_t base, size_t n,
                   const plait_cu_memory_access_t *access, size_t n_access)
{
    static const int of_device[] = {1, 0, 3}; /* device 0, to read and write */

    NEEDS_CONTEXT;
    if (n_access != 1 ||
        memcmp((const void *)access, of_device, sizeof(of_device)) != 0) {
        return INVALID_VALUE;
    }
    return (mprotect(memory_of(base), n, PROT_READ | PROT_WRITE) == 0) ? 0
                                                                       : INVALID_VALUE;
}

#endif

int cuMemHostAlloc(void **host, size_t n, unsigned flags)
{
    NEEDS_CONTEXT;
    (void)flags;
    *host = allocate(n);
    return (*host != NULL) ? 0 : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *host)
{
    free(host);
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *dst, plait_cu_address_t src, size_t n,
                         plait_cu_stream_t stream)
{
    NEEDS_CONTEXT;
    (void)stream;
    memcpy(dst, memory_of(src), n);
    ((char *)dst)[n - 1] ^= (char)number_of_environment("PLAIT_FAKE_WRONG", 0);
    return 0;
}

int cuMemcpyHtoDAsync_v2(plait_cu_address_t dst, const void *src, size_t n,
                         plait_cu_stream_t stream)
{
    NEEDS_CONTEXT;
    (void)stream;
    memcpy(memory_of(dst), src, n);
    return 0;
}

int cuMemcpyDtoDAsync_v2(plait_cu_address_t dst, plait_cu_address_t src, size_t n,
                         plait_cu_stream_t stream)
{
    NEEDS_CONTEXT;
    (void)stream;
    memmove(memory_of(dst), memory_of(src), n);
    return 0;
}

/* All pairs but those of device 2 reach each other. */
int cuDeviceCanAccessPeer(int *can, plait_cu_device_t device, plait_cu_device_t peer)
{
    NEEDS_CONTEXT;
    *can = device != 2 && peer != 2;
    return 0;
}

/* PLAIT_FAKE_PEERS=n: no device may reach more than n others. */
static bool is_full(int device)
{
    int n = 0;

    for (int peer = 0; peer < MAX_DEVICES; peer++) {
        n += is_enabled[device][peer];
    }
    return n >= number_of_environment("PLAIT_FAKE_PEERS", MAX_DEVICES);
}

int cuCtxEnablePeerAccess(plait_cu_context_t peer, unsigned flags)
{
    const int other = (int)((char *)(void *)peer - contexts);
    int device = 0;

    NEEDS_CONTEXT;
    (void)flags;
    device = current[n_current - 1];
    int result = is_enabled[device][other] ? ALREADY_ENABLED
                 : is_full(device)         ? TOO_MANY
                                           : 0;
    is_enabled[device][other] = result != TOO_MANY;
    return result;
}

/* A copy that could be direct and was not allowed to is a fault here. */
int cuMemcpyPeerAsync(plait_cu_address_t dst, plait_cu_context_t to,
                      plait_cu_address_t src, plait_cu_context_t from, size_t n,
                      plait_cu_stream_t stream)
{
    const int device = (int)((char *)(void *)to - contexts);
    const int peer = (int)((char *)(void *)from - contexts);

    NEEDS_CONTEXT;
    (void)stream;
    if (device != 2 && peer != 2 && !is_enabled[device][peer] && !is_full(device)) {
        return NOT_ENABLED;
    }
    memcpy(memory_of(dst), memory_of(src), n);
    return 0;
}

/* ---- Streams and events: handles that differ, and a count of waits ------------------------- */

static int n_waits;

/* How often a stream was made to wait for an event; for the tests. */
int fake_cuda_n_waits(void);

int fake_cuda_n_waits(void)
{
    return n_waits;
}

int cuStreamCreate(plait_cu_stream_t *stream, unsigned flags)
{
    NEEDS_CONTEXT;
    (void)flags;
    *stream = malloc(1);
    return (*stream != NULL) ? 0 : OUT_OF_MEMORY;
}

int cuStreamDestroy_v2(plait_cu_stream_t stream)
{
    free(stream);
    return 0;
}

int cuStreamSynchronize(plait_cu_stream_t stream)
{
    NEEDS_CONTEXT;
    (void)stream;
    return 0;
}

int cuStreamWaitEvent(plait_cu_stream_t stream, plait_cu_event_t event, unsigned flags)
{
    NEEDS_CONTEXT;
    (void)stream;
    (void)flags;
    n_waits++;
    return use_of(event);
}

int cuEventCreate(plait_cu_event_t *event, unsigned flags)
{
    event_t *made = NULL;

    NEEDS_CONTEXT;
    made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return OUT_OF_MEMORY;
    }
    made->flags = flags;
    *event = (plait_cu_event_t)(void *)made;
    return 0;
}

/* Those that were shown stay until the driver goes: others may look at them. */
static event_t *destroyed;

__attribute__((destructor)) static void free_events(void)
{
    while (destroyed != NULL) {
        event_t *next = destroyed->next;
        free(destroyed);
        destroyed = next;
    }
}

int cuEventDestroy_v2(plait_cu_event_t event)
{
    event_t *e = event_of(event);

    if (e->is_shown) {
        e->is_destroyed = true;
        e->next = destroyed;
        destroyed = e;
    } else {
        free(e);
    }
    return 0;
}

int cuEventRecord(plait_cu_event_t event, plait_cu_stream_t stream)
{
    NEEDS_CONTEXT;
    (void)stream;
    return use_of(event);
}

int cuEventQuery(plait_cu_event_t event)
{
    NEEDS_CONTEXT;
    return use_of(event);
}

int cuEventSynchronize(plait_cu_event_t event)
{
    NEEDS_CONTEXT;
    return use_of(event);
}

/* ---- Modules -------------------------------------------------------------------------------- */

/* The image is what the stand-in of NVRTC gave. */
int cuModuleLoadDataEx(plait_cu_module_t *module, const void *image, unsigned n_options,
                       int *options, void **values)
{
    NEEDS_CONTEXT;
    (void)n_options;
    (void)options;
    (void)values;
    *module = malloc(1);
    return (strcmp(image, "fake cubin of sm_90") == 0) ? 0 : NO_IMAGE;
}

int cuModuleUnload(plait_cu_module_t module)
{
    free(module);
    return 0;
}

int cuModuleGetFunction(plait_cu_function_t *function, plait_cu_module_t module,
                        const char *name)
{
    const int k = fake_cuda_kernel(name);

    (void)module;
    *function = (plait_cu_function_t)(uintptr_t)(k + 1);
    return (k >= 0) ? 0 : NOT_FOUND;
}

int cuFuncGetAttribute(int *value, int attribute, plait_cu_function_t function)
{
    (void)attribute;
    (void)function;
    *value = 1;
    return 0;
}

/* Blocks from the last to the first: none may wait for another. */
int cuLaunchKernel(plait_cu_function_t function, unsigned grid_x, unsigned grid_y,
                   unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned n_shared, plait_cu_stream_t stream,
                   void **params, void **extra)
{
    const int k = (int)(uintptr_t)function - 1;
    bool is_good = grid_x > 0 && grid_y == 1 && grid_z == 1 &&
                   block_x == PLAIT_CUDA_THREADS && block_y == 1 && block_z == 1 &&
                   n_shared == 0 && extra == NULL && k >= 0;

    NEEDS_CONTEXT;
    (void)stream;
    for (unsigned b = grid_x; is_good && b-- > 0;) {
        is_good = fake_cuda_run_block(k, params[0], b);
    }
    return is_good ? 0 : LAUNCH_FAILED;
}
