/* Call frames of XLA with any attributes and shapes, on a communicator of one rank: what
 * types and memory XLA vouches for is right, all else is not. Two runs write the same
 * results over different rubbish. */
#include "comm/registry.h"
#include "device/pool.h"
#include "ffi/abi.h"
#include "fuzz.h"

#define DECLARE(_name) plait_ffi_error_t *plait_ffi_##_name(plait_ffi_frame_t *frame);
PLAIT_OP_FOR_EACH(DECLARE)
#undef DECLARE

typedef plait_ffi_error_t *(*handler_t)(plait_ffi_frame_t *frame);
#define HANDLER(_name) plait_ffi_##_name,
static const handler_t handlers[] = {PLAIT_OP_FOR_EACH(HANDLER)};
#undef HANDLER

enum {
    MAX_BYTES = 1 << 16,
    MAX_NAMES = PLAIT_MAX_ATTRS + 3,
    N_INPUTS_OF_A_COMM = 200 /* its plans are kept as long as it lives */
};

static plait_ffi_error_t *error_create(plait_ffi_error_create_t *args)
{
    static plait_ffi_error_t *const error = (void *)&handlers;

    if (strncmp(args->message, "plait.", 6) != 0) {
        abort();
    }
    return error;
}

static const plait_ffi_api_t api = {.struct_size = sizeof(plait_ffi_api_t),
                                    .api_version = {.minor_version = 3},
                                    .error_create = error_create};

/* ---- attributes ---- */

typedef struct {
    int n;
    int types[MAX_NAMES];
    plait_ffi_span_t spans[MAX_NAMES];
    plait_ffi_span_t *names[MAX_NAMES];
    void *attrs[MAX_NAMES];
    plait_ffi_scalar_t scalars[MAX_NAMES];
    plait_ffi_array_t arrays[MAX_NAMES];
    int64_t words[2]; /* comm and site */
} attrs_t;

static void add_scalar(attrs_t *a, const char *name, int dtype, const void *value)
{
    a->scalars[a->n] = (plait_ffi_scalar_t){dtype, value};
    a->types[a->n] = PLAIT_FFI_ATTR_SCALAR;
    a->attrs[a->n] = &a->scalars[a->n];
    a->spans[a->n] = (plait_ffi_span_t){name, strlen(name)};
    a->n++;
}

static void add_array(attrs_t *a, const char *name, const void *data, int64_t n)
{
    a->arrays[a->n] = (plait_ffi_array_t){PLAIT_FFI_S64, (size_t)n, data};
    a->types[a->n] = PLAIT_FFI_ATTR_ARRAY;
    a->attrs[a->n] = &a->arrays[a->n];
    a->spans[a->n] = (plait_ffi_span_t){name, strlen(name)};
    a->n++;
}

static int by_name(const plait_ffi_span_t *a, const plait_ffi_span_t *b)
{
    size_t n = (a->len < b->len) ? a->len : b->len;
    int order = memcmp(a->ptr, b->ptr, n);

    return (order != 0) ? order : (a->len > b->len) - (a->len < b->len);
}

static void swap(attrs_t *a, int i)
{
    plait_ffi_span_t span = a->spans[i];
    int type = a->types[i];
    void *attr = a->attrs[i];

    a->spans[i] = a->spans[i - 1];
    a->types[i] = a->types[i - 1];
    a->attrs[i] = a->attrs[i - 1];
    a->spans[i - 1] = span;
    a->types[i - 1] = type;
    a->attrs[i - 1] = attr;
}

