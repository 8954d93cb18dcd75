/* Operations on matrices: by cuBLAS, by cuSOLVER, and by plait's own kernels where these libraries lack one. */
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_state.h"

#include <math.h>
#include <stdbool.h>

static bool is_complex(plait_dtype_t dtype)
{
    return plait_dtype_kind(dtype) == PLAIT_KIND_COMPLEX;
}

int plait_cuda_real_type(plait_dtype_t dtype)
{
    return plait_cuda_is_single(dtype) ? PLAIT_CUDA_R_32F : PLAIT_CUDA_R_64F;
}

int plait_cuda_type(plait_dtype_t dtype)
{
    return (dtype == PLAIT_C64)    ? PLAIT_CUDA_C_32F
           : (dtype == PLAIT_C128) ? PLAIT_CUDA_C_64F
                                   : plait_cuda_real_type(dtype);
}

int plait_cuda_trans(plait_dtype_t dtype, char trans)
{
    return (trans == 'N')                        ? PLAIT_CUBLAS_N
           : (trans == 'C' && is_complex(dtype)) ? PLAIT_CUBLAS_C
                                                 : PLAIT_CUBLAS_T;
}

/* ---- Own kernels ----------------------------------------------------------------------------- */

static int64_t n_blocks_of(int64_t n_threads)
{
    return (n_threads + PLAIT_CUDA_THREADS - 1) / PLAIT_CUDA_THREADS;
}

/* Blocks have only as many rows as the columns need, if that is less than their threads. */
plait_status_t plait_cuda_matrix(plait_cuda_state_t *state, plait_stream_t stream,
                                 const plait_device_tile_t *t,
                                 plait_cuda_kernel_t of_single,
                                 plait_cuda_kernel_t of_double, double fill)
{
    plait_status_t status = PLAIT_OK;
    uint32_t log_rows = 0;

    while ((1 << log_rows) < PLAIT_CUDA_THREADS && (INT64_C(1) << log_rows) < t->m) {
        log_rows++;
    }
    const int64_t n_columns = PLAIT_CUDA_THREADS >> log_rows;
    const int64_t n_right = (t->n + n_columns - 1) / n_columns;
    const int64_t n_down = ((t->m - 1) >> log_rows) + 1;
    const plait_cuda_matrix_t params = {.src = t->a,
                                        .dst = t->c,
                                        .m = t->m,
                                        .n = t->n,
                                        .src_ld = t->lda,
                                        .dst_ld = t->ldc,
                                        .row = t->row,
                                        .end = t->k,
                                        .info = t->info,
                                        .fill = fill,
                                        .value = (int32_t)t->k,
                                        .log_rows = log_rows,
                                        .n_down = (uint32_t)n_down,
                                        .n_parts = plait_cuda_n_parts(t->dtype),
                                        .is_real = t->diag == 'R',
                                        .is_unit = t->diag == 'U'};

    if (n_right > 0 && t->m > 0) {
        PLAIT_TRY(plait_cuda_launch(
            state, stream, plait_cuda_is_single(t->dtype) ? of_single : of_double,
            n_right * n_down, &params));
    }
done:
    return status;
}

/* The second kernel sees what the first one found in the whole matrix. */
static plait_status_t screen(plait_cuda_state_t *state, plait_stream_t stream,
                             const plait_device_tile_t *t)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_cuda_matrix(state, stream, t, PLAIT_CUDA_SCREEN_F32,
                                PLAIT_CUDA_SCREEN_F64, 0));
    PLAIT_TRY(plait_cuda_matrix(state, stream, t, PLAIT_CUDA_SPOIL_F32,
                                PLAIT_CUDA_SPOIL_F64, 0));
done:
    return status;
}

