/* Prototypes of all functions that plait takes from CUDA's libraries, and what the stand-ins share.
 *
 * PLAIT_FAKE_FAIL=name:result:n   the n-th call of that function of the driver returns the result, and
 *                                 from then on every one, as after a failure of the context */
#ifndef PLAIT_TESTS_FAKE_CUDA_H
#define PLAIT_TESTS_FAKE_CUDA_H

#include "device/cuda_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOTYPE(_library, _type, _symbol, _arguments) _type _symbol _arguments;
PLAIT_CUDA_SYMBOL_FOR_EACH(PROTOTYPE)
PLAIT_CUDA_OPTIONAL_FOR_EACH(PROTOTYPE)
#undef PROTOTYPE

static inline int number_of_environment(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return (text != NULL) ? atoi(text) : otherwise;
}

#endif
