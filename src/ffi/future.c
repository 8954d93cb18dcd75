#include "ffi/future.h"

#include "base/log.h"
#include "ffi/frame.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

/* Chosen by a rule of thumb, not by measuring operations: waking a thread takes some ten microseconds, which
 * should be small beside the copying that the operation does anyway. */
enum { DEFAULT_BYTES = 1 << 20 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int64_t least_bytes = DEFAULT_BYTES; /* -1: never */

static void read_setting(void)
{
    const char *text = getenv("PLAIT_ASYNC");
    char *end = NULL;

    if (text == NULL || text[0] == '\0') {
        return;
    }
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (strcasecmp(text, "off") == 0) {
        least_bytes = -1;
    } else if (errno == 0 && *end == '\0' && value >= 0) {
        least_bytes = value;
    } else {
        plait_log(
            PLAIT_LOG_WARN,
            "PLAIT_ASYNC is '%.40s': expected off or a number of bytes, %d is taken",
            text, DEFAULT_BYTES);
    }
}

bool plait_ffi_is_async(const plait_ffi_api_t *api, int64_t n_bytes)
{
    (void)pthread_once(&once, read_setting);
    return least_bytes >= 0 && n_bytes >= least_bytes &&
           api->struct_size >= sizeof(plait_ffi_api_t);
}

plait_ffi_error_t *plait_ffi_future_create(const plait_ffi_api_t *api,
                                           plait_ffi_future_t **future_p)
{
    plait_ffi_future_create_t args = {.struct_size = PLAIT_FFI_FUTURE_CREATE_SIZE};
    plait_ffi_error_t *error = api->future_create(&args);

    *future_p = args.future;
    return error;
}

void plait_ffi_future_complete(const plait_ffi_api_t *api, plait_ffi_future_t *future,
                               plait_status_t status)
{
    if (status == PLAIT_OK) {
        plait_ffi_future_set_available_t args = {
            .struct_size = PLAIT_FFI_FUTURE_SET_AVAILABLE_SIZE, .future = future};
        (void)api->future_set_available(&args);
    } else {
        plait_ffi_future_set_error_t args = {.struct_size =
                                                 PLAIT_FFI_FUTURE_SET_ERROR_SIZE,
                                             .future = future,
                                             .error = plait_ffi_error(api, status)};
        (void)api->future_set_error(&args);
    }
}
