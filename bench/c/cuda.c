/* What one GPU's table of functions reaches: boxes copied, turned, added, beside cuMemcpyDtoDAsync of
 * as many bytes; reductions; cuFFT of n^3 complex numbers; host time of a launch. Best of several rounds
 * of calls in a row, each waited for once. Bytes are those read and written.
 *
 *   cuda [n of the transforms, 512 [MiB of the copies, 64 and 256]]     77 without a GPU */
#include "device/cuda.h"

#include "base/alloc.h"
#include "device/cuda_load.h"
#include "rounds.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { N_CALLS = 20, N_ROUNDS = 9, SKIPPED = 77, N_PIECES = 4, N_PARTS = 8 };

typedef struct {
    plait_device_t *device;
    const plait_device_table_t *call;
    const plait_cuda_t *cuda;
    plait_stream_t stream;
    char *src, *dst;
    int64_t n_bytes;
    double copy_s; /* of cuMemcpyDtoDAsync of n_bytes */
} bench_t;

static void must(plait_status_t status)
{
    bench_must(status == PLAIT_OK, plait_error_text());
}

/* One case: what is called, on what. */
typedef struct {
    bench_t *bench;
    int n_boxes;
    plait_device_box_t box[N_PARTS];
    plait_device_fft_t fft;
    void *work;
} case_t;

typedef void (*call_fn_t)(case_t *c);

static void call_memcpy(case_t *c)
{
    bench_t *b = c->bench;

    bench_must(b->cuda->cuMemcpyDtoDAsync_v2((uintptr_t)b->dst, (uintptr_t)b->src,
                                             (size_t)b->n_bytes, b->stream) == 0,
               "cuMemcpyDtoDAsync");
}

static void call_boxes(case_t *c)
{
    must(c->bench->call->boxes(c->bench->device, c->bench->stream, PLAIT_F32,
                               c->n_boxes, c->box));
}

static void call_reduce(case_t *c)
{
    bench_t *b = c->bench;
    const void *pieces[N_PIECES];
    const int64_t n = b->n_bytes / N_PIECES;

    for (int q = 0; q < N_PIECES; q++) {
        pieces[q] = b->src + q * n;
    }
    must(b->call->reduce(b->device, b->stream, PLAIT_SUM, PLAIT_F32, n / 4, N_PIECES,
                         pieces, b->dst));
}

static void call_fft(case_t *c)
{
    must(c->bench->call->fft(c->bench->device, c->bench->stream, &c->fft, c->bench->src,
                             c->bench->dst, c->work));
}

/* Seconds of one call, with and without the device's part. */
static double time_of(case_t *c, call_fn_t call, double *host_s_p)
{
    bench_t *b = c->bench;
    double best = 1e9;

    *host_s_p = 1e9;
    for (int round = 0; round <= N_ROUNDS; round++) {
        must(b->call->stream_wait(b->device, b->stream));
        double start = bench_seconds();
        for (int i = 0; i < N_CALLS; i++) {
            call(c);
        }
        double host_s = (bench_seconds() - start) / N_CALLS;
        must(b->call->stream_wait(b->device, b->stream));
        double whole_s = (bench_seconds() - start) / N_CALLS;
        if (round > 0) { /* the first one warms up */
            best = (whole_s < best) ? whole_s : best;
            *host_s_p = (host_s < *host_s_p) ? host_s : *host_s_p;
        }
    }
    return best;
}

static void measure(case_t *c, call_fn_t call, const char *name, int64_t moved)
{
    double host_s = 0, seconds = time_of(c, call, &host_s);
    double rate = (double)moved / seconds;
    double copy_rate = 2 * (double)c->bench->n_bytes / c->bench->copy_s;

    printf("%-44s %9.1f us  %8.1f GB/s", name, 1e6 * seconds, 1e-9 * rate);
    if (c->bench->copy_s > 0 && moved > 0) {
        printf("  %5.2f of a copy", rate / copy_rate);
    }
    printf("  host %5.1f us\n", 1e6 * host_s);
}

