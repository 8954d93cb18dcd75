/* What the check device does with matrices, by kernel/blas.h and by the words of device.h. */
#include "base/alloc.h"
#include "base/status.h"
#include "check_device_parts.h"
#include "dense/scalar.h"
#include "kernel/blas.h"

#include <math.h>
#include <string.h>

typedef struct {
    plait_device_tile_t t; /* with the device's addresses */
    char *work;
    int64_t work_bytes;
} tile_work_t;

static char *element(const plait_device_tile_t *t, int64_t i, int64_t j)
{
    return (char *)t->c + (j * t->ldc + i) * plait_dtype_bytes(t->dtype);
}

static bool is_finite(double complex z)
{
    return isfinite(creal(z)) && isfinite(cimag(z));
}

/* The first of n diagonal elements that is not finite, from 1; 0: none. */
static int64_t first_bad(const plait_device_tile_t *t, int64_t n)
{
    int64_t bad = 0;

    for (int64_t i = n; i > 0; i--) {
        const double complex z =
            plait_scalar_get(t->dtype, element(t, i - 1, i - 1), 0);
        bad = isfinite(creal(z)) ? bad : i;
    }
    return bad;
}

static void judge(const plait_device_tile_t *t, int64_t found, int64_t n)
{
    const int64_t bad = first_bad(t, (found > 0) ? found - 1 : n);

    found = (bad > 0) ? bad : found;
    *t->info = (*t->info == 0 && found > 0) ? (int32_t)(t->row + found) : *t->info;
}

/* Writes nothing above the diagonal, though some libraries do. */
static void run_potrf(const plait_device_tile_t *t)
{
    judge(t, plait_blas_potrf(t->dtype, 'L', t->n, t->c, t->ldc), t->n);
}

static void run_getrf(const plait_device_tile_t *t)
{
    const int64_t n = (t->m < t->n) ? t->m : t->n;
    int64_t *pivots = plait_alloc(n, sizeof(*pivots));
    int32_t *out = t->extra;

    const int64_t found = plait_blas_getrf(t->dtype, t->m, t->n, t->c, t->ldc, pivots);
    for (int64_t i = 0; i < n; i++) {
        out[i] = (int32_t)(t->row + pivots[i] - 1);
    }
    judge(t, found, n);
    plait_free(pivots);
}

static void run_laswp(const plait_device_tile_t *t)
{
    int64_t *pivots = plait_alloc(t->k, sizeof(*pivots));

    for (int64_t i = 0; i < t->k; i++) {
        pivots[i] = ((const int32_t *)t->extra)[i] - t->row + 1;
    }
    plait_blas_laswp(t->dtype, t->n, t->c, t->ldc, t->k, pivots, false);
    plait_free(pivots);
}

/* Asks for its workspaces, then gets them from `fill`. */
typedef int64_t (*lapack_t)(const plait_device_tile_t *t, plait_blas_work_t *work);

static int64_t with_work(const plait_device_tile_t *t, lapack_t call)
{
    const int64_t item = plait_dtype_bytes(t->dtype);
    plait_blas_work_t work = {.n = -1};

    (void)call(t, &work);
    work.work = plait_alloc(work.n + 1, item);
    work.real = plait_alloc(work.n_real + 1, item);
    work.ints = plait_alloc(work.n_ints + 1, 8);
    const int64_t info = call(t, &work);
    plait_free(work.work);
    plait_free(work.real);
    plait_free(work.ints);
    return info;
}

static int64_t call_geqrf(const plait_device_tile_t *t, plait_blas_work_t *work)
{
    return plait_blas_geqrf(t->dtype, t->m, t->n, t->c, t->ldc, t->extra, work);
}

static int64_t call_ormqr(const plait_device_tile_t *t, plait_blas_work_t *work)
{
    return plait_blas_ormqr(t->dtype, 'L', t->trans, t->m, t->n, t->k, t->a, t->lda,
                            t->extra, t->c, t->ldc, work);
}

static int64_t call_heevd(const plait_device_tile_t *t, plait_blas_work_t *work)
{
    return plait_blas_heevd(t->dtype, (t->k != 0) ? 'V' : 'N', 'L', t->n, t->c, t->ldc,
                            t->extra, work);
}

static void run_heevd(const plait_device_tile_t *t)
{
    const int64_t found = with_work(t, call_heevd);

    *t->info = (*t->info == 0) ? (int32_t)found : *t->info;
}

