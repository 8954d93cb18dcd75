/* Products, triangles and plait's own kernels for matrices on a CUDA device, against the words of
 * device/device.h and sums in double: all dtypes, leading dimensions with gaps that stay as they are. On
 * the first GPU, or with the argument `host` on stand-ins of CUDA's libraries. Without a GPU: skipped,
 * with the reason. */
#include "cuda_matrices.h"

/* ---- Products and triangles ------------------------------------------------------------------ */

/* op(x)[i, j] of the original x. */
static double complex op_of(const matrix_t *x, char trans, int64_t i, int64_t j)
{
    const double complex z = (trans == 'N') ? before(x, i, j) : before(x, j, i);

    return (trans == 'C') ? conj(z) : z;
}

static void check_gemm(const machine_t *m, plait_dtype_t dtype, char trans_a,
                       char trans_b, double beta)
{
    const int64_t n_rows = 13, n = 7, k = 9;
    matrix_t a = create(m, dtype, (trans_a == 'N') ? n_rows : k,
                        (trans_a == 'N') ? k : n_rows, 1);
    matrix_t b =
        create(m, dtype, (trans_b == 'N') ? k : n, (trans_b == 'N') ? n : k, 2);
    matrix_t c = create(m, dtype, n_rows, n, 3);
    const plait_device_tile_t tile = {.op = PLAIT_TILE_GEMM,
                                      .dtype = dtype,
                                      .trans = trans_a,
                                      .trans_b = trans_b,
                                      .m = n_rows,
                                      .n = n,
                                      .k = k,
                                      .lda = a.ld,
                                      .ldb = b.ld,
                                      .ldc = c.ld,
                                      .alpha = -1,
                                      .beta = beta,
                                      .a = a.a.dev,
                                      .b = b.a.dev,
                                      .c = c.a.dev};
    double error = 0;

    if (beta == 0) { /* not read */
        set(&c, 2, 3, (double)NAN);
        set_all(m, &c);
    }
    run(m, &tile, "gemm");
    array_get(m, &c.a);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n_rows; i++) {
            double complex want = (beta == 0) ? 0 : beta * before(&c, i, j);
            for (int64_t l = 0; l < k; l++) {
                want -= op_of(&a, trans_a, i, l) * op_of(&b, trans_b, l, j);
            }
            error = fmax(error, cabs(now(&c, i, j) - want));
        }
    }
    judge(error, 4 * (double)k, dtype, "gemm");
    check_kept(&c, false, "gemm");
    array_destroy(m, &a.a);
    array_destroy(m, &b.a);
    array_destroy(m, &c.a);
}

static void check_herk(const machine_t *m, plait_dtype_t dtype)
{
    const int64_t n = 11, k = 5;
    matrix_t a = create(m, dtype, n, k, 4), c = create(m, dtype, n, n, 5);
    const plait_device_tile_t tile = {.op = PLAIT_TILE_HERK,
                                      .dtype = dtype,
                                      .m = n,
                                      .n = n,
                                      .k = k,
                                      .lda = a.ld,
                                      .ldc = c.ld,
                                      .alpha = -1,
                                      .beta = 1,
                                      .a = a.a.dev,
                                      .c = c.a.dev};
    double error = 0;

    run(m, &tile, "herk");
    array_get(m, &c.a);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double complex want = (i == j) ? creal(before(&c, i, j)) : before(&c, i, j);
            for (int64_t l = 0; l < k; l++) {
                want -= before(&a, i, l) * conj(before(&a, j, l));
            }
            error = fmax(error, cabs(now(&c, i, j) - want));
        }
    }
    judge(error, 4 * (double)k, dtype, "herk");
    check_kept(&c, true, "herk");
    array_destroy(m, &a.a);
    array_destroy(m, &c.a);
}

