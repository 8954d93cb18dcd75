/* Stand-ins of CUDA's libraries, used if the argument `host` asks for them. */
#ifndef PLAIT_TESTS_CUDA_STAND_IN_H
#define PLAIT_TESTS_CUDA_STAND_IN_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Whether stand-ins were asked for. If so, the folder's are used, with that many devices. */
static inline bool cuda_stands_in(int n_arguments, char **arguments, const char *folder,
                                  const char *n_devices)
{
    const bool is_host = n_arguments > 1 && strcmp(arguments[1], "host") == 0;

    if (is_host) {
        (void)setenv("PLAIT_CUDA_DIR", folder, 1);
        (void)setenv("PLAIT_CUDA_CACHE", "0", 1);
        (void)setenv("PLAIT_FAKE_DEVICES", n_devices, 1);
    }
    return is_host;
}

#endif
