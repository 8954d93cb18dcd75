/* The table of a CUDA device against the functions of the host: bytes, boxes, order,
 * failures. On the first GPU, or with the argument `host` on stand-ins of CUDA's libraries, which run
 * the same kernels. Without a GPU: skipped, with the reason. Reductions: test_cuda_reduce.c;
 * transforms: test_cuda_fft.c; other devices and processes: test_cuda_share.c. */
#include "cuda_arrays.h"
#include "device/cuda_state.h"
#include "device/host.h"
#include "fakes.h"
#include "kernel/reduce.h"

/* ---- Memory --------------------------------------------------------------------------------- */

static int n_waits(const machine_t *m)
{
    return m->is_host ? ask_fake("libcuda.so.1", "fake_cuda_n_waits") : 0;
}

/* Memory given back is reused: on another stream only after the work enqueued before. */
static void test_cuda_memory(const machine_t *m)
{
    plait_stream_t other = NULL, another = NULL;
    enum { LARGE = 10000000 };
    void *first = NULL, *second = NULL, *third = NULL, *small = NULL;
    int before = 0;

    good(m->call->stream_create(m->device, &other), "stream_create");
    good(m->call->take(m->device, m->stream, 0, &first), "nothing");
    CHECK(first == NULL, "nothing");
    m->call->give(m->device, m->stream, NULL);
    m->call->host_give(m->device, NULL);
    good(m->call->take(m->device, m->stream, LARGE, &first), "first");
    good(m->call->take(m->device, m->stream, LARGE, &second), "second");
    CHECK(first != second && (uintptr_t)first % 256 == 0, "%p %p", first, second);
    m->call->give(m->device, m->stream, first);
    before = n_waits(m);
    good(m->call->take(m->device, m->stream, LARGE / 5 * 3, &third), "same stream");
    CHECK(third == first && n_waits(m) == before, "%d waits", n_waits(m) - before);
    m->call->give(m->device, m->stream, third);
    good(m->call->take(m->device, m->stream, 1000, &small), "small");
    CHECK(small != first, "a giant is not taken for a dwarf");
    good(m->call->take(m->device, other, LARGE, &third), "other stream");
    CHECK(third == first && (!m->is_host || n_waits(m) == before + 1), "%d waits",
          n_waits(m) - before);
    m->call->give(m->device, other, third);
    m->call->give(m->device, m->stream, second);
    m->call->give(m->device, m->stream, small);
    good(m->call->stream_wait(m->device, other), "stream_wait");
    m->call->stream_destroy(m->device, other);
    good(m->call->stream_create(m->device, &another), "stream_create");
    CHECK(!m->is_host || another == other, "at the address of the one before");
    before = n_waits(m);
    good(m->call->take(m->device, another, LARGE, &second), "another stream");
    CHECK(!m->is_host || n_waits(m) == before + 1, "%d waits", n_waits(m) - before);
    m->call->give(m->device, another, second);
    m->call->stream_destroy(m->device, another);
}

/* A program of growing arrays does not keep a buffer of each size. */
static void test_cuda_growing(const machine_t *m)
{
    enum { MIB = 1 << 20, FIRST = 20, LAST = 120 };
    const void *seen[LAST + 1];
    int n_seen = 0;

    for (int mib = FIRST; mib <= LAST; mib++) {
        void *memory = NULL;
        int i = 0;
        good(m->call->take(m->device, m->stream, (int64_t)mib * MIB, &memory), "take");
        m->call->give(m->device, m->stream, memory);
        while (i < n_seen && seen[i] != memory) {
            i++;
        }
        seen[i] = memory;
        n_seen += (i == n_seen) ? 1 : 0;
    }
    /* One of the first size, and of each power of two that comes after it. */
    CHECK(n_seen == 4, "%d buffers", n_seen);
}

/* ---- Boxes ---------------------------------------------------------------------------------- */

enum { MAX_BATCH = 50 };

/* A box by the host's functions; the box has addresses of the device, src and dst are the host's. */
static void do_on_host(const plait_device_box_t *b, plait_dtype_t dtype,
                       const char *src, char *dst)
{
    if (b->kind == PLAIT_DEVICE_COPY) {
        plait_host_copy_box(&b->box, src, dst);
    } else if (b->kind == PLAIT_DEVICE_ZERO) {
        plait_host_zero_box(&b->box, dst);
    } else {
        plait_reduce_box(plait_reduce_find(PLAIT_SUM, dtype), plait_dtype_bytes(dtype),
                         &b->box, src, dst);
    }
}

