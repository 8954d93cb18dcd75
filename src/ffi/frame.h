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

/* The query at registration: true if this was one, answered. */
bool plait_ffi_answers_query(const plait_ffi_frame_t *frame);

/* The status, with this thread's error text and call site, as an error of XLA's. */
plait_ffi_error_t *plait_ffi_error(const plait_ffi_api_t *api, plait_status_t status);

/* The text of this process's last one; empty: there was none. */
PLAIT_EXPORT int64_t plait_ffi_latest_failure(char *text, int n_bytes);

/* The number of the device that this call is for. UNSUPPORTED where jaxlib is too old to say. */
plait_ffi_error_t *plait_ffi_ordinal(const plait_ffi_frame_t *frame,
                                     int32_t *ordinal_p);

/* Whether the frame is one to execute, with at least so many operands and results. */
plait_status_t plait_ffi_check_frame(const char *name, const plait_ffi_frame_t *frame,
                                     int64_t n_args, int64_t n_rets);

/* Fills c; the thread runs for the call's site from now on. Results are the frame's, or for an
 * operation that is only started those that the attribute `results` describes: dtype, number
 * of axes and extents of each. An error is XLA's. */
plait_ffi_error_t *plait_ffi_decode(const plait_op_t *op,
                                    const plait_ffi_frame_t *frame, bool is_start,
                                    plait_ffi_call_t *c);

/* Of a frame that waits for a started operation. Operands: the number, tokens, and n_after arrays
 * that only had to be there first; results: those of the operation, and tokens. */
plait_status_t plait_ffi_read_wait(const plait_ffi_frame_t *frame,
                                   const float **number_p, int *n_rets_p,
                                   plait_array_t rets[]);

/* An attribute that is an integer. */
plait_status_t plait_ffi_int(const plait_ffi_attrs_t *attrs, const char *name,
                             int64_t *value_p);

plait_array_t plait_ffi_array(const plait_ffi_buffer_t *buffer);

/* An explicit token follows n_args operands and n_rets results: what went in comes out. */
void plait_ffi_pass_tokens(const plait_ffi_frame_t *frame, int64_t n_args,
                           int64_t n_rets);

#endif
