/* Reads XLA call frames: what a handler is asked to do, and how it answers. A frame, its context and the
 * descriptions of its buffers are valid only until the handler returns. The data that buffers point to are
 * valid until the call is complete. */
#ifndef PLAIT_FFI_FRAME_H
#define PLAIT_FFI_FRAME_H

#include "ffi/abi.h"
#include "plan/call.h"

/* A call with room for its parameters; lists and dims are borrowed from the frame. */
typedef struct {
    plait_call_t call;
    _Alignas(16) unsigned char params[PLAIT_MAX_PARAMS_BYTES];
} plait_ffi_call_t;

/* The query at registration: true if the frame was a query, which is then answered. */
bool plait_ffi_answers_query(const plait_ffi_frame_t *frame);

/* An XLA error from the status, this thread's error text and its call site. */
plait_ffi_error_t *plait_ffi_error(const plait_ffi_api_t *api, plait_status_t status);

/* Text of this process's latest failure, empty if there was none. Returns the number of failures. */
PLAIT_EXPORT int64_t plait_ffi_latest_failure(char *text, int n_bytes);

/* The number of the device that this call is for. UNSUPPORTED if jaxlib is too old to say. */
plait_ffi_error_t *plait_ffi_ordinal(const plait_ffi_frame_t *frame,
                                     int32_t *ordinal_p);

/* Checks that the frame is to be executed and has at least that many operands and results. */
plait_status_t plait_ffi_check_frame(const char *name, const plait_ffi_frame_t *frame,
                                     int64_t n_args, int64_t n_rets);

/* Fills c; the thread runs for the call's site from now on. The results are those of the frame. For an
 * operation that is only started, the attribute `results` describes them: dtype, number of axes and extents of
 * each. Returns NULL or an XLA error. */
plait_ffi_error_t *plait_ffi_decode(const plait_op_t *op,
                                    const plait_ffi_frame_t *frame, bool is_start,
                                    plait_ffi_call_t *c);

/* Reads a frame that waits for a started operation. Operands: the number, tokens, and arrays that only had to
 * exist before (as many as the attribute `n_after` says). Results: those of the operation, and tokens. */
plait_status_t plait_ffi_read_wait(const plait_ffi_frame_t *frame,
                                   const float **number_p, int *n_rets_p,
                                   plait_array_t rets[]);

/* Reads an integer attribute. */
plait_status_t plait_ffi_int(const plait_ffi_attrs_t *attrs, const char *name,
                             int64_t *value_p);

plait_array_t plait_ffi_array(const plait_ffi_buffer_t *buffer);

/* Explicit tokens follow n_args operands and n_rets results: each goes from operand to result unchanged. */
void plait_ffi_pass_tokens(const plait_ffi_frame_t *frame, int64_t n_args,
                           int64_t n_rets);

#endif
