/* cuSOLVERMp behind the functions of device.h, for CUDA devices of several processes. It uses only the
 * device's ordinal and the functions of its table. */
#ifndef PLAIT_DEVICE_CUDA_MP_H
#define PLAIT_DEVICE_CUDA_MP_H

#include "device/device.h"

extern const plait_device_grid_t plait_cuda_grid;

/* Releases what is kept for all devices. Called before the devices are released, with no grid open. */
void plait_cuda_grid_release(void);

#endif
