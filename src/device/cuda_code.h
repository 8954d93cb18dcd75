/* The kernels of src/device/cuda as machine code for one kind of device. */
#ifndef PLAIT_DEVICE_CUDA_CODE_H
#define PLAIT_DEVICE_CUDA_CODE_H

#include "plait/status.h"

#include <stdint.h>

/* The text of all kernels, ending in 0; made by cmake/cuda.cmake. */
extern const unsigned char plait_cuda_source[];

/** An image for devices of compute capability 10 major + minor: a cubin, or PTX of the newest older kind if
 *  NVRTC does not know this one; for plait_free. It comes from the cache or is compiled, which takes seconds.
 *  UNSUPPORTED: no NVRTC, or the device is older than NVRTC knows. INTERNAL: it does not compile. */
plait_status_t plait_cuda_code(int capability, void **image_p, int64_t *n_bytes_p);

#endif
