/* Reads XLA call frames: the query at registration, attributes by the operation's row, arrays, tokens, device
 * and launch; and turns a status into XLA's error. */
#include "ffi/frame.h"

#include "base/site.h"
#include "base/status.h"
#include "comm/registry.h"
#include "plan/side.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { FAILURE_BYTES = 2300 };

/* The latest failure: at exit Python compares its number to tell whether it was reported. */
static struct {
    pthread_mutex_t lock;
    char text[FAILURE_BYTES];
    int64_t number;
} latest = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The Python exception and absl's code for a status. */
typedef struct {
    const char *exception;
    int code;
} kind_t;

static const kind_t kinds[PLAIT_STATUS_COUNT] = {
    [PLAIT_OK] = {"Error", PLAIT_FFI_CODE_INTERNAL},
    [PLAIT_ERR_INVALID] = {"ArgumentError", PLAIT_FFI_CODE_INVALID_ARGUMENT},
    [PLAIT_ERR_NO_MEMORY] = {"MemoryError", PLAIT_FFI_CODE_RESOURCE_EXHAUSTED},
    [PLAIT_ERR_OVERFLOW] = {"ArgumentError", PLAIT_FFI_CODE_INVALID_ARGUMENT},
    [PLAIT_ERR_UNSUPPORTED] = {"Error", PLAIT_FFI_CODE_UNIMPLEMENTED},
    [PLAIT_ERR_TRANSPORT] = {"TransportError", PLAIT_FFI_CODE_UNAVAILABLE},
    [PLAIT_ERR_MISMATCH] = {"MismatchError", PLAIT_FFI_CODE_FAILED_PRECONDITION},
    [PLAIT_ERR_TRUNCATION] = {"TruncationError", PLAIT_FFI_CODE_INVALID_ARGUMENT},
    [PLAIT_ERR_COMM] = {"CommError", PLAIT_FFI_CODE_FAILED_PRECONDITION},
    [PLAIT_ERR_TIMEOUT] = {"TimeoutError", PLAIT_FFI_CODE_DEADLINE_EXCEEDED},
    [PLAIT_ERR_PEER] = {"PeerError", PLAIT_FFI_CODE_ABORTED},
    [PLAIT_ERR_INTERNAL] = {"Error", PLAIT_FFI_CODE_INTERNAL},
};

plait_ffi_error_t *plait_ffi_error(const plait_ffi_api_t *api, plait_status_t status)
{
    char text[FAILURE_BYTES];
    const char *where = plait_site_text(plait_site_here());
    plait_ffi_error_create_t args = {.struct_size = PLAIT_FFI_ERROR_CREATE_SIZE,
                                     .message = text,
                                     .errc = kinds[status].code};

    /* The call site goes at the end of the first line; a table may follow that line. */
    const char *what = plait_error_text();
    int n_first = (int)strcspn(what, "\n");
    (void)snprintf(text, sizeof(text), "plait.%s: %.*s%s%s%s", kinds[status].exception,
                   n_first, what, (where[0] != '\0') ? " at " : "", where,
                   what + n_first);
    (void)pthread_mutex_lock(&latest.lock);
    memcpy(latest.text, text, sizeof(text));
    latest.number++;
    (void)pthread_mutex_unlock(&latest.lock);
    return api->error_create(&args);
}

int64_t plait_ffi_latest_failure(char *text, int n_bytes)
{
    (void)pthread_mutex_lock(&latest.lock);
    (void)snprintf(text, (size_t)n_bytes, "%s", latest.text);
    const int64_t number = latest.number;
    (void)pthread_mutex_unlock(&latest.lock);
    return number;
}

/* During the query ctx is NULL. The answer must exceed neither the runtime's own minor nor the audited one. */
bool plait_ffi_answers_query(const plait_ffi_frame_t *frame)
{
    bool is_query = false;

    for (plait_ffi_ext_t *e = frame->extension_start; e != NULL && !is_query;
         e = e->next) {
        if (e->type == PLAIT_FFI_EXT_METADATA) {
            plait_ffi_metadata_t *m = ((plait_ffi_metadata_ext_t *)(void *)e)->metadata;
            int runtime =
                (frame->api != NULL) ? frame->api->api_version.minor_version : 1;
            m->api_version.struct_size = PLAIT_FFI_VERSION_SIZE;
            m->api_version.extension_start = NULL;
            m->api_version.major_version = 0;
            m->api_version.minor_version =
                (runtime < PLAIT_FFI_NEWEST_MINOR) ? runtime : PLAIT_FFI_NEWEST_MINOR;
            m->traits = 0; /* never command-buffer compatible: handlers communicate */
            if (runtime >= 2) {
                m->state_type_id = 0;
            }
            is_query = true;
        }
    }
    return is_query;
}

