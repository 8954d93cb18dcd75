/* Which instruction set the kernels may use. */
#ifndef PLAIT_KERNEL_CPU_H
#define PLAIT_KERNEL_CPU_H

#include <stdbool.h>

typedef enum {
    /* 16-byte vectors, no intrinsics: what the compiler makes for every processor of this kind; on x86-64 this
     * is SSE2 */
    PLAIT_CPU_GENERIC = 0,
    PLAIT_CPU_AVX2 = 1,  /* with FMA */
    PLAIT_CPU_AVX512 = 2 /* F, DQ, VL */
} plait_cpu_level_t;

/* The widest level that this processor and operating system have and that was built (sanitized builds have only
 * the generic one). The environment variable PLAIT_ISA=sse2|avx2|avx512 lowers it; a higher or unknown value
 * changes nothing. Reads the environment at each call: for planning, not for hot paths. */
plait_cpu_level_t plait_cpu_level(void);

/* Name of plait_cpu_level(): "sse2", "avx2" or "avx512"; "generic" if there is no SSE2. */
const char *plait_cpu_isa(void);

#endif
