/* A stand-in of cuSOLVER on the host, by the definition. It checks its arguments as cuSOLVER does, requires
 * the memory that it has asked for, and overwrites it.
 *
 * PLAIT_FAKE_SYEVD_MOST=n   syevd refuses larger matrices when it is asked for its memory */
#include "fake_cuda_eigen.h"
#include "fake_cuda_matrix.h"

enum { NOT_INITIALIZED = 1, INVALID = 3, HOST_BYTES = 40 };

struct plait_cusolver {
    plait_cu_stream_t stream;
};

struct plait_cusolver_params {
    int unused;
};

int cusolverDnCreate(plait_cusolver_t *solver)
{
    LOCKED;
    *solver = calloc(1, sizeof(**solver));
    return (*solver != NULL) ? 0 : 2;
}

int cusolverDnDestroy(plait_cusolver_t solver)
{
    LOCKED;
    free(solver);
    return 0;
}

int cusolverDnSetStream(plait_cusolver_t solver, plait_cu_stream_t stream)
{
    LOCKED;
    solver->stream = stream;
    return 0;
}

int cusolverDnCreateParams(plait_cusolver_params_t *params)
{
    LOCKED;
    *params = calloc(1, sizeof(**params));
    return (*params != NULL) ? 0 : 2;
}

int cusolverDnDestroyParams(plait_cusolver_params_t params)
{
    LOCKED;
    free(params);
    return 0;
}

/* The memory that was asked for, and the memory given. */
typedef struct {
    void *device;
    size_t n_device;
    void *host;
    size_t n_host;
} memory_t;

static size_t device_bytes(int64_t m, int64_t n)
{
    return (size_t)(8 * m + 16 * n + 24);
}

static int begin(plait_cusolver_t solver, const void *params, bool is_good,
                 const memory_t *got, size_t n_device, size_t n_host)
{
    const bool has_memory = got->device != NULL && got->n_device == n_device &&
                            got->n_host == n_host && (n_host == 0 || got->host != NULL);
    int result = (is_good && has_memory) ? 0 : INVALID;

    if (solver == NULL || params == NULL || solver->stream == NULL) {
        result = NOT_INITIALIZED;
    } else if (result == 0) {
        memset(got->device, 0xff, n_device);
        if (n_host > 0) {
            memset(got->host, 0xff, n_host);
        }
    }
    return result;
}

/* The memory belongs to the call until its end. */
static int end(const memory_t *got)
{
    memset(got->device, 0xff, got->n_device);
    return 0;
}

/* ---- Cholesky -------------------------------------------------------------------------------- */

int cusolverDnXpotrf_bufferSize(plait_cusolver_t solver, plait_cusolver_params_t params,
                                int uplo, int64_t n, int type, const void *a,
                                int64_t lda, int compute, size_t *n_device,
                                size_t *n_host)
{
    LOCKED;
    (void)a;
    *n_device = device_bytes(0, n);
    *n_host = 0;
    return (solver != NULL && params != NULL && uplo == PLAIT_CUBLAS_LOWER &&
            compute == type && is_leading(lda, n))
               ? 0
               : INVALID;
}

int cusolverDnXpotrf(plait_cusolver_t solver, plait_cusolver_params_t params, int uplo,
                     int64_t n, int type, void *a, int64_t lda, int compute,
                     void *device, size_t n_device, void *host, size_t n_host,
                     int *info)
{
    LOCKED;
    const memory_t got = {device, n_device, host, n_host};
    const bool is_good =
        uplo == PLAIT_CUBLAS_LOWER && compute == type && is_leading(lda, n);
    const int result = begin(solver, params, is_good, &got, device_bytes(0, n), 0);

    if (result != 0) {
        return result;
    }
    *info = 0;
    for (int64_t j = 0; *info == 0 && j < n; j++) {
        double d = creal(get(type, a, j * lda + j));
        for (int64_t l = 0; l < j; l++) {
            const double complex z = get(type, a, l * lda + j);
            d -= creal(z * conj(z));
        }
        *info = (d <= 0) ? (int)j + 1 : 0; /* NaN passes */
        put(type, a, j * lda + j, sqrt(d));
        for (int64_t i = j + 1; i < n; i++) {
            double complex sum = get(type, a, j * lda + i);
            for (int64_t l = 0; l < j; l++) {
                sum -= get(type, a, l * lda + i) * conj(get(type, a, l * lda + j));
            }
            put(type, a, j * lda + i, sum / sqrt(d));
        }
    }
    return end(&got);
}

