/* Which instruction set the kernels may use. */
#ifndef PLAIT_KERNEL_CPU_H
#define PLAIT_KERNEL_CPU_H

#include <stdbool.h>

typedef enum {
    PLAIT_CPU_GENERIC =
        0, /* 16-byte vectors and no intrinsics: what the compiler makes of it */
    PLAIT_CPU_SSE2 = 1,
    PLAIT_CPU_AVX2 = 2,  /* with FMA */
    PLAIT_CPU_AVX512 = 3 /* F, DQ, VL */
} plait_cpu_level_t;

/* The widest level of this processor and operating system, lowered by the environment
 * variable PLAIT_ISA=generic|sse2|avx2|avx512 (a higher or unknown value changes
 * nothing). Reads the environment at each call: meant for planning, not for hot paths.
 */
plait_cpu_level_t plait_cpu_level(void);

/* Name of plait_cpu_level(): "generic", "sse2", "avx2" or "avx512". */
const char *plait_cpu_isa(void);

#endif