static const char *boxes_text(plait_dtype_t dtype, int n, const plait_device_box_t b[])
{
    static char text[2048];
    int at = snprintf(text, sizeof(text), "%s, %d boxes:", plait_dtype_name(dtype), n);

    for (int i = 0; i < n && i < 3; i++) {
        at += snprintf(text + at, sizeof(text) - (size_t)at, " kind %d %s;",
                       (int)b[i].kind, box_text(&b[i].box));
    }
    return text;
}

/* A batch as byte offsets into two arrays; bytes between the boxes' places must not change. */
typedef struct {
    int n;
    plait_dtype_t dtype;
    plait_device_box_t box[MAX_BATCH];
    int64_t src[MAX_BATCH], dst[MAX_BATCH];
    int64_t n_src, n_dst;
} batch_t;

/* Makes numbers below 2 wherever a float begins: the sum of two NaN may be either. */
static void make_finite(array_t *a)
{
    for (int64_t i = 0; i < a->n_bytes; i++) {
        a->pinned[i] = (char)(a->pinned[i] & ~0x40);
    }
}

static void check_batch(const machine_t *m, batch_t *b, random_t *r)
{
    static plait_device_box_t lent[MAX_BATCH];
    array_t src = array_create(m, b->n_src + 1), dst = array_create(m, b->n_dst + 1);

    array_fill(&src, r);
    array_fill(&dst, r);
    make_finite(&src);
    make_finite(&dst);
    array_put(m, &src);
    array_put(m, &dst);
    for (int i = 0; i < b->n; i++) {
        b->box[i].src =
            (b->box[i].kind == PLAIT_DEVICE_ZERO) ? NULL : src.dev + b->src[i];
        b->box[i].dst = dst.dev + b->dst[i];
        do_on_host(&b->box[i], b->dtype, src.expected + b->src[i],
                   dst.expected + b->dst[i]);
    }
    memcpy(lent, b->box, sizeof(lent));
    good(m->call->boxes(m->device, m->stream, b->dtype, b->n, lent), "boxes");
    memset(lent, 0, sizeof(lent)); /* it has been read */
    CHECK(array_is_expected(m, &dst), "%s", boxes_text(b->dtype, b->n, b->box));
    array_destroy(m, &src);
    array_destroy(m, &dst);
}

/* Adds a box behind the others on both sides. Sums may repeatedly go to one place. */
static void add_random(batch_t *b, random_t *r, int64_t max_rows)
{
    const int i = b->n;
    const int64_t item = plait_dtype_bytes(b->dtype);
    bool has_sum = plait_reduce_is_defined(PLAIT_SUM, b->dtype);
    const int kind = (int)draw(r, 0, has_sum ? 2 : 1);
    plait_device_box_t *box = &b->box[i];

    box->kind = (kind == 0)   ? PLAIT_DEVICE_COPY
                : (kind == 1) ? PLAIT_DEVICE_ZERO
                              : PLAIT_DEVICE_ADD;
    int64_t unit = (box->kind == PLAIT_DEVICE_ADD) ? item : INT64_C(1) << draw(r, 0, 4);
    int64_t row = unit * draw(r, 1, (draw(r, 0, 2) == 0) ? 1 : 12);
    box->box = draw_box(r, row, max_rows);
    b->src[i] = (b->n_src + 15) / 16 * 16 + unit * draw(r, 0, 3);
    b->dst[i] = (b->n_dst + 15) / 16 * 16 + unit * draw(r, 0, 3);
    b->n_src = b->src[i] + draw_strides(r, &box->box, unit, box->box.src_stride);
    b->n_dst = b->dst[i] + draw_strides(r, &box->box, unit, box->box.dst_stride);
    if (draw(r, 0, 3) == 0) {
        bool is_sum = box->kind == PLAIT_DEVICE_ADD;
        b->src[i] += turn_strides(r, &box->box, true, box->box.src_stride);
        b->dst[i] += turn_strides(r, &box->box, is_sum, box->box.dst_stride);
    }
    b->n++;
}

