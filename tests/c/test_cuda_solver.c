/* Factorizations and eigenvalues on a CUDA device, by their definitions: all dtypes, leading dimensions whose
 * gaps stay as they are, outcomes. On the first GPU, or with the argument `host` on stand-ins of CUDA's
 * libraries. Without a GPU: skipped, with the reason. */
#include "cuda_matrices.h"
#include "device/cuda_state.h"
#include "fakes.h"

/* bad: the diagonal element that is `value`; -1: none. */
static void check_potrf(const machine_t *m, plait_dtype_t dtype, int64_t n, int64_t bad,
                        double value, int32_t info_before)
{
    const int64_t row = 100;
    matrix_t a = create(m, dtype, n, n, 8);
    array_t info = word_create(m, info_before);
    const plait_device_tile_t tile = {.op = PLAIT_TILE_POTRF,
                                      .dtype = dtype,
                                      .m = n,
                                      .n = n,
                                      .row = row,
                                      .ldc = a.ld,
                                      .c = a.a.dev,
                                      .info = (int32_t *)(void *)info.dev};
    double error = 0;

    for (int64_t i = 0; i < n; i++) {
        set(&a, i, i, (i == bad) ? value : (double)n);
    }
    set_all(m, &a);
    run(m, &tile, "potrf");
    array_get(m, &a.a);
    const int32_t found = (bad >= 0) ? (int32_t)(row + bad + 1) : 0;
    CHECK(word_get(m, &info) == ((info_before != 0) ? info_before : found),
          "potrf %s: info %d, expected %d", plait_dtype_name(dtype), word_get(m, &info),
          found);
    for (int64_t j = 0; j < n && bad < 0; j++) {
        for (int64_t i = j; i < n; i++) {
            double complex sum = -before(&a, i, j);
            for (int64_t l = 0; l <= j; l++) {
                sum += now(&a, i, l) * conj(now(&a, j, l));
            }
            error = fmax(error, cabs(sum));
        }
    }
    judge(error, 10 * (double)(n * n), dtype, "potrf");
    if (bad < 0) {
        check_kept(&a, false, "potrf");
    }
    array_destroy(m, &a.a);
    array_destroy(m, &info);
}

/* The original matrix, with its rows exchanged by the pivots, one after another. */
static double complex *exchanged(const matrix_t *a, const int32_t *pivots, int64_t k,
                                 int64_t row)
{
    double complex *x = plait_alloc(a->m * a->n, sizeof(*x));

    for (int64_t j = 0; j < a->n; j++) {
        for (int64_t i = 0; i < a->m; i++) {
            x[j * a->m + i] = before(a, i, j);
        }
        for (int64_t i = 0; i < k; i++) {
            const int64_t p = pivots[i] - row;
            const double complex z = x[j * a->m + i];
            CHECK(p >= i && p < a->m, "pivot %lld is %lld", (long long)i, (long long)p);
            if (p < i || p >= a->m) {
                continue;
            }
            x[j * a->m + i] = x[j * a->m + p];
            x[j * a->m + p] = z;
        }
    }
    return x;
}

static plait_device_tile_t getrf_of(const matrix_t *a, int64_t row,
                                    const array_t *pivots, const array_t *info)
{
    return (plait_device_tile_t){.op = PLAIT_TILE_GETRF,
                                 .dtype = a->dtype,
                                 .m = a->m,
                                 .n = a->n,
                                 .row = row,
                                 .ldc = a->ld,
                                 .c = a->a.dev,
                                 .extra = pivots->dev,
                                 .info = (int32_t *)(void *)info->dev};
}

/* A NaN that no pivot meets: below the diagonal of an identity matrix. */
static void check_passed_by(const machine_t *m, plait_dtype_t dtype, int64_t n)
{
    matrix_t a = create(m, dtype, n, n, 9);
    array_t pivots = array_create(m, n * (int64_t)sizeof(int32_t));
    array_t info = word_create(m, 0);
    const plait_device_tile_t tile = getrf_of(&a, 40, &pivots, &info);

    for (int64_t i = 0; i < n * n; i++) {
        set(&a, i % n, i / n, (i % n == i / n) ? 1 : 0);
    }
    set(&a, 2, 1, (double)NAN);
    set_all(m, &a);
    run(m, &tile, "getrf");
    CHECK(word_get(m, &info) > 40 && word_get(m, &info) <= 40 + n,
          "NaN, getrf %s: info %d", plait_dtype_name(dtype), word_get(m, &info));
    array_destroy(m, &a.a);
    array_destroy(m, &pivots);
    array_destroy(m, &info);
}

