/* The XLA handlers for arrays on a device: plait_cuda_<name> has the operands and attributes of plait_<name>
 * and is registered under that name for the platform. Work on the device is enqueued on XLA's stream. The
 * calling thread waits if the link between devices is blocking (transport/device_link.h), as copies staged in
 * host memory are. */
#include "base/status.h"
#include "device/find.h"
#include "ffi/frame.h"
#include "ffi/lender.h"
#include "ffi/on_device.h"
#include "ops/list.h"
#include "plan/launch.h"

/* The most explicit tokens of one call. XLA keeps them on the device. */
enum { MAX_TOKENS = 4 };

plait_ffi_error_t *plait_ffi_find_device(const plait_ffi_frame_t *frame,
                                         plait_device_t **device_p,
                                         plait_stream_t *stream_p)
{
    plait_status_t status = PLAIT_OK;
    int32_t ordinal = 0;
    plait_ffi_stream_get_t stream = {.struct_size = PLAIT_FFI_STREAM_GET_SIZE,
                                     .ctx = frame->ctx};
    plait_ffi_error_t *error = plait_ffi_ordinal(frame, &ordinal);

    if (error == NULL) {
        error = frame->api->stream_get(&stream);
    }
    if (error != NULL) {
        return error; /* XLA's own */
    }
    *stream_p = stream.stream;
    status = plait_device_find(ordinal, device_p);
    return (status != PLAIT_OK) ? plait_ffi_error(frame->api, status) : NULL;
}

plait_status_t plait_ffi_pass_tokens_on(const plait_ffi_frame_t *frame,
                                        plait_device_t *device, plait_stream_t stream,
                                        int64_t n_args, int64_t n_rets)
{
    plait_status_t status = PLAIT_OK;
    plait_device_box_t boxes[MAX_TOKENS];
    int64_t n_boxes = 0;

    for (int64_t i = 0; i < frame->args.size - n_args && i < frame->rets.size - n_rets;
         i++) {
        const plait_ffi_buffer_t *from = frame->args.items[n_args + i];
        const plait_ffi_buffer_t *to = frame->rets.items[n_rets + i];
        const plait_array_t array = plait_ffi_array(to);
        if (to->dtype != PLAIT_FFI_TOKEN && from->data != to->data) {
            PLAIT_CHECK(n_boxes < MAX_TOKENS, PLAIT_ERR_UNSUPPORTED,
                        "more than %d tokens", MAX_TOKENS);
            boxes[n_boxes++] =
                (plait_device_box_t){.kind = PLAIT_DEVICE_COPY,
                                     .src = from->data,
                                     .dst = to->data,
                                     .box = {.row_bytes = plait_array_bytes(&array)}};
        }
    }
    if (n_boxes > 0) {
        PLAIT_TRY(device->table->enter(device));
        status = device->table->boxes(device, stream, PLAIT_U8, n_boxes, boxes);
        device->table->leave(device);
    }
done:
    return status;
}

static plait_ffi_error_t *run(const plait_op_t *op, plait_ffi_frame_t *frame)
{
    plait_status_t status = PLAIT_OK;
    plait_ffi_error_t *error = NULL;
    plait_ffi_lender_t memory = plait_ffi_lender(frame);
    plait_ffi_call_t c;

    if (plait_ffi_answers_query(frame)) {
        return NULL;
    }
    error = plait_ffi_decode(op, frame, false, &c);
    if (error == NULL) {
        error = plait_ffi_find_device(frame, &c.call.device, &c.call.stream);
    }
    if (error != NULL) {
        return error;
    }
    c.call.lender = &memory.lender;
    PLAIT_TRY(plait_op_run(&c.call));
    PLAIT_TRY(plait_ffi_pass_tokens_on(frame, c.call.device, c.call.stream, op->n_args,
                                       op->n_rets));
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
