/* XLA's own allocator as the lender of a call's device memory, so that plait's work memory is part of the
 * memory that XLA has set aside. */
#ifndef PLAIT_FFI_LENDER_H
#define PLAIT_FFI_LENDER_H

#include "device/lender.h"
#include "ffi/abi.h"

typedef struct {
    plait_lender_t lender; /* first, so that both have one address */
    const plait_ffi_api_t *api;
    plait_ffi_context_t *ctx;
} plait_ffi_lender_t;

/* Lends until the handler of the frame returns. NO_MEMORY, with XLA's own message. */
plait_ffi_lender_t plait_ffi_lender(const plait_ffi_frame_t *frame);

#endif