/* bad: a column that is zero; -1: none. */
static void check_getrf(const machine_t *m, plait_dtype_t dtype, int64_t n_rows,
                        int64_t n, int64_t bad)
{
    const int64_t row = 40, least = (n_rows < n) ? n_rows : n;
    matrix_t a = create(m, dtype, n_rows, n, 9), b = create(m, dtype, n_rows, 4, 10);
    array_t pivots = array_create(m, least * (int64_t)sizeof(int32_t));
    array_t info = word_create(m, 0);
    const plait_device_tile_t tile = getrf_of(&a, row, &pivots, &info);
    const plait_device_tile_t swap = {.op = PLAIT_TILE_LASWP,
                                      .dtype = dtype,
                                      .m = n_rows,
                                      .n = 4,
                                      .k = least,
                                      .row = row,
                                      .ldc = b.ld,
                                      .c = b.a.dev,
                                      .extra = pivots.dev};
    double error = 0;
    bool is_swapped = true;

    for (int64_t i = 0; i < n_rows && bad >= 0; i++) {
        set(&a, i, bad, 0);
    }
    set_all(m, &a);
    run(m, &tile, "getrf");
    run(m, &swap, "laswp");
    array_get(m, &a.a);
    array_get(m, &b.a);
    array_get(m, &pivots);
    CHECK(word_get(m, &info) == ((bad >= 0 && bad < least) ? row + bad + 1 : 0),
          "getrf %s: info %d", plait_dtype_name(dtype), word_get(m, &info));
    const int32_t *p = (const int32_t *)(void *)pivots.pinned;
    double complex *pa = exchanged(&a, p, least, row);
    double complex *pb = exchanged(&b, p, least, row);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n_rows; i++) {
            double complex sum = -pa[j * n_rows + i];
            for (int64_t l = 0; l <= i && l <= j && l < least; l++) {
                sum += ((l == i) ? 1 : now(&a, i, l)) * now(&a, l, j);
            }
            error = fmax(error, cabs(sum));
        }
    }
    for (int64_t i = 0; i < 4 * n_rows; i++) {
        is_swapped = is_swapped && now(&b, i % n_rows, i / n_rows) ==
                                       pb[i / n_rows * n_rows + i % n_rows];
    }
    judge(error, 20 * (double)(n_rows + n), dtype, "getrf");
    CHECK(is_swapped, "laswp %s", plait_dtype_name(dtype));
    check_kept(&a, false, "getrf");
    check_kept(&b, false, "laswp");
    plait_free(pa);
    plait_free(pb);
    array_destroy(m, &a.a);
    array_destroy(m, &b.a);
    array_destroy(m, &pivots);
    array_destroy(m, &info);
}

/* Q^H A is R, and Q R is A. */
static void check_qr(const machine_t *m, plait_dtype_t dtype, int64_t n_rows, int64_t n)
{
    const int64_t least = (n_rows < n) ? n_rows : n;
    matrix_t a = create(m, dtype, n_rows, n, 11), c = create(m, dtype, n_rows, n, 11);
    array_t factors = array_create(m, least * plait_dtype_bytes(dtype));
    plait_device_tile_t tile = {.op = PLAIT_TILE_GEQRF,
                                .dtype = dtype,
                                .m = n_rows,
                                .n = n,
                                .ldc = a.ld,
                                .c = a.a.dev,
                                .extra = factors.dev};
    double error = 0;
    double back = 0;

    run(m, &tile, "geqrf");
    array_get(m, &a.a);
    tile.op = PLAIT_TILE_ORMQR;
    tile.k = least;
    tile.lda = a.ld;
    tile.ldc = c.ld;
    tile.a = a.a.dev;
    tile.c = c.a.dev;
    tile.trans = 'C';
    run(m, &tile, "ormqr");
    array_get(m, &c.a);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n_rows; i++) {
            const double complex r = (i <= j) ? now(&a, i, j) : 0;
            error = fmax(error, cabs(now(&c, i, j) - r));
        }
    }
    tile.trans = 'N';
    run(m, &tile, "ormqr");
    array_get(m, &c.a);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n_rows; i++) {
            back = fmax(back, cabs(now(&c, i, j) - before(&a, i, j)));
        }
    }
    judge(error, 20 * (double)n_rows, dtype, "geqrf");
    judge(back, 20 * (double)n_rows, dtype, "ormqr");
    check_kept(&a, false, "geqrf");
    check_kept(&c, false, "ormqr");
    array_destroy(m, &a.a);
    array_destroy(m, &c.a);
    array_destroy(m, &factors);
}

