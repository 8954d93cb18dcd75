/* What one GPU's table of functions reaches with matrices: factorizations of n x n, and those parts of
 * them that several GPUs do, beside a product of the same dtype in the same run; triangles beside
 * cuMemcpyDtoDAsync. Best of several rounds; matrices are not restored between calls, so that what is
 * factored may be a factor.
 *
 *   cuda_tile [n, 16384 [columns of a panel, 256]]     77 without a GPU */
#include "device/cuda.h"
#include "device/cuda_load.h"
#include "rounds.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROUNDS = 4, SKIPPED = 77 };

typedef struct {
    plait_device_t *device;
    const plait_device_table_t *call;
    const plait_cuda_t *cuda;
    plait_stream_t stream;
    plait_dtype_t dtype;
    int64_t n, width; /* of the matrix, of a panel */
    char *a, *b, *c;  /* n x n */
    void *extra;
    int32_t *info;
    double product_rate; /* operations per second */
} bench_t;

static void must(plait_status_t status)
{
    bench_must(status == PLAIT_OK, plait_error_text());
}

static double seconds_of(const bench_t *b, const plait_device_tile_t *tile, void *work,
                         double *host_s_p)
{
    double best = 1e9;

    *host_s_p = 1e9;
    for (int round = 0; round <= N_ROUNDS; round++) { /* the first one warms up */
        must(b->call->stream_wait(b->device, b->stream));
        const double start = bench_seconds();
        must(b->call->tile(b->device, b->stream, tile, work));
        const double host_s = bench_seconds() - start;
        must(b->call->stream_wait(b->device, b->stream));
        const double whole_s = bench_seconds() - start;
        if (round > 0) {
            best = (whole_s < best) ? whole_s : best;
            *host_s_p = (host_s < *host_s_p) ? host_s : *host_s_p;
        }
    }
    return best;
}

/* n_flops of real numbers; 0: the rate is that of n_bytes. */
static void measure(bench_t *b, plait_device_tile_t tile, const char *name,
                    double n_flops, double n_bytes)
{
    const bool is_complex = plait_dtype_kind(b->dtype) == PLAIT_KIND_COMPLEX;
    int64_t n_work = 0;
    void *work = NULL;
    double host_s = 0;

    n_flops *= is_complex ? 4 : 1;
    tile.dtype = b->dtype;
    tile.lda = tile.ldb = tile.ldc = b->n;
    tile.a = b->a;
    tile.b = b->b;
    tile.c = b->c;
    tile.extra = b->extra;
    tile.info = b->info;
    must(b->call->tile_plan(b->device, &tile, &n_work));
    must(b->call->take(b->device, b->stream, n_work + 1, &work));
    const double seconds = seconds_of(b, &tile, work, &host_s);
    printf("%-34s %10.1f us", name, 1e6 * seconds);
    if (n_flops > 0) {
        b->product_rate = (b->product_rate > 0) ? b->product_rate : n_flops / seconds;
        printf("  %8.3f TFLOP/s  %5.2f of gemm", 1e-12 * n_flops / seconds,
               n_flops / seconds / b->product_rate);
    } else {
        printf("  %8.1f GB/s", 1e-9 * n_bytes / seconds);
    }
    printf("  host %6.1f us  work %8.1f MiB\n", 1e6 * host_s, (double)n_work / 0x1p20);
    b->call->give(b->device, b->stream, work);
}

static void measure_copy(const bench_t *b)
{
    const int64_t n_bytes = b->n * b->n * plait_dtype_bytes(b->dtype);
    double best = 1e9;

    for (int round = 0; round <= N_ROUNDS; round++) {
        must(b->call->stream_wait(b->device, b->stream));
        const double start = bench_seconds();
        bench_must(b->cuda->cuMemcpyDtoDAsync_v2((uintptr_t)b->c, (uintptr_t)b->a,
                                                 (size_t)n_bytes, b->stream) == 0,
                   "cuMemcpyDtoDAsync");
        must(b->call->stream_wait(b->device, b->stream));
        best = (bench_seconds() - start < best) ? bench_seconds() - start : best;
    }
    printf("%-34s %10.1f us  %8.1f GB/s\n", "cuMemcpyDtoDAsync", 1e6 * best,
           2e-9 * (double)n_bytes / best);
}

/* A real number at place k of a row on the host. */
static void set(const bench_t *b, void *row, int64_t k, double value)
{
    if (b->dtype == PLAIT_F32 || b->dtype == PLAIT_C64) {
        ((float *)row)[k] = (float)value;
    } else {
        ((double *)row)[k] = value;
    }
}

/* 2 on the diagonal, else something below 1 / n, so positive definite: multiplications by zeros draw
 * less power, and a GPU does them at a higher clock rate. */
static void fill(const bench_t *b, char *x)
{
    const int64_t item = plait_dtype_bytes(b->dtype);
    const int64_t n_parts = (plait_dtype_kind(b->dtype) == PLAIT_KIND_COMPLEX) ? 2 : 1;
    uint64_t bits = 1;
    void *row = NULL;

    must(b->call->host_take(b->device, b->n * item, &row));
    for (int64_t i = 0; i < b->n; i++) {
        for (int64_t k = 0; k < b->n * n_parts; k++) {
            bits =
                bits * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
            set(b, row, k, (double)(bits >> 40) / 0x1p24 / (double)(2 * b->n));
        }
        set(b, row, i * n_parts, 2);
        if (n_parts == 2) {
            set(b, row, i * n_parts + 1, 0);
        }
        must(b->call->to_device(b->device, b->stream, x + i * b->n * item, row,
                                b->n * item));
        must(b->call->stream_wait(b->device, b->stream));
    }
    b->call->host_give(b->device, row);
}