/* op(a)[i, j], reading the triangle alone. */
static double complex triangle_of(const matrix_t *a, const plait_device_tile_t *t,
                                  int64_t i, int64_t j)
{
    const int64_t row = (t->trans == 'N') ? i : j, column = (t->trans == 'N') ? j : i;
    const bool is_there = (t->uplo == 'L') ? row > column : row < column;

    return (i == j && t->diag == 'U') ? 1
           : (i == j || is_there)     ? op_of(a, t->trans, i, j)
                                      : 0;
}

/* op(a) x or x op(a), with the original or the present x. */
static double complex applied(const matrix_t *a, const plait_device_tile_t *t,
                              const matrix_t *x, bool is_now, int64_t i, int64_t j)
{
    const int64_t order = (t->side == 'L') ? t->m : t->n;
    double complex sum = 0;

    for (int64_t l = 0; l < order; l++) {
        const int64_t row = (t->side == 'L') ? l : i, column = (t->side == 'L') ? j : l;
        const double complex z = is_now ? now(x, row, column) : before(x, row, column);
        sum += (t->side == 'L') ? triangle_of(a, t, i, l) * z
                                : z * triangle_of(a, t, l, j);
    }
    return sum;
}

static void check_triangle(const machine_t *m, plait_device_tile_t tile)
{
    const bool is_solve = tile.op == PLAIT_TILE_TRSM;
    const int64_t order = (tile.side == 'L') ? tile.m : tile.n;
    matrix_t a = create(m, tile.dtype, order, order, 6);
    matrix_t c = create(m, tile.dtype, tile.m, tile.n, 7);
    double error = 0;

    for (int64_t i = 0; i < order; i++) { /* nothing is near to singular */
        for (int64_t j = 0; j < order; j++) {
            set(&a, i, j,
                (i == j) ? 2 + before(&a, i, j) : before(&a, i, j) / (double)order);
        }
    }
    set_all(m, &a);
    tile.lda = a.ld;
    tile.ldc = c.ld;
    tile.a = a.a.dev;
    tile.c = c.a.dev;
    run(m, &tile, is_solve ? "trsm" : "trmm");
    array_get(m, &c.a);
    for (int64_t j = 0; j < tile.n; j++) {
        for (int64_t i = 0; i < tile.m; i++) {
            const double complex got =
                is_solve ? applied(&a, &tile, &c, true, i, j) : now(&c, i, j);
            const double complex want =
                is_solve ? before(&c, i, j) : applied(&a, &tile, &c, false, i, j);
            error = fmax(error, cabs(got - want));
        }
    }
    judge(error, 20 * (double)order, tile.dtype, is_solve ? "trsm" : "trmm");
    check_kept(&c, false, is_solve ? "trsm" : "trmm");
    array_destroy(m, &a.a);
    array_destroy(m, &c.a);
}

static void test_cuda_tile_products(const machine_t *m)
{
    static const char letters[] = "NTC";

    for (int d = 0; d < 4; d++) {
        for (int i = 0; i < 18; i++) {
            check_gemm(m, dtypes[d], letters[i % 3], letters[i / 3 % 3], i / 9);
        }
        check_herk(m, dtypes[d]);
        for (int i = 0; i < 48; i++) {
            const plait_device_tile_t tile = {.op = (i / 24 == 0) ? PLAIT_TILE_TRSM
                                                                  : PLAIT_TILE_TRMM,
                                              .dtype = dtypes[d],
                                              .side = "LR"[i % 2],
                                              .uplo = "LU"[i / 2 % 2],
                                              .diag = "NU"[i / 4 % 2],
                                              .trans = letters[i / 8 % 3],
                                              .m = 10,
                                              .n = 6};
            check_triangle(m, tile);
        }
    }
}

/* ---- Own kernels ----------------------------------------------------------------------------- */

static bool is_alike(double complex a, double complex b)
{
    return a == b || (isnan(creal(a)) && isnan(creal(b)));
}

