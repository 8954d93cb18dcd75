/* Ends what fake_nvshmem.c has started for devices of this process, and what the library knows of it. */
#ifndef PLAIT_TESTS_NVSHMEM_H
#define PLAIT_TESTS_NVSHMEM_H

#include "device/cuda_load.h"
#include "device/cuda_nvshmem.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static inline void nvshmem_end(int n_devices, plait_device_t *const devices[])
{
    const char *path = plait_cuda_path(PLAIT_CUDA_NVSHMEM);
    void *library =
        (path[0] != '\0') ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
    void *address = (library != NULL) ? dlsym(library, "fake_nvshmem_end") : NULL;
    void (*end)(const plait_device_t *) = NULL;

    memcpy(&end, &address, sizeof(end));
    for (int i = 0; i < n_devices && end != NULL; i++) {
        end(devices[i]);
    }
    if (library != NULL) {
        (void)dlclose(library);
    }
    plait_cuda_nvshmem_forget();
}

#endif
