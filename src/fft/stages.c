/* With direct access each move is fused with the transform that follows it. Source: own. */
#include "fft/stages.h"

#include "base/alloc.h"
#include "base/status.h"
#include "device/host.h"
#include "fft/device.h"
#include "fft/four_step.h"
#include "fft/pass.h"
#include "fft/put.h"
#include "fft/slots.h"
#include "redist/blocks.h"

/* An exchange is fused if the kernel can gather: it needs direct access, contiguous parts, and a t that is not
 * the fast axis, so that lanes are contiguous elements. */
static bool is_fusable(const plait_fft_t *f, const plait_layout_t *from,
                       const plait_fft_stage_t *stage)
{
    bool is_fusable = f->may_fuse && stage->t >= 0 && stage->t < from->ndim - 1;

    for (int a = 0; a < from->ndim; a++) {
        is_fusable = is_fusable && from->axis[a].split != PLAIT_SPLIT_CYCLIC &&
                     stage->layout.axis[a].split != PLAIT_SPLIT_CYCLIC;
    }
    return is_fusable;
}

/* Whether only passes read work: moves know an array by its layout alone, passes know strides. */
static bool has_passes_only(const plait_fft_t *f)
{
    const plait_layout_t *from = &f->path.from;
    bool has_passes = f->may_fuse;

    for (int i = 0; i < f->path.n_stages; i++) {
        const plait_fft_stage_t *stage = &f->path.stages[i];
        has_passes = has_passes && (!stage->is_exchange || is_fusable(f, from, stage));
        from = &stage->layout;
    }
    return has_passes;
}

static plait_wave_t wave_of(const plait_fft_params_t *p, int axis)
{
    plait_wave_t wave = {.edge_in = p->edge_in, .edge_out = p->edge_out};

    for (int64_t i = 0; i < p->n_waves; i++) {
        if (p->axes[i] == axis) {
            wave.is_sine = p->waves[i] > 4;
            wave.type = (int)p->waves[i] - 4 * wave.is_sine;
        }
    }
    return wave;
}

static plait_status_t make_fft1(plait_fft_t *f, const plait_layout_t *layout, int axis,
                                plait_fft1_t **fft_p)
{
    const int64_t n = layout->shape[axis];
    const plait_wave_t wave = wave_of(f->p, axis);

    f->n_left--;
    const double scale = (f->n_left == 0) ? f->p->scale : 1.0;
    return f->is_wave ? plait_fft1_create_wave(n, f->dtype, &wave, scale, fft_p)
                      : plait_fft1_create(n, f->dtype, (int)f->p->sign, scale, fft_p);
}

static plait_status_t make_rfft1(plait_fft_t *f, plait_rfft1_t **fft_p)
{
    const plait_fft_half_t *half = &f->path.half;
    const plait_dtype_t real = (f->dtype == PLAIT_C64) ? PLAIT_F32 : PLAIT_F64;
    double weight = f->p->weight;

    if (weight == 0) {
        weight = half->to_complex ? 1 : 2;
    }
    f->n_left--;
    return plait_rfft1_create(half->n, real, half->to_complex, (int)f->p->sign, weight,
                              (f->n_left == 0) ? f->p->scale : 1.0, fft_p);
}

/* Data go past the cache only if they will have left it before they are used again. Counted are operand, work
 * and result of all ranks, and as much again for other data in the cache (32 MiB, Zen 4: 128^3 complex64 gains
 * a third, 64^3 complex128 would lose a tenth). */
static plait_fft_store_t store_of(const plait_fft_t *f, const plait_layout_t *layout)
{
    int64_t n_bytes =
        4 * plait_fft_local_bytes(f, layout, false, f->plan->rank) * f->plan->n_ranks;

    return (n_bytes > plait_host_cache_bytes()) ? PLAIT_FFT_STREAM : PLAIT_FFT_STORE;
}

/* Sends all planes (t, last axis) to this rank. */
static void set_own_target(const plait_fft_t *f, plait_pass_t *pass,
                           const plait_fft_array_t *to, int t)
{
    plait_target_t *target = &pass->targets[0];
    int64_t stride[PLAIT_MAX_NDIM];
    int d = 0;

    plait_fft_slot_strides(f, to, f->plan->rank, stride);
    pass->n_targets = 1;
    *target = (plait_target_t){
        .peer = f->plan->rank, .n_t = pass->n_t, .t_stride = (t >= 0) ? stride[t] : 0};
    for (int a = 0; a < to->layout->ndim - 1; a++) {
        if (a != t) {
            target->n_outer[d] = pass->outer_count[d];
            target->outer_stride[d] = stride[a];
            d++;
        }
    }
}