static void test_cuda_boxes(const machine_t *m)
{
    const int n_batches = is_quick() ? 60 : 600;
    random_t r = {11};
    static batch_t b;

    for (int k = 0; k < n_batches; k++) {
        int n = (int)((draw(&r, 0, 3) == 0) ? draw(&r, 1, MAX_BATCH) : draw(&r, 0, 3));
        b = (batch_t){.dtype = plait_dtype_at(k % plait_dtype_count())};
        for (int i = 0; i < n; i++) {
            add_random(&b, &r, (n > 3) ? 60 : 2000);
        }
        check_batch(m, &b, &r);
    }
}

/* Exchanged axes of an array, with element sizes 1 to 16 and 12, and extents around a tile's. */
static void test_cuda_turns(const machine_t *m)
{
    static const int64_t rows[] = {1, 2, 4, 8, 16, 12};
    static const int64_t extents[] = {1, 7, 8, 31, 32, 33, 63, 65, 97, 130};
    const int n_cases = is_quick() ? 40 : 400;
    random_t r = {5};
    static batch_t b;

    for (int k = 0; k < n_cases; k++) {
        const int64_t row = rows[k % 6], n_k = draw(&r, 1, 3);
        const int64_t n_i = extents[draw(&r, 0, 9)], n_j = extents[draw(&r, 0, 9)];
        plait_box_copy_t *box = &b.box[0].box;
        b = (batch_t){.n = 1, .dtype = PLAIT_U8};
        *box = (plait_box_copy_t){.n_dims = 3, .row_bytes = row};
        box->count[0] = n_k;
        box->count[1] = n_i;
        box->count[2] = n_j;
        box->src_stride[0] = n_i * n_j * row;
        box->src_stride[1] = row;
        box->src_stride[2] = n_i * row;
        box->dst_stride[0] = (k % 3 == 0) ? n_i * n_j * row : n_j * row;
        box->dst_stride[1] = (k % 3 == 0) ? n_j * row : n_j * n_k * row;
        box->dst_stride[2] = row;
        b.n_src = n_i * n_j * n_k * row;
        b.n_dst = b.n_src;
        check_batch(m, &b, &r);
    }
}

/* Float sums of several boxes into one place, in the order of the list. Then a place is zeroed after a read,
 * and a place is copied after a write. */
static void test_cuda_boxes_in_order(const machine_t *m)
{
    enum { N = 300, N_BOXES = 40 };
    static batch_t b;
    random_t r = {3};

    for (int k = 0; k < 8; k++) {
        b = (batch_t){.n = N_BOXES, .dtype = (k % 2 == 0) ? PLAIT_F32 : PLAIT_BF16};
        int64_t item = plait_dtype_bytes(b.dtype);
        for (int i = 0; i < N_BOXES; i++) {
            int64_t at = (k < 4) ? 0 : draw(&r, 0, N / 2);
            b.box[i].kind = (i % 7 == 6) ? PLAIT_DEVICE_ZERO : PLAIT_DEVICE_ADD;
            b.box[i].box = (plait_box_copy_t){.row_bytes = (N - at) * item};
            b.src[i] = item * draw(&r, 0, 9);
            b.dst[i] = at * item;
        }
        b.n_src = (N + 9) * item;
        b.n_dst = N * item;
        check_batch(m, &b, &r);
    }
}

static int n_launches(const machine_t *m)
{
    return m->is_host ? ask_fake("libcuda.so.1", "fake_cuda_n_launches") : 0;
}

/* As many boxes as are compared with each other, in one array. Boxes that do not overlap share launches, even
 * if reads lie between writes; other boxes run one after another. */