/* ---- LU -------------------------------------------------------------------------------------- */

int cusolverDnXgetrf_bufferSize(plait_cusolver_t solver, plait_cusolver_params_t params,
                                int64_t m, int64_t n, int type, const void *a,
                                int64_t lda, int compute, size_t *n_device,
                                size_t *n_host)
{
    LOCKED;
    (void)a;
    *n_device = device_bytes(m, n);
    *n_host = 0;
    return (solver != NULL && params != NULL && compute == type && is_leading(lda, m))
               ? 0
               : INVALID;
}

static double size1(double complex z)
{
    return fabs(creal(z)) + fabs(cimag(z));
}

static void exchange(int type, void *a, int64_t lda, int64_t n, int64_t i, int64_t p)
{
    for (int64_t j = 0; j < n; j++) {
        const double complex z = get(type, a, j * lda + i);
        put(type, a, j * lda + i, get(type, a, j * lda + p));
        put(type, a, j * lda + p, z);
    }
}

int cusolverDnXgetrf(plait_cusolver_t solver, plait_cusolver_params_t params, int64_t m,
                     int64_t n, int type, void *a, int64_t lda, int64_t *pivots,
                     int compute, void *device, size_t n_device, void *host,
                     size_t n_host, int *info)
{
    LOCKED;
    const memory_t got = {device, n_device, host, n_host};
    const int result = begin(solver, params, compute == type && is_leading(lda, m),
                             &got, device_bytes(m, n), 0);

    if (result != 0) {
        return result;
    }
    *info = 0;
    for (int64_t k = 0; k < m && k < n; k++) {
        int64_t p = k;
        for (int64_t i = k + 1; i < m; i++) {
            p = (size1(get(type, a, k * lda + i)) > size1(get(type, a, k * lda + p)))
                    ? i
                    : p;
        }
        pivots[k] = p + 1;
        exchange(type, a, lda, n, k, p);
        const double complex pivot = get(type, a, k * lda + k);
        if (pivot == 0) {
            *info = (*info == 0) ? (int)k + 1 : *info;
            continue;
        }
        for (int64_t i = k + 1; i < m; i++) {
            put(type, a, k * lda + i, get(type, a, k * lda + i) / pivot);
        }
        for (int64_t j = k + 1; j < n; j++) {
            for (int64_t i = k + 1; i < m; i++) {
                put(type, a, j * lda + i,
                    get(type, a, j * lda + i) -
                        get(type, a, k * lda + i) * get(type, a, j * lda + k));
            }
        }
    }
    return end(&got);
}

/* ---- QR -------------------------------------------------------------------------------------- */

int cusolverDnXgeqrf_bufferSize(plait_cusolver_t solver, plait_cusolver_params_t params,
                                int64_t m, int64_t n, int type, const void *a,
                                int64_t lda, int type_tau, const void *tau, int compute,
                                size_t *n_device, size_t *n_host)
{
    LOCKED;
    (void)a;
    (void)tau;
    *n_device = device_bytes(m, n);
    *n_host = 0;
    return (solver != NULL && params != NULL && compute == type && type_tau == type &&
            is_leading(lda, m))
               ? 0
               : INVALID;
}

/* Column c of n_rows rows times I - factor v v^H, where v has a 1 before its `below`. */
static void reflect(int type, int64_t n_rows, const void *v, int64_t v_at,
                    double complex factor, void *c, int64_t c_at)
{
    double complex inner = get(type, c, c_at);

    for (int64_t i = 1; i < n_rows; i++) {
        inner += conj(get(type, v, v_at + i)) * get(type, c, c_at + i);
    }
    put(type, c, c_at, get(type, c, c_at) - factor * inner);
    for (int64_t i = 1; i < n_rows; i++) {
        put(type, c, c_at + i,
            get(type, c, c_at + i) - factor * inner * get(type, v, v_at + i));
    }
}

