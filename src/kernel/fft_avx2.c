#include "kernel/fft_plan.h"

#if defined(__x86_64__)
#define VECTOR_BYTES 32
#define TABLE        plait_fft_kernels_avx2
#include "kernel/fft_simd.inc"
#endif
