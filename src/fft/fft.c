/* Complex transforms along any axes of an array in any layout.
 *
 * Axes that every rank has whole are transformed locally; then, while a split axis is left,
 * its split moves to an axis that is done (or not asked for), and it is transformed as it
 * arrives. For three axes split over one grid axis that is the slab algorithm, over two the
 * pencil algorithm; the inverse along the reversed layouts walks the same path back. With
 * direct access each move is fused with the transform that follows it.
 * Source: slab and pencil decompositions, e.g. Pekurovsky, SIAM J. Sci. Comput. 34(4), 2012;
 * fused passes: own. */
#include "base/alloc.h"
#include "base/checked.h"
#include "fft/params.h"
#include "fft/pass.h"
#include "kernel/cpu.h"
#include "layout/coords.h"
#include "plan/op.h"
#include "redist/blocks.h"
#include "redist/params.h"

#include <string.h>

static const plait_attr_t fft_attrs[] = {
    PLAIT_ATTR_ARRAY(plait_fft_params_t, from),
    PLAIT_ATTR_ARRAY(plait_fft_params_t, to),
    PLAIT_ATTR_ARRAY(plait_fft_params_t, axes),
    PLAIT_ATTR(plait_fft_params_t, sign),
    PLAIT_ATTR_FLOAT(plait_fft_params_t, scale),
    PLAIT_ATTR_END,
};

/* A local transform of some axes, or a move to `layout` with the transform of axis t. */
typedef struct {
    bool is_exchange;
    int t;         /* -1: a move alone */
    unsigned axes; /* local transforms, bit per axis */
    plait_layout_t layout;
    int slot; /* where its result goes */
} stage_t;

enum { MAX_STAGES = 2 * PLAIT_MAX_NDIM + 2 };

typedef struct {
    const plait_fft_params_t *p;
    plait_plan_t *plan;
    plait_dtype_t dtype;
    int64_t item_bytes;
    plait_layout_t from, to;
    int n_stages;
    stage_t stages[MAX_STAGES];
    int n_left; /* transforms not yet created: the last one carries the scale */
} fft_t;

/* ------------------------------------------------------------------ the path */

static int n_parts(const plait_layout_t *layout, int axis)
{
    int n = 1;

    for (int i = 0; i < layout->axis[axis].n_grid; i++) {
        n *= layout->grid[layout->axis[axis].grid_axis[i]];
    }
    return n;
}

/* A split into one part is none: equal distributions then compare equal. */
static void normalize(plait_layout_t *layout)
{
    for (int a = 0; a < layout->ndim; a++) {
        if (n_parts(layout, a) == 1) {
            layout->axis[a] = (plait_axis_t){.split = PLAIT_SPLIT_WHOLE};
        }
    }
}

static unsigned whole_axes(const plait_layout_t *layout)
{
    unsigned axes = 0;

    for (int a = 0; a < layout->ndim; a++) {
        axes |= (n_parts(layout, a) == 1) ? 1U << a : 0;
    }
    return axes;
}

static bool same_split(const plait_axis_t *a, const plait_axis_t *b)
{
    return a->n_grid == b->n_grid &&
           memcmp(a->grid_axis, b->grid_axis, (size_t)a->n_grid * sizeof(int)) == 0;
}

/* The axis that takes over the split of t: one that is whole and not to be transformed any
 * more; best the one that `to` wants split so, else the longest. -1: none. */
static int choose_taker(const fft_t *f, const plait_layout_t *layout, int t,
                        unsigned todo)
{
    int best = -1;

    for (int a = 0; a < layout->ndim; a++) {
        bool is_free = n_parts(layout, a) == 1 && (todo & (1U << a)) == 0;
        if (is_free && same_split(&f->to.axis[a], &layout->axis[t])) {
            return a;
        }
        if (is_free && (best < 0 || layout->shape[a] > layout->shape[best])) {
            best = a;
        }
    }
    return best;
}

/* The split axis to do next: one whose split has a place to go in `to`, else the last. */
static int choose_next(const fft_t *f, const plait_layout_t *layout, unsigned todo)
{
    int next = -1;

    for (int t = 0; t < layout->ndim; t++) {
        if ((todo & (1U << t)) != 0) {
            int taker = choose_taker(f, layout, t, todo);
            next = t;
            if (taker >= 0 && same_split(&f->to.axis[taker], &layout->axis[t])) {
                break;
            }
        }
    }
    return next;
}

