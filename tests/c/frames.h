/* XLA's side of call frames, for tests of handlers: an API made by hand, and frames with everything they point
 * to. */
#ifndef PLAIT_TESTS_FRAMES_H
#define PLAIT_TESTS_FRAMES_H

#include "check.h"
#include "ffi/abi.h"
#include "plait/dtype.h"

#include <pthread.h>
#include <string.h>

static _Thread_local char message[4096];
static _Thread_local int code;
static _Thread_local int32_t my_ordinal;

static inline plait_ffi_error_t *error_create(plait_ffi_error_create_t *args)
{
    (void)snprintf(message, sizeof(message), "%s", args->message);
    code = args->errc;
    return (plait_ffi_error_t *)(void *)message;
}

static inline plait_ffi_error_t *run_id_get(plait_ffi_run_id_get_t *args)
{
    args->run_id = 77;
    return NULL;
}

/* XLA's stream on my_ordinal; NULL: not on a device. */
static _Thread_local void *my_stream;

static inline plait_ffi_error_t *stream_get(plait_ffi_stream_get_t *args)
{
    args->stream = my_stream;
    return (my_stream != NULL)
               ? NULL
               : error_create(&(plait_ffi_error_create_t){.message = "no stream"});
}

static inline plait_ffi_error_t *ordinal_get(plait_ffi_ordinal_get_t *args)
{
    args->device_ordinal = my_ordinal;
    return NULL;
}

static inline void error_get_message(plait_ffi_error_message_t *args)
{
    args->message = (const char *)args->error;
}

static _Thread_local int n_destroyed; /* errors that went back to XLA */

static inline void error_destroy(plait_ffi_error_destroy_t *args)
{
    (void)args;
    n_destroyed++;
}

/* XLA's allocator on my_ordinal: the source of its memory, and what is lent. */
static _Thread_local struct {
    void *(*take)(int64_t n_bytes);
    void (*give)(void *memory);
    void *memory;
    int64_t n_bytes, n_calls;
} my_memory;

static inline plait_ffi_error_t *memory_allocate(plait_ffi_memory_allocate_t *args)
{
    my_memory.n_calls++;
    CHECK(my_memory.memory == NULL && args->alignment == 16 && args->size > 0,
          "one at a time, no more aligned than XLA allows");
    my_memory.memory =
        (my_memory.take != NULL) ? my_memory.take((int64_t)args->size) : NULL;
    my_memory.n_bytes = (int64_t)args->size;
    args->data = my_memory.memory;
    return (args->data != NULL)
               ? NULL
               : error_create(&(plait_ffi_error_create_t){.message = "out of memory"});
}

static inline plait_ffi_error_t *memory_free(plait_ffi_memory_free_t *args)
{
    CHECK(args->data == my_memory.memory && (int64_t)args->size == my_memory.n_bytes,
          "what was allocated is freed");
    my_memory.give(args->data);
    my_memory.memory = NULL;
    return NULL;
}

/* XLA's side of a future. An error's text is copied, since it lives on the thread that made it. */
struct plait_ffi_future {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_set; /* more than 1: set twice */
    char error[4096];
};

static inline plait_ffi_error_t *future_create(plait_ffi_future_create_t *args)
{
    plait_ffi_future_t *future = calloc(1, sizeof(*future));

    (void)pthread_mutex_init(&future->mutex, NULL);
    (void)pthread_cond_init(&future->changed, NULL);
    args->future = future;
    return NULL;
}

static inline void set(plait_ffi_future_t *future, const char *error)
{
    (void)pthread_mutex_lock(&future->mutex);
    (void)snprintf(future->error, sizeof(future->error), "%s", error);
    future->n_set++;
    (void)pthread_cond_signal(&future->changed);
    (void)pthread_mutex_unlock(&future->mutex);
}

static inline plait_ffi_error_t *future_set_available(
    plait_ffi_future_set_available_t *args)
{
    set(args->future, "");
    return NULL;
}

static inline plait_ffi_error_t *future_set_error(plait_ffi_future_set_error_t *args)
{
    set(args->future, (const char *)args->error);
    return NULL;
}

