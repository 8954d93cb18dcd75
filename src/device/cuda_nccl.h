/* NCCL behind the functions of device.h, for CUDA devices. */
#ifndef PLAIT_DEVICE_CUDA_NCCL_H
#define PLAIT_DEVICE_CUDA_NCCL_H

#include "device/device.h"

extern const plait_device_nccl_t plait_cuda_nccl;

#endif