/* Rows with as much between them on the side of src. */
static void measure_rows(bench_t *b, int64_t row_bytes, plait_device_box_kind_t kind,
                         const char *name)
{
    const int64_t n = b->n_bytes / 2 / row_bytes;
    case_t c = {.bench = b, .n_boxes = 1};

    c.box[0] = (plait_device_box_t){kind,
                                    b->src,
                                    b->dst,
                                    {.n_dims = 1,
                                     .count = {n},
                                     .src_stride = {2 * row_bytes},
                                     .dst_stride = {row_bytes},
                                     .row_bytes = row_bytes}};
    measure(&c, call_boxes, name, n * row_bytes * ((kind == PLAIT_DEVICE_ADD) ? 3 : 2));
}

/* n0 x n1 x n2 elements with the axes 0 and `axis` exchanged. */
static void measure_turn(bench_t *b, int axis, int64_t item, const char *name)
{
    const int64_t n = 256, n_0 = b->n_bytes / item / n / n;
    case_t c = {.bench = b, .n_boxes = 1};
    plait_device_box_t *box = &c.box[0];

    *box = (plait_device_box_t){PLAIT_DEVICE_COPY, b->src, b->dst, {.n_dims = 3}};
    box->box.row_bytes = item;
    memcpy(box->box.count, (int64_t[]){n_0, n, n}, 3 * sizeof(int64_t));
    memcpy(box->box.src_stride, (int64_t[]){n * n * item, n * item, item},
           3 * sizeof(int64_t));
    if (axis == 2) {
        memcpy(box->box.dst_stride, (int64_t[]){item, n_0 * item, n * n_0 * item},
               3 * sizeof(int64_t));
    } else {
        memcpy(box->box.dst_stride, (int64_t[]){n * item, n_0 * n * item, item},
               3 * sizeof(int64_t));
    }
    measure(&c, call_boxes, name, 2 * n_0 * n * n * item);
}

/* Rows dealt out to several places, as before an exchange. */
static void measure_pack(bench_t *b)
{
    enum { ROW = 4096 };
    const int64_t n = b->n_bytes / ROW;
    case_t c = {.bench = b, .n_boxes = N_PARTS};

    for (int p = 0; p < N_PARTS; p++) {
        c.box[p] = (plait_device_box_t){PLAIT_DEVICE_COPY,
                                        b->src + p * (ROW / N_PARTS),
                                        b->dst + p * (b->n_bytes / N_PARTS),
                                        {.n_dims = 1,
                                         .count = {n},
                                         .src_stride = {ROW},
                                         .dst_stride = {ROW / N_PARTS},
                                         .row_bytes = ROW / N_PARTS}};
    }
    measure(&c, call_boxes, "pack for 8, 512 B of each row of 4 KiB", 2 * b->n_bytes);
}

static void measure_copies(bench_t *b, int64_t n_bytes)
{
    case_t c = {.bench = b, .n_boxes = 1};
    double host_s = 0;

    b->n_bytes = n_bytes;
    b->copy_s = time_of(&c, call_memcpy, &host_s);
    printf("---- %" PRId64 " MiB\n", n_bytes >> 20);
    measure(&c, call_memcpy, "cuMemcpyDtoDAsync", 2 * n_bytes);
    c.box[0] =
        (plait_device_box_t){PLAIT_DEVICE_COPY, b->src, b->dst, {.row_bytes = n_bytes}};
    measure(&c, call_boxes, "one row", 2 * n_bytes);
    c.box[0].src = b->src + 4;
    c.box[0].box.row_bytes -= 16;
    measure(&c, call_boxes, "one row, 4 bytes off", 2 * n_bytes - 32);
    c.box[0].kind = PLAIT_DEVICE_ZERO;
    measure(&c, call_boxes, "zero", n_bytes - 16);
    measure_rows(b, 4096, PLAIT_DEVICE_COPY, "rows of 4 KiB from every second");
    measure_rows(b, 256, PLAIT_DEVICE_COPY, "rows of 256 B from every second");
    measure_rows(b, 64, PLAIT_DEVICE_COPY, "rows of 64 B from every second");
    measure_rows(b, 4096, PLAIT_DEVICE_ADD, "sums f32, rows of 4 KiB");
    measure_turn(b, 1, 8, "axes 0 and 1 of n x 256 x 256, 8 B");
    measure_turn(b, 2, 4, "axes 0 and 2, 4 B");
    measure_turn(b, 2, 8, "axes 0 and 2, 8 B");
    measure_turn(b, 2, 16, "axes 0 and 2, 16 B");
    measure_pack(b);
    measure(&c, call_reduce, "sum f32 of 4 pieces", n_bytes + n_bytes / N_PIECES);
    c.box[0].box.row_bytes = 16;
    measure(&c, call_boxes, "16 bytes: the launch alone", 0);
}

