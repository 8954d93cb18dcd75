/* Condition variables whose time limits are measured by the monotonic clock. The real-time clock may be set
 * back while a thread waits. */
#ifndef PLAIT_BASE_COND_H
#define PLAIT_BASE_COND_H

#include <pthread.h>
#include <time.h>

static inline void plait_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
}

#endif
