/* Matrix products and triangular solves by cuBLAS: one handle per device. */
#include "base/status.h"
#include "device/cuda_state.h"

#include <stdbool.h>

/* One function for each dtype: float32, float64, complex64, complex128. */
typedef int (*gemm_fn_t)(plait_cublas_t, int, int, int64_t, int64_t, int64_t,
                         const void *, const void *, int64_t, const void *, int64_t,
                         const void *, void *, int64_t);
typedef int (*herk_fn_t)(plait_cublas_t, int, int, int64_t, int64_t, const void *,
                         const void *, int64_t, const void *, void *, int64_t);
typedef int (*trsm_fn_t)(plait_cublas_t, int, int, int, int, int64_t, int64_t,
                         const void *, const void *, int64_t, void *, int64_t);
typedef int (*trmm_fn_t)(plait_cublas_t, int, int, int, int, int64_t, int64_t,
                         const void *, const void *, int64_t, const void *, int64_t,
                         void *, int64_t);

enum { MIB = 1 << 20, HOPPER = 90 };

/* cublasStatus_t. */
static const char *const names[] = {
    [0] = "success",           [1] = "not initialized",       [3] = "allocation failed",
    [7] = "invalid value",     [8] = "architecture mismatch", [11] = "mapping error",
    [13] = "execution failed", [14] = "internal error",       [15] = "not supported",
    [16] = "license error"};
static const plait_cuda_results_t results = {.library = "cuBLAS",
                                             .names = names,
                                             .n_names =
                                                 sizeof(names) / sizeof(names[0]),
                                             .no_memory = 3,
                                             .unsupported = {15, 15}};

static plait_status_t must(const plait_cuda_state_t *state, int result,
                           const char *what)
{
    return plait_cuda_library_must(&state->device, &results, result, what);
}

/* The size of cuBLAS's own default workspace. */
static int64_t work_bytes(const plait_cuda_state_t *state)
{
    return (state->capability >= HOPPER) ? 32 * MIB : 4 * MIB;
}

plait_status_t plait_cuda_blas_plan(plait_cuda_state_t *state, int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = NULL;

    if (state->blas == NULL) {
        PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_CUBLAS, &cuda));
        PLAIT_TRY(must(state, cuda->cublasCreate_v2(&state->blas), "making a handle"));
    }
    *work_bytes_p = work_bytes(state);
done:
    return status;
}

/* A real number, as functions of each of the four dtypes read it. */
typedef union {
    float f[2];
    double d[2];
} scalar_t;

static scalar_t scalar(plait_dtype_t dtype, double value)
{
    scalar_t s = {.d = {0, 0}};

    if (plait_cuda_is_single(dtype)) {
        s.f[0] = (float)value;
    } else {
        s.d[0] = value;
    }
    return s;
}

static int index_of(plait_dtype_t dtype)
{
    return (dtype == PLAIT_F32)   ? 0
           : (dtype == PLAIT_F64) ? 1
           : (dtype == PLAIT_C64) ? 2
                                  : 3;
}

static int gemm(const plait_cuda_state_t *state, const plait_device_tile_t *t)
{
    const plait_cuda_t *cuda = state->cuda;
    const gemm_fn_t fn[] = {cuda->cublasSgemm_v2_64, cuda->cublasDgemm_v2_64,
                            cuda->cublasCgemm_v2_64, cuda->cublasZgemm_v2_64};
    const scalar_t alpha = scalar(t->dtype, t->alpha), beta = scalar(t->dtype, t->beta);

    return fn[index_of(t->dtype)](state->blas, plait_cuda_trans(t->dtype, t->trans),
                                  plait_cuda_trans(t->dtype, t->trans_b), t->m, t->n,
                                  t->k, &alpha, t->a, t->lda, t->b, t->ldb, &beta, t->c,
                                  t->ldc);
}

