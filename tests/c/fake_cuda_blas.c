/* A stand-in of cuBLAS on the host. It checks its arguments as cuBLAS does, requires that its workspace is set
 * after the stream, and overwrites the workspace. */
#include "fake_cuda_matrix.h"

enum { NOT_INITIALIZED = 1, INVALID = 7, LEAST_WORK = 4 << 20, TOUCHED = 4096 };

struct plait_cublas {
    plait_cu_stream_t stream;
    void *work; /* NULL: the handle's own, of which plait makes no use */
};

int cublasCreate_v2(plait_cublas_t *blas)
{
    LOCKED;
    *blas = calloc(1, sizeof(**blas));
    return (*blas != NULL) ? 0 : 3;
}

int cublasDestroy_v2(plait_cublas_t blas)
{
    LOCKED;
    free(blas);
    return 0;
}

int cublasSetStream_v2(plait_cublas_t blas, plait_cu_stream_t stream)
{
    LOCKED;
    blas->stream = stream;
    blas->work = NULL;
    return 0;
}

int cublasSetWorkspace_v2(plait_cublas_t blas, void *work, size_t n_bytes)
{
    LOCKED;
    const bool is_good = (uintptr_t)work % 256 == 0 && n_bytes >= LEAST_WORK;

    blas->work = work;
    return is_good ? 0 : INVALID;
}

static int begin(plait_cublas_t blas, bool is_good)
{
    int result = is_good ? 0 : INVALID;

    if (blas == NULL || blas->work == NULL || blas->stream == NULL) {
        result = NOT_INITIALIZED;
    } else {
        memset(blas->work, 0xff, TOUCHED);
    }
    return result;
}

/* ---- gemm, herk ------------------------------------------------------------------------------ */

static int gemm(int type, plait_cublas_t blas, int trans_a, int trans_b, int64_t m,
                int64_t n, int64_t k, const void *alpha, const void *a, int64_t lda,
                const void *b, int64_t ldb, const void *beta, void *c, int64_t ldc)
{
    const bool is_good = is_operation(type, trans_a) && is_operation(type, trans_b) &&
                         is_leading(lda, (trans_a == PLAIT_CUBLAS_N) ? m : k) &&
                         is_leading(ldb, (trans_b == PLAIT_CUBLAS_N) ? k : n) &&
                         is_leading(ldc, m);
    const int result = begin(blas, is_good);
    const double complex x = get(type, alpha, 0), y = get(type, beta, 0);

    for (int64_t j = 0; result == 0 && j < n; j++) {
        for (int64_t i = 0; i < m; i++) {
            double complex sum = 0;
            for (int64_t l = 0; l < k; l++) {
                sum += get_op(type, a, lda, trans_a, i, l) *
                       get_op(type, b, ldb, trans_b, l, j);
            }
            sum *= x;
            put(type, c, j * ldc + i,
                (y != 0) ? sum + y * get(type, c, j * ldc + i) : sum);
        }
    }
    return result;
}

/* alpha and beta are real. */
static int herk(int type, plait_cublas_t blas, int uplo, int trans, int64_t n,
                int64_t k, const void *alpha, const void *a, int64_t lda,
                const void *beta, void *c, int64_t ldc)
{
    const int real = real_type(type);
    const double x = creal(get(real, alpha, 0)), y = creal(get(real, beta, 0));
    const int result =
        begin(blas, uplo == PLAIT_CUBLAS_LOWER && trans == PLAIT_CUBLAS_N &&
                        is_leading(lda, n) && is_leading(ldc, n));

    for (int64_t j = 0; result == 0 && j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double complex sum = 0;
            for (int64_t l = 0; l < k; l++) {
                sum += get(type, a, l * lda + i) * conj(get(type, a, l * lda + j));
            }
            sum = x * sum + ((y != 0) ? y * get(type, c, j * ldc + i) : 0);
            put(type, c, j * ldc + i, (i == j) ? creal(sum) : sum);
        }
    }
    return result;
}

/* ---- Triangles ------------------------------------------------------------------------------- */

typedef struct {
    int type, side, uplo, trans, diag;
    int64_t m, n, lda;
    const void *a;
} triangle_t;

static bool is_good_triangle(const triangle_t *t)
{
    return (t->side == PLAIT_CUBLAS_LEFT || t->side == PLAIT_CUBLAS_RIGHT) &&
           (t->uplo == PLAIT_CUBLAS_LOWER || t->uplo == PLAIT_CUBLAS_UPPER) &&
           (t->diag == PLAIT_CUBLAS_UNIT || t->diag == PLAIT_CUBLAS_NON_UNIT) &&
           is_operation(t->type, t->trans) &&
           is_leading(t->lda, (t->side == PLAIT_CUBLAS_LEFT) ? t->m : t->n);
}

/* The factor of a vector, which is a column of the matrix or with side RIGHT a row: op(a) or op(a)^T. Reads
 * only the triangle. */
