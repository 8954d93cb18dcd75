#include "ffi/lender.h"

#include "base/log.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>

/* ALIGNMENT is the most that XLA accepts; its memory is aligned to 256 bytes. */
enum { ALIGNMENT = 16, TEXT_BYTES = 300 };

/* Copies XLA's message and destroys the error. */
static void take_text(const plait_ffi_api_t *api, plait_ffi_error_t *error, char *text)
{
    plait_ffi_error_message_t said = {.struct_size = PLAIT_FFI_ERROR_MESSAGE_SIZE,
                                      .error = error};
    plait_ffi_error_destroy_t done = {.struct_size = PLAIT_FFI_ERROR_DESTROY_SIZE,
                                      .error = error};

    api->error_get_message(&said);
    (void)snprintf(text, TEXT_BYTES, "%s", said.message);
    api->error_destroy(&done);
}

static plait_status_t take(plait_lender_t *lender, int64_t n_bytes, void **memory_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_ffi_lender_t *xla = (const plait_ffi_lender_t *)(void *)lender;
    plait_ffi_memory_allocate_t args = {.struct_size = PLAIT_FFI_MEMORY_ALLOCATE_SIZE,
                                        .ctx = xla->ctx,
                                        .size = (size_t)n_bytes,
                                        .alignment = ALIGNMENT};
    plait_ffi_error_t *error = xla->api->memory_allocate(&args);
    char text[TEXT_BYTES];

    if (error != NULL) {
        take_text(xla->api, error, text);
        PLAIT_CHECK(false, PLAIT_ERR_NO_MEMORY,
                    "XLA has no %lld bytes of device memory to work in: %s",
                    (long long)n_bytes, text);
    }
    *memory_p = args.data;
done:
    return status;
}

static void give(plait_lender_t *lender, void *memory, int64_t n_bytes)
{
    const plait_ffi_lender_t *xla = (const plait_ffi_lender_t *)(void *)lender;
    plait_ffi_memory_free_t args = {.struct_size = PLAIT_FFI_MEMORY_FREE_SIZE,
                                    .ctx = xla->ctx,
                                    .size = (size_t)n_bytes,
                                    .data = memory};
    plait_ffi_error_t *error = xla->api->memory_free(&args);
    char text[TEXT_BYTES];

    if (error != NULL) {
        take_text(xla->api, error, text);
        plait_log(PLAIT_LOG_WARN, "XLA does not take %lld bytes back: %s",
                  (long long)n_bytes, text);
    }
}

plait_ffi_lender_t plait_ffi_lender(const plait_ffi_frame_t *frame)
{
    return (plait_ffi_lender_t){
        .lender = {.take = take, .give = give}, .api = frame->api, .ctx = frame->ctx};
}