static void check_trim(const machine_t *m, plait_dtype_t dtype, int64_t n_rows,
                       int64_t n_columns, int64_t row, int64_t end, char diag,
                       bool in_place)
{
    matrix_t a = create(m, dtype, n_rows, n_columns, 13);
    matrix_t c = create(m, dtype, n_rows, n_columns, 14);
    const plait_device_tile_t tile = {.op = PLAIT_TILE_TRIM,
                                      .dtype = dtype,
                                      .diag = diag,
                                      .m = c.m,
                                      .n = c.n,
                                      .k = end,
                                      .row = row,
                                      .lda = a.ld,
                                      .ldc = c.ld,
                                      .a = in_place ? c.a.dev : a.a.dev,
                                      .c = c.a.dev};
    bool is_good = true;

    run(m, &tile, "trim");
    array_get(m, &c.a);
    for (int64_t j = 0; j < c.n; j++) {
        for (int64_t i = 0; i < c.m; i++) {
            double complex want = in_place ? before(&c, i, j) : before(&a, i, j);
            want = (i == row + j && diag == 'R') ? creal(want) : want;
            want = (i == row + j && diag == 'U') ? 1 : want;
            want = (i >= row + j && i < end) ? want : 0;
            is_good = is_good && now(&c, i, j) == want;
        }
    }
    CHECK(is_good, "trim %s from %lld to %lld", plait_dtype_name(dtype), (long long)row,
          (long long)end);
    check_kept(&c, false, "trim");
    array_destroy(m, &a.a);
    array_destroy(m, &c.a);
}

/* bad: an element of column 2 that is not finite; -1: none. */
static void check_outcome(const machine_t *m, plait_tile_op_t op, plait_dtype_t dtype,
                          int64_t row, int64_t bad, int32_t info_before)
{
    matrix_t c = create(m, dtype, 300, 5, 15);
    array_t info = word_create(m, info_before);
    const plait_device_tile_t tile = {.op = op,
                                      .dtype = dtype,
                                      .m = c.m,
                                      .n = c.n,
                                      .k = 77,
                                      .row = row,
                                      .ldc = c.ld,
                                      .c = c.a.dev,
                                      .info = (int32_t *)(void *)info.dev};
    const bool is_screen = op == PLAIT_TILE_SCREEN;
    const bool is_found = is_screen && bad >= 0 && bad >= row + 2;
    const double value = is_screen ? 0 : (double)NAN;
    bool is_good = true;

    if (bad >= 0) {
        set(&c, bad, 2, (bad % 2 == 0) ? (double)INFINITY : (double)NAN);
        set_all(m, &c);
    }
    run(m, &tile, is_screen ? "screen" : "spoil");
    array_get(m, &c.a);
    for (int64_t j = 0; j < c.n; j++) {
        for (int64_t i = 0; i < c.m; i++) {
            const bool is_changed =
                i >= row + j && (is_screen ? is_found : info_before != 0);
            is_good = is_good &&
                      is_alike(now(&c, i, j), is_changed ? value : before(&c, i, j));
        }
    }
    CHECK(is_good, "tile %d %s from %lld", (int)op, plait_dtype_name(dtype),
          (long long)row);
    CHECK(word_get(m, &info) == (is_found ? 77 : info_before), "tile %d: info %d",
          (int)op, word_get(m, &info));
    array_destroy(m, &c.a);
    array_destroy(m, &info);
}

/* bad, later: diagonal elements that are not finite; -1: none. Complex elements count by their real part. */
static void check_judged(const machine_t *m, plait_dtype_t dtype, int64_t bad,
                         int64_t later, int32_t info_before)
{
    matrix_t c = create(m, dtype, 600, 500, 16);
    array_t info = word_create(m, info_before);
    const plait_device_tile_t tile = {.op = PLAIT_TILE_JUDGE,
                                      .dtype = dtype,
                                      .m = c.m,
                                      .n = c.n,
                                      .row = 1000,
                                      .ldc = c.ld,
                                      .c = c.a.dev,
                                      .info = (int32_t *)(void *)info.dev};
    const int32_t want = (info_before != 0) ? info_before
                         : (bad >= 0)       ? (int32_t)(1001 + bad)
                                            : 0;

    set(&c, 3, 2, (double)NAN); /* beside the diagonal */
    if (bad >= 0) {
        set(&c, bad, bad, (bad % 2 == 0) ? (double)INFINITY : (double)NAN);
        set(&c, later, later, (double)NAN);
    }
    set_all(m, &c);
    run(m, &tile, "judge");
    CHECK(word_get(m, &info) == want, "judge %s: info %d, expected %d",
          plait_dtype_name(dtype), word_get(m, &info), want);
    array_destroy(m, &c.a);
    array_destroy(m, &info);
}

