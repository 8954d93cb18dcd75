/* Whether this thread's results below the normal numbers are zero, as on XLA's threads.
 *
 * LAPACK's sterf squares off-diagonals: where a square is subnormal it has few digits, and with it all
 * eigenvalues. As zero it moves none by a rounding. */
#ifndef PLAIT_KERNEL_SUBNORMAL_H
#define PLAIT_KERNEL_SUBNORMAL_H

#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>

enum { PLAIT_FLUSHES = 0x8000 }; /* of MXCSR */

/* From now on they are. Returns how it was. */
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
