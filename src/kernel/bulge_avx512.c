#include "kernel/bulge.h"

#if defined(__x86_64__)
#define VECTOR_BYTES 64
#define TABLE        plait_bulge_avx512
#include "kernel/bulge_simd.inc"
#endif
