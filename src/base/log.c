#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static plait_log_level_t threshold(void)
{
    const char *wanted = getenv("PLAIT_LOG");

    for (int i = PLAIT_LOG_ERROR; (wanted != NULL) && (i <= PLAIT_LOG_DEBUG); i++) {
        if (strcmp(wanted, level_names[i]) == 0) {
            return (plait_log_level_t)i;
        }
    }
    return PLAIT_LOG_WARN;
}

void plait_log(plait_log_level_t level, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    if (level > threshold()) {
        return;
    }
    int n = snprintf(line, sizeof(line), "plait %s: ", level_names[level]);
    va_start(args, format);
    int more = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    va_end(args);
    if (more >= 0) {
        size_t length = strlen(line);
        line[length] = '\n';
        (void)!write(STDERR_FILENO, line, length + 1);
    }
}
