/* Arrays in the memory of NVIDIA GPUs, one for each rank. Nothing of CUDA is needed to compile or to link
 * a program: its libraries are found at run time. */
#ifndef PLAIT_CUDA_H
#define PLAIT_CUDA_H

#include "plait/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** From here on the arrays of what is planned, called and executed with this handle are in the memory of
 *  a CUDA device, and all that is done with them is in the order of a stream. What has no arrays of
 *  elements stays as it is: counts, layouts and envelopes are the host's.
 *
 *  A function that returned OK has enqueued its work: results are there for what is enqueued on the stream
 *  afterwards, and operands may be overwritten or freed in its order. It waits for the device only where
 *  bytes are staged in host memory or go by MPI, in plait_barrier, and in the first message that comes
 *  from another process. A failure that the device reports later is that of a
 *  later call.
 *
 *  A handle has one device for as long as it lives, and a stream until it is given another one, which goes
 *  on after what was enqueued here. Collectives want all ranks on devices; a message may go from a
 *  device to a host. Plans are for the place where the handle's arrays were when they were made.
 *  Collective: no; the device is found, and the first time the kernels for it are compiled or loaded.
 *  Shapes: none. ordinal: as cudaGetDeviceCount counts; the device's primary context is used, which is that of
 *  CUDA's runtime. stream: a cudaStream_t or CUstream of this device.
 *  Owns: the stream stays the caller's, and lives until the handle is destroyed or has left it.
 *  Errors: COMM (comm is NULL), UNSUPPORTED (no driver, no such device, no NVRTC, PLAIT_CUDA=0: what was
 *  looked for), INVALID (the handle has another device), NO_MEMORY, INTERNAL (a failure of the driver).
 *  Where it fails all is as before.  Source: own. */
PLAIT_EXPORT plait_status_t plait_comm_on_cuda(plait_comm_t *comm, int ordinal,
                                               void *stream);

/** From here on they are in host memory again, as at first. What is on the stream is not waited for.
 *  Collective: no.  Shapes: none.  Owns: nothing.
 *  Errors: COMM (comm is NULL), INTERNAL (a failure of the driver).  Source: own. */
PLAIT_EXPORT plait_status_t plait_comm_on_host(plait_comm_t *comm);

#ifdef __cplusplus
}
#endif
#endif
