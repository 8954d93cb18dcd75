/* A CUDA driver on the host, for tests of its callers: every call completes at once. Memory is host memory
 * (fake_cuda_memory.c, fake_cuda_virtual.c); kernels are those of fake_cuda_kernels.c. */
#include "fake_cuda_driver.h"

#include "device/cuda/params.h"
#include "fake_cuda_kernels.h"

#include <stdbool.h>

pthread_mutex_t fake_cuda_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

enum { NO_IMAGE = 200, INVALID_HANDLE = 400, NOT_FOUND = 500, LAUNCH_FAILED = 719 };

/* ---- Failures ------------------------------------------------------------------------------- */

static int fail_result, fail_after = -1; /* calls until it begins; -1: never */
static char fail_name[64];
static bool is_failing;

/* Read when the device is made; each function then checks for itself. */
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

int fake_cuda_result(const char *name)
{
    if (fail_after >= 0 && !is_failing && strcmp(name, fail_name) == 0) {
        is_failing = fail_after == 0;
        fail_after--;
    }
    return is_failing ? fail_result : PLAIT_CU_OK;
}

/* ---- Device and context --------------------------------------------------------------------- */

enum { CAPABILITY = 90 };

enum { MAX_DEVICES = 8, NOT_ENABLED = 705, ALREADY_ENABLED = 704, TOO_MANY = 711 };

static _Thread_local int n_current;
static char contexts[MAX_DEVICES];
static bool is_enabled[MAX_DEVICES][MAX_DEVICES]; /* by device and peer */
static _Thread_local int current[64];

int cuInit(unsigned flags)
{
    LOCKED;
    (void)flags;
    plan_failure();
    return number_of_environment("PLAIT_FAKE_INIT", 0);
}

int cuDriverGetVersion(int *version)
{
    LOCKED;
    *version = number_of_environment("PLAIT_FAKE_DRIVER", 13000);
    return 0;
}

int cuGetErrorName(int result, const char **name)
{
    LOCKED;
    *name = (result == 700)             ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : (result == OUT_OF_MEMORY) ? "CUDA_ERROR_OUT_OF_MEMORY"
            : (result == 100)           ? "CUDA_ERROR_NO_DEVICE"
                                        : "CUDA_ERROR";
    return 0;
}

int cuGetErrorString(int result, const char **text)
{
    LOCKED;
    (void)result;
    *text = "a failure that was ordered";
    return 0;
}

int cuDeviceGet(plait_cu_device_t *device, int ordinal)
{
    LOCKED;
    *device = ordinal;
    return 0;
}

int cuDeviceGetCount(int *n_devices)
{
    LOCKED;
    *n_devices = number_of_environment("PLAIT_FAKE_DEVICES", 1);
    return 0;
}

int cuDeviceGetName(char *name, int n, plait_cu_device_t device)
{
    LOCKED;
    (void)device;
    (void)snprintf(name, (size_t)n, "stand-in");
    return 0;
}

int cuDeviceTotalMem_v2(size_t *n, plait_cu_device_t device)
{
    LOCKED;
    (void)device;
    *n = (size_t)1 << 30;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, plait_cu_device_t device)
{
    LOCKED;
    (void)device;
    *value = (attribute == PLAIT_CU_MAJOR)   ? CAPABILITY / 10
             : (attribute == PLAIT_CU_MINOR) ? CAPABILITY % 10
                                             : 0;
    return 0;
}

