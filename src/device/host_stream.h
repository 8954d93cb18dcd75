/* Writes bytes past the cache in pieces, each of which begins where the last one ended. A cache line that two
 * pieces share is written once, as a whole. Storing only a part of a line would read the line first: for rows
 * of 1 KiB that begin anywhere this takes half of the time. */
#ifndef PLAIT_DEVICE_HOST_STREAM_H
#define PLAIT_DEVICE_HOST_STREAM_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Bytes that a streaming store must fill to save the read. */
enum { PLAIT_HOST_LINE = 64 };

/* A whole line. */
static inline void plait_host_stream_line(char *dst, const char *src)
{
#if defined(__SSE2__)
    for (int q = 0; q < PLAIT_HOST_LINE; q += 16) {
        _mm_stream_si128((__m128i *)(void *)(dst + q),
                         _mm_loadu_si128((const __m128i *)(const void *)(src + q)));
    }
#else
    memcpy(dst, src, PLAIT_HOST_LINE);
#endif
}

/* Begins as zeros. The last n_held bytes before `end`, the beginning of a line, are not written yet. */
typedef struct {
    char *end;
    int64_t n_held;
    char held[PLAIT_HOST_LINE];
} plait_host_stream_t;

/* Appends bytes. If dst is not the end of the last ones, those are finished first. */
void plait_host_stream_append(plait_host_stream_t *stream, char *dst, const char *src,
                              int64_t n_bytes);

/* Writes what is held. The caller fences after the last one (plait_host_stream_fence). */
void plait_host_stream_finish(plait_host_stream_t *stream);

#endif
