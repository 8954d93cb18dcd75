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

/* Whether scattered results of a transform are better written past the cache. Measured at
 * 256^3 complex128: on an Intel server ordinary stores cost 1.7 times as much, on AMD Zen 3
 * streaming ones cost 1.1 (out of place) to 1.6 times as much. Planning makes no trial runs,
 * so the vendor decides. */
bool plait_cpu_streams(void);

/* Name of plait_cpu_level(): "generic", "sse2", "avx2" or "avx512". */
const char *plait_cpu_isa(void);

#endif