int cuDevicePrimaryCtxRetain(plait_cu_context_t *context, plait_cu_device_t device)
{
    LOCKED;
    *context = (plait_cu_context_t)(void *)&contexts[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(plait_cu_device_t device)
{
    LOCKED;
    (void)device;
    return 0;
}

int cuCtxPushCurrent_v2(plait_cu_context_t context)
{
    LOCKED;
    MAY_FAIL;
    current[n_current] = (int)((char *)(void *)context - contexts);
    n_current++;
    return 0;
}

int cuCtxPopCurrent_v2(plait_cu_context_t *context)
{
    LOCKED;
    *context = NULL;
    n_current--;
    return 0;
}

/* For the stand-in of cuSolverMg, which replaces the current device, and for the tests: the current device
 * (-1: none), the number of contexts below it, which devices reach each other, and the number of waits for a
 * device. */
void fake_cuda_set_current(int device);
int fake_cuda_current(void);
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

int cuCtxSynchronize(void)
{
    LOCKED;
    NEEDS_CONTEXT;
    n_synchronized++;
    return 0;
}

/* ---- Devices that reach each other ------------------------------------------------------------ */

/* All pairs of devices reach each other, except those with device 2. */
int cuDeviceCanAccessPeer(int *can, plait_cu_device_t device, plait_cu_device_t peer)
{
    LOCKED;
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
    LOCKED;
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

/* A copy is a fault here if it could be direct but access was not enabled. */
int cuMemcpyPeerAsync(plait_cu_address_t dst, plait_cu_context_t to,
                      plait_cu_address_t src, plait_cu_context_t from, size_t n,
                      plait_cu_stream_t stream)
{
    LOCKED;
    const int device = (int)((char *)(void *)to - contexts);
    const int peer = (int)((char *)(void *)from - contexts);

    NEEDS_CONTEXT;
    (void)stream;
    if (device != 2 && peer != 2 && !is_enabled[device][peer] && !is_full(device)) {
        return NOT_ENABLED;
    }
    memcpy(fake_cuda_memory_of(dst), fake_cuda_memory_of(src), n);
    return 0;
}

/* ---- Streams and events: handles that differ, and a count of waits ------------------------- */

/* An event is its flags; an event of another process refers to the owner's event. */
typedef struct event {
    unsigned flags;
    bool is_shown, is_destroyed;
    struct event *owners, *next;
} event_t;

static event_t *event_of(plait_cu_event_t event)
{
    return (event_t *)(void *)event;
}

/* Using another process's event after that process has destroyed it is undefined; here it is an error. */
static int use_of(plait_cu_event_t event)
{
    const event_t *e = event_of(event);

    return (e->owners != NULL && e->owners->is_destroyed) ? INVALID_HANDLE : 0;
}

int cuIpcGetEventHandle(plait_cu_ipc_t *handle, plait_cu_event_t event)
{
    LOCKED;
    NEEDS_CONTEXT;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, (const void *)&event, sizeof(event));
    event_of(event)->is_shown = true;
    return (event_of(event)->flags == 6) ? 0 : INVALID_VALUE; /* made for it */
}

int cuIpcOpenEventHandle(plait_cu_event_t *event, plait_cu_ipc_t handle)
{
    LOCKED;
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

static int n_waits;

/* Number of times that a stream was made to wait for an event; for the tests. */
int fake_cuda_n_waits(void);

int fake_cuda_n_waits(void)
{
    return n_waits;
}

/* The next stream has the address of the last stream destroyed. */
enum { MAX_STREAMS = 256 };
static char streams[MAX_STREAMS]; /* 1: there is one */

int cuStreamCreate(plait_cu_stream_t *stream, unsigned flags)
{
    LOCKED;
    int i = 0;

    NEEDS_CONTEXT;
    (void)flags;
    while (i < MAX_STREAMS && streams[i] != 0) {
        i++;
    }
    if (i == MAX_STREAMS) {
        return OUT_OF_MEMORY;
    }
    streams[i] = 1;
    *stream = (plait_cu_stream_t)(void *)&streams[i];
    return 0;
}

int cuStreamDestroy_v2(plait_cu_stream_t stream)
{
    LOCKED;
    char *there = (char *)(void *)stream;
    const bool is_one = *there == 1;

    *there = 0;
    return is_one ? 0 : INVALID_HANDLE;
}

int cuStreamSynchronize(plait_cu_stream_t stream)
{
    LOCKED;
    NEEDS_CONTEXT;
    (void)stream;
    return 0;
}

int cuStreamWaitEvent(plait_cu_stream_t stream, plait_cu_event_t event, unsigned flags)
{
    LOCKED;
    NEEDS_CONTEXT;
    (void)stream;
    (void)flags;
    n_waits++;
    return use_of(event);
}

int cuEventCreate(plait_cu_event_t *event, unsigned flags)
{
    LOCKED;
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

/* Events that were shown stay until the driver goes: others may look at them. */
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
    LOCKED;
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
    LOCKED;
    NEEDS_CONTEXT;
    (void)stream;
    return use_of(event);
}

int cuEventQuery(plait_cu_event_t event)
{
    LOCKED;
    NEEDS_CONTEXT;
    return use_of(event);
}

int cuEventSynchronize(plait_cu_event_t event)
{
    LOCKED;
    NEEDS_CONTEXT;
    return use_of(event);
}

/* ---- Modules -------------------------------------------------------------------------------- */

/* The image must be the output of the stand-in of NVRTC. */
int cuModuleLoadDataEx(plait_cu_module_t *module, const void *image, unsigned n_options,
                       int *options, void **values)
{
    LOCKED;
    NEEDS_CONTEXT;
    (void)n_options;
    (void)options;
    (void)values;
    *module = malloc(1);
    return (strcmp(image, "fake cubin of sm_90") == 0) ? 0 : NO_IMAGE;
}

int cuModuleUnload(plait_cu_module_t module)
{
    LOCKED;
    free(module);
    return 0;
}

int cuModuleGetFunction(plait_cu_function_t *function, plait_cu_module_t module,
                        const char *name)
{
    LOCKED;
    const int k = fake_cuda_kernel(name);

    (void)module;
    *function = (plait_cu_function_t)(uintptr_t)(k + 1);
    return (k >= 0) ? 0 : NOT_FOUND;
}

/* Number of launches; for the tests. */
int fake_cuda_n_launches(void);
static int n_launches;

int fake_cuda_n_launches(void)
{
    return n_launches;
}

/* Runs blocks from the last to the first: no block may wait for another. */
int cuLaunchKernel(plait_cu_function_t function, unsigned grid_x, unsigned grid_y,
                   unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned n_shared, plait_cu_stream_t stream,
                   void **params, void **extra)
{
    LOCKED;
    const int k = (int)(uintptr_t)function - 1;
    bool is_good = grid_x > 0 && grid_y == 1 && grid_z == 1 &&
                   block_x == PLAIT_CUDA_THREADS && block_y == 1 && block_z == 1 &&
                   n_shared == 0 && extra == NULL && k >= 0;

    NEEDS_CONTEXT;
    (void)stream;
    n_launches++;
    for (unsigned b = grid_x; is_good && b-- > 0;) {
        is_good = fake_cuda_run_block(k, params[0], b);
    }
    return is_good ? 0 : LAUNCH_FAILED;
}
