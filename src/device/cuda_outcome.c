/* What cuSOLVER does not do: matrices whose numbers are far from 1 are brought near it before their
 * eigenvalues are looked for, which are put in order afterwards; how a factorization has ended. */
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_state.h"

static bool is_single(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_C64;
}

static uint32_t n_parts_of(plait_dtype_t dtype)
{
    return (plait_dtype_kind(dtype) == PLAIT_KIND_COMPLEX) ? 2 : 1;
}

/* Near the largest number its eigenvalues of 8 x 8 are 0 (cuSOLVER 12.0). */
plait_status_t plait_cuda_before(plait_cuda_state_t *state, plait_stream_t stream,
                                 const plait_device_tile_t *t, char *factor)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_measure_t params = {.matrix = t->c,
                                         .factor = factor,
                                         .n = t->n,
                                         .ld = t->ldc,
                                         .n_parts = n_parts_of(t->dtype)};
    plait_device_tile_t stretched = *t;

    if (t->op != PLAIT_TILE_HEEVD) {
        goto done;
    }
    stretched.a = factor;
    PLAIT_TRY(plait_cuda_launch(state, stream,
                                is_single(t->dtype) ? PLAIT_CUDA_MEASURE_F32
                                                    : PLAIT_CUDA_MEASURE_F64,
                                1, &params));
    PLAIT_TRY(plait_cuda_matrix(state, stream, &stretched, PLAIT_CUDA_STRETCH_F32,
                                PLAIT_CUDA_STRETCH_F64, 0));
done:
    return status;
}

/* Close eigenvalues may be out of order by their last bits (float32, cuSOLVER 12.0). */
static plait_status_t ascend(plait_cuda_state_t *state, plait_stream_t stream,
                             const plait_device_tile_t *t, const char *factor)
{
    const plait_cuda_ascend_t params = {
        .values = t->extra, .factor = factor, .n = t->n};

    return plait_cuda_launch(state, stream,
                             is_single(t->dtype) ? PLAIT_CUDA_ASCEND_F32
                                                 : PLAIT_CUDA_ASCEND_F64,
                             1, &params);
}

/* cuSOLVER's search for a pivot passes a NaN by, which may stay in the factors without meeting one: then
 * the last pivot is the one that is not finite. */
static plait_status_t screen(plait_cuda_state_t *state, plait_stream_t stream,
                             const plait_device_tile_t *t)
{
    plait_device_tile_t all = *t;

    all.k = t->row + plait_min(t->m, t->n);
    all.row = -t->n; /* all rows of all columns */
    return plait_cuda_matrix(state, stream, &all, PLAIT_CUDA_SCREEN_F32,
                             PLAIT_CUDA_SCREEN_F64, 0);
}

plait_status_t plait_cuda_judge(plait_cuda_state_t *state, plait_stream_t stream,
                                const plait_device_tile_t *t, const int32_t *found,
                                const int64_t *pivots)
{
    plait_status_t status = PLAIT_OK;
    const bool is_lu = t->op == PLAIT_TILE_GETRF;
    const plait_cuda_judge_t params = {
        .diagonal = t->c,
        .n = (t->op == PLAIT_TILE_HEEVD) ? 0 : plait_min(t->m, t->n),
        .ld = t->ldc,
        .m = t->m,
        .row = t->row,
        .found = found,
        .info = t->info,
        .found_pivots = is_lu ? pivots : NULL,
        .pivots = is_lu ? t->extra : NULL,
        .n_parts = n_parts_of(t->dtype)};

    PLAIT_TRY(plait_cuda_launch(
        state, stream,
        is_single(t->dtype) ? PLAIT_CUDA_JUDGE_F32 : PLAIT_CUDA_JUDGE_F64, 1, &params));
    if (is_lu) {
        PLAIT_TRY(screen(state, stream, t));
    }
done:
    return status;
}

plait_status_t plait_cuda_after(plait_cuda_state_t *state, plait_stream_t stream,
                                const plait_device_tile_t *t, const char *factor)
{
    return (t->op == PLAIT_TILE_HEEVD) ? ascend(state, stream, t, factor) : PLAIT_OK;
}