static void run_trim(const plait_device_tile_t *t)
{
    const int64_t item = plait_dtype_bytes(t->dtype);

    for (int64_t j = 0; j < t->n; j++) {
        for (int64_t i = 0; i < t->m; i++) {
            const char *from = (const char *)t->a + (j * t->lda + i) * item;
            double complex z = plait_scalar_get(t->dtype, from, 0);
            z = (i == t->row + j && t->diag == 'R') ? creal(z) : z;
            z = (i == t->row + j && t->diag == 'U') ? 1 : z;
            z = (i >= t->row + j && i < t->k) ? z : 0;
            plait_scalar_put(t->dtype, element(t, i, j), 0, z);
        }
    }
}

/* c[i, j] = value for i >= row + j. */
static void set_lower(const plait_device_tile_t *t, double complex value)
{
    for (int64_t j = 0; j < t->n; j++) {
        for (int64_t i = 0; i < t->m; i++) {
            if (i >= t->row + j) {
                plait_scalar_put(t->dtype, element(t, i, j), 0, value);
            }
        }
    }
}

static void run_screen(const plait_device_tile_t *t)
{
    bool is_whole = true;

    for (int64_t j = 0; j < t->n; j++) {
        for (int64_t i = 0; i < t->m; i++) {
            is_whole = is_whole &&
                       (i < t->row + j ||
                        is_finite(plait_scalar_get(t->dtype, element(t, i, j), 0)));
        }
    }
    if (!is_whole) {
        *t->info = (*t->info == 0) ? (int32_t)t->k : *t->info;
        set_lower(t, 0);
    }
}

static void run_tile(plait_device_t *device, void *argument)
{
    const tile_work_t *w = argument;
    const plait_device_tile_t *t = &w->t;

    (void)device;
    memset(w->work, 0xa7, (size_t)w->work_bytes);
    switch (t->op) {
    case PLAIT_TILE_GEMM:
        plait_blas_gemm(t->dtype, t->trans, t->trans_b, t->m, t->n, t->k, t->alpha,
                        t->a, t->lda, t->b, t->ldb, t->beta, t->c, t->ldc);
        break;
    case PLAIT_TILE_HERK:
        plait_blas_herk(t->dtype, 'L', 'N', t->n, t->k, t->alpha, t->a, t->lda, t->beta,
                        t->c, t->ldc);
        break;
    case PLAIT_TILE_TRSM:
        plait_blas_trsm(t->dtype, t->side, t->uplo, t->trans, t->diag, t->m, t->n, 1,
                        t->a, t->lda, t->c, t->ldc);
        break;
    case PLAIT_TILE_TRMM:
        plait_blas_trmm(t->dtype, t->side, t->uplo, t->trans, t->diag, t->m, t->n, 1,
                        t->a, t->lda, t->c, t->ldc);
        break;
    case PLAIT_TILE_POTRF:
        run_potrf(t);
        break;
    case PLAIT_TILE_GETRF:
        run_getrf(t);
        break;
    case PLAIT_TILE_LASWP:
        run_laswp(t);
        break;
    case PLAIT_TILE_GEQRF:
        (void)with_work(t, call_geqrf);
        break;
    case PLAIT_TILE_ORMQR:
        (void)with_work(t, call_ormqr);
        break;
    case PLAIT_TILE_HEEVD:
        run_heevd(t);
        break;
    case PLAIT_TILE_TRIM:
        run_trim(t);
        break;
    case PLAIT_TILE_SPOIL:
        if (*t->info != 0) {
            set_lower(t, (double)NAN);
        }
        break;
    case PLAIT_TILE_JUDGE:
        judge(t, 0, (t->m < t->n) ? t->m : t->n);
        break;
    default:
        run_screen(t);
    }
}

/* ---- What is asked for, and whether it was ---------------------------------------------------- */

static int64_t work_bytes_of(const plait_device_tile_t *t)
{
    return 8 * t->n + 40;
}

static uint64_t hash_tile(const plait_device_tile_t *t)
{
    uint64_t hash = (uint64_t)t->op * 64 + (uint64_t)t->dtype + 4096;
    const int64_t words[] = {t->m,   t->n,    t->k,    t->row,   t->lda,     t->ldb,
                             t->ldc, t->side, t->uplo, t->trans, t->trans_b, t->diag};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        hash = (hash ^ (uint64_t)words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

plait_status_t check_device_tile_plan(plait_device_t *device,
                                      const plait_device_tile_t *tile,
                                      int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "tile_plan"));
    PLAIT_TRY(plait_blas_require());
    (void)check_device_mark(device, hash_tile(tile));
    *work_bytes_p = work_bytes_of(tile);
done:
    return status;
}

