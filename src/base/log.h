/* Log lines on standard error; level from PLAIT_LOG (error, warn, info, debug). */
#ifndef PLAIT_BASE_LOG_H
#define PLAIT_BASE_LOG_H

typedef enum {
    PLAIT_LOG_ERROR,
    PLAIT_LOG_WARN,
    PLAIT_LOG_INFO,
    PLAIT_LOG_DEBUG
} plait_log_level_t;

/* One line, one write; lower case, the value after its name. Never in a hot loop. */
void plait_log(plait_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
