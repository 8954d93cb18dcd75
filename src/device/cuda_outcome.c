/* Work that cuSOLVER does not do. Before an eigenvalue problem, matrices whose numbers are far from 1 are
 * scaled to numbers near 1; afterwards the eigenvalues are put in order. After a factorization, its outcome is
 * determined. */
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_state.h"

/* Sets both numbers to 0. */
static plait_status_t forget(plait_cuda_state_t *state, plait_stream_t stream,
                             int32_t *sizes)
{
    const plait_cuda_fill_t params = {.n_rest = 2 * (int64_t)sizeof(*sizes),
                                      .dst = (char *)sizes};

    return plait_cuda_launch(state, stream, PLAIT_CUDA_FILL, 1, &params);
}

/* Near the largest number, cuSOLVER 12.0 finds eigenvalues 0 for 8 x 8 matrices. */
plait_status_t plait_cuda_before(plait_cuda_state_t *state, plait_stream_t stream,
                                 const plait_device_tile_t *t, int32_t *sizes)
{
    plait_status_t status = PLAIT_OK;
    plait_device_tile_t measured = *t;

    if (t->op != PLAIT_TILE_HEEVD) {
        goto done;
    }
    measured.info = sizes;
    PLAIT_TRY(forget(state, stream, sizes));
    PLAIT_TRY(plait_cuda_matrix(state, stream, &measured, PLAIT_CUDA_MEASURE_F32,
                                PLAIT_CUDA_MEASURE_F64, 0));
    PLAIT_TRY(plait_cuda_matrix(state, stream, &measured, PLAIT_CUDA_STRETCH_F32,
                                PLAIT_CUDA_STRETCH_F64, 0));
done:
    return status;
}

/* Close eigenvalues may be out of order in their last bits (float32, cuSOLVER 12.0). */
plait_status_t plait_cuda_after(plait_cuda_state_t *state, plait_stream_t stream,
                                const plait_device_tile_t *t, const int32_t *sizes)
{
    const plait_cuda_ascend_t params = {.values = t->extra, .sizes = sizes, .n = t->n};

    return (t->op != PLAIT_TILE_HEEVD)
               ? PLAIT_OK
               : plait_cuda_launch(state, stream,
                                   plait_cuda_is_single(t->dtype)
                                       ? PLAIT_CUDA_ASCEND_F32
                                       : PLAIT_CUDA_ASCEND_F64,
                                   1, &params);
}

/* cuSOLVER's search for a pivot passes over NaN. A NaN may stay in the factors without meeting a pivot: then
 * the last pivot counts as the one that is not finite. */
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
        .n_parts = plait_cuda_n_parts(t->dtype)};

    PLAIT_TRY(plait_cuda_launch(state, stream,
                                plait_cuda_is_single(t->dtype) ? PLAIT_CUDA_JUDGE_F32
                                                               : PLAIT_CUDA_JUDGE_F64,
                                1, &params));
    if (is_lu) {
        PLAIT_TRY(screen(state, stream, t));
    }
done:
    return status;
}
