/* Work arrays are padded if only passes read them, since passes know strides. Source: own. */
#include "fft/slots.h"

#include "base/checked.h"
#include "base/status.h"
#include "layout/coords.h"

/* Rows of work arrays begin with a line. Rows whose length is a multiple of PERIOD_BYTES are made longer, since
 * their columns would fall on a few sets of the cache. The odd number of lines spreads planes over a cache's
 * sets, too. Not done if this would add more than a 32nd. */
enum {
    LINE_BYTES = 64,
    PERIOD_BYTES = 4096,
    PAD_ROW_BYTES = LINE_BYTES,
    PAD_PLANE_BYTES = 9 * LINE_BYTES
};

int64_t plait_fft_item_bytes(const plait_fft_t *f, bool is_real)
{
    return is_real ? f->item_bytes / 2 : f->item_bytes;
}

int64_t plait_fft_local_bytes(const plait_fft_t *f, const plait_layout_t *layout,
                              bool is_real, int rank)
{
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t n_bytes = plait_fft_item_bytes(f, is_real);

    plait_layout_stored_shape(layout, rank, shape);
    for (int a = 0; a < layout->ndim; a++) {
        n_bytes *= shape[a];
    }
    return n_bytes;
}

plait_fft_array_t plait_fft_result_of(const plait_fft_stage_t *stage)
{
    return (plait_fft_array_t){&stage->layout, stage->is_real, stage->slot,
                               stage->moved};
}

/* The axis at place i of an array's buffer, as passes see it; the slowest axis is at place 0. On a device there
 * are no passes, and only the total of bytes counts: exchanges and fft/device.h order the axes. */
static int axis_at(const plait_fft_array_t *x, int i)
{
    const int last = x->layout->ndim - 1;

    return (x->moved < 0 || i == last || i < x->moved) ? i
           : (i == last - 1)                           ? x->moved
                                                       : i + 1;
}

