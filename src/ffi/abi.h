/* The part of XLA's FFI C ABI that handlers need, under names of plait's own, so that the library builds
 * without jaxlib's headers. Between releases names have moved, layouts have not. A test compares sizes,
 * offsets and values with the installed xla/ffi/api/c_api.h (tests/python/abi_check.c).
 * Audited: API 0.2 (jaxlib 0.8.1) to 0.5 (jaxlib 0.12.0). */
#ifndef PLAIT_FFI_ABI_H
#define PLAIT_FFI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { PLAIT_FFI_EXT_METADATA = 1 };
enum { PLAIT_FFI_STAGE_EXECUTE = 3 };
enum { PLAIT_FFI_ATTR_ARRAY = 1, PLAIT_FFI_ATTR_SCALAR = 3 };
/* Element types have the numbers of plait/dtype.h. Handlers also name these. */
enum { PLAIT_FFI_S64 = 5, PLAIT_FFI_F64 = 12, PLAIT_FFI_TOKEN = 17 };
/* Status codes of absl. */
enum {
    PLAIT_FFI_CODE_INVALID_ARGUMENT = 3,
    PLAIT_FFI_CODE_DEADLINE_EXCEEDED = 4,
    PLAIT_FFI_CODE_RESOURCE_EXHAUSTED = 8,
    PLAIT_FFI_CODE_FAILED_PRECONDITION = 9,
    PLAIT_FFI_CODE_ABORTED = 10,
    PLAIT_FFI_CODE_UNIMPLEMENTED = 12,
    PLAIT_FFI_CODE_INTERNAL = 13,
    PLAIT_FFI_CODE_UNAVAILABLE = 14
};

typedef struct plait_ffi_error plait_ffi_error_t; /* owned by XLA once returned */
typedef struct plait_ffi_context
    plait_ffi_context_t; /* dead after the handler returned */
typedef struct plait_ffi_future plait_ffi_future_t;

typedef struct plait_ffi_ext {
    size_t struct_size;
    int type;
    struct plait_ffi_ext *next;
} plait_ffi_ext_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    int major_version;
    int minor_version;
} plait_ffi_version_t;

typedef struct {
    size_t struct_size;
    plait_ffi_version_t api_version;
    uint32_t traits;       /* the declared size ends here */
    int64_t state_type_id; /* only where the minor is >= 2 */
} plait_ffi_metadata_t;

typedef struct {
    plait_ffi_ext_t extension_base;
    plait_ffi_metadata_t *metadata;
} plait_ffi_metadata_ext_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} plait_ffi_buffer_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    int64_t size;
    int *types;
    plait_ffi_buffer_t **items;
} plait_ffi_buffers_t;

typedef struct {
    const char *ptr; /* no NUL at the end */
    size_t len;
} plait_ffi_span_t;

typedef struct {
    int dtype;
    const void *value;
} plait_ffi_scalar_t;

typedef struct {
    int dtype;
    size_t size; /* elements */
    const void *data;
} plait_ffi_array_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    int64_t size;
    int *types;
    plait_ffi_span_t **names; /* sorted bytewise */
    void **attrs;
} plait_ffi_attrs_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    const char *message; /* copied by XLA */
    int errc;
} plait_ffi_error_create_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_error_t *error;
    const char *message; /* out: the error's */
    int errc;            /* out where the minor is >= 4 */
} plait_ffi_error_message_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_error_t *error;
} plait_ffi_error_destroy_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_context_t *ctx;
    int64_t run_id; /* out */
} plait_ffi_run_id_get_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_context_t *ctx;
    int32_t
        device_ordinal; /* out: on CPU the global device id, elsewhere the ordinal in the process */
} plait_ffi_ordinal_get_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_context_t *ctx;
    void *stream; /* out: the platform's stream, for CUDA a CUstream */
} plait_ffi_stream_get_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_context_t *ctx;
    size_t size;
    size_t alignment;
    void *data; /* out: on the device */
} plait_ffi_memory_allocate_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_context_t *ctx;
    size_t size; /* as allocated */
    void *data;
} plait_ffi_memory_free_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_future_t *future; /* out; owned by XLA once the frame has it */
} plait_ffi_future_create_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_future_t *future;
} plait_ffi_future_set_available_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_future_t *future;
    plait_ffi_error_t *error; /* owned by XLA from here on */
} plait_ffi_future_set_error_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    plait_ffi_version_t api_version;
    const void *internal_api;
    plait_ffi_error_t *(*error_create)(plait_ffi_error_create_t *);
    void (*error_get_message)(plait_ffi_error_message_t *);
    void (*error_destroy)(plait_ffi_error_destroy_t *);
    void *before_stream;
    plait_ffi_error_t *(*stream_get)(plait_ffi_stream_get_t *);
    void *before_memory[4];
    plait_ffi_error_t *(*memory_allocate)(plait_ffi_memory_allocate_t *);
    plait_ffi_error_t *(*memory_free)(plait_ffi_memory_free_t *);
    void *before_future[2];
    plait_ffi_error_t *(*future_create)(plait_ffi_future_create_t *);
    plait_ffi_error_t *(*future_set_available)(plait_ffi_future_set_available_t *);
    plait_ffi_error_t *(*future_set_error)(plait_ffi_future_set_error_t *);
    plait_ffi_error_t *(*run_id_get)(plait_ffi_run_id_get_t *);
    plait_ffi_error_t *(*device_ordinal_get)(plait_ffi_ordinal_get_t *);
} plait_ffi_api_t;

typedef struct {
    size_t struct_size;
    plait_ffi_ext_t *extension_start;
    const plait_ffi_api_t *api;
    plait_ffi_context_t *ctx;
    int stage;
    plait_ffi_buffers_t args;
    plait_ffi_buffers_t rets;
    plait_ffi_attrs_t attrs;
    plait_ffi_future_t *future; /* out; not counted in struct_size */
} plait_ffi_frame_t;

/* Values to write into struct_size, or to expect there. */
enum {
    PLAIT_FFI_FRAME_SIZE = 168,
    PLAIT_FFI_VERSION_SIZE = 24,
    PLAIT_FFI_ERROR_CREATE_SIZE = 28,
    PLAIT_FFI_ORDINAL_GET_SIZE = 28,
    PLAIT_FFI_RUN_ID_GET_SIZE = 32,
    PLAIT_FFI_STREAM_GET_SIZE = 32,
    PLAIT_FFI_ERROR_MESSAGE_SIZE = 36, /* 32 where the minor is < 4; more is allowed */
    PLAIT_FFI_ERROR_DESTROY_SIZE = 24,
    PLAIT_FFI_MEMORY_ALLOCATE_SIZE = 48,
    PLAIT_FFI_MEMORY_FREE_SIZE = 40,
    PLAIT_FFI_FUTURE_CREATE_SIZE = 16,
    PLAIT_FFI_FUTURE_SET_AVAILABLE_SIZE = 24,
    PLAIT_FFI_FUTURE_SET_ERROR_SIZE = 32
};

/* The newest minor version that the layouts above were compared with. */
enum { PLAIT_FFI_NEWEST_MINOR = 5 };

#endif