static void add_params(attrs_t *a, const fuzz_problem_t *p)
{
    const unsigned char *params = p->params[0];

    for (const plait_attr_t *attr = p->op->attrs; attr->name != NULL; attr++) {
        int64_t n = 0;
        if (attr->kind == PLAIT_PARAM_LIST || attr->kind == PLAIT_PARAM_ARRAY) {
            bool is_list = attr->kind == PLAIT_PARAM_LIST;
            memcpy(&n, params + attr->count_offset, sizeof(n));
            add_array(a, attr->name,
                      is_list ? (const void *)p->list : params + attr->offset, n);
        } else {
            add_scalar(a, attr->name,
                       (attr->kind == PLAIT_PARAM_FLOAT) ? PLAIT_FFI_F64
                                                         : PLAIT_FFI_S64,
                       params + attr->offset);
        }
    }
}

/* All attributes of the operation; some inputs give an attribute another type, or omit it. */
static void make_attrs(attrs_t *a, const fuzz_problem_t *p, input_t *in, int64_t comm)
{
    int fault = next_byte(in);
    int at = 0;

    memset(a, 0, sizeof(*a));
    a->words[0] = (fault == 1) ? next_number(in) : comm;
    a->words[1] = next_number(in);
    add_scalar(a, "comm", PLAIT_FFI_S64, &a->words[0]);
    add_scalar(a, "site", PLAIT_FFI_S64, &a->words[1]);
    add_params(a, p);
    at = next_byte(in) % a->n;
    if (fault == 2) {
        a->types[at] = next_byte(in) % 6;
    } else if (fault == 3) {
        a->scalars[at].dtype = a->arrays[at].dtype = next_byte(in);
    } else if (fault == 4) {
        a->spans[at].len = (size_t)next_byte(in) % (a->spans[at].len + 1);
    } else if (fault == 5) {
        a->n--;
    }
    /* A wrong type must not make the decoder look at what is not there. */
    for (int i = 0; i < a->n; i++) {
        a->attrs[i] = (a->types[i] == PLAIT_FFI_ATTR_SCALAR)  ? (void *)&a->scalars[i]
                      : (a->types[i] == PLAIT_FFI_ATTR_ARRAY) ? (void *)&a->arrays[i]
                                                              : NULL;
        if (a->types[i] == PLAIT_FFI_ATTR_SCALAR && a->scalars[i].value == NULL) {
            a->scalars[i] = (plait_ffi_scalar_t){PLAIT_FFI_S64, &a->words[1]};
        }
    }
    for (int i = 1; i < a->n; i++) {
        for (int k = i; k > 0 && by_name(&a->spans[k], &a->spans[k - 1]) < 0; k--) {
            swap(a, k);
        }
    }
    for (int i = 0; i < a->n; i++) {
        a->names[i] = &a->spans[i];
    }
}

/* ---- buffers ---- */

typedef struct {
    int64_t n; /* arrays */
    fuzz_array_t arrays[PLAIT_MAX_ARRAYS + 1];
    int64_t n_bytes[PLAIT_MAX_ARRAYS + 1];
    plait_ffi_buffer_t buffers[PLAIT_MAX_ARRAYS + 1];
    plait_ffi_buffer_t *items[PLAIT_MAX_ARRAYS + 1];
} buffers_t;

/* Allocates the exact sizes, so that one byte too far is seen; false if there are too many bytes. */
static bool make_buffers(buffers_t *b, const fuzz_array_t arrays[], int n,
                         bool has_token)
{
    bool fits = true;

    memset(b, 0, sizeof(*b));
    memcpy(b->arrays, arrays, (size_t)n * sizeof(arrays[0]));
    b->arrays[n] = (fuzz_array_t){.dtype = PLAIT_F32};
    b->n = n + (has_token ? 1 : 0);
    for (int i = 0; i < b->n; i++) {
        fuzz_array_t *array = &b->arrays[i];
        b->n_bytes[i] = fuzz_bytes(array, MAX_BYTES);
        fits = fits && b->n_bytes[i] >= 0;
        b->buffers[i] =
            (plait_ffi_buffer_t){.struct_size = 48,
                                 .dtype = (int)array->dtype,
                                 .data = fits ? malloc((size_t)b->n_bytes[i]) : NULL,
                                 .rank = array->ndim,
                                 .dims = array->dims};
        b->items[i] = &b->buffers[i];
    }
    return fits;
}

