#include "device/cuda.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_code.h"
#include "device/cuda_mp.h"
#include "device/cuda_nccl.h"
#include "device/cuda_nvshmem.h"
#include "device/cuda_state.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 64, SAY_BYTES = 512, NAME_BYTES = 128 };

static plait_cuda_state_t *devices[MAX_DEVICES];
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Results -------------------------------------------------------------------------------- */

/* After these results the context is lost: every later call returns the same or worse. */
static bool is_sticky(int result)
{
    static const int sticky[] = {
        4,             /* deinitialized: the process ends */
        214, 220, 226, /* uncorrectable ECC or NVLink error, contained or not */
        700, 702,      /* illegal address, launch timeout */
        709,           /* the context is destroyed */
        710, 714, 715, 716, 717, 718, 719, 721, /* the kernel failed */
        806, 810, /* the server that shares the device between processes failed, or ended this one */
    };
    bool is_one = false;

    for (size_t i = 0; i < sizeof(sticky) / sizeof(sticky[0]); i++) {
        is_one = is_one || sticky[i] == result;
    }
    return is_one;
}

static plait_status_t status_of(int result)
{
    return (result == PLAIT_CU_NO_MEMORY)       ? PLAIT_ERR_NO_MEMORY
           : (result == PLAIT_CU_NOT_SUPPORTED) ? PLAIT_ERR_UNSUPPORTED
                                                : PLAIT_ERR_TRANSPORT;
}

plait_status_t plait_cuda_must(plait_cuda_state_t *state, int result, const char *what)
{
    plait_status_t status = PLAIT_OK;
    const char *name = NULL, *text = NULL;

    if (result != PLAIT_CU_OK) {
        int alive = 0;
        if (is_sticky(result)) {
            (void)atomic_compare_exchange_strong(&state->dead, &alive, result);
        }
        (void)state->cuda->cuGetErrorName(result, &name);
        (void)state->cuda->cuGetErrorString(result, &text);
        status = plait_fail(
            status_of(result), "CUDA device %d: %s: %s (%d, %s)%s",
            state->device.ordinal, what, (name != NULL) ? name : "unknown", result,
            (text != NULL) ? text : "no text",
            is_sticky(result) ? "; nothing more can be done on it in this process"
                              : "");
    }
    return status;
}

/* ---- The context ---------------------------------------------------------------------------- */

plait_status_t plait_cuda_library_must(const plait_device_t *device,
                                       const plait_cuda_results_t *results, int result,
                                       const char *what)
{
    plait_status_t status = PLAIT_OK;
    const bool is_named =
        result >= 0 && result < results->n_names && results->names[result] != NULL;
    const bool is_unsupported =
        result == results->unsupported[0] || result == results->unsupported[1];

    PLAIT_CHECK(result == 0,
                (result == results->no_memory) ? PLAIT_ERR_NO_MEMORY
                : is_unsupported               ? PLAIT_ERR_UNSUPPORTED
                                               : PLAIT_ERR_TRANSPORT,
                "CUDA device %d: %s: %s: %s (%d)", device->ordinal, results->library,
                what, is_named ? results->names[result] : "unknown", result);
done:
    return status;
}

static plait_status_t enter(plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    int dead = atomic_load(&state->dead);

    if (dead != 0) {
        PLAIT_TRY(plait_cuda_must(state, dead, "an earlier operation failed"));
    }
    PLAIT_TRY(plait_cuda_must(state, state->cuda->cuCtxPushCurrent_v2(state->context),
                              "making its context current"));
done:
    return status;
}

static void leave(plait_device_t *device)
{
    plait_cu_context_t context = NULL;

    (void)plait_cuda_state(device)->cuda->cuCtxPopCurrent_v2(&context);
}

/* ---- Copies, streams, events ---------------------------------------------------------------- */

static plait_status_t to_host(plait_device_t *device, plait_stream_t stream, void *host,
                              const void *src, int64_t n_bytes)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    return (n_bytes == 0) ? PLAIT_OK
                          : plait_cuda_must(state,
                                            state->cuda->cuMemcpyDtoHAsync_v2(
                                                host, plait_cu_address(src),
                                                (size_t)n_bytes, stream),
                                            "copying to the host");
}

