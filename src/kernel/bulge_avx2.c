#include "kernel/bulge.h"

#if defined(__x86_64__)
#define VECTOR_BYTES 32
#define TABLE        plait_bulge_avx2
#include "kernel/bulge_simd.inc"
#endif