/* Waits for the frame's future if it has one; the error's text is in `message`. */
static inline bool is_fine(plait_ffi_frame_t *frame, const plait_ffi_error_t *error)
{
    plait_ffi_future_t *future = frame->future;
    bool fine = error == NULL;

    CHECK(fine || future == NULL, "an error and a future");
    frame->future = NULL;
    if (future != NULL) {
        (void)pthread_mutex_lock(&future->mutex);
        while (future->n_set == 0) {
            (void)pthread_cond_wait(&future->changed, &future->mutex);
        }
        fine = future->error[0] == '\0' && future->n_set == 1;
        (void)snprintf(message, sizeof(message), "%s", future->error);
        (void)pthread_mutex_unlock(&future->mutex);
        (void)pthread_cond_destroy(&future->changed);
        (void)pthread_mutex_destroy(&future->mutex);
        free(future);
    }
    return fine;
}

static const plait_ffi_api_t api = {
    .struct_size = sizeof(plait_ffi_api_t),
    .api_version = {.minor_version = 3},
    .error_create = error_create,
    .error_get_message = error_get_message,
    .error_destroy = error_destroy,
    .stream_get = stream_get,
    .memory_allocate = memory_allocate,
    .memory_free = memory_free,
    .future_create = future_create,
    .future_set_available = future_set_available,
    .future_set_error = future_set_error,
    .run_id_get = run_id_get,
    .device_ordinal_get = ordinal_get,
};

enum { MAX_ITEMS = 12 };

/* A frame and everything it points to. Attributes are added in bytewise order of names. */
typedef struct {
    plait_ffi_frame_t frame;
    plait_ffi_buffer_t buffers[2][MAX_ITEMS];
    plait_ffi_buffer_t *items[2][MAX_ITEMS];
    int64_t dims[2][MAX_ITEMS][2];
    int types[MAX_ITEMS];
    plait_ffi_span_t spans[MAX_ITEMS];
    plait_ffi_span_t *names[MAX_ITEMS];
    void *attrs[MAX_ITEMS];
    plait_ffi_scalar_t scalars[MAX_ITEMS];
    plait_ffi_array_t arrays[MAX_ITEMS];
} call_t;

static inline void call_init(call_t *c)
{
    *c = (call_t){.frame = {.struct_size = PLAIT_FFI_FRAME_SIZE,
                            .api = &api,
                            .stage = PLAIT_FFI_STAGE_EXECUTE}};
    c->frame.args.items = c->items[0];
    c->frame.rets.items = c->items[1];
    c->frame.attrs.types = c->types;
    c->frame.attrs.names = c->names;
    c->frame.attrs.attrs = c->attrs;
}

static inline void add_buffer(call_t *c, int is_ret, int dtype, int64_t n, void *data)
{
    plait_ffi_buffers_t *list = is_ret ? &c->frame.rets : &c->frame.args;
    int64_t i = list->size++;

    c->dims[is_ret][i][0] = n;
    c->buffers[is_ret][i] =
        (plait_ffi_buffer_t){.struct_size = 48,
                             .dtype = dtype,
                             .data = data,
                             .rank = (dtype == PLAIT_FFI_TOKEN) ? 0 : 1,
                             .dims = c->dims[is_ret][i]};
    c->items[is_ret][i] = &c->buffers[is_ret][i];
}

static inline int64_t add_name(call_t *c, const char *name, int type, void *attr)
{
    int64_t i = c->frame.attrs.size++;

    c->spans[i] = (plait_ffi_span_t){.ptr = name, .len = strlen(name)};
    c->names[i] = &c->spans[i];
    c->types[i] = type;
    c->attrs[i] = attr;
    return i;
}

static inline void add_scalar(call_t *c, const char *name, const int64_t *value)
{
    plait_ffi_scalar_t *s = &c->scalars[c->frame.attrs.size];

    *s = (plait_ffi_scalar_t){.dtype = PLAIT_FFI_S64, .value = value};
    (void)add_name(c, name, PLAIT_FFI_ATTR_SCALAR, s);
}

static inline void add_double(call_t *c, const char *name, const double *value)
{
    plait_ffi_scalar_t *s = &c->scalars[c->frame.attrs.size];

    *s = (plait_ffi_scalar_t){.dtype = PLAIT_FFI_F64, .value = value};
    (void)add_name(c, name, PLAIT_FFI_ATTR_SCALAR, s);
}

static inline void add_array(call_t *c, const char *name, const int64_t *values,
                             size_t n)
{
    plait_ffi_array_t *a = &c->arrays[c->frame.attrs.size];

    *a = (plait_ffi_array_t){.dtype = PLAIT_FFI_S64, .size = n, .data = values};
    (void)add_name(c, name, PLAIT_FFI_ATTR_ARRAY, a);
}

#endif
