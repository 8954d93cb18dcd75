#define VECTOR_BYTES 16
#define TABLE        plait_bulge_generic
#include "kernel/bulge_simd.inc"