static plait_status_t swap(plait_cuda_state_t *state, plait_stream_t stream,
                           const plait_device_tile_t *t)
{
    const int64_t item = plait_dtype_bytes(t->dtype);
    const plait_cuda_swap_t params = {.dst = t->c,
                                      .m = t->m,
                                      .n = t->n,
                                      .ld = t->ldc,
                                      .row = t->row,
                                      .n_pivots = t->k,
                                      .pivots = t->extra};

    return plait_cuda_launch(state, stream,
                             (item == 4)   ? PLAIT_CUDA_SWAP_4
                             : (item == 8) ? PLAIT_CUDA_SWAP_8
                                           : PLAIT_CUDA_SWAP_16,
                             n_blocks_of(t->n), &params);
}

/* ---- The table's ------------------------------------------------------------------------------ */

typedef enum { BY_BLAS, BY_SOLVER, BY_KERNELS } library_t;

static library_t library_of(const plait_device_tile_t *t)
{
    static const library_t of[PLAIT_TILE_COUNT] = {
        [PLAIT_TILE_GEMM] = BY_BLAS,      [PLAIT_TILE_HERK] = BY_BLAS,
        [PLAIT_TILE_TRSM] = BY_BLAS,      [PLAIT_TILE_TRMM] = BY_BLAS,
        [PLAIT_TILE_POTRF] = BY_SOLVER,   [PLAIT_TILE_GETRF] = BY_SOLVER,
        [PLAIT_TILE_LASWP] = BY_KERNELS,  [PLAIT_TILE_GEQRF] = BY_SOLVER,
        [PLAIT_TILE_ORMQR] = BY_SOLVER,   [PLAIT_TILE_HEEVD] = BY_SOLVER,
        [PLAIT_TILE_TRIM] = BY_KERNELS,   [PLAIT_TILE_SPOIL] = BY_KERNELS,
        [PLAIT_TILE_SCREEN] = BY_KERNELS, [PLAIT_TILE_JUDGE] = BY_KERNELS};

    return of[t->op];
}

plait_status_t plait_cuda_tile_plan(plait_device_t *device,
                                    const plait_device_tile_t *tile,
                                    int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    int64_t work_bytes = 0;

    (void)pthread_mutex_lock(&state->lock);
    if (library_of(tile) == BY_BLAS) {
        PLAIT_TRY(plait_cuda_blas_plan(state, &work_bytes));
    } else if (library_of(tile) == BY_SOLVER) {
        PLAIT_TRY(plait_cuda_solver_plan(state, tile, &work_bytes));
    }
    *work_bytes_p = work_bytes;
done:
    (void)pthread_mutex_unlock(&state->lock);
    return status;
}

static plait_status_t enqueue(plait_cuda_state_t *state, plait_stream_t stream,
                              const plait_device_tile_t *tile)
{
    return (tile->op == PLAIT_TILE_TRIM)
               ? plait_cuda_matrix(state, stream, tile, PLAIT_CUDA_TRIM_F32,
                                   PLAIT_CUDA_TRIM_F64, 0)
           : (tile->op == PLAIT_TILE_SPOIL)
               ? plait_cuda_matrix(state, stream, tile, PLAIT_CUDA_SPOIL_F32,
                                   PLAIT_CUDA_SPOIL_F64, (double)NAN)
           : (tile->op == PLAIT_TILE_SCREEN) ? screen(state, stream, tile)
           : (tile->op ==
              PLAIT_TILE_JUDGE) /* no library has found anything: *info itself */
               ? plait_cuda_judge(state, stream, tile, tile->info, NULL)
               : swap(state, stream, tile);
}

/* A handle has one stream at a time, so only one thread at a time may enqueue with it. */
plait_status_t plait_cuda_tile(plait_device_t *device, plait_stream_t stream,
                               const plait_device_tile_t *tile, void *work)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);

    if (library_of(tile) == BY_KERNELS) {
        return enqueue(state, stream, tile);
    }
    (void)pthread_mutex_lock(&state->lock);
    PLAIT_TRY((library_of(tile) == BY_BLAS)
                  ? plait_cuda_blas(state, stream, tile, work)
                  : plait_cuda_solver(state, stream, tile, work));
done:
    (void)pthread_mutex_unlock(&state->lock);
    return status;
}
