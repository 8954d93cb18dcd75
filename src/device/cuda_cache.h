/* A cache of compiled kernels, in files of this user alone: PLAIT_CUDA_CACHE (a folder, or 0 for none),
 * $XDG_CACHE_HOME/plait/cuda or ~/.cache/plait/cuda. Any number of processes may use it. */
#ifndef PLAIT_DEVICE_CUDA_CACHE_H
#define PLAIT_DEVICE_CUDA_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* The data under this key, for plait_free. False: there is no file, or it is not whole. */
bool plait_cuda_cache_read(uint64_t key, void **data_p, int64_t *n_bytes_p);

/* If the cache cannot be written, nothing is cached or reported. */
void plait_cuda_cache_write(uint64_t key, const void *data, int64_t n_bytes);

#endif