static int herk(const plait_cuda_state_t *state, const plait_device_tile_t *t)
{
    const plait_cuda_t *cuda = state->cuda;
    const herk_fn_t fn[] = {cuda->cublasSsyrk_v2_64, cuda->cublasDsyrk_v2_64,
                            cuda->cublasCherk_v2_64, cuda->cublasZherk_v2_64};
    const scalar_t alpha = scalar(t->dtype, t->alpha), beta = scalar(t->dtype, t->beta);

    return fn[index_of(t->dtype)](state->blas, PLAIT_CUBLAS_LOWER, PLAIT_CUBLAS_N, t->n,
                                  t->k, &alpha, t->a, t->lda, &beta, t->c, t->ldc);
}

static int side_of(const plait_device_tile_t *t)
{
    return (t->side == 'L') ? PLAIT_CUBLAS_LEFT : PLAIT_CUBLAS_RIGHT;
}

static int uplo_of(const plait_device_tile_t *t)
{
    return (t->uplo == 'L') ? PLAIT_CUBLAS_LOWER : PLAIT_CUBLAS_UPPER;
}

static int diag_of(const plait_device_tile_t *t)
{
    return (t->diag == 'U') ? PLAIT_CUBLAS_UNIT : PLAIT_CUBLAS_NON_UNIT;
}

static int trsm(const plait_cuda_state_t *state, const plait_device_tile_t *t)
{
    const plait_cuda_t *cuda = state->cuda;
    const trsm_fn_t fn[] = {cuda->cublasStrsm_v2_64, cuda->cublasDtrsm_v2_64,
                            cuda->cublasCtrsm_v2_64, cuda->cublasZtrsm_v2_64};
    const scalar_t one = scalar(t->dtype, 1);

    return fn[index_of(t->dtype)](state->blas, side_of(t), uplo_of(t),
                                  plait_cuda_trans(t->dtype, t->trans), diag_of(t),
                                  t->m, t->n, &one, t->a, t->lda, t->c, t->ldc);
}

/* Works in place: the operand is the result. */
static int trmm(const plait_cuda_state_t *state, const plait_device_tile_t *t)
{
    const plait_cuda_t *cuda = state->cuda;
    const trmm_fn_t fn[] = {cuda->cublasStrmm_v2_64, cuda->cublasDtrmm_v2_64,
                            cuda->cublasCtrmm_v2_64, cuda->cublasZtrmm_v2_64};
    const scalar_t one = scalar(t->dtype, 1);

    return fn[index_of(t->dtype)](
        state->blas, side_of(t), uplo_of(t), plait_cuda_trans(t->dtype, t->trans),
        diag_of(t), t->m, t->n, &one, t->a, t->lda, t->c, t->ldc, t->c, t->ldc);
}

/* SetStream takes the workspace away, so the workspace is set afterwards. It is the plan's: streams that do
 * not wait for each other would share a workspace of the handle's own. */
plait_status_t plait_cuda_blas(plait_cuda_state_t *state, plait_stream_t stream,
                               const plait_device_tile_t *tile, void *work)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = state->cuda;

    PLAIT_CHECK(state->blas != NULL, PLAIT_ERR_INTERNAL,
                "CUDA: a product that was not planned");
    PLAIT_TRY(must(state, cuda->cublasSetStream_v2(state->blas, stream),
                   "setting the stream"));
    PLAIT_TRY(
        must(state,
             cuda->cublasSetWorkspace_v2(state->blas, work, (size_t)work_bytes(state)),
             "setting the workspace"));
    PLAIT_TRY((tile->op == PLAIT_TILE_GEMM)   ? must(state, gemm(state, tile), "gemm")
              : (tile->op == PLAIT_TILE_HERK) ? must(state, herk(state, tile), "herk")
              : (tile->op == PLAIT_TILE_TRSM) ? must(state, trsm(state, tile), "trsm")
                                              : must(state, trmm(state, tile), "trmm"));
done:
    return status;
}

void plait_cuda_blas_release(plait_cuda_state_t *state)
{
    if (state->blas != NULL) {
        (void)state->cuda->cublasDestroy_v2(state->blas);
        state->blas = NULL;
    }
}
