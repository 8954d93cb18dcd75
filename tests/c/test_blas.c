/* The table of BLAS and LAPACK functions as a C program has it: filled from whatever library is
 * there, called from several threads, emptied, refused. Without a library: skipped, with the
 * reason. The functions themselves, all of them: tests/python/test_blas.py. */
#include "elements.h"
#include "kernel/blas.h"

#include <pthread.h>
#include <string.h>

enum { MAX_N = 70, N_THREADS = 3, SKIPPED = 77 };

typedef struct {
    plait_dtype_t dtype;
    int64_t n;
} problem_t;

static const char *text(const problem_t *p)
{
    static _Thread_local char line[80];

    snprintf(line, sizeof line, "blas %s n %lld", plait_dtype_name(p->dtype),
             (long long)p->n);
    return line;
}

/* Hermitian, with a diagonal that makes it positive definite; exact in float. */
static double complex element(int64_t n, int64_t i, int64_t j)
{
    int64_t low = (i < j) ? i : j, high = (i < j) ? j : i;
    double complex value = element_sample(PLAIT_C128, 1, low * n + high);

    return (i == j) ? (double)n : (i < j) ? value : conj(value);
}

static void fill(const problem_t *p, void *a)
{
    for (int64_t j = 0; j < p->n; j++) {
        for (int64_t i = 0; i < p->n; i++) {
            plait_scalar_put(p->dtype, a, j * p->n + i, element(p->n, i, j));
        }
    }
}

/* Largest error of one triangle of l l^H against a. */
static double residual(const problem_t *p, const void *l, const void *a)
{
    double worst = 0;

    for (int64_t j = 0; j < p->n; j++) {
        for (int64_t i = j; i < p->n; i++) {
            double complex sum = -plait_scalar_get(p->dtype, a, j * p->n + i);
            for (int64_t k = 0; k <= j; k++) {
                sum += plait_scalar_get(p->dtype, l, k * p->n + i) *
                       conj(plait_scalar_get(p->dtype, l, k * p->n + j));
            }
            worst = fmax(worst, cabs(sum));
        }
    }
    return worst;
}

/* A Cholesky factor, the solution of the system by trsm with it, and the residual by gemm. */
static void check_solve(const problem_t *p)
{
    const int64_t n = p->n, bytes = plait_dtype_bytes(p->dtype);
    const double bound = 10 * (double)(n * n) * element_unit(p->dtype);
    char *memory = plait_alloc_aligned((3 * n * n + 2 * n) * bytes);
    char *a = memory, *l = a + n * n * bytes, *r = l + n * n * bytes;
    char *x = r + n * n * bytes, *b = x + n * bytes;
    double worst = 0;

    fill(p, a);
    memcpy(l, a, (size_t)(n * n * bytes));
    CHECK(plait_blas_potrf(p->dtype, 'L', n, l, n) == 0, "%s", text(p));
    CHECK(residual(p, l, a) <= bound, "%s", text(p));
    for (int64_t i = 0; i < n; i++) {
        plait_scalar_put(p->dtype, b, i, 1);
    }
    memcpy(x, b, (size_t)(n * bytes));
    plait_blas_trsm(p->dtype, 'L', 'L', 'N', 'N', n, 1, 1, l, n, x, n);
    plait_blas_trsm(p->dtype, 'L', 'L', 'C', 'N', n, 1, 1, l, n, x, n);
    plait_blas_gemm(p->dtype, 'N', 'N', n, 1, n, -1, a, n, x, n, 1, b, n);
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, cabs(plait_scalar_get(p->dtype, b, i)));
    }
    CHECK(worst <= bound, "%s: residual %g", text(p), worst);
    memcpy(l, a, (size_t)(n * n * bytes));
    plait_scalar_put(p->dtype, l, (n / 2) * (n + 1), -1);
    CHECK(plait_blas_potrf(p->dtype, 'L', n, l, n) == n / 2 + 1, "%s", text(p));
    plait_free(memory);
}

/* LU with its pivots: p a = l u, checked row by row. */
static void check_lu(const problem_t *p)
{
    const int64_t n = p->n, bytes = plait_dtype_bytes(p->dtype);
    const double bound = 10 * (double)(n * n) * element_unit(p->dtype);
    char *memory = plait_alloc_aligned(2 * n * n * bytes);
    char *a = memory, *f = a + n * n * bytes;
    int64_t pivot[MAX_N + 1];
    double worst = 0;

    fill(p, a);
    plait_scalar_put(p->dtype, a, 0, 0); /* there is something to exchange */
    memcpy(f, a, (size_t)(n * n * bytes));
    pivot[n] = -7;
    CHECK(plait_blas_getrf(p->dtype, n, n, f, n, pivot) == (n == 1), "%s", text(p));
    CHECK(pivot[n] == -7 && pivot[0] >= 1 && pivot[0] <= n && (n == 1 || pivot[0] > 1),
          "%s: %lld", text(p), (long long)pivot[0]);
    plait_blas_laswp(p->dtype, n, a, n, n, pivot, false);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n; i++) {
            double complex sum = -plait_scalar_get(p->dtype, a, j * n + i);
            for (int64_t k = 0; k <= j && k <= i; k++) {
                sum += ((k == i) ? 1 : plait_scalar_get(p->dtype, f, k * n + i)) *
                       plait_scalar_get(p->dtype, f, j * n + k);
            }
            worst = fmax(worst, cabs(sum));
        }
    }
    CHECK(worst <= bound, "%s: error %g", text(p), worst);
    plait_free(memory);
}

