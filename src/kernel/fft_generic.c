#define VECTOR_BYTES 16
#define TABLE        plait_fft_kernels_generic
#include "kernel/fft_simd.inc"