/* Booleans are 0 or 1. */
static void fill_buffers(buffers_t *b, int first)
{
    for (int i = 0; i < b->n; i++) {
        unsigned char *data = b->buffers[i].data;
        for (int64_t k = 0; k < b->n_bytes[i]; k++) {
            int byte = first + (int)(k * 7);
            data[k] =
                (unsigned char)((b->arrays[i].dtype == PLAIT_BOOL) ? byte & 1 : byte);
        }
    }
}

static void free_buffers(buffers_t *b)
{
    for (int i = 0; i < b->n; i++) {
        free(b->buffers[i].data);
    }
}

/* ---- calls ---- */

static int64_t current_comm(void)
{
    static int64_t id;
    static int n_inputs;

    if (n_inputs++ % N_INPUTS_OF_A_COMM == 0) {
        if (id != 0 && plait_registry_free(id) != PLAIT_OK) {
            abort();
        }
        if (plait_registry_add_self("fuzz_frame.c", &id) != PLAIT_OK) {
            abort();
        }
    }
    return id;
}

static bool is_matched(const plait_op_t *op)
{
    static const char *const names[] = {"send", "recv", "sendrecv", "exchange"};
    bool is = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        is = is || strcmp(op->name, names[i]) == 0;
    }
    return is;
}

/* Two calls over different rubbish give the same bytes. */
static void call_twice(const fuzz_problem_t *p, plait_ffi_frame_t *frame,
                       buffers_t *args, buffers_t *rets, handler_t handler)
{
    static unsigned char first[PLAIT_MAX_ARRAYS + 1][MAX_BYTES];
    bool is_ok = true;

    for (int round = 0; round < 2 && is_ok; round++) {
        fill_buffers(args, 3);
        fill_buffers(rets, 0x41 + 0x5a * round);
        is_ok = handler(frame) == NULL;
        n_far += is_ok && round == 1;
        for (int i = 0; i < rets->n && is_ok; i++) {
            size_t n = (size_t)rets->n_bytes[i];
            if (round == 0 && n > 0) {
                memcpy(first[i], rets->buffers[i].data, n);
            } else if (n > 0 && !is_matched(p->op) &&
                       memcmp(first[i], rets->buffers[i].data, n) != 0) {
                fault(p, "a byte of a result was not written");
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_problem_t problem;
    static attrs_t attrs;
    static buffers_t args;
    static buffers_t rets;
    input_t in = {.data = data, .size = size};
    int64_t comm = current_comm();
    int extra = next_byte(&in);
    bool has_token = extra % 2 == 1;
    bool fits = false;

    fuzz_problem(&problem, &in, 1);
    make_attrs(&attrs, &problem, &in, comm);
    plait_ffi_frame_t frame = {.struct_size = PLAIT_FFI_FRAME_SIZE,
                               .api = &api,
                               .stage = PLAIT_FFI_STAGE_EXECUTE};
    fits = make_buffers(&args, problem.args[0], problem.op->n_args, has_token);
    fits = make_buffers(&rets, problem.rets[0], problem.op->n_rets, has_token) && fits;
    if (fits) {
        int op = 0;
        while (plait_op_at(op) != problem.op) {
            op++;
        }
        frame.args.items = args.items;
        frame.args.size = args.n - (extra == 2 && args.n > 0 ? 1 : 0);
        frame.rets.items = rets.items;
        frame.rets.size = rets.n - (extra == 4 && rets.n > 0 ? 1 : 0);
        frame.attrs.size = attrs.n;
        frame.attrs.types = attrs.types;
        frame.attrs.names = attrs.names;
        frame.attrs.attrs = attrs.attrs;
        call_twice(&problem, &frame, &args, &rets, handlers[op]);
    }
    free_buffers(&args);
    free_buffers(&rets);
    return 0;
}
