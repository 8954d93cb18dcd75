/* Monotonic time in nanoseconds. */
#ifndef PLAIT_BASE_CLOCK_H
#define PLAIT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t plait_clock_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