/* One plan of three dimensions, and batches of lines along the last and the first axis. */
static void measure_fft(bench_t *b, int64_t n, int ndim, bool is_first,
                        const char *name)
{
    case_t c = {.bench = b};
    plait_device_fft_t *f = &c.fft;
    int64_t n_work = 0;

    *f = (plait_device_fft_t){.kind = PLAIT_DEVICE_FFT_C2C,
                              .dtype = PLAIT_C64,
                              .ndim = ndim,
                              .n_batch = (ndim == 3) ? 1 : n * n,
                              .sign = -1};
    for (int d = 0; d < ndim; d++) {
        f->n[d] = f->in_embed[d] = f->out_embed[d] = n;
    }
    f->in_stride = f->out_stride = is_first ? n * n : 1;
    f->in_distance = f->out_distance = is_first ? 1 : (ndim == 3) ? n * n * n : n;
    must(b->call->fft_plan(b->device, f, &n_work));
    must(b->call->take(b->device, b->stream, n_work, &c.work));
    measure(&c, call_fft, name, 16 * n * n * n);
    printf("%-44s %9.1f MiB\n", "  its work memory", (double)n_work / 0x1p20);
    b->call->give(b->device, b->stream, c.work);
}

int main(int n_arguments, char **arguments)
{
    const int64_t n = (n_arguments > 1) ? atoi(arguments[1]) : 512;
    const int64_t small = (int64_t)((n_arguments > 2) ? atoi(arguments[2]) : 64) << 20;
    const int64_t large = (n_arguments > 2) ? small : (int64_t)256 << 20;
    int64_t n_most = large;
    bench_t b = {.device = NULL};
    void *memory = NULL;

    if (plait_cuda_device(0, &b.device) != PLAIT_OK) {
        printf("skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    printf("%s\n", plait_cuda_device_say(0));
    b.call = b.device->table;
    must(plait_cuda_require(PLAIT_CUDA_DRIVER, &b.cuda));
    must(b.call->enter(b.device));
    must(b.call->stream_create(b.device, &b.stream));
    n_most = (8 * n * n * n > n_most) ? 8 * n * n * n : n_most;
    must(b.call->take(b.device, b.stream, n_most, &memory));
    b.src = memory;
    must(b.call->take(b.device, b.stream, n_most, &memory));
    b.dst = memory;
    measure_copies(&b, small);
    if (large != small) {
        measure_copies(&b, large);
    }
    printf("---- transforms of %" PRId64 "^3 complex64\n", n);
    measure_fft(&b, n, 3, false, "three dimensions");
    measure_fft(&b, n, 1, false, "lines along the last axis");
    measure_fft(&b, n, 1, true, "lines along the first axis");
    b.call->give(b.device, b.stream, b.src);
    b.call->give(b.device, b.stream, b.dst);
    b.call->stream_destroy(b.device, b.stream);
    b.call->leave(b.device);
    plait_cuda_release();
    return 0;
}
