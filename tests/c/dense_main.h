/* The main program of tests of dense operations: on the host, on check devices with the argument `device`, on
 * CUDA devices with `cuda`. Without BLAS, or without a GPU, there is nothing to test. */
#ifndef PLAIT_TESTS_DENSE_MAIN_H
#define PLAIT_TESTS_DENSE_MAIN_H

#include "device/pool.h"
#include "kernel/blas.h"
#include "on_device.h"

enum { SKIPPED = 77 };

static inline int dense_main(const char *name, int n_arguments, char **arguments,
                             void (*on_devices)(void), void (*on_host)(void))
{
    if (plait_blas_require() != PLAIT_OK) {
        printf("%s: skipped: %s\n", name, plait_error_text());
        return SKIPPED;
    }
    if (n_arguments > 1 && strcmp(arguments[1], "cuda") == 0) {
        if (!on_device_use_cuda()) {
            return SKIPPED;
        }
        on_devices();
        plait_cuda_release();
    } else if (on_device_is_asked(n_arguments, arguments)) {
        on_devices();
    } else {
        on_host();
    }
    (void)plait_pool_trim();
    return report(name);
}

#endif
