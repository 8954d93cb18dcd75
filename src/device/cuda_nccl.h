/* NCCL behind the functions of device.h, for CUDA devices. */
#ifndef PLAIT_DEVICE_CUDA_NCCL_H
#define PLAIT_DEVICE_CUDA_NCCL_H

#include "device/cuda_load.h"
#include "device/device.h"

/* is_blocking: this call waits for all ranks, and later calls wait, too, as other libraries expect. */
plait_status_t plait_cuda_nccl_open(const plait_nccl_id_t *id, int n_ranks, int rank,
                                    bool is_blocking, plait_nccl_t **nccl_p);
plait_nccl_comm_t plait_cuda_nccl_comm(const plait_nccl_t *nccl);

extern const plait_device_nccl_t plait_cuda_nccl;

#endif
