/* Box copies in host memory. After simplification there are three shapes: long rows (memcpy or streaming
 * stores); short rows (copies of constant size, since a memcpy of 16 bytes costs 8 times more if its size is
 * known only at run time); and short rows that are transposed (device/host_turn.h, or the same in tiles that
 * fit the cache). */
#include "base/checked.h"
#include "device/box.h"
#include "device/host.h"
#include "device/host_gather.h"
#include "device/host_stream.h"
#include "device/host_turn.h"

#include <stddef.h>
#include <string.h>

enum {
    LINE = PLAIT_HOST_LINE,
    SHORT_ROW = 64,       /* the constant-size kernels copy shorter rows */
    MIN_STREAM_ROW = 512, /* misaligned, on Zen 3: never slower from 512 on */
    /* long rows, two ranks at once, read again afterwards: streaming is slower up to 512 KiB, equal at 1 MiB,
     * a third faster from 2 MiB on (EPYC, L2 of 512 KiB a core) */
    LONG_STREAM_BYTES = 2 << 20,
    TILE_BYTES = 256,           /* side of a tile; 128 was slower on Zen 3 */
    TILE_ELEMENTS = 64,         /* and at most this many elements */
    MIN_TURN_BYTES = 4 << 10,   /* of matrices that are transposed through a scratch */
    AHEAD_BYTES = 16 << 10,     /* shorter rows are prefetched so far ahead */
    AHEAD_MIN_BYTES = 128 << 10 /* in boxes that are no smaller */
};

/* The two innermost dimensions of a box with short rows; j is the faster one in dst. */
typedef struct {
    int64_t n_i, n_j;
    int64_t src_i, src_j;
    int64_t dst_i, dst_j;
    int64_t tile_i, tile_j;
    int64_t row_bytes;
    bool is_transposed;
    bool is_streamed;
} plane_t;

typedef void (*copy_plane_fn_t)(const plane_t *plane, const char *src, char *dst);

/* Rows of k to 2 k bytes: two copies of k bytes that may overlap. */
static PLAIT_ALWAYS_INLINE void copy_row(char *dst, const char *src, size_t k,
                                         int64_t rest, bool is_exact)
{
    memcpy(dst, src, k);
    if (!is_exact) {
        memcpy(dst + rest, src + rest, k);
    }
}

static PLAIT_ALWAYS_INLINE void copy_plane(const plane_t *plane, const char *src,
                                           char *dst, size_t k, bool is_exact)
{
    const int64_t rest = plane->row_bytes - (int64_t)k;

    for (int64_t i0 = 0; i0 < plane->n_i; i0 += plane->tile_i) {
        const int64_t i1 = plait_min(i0 + plane->tile_i, plane->n_i);

        for (int64_t j0 = 0; j0 < plane->n_j; j0 += plane->tile_j) {
            const int64_t j1 = plait_min(j0 + plane->tile_j, plane->n_j);

            for (int64_t i = i0; i < i1; i++) {
                const char *s = src + i * plane->src_i + j0 * plane->src_j;
                char *d = dst + i * plane->dst_i + j0 * plane->dst_j;

                for (int64_t j = j0; j < j1;
                     j++, s += plane->src_j, d += plane->dst_j) {
                    copy_row(d, s, k, rest, is_exact);
                }
            }
        }
    }
}

/* Elements of k bytes that are contiguous in dst; in tiles if they are transposed. */
static PLAIT_ALWAYS_INLINE void gather_tiles(const plane_t *plane, const char *src,
                                             char *dst, int k, bool is_streamed)
{
    for (int64_t i0 = 0; i0 < plane->n_i; i0 += plane->tile_i) {
        const int64_t i1 = plait_min(i0 + plane->tile_i, plane->n_i);

        for (int64_t j0 = 0; j0 < plane->n_j; j0 += plane->tile_j) {
            const int64_t n = plait_min(plane->tile_j, plane->n_j - j0);

            for (int64_t i = i0; i < i1; i++) {
                plait_gather(n, src + i * plane->src_i + j0 * plane->src_j,
                             plane->src_j, dst + i * plane->dst_i + j0 * k, k,
                             is_streamed);
            }
        }
    }
}

/* dst_j is k. Elements that straddle lines of dst cannot be streamed. */
static PLAIT_ALWAYS_INLINE void gather_plane(const plane_t *plane, const char *src,
                                             char *dst, int k)
{
    if (plane->is_streamed && ((uintptr_t)dst % (uintptr_t)k == 0) &&
        (plane->dst_i % k == 0)) {
        gather_tiles(plane, src, dst, k, true);
    } else {
        gather_tiles(plane, src, dst, k, false);
    }
}

