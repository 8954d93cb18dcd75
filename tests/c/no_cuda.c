/* Takes the place of src/device/cuda.c in the programs of run_mpi.py, which have no CUDA kernels. */
#include "base/status.h"
#include "device/cuda.h"

#include <stddef.h>

plait_status_t plait_cuda_device(int ordinal, plait_device_t **device_p)
{
    *device_p = NULL;
    return plait_fail(PLAIT_ERR_UNSUPPORTED, "no CUDA here for device %d", ordinal);
}