static double complex factor(const triangle_t *t, int64_t i, int64_t j)
{
    const bool is_right = t->side == PLAIT_CUBLAS_RIGHT;
    const int64_t row = is_right ? j : i, column = is_right ? i : j;
    const bool is_stored = (t->uplo == PLAIT_CUBLAS_LOWER) ==
                           ((t->trans == PLAIT_CUBLAS_N) ? row > column : row < column);

    return (i == j && t->diag == PLAIT_CUBLAS_UNIT) ? 1
           : (i == j || is_stored)
               ? get_op(t->type, t->a, t->lda, t->trans, row, column)
               : 0;
}

/* Computes the elements of a column or row of x from each other. */
static void apply(const triangle_t *t, bool is_solve, const void *x, int64_t x_at,
                  int64_t x_step, void *y, int64_t y_at, int64_t y_step)
{
    const int64_t n = (t->side == PLAIT_CUBLAS_LEFT) ? t->m : t->n;
    const bool is_lower =
        (t->uplo == PLAIT_CUBLAS_LOWER) ==
        ((t->trans == PLAIT_CUBLAS_N) == (t->side == PLAIT_CUBLAS_LEFT));
    double complex *v = calloc((size_t)n, sizeof(*v));
    double complex *w = calloc((size_t)n, sizeof(*w));

    for (int64_t i = 0; i < n; i++) {
        v[i] = get(t->type, x, x_at + i * x_step);
    }
    for (int64_t s = 0; s < n; s++) {
        const int64_t i = is_lower ? s : n - 1 - s;
        double complex sum = is_solve ? v[i] : factor(t, i, i) * v[i];
        for (int64_t j = is_lower ? 0 : i + 1; j < (is_lower ? i : n); j++) {
            sum += is_solve ? -factor(t, i, j) * w[j] : factor(t, i, j) * v[j];
        }
        w[i] = is_solve ? sum / factor(t, i, i) : sum;
    }
    for (int64_t i = 0; i < n; i++) {
        put(t->type, y, y_at + i * y_step, w[i]);
    }
    free(v);
    free(w);
}

static int triangle(const triangle_t *t, plait_cublas_t blas, bool is_solve,
                    const void *alpha, const void *x, int64_t ldx, void *y, int64_t ldy)
{
    const bool is_left = t->side == PLAIT_CUBLAS_LEFT;
    const int result =
        begin(blas, is_good_triangle(t) && is_leading(ldx, t->m) &&
                        is_leading(ldy, t->m) && get(t->type, alpha, 0) == 1);

    for (int64_t i = 0; result == 0 && i < (is_left ? t->n : t->m); i++) {
        apply(t, is_solve, x, is_left ? i * ldx : i, is_left ? 1 : ldx, y,
              is_left ? i * ldy : i, is_left ? 1 : ldy);
    }
    return result;
}

/* ---- By dtype -------------------------------------------------------------------------------- */

#define OF_DTYPE(_letter, _herk, _type)                                               \
    int cublas##_letter##gemm_v2_64(                                                  \
        plait_cublas_t blas, int trans_a, int trans_b, int64_t m, int64_t n,          \
        int64_t k, const void *alpha, const void *a, int64_t lda, const void *b,      \
        int64_t ldb, const void *beta, void *c, int64_t ldc)                          \
    {                                                                                 \
        return gemm(_type, blas, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb,    \
                    beta, c, ldc);                                                    \
    }                                                                                 \
    int cublas##_letter##_herk##_v2_64(plait_cublas_t blas, int uplo, int trans,      \
                                       int64_t n, int64_t k, const void *alpha,       \
                                       const void *a, int64_t lda, const void *beta,  \
                                       void *c, int64_t ldc)                          \
    {                                                                                 \
        return herk(_type, blas, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);     \
    }                                                                                 \
    int cublas##_letter##trsm_v2_64(plait_cublas_t blas, int side, int uplo,          \
                                    int trans, int diag, int64_t m, int64_t n,        \
                                    const void *alpha, const void *a, int64_t lda,    \
                                    void *b, int64_t ldb)                             \
    {                                                                                 \
        const triangle_t t = {_type, side, uplo, trans, diag, m, n, lda, a};          \
                                                                                      \
        return triangle(&t, blas, true, alpha, b, ldb, b, ldb);                       \
    }                                                                                 \
    int cublas##_letter##trmm_v2_64(plait_cublas_t blas, int side, int uplo,          \
                                    int trans, int diag, int64_t m, int64_t n,        \
                                    const void *alpha, const void *a, int64_t lda,    \
                                    const void *b, int64_t ldb, void *c, int64_t ldc) \
    {                                                                                 \
        const triangle_t t = {_type, side, uplo, trans, diag, m, n, lda, a};          \
                                                                                      \
        return triangle(&t, blas, false, alpha, b, ldb, c, ldc);                      \
    }

OF_DTYPE(S, syrk, PLAIT_CUDA_R_32F)
OF_DTYPE(D, syrk, PLAIT_CUDA_R_64F)
OF_DTYPE(C, herk, PLAIT_CUDA_C_32F)
OF_DTYPE(Z, herk, PLAIT_CUDA_C_64F)
