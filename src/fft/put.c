#include "fft/put.h"

#include "base/status.h"
#include "fft/slots.h"
#include "layout/coords.h"
#include "redist/blocks.h"

/* Whether, along an axis, every rank's part of `from` lies within one rank's part of `to`. */
static bool is_within(const plait_layout_t *from, const plait_layout_t *to, int axis)
{
    const plait_axis_t *a = &from->axis[axis];
    const plait_axis_t *b = &to->axis[axis];

    return b->split == PLAIT_SPLIT_WHOLE ||
           (a->split == b->split && a->block == b->block && plait_fft_same_split(a, b));
}

/* The grid axes that the array's axes are split over. Ranks along the other grid axes have copies. */
static unsigned grid_axes(const plait_layout_t *layout)
{
    unsigned axes = 0;

    for (int a = 0; a < layout->ndim; a++) {
        for (int i = 0; i < layout->axis[a].n_grid; i++) {
            axes |= 1U << layout->axis[a].grid_axis[i];
        }
    }
    return axes;
}

/* Merges only if every row goes to one rank, whole, and in contiguous parts. */
void plait_fft_put_merge(plait_fft_t *f)
{
    plait_fft_path_t *path = &f->path;
    const plait_fft_stage_t *move = &path->stages[path->n_stages - 1];
    plait_fft_stage_t *stage = &path->stages[path->n_stages - 2];
    bool is_put = f->plan->can_write && move->is_exchange && move->t < 0 &&
                  !move->has_half && move->view == PLAIT_FFT_SAME &&
                  stage->is_exchange && stage->view == PLAIT_FFT_SAME &&
                  grid_axes(&stage->layout) == grid_axes(&path->to) &&
                  is_within(&stage->layout, &path->to, path->to.ndim - 1);

    for (int a = 0; a < path->to.ndim && is_put; a++) {
        is_put = path->to.axis[a].split != PLAIT_SPLIT_CYCLIC;
    }
    if (is_put) {
        stage->is_put = true;
        path->n_stages--;
    }
}

/* The part of this rank's planes (t, last axis) that a peer has in f->path.to. */
static plait_status_t find_target(const plait_fft_t *f, const plait_fft_stage_t *stage,
                                  plait_target_t *target, bool *is_some_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_layout_t *from = &stage->layout;
    const int rank = f->plan->rank;
    plait_overlaps_t overlaps = {0};
    int64_t stride[PLAIT_MAX_NDIM] = {0};
    bool is_some =
        plait_layout_replica(from, target->peer) == plait_layout_replica(from, rank);
    int d = 0;

    plait_fft_result_strides(f, stage->is_real, target->peer, stride);
    for (int a = 0; a < from->ndim && is_some; a++) {
        plait_overlaps_clear(&overlaps);
        PLAIT_TRY(
            plait_overlaps_of(from, rank, &f->path.to, target->peer, a, &overlaps));
        if (overlaps.n == 0) {
            is_some = false;
            break;
        }
        PLAIT_CHECK(overlaps.n == 1, PLAIT_ERR_INTERNAL, "a piece is not contiguous");
        const int64_t src = overlaps.items[0].src;
        const int64_t n = overlaps.items[0].n;
        target->offset += (overlaps.items[0].dst - src) * stride[a];
        if (a == stage->t) {
            target->t_lo = src;
            target->n_t = n;
            target->t_stride = stride[a];
        } else if (a < from->ndim - 1) {
            target->outer_lo[d] = src;
            target->n_outer[d] = n;
            target->outer_stride[d++] = stride[a];
        }
    }
    *is_some_p = is_some;
done:
    plait_overlaps_clear(&overlaps);
    return status;
}

plait_status_t plait_fft_put_targets(const plait_fft_t *f,
                                     const plait_fft_stage_t *stage, plait_pass_t *pass)
{
    plait_status_t status = PLAIT_OK;
    bool is_some = false;

    pass->n_targets = 0;
    for (int peer = 0; peer < f->plan->n_ranks; peer++) {
        plait_target_t *target = &pass->targets[pass->n_targets];
        *target = (plait_target_t){.peer = peer};
        PLAIT_TRY(find_target(f, stage, target, &is_some));
        pass->n_targets += is_some;
    }
done:
    return status;
}
