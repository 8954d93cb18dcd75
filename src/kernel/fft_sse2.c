#include "kernel/fft_plan.h"

#if defined(__x86_64__)
#define VECTOR_BYTES 16
#define TABLE        plait_fft_kernels_sse2
#include "kernel/fft_simd.inc"
#endif
