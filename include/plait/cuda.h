/* Arrays in the memory of NVIDIA GPUs, one GPU for each rank. Compiling and linking a program needs nothing
 * of CUDA: its libraries are found at run time. */
#ifndef PLAIT_CUDA_H
#define PLAIT_CUDA_H

#include "plait/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Tells plait that this handle's arrays are in the memory of a CUDA device. From now on everything planned,
 *  called and executed with the handle takes arrays there and works in the order of a stream. Counts,
 *  layouts and envelopes stay in host memory.
 *
 *  A function that returned OK has enqueued its work. Work that is enqueued on the stream afterwards finds
 *  the results, and may overwrite or free the operands. The function waits for the device only where bytes
 *  are staged in host memory or go by MPI, in plait_barrier, and in the first message that comes from
 *  another process. If the device reports a failure later, a later call returns it.
 *
 *  A handle keeps its device for life. It keeps its stream until it gets another one; work on the new stream
 *  follows all work enqueued on the old one. Collectives need all ranks on devices; a message may go from a
 *  device to a host. A plan is for the place where the handle's arrays were when the plan was made.
 *  Collective: no; the call finds the device and, the first time, compiles or loads the kernels for it.
 *  Shapes: none. ordinal: as cudaGetDeviceCount counts; plait uses the device's primary context, which is
 *  also that of CUDA's runtime. stream: a cudaStream_t or CUstream of this device.
 *  Owns: the stream stays the caller's. It has to live until the handle is destroyed or has left it.
 *  Errors: COMM (comm is NULL), UNSUPPORTED (no driver, no such device, no NVRTC, PLAIT_CUDA=0; the text
 *  says what was looked for), INVALID (the handle has another device), NO_MEMORY, INTERNAL (a failure of the
 *  driver). A call that fails changes nothing.  Source: own. */
PLAIT_EXPORT plait_status_t plait_comm_on_cuda(plait_comm_t *comm, int ordinal,
                                               void *stream);

/** Tells plait that this handle's arrays are in host memory again, as at first. The call does not wait for
 *  work on the stream.
 *  Collective: no.  Shapes: none.  Owns: nothing.
 *  Errors: COMM (comm is NULL), INTERNAL (a failure of the driver).  Source: own. */
PLAIT_EXPORT plait_status_t plait_comm_on_host(plait_comm_t *comm);

#ifdef __cplusplus
}
#endif
#endif
