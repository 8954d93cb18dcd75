#include "base/log.h"

#include "base/setting.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

static const char *const level_names[] = {[PLAIT_LOG_ERROR] = "error",
                                          [PLAIT_LOG_WARN] = "warn",
                                          [PLAIT_LOG_INFO] = "info",
                                          [PLAIT_LOG_DEBUG] = "debug",
                                          NULL};

void plait_log(plait_log_level_t level, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    if ((int)level > plait_setting("PLAIT_LOG", level_names, PLAIT_LOG_WARN)) {
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