/* Checks n_rows x n_columns of a matrix; returns its address for the device. */
static void *need_matrix(plait_device_t *device, const char *what, const void *x,
                         int64_t n_rows, int64_t n_columns, int64_t ld,
                         plait_dtype_t dtype)
{
    if (n_rows > 0 && n_columns > 0) {
        if (ld < n_rows) {
            check_device_fault(device, "%s: %lld rows %lld apart", what,
                               (long long)n_rows, (long long)ld);
        }
        check_device_need_live(device, what, x,
                               ((n_columns - 1) * ld + n_rows) *
                                   plait_dtype_bytes(dtype));
    }
    return check_device_view(device, x);
}

static void *need_extra(plait_device_t *device, const plait_device_tile_t *t)
{
    const int64_t item = plait_dtype_bytes(t->dtype);
    const int64_t least = (t->m < t->n) ? t->m : t->n;
    const int64_t n_bytes = (t->op == PLAIT_TILE_GETRF)   ? least * 4
                            : (t->op == PLAIT_TILE_LASWP) ? t->k * 4
                            : (t->op == PLAIT_TILE_GEQRF) ? least * item
                            : (t->op == PLAIT_TILE_ORMQR) ? t->k * item
                            : plait_is_complex(t->dtype)  ? t->n * item / 2
                                                          : t->n * item;

    check_device_need_live(device, "pivots, factors or eigenvalues", t->extra, n_bytes);
    return check_device_view(device, t->extra);
}

/* The tile with the addresses that the device uses. */
static plait_device_tile_t viewed(plait_device_t *device, const plait_device_tile_t *t)
{
    plait_device_tile_t v = *t;
    const bool is_left = t->side == 'L';
    const int64_t order = is_left ? t->m : t->n;

    v.c = need_matrix(device, "a tile", t->c, t->m, t->n, t->ldc, t->dtype);
    if (t->op == PLAIT_TILE_GEMM) {
        const bool is_plain = t->trans == 'N', is_plain_b = t->trans_b == 'N';
        v.a = need_matrix(device, "gemm a", t->a, is_plain ? t->m : t->k,
                          is_plain ? t->k : t->m, t->lda, t->dtype);
        v.b = need_matrix(device, "gemm b", t->b, is_plain_b ? t->k : t->n,
                          is_plain_b ? t->n : t->k, t->ldb, t->dtype);
    } else if (t->op == PLAIT_TILE_TRSM || t->op == PLAIT_TILE_TRMM) {
        v.a = need_matrix(device, "a triangle", t->a, order, order, t->lda, t->dtype);
    } else if (t->op == PLAIT_TILE_HERK || t->op == PLAIT_TILE_ORMQR) {
        v.a =
            need_matrix(device, "herk or ormqr a", t->a, t->m, t->k, t->lda, t->dtype);
    } else if (t->op == PLAIT_TILE_TRIM) {
        v.a = need_matrix(device, "trim a", t->a, t->m, t->n, t->lda, t->dtype);
    }
    if (t->extra != NULL) {
        v.extra = need_extra(device, t);
    }
    if (t->info != NULL) {
        check_device_need_live(device, "info", t->info, sizeof(int32_t));
        v.info = check_device_view(device, t->info);
    }
    return v;
}

plait_status_t check_device_tile(plait_device_t *device, plait_stream_t stream,
                                 const plait_device_tile_t *tile, void *work)
{
    plait_status_t status = PLAIT_OK;
    const int64_t work_bytes = work_bytes_of(tile);
    tile_work_t w = {.work = check_device_view(device, work), .work_bytes = work_bytes};

    PLAIT_TRY(check_device_count_call(device, "tile"));
    if (!check_device_mark(device, hash_tile(tile))) {
        check_device_fault(device, "a tile without tile_plan");
    }
    if (tile->m <= 0 || tile->n <= 0) {
        check_device_fault(device, "an empty tile");
    }
    check_device_need_live(device, "a tile's work", work, work_bytes);
    w.t = viewed(device, tile);
    check_device_enqueue(stream, run_tile, &w, sizeof(w));
done:
    return status;
}