static int compare(const plait_ffi_span_t *span, const char *name, size_t length)
{
    int order = memcmp(span->ptr, name, (span->len < length) ? span->len : length);

    return (order != 0) ? order : (span->len > length) - (span->len < length);
}

/* Index of an attribute, -1 if it is not there. */
static int64_t find_attr(const plait_ffi_attrs_t *attrs, const char *name)
{
    size_t length = strlen(name);
    int64_t lo = 0;
    int64_t hi = attrs->size - 1;

    while (lo <= hi) {
        int64_t mid = (lo + hi) / 2;
        int order = compare(attrs->names[mid], name, length);
        if (order == 0) {
            return mid;
        }
        if (order < 0) {
            lo = mid + 1;
        } else {
            hi = mid - 1;
        }
    }
    return -1;
}

static plait_status_t read_scalar(const plait_ffi_attrs_t *attrs, const char *name,
                                  int dtype, void *value_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t i = find_attr(attrs, name);
    const plait_ffi_scalar_t *scalar =
        (i >= 0 && attrs->types[i] == PLAIT_FFI_ATTR_SCALAR) ? attrs->attrs[i] : NULL;

    PLAIT_CHECK(scalar != NULL && scalar->dtype == dtype, PLAIT_ERR_INTERNAL,
                "attribute %s is missing or no scalar of 64 bits", name);
    memcpy(value_p, scalar->value, 8);
done:
    return status;
}

plait_status_t plait_ffi_int(const plait_ffi_attrs_t *attrs, const char *name,
                             int64_t *value_p)
{
    return read_scalar(attrs, name, PLAIT_FFI_S64, value_p);
}

/* Copies a short array, lends a long one to the call. */
static plait_status_t read_array(const plait_ffi_attrs_t *attrs,
                                 const plait_attr_t *attr, unsigned char *params)
{
    plait_status_t status = PLAIT_OK;
    int64_t i = find_attr(attrs, attr->name);
    const plait_ffi_array_t *array =
        (i >= 0 && attrs->types[i] == PLAIT_FFI_ATTR_ARRAY) ? attrs->attrs[i] : NULL;
    bool is_list = attr->kind == PLAIT_PARAM_LIST;

    PLAIT_CHECK(array != NULL && (array->dtype == PLAIT_FFI_S64 || array->size == 0),
                PLAIT_ERR_INTERNAL, "attribute %s is missing or no array of int64",
                attr->name);
    PLAIT_CHECK(is_list || array->size <= (size_t)attr->n_max, PLAIT_ERR_INTERNAL,
                "attribute %s has %lld entries, expected %d or fewer", attr->name,
                (long long)array->size, attr->n_max);
    int64_t n = (int64_t)array->size;
    memcpy(params + attr->count_offset, &n, sizeof(n));
    if (is_list) {
        const int64_t *data = (n > 0) ? array->data : NULL;
        memcpy(params + attr->offset, &data, sizeof(data));
    } else if (n > 0) {
        memcpy(params + attr->offset, array->data, array->size * sizeof(int64_t));
    }
done:
    return status;
}

static plait_status_t read_params(const plait_op_t *op, const plait_ffi_attrs_t *attrs,
                                  unsigned char *params)
{
    plait_status_t status = PLAIT_OK;

    memset(params, 0, op->params_size);
    for (const plait_attr_t *a = op->attrs; a->name != NULL; a++) {
        if (a->kind == PLAIT_PARAM_ARRAY || a->kind == PLAIT_PARAM_LIST) {
            PLAIT_TRY(read_array(attrs, a, params));
        } else {
            PLAIT_TRY(read_scalar(attrs, a->name,
                                  (a->kind == PLAIT_PARAM_FLOAT) ? PLAIT_FFI_F64
                                                                 : PLAIT_FFI_S64,
                                  params + a->offset));
        }
    }
done:
    return status;
}

plait_array_t plait_ffi_array(const plait_ffi_buffer_t *buffer)
{
    return (plait_array_t){.dtype = (plait_dtype_t)buffer->dtype,
                           .ndim = (int)buffer->rank,
                           .dims = buffer->dims,
                           .data = buffer->data};
}

