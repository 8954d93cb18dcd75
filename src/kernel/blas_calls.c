/* The table's functions, called with C arguments. */
#include "kernel/blas.h"
#include "kernel/subnormal.h"

#include <stddef.h>
#include <string.h>

/* Types of Fortran's arguments: strings, integers, arrays that are read, arrays that are written; and, behind
 * these, the lengths of strings. */
typedef const char *chr_t;
typedef const int64_t *num_t;
typedef const void *in_t;
typedef void *out_t;
typedef size_t len_t;

enum { N_PIVOTS = 256 };

/* A real number that can be read as any of the four dtypes, and as the real ones. */
typedef union {
    float f[2];
    double d[2];
} scalar_t;

static bool is_single(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_C64;
}

static bool is_complex(plait_dtype_t dtype)
{
    return dtype == PLAIT_C64 || dtype == PLAIT_C128;
}

static scalar_t scalar(plait_dtype_t dtype, double value)
{
    scalar_t s = {.d = {0, 0}};

    if (is_single(dtype)) {
        s.f[0] = (float)value;
    } else {
        s.d[0] = value;
    }
    return s;
}

/* LAPACK's letter for the adjoint of this dtype. */
static char adjoint(plait_dtype_t dtype, char trans)
{
    char ta = trans;

    if (trans == 'C' && !is_complex(dtype)) {
        ta = 'T';
    }
    return ta;
}

/* Value of an output of which the library wrote 4 or 8 bytes; all were zero before. */
static int64_t low(int64_t value)
{
    return (int32_t)value;
}

/* A size that was returned as a floating-point number, perhaps rounded down. */
static int64_t size_of(plait_dtype_t dtype, const scalar_t *s)
{
    const double single_ulp = 0x1p-23;
    double n = is_single(dtype) ? (double)s->f[0] : s->d[0];

    n = (is_single(dtype) && n > 0x1p24) ? n * (1 + single_ulp) : n;
    return (int64_t)n + ((double)(int64_t)n < n);
}