/* Strides of a rank's part of an array; returns the bytes of the part. */
static int64_t strides_of(const plait_fft_t *f, const plait_fft_array_t *x, int rank,
                          bool is_padded, int64_t stride[])
{
    const int last = x->layout->ndim - 1;
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t n_bytes = plait_fft_item_bytes(f, x->is_real);

    plait_layout_stored_shape(x->layout, rank, shape);
    for (int i = last; i >= 0; i--) {
        const int a = axis_at(x, i);
        stride[a] = n_bytes;
        n_bytes *= shape[a];
        const int64_t pad = (i == last) ? PAD_ROW_BYTES : PAD_PLANE_BYTES;
        if (is_padded && i == last && n_bytes >= 32 * LINE_BYTES) {
            n_bytes = (n_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
        }
        if (is_padded && i > 0 && n_bytes % PERIOD_BYTES == 0 && n_bytes >= 32 * pad) {
            n_bytes += pad;
        }
    }
    return n_bytes;
}

int64_t plait_fft_slot_strides(const plait_fft_t *f, const plait_fft_array_t *x,
                               int rank, int64_t stride[])
{
    const bool is_work = x->slot > plait_slot_ret(f->plan, 0);

    return strides_of(f, x, rank, f->pads_work && is_work, stride);
}

void plait_fft_result_strides(const plait_fft_t *f, bool is_real, int rank,
                              int64_t stride[])
{
    const plait_fft_array_t result = {&f->path.to, is_real, plait_slot_ret(f->plan, 0),
                                      -1};

    (void)strides_of(f, &result, rank, false, stride);
}

/* Checks all ranks: since peers read slots, slot numbers must be equal on all ranks. */
static bool fits_result(const plait_fft_t *f, const plait_fft_stage_t *stage)
{
    bool fits = true;

    for (int r = 0; r < f->plan->n_ranks && fits; r++) {
        fits = plait_fft_local_bytes(f, &stage->layout, stage->is_real, r) <=
               plait_fft_local_bytes(f, &f->to, f->is_to_real, r);
    }
    return fits;
}

bool plait_fft_has_padding(const plait_layout_t *layout)
{
    bool has_padding = false;

    for (int a = 0; a < layout->ndim; a++) {
        has_padding = has_padding || layout->stored[a] > 0;
    }
    return has_padding;
}

/* Complex transforms of a local array can be in place. On a device exchanges can be, too. */
static bool is_in_place(const plait_fft_t *f, int i)
{
    const plait_fft_stage_t *stage = &f->path.stages[i];
    const bool is_local = !stage->is_exchange && !stage->has_half &&
                          stage->view == PLAIT_FFT_SAME &&
                          !plait_fft_has_padding(&stage->layout);
    const bool is_move = stage->is_exchange && f->path.is_on_device;

    return i > 0 && (is_local || is_move);
}

/* A device's library takes one axis at a time, and does all of its lines in one call only if the other axes are
 * next to each other. So the axis comes first if only an exchange, which knows strides, reads the result. */
static int choose_first(const plait_fft_t *f, int i)
{
    const plait_fft_stage_t *stage = &f->path.stages[i];

    return (stage->is_exchange && stage->t > 0 && stage->t < f->from.ndim - 1 &&
            i + 1 < f->path.n_stages && f->path.stages[i + 1].is_exchange)
               ? stage->t
               : -1;
}

/* Data that the next exchange reads as planes of columns lie together plane by plane: a plane comes from a peer
 * in one piece, and the columns' rows are next to each other. Not done if the operand may share the memory and
 * is still read in its own order. */
static int choose_near(const plait_fft_t *f, int i, bool takes_ret)
{
    const plait_fft_stage_t *next = NULL;
    int first = i;

    for (; is_in_place(f, first); first--) {
    }
    for (i++; i < f->path.n_stages && is_in_place(f, i); i++) {
    }
    next = (i < f->path.n_stages) ? &f->path.stages[i] : NULL;
    return (f->pads_work && next != NULL && next->is_exchange &&
            !(first == 0 && takes_ret))
               ? next->t
               : -1;
}

/* Works backwards from the last stage, which writes the result: stages that are not in place alternate between
 * result and one work buffer. A first exchange that cannot be in place does not use a result that may share
 * memory with the operand, and no stage uses a result that is too small on some rank. These stages get a second
 * buffer. */
plait_status_t plait_fft_assign_slots(plait_fft_t *f)
{
    plait_status_t status = PLAIT_OK;
    int work[2] = {-1, -1};
    int64_t work_bytes[2] = {0, 0};
    int ret = plait_slot_ret(f->plan, 0);
    bool wants_ret = true;

    for (int i = f->path.n_stages - 1; i >= 0; i--) {
        plait_fft_stage_t *stage = &f->path.stages[i];
        bool is_last = i == f->path.n_stages - 1;
        bool takes_ret = wants_ret && (is_last || fits_result(f, stage)) &&
                         !(i == 0 && !is_last &&
                           (stage->is_exchange ? !f->path.is_on_device
                                               : plait_fft_has_padding(&f->from)));
        stage->moved = (f->plan->device != NULL) ? choose_first(f, i)
                                                 : choose_near(f, i, takes_ret);
        if (takes_ret) {
            stage->slot = ret;
        } else {
            int which = wants_ret; /* a stage that could not have the result */
            const plait_fft_array_t result = plait_fft_result_of(stage);
            int64_t stride[PLAIT_MAX_NDIM];
            work_bytes[which] =
                plait_max(work_bytes[which],
                          strides_of(f, &result, f->plan->rank, f->pads_work, stride));
            stage->slot = -2 - which;
        }
        wants_ret = is_in_place(f, i) ? wants_ret : !wants_ret;
    }
    for (int i = 0; i < f->path.n_stages; i++) {
        plait_fft_stage_t *stage = &f->path.stages[i];
        if (stage->slot <= -2) {
            int which = -2 - stage->slot;
            if (work[which] < 0) {
                PLAIT_TRY(
                    plait_plan_add_work(f->plan, work_bytes[which], &work[which]));
            }
            stage->slot = work[which];
        }
    }
done:
    return status;
}