static int64_t scalar_of(const plait_ffi_attrs_t *attrs, int64_t i, int64_t otherwise)
{
    const plait_ffi_scalar_t *scalar =
        (attrs->types[i] == PLAIT_FFI_ATTR_SCALAR) ? attrs->attrs[i] : NULL;

    if (scalar != NULL && scalar->dtype == PLAIT_FFI_S64) {
        memcpy(&otherwise, scalar->value, sizeof(otherwise));
    }
    return otherwise;
}

/* Reads the two attributes of all operations and that of joined arrays in one pass: 20 ns less than two
 * searches. The upper half of the communicator's number is its mark. Programs of older versions of plait do
 * not say where they were traced. */
static plait_status_t read_place(const plait_ffi_attrs_t *attrs, int64_t *comm_p,
                                 uint32_t *mark_p, int64_t *site_p, int64_t *trees_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t comm = -1;

    for (int64_t i = 0; i < attrs->size; i++) {
        const plait_ffi_span_t *name = attrs->names[i];
        if (name->len == 4 && memcmp(name->ptr, "comm", 4) == 0) {
            comm = scalar_of(attrs, i, comm);
        } else if (name->len == 4 && memcmp(name->ptr, "site", 4) == 0) {
            *site_p = scalar_of(attrs, i, 0);
        } else if (name->len == 5 && memcmp(name->ptr, "trees", 5) == 0) {
            *trees_p = scalar_of(attrs, i, 0);
        }
    }
    PLAIT_CHECK(comm >= 0, PLAIT_ERR_INTERNAL,
                "attribute comm is missing or no scalar of 64 bits");
    *comm_p = comm & UINT32_MAX;
    *mark_p = (uint32_t)(comm >> 32);
done:
    return status;
}

plait_ffi_error_t *plait_ffi_ordinal(const plait_ffi_frame_t *frame, int32_t *ordinal_p)
{
    plait_ffi_ordinal_get_t ordinal = {.struct_size = PLAIT_FFI_ORDINAL_GET_SIZE,
                                       .ctx = frame->ctx};
    plait_ffi_error_t *error = NULL;

    if (frame->api->struct_size < sizeof(plait_ffi_api_t)) {
        return plait_ffi_error(frame->api,
                               plait_fail(PLAIT_ERR_UNSUPPORTED,
                                          "this jaxlib does not tell devices apart"));
    }
    error = frame->api->device_ordinal_get(&ordinal);
    *ordinal_p = ordinal.device_ordinal;
    return error; /* XLA's own */
}

/* The device and the launch. Only communicators whose ranks are devices of this process need them. */
static plait_ffi_error_t *identify(const plait_ffi_frame_t *frame, int64_t *run_p,
                                   int32_t *ordinal_p)
{
    plait_ffi_run_id_get_t run = {.struct_size = PLAIT_FFI_RUN_ID_GET_SIZE,
                                  .ctx = frame->ctx};
    plait_ffi_error_t *error = plait_ffi_ordinal(frame, ordinal_p);

    if (error == NULL) {
        error = frame->api->run_id_get(&run);
    }
    *run_p = run.run_id;
    return error;
}

void plait_ffi_pass_tokens(const plait_ffi_frame_t *frame, int64_t n_args,
                           int64_t n_rets)
{
    int64_t n = frame->args.size - n_args;

    for (int64_t i = 0; i < n && i < frame->rets.size - n_rets; i++) {
        const plait_ffi_buffer_t *from = frame->args.items[n_args + i];
        const plait_ffi_buffer_t *to = frame->rets.items[n_rets + i];
        plait_array_t array = plait_ffi_array(to);
        if (to->dtype != PLAIT_FFI_TOKEN && from->data != to->data) {
            memcpy(to->data, from->data, (size_t)plait_array_bytes(&array));
        }
    }
}

plait_status_t plait_ffi_check_frame(const char *name, const plait_ffi_frame_t *frame,
                                     int64_t n_args, int64_t n_rets)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(frame->struct_size >= PLAIT_FFI_FRAME_SIZE &&
                    frame->stage == PLAIT_FFI_STAGE_EXECUTE,
                PLAIT_ERR_UNSUPPORTED,
                "%s: this jaxlib's call frame is not known to plait", name);
    PLAIT_CHECK(frame->args.size >= n_args && frame->rets.size >= n_rets,
                PLAIT_ERR_INTERNAL,
                "%s: %lld operands and %lld results, expected %lld and %lld", name,
                (long long)frame->args.size, (long long)frame->rets.size,
                (long long)n_args, (long long)n_rets);
done:
    return status;
}