static void check_all(void)
{
    static const plait_dtype_t dtypes[] = {PLAIT_F32, PLAIT_F64, PLAIT_C64, PLAIT_C128};
    static const int64_t sizes[] = {1, 2, 17, MAX_N};

    for (int d = 0; d < 4; d++) {
        for (int s = 0; s < 4; s++) {
            problem_t p = {dtypes[d], sizes[s]};
            check_solve(&p);
            check_lu(&p);
        }
    }
}

static void *caller(void *unused)
{
    CHECK(plait_blas_require() == PLAIT_OK, "a thread");
    plait_blas_enter();
    CHECK(plait_blas_n_threads() <= 1, "%d threads inside", plait_blas_n_threads());
    check_all();
    plait_blas_leave();
    return unused;
}

/* All threads start at once, and the first fills the table; the library's thread count stays as it was. */
static void check_threads(void)
{
    pthread_t threads[N_THREADS];
    int n_before = plait_blas_n_threads();

    plait_blas_clear();
    CHECK(!plait_blas_is_complete() && plait_blas_int_bytes() == 0, "after clear");
    for (int t = 0; t < N_THREADS; t++) {
        CHECK(pthread_create(&threads[t], NULL, caller, NULL) == 0, "thread %d", t);
    }
    for (int t = 0; t < N_THREADS; t++) {
        pthread_join(threads[t], NULL);
    }
    CHECK(plait_blas_n_threads() == n_before, "%d threads, before %d",
          plait_blas_n_threads(), n_before);
}

static void check_table(void)
{
    const int n = plait_blas_count();

    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            CHECK(strcmp(plait_blas_name(i), plait_blas_name(j)) != 0, "%s twice",
                  plait_blas_name(i));
        }
    }
    CHECK(plait_blas_name(n) == NULL && plait_blas_name(-1) == NULL, "outside");
    CHECK(plait_blas_find(PLAIT_BLAS_GEMM, PLAIT_S32) == NULL, "gemm of integers");
}

static void check_refusals(void)
{
    int x = 0;

    check_refused(plait_blas_fill("dgemm", &x), PLAIT_ERR_INVALID, "too late");
    plait_blas_clear();
    check_refused(plait_blas_fill("qgemm", &x), PLAIT_ERR_INVALID,
                  "no function is called qgemm");
    check_refused(plait_blas_fill("dgemm", NULL), PLAIT_ERR_INVALID, "dgemm is NULL");
    check_refused(plait_blas_load(""), PLAIT_ERR_INVALID, "path of the library is NULL or empty");
    check_refused(plait_blas_load("/nowhere/libblas.so"), PLAIT_ERR_UNSUPPORTED,
                  "/nowhere/libblas.so");
    check_refused(plait_blas_load("libm.so.6"), PLAIT_ERR_UNSUPPORTED,
                  "libm.so.6 has no sgemm");
    setenv("PLAIT_BLAS", FAKES_DIR "/libsilent_blas.so", 1);
    for (int time = 0; time < 2; time++) { /* nothing of it is left after the first */
        check_refused(plait_blas_require(), PLAIT_ERR_UNSUPPORTED,
                      "dpotrf of a matrix without rows");
        CHECK(plait_blas_find(PLAIT_BLAS_POTRF, PLAIT_F64) == NULL,
              "a pointer is left");
    }
    setenv("PLAIT_BLAS", "libm.so.6:/nowhere/liblapack.so", 1);
    check_refused(plait_blas_require(), PLAIT_ERR_UNSUPPORTED, "where PLAIT_BLAS says");
    CHECK(!plait_blas_is_complete(), "after refusals");
}

int main(void)
{
    check_table();
    if (plait_blas_require() != PLAIT_OK) {
        printf("test_blas: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    printf("test_blas: %s, core '%s', integers of %d bytes\n", plait_blas_library(),
           plait_blas_core(), plait_blas_int_bytes());
    check_all();
    check_threads();
    CHECK(plait_blas_fits(INT32_MAX) == PLAIT_OK, "31 bits");
    CHECK((plait_blas_fits(INT64_C(1) << 31) == PLAIT_OK) ==
              (plait_blas_int_bytes() == 8),
          "32 bits");
    check_refusals();
    return report("test_blas");
}
