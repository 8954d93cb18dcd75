/* Kernels of the stand-in of CUDA's driver. */
#ifndef PLAIT_TESTS_FAKE_CUDA_KERNELS_H
#define PLAIT_TESTS_FAKE_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

/* The kernel's number; -1: there is no such kernel. */
int fake_cuda_kernel(const char *name);

/* False: the block's threads did not all meet at the same barriers. */
bool fake_cuda_run_block(int kernel, const void *params, uint32_t block);

#endif