static void test_cuda_tile_kernels(const machine_t *m)
{
    for (int d = 0; d < 4; d++) {
        for (int i = 0; i < 12; i++) {
            check_trim(m, dtypes[d], 300, 7, (i % 2) ? 100 : 0, (i / 2 % 2) ? 250 : 300,
                       "RNU"[i / 4], i % 3 == 0);
        }
        check_trim(m, dtypes[d], 1, 700, -300, 1, 'N', false);
        check_trim(m, dtypes[d], 5, 200, -90, 4, 'U', true);
        check_trim(m, dtypes[d], 256, 3, 0, 256, 'R', false);
        check_trim(m, dtypes[d], 257, 3, -1, 257, 'U', false);
        check_trim(m, dtypes[d], 0, 3, 0, 0, 'N', false);
        for (int i = 0; i < 2; i++) {
            const int64_t row = (i == 0) ? 30 : -300;
            check_outcome(m, PLAIT_TILE_SPOIL, dtypes[d], row, -1, 0);
            check_outcome(m, PLAIT_TILE_SPOIL, dtypes[d], row, -1, 5);
            check_outcome(m, PLAIT_TILE_SCREEN, dtypes[d], row, -1, 0);
            check_outcome(m, PLAIT_TILE_SCREEN, dtypes[d], row, 290, 0);
            check_outcome(m, PLAIT_TILE_SCREEN, dtypes[d], row, 31, 0);
        }
        check_judged(m, dtypes[d], -1, -1, 0);
        check_judged(m, dtypes[d], 0, 499, 0);
        check_judged(m, dtypes[d], 257, 258, 0);
        check_judged(m, dtypes[d], 301, 400, 0);
        check_judged(m, dtypes[d], 499, 499, 0);
        check_judged(m, dtypes[d], 4, 4, 9);
    }
}

/* A product that was not planned, and a product with unaligned memory: a named error, and nothing is done. */
static void check_gemm_refusals(const machine_t *m)
{
    const plait_device_tile_t tile = {.op = PLAIT_TILE_GEMM,
                                      .dtype = PLAIT_F64,
                                      .trans = 'N',
                                      .trans_b = 'N',
                                      .m = 1,
                                      .n = 1,
                                      .k = 1,
                                      .lda = 1,
                                      .ldb = 1,
                                      .ldc = 1};
    int64_t n_work = 0;

    CHECK(m->call->tile(m->device, m->stream, &tile, NULL) == PLAIT_ERR_INTERNAL &&
              strstr(plait_error_text(), "not planned") != NULL,
          "%s", plait_error_text());
    good(m->call->tile_plan(m->device, &tile, &n_work), "gemm");
    array_t work = array_create(m, n_work + 8);
    CHECK(m->call->tile(m->device, m->stream, &tile, work.dev + 8) ==
                  PLAIT_ERR_TRANSPORT &&
              strstr(plait_error_text(),
                     "cuBLAS: setting the workspace: invalid value (7)") != NULL,
          "%s", plait_error_text());
    array_destroy(m, &work);
}

int main(int n_arguments, char **arguments)
{
    machine_t m = machine_of(n_arguments, arguments);

    if (!machine_open(&m)) {
        return SKIPPED;
    }
    if (m.is_host) { /* as the first one, and what a GPU says may differ */
        check_gemm_refusals(&m);
    }
    test_cuda_tile_products(&m);
    test_cuda_tile_kernels(&m);
    machine_close(&m);
    return report("test_cuda_tile");
}
