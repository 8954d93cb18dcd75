/* Whether this thread flushes subnormal results to zero, as XLA's threads do.
 *
 * LAPACK's sterf squares off-diagonal elements. A subnormal square has few digits, and then all eigenvalues
 * have few. If the square is zero instead, no eigenvalue changes by as much as a rounding. */
#ifndef PLAIT_KERNEL_SUBNORMAL_H
#define PLAIT_KERNEL_SUBNORMAL_H

#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>

enum { PLAIT_FLUSHES = 0x8000 }; /* of MXCSR */

/* From now on this thread flushes. Returns how it was. */
static inline uint64_t plait_subnormal_flush(void)
{
    const uint32_t was = _mm_getcsr();

    _mm_setcsr(was | PLAIT_FLUSHES);
    return was;
}

static inline void plait_subnormal_restore(uint64_t was)
{
    _mm_setcsr((_mm_getcsr() & ~(uint32_t)PLAIT_FLUSHES) |
               ((uint32_t)was & PLAIT_FLUSHES));
}

#elif defined(__aarch64__)

#define PLAIT_FLUSHES (UINT64_C(1) << 24) /* of FPCR */

static inline uint64_t plait_subnormal_flush(void)
{
    uint64_t was = 0;

    __asm__ volatile("mrs %0, fpcr" : "=r"(was));
    __asm__ volatile("msr fpcr, %0" : : "r"(was | PLAIT_FLUSHES));
    return was;
}

static inline void plait_subnormal_restore(uint64_t was)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(was));
}

#else /* it stays as it is */

static inline uint64_t plait_subnormal_flush(void)
{
    return 0;
}

static inline void plait_subnormal_restore(uint64_t was)
{
    (void)was;
}

#endif

#endif
