#include "fft/device.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "fft/device_kernels.h"
#include "fft/slots.h"

#include <string.h>

enum {
    MAX_GROUP = 3, /* axes of one call */
    GRAIN = 256,   /* bytes between parts of the scratch */
    /* Bytes that a copy moves while the host makes a call: 3 us, 2 TB/s. From data sheets, not measured. */
    LAUNCH_BYTES = 6 << 20
};

/* A local array: its shape, and its strides in elements. */
typedef struct {
    int ndim, slot;
    bool is_real;
    int64_t shape[PLAIT_MAX_NDIM], stored[PLAIT_MAX_NDIM], stride[PLAIT_MAX_NDIM];
    int64_t n_stored;
} array_t;

/* Strides of the stored array, with the axes [first, end) in front of the others. */
static void set_strides(array_t *array, int first, int end)
{
    array->n_stored = 1;
    for (int i = 0; i < 2; i++) {
        for (int a = array->ndim - 1; a >= 0; a--) {
            if ((a >= first && a < end) == (i == 1)) {
                array->stride[a] = array->n_stored;
                array->n_stored *= array->stored[a];
            }
        }
    }
}

/* moved: the axis that comes first, or -1. */
static array_t array_of(const plait_fft_t *f, const plait_layout_t *layout,
                        bool is_real, int slot, int moved)
{
    array_t array = {.ndim = layout->ndim, .slot = slot, .is_real = is_real};

    plait_layout_local_shape(layout, f->plan->rank, array.shape);
    plait_layout_stored_shape(layout, f->plan->rank, array.stored);
    set_strides(&array, moved, moved + 1);
    return array;
}

static bool is_empty(const array_t *array)
{
    bool is_empty = false;

    for (int a = 0; a < array->ndim; a++) {
        is_empty = is_empty || array->shape[a] == 0;
    }
    return is_empty;
}

/* All elements, with their places at the source and at the destination. */
static plait_box_copy_t box_between(const plait_fft_t *f, const array_t *in,
                                    const array_t *out)
{
    const int64_t n_bytes = plait_fft_item_bytes(f, in->is_real);
    plait_box_copy_t box = {.n_dims = in->ndim, .row_bytes = n_bytes};

    for (int a = 0; a < in->ndim; a++) {
        box.count[a] = in->shape[a];
        box.src_stride[a] = in->stride[a] * n_bytes;
        box.dst_stride[a] = out->stride[a] * n_bytes;
    }
    plait_box_simplify(&box);
    return box;
}

/* All elements of one array, for the checker. */
static plait_box_copy_t box_of(const plait_fft_t *f, const array_t *array)
{
    return box_between(f, array, array);
}

/* The array with room for two numbers in the place of each number. */
static array_t spread_of(const array_t *array)
{
    array_t spread = *array;

    spread.n_stored *= 2;
    for (int a = 0; a < array->ndim; a++) {
        spread.stride[a] *= 2;
    }
    return spread;
}

/* ------------------------------------------------------------------ one call */

/* Loops over the axes that a call does not transform: as few as possible. The longest loop is the library's
 * own. Strides in elements. */
static void set_loops(const array_t *in, const array_t *out, int first, int end,
                      plait_fft_call_t *call)
{
    int64_t count[PLAIT_MAX_NDIM], src[PLAIT_MAX_NDIM], dst[PLAIT_MAX_NDIM];
    int n = 0;
    int best = -1;

    for (int a = 0; a < in->ndim; a++) {
        if ((a >= first && a < end) || in->shape[a] == 1) {
            continue;
        }
        bool goes_on = n > 0 && src[n - 1] == in->shape[a] * in->stride[a] &&
                       dst[n - 1] == in->shape[a] * out->stride[a];
        n -= goes_on;
        count[n] = in->shape[a] * (goes_on ? count[n] : 1);
        src[n] = in->stride[a];
        dst[n] = out->stride[a];
        n++;
    }
    for (int i = 0; i < n; i++) {
        best = (best < 0 || count[i] > count[best]) ? i : best;
    }
    call->fft.n_batch = (best >= 0) ? count[best] : 1;
    call->fft.in_distance = (best >= 0) ? src[best] : in->n_stored;
    call->fft.out_distance = (best >= 0) ? dst[best] : out->n_stored;
    for (int i = 0; i < n; i++) {
        if (i != best) {
            call->count[call->n_loops] = count[i];
            call->src_stride[call->n_loops] = src[i];
            call->dst_stride[call->n_loops] = dst[i];
            call->n_loops++;
        }
    }
}

