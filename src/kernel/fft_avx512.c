#include "kernel/fft_plan.h"

#if defined(__x86_64__)
#define VECTOR_BYTES 64
#define TABLE        plait_fft_kernels_avx512
#include "kernel/fft_simd.inc"
#endif