/* Without a taker the axis becomes whole on every rank: correct, not scalable; happens only
 * where no axis is free, as for a one-dimensional array. */
static plait_layout_t move_split(const fft_t *f, const plait_layout_t *layout, int t,
                                 unsigned todo)
{
    plait_layout_t moved = *layout;
    int taker = choose_taker(f, layout, t, todo);

    if (taker >= 0) {
        bool is_wanted = same_split(&f->to.axis[taker], &layout->axis[t]);
        moved.axis[taker] = is_wanted ? f->to.axis[taker] : layout->axis[t];
    }
    moved.axis[t] = (plait_axis_t){.split = PLAIT_SPLIT_WHOLE};
    return moved;
}

static stage_t *add_stage(fft_t *f)
{
    stage_t *stage = &f->stages[f->n_stages++];

    *stage = (stage_t){.t = -1, .slot = -1};
    return stage;
}

static void find_path(fft_t *f)
{
    plait_layout_t layout = f->from;
    unsigned todo = 0;

    for (int64_t i = 0; i < f->p->n_axes; i++) {
        todo |= 1U << f->p->axes[i];
    }
    unsigned now = todo & whole_axes(&layout);
    if (now != 0) {
        stage_t *stage = add_stage(f);
        stage->axes = now;
        stage->layout = layout;
        todo &= ~now;
    }
    while (todo != 0) {
        int t = choose_next(f, &layout, todo);
        layout = move_split(f, &layout, t, todo);
        stage_t *stage = add_stage(f);
        stage->is_exchange = true;
        stage->t = t;
        stage->layout = layout;
        todo &= ~(1U << t);
    }
    /* A lone exchange could not be in place: it goes through a work buffer. */
    bool is_lone = f->n_stages == 1 && f->stages[0].is_exchange;
    if (is_lone || !plait_layout_equal(&layout, &f->to)) {
        stage_t *stage = add_stage(f);
        stage->is_exchange = true;
        stage->layout = f->to;
    }
}

/* ------------------------------------------------------------------ buffers */

/* Bytes of the largest local array of a layout, and whether every rank's fits where its
 * result goes. Slot numbers must be equal on all ranks: peers read them. */
static int64_t local_bytes(const fft_t *f, const plait_layout_t *layout, int rank)
{
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t n_bytes = f->item_bytes;

    plait_layout_local_shape(layout, rank, shape);
    for (int a = 0; a < layout->ndim; a++) {
        n_bytes *= shape[a];
    }
    return n_bytes;
}

static bool fits_result(const fft_t *f, const plait_layout_t *layout)
{
    bool fits = true;

    for (int r = 0; r < f->plan->n_ranks && fits; r++) {
        fits = local_bytes(f, layout, r) <= local_bytes(f, &f->to, r);
    }
    return fits;
}

/* From the last stage, which writes the result, backwards: stages alternate between result
 * and one work buffer. A result that the operand may share memory with is not the place for
 * a first exchange, nor is one that is too small on some rank; these get a second buffer. */
