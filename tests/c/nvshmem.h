/* The end of what fake_nvshmem.c has started, for devices of this process, and of what the library
 * knows of it. FAKES_DIR has the stand-in. */
#ifndef PLAIT_TESTS_NVSHMEM_H
#define PLAIT_TESTS_NVSHMEM_H

#include "device/cuda_nvshmem.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static inline void *nvshmem_function(const char *name)
{
    void *library =
        dlopen(FAKES_DIR "/libnvshmem_host.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void *address = (library != NULL) ? dlsym(library, name) : NULL;

    if (library != NULL) {
        (void)dlclose(library);
    }
    return address;
}

static inline void nvshmem_end(int n_devices, plait_device_t *const devices[])
{
    void (*end)(const plait_device_t *) = NULL;
    void *address = nvshmem_function("fake_nvshmem_end");

    memcpy(&end, &address, sizeof(end));
    for (int i = 0; i < n_devices && end != NULL; i++) {
        end(devices[i]);
    }
    plait_cuda_nvshmem_forget();
}

#endif