static plait_status_t to_device(plait_device_t *device, plait_stream_t stream,
                                void *dst, const void *host, int64_t n_bytes)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    return (n_bytes == 0) ? PLAIT_OK
                          : plait_cuda_must(state,
                                            state->cuda->cuMemcpyHtoDAsync_v2(
                                                plait_cu_address(dst), host,
                                                (size_t)n_bytes, stream),
                                            "copying from the host");
}

static plait_status_t stream_create(plait_device_t *device, plait_stream_t *stream_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    plait_cu_stream_t stream = NULL;

    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuStreamCreate(&stream, PLAIT_CU_STREAM_NON_BLOCKING),
        "making a stream"));
    *stream_p = stream;
done:
    return status;
}

static void stream_destroy(plait_device_t *device, plait_stream_t stream)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    if (stream != NULL) {
        plait_cuda_forget_stream(state, stream);
        (void)state->cuda->cuStreamDestroy_v2(stream);
    }
}

static plait_status_t stream_wait(plait_device_t *device, plait_stream_t stream)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    return plait_cuda_must(state, state->cuda->cuStreamSynchronize(stream),
                           "waiting for a stream");
}

/* A plait_event_t is a CUDA event. */
static plait_cu_event_t event_of(plait_event_t *event)
{
    return (plait_cu_event_t)(void *)event;
}

static plait_status_t event_create(plait_device_t *device, plait_event_t **event_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    plait_cu_event_t event = NULL;

    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuEventCreate(&event, PLAIT_CU_EVENT_NO_TIMING),
        "making an event"));
    *event_p = (plait_event_t *)(void *)event;
done:
    return status;
}

static void event_destroy(plait_device_t *device, plait_event_t *event)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    if (event != NULL && !plait_cuda_event_is_shown(state, event)) {
        (void)state->cuda->cuEventDestroy_v2(event_of(event));
    }
}

static plait_status_t event_record(plait_device_t *device, plait_event_t *event,
                                   plait_stream_t stream)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    return plait_cuda_must(state, state->cuda->cuEventRecord(event_of(event), stream),
                           "recording an event");
}

static plait_status_t event_order(plait_device_t *device, plait_event_t *event,
                                  plait_stream_t stream)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    return plait_cuda_must(state,
                           state->cuda->cuStreamWaitEvent(stream, event_of(event), 0),
                           "making a stream wait for an event");
}

static plait_status_t event_wait(plait_device_t *device, plait_event_t *event)
{
    plait_cuda_state_t *state = plait_cuda_state(device);

    return plait_cuda_must(state, state->cuda->cuEventSynchronize(event_of(event)),
                           "waiting for an event");
}

static plait_status_t event_ask(plait_device_t *device, plait_event_t *event,
                                bool *is_over_p)
{
    plait_cuda_state_t *state = plait_cuda_state(device);
    int result = state->cuda->cuEventQuery(event_of(event));

    *is_over_p = result != PLAIT_CU_NOT_READY;
    return plait_cuda_must(state, (result == PLAIT_CU_NOT_READY) ? PLAIT_CU_OK : result,
                           "asking for an event");
}

static int driver(const plait_device_t *device)
{
    const plait_cuda_state_t *state = device->state;
    int version = 0;

    (void)state->cuda->cuDriverGetVersion(&version);
    return version;
}

static const plait_device_table_t table = {
    .name = "cuda",
    .enter = enter,
    .leave = leave,
    .take = plait_cuda_take,
    .give = plait_cuda_give,
    .host_take = plait_cuda_host_take,
    .host_give = plait_cuda_host_give,
    .to_host = to_host,
    .to_device = to_device,
    .boxes = plait_cuda_boxes,
    .reduce = plait_cuda_reduce,
    .fft_plan = plait_cuda_fft_plan,
    .fft = plait_cuda_fft,
    .scale = plait_cuda_scale,
    .tile_plan = plait_cuda_tile_plan,
    .tile = plait_cuda_tile,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_order = event_order,
    .event_wait = event_wait,
    .stream_wait = stream_wait,
    .copy = plait_cuda_copy,
    .memory_export = plait_cuda_memory_export,
    .memory_import = plait_cuda_memory_import,
    .memory_drop = plait_cuda_memory_drop,
    .virtual_take = plait_cuda_virtual_take,
    .virtual_give = plait_cuda_virtual_give,
    .event_export = plait_cuda_event_export,
    .event_import = plait_cuda_event_import,
    .event_ask = event_ask,
    .nccl = &plait_cuda_nccl,
    .nvshmem = &plait_cuda_nvshmem,
    .joint = &plait_cuda_joint,
    .grid = &plait_cuda_grid,
    .driver = driver,
};