/* A pass that writes this rank's part of `to` in planes (t, last axis). The caller fills in the pieces. t < 0:
 * rows only, and planes are (the axis before the last, last). */
static plait_status_t new_pass(const plait_fft_t *f, const plait_fft_array_t *to, int t,
                               int n_pieces, plait_pass_t **pass_p)
{
    plait_status_t status = PLAIT_OK;
    plait_pass_t *pass = plait_alloc(1, sizeof(*pass));
    int ndim = to->layout->ndim;
    int64_t shape[PLAIT_MAX_NDIM];

    PLAIT_CHECK(pass != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    pass->pieces = plait_alloc(n_pieces, sizeof(*pass->pieces));
    pass->targets = plait_alloc(f->plan->n_ranks, sizeof(*pass->targets));
    PLAIT_CHECK(pass->pieces != NULL && pass->targets != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a plan");
    pass->item_bytes = plait_fft_item_bytes(f, to->is_real);
    plait_layout_local_shape(to->layout, f->plan->rank, shape);
    t = (t >= 0) ? t : ndim - 2;
    pass->n_t = (t >= 0) ? shape[t] : 1;
    pass->n_w = shape[ndim - 1];
    pass->src_n_t = pass->n_t;
    pass->src_n_w = pass->n_w;
    pass->src_bytes = pass->item_bytes;
    pass->dst_slot = to->slot;
    for (int a = 0; a < ndim - 1; a++) {
        if (a != t) {
            pass->outer_count[pass->n_outer++] = shape[a];
        }
    }
    pass->store = store_of(f, to->layout);
    set_own_target(f, pass, to, t);
    *pass_p = pass;
    pass = NULL;
done:
    plait_pass_destroy(&pass);
    return status;
}

/* Planes (t, last axis) of this rank's own part of `from`, which the pass reads. */
static void set_own_piece(const plait_fft_t *f, plait_pass_t *pass, int t,
                          const plait_fft_array_t *from)
{
    plait_piece_t *piece = &pass->pieces[0];
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t stride[PLAIT_MAX_NDIM];
    int last = from->layout->ndim - 1;
    int d = 0;

    pass->src_bytes = plait_fft_item_bytes(f, from->is_real);
    plait_fft_slot_strides(f, from, f->plan->rank, stride);
    plait_layout_local_shape(from->layout, f->plan->rank, shape);
    t = (t >= 0) ? t : last - 1;
    pass->src_n_t = (t >= 0) ? shape[t] : 1;
    pass->src_n_w = shape[last];
    pass->n_pieces = 1;
    *piece = (plait_piece_t){.peer = f->plan->rank,
                             .slot = from->slot,
                             .n_t = pass->src_n_t,
                             .t_stride = (t >= 0) ? stride[t] : 0};
    for (int a = 0; a < last; a++) {
        if (a != t) {
            piece->outer_stride[d++] = stride[a];
        }
    }
}

/* Transforms `axes` of the local array: rows and the columns of one axis in one pass, every further axis in
 * place in a pass of its own. */
static plait_status_t add_local(plait_fft_t *f, const plait_fft_array_t *from,
                                const plait_fft_array_t *to, unsigned axes)
{
    plait_status_t status = PLAIT_OK;
    plait_pass_t *pass = NULL;
    int last = to->layout->ndim - 1;
    const unsigned rows = 1U << last;

    while (axes != 0) {
        bool has_rows = (axes & rows) != 0;
        int t = -1;
        for (int a = 0; a < last; a++) {
            t = ((axes & (1U << a)) != 0)
                    ? a
                    : t; /* the axis closest to the last one: smallest planes */
        }
        PLAIT_TRY(new_pass(f, to, t, 1, &pass));
        set_own_piece(f, pass, t, from);
        if (from->slot == to->slot) {
            pass->store = PLAIT_FFT_STORE; /* the lines are in the cache already */
        }
        if (has_rows) {
            PLAIT_TRY(make_fft1(f, to->layout, last, &pass->rows));
        }
        if (t >= 0) {
            PLAIT_TRY(make_fft1(f, to->layout, t, &pass->columns));
        }
        PLAIT_TRY(plait_pass_add(f->plan, &pass));
        axes &= ~rows;
        axes &= (t >= 0) ? ~(1U << t) : ~0U;
        from = to;
    }
done:
    plait_pass_destroy(&pass);
    return status;
}

/* Transforms the half axis of a local array, and at most one more axis. */
static plait_status_t add_half(plait_fft_t *f, const plait_fft_array_t *from,
                               const plait_fft_stage_t *stage)
{
    plait_status_t status = PLAIT_OK;
    plait_pass_t *pass = NULL;
    const plait_fft_array_t to = plait_fft_result_of(stage);
    int half = f->path.half.axis;
    bool is_columns = half < from->layout->ndim - 1;
    int t = (stage->axes != 0) ? __builtin_ctz(stage->axes) : -1;

    t = is_columns ? half : t;
    PLAIT_TRY(new_pass(f, &to, t, 1, &pass));
    set_own_piece(f, pass, t, from);
    pass->is_real_columns = is_columns;
    if (f->path.half.to_complex) {
        PLAIT_TRY(make_rfft1(f, &pass->real));
    }
    if (stage->axes != 0) {
        PLAIT_TRY(make_fft1(f, from->layout, t, &pass->columns));
    }
    if (!f->path.half.to_complex) {
        PLAIT_TRY(make_rfft1(f, &pass->real));
    }
    PLAIT_TRY(plait_pass_add(f->plan, &pass));
done:
    plait_pass_destroy(&pass);
    return status;
}

/* The piece of every peer that this rank's part of `to` meets. It is whole along all axes except t, since only
 * t and the axis that took its split differ. */
static plait_status_t set_pieces(const plait_fft_t *f, plait_pass_t *pass,
                                 const plait_fft_array_t *array,
                                 const plait_layout_t *to, int t)
{
    plait_status_t status = PLAIT_OK;
    const plait_layout_t *from = array->layout;
    int rank = f->plan->rank;
    int replica = plait_layout_replica(from, rank);
    plait_overlaps_t overlaps[PLAIT_MAX_NDIM] = {{0}};

    for (int peer = 0; peer < f->plan->n_ranks; peer++) {
        int64_t stride[PLAIT_MAX_NDIM];
        plait_piece_t piece = {.peer = peer, .slot = array->slot};
        bool is_empty = plait_layout_replica(from, peer) != replica;
        int d = 0;
        plait_fft_slot_strides(f, array, peer, stride);
        for (int a = 0; a < from->ndim && !is_empty; a++) {
            PLAIT_TRY(plait_overlaps_of(from, peer, to, rank, a, &overlaps[a]));
            is_empty = overlaps[a].n == 0;
        }
        for (int a = 0; a < from->ndim && !is_empty; a++) {
            PLAIT_CHECK(overlaps[a].n == 1, PLAIT_ERR_INTERNAL,
                        "a piece is not contiguous");
            piece.offset += overlaps[a].items[0].src * stride[a];
            if (a == t) {
                piece.t_lo = overlaps[a].items[0].dst;
                piece.n_t = overlaps[a].items[0].n;
                piece.t_stride = stride[a];
            } else if (a < from->ndim - 1) {
                piece.outer_stride[d++] = stride[a];
            }
        }
        if (!is_empty) {
            pass->pieces[pass->n_pieces++] = piece;
        }
    }
done:
    for (int a = 0; a < from->ndim; a++) {
        plait_overlaps_clear(&overlaps[a]);
    }
    return status;
}

/* Columns of axis t as they arrive, then the stage's real rows, if any. */
static plait_status_t add_fused(plait_fft_t *f, const plait_fft_array_t *from,
                                const plait_fft_stage_t *stage)
{
    plait_status_t status = PLAIT_OK;
    plait_pass_t *pass = NULL;
    const plait_fft_array_t to = plait_fft_result_of(stage);
    plait_layout_t moved = stage->layout; /* before the rows */
    int64_t shape[PLAIT_MAX_NDIM];

    PLAIT_TRY(new_pass(f, &to, stage->t, f->plan->n_ranks, &pass));
    if (stage->has_half) {
        moved.shape[f->path.half.axis] = f->path.half.n / 2 + 1;
    }
    plait_layout_local_shape(&moved, f->plan->rank, shape);
    pass->src_n_w = shape[moved.ndim - 1];
    pass->src_bytes = f->item_bytes;
    PLAIT_TRY(set_pieces(f, pass, from, &moved, stage->t));
    if (stage->is_put) {
        PLAIT_TRY(plait_fft_put_targets(f, stage, pass));
    }
    PLAIT_TRY(make_fft1(f, &moved, stage->t, &pass->columns));
    if (stage->has_half) {
        PLAIT_TRY(make_rfft1(f, &pass->real));
    }
    PLAIT_TRY(plait_pass_add(f->plan, &pass));
done:
    plait_pass_destroy(&pass);
    return status;
}

/* Whether two slots may be the same memory: the operand may be the result's. */
static bool may_share(const plait_fft_t *f, int a, int b)
{
    const int arg = plait_slot_arg(f->plan, 0);
    const int ret = plait_slot_ret(f->plan, 0);

    return a == b || (a == arg && b == ret);
}

static plait_status_t add_exchange(plait_fft_t *f, const plait_fft_array_t *from,
                                   const plait_fft_stage_t *stage)
{
    plait_status_t status = PLAIT_OK;
    const plait_fft_array_t to = plait_fft_result_of(stage);
    plait_move_t move = {0};

    if (from->slot > plait_slot_ret(f->plan, 0)) {
        plait_plan_show_work(f->plan);
    }
    PLAIT_TRY(plait_plan_fence(f->plan));
    if (stage->view != PLAIT_FFT_SAME) {
        PLAIT_TRY(plait_four_step_move(f, from->layout, from->slot, stage));
    } else if (is_fusable(f, from->layout, stage)) {
        PLAIT_TRY(add_fused(f, from, stage));
    } else {
        const plait_change_t change = {.from = from->layout,
                                       .to = to.layout,
                                       .src_slot = from->slot,
                                       .dst_slot = to.slot,
                                       .item_bytes =
                                           plait_fft_item_bytes(f, to.is_real),
                                       .src_first = (from->moved > 0) ? from->moved : 0,
                                       .dst_first = (to.moved > 0) ? to.moved : 0};
        PLAIT_TRY(plait_redist_move(f->plan, &change, &move));
        move.is_in_place = f->path.is_on_device && may_share(f, from->slot, to.slot);
        PLAIT_TRY(plait_plan_move(f->plan, &move));
        if (stage->t >= 0 && f->plan->device != NULL) {
            PLAIT_TRY(plait_fft_device_axis(f, stage));
        } else if (stage->t >= 0) {
            PLAIT_TRY(add_local(f, &to, &to, 1U << stage->t));
        }
    }
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_fft_add_stages(plait_fft_t *f)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_array_t array = {&f->path.from, f->is_from_real,
                               plait_slot_arg(f->plan, 0), -1};
    plait_move_t zeros = {0};
    bool has_exchange = false;

    if (f->path.n_stages > 2 &&
        is_fusable(f, &f->path.stages[f->path.n_stages - 3].layout,
                   &f->path.stages[f->path.n_stages - 2])) {
        plait_fft_put_merge(f);
    }
    f->pads_work = has_passes_only(f);
    PLAIT_TRY(plait_fft_assign_slots(f));
    for (int i = 0; i < f->path.n_stages; i++) {
        const plait_fft_stage_t *stage = &f->path.stages[i];
        if (stage->is_exchange) {
            PLAIT_TRY(add_exchange(f, &array, stage));
        } else if (f->plan->device != NULL) {
            PLAIT_TRY(plait_fft_device_stage(f, array.layout, stage, array.slot));
        } else if (stage->has_half) {
            if (i > 0 && f->path.stages[i - 1].is_exchange) {
                /* peers may still read, for the exchange, what this stage writes */
                PLAIT_TRY(plait_plan_fence(f->plan));
            }
            PLAIT_TRY(add_half(f, &array, stage));
        } else if (stage->view == PLAIT_FFT_TURN) {
            PLAIT_TRY(plait_plan_fence(f->plan)); /* as above: peers have folded */
            PLAIT_TRY(plait_four_step_turn(f, array.layout, array.slot, stage));
        } else {
            const plait_fft_array_t to = plait_fft_result_of(stage);
            PLAIT_TRY(add_local(f, &array, &to, stage->axes));
        }
        has_exchange = has_exchange || stage->is_exchange;
        array = plait_fft_result_of(stage);
    }
    if (plait_fft_has_padding(&f->to)) {
        PLAIT_TRY(plait_redist_zero(&f->to, f->plan->rank, array.slot,
                                    plait_fft_item_bytes(f, f->is_to_real), &zeros));
        PLAIT_TRY(plait_plan_move(f->plan, &zeros));
    }
    if (has_exchange) {
        PLAIT_TRY(plait_plan_fence(f->plan));
    }
done:
    plait_move_clear(&zeros);
    return status;
}
