/* What the handlers of calls on a device have in common. */
#ifndef PLAIT_FFI_ON_DEVICE_H
#define PLAIT_FFI_ON_DEVICE_H

#include "ffi/frame.h"

/* The frame's device and XLA's stream there. Returns NULL or an XLA error. */
plait_ffi_error_t *plait_ffi_find_device(const plait_ffi_frame_t *frame,
                                         plait_device_t **device_p,
                                         plait_stream_t *stream_p);

/* As plait_ffi_pass_tokens, in the stream's order. */
plait_status_t plait_ffi_pass_tokens_on(const plait_ffi_frame_t *frame,
                                        plait_device_t *device, plait_stream_t stream,
                                        int64_t n_args, int64_t n_rets);

#endif
