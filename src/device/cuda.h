/* CUDA devices behind the table of device.h. */
#ifndef PLAIT_DEVICE_CUDA_H
#define PLAIT_DEVICE_CUDA_H

#include "device/device.h"

/** The process's CUDA device of this ordinal, from any thread. The first call makes it: it keeps the primary
 *  context and loads plait's kernels. UNSUPPORTED: no driver, no device, or no NVRTC, with what was looked
 *  for. */
plait_status_t plait_cuda_device(int ordinal, plait_device_t **device_p);

/** "NVIDIA H200, 139.8 GiB, sm_90" of a device, or why there is none; for people. Static until the next call
 *  of this thread. NULL for an ordinal other than 0 that no device has. */
PLAIT_EXPORT const char *plait_cuda_device_say(int ordinal);

/** Releases what all devices hold, for tests: nothing may be in use or under way. */
void plait_cuda_release(void);

#endif
