/* NVSHMEM behind the functions of device.h, for CUDA devices. */
#ifndef PLAIT_DEVICE_CUDA_NVSHMEM_H
#define PLAIT_DEVICE_CUDA_NVSHMEM_H

#include "device/device.h"

extern const plait_device_nvshmem_t plait_cuda_nvshmem;

/* Forgets started jobs, for tests, after their end. */
void plait_cuda_nvshmem_forget(void);

#endif