/* One set of kernels per size. */
#define SIZE_KERNELS(_k)                                                            \
    static void copy_plane_exact_##_k(const plane_t *plane, const char *src,        \
                                      char *dst)                                    \
    {                                                                               \
        copy_plane(plane, src, dst, _k, true);                                      \
    }                                                                               \
    static void copy_plane_above_##_k(const plane_t *plane, const char *src,        \
                                      char *dst)                                    \
    {                                                                               \
        copy_plane(plane, src, dst, _k, false);                                     \
    }                                                                               \
    static void gather_plane_##_k(const plane_t *plane, const char *src, char *dst) \
    {                                                                               \
        gather_plane(plane, src, dst, _k);                                          \
    }
PLAIT_GATHER_FOR_EACH(SIZE_KERNELS)

typedef struct {
    int64_t row_bytes;
    copy_plane_fn_t exact;  /* rows of row_bytes */
    copy_plane_fn_t above;  /* rows longer than that, up to twice as long */
    copy_plane_fn_t gather; /* rows of row_bytes that are contiguous in dst */
} size_row_t;

#define SIZE_ROW(_k) \
    {_k, copy_plane_exact_##_k, copy_plane_above_##_k, gather_plane_##_k},
static const size_row_t sizes[] = {PLAIT_GATHER_FOR_EACH(SIZE_ROW)};

static copy_plane_fn_t find_plane_fn(const plane_t *plane)
{
    const size_row_t *row = &sizes[sizeof(sizes) / sizeof(sizes[0]) - 1];

    while (row->row_bytes > plane->row_bytes) {
        row--;
    }
    if (row->row_bytes != plane->row_bytes) {
        return row->above;
    }
    return (plane->dst_j == plane->row_bytes) ? row->gather : row->exact;
}

/* The dimension to tile with the last one, which has the smallest step in dst: the dimension with the smallest
 * step in src. If that is the last one, too: the last but one (-1 if there is none). */
static int pick_i(const plait_box_copy_t *box, bool *is_transposed_p)
{
    const int last = box->n_dims - 1;
    int i = last;

    for (int d = last - 1; d >= 0; d--) {
        if (box->src_stride[d] < box->src_stride[i]) {
            i = d;
        }
    }
    *is_transposed_p = (i != last);
    return (i != last) ? i : last - 1;
}

static void remove_dim(plait_box_copy_t *box, int d)
{
    box->n_dims--;
    for (; d < box->n_dims; d++) {
        box->count[d] = box->count[d + 1];
        box->src_stride[d] = box->src_stride[d + 1];
        box->dst_stride[d] = box->dst_stride[d + 1];
    }
}

static void set_tiles(plane_t *plane)
{
    int64_t side = plait_min(TILE_BYTES / plane->row_bytes, TILE_ELEMENTS);

    plane->tile_i = plane->is_transposed ? side : plane->n_i;
    plane->tile_j = plane->is_transposed ? side : plane->n_j;
}

/* Takes the plane's two dimensions out of the box, which has at least one dimension. */
static plane_t take_plane(plait_box_copy_t *box, bool is_streamed)
{
    const int j = box->n_dims - 1;
    plane_t plane = {.n_i = 1, .n_j = box->count[j], .row_bytes = box->row_bytes};
    const int i = pick_i(box, &plane.is_transposed);

    plane.is_streamed = is_streamed;
    plane.src_j = box->src_stride[j];
    plane.dst_j = box->dst_stride[j];
    remove_dim(box, j);
    if (i >= 0) {
        plane.n_i = box->count[i];
        plane.src_i = box->src_stride[i];
        plane.dst_i = box->dst_stride[i];
        remove_dim(box, i);
    }
    set_tiles(&plane);
    return plane;
}

/* Whether the plane is a transposed matrix of some size: elements are contiguous on both sides. */
static bool is_turn(const plane_t *plane)
{
    const int64_t n = plane->row_bytes;

    return plane->is_transposed && plane->src_i == n && plane->dst_j == n &&
           (n & (n - 1)) == 0 && plane->n_i * plane->n_j * n >= MIN_TURN_BYTES;
}

static void copy_short_rows(plait_box_copy_t *box, const char *src, char *dst,
                            bool is_streamed)
{
    plait_box_walk_t walk = {0};
    const plane_t plane = take_plane(box, is_streamed);
    const plait_host_turn_t turn = {.n_i = plane.n_i,
                                    .n_j = plane.n_j,
                                    .src_step = plane.src_j,
                                    .dst_step = plane.dst_i,
                                    .n_bytes = plane.row_bytes,
                                    .is_streamed = is_streamed};
    const copy_plane_fn_t copy = is_turn(&plane) ? NULL : find_plane_fn(&plane);

    do {
        if (copy == NULL) {
            plait_host_turn(&turn, src + walk.src, dst + walk.dst);
        } else {
            copy(&plane, src + walk.src, dst + walk.dst);
        }
    } while (plait_box_next(box, box->n_dims, &walk));
}

static void prefetch_row(const char *row, int64_t n_bytes)
{
    for (int64_t at = 0; at < n_bytes; at += LINE) {
        __builtin_prefetch(row + at, 0, 2);
    }
}

/* Two ranks at once, rows of 2 KiB, 4 KiB apart, 128 MiB each: 0.65 memcpys, 1.75 without prefetches. */
static void copy_long_rows(const plait_box_copy_t *box, const char *src, char *dst,
                           bool is_streamed)
{
    plait_box_walk_t walk = {0};
    plait_box_walk_t ahead = {0};
    plait_host_stream_t stream = {.end = NULL};
    bool is_ahead =
        box->row_bytes <= AHEAD_BYTES && plait_box_bytes(box) >= AHEAD_MIN_BYTES;

    for (int64_t n = AHEAD_BYTES / box->row_bytes; n > 0 && is_ahead; n--) {
        is_ahead = plait_box_next(box, box->n_dims, &ahead);
    }
    do {
        if (is_ahead) {
            prefetch_row(src + ahead.src, box->row_bytes);
            is_ahead = plait_box_next(box, box->n_dims, &ahead);
        }
        if (is_streamed) {
            plait_host_stream_append(&stream, dst + walk.dst, src + walk.src,
                                     box->row_bytes);
        } else {
            memcpy(dst + walk.dst, src + walk.src, (size_t)box->row_bytes);
        }
    } while (plait_box_next(box, box->n_dims, &walk));
    plait_host_stream_finish(&stream);
}

/* Bytes of dst that the last dimension writes without a gap. */
static int64_t run_bytes(const plait_box_copy_t *box)
{
    const int last = box->n_dims - 1;

    return (last >= 0 && box->dst_stride[last] == box->row_bytes)
               ? box->count[last] * box->row_bytes
               : box->row_bytes;
}

/* Runs that begin or end inside a line pay for both parts of the line; long runs do not notice. */
static bool has_streamed_runs(const plait_box_copy_t *box, const char *dst)
{
    const int64_t run = run_bytes(box);
    uintptr_t misaligned = (uintptr_t)dst | (uintptr_t)run;

    for (int d = 0; d < box->n_dims; d++) {
        misaligned |=
            (box->dst_stride[d] == box->row_bytes) ? 0 : (uintptr_t)box->dst_stride[d];
    }
    return (run >= MIN_STREAM_ROW) || (misaligned % LINE == 0);
}

/* A copy reads n_bytes and writes n_bytes. With the cache, a transposed copy that is read again takes 0.8 of
 * the time with 16 MiB, 1.2 with 20, 2.3 with 32 (Xeon). */
static bool is_beyond_cache(int64_t n_bytes)
{
    return n_bytes > plait_host_cache_bytes() / 2;
}

void plait_host_copy_box(const plait_box_copy_t *box, const void *src, void *dst)
{
    plait_host_copy_part(box, src, dst, 0);
}

void plait_host_copy_part(const plait_box_copy_t *box, const void *src, void *dst,
                          int64_t n_total)
{
    const int64_t n_bytes = plait_box_bytes(box);
    bool is_streamed = is_beyond_cache(n_bytes);
    plait_box_copy_t simple = *box;

    if (n_bytes == 0) {
        return;
    }
    plait_box_simplify(&simple);
    if ((simple.n_dims == 0) || (simple.row_bytes >= SHORT_ROW)) {
        is_streamed = (is_streamed || n_bytes >= LONG_STREAM_BYTES) &&
                      has_streamed_runs(&simple, dst);
        copy_long_rows(&simple, src, dst, is_streamed);
    } else {
        is_streamed = is_streamed ||
                      (is_beyond_cache(n_total) && has_streamed_runs(&simple, dst));
        copy_short_rows(&simple, src, dst, is_streamed);
    }
    if (is_streamed) {
        plait_host_stream_fence();
    }
}

static void zero_long_rows(const plait_box_copy_t *box, char *dst)
{
    plait_box_walk_t walk = {0};

    do {
        memset(dst + walk.dst, 0, (size_t)box->row_bytes);
    } while (plait_box_next(box, box->n_dims, &walk));
}

void plait_host_zero_box(const plait_box_copy_t *box, void *dst)
{
    static const char zeros[SHORT_ROW];
    plait_box_copy_t simple = *box;

    if (plait_box_bytes(box) == 0) {
        return;
    }
    memcpy(simple.src_stride, box->dst_stride, sizeof(simple.src_stride));
    plait_box_simplify(&simple);
    if ((simple.n_dims == 0) || (simple.row_bytes >= SHORT_ROW)) {
        zero_long_rows(&simple, dst);
    } else {
        memset(simple.src_stride, 0, sizeof(simple.src_stride));
        copy_short_rows(&simple, zeros, dst, false);
    }
}