static plait_status_t read_results(const plait_op_t *op, const plait_ffi_attrs_t *attrs,
                                   plait_array_t rets[])
{
    plait_status_t status = PLAIT_OK;
    int64_t i = find_attr(attrs, "results");
    const plait_ffi_array_t *words =
        (i >= 0 && attrs->types[i] == PLAIT_FFI_ATTR_ARRAY) ? attrs->attrs[i] : NULL;
    size_t at = 0;

    PLAIT_CHECK(words != NULL && (words->dtype == PLAIT_FFI_S64 || words->size == 0),
                PLAIT_ERR_INTERNAL,
                "attribute results is missing or no array of int64");
    for (int r = 0; r < op->n_rets; r++) {
        const int64_t *word = (const int64_t *)words->data + at;
        PLAIT_CHECK(at + 2 <= words->size && word[1] >= 0 &&
                        (size_t)word[1] <= words->size - at - 2,
                    PLAIT_ERR_INTERNAL, "attribute results is too short");
        rets[r] = (plait_array_t){
            .dtype = (plait_dtype_t)word[0], .ndim = (int)word[1], .dims = word + 2};
        at += 2 + (size_t)word[1];
    }
done:
    return status;
}

static plait_status_t read_arrays(const plait_op_t *op, const plait_ffi_frame_t *frame,
                                  bool is_start, plait_call_t *call)
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < op->n_args; i++) {
        call->args[i] = plait_ffi_array(frame->args.items[i]);
    }
    for (int i = 0; i < op->n_rets && !is_start; i++) {
        call->rets[i] = plait_ffi_array(frame->rets.items[i]);
    }
    if (is_start) {
        PLAIT_TRY(read_results(op, &frame->attrs, call->rets));
    }
done:
    return status;
}

plait_ffi_error_t *plait_ffi_decode(const plait_op_t *op,
                                    const plait_ffi_frame_t *frame, bool is_start,
                                    plait_ffi_call_t *c)
{
    plait_status_t status = PLAIT_OK;
    plait_ffi_error_t *error = NULL;
    plait_call_t *call = &c->call;
    int64_t id = 0;
    int64_t site = 0;
    int64_t trees = 0;
    uint32_t mark = 0;
    int32_t ordinal = 0;

    *call = (plait_call_t){
        .op = op, .params = c->params, .choices = plait_choices_now(op->family)};
    PLAIT_TRY(
        plait_ffi_check_frame(op->name, frame, op->n_args, is_start ? 1 : op->n_rets));
    PLAIT_TRY(read_place(&frame->attrs, &id, &mark, &site, &trees));
    plait_site_enter(site, id);
    call->site = plait_site_here();
    call->trees = (uint64_t)trees;
    PLAIT_TRY(read_params(op, &frame->attrs, c->params));
    if (plait_registry_is_by_device(id)) {
        error = identify(frame, &call->run, &ordinal);
        if (error != NULL) {
            goto done;
        }
    }
    PLAIT_TRY(read_arrays(op, frame, is_start, call));
    status = plait_registry_check_mark(id, mark);
    if (status == PLAIT_OK) {
        status = plait_registry_find(id, ordinal, &call->comm);
    }
    if (status != PLAIT_OK) {
        plait_error_prefix("%s: ", op->name);
    }
done:
    return (status != PLAIT_OK) ? plait_ffi_error(frame->api, status) : error;
}

plait_status_t plait_ffi_read_wait(const plait_ffi_frame_t *frame,
                                   const float **number_p, int *n_rets_p,
                                   plait_array_t rets[])
{
    plait_status_t status = PLAIT_OK;
    int64_t n_after = 0;

    PLAIT_TRY(plait_ffi_check_frame("wait", frame, 1, 0));
    PLAIT_TRY(plait_ffi_int(&frame->attrs, "n_after", &n_after));
    const int64_t n_rets = frame->rets.size - (frame->args.size - 1 - n_after);
    const plait_array_t number = plait_ffi_array(frame->args.items[0]);
    PLAIT_CHECK(
        n_rets >= 0 && n_rets <= PLAIT_MAX_ARRAYS && number.dtype == PLAIT_F32 &&
            plait_array_bytes(&number) == PLAIT_NUMBER_FLOATS * (int64_t)sizeof(float),
        PLAIT_ERR_INTERNAL, "wait: operands and results do not fit");
    for (int i = 0; i < (int)n_rets; i++) {
        rets[i] = plait_ffi_array(frame->rets.items[i]);
    }
    *number_p = number.data;
    *n_rets_p = (int)n_rets;
done:
    return status;
}