/* ---- Kernels -------------------------------------------------------------------------------- */

static const char *const kernel_names[PLAIT_CUDA_N_KERNELS] = {
#define KERNEL_NAME(_kernel, _name, _params) #_name,
    PLAIT_CUDA_KERNEL_FOR_EACH(KERNEL_NAME)
#undef KERNEL_NAME
};

#define KERNEL_FITS(_kernel, _name, _params) \
    _Static_assert(sizeof(_params) <= 4096, "parameters of a launch");
PLAIT_CUDA_KERNEL_FOR_EACH(KERNEL_FITS)
#undef KERNEL_FITS

plait_status_t plait_cuda_launch(plait_cuda_state_t *state, plait_stream_t stream,
                                 plait_cuda_kernel_t kernel, int64_t n_blocks,
                                 const void *params)
{
    plait_status_t status = PLAIT_OK;
    char what[NAME_BYTES];
    void *arguments[] = {(void *)(uintptr_t)params}; /* read only */
    int n = 0;

    PLAIT_TRY(plait_int_of(n_blocks, &n));
    int result = state->cuda->cuLaunchKernel(state->kernel[kernel], (unsigned)n, 1, 1,
                                             PLAIT_CUDA_THREADS, 1, 1, 0, stream,
                                             arguments, NULL);

    if (result != PLAIT_CU_OK) {
        (void)snprintf(what, sizeof(what), "launching %s", kernel_names[kernel]);
        PLAIT_TRY(plait_cuda_must(state, result, what));
    }
done:
    return status;
}

static plait_status_t capability_of(plait_cuda_state_t *state, int *capability_p)
{
    plait_status_t status = PLAIT_OK;
    int major = 0, minor = 0;

    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuDeviceGetAttribute(&major, PLAIT_CU_MAJOR, state->id),
        "asking what it is"));
    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuDeviceGetAttribute(&minor, PLAIT_CU_MINOR, state->id),
        "asking what it is"));
    *capability_p = 10 * major + minor;
done:
    return status;
}

/* The device's context must be current. The driver may put off loading a kernel until its first launch, which
 * could then wait for all running work. cuModuleGetFunction loads the kernel; cuFuncLoad, which not every
 * driver has (CUDA 12.4), promises to. */
static plait_status_t load_kernels(plait_cuda_state_t *state)
{
    plait_status_t status = PLAIT_OK;
    void *image = NULL;
    int64_t n_bytes = 0;

    PLAIT_TRY(capability_of(state, &state->capability));
    PLAIT_TRY(plait_cuda_code(state->capability, &image, &n_bytes));
    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuModuleLoadDataEx(&state->module, image, 0, NULL, NULL),
        "loading plait's kernels"));
    for (int k = 0; k < PLAIT_CUDA_N_KERNELS; k++) {
        PLAIT_TRY(plait_cuda_must(state,
                                  state->cuda->cuModuleGetFunction(&state->kernel[k],
                                                                   state->module,
                                                                   kernel_names[k]),
                                  kernel_names[k]));
        if (state->cuda->cuFuncLoad != NULL) {
            PLAIT_TRY(plait_cuda_must(state, state->cuda->cuFuncLoad(state->kernel[k]),
                                      kernel_names[k]));
        }
    }
done:
    plait_free(image);
    return status;
}

/* ---- Devices -------------------------------------------------------------------------------- */