static void test_cuda_boxes_many(const machine_t *m)
{
    enum { N_BOXES = 64, ROW = 64, TOGETHER = (N_BOXES + 19) / 20 };
    static const struct {
        plait_device_box_kind_t kind;
        int src, src_step, dst, dst_step, n_launches; /* places are rows */
    } cases[] = {
        {PLAIT_DEVICE_COPY, 0, 1, N_BOXES, 1, TOGETHER}, /* apart */
        {PLAIT_DEVICE_COPY, N_BOXES, 1, 0, 1, TOGETHER},
        {PLAIT_DEVICE_COPY, 0, 2, 1, 2, TOGETHER}, /* in turn */
        {PLAIT_DEVICE_COPY, 0, 0, 1, 1, TOGETHER}, /* one to all */
        {PLAIT_DEVICE_COPY, 0, 1, 1, 1, N_BOXES},  /* what was written is read */
        {PLAIT_DEVICE_COPY, 1, 1, 0, 1, N_BOXES},  /* what was read is written */
        {PLAIT_DEVICE_ADD, 0, 1, N_BOXES, 1, TOGETHER},
        {PLAIT_DEVICE_ADD, 0, 2, 1, 2, TOGETHER},
        {PLAIT_DEVICE_ADD, 0, 1, N_BOXES, 0, N_BOXES}, /* all to one */
    };
    const plait_box_copy_t box = {.row_bytes = ROW};
    static plait_device_box_t boxes[N_BOXES];
    random_t r = {12};

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        array_t a = array_create(m, INT64_C(2) * N_BOXES * ROW);
        array_fill(&a, &r);
        array_put(m, &a);
        for (int i = 0; i < N_BOXES; i++) {
            const int from = ROW * (cases[k].src + i * cases[k].src_step);
            const int to = ROW * (cases[k].dst + i * cases[k].dst_step);
            boxes[i] =
                (plait_device_box_t){cases[k].kind, a.dev + from, a.dev + to, box};
            do_on_host(&boxes[i], PLAIT_S32, a.expected + from, a.expected + to);
        }
        const int before = n_launches(m);
        good(m->call->boxes(m->device, m->stream, PLAIT_S32, N_BOXES, boxes), "boxes");
        const int n = n_launches(m) - before;
        CHECK(!m->is_host || n == cases[k].n_launches, "case %d: %d launches", (int)k,
              n);
        CHECK(array_is_expected(m, &a), "case %d", (int)k);
        array_destroy(m, &a);
    }
}

static void test_cuda_boxes_in_place(const machine_t *m)
{
    enum { N = 5000, GHOST = 256 };
    array_t a = array_create(m, N);
    random_t r = {8};
    const plait_box_copy_t box = {.row_bytes = GHOST};

    array_fill(&a, &r);
    array_put(m, &a);
    const plait_device_box_t boxes[] = {
        {PLAIT_DEVICE_ADD, a.dev, a.dev + 1024, box},
        {PLAIT_DEVICE_ZERO, NULL, a.dev, box},
        {PLAIT_DEVICE_COPY, a.dev + 1024, a.dev + 2048, box},
    };
    for (int i = 0; i < 3; i++) {
        const char *src = boxes[i].src;
        int64_t from = (src != NULL) ? src - a.dev : 0;
        do_on_host(&boxes[i], PLAIT_S32, a.expected + from,
                   a.expected + ((char *)boxes[i].dst - a.dev));
    }
    good(m->call->boxes(m->device, m->stream, PLAIT_S32, 3, boxes), "boxes");
    CHECK(array_is_expected(m, &a), "in place");
    array_destroy(m, &a);
}

/* More lanes than one box may have, as bytes that no wider lane fits; only on a GPU, which has room. */
static void test_cuda_boxes_large(const machine_t *m)
{
    const int64_t n_bytes = (INT64_C(1) << 31) + (INT64_C(1) << 20) + 3,
                  n_seen = 1 << 20;
    void *src = NULL, *dst = NULL, *pinned = NULL;
    const int64_t at[] = {0, (INT64_C(1) << 30) - 12345, n_bytes - n_seen};

    if (m->is_host) {
        return;
    }
    good(m->call->take(m->device, m->stream, n_bytes, &src), "src");
    good(m->call->take(m->device, m->stream, n_bytes + 1, &dst), "dst");
    good(m->call->host_take(m->device, 2 * n_seen, &pinned), "pinned");
    char *in = pinned, *out = in + n_seen;
    random_t r = {9};
    for (int64_t i = 0; i < n_seen; i++) {
        in[i] = (char)draw(&r, -128, 127);
    }
    for (int k = 0; k < 3; k++) {
        good(m->call->to_device(m->device, m->stream, (char *)src + at[k], in, n_seen),
             "in");
    }
    const plait_device_box_t box = {
        PLAIT_DEVICE_COPY, src, (char *)dst + 1, {.row_bytes = n_bytes}};
    good(m->call->boxes(m->device, m->stream, PLAIT_U8, 1, &box), "boxes");
    for (int k = 0; k < 3; k++) {
        good(m->call->to_host(m->device, m->stream, out, (char *)dst + 1 + at[k],
                              n_seen),
             "out");
        good(m->call->stream_wait(m->device, m->stream), "wait");
        CHECK(memcmp(in, out, (size_t)n_seen) == 0, "part %d", k);
    }
    m->call->give(m->device, m->stream, src);
    m->call->give(m->device, m->stream, dst);
    m->call->host_give(m->device, pinned);
}