static plait_status_t assign_slots(fft_t *f)
{
    plait_status_t status = PLAIT_OK;
    int work[2] = {-1, -1};
    int64_t work_bytes[2] = {0, 0};
    int ret = plait_slot_ret(f->plan, 0);

    for (int i = f->n_stages - 1; i >= 0; i--) {
        stage_t *stage = &f->stages[i];
        bool wants_ret = (f->n_stages - 1 - i) % 2 == 0;
        bool takes_ret = wants_ret &&
                         (i == f->n_stages - 1 || fits_result(f, &stage->layout)) &&
                         !(i == 0 && stage->is_exchange && f->n_stages > 1);
        if (takes_ret) {
            stage->slot = ret;
        } else {
            int which = wants_ret; /* a stage that could not have the result */
            work_bytes[which] = plait_max(
                work_bytes[which], local_bytes(f, &stage->layout, f->plan->rank));
            stage->slot = -2 - which;
        }
    }
    for (int i = 0; i < f->n_stages; i++) {
        stage_t *stage = &f->stages[i];
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

/* ------------------------------------------------------------------ the passes */

static plait_status_t make_fft1(fft_t *f, int64_t n, plait_fft1_t **fft_p)
{
    f->n_left--;
    return plait_fft1_create(n, f->dtype, (int)f->p->sign,
                             (f->n_left == 0) ? f->p->scale : 1.0, fft_p);
}

/* Past the cache where the processor gains by it, and only data that will have left the cache
 * before they are used again. */
static plait_fft_store_t store_of(const fft_t *f, const plait_layout_t *layout)
{
    int64_t n_bytes = 2 * local_bytes(f, layout, f->plan->rank) * f->plan->n_ranks;

    return (plait_cpu_streams() && n_bytes > plait_host_cache_bytes())
               ? PLAIT_FFT_STREAM
               : PLAIT_FFT_STORE;
}

/* A pass over the local array of `layout` with planes (t, last axis); pieces are filled in
 * by the caller. t < 0: rows only, planes are (the axis before the last, last). */
static plait_status_t new_pass(const fft_t *f, const plait_layout_t *layout, int t,
                               int slot, int n_pieces, plait_pass_t **pass_p)
{
    plait_status_t status = PLAIT_OK;
    plait_pass_t *pass = plait_alloc(1, sizeof(*pass));
    int ndim = layout->ndim;
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t stride[PLAIT_MAX_NDIM];

    PLAIT_CHECK(pass != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    pass->pieces = plait_alloc(n_pieces, sizeof(*pass->pieces));
    PLAIT_CHECK(pass->pieces != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    plait_layout_local_shape(layout, f->plan->rank, shape);
    plait_row_major_strides(f->from.ndim, shape, f->item_bytes, stride);
    t = (t >= 0) ? t : ndim - 2;
    pass->n_t = (t >= 0) ? shape[t] : 1;
    pass->n_w = shape[ndim - 1];
    pass->item_bytes = f->item_bytes;
    pass->dst_slot = slot;
    pass->dst_t_stride = (t >= 0) ? stride[t] : 0;
    for (int a = 0; a < ndim - 1; a++) {
        if (a != t) {
            pass->outer_count[pass->n_outer] = shape[a];
            pass->dst_outer_stride[pass->n_outer] = stride[a];
            pass->n_outer++;
        }
    }
    pass->store = store_of(f, layout);
    *pass_p = pass;
    pass = NULL;
done:
    plait_pass_destroy(&pass);
    return status;
}

/* Planes of this rank's own buffer `slot`, in the layout of the pass itself. */
static void set_own_piece(const fft_t *f, plait_pass_t *pass, int slot)
{
    plait_piece_t *piece = &pass->pieces[0];

    pass->n_pieces = 1;
    *piece = (plait_piece_t){.peer = f->plan->rank,
                             .slot = slot,
                             .n_t = pass->n_t,
                             .t_stride = pass->dst_t_stride};
    memcpy(piece->outer_stride, pass->dst_outer_stride, sizeof(piece->outer_stride));
}

/* Transforms `axes` of the local array: rows and the columns of one axis in one pass, every
 * further axis in a pass of its own, in place. */
static plait_status_t add_local(fft_t *f, const plait_layout_t *layout, unsigned axes,
                                int src_slot, int dst_slot)
{
    plait_status_t status = PLAIT_OK;
    plait_pass_t *pass = NULL;
    int last = layout->ndim - 1;

    while (axes != 0) {
        bool has_rows = (axes & (1U << last)) != 0;
        int t = -1;
        for (int a = 0; a < last; a++) {
            t = ((axes & (1U << a)) != 0)
                    ? a
                    : t; /* the closest to the last: smallest planes */
        }
        PLAIT_TRY(new_pass(f, layout, t, dst_slot, 1, &pass));
        set_own_piece(f, pass, src_slot);
        if (src_slot == dst_slot) {
            pass->store = PLAIT_FFT_STORE; /* the lines are in the cache already */
        }
        if (has_rows) {
            PLAIT_TRY(make_fft1(f, layout->shape[last], &pass->rows));
        }
        if (t >= 0) {
            PLAIT_TRY(make_fft1(f, layout->shape[t], &pass->columns));
        }
        PLAIT_TRY(plait_pass_add(f->plan, &pass));
        axes &= ~(1U << last);
        axes &= (t >= 0) ? ~(1U << t) : ~0U;
        src_slot = dst_slot;
    }
done:
    plait_pass_destroy(&pass);
    return status;
}

/* The piece of every peer that this rank's part of `to` meets: the whole of it along all
 * axes but t, since only t and the axis that took its split differ. */
static plait_status_t set_pieces(const fft_t *f, plait_pass_t *pass,
                                 const plait_layout_t *from, const plait_layout_t *to,
                                 int t, int slot)
{
    plait_status_t status = PLAIT_OK;
    int rank = f->plan->rank;
    int replica = plait_layout_replica(from, rank);
    plait_overlaps_t overlaps[PLAIT_MAX_NDIM] = {{0}};

    for (int peer = 0; peer < f->plan->n_ranks; peer++) {
        int64_t shape[PLAIT_MAX_NDIM];
        int64_t stride[PLAIT_MAX_NDIM];
        plait_piece_t piece = {.peer = peer, .slot = slot};
        bool is_empty = plait_layout_replica(from, peer) != replica;
        int d = 0;
        plait_layout_local_shape(from, peer, shape);
        plait_row_major_strides(f->from.ndim, shape, f->item_bytes, stride);
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

/* Fused where the kernel can gather: direct access, contiguous parts, and t is not the fast
 * axis, so that lanes are contiguous elements. */
static bool is_fusable(const fft_t *f, const plait_layout_t *from, const stage_t *stage)
{
    bool is_fusable = f->plan->direct != PLAIT_DIRECT_NONE && stage->t >= 0 &&
                      stage->t < from->ndim - 1;

    for (int a = 0; a < from->ndim; a++) {
        is_fusable = is_fusable && from->axis[a].split != PLAIT_SPLIT_CYCLIC &&
                     stage->layout.axis[a].split != PLAIT_SPLIT_CYCLIC;
    }
    return is_fusable;
}

static plait_status_t add_exchange(fft_t *f, const plait_layout_t *from, int src_slot,
                                   const stage_t *stage)
{
    plait_status_t status = PLAIT_OK;
    plait_pass_t *pass = NULL;
    plait_move_t move = {0};

    PLAIT_TRY(plait_plan_fence(f->plan));
    if (is_fusable(f, from, stage)) {
        PLAIT_TRY(new_pass(f, &stage->layout, stage->t, stage->slot, f->plan->n_ranks,
                           &pass));
        PLAIT_TRY(set_pieces(f, pass, from, &stage->layout, stage->t, src_slot));
        PLAIT_TRY(make_fft1(f, stage->layout.shape[stage->t], &pass->columns));
        PLAIT_TRY(plait_pass_add(f->plan, &pass));
    } else {
        PLAIT_TRY(plait_redist_move(f->plan, from, src_slot, &stage->layout,
                                    stage->slot, f->item_bytes, &move));
        PLAIT_TRY(plait_plan_move(f->plan, &move));
        if (stage->t >= 0) {
            PLAIT_TRY(
                add_local(f, &stage->layout, 1U << stage->t, stage->slot, stage->slot));
        }
    }
done:
    plait_pass_destroy(&pass);
    plait_move_clear(&move);
    return status;
}

static plait_status_t add_stages(fft_t *f)
{
    plait_status_t status = PLAIT_OK;
    const plait_layout_t *layout = &f->from;
    int slot = plait_slot_arg(f->plan, 0);
    bool has_exchange = false;

    for (int i = 0; i < f->n_stages; i++) {
        const stage_t *stage = &f->stages[i];
        if (stage->is_exchange) {
            PLAIT_TRY(add_exchange(f, layout, slot, stage));
        } else {
            PLAIT_TRY(add_local(f, &stage->layout, stage->axes, slot, stage->slot));
        }
        has_exchange = has_exchange || stage->is_exchange;
        layout = &stage->layout;
        slot = stage->slot;
    }
    if (has_exchange) {
        PLAIT_TRY(plait_plan_fence(f->plan));
    }
done:
    return status;
}

/* ------------------------------------------------------------------ the operation */

static plait_status_t check(const fft_t *f, const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    const plait_fft_params_t *p = f->p;
    unsigned seen = 0;

    PLAIT_CHECK(f->dtype == PLAIT_C64 || f->dtype == PLAIT_C128, PLAIT_ERR_INVALID,
                "fft: operand is %s, expected complex64 or complex128",
                plait_dtype_name(f->dtype));
    PLAIT_CHECK(problem->rets[0].dtype == f->dtype, PLAIT_ERR_INVALID,
                "fft: operand is %s, result is %s", plait_dtype_name(f->dtype),
                plait_dtype_name(problem->rets[0].dtype));
    PLAIT_CHECK(f->from.ndim == f->to.ndim &&
                    memcmp(f->from.shape, f->to.shape,
                           (size_t)f->from.ndim * sizeof(int64_t)) == 0 &&
                    f->from.grid_ndim == f->to.grid_ndim &&
                    memcmp(f->from.grid, f->to.grid,
                           (size_t)f->from.grid_ndim * sizeof(int)) == 0,
                PLAIT_ERR_INVALID,
                "fft: the two layouts differ in global shape or grid");
    PLAIT_CHECK(p->n_axes >= 1, PLAIT_ERR_INVALID, "fft: no axes to transform");
    for (int64_t i = 0; i < p->n_axes; i++) {
        PLAIT_CHECK(p->axes[i] >= 0 && p->axes[i] < f->from.ndim, PLAIT_ERR_INVALID,
                    "fft: axis %lld of an array with %d axes", (long long)p->axes[i],
                    f->from.ndim);
        PLAIT_CHECK((seen & (1U << p->axes[i])) == 0, PLAIT_ERR_INVALID,
                    "fft: axis %lld is named twice", (long long)p->axes[i]);
        PLAIT_CHECK(f->from.shape[p->axes[i]] > 0, PLAIT_ERR_INVALID,
                    "fft: axis %lld has length 0", (long long)p->axes[i]);
        seen |= 1U << p->axes[i];
    }
    PLAIT_CHECK(p->sign == -1 || p->sign == 1, PLAIT_ERR_INVALID,
                "fft: sign is %lld, expected -1 or 1", (long long)p->sign);
    PLAIT_TRY(plait_layout_fits(&f->from, problem, &problem->args[0], "fft operand"));
    PLAIT_TRY(plait_layout_fits(&f->to, problem, &problem->rets[0], "fft result"));
done:
    return status;
}

static void agree(const fft_t *f)
{
    uint64_t scale = 0;

    plait_layout_agree(f->plan, &f->from);
    plait_layout_agree(f->plan, &f->to);
    for (int64_t i = 0; i < f->p->n_axes; i++) {
        plait_plan_agree(f->plan, (uint64_t)f->p->axes[i]);
    }
    memcpy(&scale, &f->p->scale, sizeof(scale));
    plait_plan_agree(f->plan, scale);
    plait_plan_agree(f->plan, (uint64_t)f->p->sign);
    plait_plan_agree(f->plan, f->dtype);
}

static plait_status_t fft_plan(const void *params, const plait_problem_t *problem,
                               plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    fft_t f = {.p = params, .dtype = problem->args[0].dtype};
    char from_text[72];
    char to_text[72];

    f.item_bytes = plait_dtype_bytes(f.dtype);
    f.n_left = (int)f.p->n_axes;
    PLAIT_TRY(plait_layout_unpack(f.p->from, f.p->n_from, &f.from));
    PLAIT_TRY(plait_layout_unpack(f.p->to, f.p->n_to, &f.to));
    PLAIT_TRY(check(&f, problem));
    plait_layout_print(&f.from, from_text, sizeof(from_text));
    plait_layout_print(&f.to, to_text, sizeof(to_text));
    PLAIT_TRY(plait_plan_create(
        problem, &f.plan, "fft %s %s %s -> %s", plait_dtype_name(f.dtype),
        (f.p->sign < 0) ? "forward" : "inverse", from_text, to_text));
    agree(&f);
    normalize(&f.from);
    normalize(&f.to);
    find_path(&f);
    PLAIT_TRY(assign_slots(&f));
    PLAIT_TRY(add_stages(&f));
    *plan_p = f.plan;
    f.plan = NULL;
done:
    plait_plan_destroy(&f.plan);
    return status;
}

const plait_op_t plait_op_fft = {
    .name = "fft",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_fft_params_t),
    .attrs = fft_attrs,
    .adjoint = "fft",
    .alias = 0,
    .model = "mesh",
    .doc = "Complex Fourier transform along axes of a distributed array.",
    .plan = fft_plan,
};
