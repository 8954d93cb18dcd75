/* Whether MPI may be given addresses of a device's memory. An MPI library that wrongly claims to take such
 * addresses ends the program. So its claim is proved by transfers in a separate job of two ranks
 * (`plait doctor`), and the answer is remembered.
 *
 * PLAIT_GPU_AWARE    auto: if it was proved; the default
 *                    0: never
 *                    1: as auto, but nothing is staged instead: operations fail
 *                    force: without proof, and whatever the library says
 *
 * The answer is a file of three lines in $XDG_CACHE_HOME/plait/gpu-aware or ~/.cache/plait/gpu-aware: what the
 * answer holds for; `yes` or `no`; why. The hash of the first line is the file's name. */
#ifndef PLAIT_TRANSPORT_GPU_AWARE_H
#define PLAIT_TRANSPORT_GPU_AWARE_H

#include "device/device.h"
#include "plait/status.h"

/* Where the two ranks of a message are; a proof holds for one distance. */
typedef enum {
    PLAIT_AWARE_NEAR = 1, /* on one node  */
    PLAIT_AWARE_FAR = 2   /* on two nodes */
} plait_aware_distance_t;

/* A function of the MPI library; NULL: the library has no function of that name. */
typedef void *(*plait_aware_find_t)(const char *name);

/* UNSUPPORTED if the library says that it does not read GPUs' memory. A library that does not say counts as one
 * that says it does. */
plait_status_t plait_gpu_aware_ask(plait_aware_find_t find);

/* UNSUPPORTED with a short reason for one of the distances: bits. */
plait_status_t plait_gpu_aware_can(const plait_device_t *device, unsigned distances);

/* UNSUPPORTED if messages must not be staged instead. */
plait_status_t plait_gpu_aware_may_stage(void);

/* For `plait info`: which memory of a process's device MPI is given; static until this thread's next call. */
PLAIT_EXPORT const char *plait_gpu_aware_say(int ordinal);

/* ---- The proof ---------------------------------------------------------------------------- */

/* What a proof on this device would hold for, and the file that remembers it, as texts in buffers of the given
 * sizes. INVALID: a buffer is too small. */
PLAIT_EXPORT plait_status_t plait_gpu_aware_key(int ordinal, int distance, char *key,
                                                int n_key, char *file, int n_file);

/* UNSUPPORTED if a proof makes no sense: the library says no, and nobody forces it. */
PLAIT_EXPORT plait_status_t plait_gpu_aware_worth_trying(void);

/* Collective over MPI_COMM_WORLD of two ranks: exchanges 64 bytes and 1 MiB from device memory to device
 * memory. If MPI cannot do this, it may end the process. UNSUPPORTED: the received bytes differ from the sent
 * bytes. */
PLAIT_EXPORT plait_status_t plait_gpu_aware_prove(int ordinal);

#endif