/* ---- Order, refusals, failures -------------------------------------------------------------- */

/* A copy on one stream, then one on another that waits for its event. */
static void test_cuda_events(const machine_t *m)
{
    const int64_t n = m->is_host ? 1 << 16 : 1 << 26;
    plait_stream_t other = NULL;
    plait_event_t *event = NULL;
    array_t a = array_create(m, n), b = array_create(m, n), c = array_create(m, n);
    random_t r = {4};

    good(m->call->stream_create(m->device, &other), "stream");
    good(m->call->event_create(m->device, &event), "event");
    array_fill(&a, &r);
    array_put(m, &a);
    const plait_box_copy_t box = {.row_bytes = n};
    const plait_device_box_t first = {PLAIT_DEVICE_COPY, a.dev, b.dev, box};
    const plait_device_box_t second = {PLAIT_DEVICE_COPY, b.dev, c.dev, box};
    good(m->call->boxes(m->device, m->stream, PLAIT_U8, 1, &first), "first");
    good(m->call->event_record(m->device, event, m->stream), "record");
    good(m->call->event_order(m->device, event, other), "order");
    good(m->call->boxes(m->device, other, PLAIT_U8, 1, &second), "second");
    good(m->call->event_record(m->device, event, other), "record");
    good(m->call->event_wait(m->device, event), "wait");
    memcpy(c.expected, a.expected, (size_t)n);
    CHECK(array_is_expected(m, &c), "events");
    m->call->event_destroy(m->device, event);
    m->call->event_destroy(m->device, NULL);
    m->call->stream_destroy(m->device, other);
    m->call->stream_destroy(m->device, NULL);
    array_destroy(m, &a);
    array_destroy(m, &b);
    array_destroy(m, &c);
}

static void test_cuda_refusals(const machine_t *m)
{
    plait_device_t *none = NULL;
    array_t a = array_create(m, 64);
    const plait_device_box_t sum = {
        PLAIT_DEVICE_ADD, a.dev, a.dev + 32, {.row_bytes = 8}};
    const plait_device_box_t crooked = {
        PLAIT_DEVICE_ADD, a.dev + 1, a.dev + 32, {.row_bytes = 8}};

    CHECK(m->call->boxes(m->device, m->stream, PLAIT_BOOL, 1, &sum) ==
              PLAIT_ERR_INVALID,
          "bool");
    CHECK(says("there is no sum of bool"), "bool");
    CHECK(m->call->boxes(m->device, m->stream, PLAIT_F32, 1, &crooked) ==
              PLAIT_ERR_INVALID,
          "not aligned");
    CHECK(says("aligned to 1 bytes"), "not aligned");
    CHECK(plait_cuda_device(99, &none) == PLAIT_ERR_UNSUPPORTED && none == NULL, "99");
    CHECK(says("there is no CUDA device 99"), "99");
    CHECK(plait_cuda_device(-1, &none) == PLAIT_ERR_UNSUPPORTED && none == NULL, "-1");
    array_destroy(m, &a);
}