static void measure_dtype(bench_t *b, plait_dtype_t dtype)
{
    const int64_t n = b->n, w = b->width;
    const double x = (double)n, y = (double)w, cube = x * x * x;

    b->dtype = dtype;
    b->product_rate = 0;
    fill(b, b->a);
    fill(b, b->b);
    fill(b, b->c);
    printf("---- %s, n = %" PRId64 ", panels of %" PRId64 "\n", plait_dtype_name(dtype),
           n, w);
    measure(b,
            (plait_device_tile_t){.op = PLAIT_TILE_GEMM,
                                  .trans = 'N',
                                  .trans_b = 'C',
                                  .m = n,
                                  .n = n,
                                  .k = n,
                                  .alpha = 1},
            "gemm n x n x n", 2 * cube, 0);
    measure(b,
            (plait_device_tile_t){.op = PLAIT_TILE_GEMM,
                                  .trans = 'N',
                                  .trans_b = 'C',
                                  .m = n,
                                  .n = n,
                                  .k = w,
                                  .alpha = -1,
                                  .beta = 1},
            "gemm n x n x panel", 2 * x * x * y, 0);
    measure(b,
            (plait_device_tile_t){.op = PLAIT_TILE_TRSM,
                                  .side = 'R',
                                  .uplo = 'L',
                                  .trans = 'C',
                                  .diag = 'N',
                                  .m = n,
                                  .n = w},
            "trsm, n rows of a panel", x * y * y, 0);
    fill(b, b->c);
    measure(b, (plait_device_tile_t){.op = PLAIT_TILE_POTRF, .m = w, .n = w},
            "potrf, a diagonal block", y * y * y / 3, 0);
    measure(b, (plait_device_tile_t){.op = PLAIT_TILE_POTRF, .m = n, .n = n}, "potrf",
            cube / 3, 0);
    fill(b, b->c);
    measure(b, (plait_device_tile_t){.op = PLAIT_TILE_GETRF, .m = n, .n = w},
            "getrf, a panel", x * y * y, 0);
    measure(b, (plait_device_tile_t){.op = PLAIT_TILE_LASWP, .m = n, .n = n, .k = w},
            "rows of a panel exchanged", 0,
            4 * x * y * (double)plait_dtype_bytes(dtype));
    measure(b, (plait_device_tile_t){.op = PLAIT_TILE_GETRF, .m = n, .n = n}, "getrf",
            2 * cube / 3, 0);
    fill(b, b->c);
    measure(b, (plait_device_tile_t){.op = PLAIT_TILE_GEQRF, .m = n, .n = w},
            "geqrf, a panel", 2 * x * y * y, 0);
    measure(b,
            (plait_device_tile_t){
                .op = PLAIT_TILE_ORMQR, .trans = 'C', .m = n, .n = n, .k = w},
            "ormqr, a panel", 4 * x * x * y, 0);
    measure(b,
            (plait_device_tile_t){
                .op = PLAIT_TILE_TRIM, .diag = 'R', .m = n, .n = n, .k = n},
            "lower triangle", 0, 1.5 * x * x * (double)plait_dtype_bytes(dtype));
    measure_copy(b);
}

int main(int n_arguments, char **arguments)
{
    enum { ITEM_MAX = 16 };
    bench_t b = {.n = (n_arguments > 1) ? atoi(arguments[1]) : 16384};
    char **matrices[] = {&b.a, &b.b, &b.c};
    static const plait_dtype_t dtypes[] = {PLAIT_F32, PLAIT_F64, PLAIT_C64, PLAIT_C128};
    void *memory = NULL;

    b.width = (n_arguments > 2) ? atoi(arguments[2]) : 256;
    bench_must(b.n >= 1 && b.width >= 1 && b.width <= b.n, "cuda_tile [n [panel]]");
    if (plait_cuda_device(0, &b.device) != PLAIT_OK) {
        printf("skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    printf("%s\n", plait_cuda_device_say(0));
    b.call = b.device->table;
    must(plait_cuda_require(PLAIT_CUDA_DRIVER, &b.cuda));
    must(b.call->enter(b.device));
    must(b.call->stream_create(b.device, &b.stream));
    for (int i = 0; i < 3; i++) {
        must(b.call->take(b.device, b.stream, b.n * b.n * ITEM_MAX, &memory));
        *matrices[i] = memory;
    }
    must(b.call->take(b.device, b.stream, b.n * ITEM_MAX, &b.extra));
    must(b.call->take(b.device, b.stream, sizeof(int32_t), &memory));
    b.info = memory;
    for (int d = 0; d < 4; d++) {
        measure_dtype(&b, dtypes[d]);
    }
    for (int i = 0; i < 3; i++) {
        b.call->give(b.device, b.stream, *matrices[i]);
    }
    b.call->give(b.device, b.stream, b.extra);
    b.call->give(b.device, b.stream, b.info);
    b.call->stream_destroy(b.device, b.stream);
    b.call->leave(b.device);
    plait_cuda_release();
    return 0;
}