/* A function of the table, with these types. */
#define RETURNING(_type, _op, _dtype, ...) \
    ((_type(*)(__VA_ARGS__))plait_blas_find(PLAIT_BLAS_##_op, (_dtype)))
#define FUNCTION(_op, _dtype, ...) RETURNING(void, _op, _dtype, __VA_ARGS__)

/* NOLINTBEGIN(readability-function-size): the standard says how many arguments there are. */

/* ---- BLAS ----------------------------------------------------------------------------------- */

void plait_blas_gemm(plait_dtype_t dtype, char trans_a, char trans_b, int64_t m,
                     int64_t n, int64_t k, double alpha, const void *a, int64_t lda,
                     const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    const scalar_t s = scalar(dtype, alpha), t = scalar(dtype, beta);
    const char ta = adjoint(dtype, trans_a), tb = adjoint(dtype, trans_b);

    FUNCTION(GEMM, dtype, chr_t, chr_t, num_t, num_t, num_t, in_t, in_t, num_t, in_t,
             num_t, in_t, out_t, num_t, len_t, len_t)
    (&ta, &tb, &m, &n, &k, &s, a, &lda, b, &ldb, &t, c, &ldc, 1, 1);
}

void plait_blas_herk(plait_dtype_t dtype, char uplo, char trans, int64_t n, int64_t k,
                     double alpha, const void *a, int64_t lda, double beta, void *c,
                     int64_t ldc)
{
    const scalar_t s = scalar(dtype, alpha), t = scalar(dtype, beta);
    const char ta = adjoint(dtype, trans);

    FUNCTION(HERK, dtype, chr_t, chr_t, num_t, num_t, in_t, in_t, num_t, in_t, out_t,
             num_t, len_t, len_t)
    (&uplo, &ta, &n, &k, &s, a, &lda, &t, c, &ldc, 1, 1);
}

void plait_blas_her2k(plait_dtype_t dtype, char uplo, char trans, int64_t n, int64_t k,
                      double alpha, const void *a, int64_t lda, const void *b,
                      int64_t ldb, double beta, void *c, int64_t ldc)
{
    const scalar_t s = scalar(dtype, alpha), t = scalar(dtype, beta);
    const char ta = adjoint(dtype, trans);

    FUNCTION(HER2K, dtype, chr_t, chr_t, num_t, num_t, in_t, in_t, num_t, in_t, num_t,
             in_t, out_t, num_t, len_t, len_t)
    (&uplo, &ta, &n, &k, &s, a, &lda, b, &ldb, &t, c, &ldc, 1, 1);
}

void plait_blas_hemm(plait_dtype_t dtype, char side, char uplo, int64_t m, int64_t n,
                     double alpha, const void *a, int64_t lda, const void *b,
                     int64_t ldb, double beta, void *c, int64_t ldc)
{
    const scalar_t s = scalar(dtype, alpha), t = scalar(dtype, beta);

    FUNCTION(HEMM, dtype, chr_t, chr_t, num_t, num_t, in_t, in_t, num_t, in_t, num_t,
             in_t, out_t, num_t, len_t, len_t)
    (&side, &uplo, &m, &n, &s, a, &lda, b, &ldb, &t, c, &ldc, 1, 1);
}

/* trsm and trmm have the same arguments. */
static void triangular(plait_blas_fn_t function, plait_dtype_t dtype, const char how[4],
                       int64_t m, int64_t n, double alpha, const void *a, int64_t lda,
                       void *b, int64_t ldb)
{
    const scalar_t s = scalar(dtype, alpha);
    const char ta = adjoint(dtype, how[2]);

    ((void (*)(chr_t, chr_t, chr_t, chr_t, num_t, num_t, in_t, in_t, num_t, out_t,
               num_t, len_t, len_t, len_t, len_t))function)(
        &how[0], &how[1], &ta, &how[3], &m, &n, &s, a, &lda, b, &ldb, 1, 1, 1, 1);
}

void plait_blas_trsm(plait_dtype_t dtype, char side, char uplo, char trans, char diag,
                     int64_t m, int64_t n, double alpha, const void *a, int64_t lda,
                     void *b, int64_t ldb)
{
    const char how[4] = {side, uplo, trans, diag};

    triangular(plait_blas_find(PLAIT_BLAS_TRSM, dtype), dtype, how, m, n, alpha, a, lda,
               b, ldb);
}

void plait_blas_trmm(plait_dtype_t dtype, char side, char uplo, char trans, char diag,
                     int64_t m, int64_t n, double alpha, const void *a, int64_t lda,
                     void *b, int64_t ldb)
{
    const char how[4] = {side, uplo, trans, diag};

    triangular(plait_blas_find(PLAIT_BLAS_TRMM, dtype), dtype, how, m, n, alpha, a, lda,
               b, ldb);
}

void plait_blas_gemv(plait_dtype_t dtype, char trans, int64_t m, int64_t n,
                     double alpha, const void *a, int64_t lda, const void *x,
                     int64_t incx, double beta, void *y, int64_t incy)
{
    const scalar_t s = scalar(dtype, alpha), t = scalar(dtype, beta);
    const char ta = adjoint(dtype, trans);

    FUNCTION(GEMV, dtype, chr_t, num_t, num_t, in_t, in_t, num_t, in_t, num_t, in_t,
             out_t, num_t, len_t)
    (&ta, &m, &n, &s, a, &lda, x, &incx, &t, y, &incy, 1);
}

void plait_blas_hemv(plait_dtype_t dtype, char uplo, int64_t n, double alpha,
                     const void *a, int64_t lda, const void *x, int64_t incx,
                     double beta, void *y, int64_t incy)
{
    const scalar_t s = scalar(dtype, alpha), t = scalar(dtype, beta);

    FUNCTION(HEMV, dtype, chr_t, num_t, in_t, in_t, num_t, in_t, num_t, in_t, out_t,
             num_t, len_t)
    (&uplo, &n, &s, a, &lda, x, &incx, &t, y, &incy, 1);
}

void plait_blas_trmv(plait_dtype_t dtype, char uplo, char trans, char diag, int64_t n,
                     const void *a, int64_t lda, void *x, int64_t incx)
{
    const char ta = adjoint(dtype, trans);

    FUNCTION(TRMV, dtype, chr_t, chr_t, chr_t, num_t, in_t, num_t, out_t, num_t, len_t,
             len_t, len_t)
    (&uplo, &ta, &diag, &n, a, &lda, x, &incx, 1, 1, 1);
}

void plait_blas_ger(plait_dtype_t dtype, int64_t m, int64_t n, double alpha,
                    const void *x, int64_t incx, const void *y, int64_t incy, void *a,
                    int64_t lda)
{
    const scalar_t s = scalar(dtype, alpha);

    FUNCTION(GER, dtype, num_t, num_t, in_t, in_t, num_t, in_t, num_t, out_t, num_t)
    (&m, &n, &s, x, &incx, y, &incy, a, &lda);
}

/* ---- Factorisations --------------------------------------------------------------------------- */

int64_t plait_blas_potrf(plait_dtype_t dtype, char uplo, int64_t n, void *a,
                         int64_t lda)
{
    int64_t info = 0;

    FUNCTION(POTRF, dtype, chr_t, num_t, out_t, num_t, out_t, len_t)
    (&uplo, &n, a, &lda, &info, 1);
    return low(info);
}

int64_t plait_blas_trtri(plait_dtype_t dtype, char uplo, char diag, int64_t n, void *a,
                         int64_t lda)
{
    int64_t info = 0;

    FUNCTION(TRTRI, dtype, chr_t, chr_t, num_t, out_t, num_t, out_t, len_t, len_t)
    (&uplo, &diag, &n, a, &lda, &info, 1, 1);
    return low(info);
}

int64_t plait_blas_lauum(plait_dtype_t dtype, char uplo, int64_t n, void *a,
                         int64_t lda)
{
    int64_t info = 0;

    FUNCTION(LAUUM, dtype, chr_t, num_t, out_t, num_t, out_t, len_t)
    (&uplo, &n, a, &lda, &info, 1);
    return low(info);
}

int64_t plait_blas_getrf(plait_dtype_t dtype, int64_t m, int64_t n, void *a,
                         int64_t lda, int64_t pivot[])
{
    int64_t info = 0;

    FUNCTION(GETRF, dtype, num_t, num_t, out_t, num_t, out_t, out_t)
    (&m, &n, a, &lda, pivot, &info);
    if (plait_blas_int_bytes() == 4) { /* from the end: each moves over those moved */
        for (int64_t i = ((m < n) ? m : n) - 1; i >= 0; i--) {
            int32_t row = 0;
            memcpy(&row, (const char *)pivot + 4 * i, sizeof(row));
            pivot[i] = row;
        }
    }
    return low(info);
}

/* Works in stretches, whose pivots are copied to the library's type of integers: pivot[] is only read. */
void plait_blas_laswp(plait_dtype_t dtype, int64_t n, void *a, int64_t lda,
                      int64_t n_pivots, const int64_t pivot[], bool is_inverse)
{
    const int64_t n_stretches = (n_pivots + N_PIVOTS - 1) / N_PIVOTS;
    const int64_t item_bytes = plait_dtype_bytes(dtype), one = 1;
    const int64_t step = is_inverse ? -1 : 1;
    const bool is_short = (plait_blas_int_bytes() == 4);
    int64_t long_rows[N_PIVOTS];
    int32_t short_rows[N_PIVOTS];

    for (int64_t i = 0; i < n_stretches; i++) {
        int64_t first = N_PIVOTS * (is_inverse ? n_stretches - 1 - i : i);
        int64_t many = (n_pivots - first < N_PIVOTS) ? n_pivots - first : N_PIVOTS;
        for (int64_t j = 0; j < many; j++) {
            long_rows[j] = pivot[first + j] - first;
            short_rows[j] = (int32_t)long_rows[j]; /* plait_blas_fits checked this */
        }
        FUNCTION(LASWP, dtype, num_t, out_t, num_t, num_t, num_t, in_t, num_t)
        (&n, (char *)a + first * item_bytes, &lda, &one, &many,
         is_short ? (const void *)short_rows : (const void *)long_rows, &step);
    }
}

void plait_blas_getrs(plait_dtype_t dtype, char trans, int64_t n, int64_t n_rhs,
                      const void *a, int64_t lda, const int64_t pivot[], void *b,
                      int64_t ldb)
{
    if (trans == 'N') {
        plait_blas_laswp(dtype, n_rhs, b, ldb, n, pivot, false);
        plait_blas_trsm(dtype, 'L', 'L', 'N', 'U', n, n_rhs, 1, a, lda, b, ldb);
        plait_blas_trsm(dtype, 'L', 'U', 'N', 'N', n, n_rhs, 1, a, lda, b, ldb);
    } else {
        plait_blas_trsm(dtype, 'L', 'U', trans, 'N', n, n_rhs, 1, a, lda, b, ldb);
        plait_blas_trsm(dtype, 'L', 'L', trans, 'U', n, n_rhs, 1, a, lda, b, ldb);
        plait_blas_laswp(dtype, n_rhs, b, ldb, n, pivot, true);
    }
}

/* ---- Orthogonal matrices -------------------------------------------------------------------- */

/* The workspace of a function that writes the size it wants to `size`. */
static void *work_of(const plait_blas_work_t *work, scalar_t *size)
{
    return (work->n < 0) ? (void *)size : work->work;
}

static void keep_size(plait_dtype_t dtype, const scalar_t *size,
                      plait_blas_work_t *work)
{
    if (work->n < 0) {
        work->n = size_of(dtype, size);
    }
}

int64_t plait_blas_geqrf(plait_dtype_t dtype, int64_t m, int64_t n, void *a,
                         int64_t lda, void *tau, plait_blas_work_t *work)
{
    scalar_t size = {.d = {0, 0}};
    int64_t info = 0;

    FUNCTION(GEQRF, dtype, num_t, num_t, out_t, num_t, out_t, out_t, num_t, out_t)
    (&m, &n, a, &lda, tau, work_of(work, &size), &work->n, &info);
    keep_size(dtype, &size, work);
    return low(info);
}

int64_t plait_blas_orgqr(plait_dtype_t dtype, int64_t m, int64_t n, int64_t k, void *a,
                         int64_t lda, const void *tau, plait_blas_work_t *work)
{
    scalar_t size = {.d = {0, 0}};
    int64_t info = 0;

    FUNCTION(ORGQR, dtype, num_t, num_t, num_t, out_t, num_t, in_t, out_t, num_t, out_t)
    (&m, &n, &k, a, &lda, tau, work_of(work, &size), &work->n, &info);
    keep_size(dtype, &size, work);
    return low(info);
}

int64_t plait_blas_ormqr(plait_dtype_t dtype, char side, char trans, int64_t m,
                         int64_t n, int64_t k, const void *a, int64_t lda,
                         const void *tau, void *c, int64_t ldc, plait_blas_work_t *work)
{
    const char ta = adjoint(dtype, trans);
    scalar_t size = {.d = {0, 0}};
    int64_t info = 0;

    FUNCTION(ORMQR, dtype, chr_t, chr_t, num_t, num_t, num_t, in_t, num_t, in_t, out_t,
             num_t, out_t, num_t, out_t, len_t, len_t)
    (&side, &ta, &m, &n, &k, a, &lda, tau, c, &ldc, work_of(work, &size), &work->n,
     &info, 1, 1);
    keep_size(dtype, &size, work);
    return low(info);
}

void plait_blas_larfg(plait_dtype_t dtype, int64_t n, void *alpha, void *x,
                      int64_t incx, void *tau)
{
    FUNCTION(LARFG, dtype, num_t, out_t, out_t, num_t, out_t)
    (&n, alpha, x, &incx, tau);
}

void plait_blas_larft(plait_dtype_t dtype, int64_t n, int64_t k, const void *v,
                      int64_t ldv, const void *tau, void *t, int64_t ldt)
{
    FUNCTION(LARFT, dtype, chr_t, chr_t, num_t, num_t, in_t, num_t, in_t, out_t, num_t,
             len_t, len_t)
    ("F", "C", &n, &k, v, &ldv, tau, t, &ldt, 1, 1);
}

void plait_blas_larfb(plait_dtype_t dtype, char side, char trans, int64_t m, int64_t n,
                      int64_t k, const void *v, int64_t ldv, const void *t, int64_t ldt,
                      void *c, int64_t ldc, void *work)
{
    const char ta = adjoint(dtype, trans);
    const int64_t ldwork = (side == 'L') ? n : m;

    FUNCTION(LARFB, dtype, chr_t, chr_t, chr_t, chr_t, num_t, num_t, num_t, in_t, num_t,
             in_t, num_t, out_t, num_t, out_t, num_t, len_t, len_t, len_t, len_t)
    (&side, &ta, "F", "C", &m, &n, &k, v, &ldv, t, &ldt, c, &ldc, work, &ldwork, 1, 1,
     1, 1);
}

/* ---- Spectra -------------------------------------------------------------------------------- */

/* For functions with three workspaces: `size` has the sizes that they want of the first two. */
static void keep_sizes(plait_dtype_t dtype, const scalar_t size[2], int64_t n_ints,
                       plait_blas_work_t *work)
{
    if (work->n < 0) {
        work->n = size_of(dtype, &size[0]);
        work->n_real = size_of(dtype, &size[1]);
        work->n_ints = low(n_ints);
    }
}

int64_t plait_blas_heevd(plait_dtype_t dtype, char jobz, char uplo, int64_t n, void *a,
                         int64_t lda, void *w, plait_blas_work_t *work)
{
    const bool is_query = (work->n < 0);
    const int64_t n_real = is_query ? -1 : work->n_real;
    const int64_t n_ints = is_query ? -1 : work->n_ints;
    scalar_t size[2] = {{.d = {0, 0}}, {.d = {0, 0}}};
    int64_t want = 0, info = 0;
    void *first = work_of(work, &size[0]);
    void *real = is_query ? (void *)&size[1] : work->real;
    void *ints = is_query ? (void *)&want : work->ints;
    const uint64_t was = plait_subnormal_flush(); /* for sterf */

    if (is_complex(dtype)) {
        FUNCTION(HEEVD, dtype, chr_t, chr_t, num_t, out_t, num_t, out_t, out_t, num_t,
                 out_t, num_t, out_t, num_t, out_t, len_t, len_t)
        (&jobz, &uplo, &n, a, &lda, w, first, &work->n, real, &n_real, ints, &n_ints,
         &info, 1, 1);
    } else {
        FUNCTION(HEEVD, dtype, chr_t, chr_t, num_t, out_t, num_t, out_t, out_t, num_t,
                 out_t, num_t, out_t, len_t, len_t)
        (&jobz, &uplo, &n, a, &lda, w, first, &work->n, ints, &n_ints, &info, 1, 1);
    }
    plait_subnormal_restore(was);
    keep_sizes(dtype, size, want, work);
    return low(info);
}

int64_t plait_blas_stedc(plait_dtype_t dtype, char compz, int64_t n, void *d, void *e,
                         void *z, int64_t ldz, plait_blas_work_t *work)
{
    const bool is_query = (work->n < 0);
    const int64_t n_real = is_query ? -1 : work->n_real;
    const int64_t n_ints = is_query ? -1 : work->n_ints;
    scalar_t size[2] = {{.d = {0, 0}}, {.d = {0, 0}}};
    int64_t want = 0, info = 0;
    void *first = work_of(work, &size[0]);
    void *real = is_query ? (void *)&size[1] : work->real;
    void *ints = is_query ? (void *)&want : work->ints;
    const uint64_t was = plait_subnormal_flush(); /* for sterf */

    if (is_complex(dtype)) {
        FUNCTION(STEDC, dtype, chr_t, num_t, out_t, out_t, out_t, num_t, out_t, num_t,
                 out_t, num_t, out_t, num_t, out_t, len_t)
        (&compz, &n, d, e, z, &ldz, first, &work->n, real, &n_real, ints, &n_ints,
         &info, 1);
    } else {
        FUNCTION(STEDC, dtype, chr_t, num_t, out_t, out_t, out_t, num_t, out_t, num_t,
                 out_t, num_t, out_t, len_t)
        (&compz, &n, d, e, z, &ldz, first, &work->n, ints, &n_ints, &info, 1);
    }
    plait_subnormal_restore(was);
    keep_sizes(dtype, size, want, work);
    return low(info);
}

int64_t plait_blas_stemr(plait_dtype_t dtype, int64_t n, void *d, void *e,
                         int64_t first, int64_t last, int64_t *n_found_p, void *w,
                         void *z, int64_t ldz, plait_blas_work_t *work)
{
    const scalar_t none = {.d = {0, 0}};
    const int64_t lower = first + 1, upper = last + 1, n_vectors = last - first + 1;
    const char jobz = (z != NULL) ? 'V' : 'N';
    const int64_t n_real = 18 * n + 1, n_ints = 10 * n + 1;
    int64_t info = 0, n_found = 0, is_accurate = 1;

    if (work->n < 0) { /* sizes are known; the supports of the vectors come last */
        *work = (plait_blas_work_t){.n_real = n_real, .n_ints = n_ints + 2 * n};
    } else {
        FUNCTION(STEMR, dtype, chr_t, chr_t, num_t, out_t, out_t, in_t, in_t, num_t,
                 num_t, out_t, out_t, out_t, num_t, num_t, out_t, out_t, out_t, num_t,
                 out_t, num_t, out_t, len_t, len_t)
        (&jobz, "I", &n, d, e, &none, &none, &lower, &upper, &n_found, w, z, &ldz,
         &n_vectors, (char *)work->ints + 8 * n_ints, &is_accurate, work->real, &n_real,
         work->ints, &n_ints, &info, 1, 1);
        *n_found_p = low(n_found);
    }
    return low(info);
}

int64_t plait_blas_gesvd(plait_dtype_t dtype, char jobu, char jobvh, int64_t m,
                         int64_t n, void *a, int64_t lda, void *s, void *u, int64_t ldu,
                         void *vh, int64_t ldvh, plait_blas_work_t *work)
{
    const bool is_query = (work->n < 0);
    scalar_t size = {.d = {0, 0}};
    int64_t info = 0;
    void *first = work_of(work, &size);

    if (is_complex(dtype)) {
        FUNCTION(GESVD, dtype, chr_t, chr_t, num_t, num_t, out_t, num_t, out_t, out_t,
                 num_t, out_t, num_t, out_t, num_t, out_t, out_t, len_t, len_t)
        (&jobu, &jobvh, &m, &n, a, &lda, s, u, &ldu, vh, &ldvh, first, &work->n,
         work->real, &info, 1, 1);
    } else {
        FUNCTION(GESVD, dtype, chr_t, chr_t, num_t, num_t, out_t, num_t, out_t, out_t,
                 num_t, out_t, num_t, out_t, num_t, out_t, len_t, len_t)
        (&jobu, &jobvh, &m, &n, a, &lda, s, u, &ldu, vh, &ldvh, first, &work->n, &info,
         1, 1);
    }
    if (is_query) {
        work->n_real = is_complex(dtype) ? 5 * ((m < n) ? m : n) : 0;
        work->n_ints = 0;
    }
    keep_size(dtype, &size, work);
    return low(info);
}

/* ---- Norms ---------------------------------------------------------------------------------- */

double plait_blas_lange(plait_dtype_t dtype, char norm, int64_t m, int64_t n,
                        const void *a, int64_t lda, void *work)
{
    double value = 0;

    if (is_single(dtype)) {
        value = (double)RETURNING(float, LANGE, dtype, chr_t, num_t, num_t, in_t, num_t,
                                  out_t, len_t)(&norm, &m, &n, a, &lda, work, 1);
    } else {
        value = RETURNING(double, LANGE, dtype, chr_t, num_t, num_t, in_t, num_t, out_t,
                          len_t)(&norm, &m, &n, a, &lda, work, 1);
    }
    return value;
}

double plait_blas_lanhe(plait_dtype_t dtype, char norm, char uplo, int64_t n,
                        const void *a, int64_t lda, void *work)
{
    double value = 0;

    if (is_single(dtype)) {
        value = (double)RETURNING(float, LANHE, dtype, chr_t, chr_t, num_t, in_t, num_t,
                                  out_t, len_t,
                                  len_t)(&norm, &uplo, &n, a, &lda, work, 1, 1);
    } else {
        value = RETURNING(double, LANHE, dtype, chr_t, chr_t, num_t, in_t, num_t, out_t,
                          len_t, len_t)(&norm, &uplo, &n, a, &lda, work, 1, 1);
    }
    return value;
}

/* NOLINTEND(readability-function-size) */