/* With stand-ins only: which calls fail, when, and what still works afterwards. */
static void test_cuda_failures(void)
{
    static const plait_box_copy_t box = {.row_bytes = 16};
    plait_device_t *d = NULL;
    void *memory = NULL;

    setenv("PLAIT_FAKE_FAIL", "cuLaunchKernel:700:1", 1);
    look_in(FAKES_DIR);
    good(plait_cuda_device(0, &d), "device");
    good(d->table->enter(d), "enter");
    good(d->table->take(d, NULL, 64, &memory), "take");
    const plait_device_box_t zero = {PLAIT_DEVICE_ZERO, NULL, memory, box};
    good(d->table->boxes(d, NULL, PLAIT_U8, 1, &zero), "first");
    CHECK(d->table->boxes(d, NULL, PLAIT_U8, 1, &zero) == PLAIT_ERR_TRANSPORT,
          "second");
    CHECK(
        says("CUDA device 0: launching plait_zero_16: CUDA_ERROR_ILLEGAL_ADDRESS (700"),
        "name");
    CHECK(says("nothing more can be done on it"), "sticky");
    d->table->give(d, NULL, memory);
    d->table->leave(d);
    CHECK(d->table->enter(d) == PLAIT_ERR_TRANSPORT, "dead");
    CHECK(says("an earlier operation failed: CUDA_ERROR_ILLEGAL_ADDRESS"), "dead");

    setenv("PLAIT_FAKE_FAIL", "cuMemAlloc_v2:2:0", 1);
    look_in(FAKES_DIR);
    good(plait_cuda_device(0, &d), "device");
    good(d->table->enter(d), "enter");
    CHECK(d->table->take(d, NULL, 64, &memory) == PLAIT_ERR_NO_MEMORY, "memory");
    CHECK(says("2097152 bytes of device memory: CUDA_ERROR_OUT_OF_MEMORY") &&
              !says("nothing more"),
          "memory");
    d->table->leave(d);

    /* what other processes may have open is not freed, however short memory is */
    void *shown = NULL, *third = NULL;
    plait_device_shown_t as = {.number = 0};
    setenv("PLAIT_FAKE_FAIL", "cuMemAlloc_v2:2:2", 1);
    look_in(FAKES_DIR);
    good(plait_cuda_device(0, &d), "device");
    good(d->table->enter(d), "enter");
    good(d->table->take(d, NULL, 1 << 16, &memory), "first");
    good(d->table->take(d, NULL, 1 << 16, &shown), "second");
    good(d->table->memory_export(d, shown, 1, false, &as), "memory_export");
    d->table->give(d, NULL, memory);
    d->table->give(d, NULL, shown);
    const int n_lost = ask_fake("libcuda.so.1", "fake_cuda_n_lost");
    CHECK(d->table->take(d, NULL, 4 << 20, &third) == PLAIT_ERR_NO_MEMORY, "third");
    CHECK(ask_fake("libcuda.so.1", "fake_cuda_n_lost") == n_lost,
          "freed what is shown");
    d->table->leave(d);

    setenv("PLAIT_FAKE_FAIL", "cuModuleLoadDataEx:200:0", 1);
    look_in(FAKES_DIR);
    CHECK(plait_cuda_device(0, &d) == PLAIT_ERR_TRANSPORT, "module");
    CHECK(says("loading plait's kernels"), "module");
    setenv("PLAIT_FAKE_FAIL", "cuFuncLoad:400:1", 1);
    look_in(FAKES_DIR);
    CHECK(plait_cuda_device(0, &d) == PLAIT_ERR_TRANSPORT && says("plait_copy_2"),
          "kernel: %s", plait_error_text());
    unsetenv("PLAIT_FAKE_FAIL");
    look_in(FAKES_DIR);
    const int n_loaded = ask_fake("libcuda.so.1", "fake_cuda_n_loaded");
    good(plait_cuda_device(0, &d), "device");
    CHECK(ask_fake("libcuda.so.1", "fake_cuda_n_loaded") - n_loaded ==
              PLAIT_CUDA_N_KERNELS,
          "a kernel is loaded at its first launch");
    look_in(FAKES_DIR);
}

int main(int n_arguments, char **arguments)
{
    machine_t m = machine_of(n_arguments, arguments);
    plait_device_t *again = NULL;

    if (m.is_host) {
        test_cuda_failures();
        look_in(FAKES_DIR);
    }
    if (!machine_open(&m)) {
        return SKIPPED;
    }
    good(plait_cuda_device(0, &again), "again");
    CHECK(again == m.device, "one device an ordinal");
    test_cuda_memory(&m);
    test_cuda_growing(&m);
    test_cuda_boxes(&m);
    test_cuda_turns(&m);
    test_cuda_boxes_in_order(&m);
    test_cuda_boxes_many(&m);
    test_cuda_boxes_in_place(&m);
    test_cuda_boxes_large(&m);
    test_cuda_events(&m);
    test_cuda_refusals(&m);
    machine_close(&m);
    return report("test_cuda_device");
}
