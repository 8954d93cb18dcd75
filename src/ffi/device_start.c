/* The two halves of an operation (start.c) for arrays on a device. A started operation is on a stream of
 * plait's own, behind the work that XLA's stream had until then. If it exchanges messages, a thread of plait's
 * own does that. The operation's number is on the device, too. So the thread that calls wait waits until XLA's
 * stream has reached the number; it does not wait for the results. */
#include "base/status.h"
#include "ffi/frame.h"
#include "ffi/on_device.h"
#include "ops/list.h"
#include "plan/started.h"

static plait_ffi_error_t *start(const plait_op_t *op, plait_ffi_frame_t *frame)
{
    plait_status_t status = PLAIT_OK;
    plait_ffi_error_t *error = NULL;
    plait_ffi_call_t c;

    if (plait_ffi_answers_query(frame)) {
        return NULL;
    }
    error = plait_ffi_decode(op, frame, true, &c);
    if (error == NULL) {
        error = plait_ffi_find_device(frame, &c.call.device, &c.call.stream);
    }
    if (error != NULL) {
        return error;
    }
    PLAIT_TRY(
        plait_ffi_pass_tokens_on(frame, c.call.device, c.call.stream, op->n_args, 1));
    PLAIT_TRY(plait_started_begin(&c.call, frame->rets.items[0]->data));
done:
    return (status != PLAIT_OK) ? plait_ffi_error(frame->api, status) : NULL;
}

PLAIT_EXPORT plait_ffi_error_t *plait_ffi_cuda_wait(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_cuda_wait(plait_ffi_frame_t *frame)
{
    plait_status_t status = PLAIT_OK;
    plait_ffi_error_t *error = NULL;
    plait_device_t *device = NULL;
    plait_stream_t stream = NULL;
    const float *number = NULL;
    plait_array_t rets[PLAIT_MAX_ARRAYS];
    int n_rets = 0;
    int64_t id = 0;

    if (plait_ffi_answers_query(frame)) {
        return NULL;
    }
    PLAIT_TRY(plait_ffi_read_wait(frame, &number, &n_rets, rets));
    error = plait_ffi_find_device(frame, &device, &stream);
    if (error != NULL) {
        return error;
    }
    PLAIT_TRY(plait_started_read(number, device, stream, &id));
    PLAIT_TRY(plait_started_take(id, n_rets, rets, device, stream));
    PLAIT_TRY(plait_ffi_pass_tokens_on(frame, device, stream, 1, n_rets));
done:
    return (status != PLAIT_OK) ? plait_ffi_error(frame->api, status) : NULL;
}

#define HANDLER(_name)                                                    \
    PLAIT_EXPORT plait_ffi_error_t *plait_ffi_cuda_start_##_name(         \
        plait_ffi_frame_t *f);                                            \
    plait_ffi_error_t *plait_ffi_cuda_start_##_name(plait_ffi_frame_t *f) \
    {                                                                     \
        return start(&plait_op_##_name, f);                               \
    }
PLAIT_OP_FOR_EACH(HANDLER)
