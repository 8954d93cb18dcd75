/* Kernels of the stand-in of CUDA's driver: the same text as on a device, run thread by thread.
 *
 * A block runs pass after pass: in pass p every thread runs from its start to its p-th barrier and stops there.
 * The work before a barrier (reads, and writes to shared memory) gives the same values in each pass, so after
 * the last pass the state is as if the threads had run together. */
#include "fake_cuda_kernels.h"

#include "device/cuda/params.h"
#include "device/element.h"

#include <setjmp.h>
#include <stdint.h>
#include <string.h>

static struct {
    uint32_t x;
} threadIdx, blockIdx;

static jmp_buf out_of_thread;
static int n_met, n_allowed; /* barriers that this thread has met, and may pass */

static void meet(void)
{
    n_met++;
    if (n_met > n_allowed) {
        longjmp(out_of_thread, 1);
    }
}

#define KERNEL        static void
#define __syncthreads meet

/* The order of these files matters. */
/* clang-format off */
#include "device/cuda/lane.cu"
#include "device/cuda/boxes.cu"
#include "device/cuda/reduce.cu"
#include "device/cuda/scale.cu"
#include "device/cuda/matrix.cu"
/* clang-format on */

typedef void (*run_fn_t)(const void *params);

#define RUN(_kernel, _name, _params)            \
    static void run_##_name(const void *params) \
    {                                           \
        _name(*(const _params *)params);        \
    }
PLAIT_CUDA_KERNEL_FOR_EACH(RUN)
#undef RUN

static const struct {
    const char *name;
    run_fn_t run;
} kernels[] = {
#define ROW(_kernel, _name, _params) {#_name, run_##_name},
    PLAIT_CUDA_KERNEL_FOR_EACH(ROW)
#undef ROW
};

enum { N_KERNELS = sizeof(kernels) / sizeof(kernels[0]) };

/* Whether the thread stopped at a barrier. */
static bool run_thread(run_fn_t run, const void *params, uint32_t thread)
{
    threadIdx.x = thread;
    n_met = 0;
    if (setjmp(out_of_thread) != 0) {
        return true;
    }
    run(params);
    return false;
}

int fake_cuda_kernel(const char *name)
{
    int found = -1;

    for (int k = 0; k < N_KERNELS && found < 0; k++) {
        found = (strcmp(name, kernels[k].name) == 0) ? k : -1;
    }
    return found;
}

/* Runs threads out of order; no thread if there is no such kernel. */
bool fake_cuda_run_block(int kernel, const void *params, uint32_t block)
{
    enum { STEP = 101 }; /* has no factor in common with the number of threads */
    int n_left = (kernel < N_KERNELS) ? PLAIT_CUDA_THREADS : -1;

    blockIdx.x = block;
    for (n_allowed = 0; n_left == PLAIT_CUDA_THREADS; n_allowed++) {
        n_left = 0;
        for (uint32_t t = 0; t < PLAIT_CUDA_THREADS; t++) {
            n_left += run_thread(kernels[kernel].run, params,
                                 (t * STEP + 7) % PLAIT_CUDA_THREADS);
        }
    }
    return n_left == 0;
}