static void set_fft(const array_t *in, const array_t *out, int first, int end,
                    plait_device_fft_t *fft)
{
    fft->ndim = end - first;
    fft->in_stride = in->stride[end - 1];
    fft->out_stride = out->stride[end - 1];
    for (int i = 0; i < fft->ndim; i++) {
        fft->n[i] =
            plait_max(in->shape[first + i], out->shape[first + i]); /* real: n */
        fft->in_embed[i] = in->stored[first + i];
        fft->out_embed[i] = out->stored[first + i];
    }
}

/* Whether one of the loops advances by an odd number of real numbers. At the start of each call, libraries want
 * real numbers to lie where a complex number may begin. */
static bool has_odd_loops(const array_t *in, const array_t *out,
                          const plait_fft_call_t *call)
{
    bool is_odd = false;

    for (int i = 0; i < call->n_loops; i++) {
        is_odd = is_odd || (in->is_real && call->src_stride[i] % 2 != 0) ||
                 (out->is_real && call->dst_stride[i] % 2 != 0);
    }
    return is_odd;
}

/* Strides and loops of all axes, from one array to another. */
static void set_call(const array_t *in, const array_t *out, int first, int end,
                     plait_fft_call_t *call)
{
    call->n_loops = 0;
    set_fft(in, out, first, end, &call->fft);
    set_loops(in, out, first, end, call);
}

/* The operand or the result goes through scratch. */
static void add_scratch(const plait_fft_t *f, const array_t *in, const array_t *from,
                        const array_t *to, const array_t *out, plait_fft_call_t *call)
{
    call->is_from_scratch = from != in;
    call->is_to_scratch = to != out;
    if (call->is_from_scratch) {
        call->bring = box_between(f, in, from);
        call->n_scratch = from->n_stored * plait_fft_item_bytes(f, from->is_real);
    }
    if (call->is_to_scratch) {
        call->take = box_between(f, to, out);
        call->n_scratch = plait_max(
            call->n_scratch, to->n_stored * plait_fft_item_bytes(f, to->is_real));
    }
}

/* Puts real numbers that the library would not take into scratch, with room for two numbers for each. */
static void spread_real(const plait_fft_t *f, const array_t *in, const array_t *out,
                        int first, int end, plait_fft_call_t *call)
{
    const array_t spread = spread_of(in->is_real ? in : out);
    const array_t *from = in->is_real ? &spread : in;
    const array_t *to = out->is_real ? &spread : out;

    set_call(from, to, first, end, call);
    add_scratch(f, in, from, to, out, call);
}

/* Whether launching all calls takes longer than three launches and two more passes over memory. */
static bool is_bound_by_launches(const plait_fft_call_t *call)
{
    const int64_t n_calls = plait_fft_call_count(call);
    const int64_t n_bytes = plait_box_bytes(&call->dst);

    return (n_calls - 3) * LAUNCH_BYTES > 3 * n_bytes;
}

/* Transforms in scratch, without gaps. The call's axes come first, or stay the last ones, so that one call does
 * all lines. */
static void gather_lines(const plait_fft_t *f, const array_t *in, const array_t *out,
                         int first, int end, plait_fft_call_t *call)
{
    array_t lines = *in;

    memcpy(lines.stored, lines.shape, sizeof(lines.stored));
    set_strides(&lines, first, (end < in->ndim) ? end : first);
    set_call(&lines, &lines, first, end, call);
    add_scratch(f, in, &lines, &lines, out, call);
}

static void set_arrays(const plait_fft_t *f, const array_t *in, const array_t *out,
                       int first, int end, plait_fft_call_t *call)
{
    set_call(in, out, first, end, call);
    if (has_odd_loops(in, out, call)) {
        spread_real(f, in, out, first, end, call);
    } else if (call->fft.kind == PLAIT_DEVICE_FFT_C2C && is_bound_by_launches(call)) {
        gather_lines(f, in, out, first, end, call);
    }
}

/* Makes the library's plan. Its memory is part of this plan's scratch. */
static plait_status_t plan_call(plait_fft_t *f, plait_fft_call_t *call)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = f->plan->device;
    int64_t work_bytes = 0;

    PLAIT_TRY(device->table->enter(device));
    status = device->table->fft_plan(device, &call->fft, &work_bytes);
    device->table->leave(device);
    call->scratch_at = (work_bytes + GRAIN - 1) / GRAIN * GRAIN;
    plait_plan_need_scratch(f->plan, call->scratch_at + call->n_scratch);
done:
    return status;
}