/* exponent: of a power of two that scales all numbers; eigenvalues are divided by it again. */
static void check_heevd(const machine_t *m, plait_dtype_t dtype, int64_t n,
                        bool has_vectors, int exponent)
{
    const plait_dtype_t real = plait_real_of(dtype);
    const double scale = ldexp(1, exponent);
    matrix_t a = create(m, dtype, n, n, 12);
    array_t w = array_create(m, n * plait_dtype_bytes(real));
    array_t info = word_create(m, 0);
    const plait_device_tile_t tile = {.op = PLAIT_TILE_HEEVD,
                                      .dtype = dtype,
                                      .m = n,
                                      .n = n,
                                      .k = has_vectors,
                                      .ldc = a.ld,
                                      .c = a.a.dev,
                                      .extra = w.dev,
                                      .info = (int32_t *)(void *)info.dev};
    double error = 0;
    double trace = 0;

    for (int64_t i = 0; i < n; i++) {
        set(&a, i, i, creal(before(&a, i, i)) * scale);
        for (int64_t j = 0; j < i; j++) {
            set(&a, i, j, before(&a, i, j) * scale);
        }
    }
    set_all(m, &a);
    run(m, &tile, "heevd");
    array_get(m, &a.a);
    array_get(m, &w);
    CHECK(word_get(m, &info) == 0, "heevd: info %d", word_get(m, &info));
    for (int64_t j = 0; j < n; j++) {
        const double value = creal(plait_scalar_get(real, w.pinned, j)) / scale;
        trace += value - creal(before(&a, j, j)) / scale;
        CHECK(j == 0 || value >= creal(plait_scalar_get(real, w.pinned, j - 1)) / scale,
              "heevd: eigenvalue %lld", (long long)j);
        for (int64_t i = 0; i < n && has_vectors; i++) {
            double complex sum = -value * now(&a, i, j);
            for (int64_t l = 0; l < n; l++) {
                const double complex z =
                    (l <= i) ? before(&a, i, l) : conj(before(&a, l, i));
                sum += z / scale * now(&a, l, j);
            }
            error = fmax(error, cabs(sum));
        }
    }
    judge(error, 40 * (double)n, dtype, "heevd");
    judge(fabs(trace), 40 * (double)(n * n), dtype, "heevd: trace");
    array_destroy(m, &a.a);
    array_destroy(m, &w);
    array_destroy(m, &info);
}

/* Numbers in any order, with one NaN or none: each becomes the largest number up to its place. */
static void check_ascend(const machine_t *m, bool is_single, int64_t n, int64_t bad)
{
    const plait_dtype_t dtype = is_single ? PLAIT_F32 : PLAIT_F64;
    array_t a = array_create(m, n * plait_dtype_bytes(dtype));
    array_t sizes = array_create(m, 2 * (int64_t)sizeof(int32_t));
    const double step = is_single ? 0x1p75 : 0x1p600;
    const plait_cuda_ascend_t params = {
        .values = a.dev, .sizes = (int32_t *)(void *)sizes.dev, .n = n};
    double most = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        const double x =
            (i == bad)
                ? (double)NAN
                : (double)(float)(sample(3, (uint64_t)i) + (double)i / (double)n);
        plait_scalar_put(dtype, a.pinned, i, x);
    }
    memset(sizes.pinned, 0, 2 * sizeof(int32_t));
    ((int32_t *)(void *)sizes.pinned)[0] = 1; /* it was divided by step */
    array_put(m, &a);
    array_put(m, &sizes);
    for (int64_t i = 0; i < n; i++) {
        const double x = creal(plait_scalar_get(dtype, a.expected, i));
        most = (x > most) ? x : most;
        plait_scalar_put(dtype, a.expected, i, step * ((x < most) ? most : x));
    }
    good(plait_cuda_launch(plait_cuda_state(m->device), m->stream,
                           is_single ? PLAIT_CUDA_ASCEND_F32 : PLAIT_CUDA_ASCEND_F64, 1,
                           &params),
         "ascend");
    CHECK(array_is_expected(m, &a), "ascend: %lld of %s", (long long)n,
          plait_dtype_name(dtype));
    array_destroy(m, &a);
    array_destroy(m, &sizes);
}

static void test_cuda_solver(const machine_t *m)
{
    static const int64_t sizes[] = {1, 2, 13, 40};

    for (int i = 0; i < 16; i++) {
        const plait_dtype_t dtype = dtypes[i % 4];
        const int64_t n = sizes[i / 4];
        check_potrf(m, dtype, n, -1, 0, 0);
        check_potrf(m, dtype, n, n / 2, -1, 0);
        check_potrf(m, dtype, n, n - 1, (double)NAN, 0);
        check_potrf(m, dtype, n, 0, (double)INFINITY, 0);
        check_potrf(m, dtype, n, n - 1, -1, 7);
        check_getrf(m, dtype, n, n, -1);
        check_getrf(m, dtype, n + 5, n, n / 2);
        check_getrf(m, dtype, n, n + 4, n / 3);
        check_qr(m, dtype, n, n);
        check_qr(m, dtype, n + 5, n);
        check_qr(m, dtype, n, n + 4);
        const int far = (plait_real_of(dtype) == PLAIT_F32) ? 122 : 1015;
        check_heevd(m, dtype, n, true, 0);
        check_heevd(m, dtype, n, false, (i % 3 - 1) * far);
        check_heevd(m, dtype, n, true, (i % 2 == 0) ? far : -far);
        check_passed_by(m, dtype, n + 3);
    }
    check_potrf(m, PLAIT_F64, 600, 599, (double)NAN,
                0); /* more than one turn of threads */
    check_potrf(m, PLAIT_C64, 300, 270, -1, 0);
    for (int i = 0; i < 10; i++) {
        static const int64_t lengths[] = {1, 2, 255, 257, 5000};
        check_ascend(m, i % 2 == 0, lengths[i / 2], (i == 5 || i == 8) ? 200 : -1);
    }
}