/* The reflector of a column; returns its factor, as LAPACK's larfg. */
static double complex make_reflector(int type, int64_t n_rows, void *a, int64_t at)
{
    const double complex alpha = get(type, a, at);
    double below = 0;

    for (int64_t i = 1; i < n_rows; i++) {
        below += creal(get(type, a, at + i) * conj(get(type, a, at + i)));
    }
    if (below == 0 && cimag(alpha) == 0) {
        return 0;
    }
    const double norm = sqrt(creal(alpha * conj(alpha)) + below);
    const double beta = (creal(alpha) > 0) ? -norm : norm;
    for (int64_t i = 1; i < n_rows; i++) {
        put(type, a, at + i, get(type, a, at + i) / (alpha - beta));
    }
    put(type, a, at, beta);
    return (beta - alpha) / beta;
}

int cusolverDnXgeqrf(plait_cusolver_t solver, plait_cusolver_params_t params, int64_t m,
                     int64_t n, int type, void *a, int64_t lda, int type_tau, void *tau,
                     int compute, void *device, size_t n_device, void *host,
                     size_t n_host, int *info)
{
    LOCKED;
    const memory_t got = {device, n_device, host, n_host};
    const bool is_good = compute == type && type_tau == type && is_leading(lda, m);
    const int result = begin(solver, params, is_good, &got, device_bytes(m, n), 0);

    if (result != 0) {
        return result;
    }
    *info = 0;
    for (int64_t k = 0; k < m && k < n; k++) {
        const int64_t at = k * lda + k;
        const double complex factor = make_reflector(type, m - k, a, at);
        put(type, tau, k, factor);
        for (int64_t j = k + 1; j < n; j++) {
            reflect(type, m - k, a, at, conj(factor), a, j * lda + k);
        }
    }
    return end(&got);
}

static bool is_good_ormqr(int type, int side, int trans, int m, int n, int k, int lda,
                          int ldc)
{
    const int adjoint = is_complex_type(type) ? PLAIT_CUBLAS_C : PLAIT_CUBLAS_T;

    return side == PLAIT_CUBLAS_LEFT && (trans == PLAIT_CUBLAS_N || trans == adjoint) &&
           k <= m && n >= 0 && is_leading(lda, m) && is_leading(ldc, m);
}

static int ormqr(int type, plait_cusolver_t solver, int side, int trans, int m, int n,
                 int k, const void *a, int lda, const void *tau, void *c, int ldc,
                 void *work, int n_work, int *info)
{
    const size_t item =
        (size_t)(is_complex_type(type) ? 2 : 1) *
        ((type == PLAIT_CUDA_R_32F || type == PLAIT_CUDA_C_32F) ? 4 : 8);
    const memory_t got = {work, (size_t)n_work * item, NULL, 0};
    const int result =
        begin(solver, solver, is_good_ormqr(type, side, trans, m, n, k, lda, ldc), &got,
              (size_t)(3 * n + 5) * item, 0);

    if (result != 0) {
        return result;
    }
    *info = 0;
    for (int s = 0; s < k; s++) {
        const int64_t i = (trans == PLAIT_CUBLAS_N) ? k - 1 - s : s;
        const double complex factor = get(type, tau, i);
        for (int64_t j = 0; j < n; j++) {
            reflect(type, m - i, a, i * lda + i,
                    (trans == PLAIT_CUBLAS_N) ? factor : conj(factor), c, j * ldc + i);
        }
    }
    return end(&got);
}

