/* Box copies against the slow copy, byte for byte and with guards around the result. */
#include "base/alloc.h"
#include "base/checked.h"
#include "boxes.h"
#include "check.h"
#include "device/host.h"
#include "device/host_stream.h"

#include <string.h>

enum { GUARD = 64, MAX_ROW = 130, PERIOD = 65537 };

static char noise[PERIOD]; /* a prime period: no stride repeats it */

/* Three buffers: source, result and expected result, and where the data of each starts. */
typedef struct {
    int64_t n_src, n_dst;
    char *src, *dst, *expected;
    char *src_base, *dst_base, *expected_base;
} case_t;

static case_t case_create(int64_t n_src, int64_t n_dst, int64_t src_at, int64_t dst_at)
{
    case_t c = {.n_src = n_src + src_at, .n_dst = n_dst + dst_at + 2 * GUARD};

    c.src = plait_alloc_aligned(c.n_src);
    c.dst = plait_alloc_aligned(c.n_dst);
    c.expected = plait_alloc_aligned(c.n_dst);
    for (int64_t i = 0; i < c.n_src; i += PERIOD) {
        memcpy(c.src + i, noise, (size_t)plait_min(PERIOD, c.n_src - i));
    }
    memset(c.dst, 0x5a, (size_t)c.n_dst);
    memset(c.expected, 0x5a, (size_t)c.n_dst);
    c.src_base = c.src + src_at;
    c.dst_base = c.dst + GUARD + dst_at;
    c.expected_base = c.expected + GUARD + dst_at;
    return c;
}

static bool is_as_expected(const case_t *c)
{
    return memcmp(c->dst, c->expected, (size_t)c->n_dst) == 0;
}

static void case_destroy(case_t *c)
{
    plait_free(c->src);
    plait_free(c->dst);
    plait_free(c->expected);
}

static void check_copy(const plait_box_copy_t *box, int64_t n_src, int64_t n_dst,
                       int64_t src_at, int64_t dst_at)
{
    case_t c = case_create(n_src, n_dst, src_at, dst_at);

    slow_copy(box, c.src_base, c.expected_base);
    plait_host_copy_box(box, c.src_base, c.dst_base);
    CHECK(is_as_expected(&c), "copy %s at %lld", box_text(box), (long long)dst_at);
    memset(c.dst, 0x5a, (size_t)c.n_dst);
    plait_host_copy_part(box, c.src_base, c.dst_base, INT64_MAX);
    CHECK(is_as_expected(&c), "part %s at %lld", box_text(box), (long long)dst_at);
    case_destroy(&c);
}

static void check_simplify(const plait_box_copy_t *box, int64_t n_src, int64_t n_dst)
{
    case_t c = case_create(n_src, n_dst, 0, 0);
    plait_box_copy_t simple = *box;

    plait_box_simplify(&simple);
    CHECK(plait_box_bytes(&simple) == plait_box_bytes(box), "%s", box_text(box));
    CHECK((simple.n_dims <= box->n_dims) || (plait_box_bytes(box) == 0), "%s",
          box_text(box));
    slow_copy(box, c.src_base, c.expected_base);
    slow_copy(&simple, c.src_base, c.dst_base);
    CHECK(is_as_expected(&c), "simplify %s", box_text(box));
    case_destroy(&c);
}

static void check_zero(const plait_box_copy_t *box, int64_t n_dst, int64_t dst_at)
{
    case_t c = case_create(n_dst, n_dst, 0, dst_at);
    plait_box_copy_t same = *box;

    memset(c.src, 0, (size_t)c.n_src);
    memcpy(same.src_stride, box->dst_stride, sizeof(same.src_stride));
    slow_copy(&same, c.src_base, c.expected_base);
    plait_host_zero_box(box, c.dst_base);
    CHECK(is_as_expected(&c), "zero %s at %lld", box_text(box), (long long)dst_at);
    case_destroy(&c);
}

static void test_copy_random(void)
{
    random_t r = {1};

    for (int i = 0; i < 30 * MAX_ROW; i++) {
        plait_box_copy_t box = draw_box(&r, 1 + i % MAX_ROW, draw(&r, 1, 400));
        int64_t n_src = draw_strides(&r, &box, 1, box.src_stride);
        int64_t n_dst = draw_strides(&r, &box, 1, box.dst_stride);

        check_copy(&box, n_src, n_dst, draw(&r, 0, 63), draw(&r, 0, 63));
        check_zero(&box, n_dst, draw(&r, 0, 63));
        check_simplify(&box, n_src, n_dst);
    }
}

/* Boxes with reflections and repetitions, as ghosts need them. */
static void test_copy_turned(void)
{
    random_t r = {11};

    for (int i = 0; i < 20 * MAX_ROW; i++) {
        plait_box_copy_t box = draw_box(&r, 1 + i % MAX_ROW, draw(&r, 1, 400));
        int64_t n_src = draw_strides(&r, &box, 1, box.src_stride);
        int64_t n_dst = draw_strides(&r, &box, 1, box.dst_stride);
        int64_t src_at = turn_strides(&r, &box, true, box.src_stride);
        int64_t dst_at = turn_strides(&r, &box, false, box.dst_stride);

        check_copy(&box, n_src, n_dst, src_at, dst_at);
    }
}

/* [n_i, n_j] elements to [n_j, n_i], with padded rows on both sides. */
static void check_transpose(int64_t n_i, int64_t n_j, int64_t bytes, int64_t pad,
                            int64_t dst_at)
{
    const int64_t src_step = (n_j + pad) * bytes, dst_step = (n_i + pad) * bytes;
    plait_box_copy_t box = {.n_dims = 2, .count = {n_i, n_j}, .row_bytes = bytes};

    box.src_stride[0] = src_step;
    box.src_stride[1] = bytes;
    box.dst_stride[0] = bytes;
    box.dst_stride[1] = dst_step;
    check_copy(&box, n_i * src_step, n_j * dst_step, 0, dst_at);
}

