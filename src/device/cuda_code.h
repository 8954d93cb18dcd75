/* The kernels of src/device/cuda as machine code for one kind of device. */
#ifndef PLAIT_DEVICE_CUDA_CODE_H
#define PLAIT_DEVICE_CUDA_CODE_H

#include "plait/status.h"

#include <stdint.h>

/* The text of all kernels, ending in 0; made by cmake/cuda.cmake. */
extern const unsigned char plait_cuda_source[];

/** What the driver loads on devices of compute capability 10 major + minor: a cubin, or
 *  PTX of the newest older kind where NVRTC does not know this one; for plait_free. From the cache, or
 *  compiled, which takes seconds.
 *  UNSUPPORTED: no NVRTC, or a device older than it knows. INTERNAL: it does not compile. */
plait_status_t plait_cuda_code(int capability, void **image_p, int64_t *n_bytes_p);

#endif
