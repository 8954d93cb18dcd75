/* Prototypes of all functions that plait takes from CUDA's libraries, and what the stand-ins share.
 *
 * PLAIT_FAKE_FAIL=name:result:n   the n-th call of that function of the driver returns the result, and
 *                                 from then on every one, as after a failure of the context */
#ifndef PLAIT_TESTS_FAKE_CUDA_H
#define PLAIT_TESTS_FAKE_CUDA_H

#include "device/cuda_load.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOTYPE(_library, _type, _symbol, _arguments) _type _symbol _arguments;
PLAIT_CUDA_SYMBOL_FOR_EACH(PROTOTYPE)
PLAIT_CUDA_OPTIONAL_FOR_EACH(PROTOTYPE)
#undef PROTOTYPE

/* Calls may come from several threads; a stand-in makes one at a time, until the function that says LOCKED
 * returns. */
extern pthread_mutex_t fake_cuda_lock;

static inline pthread_mutex_t *fake_cuda_take(void)
{
    (void)pthread_mutex_lock(&fake_cuda_lock);
    return &fake_cuda_lock;
}

static inline void fake_cuda_give(pthread_mutex_t **lock)
{
    (void)pthread_mutex_unlock(*lock);
}

#define LOCKED                                                             \
    pthread_mutex_t *fake_taken __attribute__((cleanup(fake_cuda_give))) = \
        fake_cuda_take();                                                  \
    (void)fake_taken

static inline int number_of_environment(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return (text != NULL) ? atoi(text) : otherwise;
}

#endif
