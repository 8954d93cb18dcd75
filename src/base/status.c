#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[PLAIT_ERROR_BYTES];

static const char *const names[PLAIT_STATUS_COUNT] = {
    [PLAIT_OK] = "OK",
    [PLAIT_ERR_INVALID] = "INVALID",
    [PLAIT_ERR_NO_MEMORY] = "NO_MEMORY",
    [PLAIT_ERR_OVERFLOW] = "OVERFLOW",
    [PLAIT_ERR_UNSUPPORTED] = "UNSUPPORTED",
    [PLAIT_ERR_TRANSPORT] = "TRANSPORT",
    [PLAIT_ERR_MISMATCH] = "MISMATCH",
    [PLAIT_ERR_TRUNCATION] = "TRUNCATION",
    [PLAIT_ERR_COMM] = "COMM",
    [PLAIT_ERR_TIMEOUT] = "TIMEOUT",
    [PLAIT_ERR_PEER] = "PEER",
    [PLAIT_ERR_INTERNAL] = "INTERNAL",
};

const char *plait_status_name(plait_status_t status)
{
    return ((int)status >= 0 && status < PLAIT_STATUS_COUNT) ? names[status]
                                                             : "UNKNOWN";
}

const char *plait_error_text(void)
{
    return text;
}

plait_status_t plait_fail(plait_status_t status, const char *format, ...)
{
    char next[PLAIT_ERROR_BYTES]; /* the arguments may point into `text` */
    va_list args;

    va_start(args, format);
    (void)vsnprintf(next, sizeof(next), format, args);
    va_end(args);
    memcpy(text, next, sizeof(text));
    return status;
}

int plait_error_name(const char *title)
{
    const size_t n = strcspn(title, "( ");
    const bool is_told = strncmp(text, title, n) == 0 && text[n] == ':';

    return is_told ? 0 : (int)n;
}

void plait_error_prefix(const char *format, ...)
{
    char head[PLAIT_ERROR_BYTES];
    va_list args;

    va_start(args, format);
    int n_head = vsnprintf(head, sizeof(head), format, args);
    va_end(args);
    if (n_head < 0) {
        return;
    }
    size_t room = (size_t)n_head < sizeof(head) ? sizeof(head) - (size_t)n_head : 1;
    (void)snprintf(head + (sizeof(head) - room), room, "%s", text);
    memcpy(text, head, sizeof(text));
}