static void destroy(plait_cuda_state_t **state_p)
{
    plait_cuda_state_t *state = *state_p;
    bool is_current = false;

    if (state == NULL) {
        return;
    }
    is_current = state->context != NULL &&
                 state->cuda->cuCtxPushCurrent_v2(state->context) == PLAIT_CU_OK;
    /* plait's own data is released even if the device failed */
    plait_cuda_ffts_release(state);
    plait_cuda_solver_release(state);
    plait_cuda_blas_release(state);
    plait_cuda_shown_release(state);
    plait_cuda_virtual_release(state);
    plait_cuda_pools_release(state);
    if (state->module != NULL) {
        (void)state->cuda->cuModuleUnload(state->module);
    }
    if (is_current) {
        leave(&state->device);
    }
    if (state->context != NULL) {
        (void)state->cuda->cuDevicePrimaryCtxRelease_v2(state->id);
    }
    (void)pthread_mutex_destroy(&state->lock);
    plait_free(state);
    *state_p = NULL;
}

static plait_status_t create(int ordinal, plait_cuda_state_t **state_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = NULL;
    plait_cuda_state_t *state = NULL;
    int n_devices = 0;

    PLAIT_TRY(plait_cuda_start(&cuda));
    state = plait_alloc(1, sizeof(*state));
    PLAIT_CHECK(state != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a CUDA device");
    state->device =
        (plait_device_t){.table = &table, .ordinal = ordinal, .state = state};
    state->cuda = cuda;
    (void)pthread_mutex_init(&state->lock, NULL);
    PLAIT_TRY(plait_cuda_must(state, cuda->cuDeviceGetCount(&n_devices), "counting"));
    PLAIT_CHECK(ordinal >= 0 && ordinal < n_devices && ordinal < MAX_DEVICES,
                PLAIT_ERR_UNSUPPORTED,
                "there is no CUDA device %d: this process has %d", ordinal, n_devices);
    PLAIT_TRY(
        plait_cuda_must(state, cuda->cuDeviceGet(&state->id, ordinal), "finding it"));
    PLAIT_TRY(plait_cuda_must(
        state, cuda->cuDevicePrimaryCtxRetain(&state->context, state->id),
        "keeping its context"));
    PLAIT_TRY(enter(&state->device));
    status = load_kernels(state);
    leave(&state->device);
    if (status == PLAIT_OK) {
        *state_p = state;
        state = NULL;
    }
done:
    destroy(&state);
    return status;
}

plait_status_t plait_cuda_device(int ordinal, plait_device_t **device_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *made = NULL;
    bool is_known = ordinal >= 0 && ordinal < MAX_DEVICES;

    (void)pthread_mutex_lock(&devices_lock);
    if (!is_known || devices[ordinal] == NULL) {
        PLAIT_TRY(create(ordinal, &made)); /* refuses unknown ordinals */
        devices[ordinal] = made;
    }
    *device_p = &devices[ordinal]->device;
done:
    (void)pthread_mutex_unlock(&devices_lock);
    return status;
}

void plait_cuda_release(void)
{
    plait_cuda_joint_release();
    plait_cuda_grid_release();
    (void)pthread_mutex_lock(&devices_lock);
    for (int i = 0; i < MAX_DEVICES; i++) {
        destroy(&devices[i]);
    }
    (void)pthread_mutex_unlock(&devices_lock);
}

/* Asks the driver without making a context. */
const char *plait_cuda_device_say(int ordinal)
{
    static _Thread_local char text[SAY_BYTES];
    const plait_cuda_t *cuda = NULL;
    char name[NAME_BYTES] = "";
    size_t n_bytes = 0;
    int n_devices = 0, id = 0, major = 0, minor = 0;
    const char *said = NULL;

    if (plait_cuda_start(&cuda) != PLAIT_OK) {
        (void)snprintf(text, sizeof(text), "%s", plait_error_text());
        said = (ordinal == 0) ? text : NULL;
    } else if (cuda->cuDeviceGetCount(&n_devices) == 0 && ordinal >= 0 &&
               ordinal < n_devices && cuda->cuDeviceGet(&id, ordinal) == 0 &&
               cuda->cuDeviceGetName(name, NAME_BYTES, id) == 0 &&
               cuda->cuDeviceTotalMem_v2(&n_bytes, id) == 0 &&
               cuda->cuDeviceGetAttribute(&major, PLAIT_CU_MAJOR, id) == 0 &&
               cuda->cuDeviceGetAttribute(&minor, PLAIT_CU_MINOR, id) == 0) {
        (void)snprintf(text, sizeof(text), "%s, %.1f GiB, sm_%d%d", name,
                       (double)n_bytes / 0x1p30, major, minor);
        said = text;
    }
    return said;
}