#define OF_DTYPE(_name, _type)                                                        \
    int cusolverDn##_name##_bufferSize(                                               \
        plait_cusolver_t solver, int side, int trans, int m, int n, int k,            \
        const void *a, int lda, const void *tau, const void *c, int ldc, int *n_work) \
    {                                                                                 \
        (void)a;                                                                      \
        (void)tau;                                                                    \
        (void)c;                                                                      \
        *n_work = 3 * n + 5;                                                          \
        return (solver != NULL &&                                                     \
                is_good_ormqr(_type, side, trans, m, n, k, lda, ldc))                 \
                   ? 0                                                                \
                   : INVALID;                                                         \
    }                                                                                 \
    int cusolverDn##_name(plait_cusolver_t solver, int side, int trans, int m, int n, \
                          int k, const void *a, int lda, const void *tau, void *c,    \
                          int ldc, void *work, int n_work, int *info)                 \
    {                                                                                 \
        return ormqr(_type, solver, side, trans, m, n, k, a, lda, tau, c, ldc, work,  \
                     n_work, info);                                                   \
    }

OF_DTYPE(Sormqr, PLAIT_CUDA_R_32F)
OF_DTYPE(Dormqr, PLAIT_CUDA_R_64F)
OF_DTYPE(Cunmqr, PLAIT_CUDA_C_32F)
OF_DTYPE(Zunmqr, PLAIT_CUDA_C_64F)

/* ---- Eigenvalues ----------------------------------------------------------------------------- */

static bool is_good_syevd(int has_vectors, int uplo, int type, int type_w, int compute,
                          int64_t n, int64_t lda)
{
    return (has_vectors == 0 || has_vectors == 1) && uplo == PLAIT_CUBLAS_LOWER &&
           compute == type && type_w == real_type(type) && is_leading(lda, n);
}

int cusolverDnXsyevd_bufferSize(plait_cusolver_t solver, plait_cusolver_params_t params,
                                int has_vectors, int uplo, int64_t n, int type,
                                const void *a, int64_t lda, int type_w, const void *w,
                                int compute, size_t *n_device, size_t *n_host)
{
    LOCKED;
    (void)a;
    (void)w;
    *n_device = device_bytes(n, n);
    *n_host = HOST_BYTES;
    return (solver != NULL && params != NULL &&
            n <= number_of_environment("PLAIT_FAKE_SYEVD_MOST", INT32_MAX) &&
            is_good_syevd(has_vectors, uplo, type, type_w, compute, n, lda))
               ? 0
               : INVALID;
}

int cusolverDnXsyevd(plait_cusolver_t solver, plait_cusolver_params_t params,
                     int has_vectors, int uplo, int64_t n, int type, void *a,
                     int64_t lda, int type_w, void *w, int compute, void *device,
                     size_t n_device, void *host, size_t n_host, int *info)
{
    LOCKED;
    const memory_t got = {device, n_device, host, n_host};
    const int result = begin(
        solver, params, is_good_syevd(has_vectors, uplo, type, type_w, compute, n, lda),
        &got, device_bytes(n, n), HOST_BYTES);
    double complex *m = calloc((size_t)(n * n), sizeof(*m));
    double complex *v = calloc((size_t)(n * n), sizeof(*v));
    bool *is_taken = calloc((size_t)n, sizeof(*is_taken));

    for (int64_t j = 0; result == 0 && j < n; j++) {
        v[j * n + j] = 1;
        m[j * n + j] = creal(get(type, a, j * lda + j));
        for (int64_t i = j + 1; i < n; i++) {
            m[j * n + i] = get(type, a, j * lda + i);
            m[i * n + j] = conj(m[j * n + i]);
        }
    }
    if (result == 0) {
        *info = diagonalize(n, m, v) ? 0 : 1;
    }
    for (int64_t j = 0; result == 0 && j < n; j++) {
        const int64_t k = smallest_from(n, m, is_taken);
        is_taken[k] = true;
        put(type_w, w, j, creal(m[k * n + k]));
        for (int64_t i = 0; i < n; i++) {
            put(type, a, j * lda + i,
                (has_vectors != 0) ? v[k * n + i] : (double complex)NAN);
        }
    }
    free(m);
    free(v);
    free(is_taken);
    return (result == 0) ? end(&got) : result;
}