/* Adds a call that transforms axes [first, end) of an array. */
static plait_status_t add_call(plait_fft_t *f, plait_device_fft_kind_t kind,
                               const array_t *in, const array_t *out, int first,
                               int end, int sign)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_call_t *call = plait_alloc(1, sizeof(*call));

    PLAIT_CHECK(call != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    *call = (plait_fft_call_t){.fft = {.kind = kind, .dtype = f->dtype, .sign = sign},
                               .rank = f->plan->rank,
                               .src_slot = in->slot,
                               .dst_slot = out->slot,
                               .src_bytes = plait_fft_item_bytes(f, in->is_real),
                               .dst_bytes = plait_fft_item_bytes(f, out->is_real),
                               .src = box_of(f, in),
                               .dst = box_of(f, out)};
    set_arrays(f, in, out, first, end, call);
    PLAIT_TRY(plan_call(f, call));
    plait_fft_call_t *moved = call;
    call = NULL;
    PLAIT_TRY(plait_plan_kernel(f->plan, &plait_fft_call_kernel, moved));
done:
    plait_free(call);
    return status;
}

/* ------------------------------------------------------------------ a stage */

static unsigned bits(int first, int end)
{
    return ((1U << (end - first)) - 1) << first;
}

/* The last adjacent axes in `axes`, as many as one call takes: as [*first_p, *end_p), and as bits. */
static unsigned last_group(unsigned axes, int *first_p, int *end_p)
{
    int last = 31 - __builtin_clz(axes);
    int first = last;

    while (first > 0 && (axes & (1U << (first - 1))) != 0 &&
           last - first + 1 < MAX_GROUP) {
        first--;
    }
    *first_p = first;
    *end_p = last + 1;
    return bits(first, last + 1);
}

/* Transforms complex numbers along `axes`. The first call brings them to `out`; the other calls work in
 * place. */
static plait_status_t add_complex(plait_fft_t *f, const array_t *in, const array_t *out,
                                  unsigned axes)
{
    plait_status_t status = PLAIT_OK;

    while (axes != 0) {
        int first = 0;
        int end = 0;
        axes &= ~last_group(axes, &first, &end);
        PLAIT_TRY(
            add_call(f, PLAIT_DEVICE_FFT_C2C, in, out, first, end, (int)f->p->sign));
        in = out;
    }
done:
    return status;
}

/* Multiplies the numbers of the halved axis, except 0 and n / 2, by `weight`. Conjugates all numbers if the
 * library's only direction is not the transform's. */
static plait_status_t add_weight(plait_fft_t *f, const array_t *array, double weight,
                                 bool conjugates)
{
    plait_status_t status = PLAIT_OK;
    const plait_fft_half_t *half = &f->path.half;
    const int64_t inner = array->stride[half->axis];
    const int64_t n_half = array->stored[half->axis];
    const int64_t n_middle = (half->n - 1) / 2;
    plait_fft_weight_t *w = NULL;

    if ((weight == 1 || n_middle == 0) && !conjugates) {
        goto done;
    }
    w = plait_alloc(1, sizeof(*w));
    PLAIT_CHECK(w != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    *w = (plait_fft_weight_t){.rank = f->plan->rank,
                              .slot = array->slot,
                              .dtype = f->dtype,
                              .weight = (n_middle > 0) ? weight : 1,
                              .conjugates = conjugates,
                              .n = array->n_stored,
                              .item_bytes = f->item_bytes,
                              .middle = inner * f->item_bytes,
                              .all = box_of(f, array),
                              .part = {.n_dims = 1,
                                       .count = {array->n_stored / (n_half * inner)},
                                       .src_stride = {n_half * inner * f->item_bytes},
                                       .dst_stride = {n_half * inner * f->item_bytes},
                                       .row_bytes = n_middle * inner * f->item_bytes}};
    plait_plan_need_scratch(f->plan, w->n * w->item_bytes);
    plait_fft_weight_t *moved = w;
    w = NULL;
    PLAIT_TRY(plait_plan_kernel(f->plan, &plait_fft_weight_kernel, moved));
done:
    plait_free(w);
    return status;
}

/* Real numbers to complex numbers: first the halved axis together with axes before it, then the other axes. */
static plait_status_t add_from_real(plait_fft_t *f, const array_t *in,
                                    const array_t *out, unsigned axes)
{
    plait_status_t status = PLAIT_OK;
    const int half = f->path.half.axis;
    const unsigned before = (axes | 1U << half) & bits(0, half + 1);
    const double weight = (f->p->weight == 0) ? 1 : f->p->weight;
    int first = 0;
    int end = 0;

    const unsigned group = last_group(before, &first, &end);
    PLAIT_TRY(add_call(f, PLAIT_DEVICE_FFT_R2C, in, out, first, end, -1));
    PLAIT_TRY(add_weight(f, out, weight, f->p->sign > 0));
    PLAIT_TRY(add_complex(f, out, out, axes & ~group));
done:
    return status;
}

/* Copies the operand, which transforms to real numbers would destroy. */
static plait_status_t add_copy(plait_fft_t *f, array_t *array)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_bytes = array->n_stored * plait_fft_item_bytes(f, array->is_real);
    plait_move_t move = {0};
    plait_block_t block = {
        .peer = f->plan->rank, .src_slot = array->slot, .box = {.row_bytes = n_bytes}};

    PLAIT_TRY(plait_plan_add_work(f->plan, n_bytes, &block.dst_slot));
    PLAIT_TRY(plait_move_add_in(&move, &block));
    PLAIT_TRY(plait_plan_move(f->plan, &move));
    array->slot = block.dst_slot;
done:
    plait_move_clear(&move);
    return status;
}

