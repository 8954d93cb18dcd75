/* How a failure is reported: once, by the code that detects it; callers pass the status on. */
#ifndef PLAIT_BASE_STATUS_H
#define PLAIT_BASE_STATUS_H

#include "plait/status.h"

enum { PLAIT_ERROR_BYTES = 2048 };

/* Records the text for plait_error_text() of this thread and returns `status`. */
plait_status_t plait_fail(plait_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts `format` before the recorded text: the caller knows the operation and the rank. */
void plait_error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* How much of `title`, which begins with an operation's name, is to go before the recorded text: the name's
 * length, or 0 if the text already begins with the name. */
int plait_error_name(const char *title);

/* Both need a local `status` and a label `done` at the function's single exit. */
#define PLAIT_CHECK(_cond, _status, ...)           \
    do {                                           \
        if (!(_cond)) {                            \
            status = (_status);                    \
            (void)plait_fail(status, __VA_ARGS__); \
            goto done;                             \
        }                                          \
    } while (0)

#define PLAIT_TRY(_call)          \
    do {                          \
        status = (_call);         \
        if (status != PLAIT_OK) { \
            goto done;            \
        }                         \
    } while (0)

#endif
