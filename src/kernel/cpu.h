/* Which instruction set the kernels may use. */
#ifndef PLAIT_KERNEL_CPU_H
#define PLAIT_KERNEL_CPU_H

#include <stdbool.h>

typedef enum {
    /* 16-byte vectors and no intrinsics: what the compiler makes of it for every processor
     * of its kind, which is SSE2 on x86-64 */
    PLAIT_CPU_GENERIC = 0,
    PLAIT_CPU_AVX2 = 1,  /* with FMA */
    PLAIT_CPU_AVX512 = 2 /* F, DQ, VL */
} plait_cpu_level_t;

/* The widest level of this processor and operating system that was built (sanitized, the
 * generic one alone is), lowered by the environment variable PLAIT_ISA=sse2|avx2|avx512 (a
 * higher or unknown value changes nothing). Reads the environment at each call: meant for
 * planning, not for hot paths. */
plait_cpu_level_t plait_cpu_level(void);

/* Name of plait_cpu_level(): "sse2", "avx2" or "avx512"; "generic" where there is no SSE2. */
const char *plait_cpu_isa(void);

#endif
