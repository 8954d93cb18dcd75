/* Elements of a constant size k (1, 2, 4, 8, 16 or 32 bytes) at equal distances, put one after the other. */
#ifndef PLAIT_DEVICE_HOST_GATHER_H
#define PLAIT_DEVICE_HOST_GATHER_H

#include "device/host_stream.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PLAIT_ALWAYS_INLINE inline __attribute__((always_inline))

/* The sizes, for code that makes a kernel for each. */
#define PLAIT_GATHER_FOR_EACH(_row) \
    _row(1)                         \
    _row(2)                         \
    _row(4)                         \
    _row(8)                         \
    _row(16)                        \
    _row(32)

#if defined(__SSE2__)
static PLAIT_ALWAYS_INLINE int64_t plait_load_8(const char *p)
{
    int64_t x;

    memcpy(&x, p, sizeof(x));
    return x;
}

static PLAIT_ALWAYS_INLINE int plait_load_4(const char *p)
{
    int x;

    memcpy(&x, p, sizeof(x));
    return x;
}

static PLAIT_ALWAYS_INLINE short plait_load_2(const char *p)
{
    short x;

    memcpy(&x, p, sizeof(x));
    return x;
}

static PLAIT_ALWAYS_INLINE __m128i plait_load_16(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* The q-th 16 bytes of the elements at src, src + step, src + 2 step, ... */
static PLAIT_ALWAYS_INLINE __m128i plait_gather_16(const char *src, int64_t step, int q,
                                                   int k)
{
    const char *s = src + (q * 16 / k) * step;

    switch (k) {
    case 1:
        return _mm_set_epi8(s[15 * step], s[14 * step], s[13 * step], s[12 * step],
                            s[11 * step], s[10 * step], s[9 * step], s[8 * step],
                            s[7 * step], s[6 * step], s[5 * step], s[4 * step],
                            s[3 * step], s[2 * step], s[step], s[0]);
    case 2:
        return _mm_set_epi16(plait_load_2(s + 7 * step), plait_load_2(s + 6 * step),
                             plait_load_2(s + 5 * step), plait_load_2(s + 4 * step),
                             plait_load_2(s + 3 * step), plait_load_2(s + 2 * step),
                             plait_load_2(s + step), plait_load_2(s));
    case 4:
        return _mm_set_epi32(plait_load_4(s + 3 * step), plait_load_4(s + 2 * step),
                             plait_load_4(s + step), plait_load_4(s));
    case 8:
        return _mm_set_epi64x(plait_load_8(s + step), plait_load_8(s));
    default:
        return plait_load_16(s + (q * 16) % k);
    }
}
#endif

/* A line of elements. A streamed line begins a line of memory. */
static PLAIT_ALWAYS_INLINE void plait_gather_line(const char *src, int64_t step,
                                                  char *dst, int k, bool is_streamed)
{
#if defined(__SSE2__)
    for (int q = 0; q < PLAIT_HOST_LINE / 16; q++) {
        const __m128i x = plait_gather_16(src, step, q, k);
        __m128i *d = (__m128i *)(void *)(dst + 16 * q);

        if (is_streamed) {
            _mm_stream_si128(d, x);
        } else {
            _mm_storeu_si128(d, x);
        }
    }
#else
    (void)is_streamed;
    for (int at = 0; at < PLAIT_HOST_LINE; at += k, src += step) {
        memcpy(dst + at, src, (size_t)k);
    }
#endif
}

/* n elements. Streamed, dst is a multiple of k. */
static PLAIT_ALWAYS_INLINE void plait_gather(int64_t n, const char *src, int64_t step,
                                             char *dst, int k, bool is_streamed)
{
    const int64_t n_line = PLAIT_HOST_LINE / k;

    for (; is_streamed && (n > 0) && ((uintptr_t)dst % PLAIT_HOST_LINE != 0); n--) {
        memcpy(dst, src, (size_t)k);
        dst += k;
        src += step;
    }
    for (; n >= n_line; n -= n_line, src += n_line * step, dst += PLAIT_HOST_LINE) {
        plait_gather_line(src, step, dst, k, is_streamed);
    }
    for (; n > 0; n--, dst += k, src += step) {
        memcpy(dst, src, (size_t)k);
    }
}

#endif