/* Calls that were not planned, and sizes that 32 bits do not hold. */
static void check_factor_refusals(const machine_t *m)
{
    const plait_device_tile_t potrf = {
        .op = PLAIT_TILE_POTRF, .dtype = PLAIT_F64, .m = 1, .n = 1, .ldc = 1};
    const plait_device_tile_t ormqr = {.op = PLAIT_TILE_ORMQR,
                                       .dtype = PLAIT_F32,
                                       .trans = 'N',
                                       .m = INT64_C(1) << 31,
                                       .n = 1,
                                       .k = 1,
                                       .lda = INT64_C(1) << 31,
                                       .ldc = INT64_C(1) << 31};
    const plait_device_tile_t wrong = {
        .op = PLAIT_TILE_POTRF, .dtype = PLAIT_F64, .m = 4, .n = 4, .ldc = 3};
    const plait_device_tile_t large = {.op = PLAIT_TILE_HEEVD,
                                       .dtype = PLAIT_C64,
                                       .m = 30000,
                                       .n = 30000,
                                       .k = 1,
                                       .ldc = 30000};
    int64_t n_work = 0;

    CHECK(m->call->tile(m->device, m->stream, &potrf, NULL) == PLAIT_ERR_INTERNAL &&
              strstr(plait_error_text(), "not planned") != NULL,
          "%s", plait_error_text());
    CHECK(m->call->tile_plan(m->device, &ormqr, &n_work) == PLAIT_ERR_OVERFLOW,
          "ormqr: %s", plait_error_text());
    CHECK(m->call->tile_plan(m->device, &wrong, &n_work) == PLAIT_ERR_TRANSPORT &&
              strstr(plait_error_text(), "cuSOLVER: potrf: invalid value (3)") != NULL,
          "%s", plait_error_text());
    setenv("PLAIT_FAKE_SYEVD_MOST", "25000", 1);
    CHECK(m->call->tile_plan(m->device, &large, &n_work) == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(),
                     "cuSOLVER 13.0.0: syevd refuses a 30000 x 30000 "
                     "matrix of complex64: before CUDA 13 it takes "
                     "about 25000 rows") != NULL,
          "%s", plait_error_text());
    unsetenv("PLAIT_FAKE_SYEVD_MOST");
    good(m->call->tile_plan(m->device, &large, &n_work), "without a limit");
}

/* A toolkit without cuSOLVER: products work, factorizations give a named error while planning. */
static void test_cuda_solver_absent(void)
{
    static const char *const there[] = {"libcuda.so.1", "libnvrtc.so.13",
                                        "libcublas.so.13"};
    plait_device_tile_t tile = {.op = PLAIT_TILE_GEMM, .dtype = PLAIT_F64};
    plait_device_t *device = NULL;
    int64_t n_work = 0;

    look_in(folder_of("partial"));
    for (int i = 0; i < 3; i++) {
        put_fake(there[i], folder_of("partial"), there[i]);
    }
    good(plait_cuda_device(0, &device), "device");
    good(device->table->enter(device), "enter");
    good(device->table->tile_plan(device, &tile, &n_work), "gemm");
    tile = (plait_device_tile_t){
        .op = PLAIT_TILE_POTRF, .dtype = PLAIT_F64, .m = 1, .n = 1, .ldc = 1};
    CHECK(device->table->tile_plan(device, &tile, &n_work) == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), "cuSOLVER was not found") != NULL,
          "%s", plait_error_text());
    device->table->leave(device);
    look_in(NULL);
    remove_fakes();
}

int main(int n_arguments, char **arguments)
{
    machine_t m = machine_of(n_arguments, arguments);

    if (!machine_open(&m)) {
        return SKIPPED;
    }
    if (m.is_host) {
        check_factor_refusals(&m);
    }
    test_cuda_solver(&m);
    machine_close(&m);
    if (m.is_host) {
        test_cuda_solver_absent();
    }
    return report("test_cuda_solver");
}
