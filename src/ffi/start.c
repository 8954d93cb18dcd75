/* Handlers of operations in two halves, start and wait: plait_start_<name> has the operands and attributes of
 * plait_<name> and gives a number; plait_wait takes the number and gives the results. The number is a pair of
 * floats, because it stands for the data that flow from start to wait and therefore has a tangent: the number
 * of the tangent's operation. */
#include "base/alloc.h"
#include "base/status.h"
#include "device/host.h"
#include "ffi/frame.h"
#include "ffi/future.h"
#include "ops/list.h"
#include "plan/started.h"

static plait_ffi_error_t *start(const plait_op_t *op, plait_ffi_frame_t *frame)
{
    plait_ffi_error_t *error = NULL;
    plait_ffi_call_t c;

    if (plait_ffi_answers_query(frame)) {
        return NULL;
    }
    error = plait_ffi_decode(op, frame, true, &c);
    if (error == NULL) {
        plait_status_t status =
            plait_started_begin(&c.call, frame->rets.items[0]->data);
        error = (status != PLAIT_OK) ? plait_ffi_error(frame->api, status) : NULL;
    }
    if (error == NULL) {
        plait_ffi_pass_tokens(frame, op->n_args, 1);
    }
    return error;
}

/* What the handler of wait has to do once the operation is done. */
typedef struct {
    const plait_ffi_api_t *api;
    plait_ffi_future_t *future;
    int64_t id;
    int n_rets;
    plait_array_t rets[PLAIT_MAX_ARRAYS];
    /* results as vectors: the frame's dims are gone by then */
    int64_t sizes[PLAIT_MAX_ARRAYS];
} awaited_t;

static plait_status_t take(const awaited_t *awaited)
{
    for (int i = 0; i < awaited->n_rets; i++) {
        plait_host_prepare_result(awaited->rets[i].data,
                                  plait_array_bytes(&awaited->rets[i]));
    }
    return plait_started_take(awaited->id, awaited->n_rets, awaited->rets, NULL, NULL);
}

static void take_later(void *context)
{
    awaited_t *awaited = context;
    const plait_ffi_api_t *api = awaited->api;
    plait_ffi_future_t *future = awaited->future;
    plait_status_t status = take(awaited);

    plait_free(awaited);
    plait_ffi_future_complete(api, future, status);
}

static plait_status_t read_wait(const plait_ffi_frame_t *frame, awaited_t *awaited)
{
    plait_status_t status = PLAIT_OK;
    const float *number = NULL;

    *awaited = (awaited_t){.api = frame->api};
    PLAIT_TRY(plait_ffi_read_wait(frame, &number, &awaited->n_rets, awaited->rets));
    PLAIT_TRY(plait_started_read(number, NULL, NULL, &awaited->id));
    for (int i = 0; i < awaited->n_rets; i++) {
        int64_t n_bytes = 0;
        PLAIT_TRY(plait_array_size(&awaited->rets[i], &awaited->sizes[i], &n_bytes));
    }
done:
    return status;
}

/* Makes the results vectors of as many elements, whose dims do not belong to the frame. */
static void own_dims(awaited_t *awaited)
{
    for (int i = 0; i < awaited->n_rets; i++) {
        awaited->rets[i].ndim = 1;
        awaited->rets[i].dims = &awaited->sizes[i];
    }
}

/* Without memory *future_p stays NULL, and the caller has to wait for the operation. */
static plait_ffi_error_t *leave_to_worker(const awaited_t *awaited,
                                          plait_ffi_future_t **future_p)
{
    plait_ffi_error_t *error = NULL;
    awaited_t *later = plait_alloc(1, sizeof(*later));

    if (later == NULL) {
        goto done;
    }
    *later = *awaited;
    own_dims(later);
    error = plait_ffi_future_create(awaited->api, &later->future);
    if (error != NULL) {
        goto done;
    }
    *future_p = later->future;
    if (!plait_started_then(awaited->id, take_later, later)) {
        take_later(later); /* the operation ended in the meantime */
    }
    later = NULL;
done:
    plait_free(later);
    return error;
}

PLAIT_EXPORT plait_ffi_error_t *plait_ffi_wait(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_wait(plait_ffi_frame_t *frame)
{
    plait_status_t status = PLAIT_OK;
    plait_ffi_error_t *error = NULL;
    plait_ffi_future_t *future = NULL;
    awaited_t awaited;

    if (plait_ffi_answers_query(frame)) {
        return NULL;
    }
    PLAIT_TRY(read_wait(frame, &awaited));
    plait_ffi_pass_tokens(frame, 1, awaited.n_rets);
    if (plait_ffi_is_async(frame->api, INT64_MAX) &&
        plait_started_goes_on(awaited.id)) {
        error = leave_to_worker(&awaited, &future);
    }
    if (error == NULL && future == NULL) {
        PLAIT_TRY(take(&awaited));
    }
    if (future != NULL) {
        frame->future = future;
    }
done:
    return (status != PLAIT_OK) ? plait_ffi_error(frame->api, status) : error;
}

#define HANDLER(_name)                                                             \
    PLAIT_EXPORT plait_ffi_error_t *plait_ffi_start_##_name(plait_ffi_frame_t *f); \
    plait_ffi_error_t *plait_ffi_start_##_name(plait_ffi_frame_t *f)               \
    {                                                                              \
        return start(&plait_op_##_name, f);                                        \
    }
PLAIT_OP_FOR_EACH(HANDLER)
