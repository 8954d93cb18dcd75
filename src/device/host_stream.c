#include "device/host_stream.h"

#include "base/checked.h"

enum { LINE = PLAIT_HOST_LINE };

/* n bytes, whole lines. */
static void stream_lines(char *dst, const char *src, int64_t n)
{
    for (int64_t at = 0; at < n; at += LINE) {
        plait_host_stream_line(dst + at, src + at);
    }
}

void plait_host_stream_finish(plait_host_stream_t *stream)
{
    if (stream->n_held > 0) {
        memcpy(stream->end - stream->n_held, stream->held, (size_t)stream->n_held);
    }
    stream->end = NULL;
    stream->n_held = 0;
}

void plait_host_stream_append(plait_host_stream_t *stream, char *dst, const char *src,
                              int64_t n_bytes)
{
    const char *end = src + n_bytes;
    int64_t n = 0;

    if (dst != stream->end) {
        plait_host_stream_finish(stream);
    }
    if (stream->n_held > 0) {
        n = plait_min(n_bytes, LINE - stream->n_held);
        memcpy(stream->held + stream->n_held, src, (size_t)n);
        stream->n_held += n;
        if (stream->n_held == LINE) {
            stream_lines(dst + n - LINE, stream->held, LINE);
            stream->n_held = 0;
        }
    } else { /* bytes before dst in its line belong to others */
        n = plait_min(n_bytes, (int64_t)(-(uintptr_t)dst % LINE));
        memcpy(dst, src, (size_t)n);
    }
    if (n < n_bytes) {
        dst += n;
        src += n;
        n = (end - src) / LINE * LINE;
        stream_lines(dst, src, n);
        dst += n;
        src += n;
        stream->n_held = end - src;
        memcpy(stream->held, src, (size_t)stream->n_held);
        n = end - src;
    }
    stream->end = dst + n;
}