static void test_copy_transposed(void)
{
    const int64_t sides[] = {1, 2, 15, 63, 64, 65, 200};

    for (int64_t bytes = 1; bytes <= 72; bytes += (bytes < 17) ? 1 : 7) {
        for (int i = 0; i < 49; i++) {
            check_transpose(sides[i % 7], sides[i / 7], bytes, i % 3, (i % 2) * bytes);
            check_transpose(sides[i / 7], sides[i % 7], bytes, 0, i % 5);
        }
    }
}

/* Boxes larger than the cache, where stores are streamed. */
static void test_copy_streamed(void)
{
    const int64_t n_bytes = plait_host_cache_bytes() + (1 << 20);
    const int64_t rows[] = {1, 4, 8, 16, 24, 32};

    if (n_bytes > (200 << 20)) {
        printf("test_host: streamed copies skipped, cache %lld bytes\n",
               (long long)n_bytes);
        return;
    }
    for (int i = 0; i < 6; i++) {
        const int64_t n_i = 1000 + i, n_j = n_bytes / rows[i] / 1000;

        check_transpose(n_i, n_j, rows[i], i % 2, (i % 3 == 0) ? rows[i] : i);
    }
    for (int64_t row = 448; row <= 1100; row += 489) {
        plait_box_copy_t box = {
            .n_dims = 1, .count = {n_bytes / row}, .row_bytes = row};

        box.src_stride[0] = row + 3;
        box.dst_stride[0] = row + 64;
        check_copy(&box, (row + 3) * box.count[0], (row + 64) * box.count[0], 1,
                   row % 64);
    }
    check_copy(&(plait_box_copy_t){.row_bytes = n_bytes + 77}, n_bytes + 77,
               n_bytes + 77, 5, 9);
}

/* Pieces of any length, contiguous or with gaps, from any address. */
static void test_streams(void)
{
    enum { N_BYTES = 1 << 14 };
    random_t r = {11};

    for (int i = 0; i < (is_quick() ? 50 : 400); i++) {
        const int longest = 1 << draw(&r, 0, 10);
        case_t c = case_create(N_BYTES, N_BYTES, draw(&r, 0, 63), draw(&r, 0, 63));
        plait_host_stream_t stream = {.end = NULL};
        for (int64_t at = 0, n = 0; at < N_BYTES; at += n) {
            n = plait_min(draw(&r, 0, longest), N_BYTES - at);
            memcpy(c.expected_base + at, c.src_base + at, (size_t)n);
            plait_host_stream_append(&stream, c.dst_base + at, c.src_base + at, n);
            at += (draw(&r, 0, 3) == 0) ? draw(&r, 0, 100) : 0;
        }
        plait_host_stream_finish(&stream);
        plait_host_stream_fence();
        CHECK(is_as_expected(&c), "pieces of up to %d bytes", longest);
        CHECK(stream.n_held == 0 && stream.end == NULL, "it is not as it began");
        case_destroy(&c);
    }
}

static void test_simplify_shapes(void)
{
    plait_box_copy_t box = {.n_dims = 4,
                            .count = {2, 1, 3, 5},
                            .src_stride = {120, 7, 40, 8},
                            .dst_stride = {120, 9, 40, 8},
                            .row_bytes = 8};

    plait_box_simplify(&box);
    CHECK((box.n_dims == 0) && (box.row_bytes == 240), "contiguous: %s",
          box_text(&box));
    box = (plait_box_copy_t){.n_dims = 3,
                             .count = {4, 2, 3},
                             .src_stride = {8, 96, 32},
                             .dst_stride = {96, 48, 16},
                             .row_bytes = 8};
    plait_box_simplify(&box);
    CHECK((box.n_dims == 2) && (box.count[1] == 6), "merged: %s", box_text(&box));
    box = (plait_box_copy_t){.n_dims = 2, .count = {4, 0}, .row_bytes = 8};
    plait_box_simplify(&box);
    CHECK(plait_box_bytes(&box) == 0, "empty: %s", box_text(&box));
    plait_host_copy_box(&box, NULL, NULL);
    plait_host_zero_box(&box, NULL);
}

static void test_host_hints(void)
{
    const int64_t n_bytes = 9 << 20;
    char *p = plait_alloc(n_bytes, 1);
    int64_t n_kept = 0;

    memset(p, 7, (size_t)n_bytes);
    plait_host_prepare_result(NULL, 0);
    plait_host_prepare_result(p, 100);
    plait_host_prepare_result(p + 1, n_bytes - 2);
    plait_host_stream_fence();
    for (int64_t i = 0; i < n_bytes; i++) {
        n_kept += (p[i] == 7);
    }
    CHECK(n_kept == n_bytes, "prepared result changed");
    CHECK(plait_host_cache_bytes() >= (1 << 20) &&
              plait_host_cache_bytes() <= (32 << 20),
          "cache");
    CHECK(plait_host_cache_bytes() == plait_host_cache_bytes(), "cache differs");
    plait_free(p);
}

int main(void)
{
    random_t r = {3};

    for (int i = 0; i < PERIOD; i++) {
        noise[i] = (char)draw(&r, -128, 127);
    }
    test_simplify_shapes();
    test_host_hints();
    test_copy_random();
    test_copy_turned();
    test_copy_transposed();
    test_copy_streamed();
    test_streams();
    return report("test_host");
}