/* Complex numbers to real numbers: the halved axis last, and alone. In a call with more axes, lines would have
 * to be conjugates of each other; in derivatives they are not. */
static plait_status_t add_to_real(plait_fft_t *f, array_t *in, const array_t *out,
                                  unsigned axes)
{
    plait_status_t status = PLAIT_OK;
    const int half = f->path.half.axis;
    const double weight = (f->p->weight == 0) ? 1 : f->p->weight / 2;

    if (in->slot == plait_slot_arg(f->plan, 0)) {
        PLAIT_TRY(add_copy(f, in));
    }
    if (!is_empty(in)) {
        PLAIT_TRY(add_complex(f, in, in, axes));
        PLAIT_TRY(add_weight(f, in, weight, f->p->sign < 0));
        PLAIT_TRY(add_call(f, PLAIT_DEVICE_FFT_C2R, in, out, half, half + 1, 1));
    }
done:
    return status;
}

/* Scales the result, after the last transform. */
static plait_status_t add_scale(plait_fft_t *f, const array_t *out, int n_done)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_scale_t *scale = NULL;
    const plait_dtype_t real = (f->dtype == PLAIT_C64) ? PLAIT_F32 : PLAIT_F64;

    f->n_left -= n_done;
    if (f->n_left > 0 || f->p->scale == 1 || is_empty(out)) {
        goto done;
    }
    scale = plait_alloc(1, sizeof(*scale));
    PLAIT_CHECK(scale != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    *scale = (plait_fft_scale_t){.rank = f->plan->rank,
                                 .slot = out->slot,
                                 .dtype = out->is_real ? real : f->dtype,
                                 .n = out->n_stored,
                                 .factor = f->p->scale,
                                 .all = box_of(f, out)};
    plait_fft_scale_t *moved = scale;
    scale = NULL;
    PLAIT_TRY(plait_plan_kernel(f->plan, &plait_fft_scale_kernel, moved));
done:
    plait_free(scale);
    return status;
}

plait_status_t plait_fft_device_stage(plait_fft_t *f, const plait_layout_t *from,
                                      const plait_fft_stage_t *stage, int src_slot)
{
    plait_status_t status = PLAIT_OK;
    const bool to_complex = f->path.half.to_complex;
    const unsigned axes = stage->axes;
    array_t in = array_of(f, from, stage->has_half && to_complex, src_slot, -1);
    array_t out = array_of(f, &stage->layout, stage->is_real, stage->slot, -1);

    if (stage->has_half && !to_complex) {
        PLAIT_TRY(add_to_real(f, &in, &out, axes));
    } else if (!is_empty(&in)) {
        PLAIT_TRY(stage->has_half ? add_from_real(f, &in, &out, axes)
                                  : add_complex(f, &in, &out, axes));
    }
    PLAIT_TRY(add_scale(f, &out, __builtin_popcount(axes) + stage->has_half));
done:
    return status;
}

plait_status_t plait_fft_device_axis(plait_fft_t *f, const plait_fft_stage_t *stage)
{
    plait_status_t status = PLAIT_OK;
    const array_t array = array_of(f, &stage->layout, false, stage->slot, stage->moved);

    if (!is_empty(&array)) {
        PLAIT_TRY(add_complex(f, &array, &array, 1U << stage->t));
    }
    PLAIT_TRY(add_scale(f, &array, 1));
done:
    return status;
}

static bool is_local(const plait_fft_stage_t *stage)
{
    return !stage->is_exchange && stage->view == PLAIT_FFT_SAME;
}

void plait_fft_device_merge(plait_fft_path_t *path)
{
    int n = 0;

    for (int i = 0; i < path->n_stages; i++) {
        const plait_fft_stage_t *stage = &path->stages[i];
        plait_fft_stage_t *before = (n > 0) ? &path->stages[n - 1] : NULL;
        if (before != NULL && is_local(before) && is_local(stage)) {
            before->axes |= stage->axes;
            before->has_half = before->has_half || stage->has_half;
            before->is_real = stage->is_real;
            before->layout = stage->layout;
        } else {
            path->stages[n++] = *stage;
        }
    }
    path->n_stages = n;
}
