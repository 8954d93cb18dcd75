/* The XLA handlers for arrays on a device: plait_cuda_<name> has the operands and attributes of
 * plait_<name> and is registered under its name for the platform. What is done on the device is
 * enqueued on XLA's stream; the calling thread waits where the link between devices is blocking
 * (transport/device_link.h), as copies staged in host memory are. */
#include "base/status.h"
#include "device/find.h"
#include "ffi/frame.h"
#include "ffi/lender.h"
#include "ops/list.h"
#include "plan/launch.h"

/* Explicit tokens that XLA keeps on a device: the most that a call has. */
enum { MAX_TOKENS = 4 };

/* The device's number and stream, as XLA has them. */
static plait_ffi_error_t *ask(const plait_ffi_frame_t *frame, int32_t *ordinal_p,
                              plait_stream_t *stream_p)
{
    plait_ffi_stream_get_t stream = {.struct_size = PLAIT_FFI_STREAM_GET_SIZE,
                                     .ctx = frame->ctx};
    plait_ffi_error_t *error = plait_ffi_ordinal(frame, ordinal_p);

    if (error == NULL) {
        error = frame->api->stream_get(&stream);
    }
    *stream_p = stream.stream;
    return error; /* XLA's own */
}

/* What went in as a token comes out, in the order of the stream. */
static plait_status_t pass_tokens(const plait_ffi_frame_t *frame,
                                  const plait_call_t *call)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = call->device;
    plait_device_box_t boxes[MAX_TOKENS];
    int64_t n_boxes = 0;
    const int n_args = call->op->n_args;
    const int n_rets = call->op->n_rets;

    for (int64_t i = 0; i < frame->args.size - n_args && i < frame->rets.size - n_rets;
         i++) {
        const plait_ffi_buffer_t *from = frame->args.items[n_args + i];
        const plait_ffi_buffer_t *to = frame->rets.items[n_rets + i];
        const plait_array_t array = plait_ffi_array(to);
        if (to->dtype != PLAIT_FFI_TOKEN && from->data != to->data) {
            PLAIT_CHECK(n_boxes < MAX_TOKENS, PLAIT_ERR_UNSUPPORTED,
                        "%s: more than %d tokens", call->op->name, MAX_TOKENS);
            boxes[n_boxes++] =
                (plait_device_box_t){.kind = PLAIT_DEVICE_COPY,
                                     .src = from->data,
                                     .dst = to->data,
                                     .box = {.row_bytes = plait_array_bytes(&array)}};
        }
    }
    if (n_boxes > 0) {
        PLAIT_TRY(device->table->enter(device));
        status = device->table->boxes(device, call->stream, PLAIT_U8, n_boxes, boxes);
        device->table->leave(device);
    }
done:
    return status;
}

static plait_ffi_error_t *run(const plait_op_t *op, plait_ffi_frame_t *frame)
{
    plait_status_t status = PLAIT_OK;
    plait_ffi_error_t *error = NULL;
    int32_t ordinal = 0;
    plait_ffi_lender_t memory = plait_ffi_lender(frame);
    plait_ffi_call_t c;

    if (plait_ffi_answers_query(frame)) {
        return NULL;
    }
    error = plait_ffi_decode(op, frame, false, &c);
    if (error == NULL) {
        error = ask(frame, &ordinal, &c.call.stream);
    }
    if (error != NULL) {
        return error;
    }
    PLAIT_TRY(plait_device_find(ordinal, &c.call.device));
    c.call.lender = &memory.lender;
    PLAIT_TRY(plait_op_run(&c.call));
    PLAIT_TRY(pass_tokens(frame, &c.call));
done:
    return (status != PLAIT_OK) ? plait_ffi_error(frame->api, status) : NULL;
}

#define HANDLER(_name)                                                                \
    PLAIT_EXPORT plait_ffi_error_t *plait_ffi_cuda_##_name(plait_ffi_frame_t *frame); \
    plait_ffi_error_t *plait_ffi_cuda_##_name(plait_ffi_frame_t *frame)               \
    {                                                                                 \
        return run(&plait_op_##_name, frame);                                         \
    }
PLAIT_OP_FOR_EACH(HANDLER)
