/* Calls that complete after their handler has returned. XLA's thread goes on with work that does not need the
 * result. The thread that completes a call may run the rest of the program, so it holds no lock then. */
#ifndef PLAIT_FFI_FUTURE_H
#define PLAIT_FFI_FUTURE_H

#include "ffi/abi.h"
#include "plait/status.h"

#include <stdbool.h>

/* Whether a call that touches n_bytes runs on a thread of plait's own. PLAIT_ASYNC: "off", or the least number
 * of bytes for which calls do; 1 MiB if it is not set. */
bool plait_ffi_is_async(const plait_ffi_api_t *api, int64_t n_bytes);

/* Returns NULL or an XLA error. */
plait_ffi_error_t *plait_ffi_future_create(const plait_ffi_api_t *api,
                                           plait_ffi_future_t **future_p);

/* If the status is not OK, this thread's error text becomes XLA's error. */
void plait_ffi_future_complete(const plait_ffi_api_t *api, plait_ffi_future_t *future,
                               plait_status_t status);

#endif
