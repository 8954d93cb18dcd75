/* Boxes as launches: each box becomes lanes of one size, and boxes of one kernel share a launch. */
#include "base/checked.h"
#include "base/status.h"
#include "device/box.h"
#include "device/cuda_state.h"

#include <stdbool.h>
#include <string.h>

enum {
    MAX_LANE = 16,
    MIN_TURN = 8,    /* shorter sides leave most of a tile's threads idle */
    MAX_STRETCH = 64 /* boxes that are compared with each other */
};

static const int64_t max_lanes = INT64_C(1) << 31; /* a box has fewer lanes */

/* One kernel, and the boxes that wait for its launch. */
typedef struct {
    plait_cuda_state_t *state;
    plait_stream_t stream;
    plait_cuda_kernel_t kernel;
    int64_t n_blocks;
    plait_cuda_boxes_t table;
} launch_t;

static plait_status_t flush(launch_t *l)
{
    plait_status_t status = PLAIT_OK;

    if (l->table.n_boxes > 0) {
        status =
            plait_cuda_launch(l->state, l->stream, l->kernel, l->n_blocks, &l->table);
    }
    l->table.n_boxes = 0;
    l->n_blocks = 0;
    return status;
}

/* ---- One box -------------------------------------------------------------------------------- */

/* The kernel that a box needs, and how the kernel sees the box. */
typedef struct {
    plait_cuda_kernel_t kernel;
    int64_t lane;
    /* the last two dimensions are turned: the last but one is src's fast dimension */
    bool is_turned;
} choice_t;

/* The largest lane that divides every row of the box. */
static int64_t lane_of(const plait_device_box_t *b)
{
    bool has_src = b->kind != PLAIT_DEVICE_ZERO;
    uint64_t bits = (uint64_t)(uintptr_t)b->dst | (uint64_t)b->box.row_bytes | MAX_LANE;

    bits |= has_src ? (uint64_t)(uintptr_t)b->src : 0;
    for (int d = 0; d < b->box.n_dims; d++) {
        bits |= (uint64_t)b->box.dst_stride[d];
        bits |= has_src ? (uint64_t)b->box.src_stride[d] : 0;
    }
    return (int64_t)(bits & (~bits + 1));
}

static int64_t magnitude(int64_t stride)
{
    return (stride < 0) ? -stride : stride;
}

/* The last dimension of a simple box has the smallest stride of dst. Moves the dimension with the smallest
 * stride of src to just before it. A stride of 0 does not count: it reads one place again and again, which is
 * fast. */
static void sort_for_turn(plait_box_copy_t *box)
{
    const plait_box_copy_t old = *box;
    const int last = box->n_dims - 1;
    int fast = last;

    for (int d = last - 1; d >= 0; d--) {
        bool is_faster = magnitude(old.src_stride[d]) < magnitude(old.src_stride[fast]);
        fast = (is_faster && old.src_stride[d] != 0) ? d : fast;
    }
    for (int d = 0; d < last && fast != last; d++) {
        int from = (d == last - 1) ? fast : (d < fast) ? d : d + 1;
        box->count[d] = old.count[from];
        box->src_stride[d] = old.src_stride[from];
        box->dst_stride[d] = old.dst_stride[from];
    }
}

/* For a box after sort_for_turn. */
static bool is_turn(const plait_box_copy_t *box, int64_t lane)
{
    const int j = box->n_dims - 1, i = j - 1;

    return i >= 0 && box->row_bytes == lane && box->src_stride[i] != 0 &&
           magnitude(box->src_stride[i]) < magnitude(box->src_stride[j]) &&
           box->count[i] >= MIN_TURN && box->count[j] >= MIN_TURN;
}

/* In the list, kernels of a kind for lanes of 1, 2, 4, 8 and 16 bytes follow each other. */
static plait_cuda_kernel_t of_lane(plait_cuda_kernel_t first, int64_t lane)
{
    int k = 0;

    while ((INT64_C(1) << k) < lane) {
        k++;
    }
    return (plait_cuda_kernel_t)((int)first + k);
}

/* A dtype; the two kernels, and the bytes, of the dtype that sums the same way. */
typedef struct {
    plait_dtype_t dtype;
    plait_cuda_kernel_t narrow, wide;
    int64_t bytes;
} sum_t;

#define SUM(_dtype, _of, _bytes)                                                \
    {                                                                           \
        PLAIT_##_dtype, PLAIT_CUDA_ADD_##_of, PLAIT_CUDA_ADD_WIDE_##_of, _bytes \
    }
static const sum_t sums[] = {
    SUM(S8, U8, 1),   SUM(S16, U16, 2),  SUM(S32, U32, 4), SUM(S64, U64, 8),
    SUM(U8, U8, 1),   SUM(U16, U16, 2),  SUM(U32, U32, 4), SUM(U64, U64, 8),
    SUM(F16, F16, 2), SUM(F32, F32, 4),  SUM(F64, F64, 8), SUM(BF16, BF16, 2),
    SUM(C64, F32, 4), SUM(C128, F64, 8),
};

static plait_status_t choose_sum(plait_dtype_t dtype, choice_t *choice)
{
    plait_status_t status = PLAIT_OK;
    const int n = (int)(sizeof(sums) / sizeof(sums[0]));
    int i = 0;

    while (i < n && sums[i].dtype != dtype) {
        i++;
    }
    PLAIT_CHECK(i < n, PLAIT_ERR_INVALID, "CUDA: there is no sum of %s",
                plait_dtype_name(dtype));
    PLAIT_CHECK(choice->lane >= sums[i].bytes, PLAIT_ERR_INVALID,
                "CUDA: elements of %s in a box that is aligned to %lld bytes",
                plait_dtype_name(dtype), (long long)choice->lane);
    choice->kernel = (choice->lane == MAX_LANE) ? sums[i].wide : sums[i].narrow;
    choice->lane = (choice->lane == MAX_LANE) ? MAX_LANE : sums[i].bytes;
done:
    return status;
}

/* The shortest equal description. A place that is written again and again is written once, with the last
 * value. */
static plait_device_box_t simple_of(const plait_device_box_t *b)
{
    plait_device_box_t simple = *b;
    plait_box_copy_t *box = &simple.box;
    const char *src = b->src;

    if (b->kind == PLAIT_DEVICE_ZERO) {
        memcpy(box->src_stride, box->dst_stride, sizeof(box->src_stride));
    }
    for (int d = 0; d < box->n_dims && b->kind != PLAIT_DEVICE_ADD; d++) {
        if (box->dst_stride[d] == 0 && box->count[d] > 1) {
            src += (src != NULL) ? (box->count[d] - 1) * box->src_stride[d] : 0;
            box->count[d] = 1;
        }
    }
    simple.src = src;
    plait_box_simplify(box);
    return simple;
}

/* Makes `simple` of a box and chooses its kernel. */
static plait_status_t choose(plait_dtype_t dtype, const plait_device_box_t *b,
                             plait_device_box_t *simple, choice_t *choice)
{
    plait_status_t status = PLAIT_OK;

    *simple = simple_of(b);
    *choice = (choice_t){.lane = lane_of(simple)};
    if (b->kind == PLAIT_DEVICE_ADD) {
        PLAIT_TRY(choose_sum(dtype, choice));
    } else if (b->kind == PLAIT_DEVICE_ZERO) {
        choice->kernel = of_lane(PLAIT_CUDA_ZERO_1, choice->lane);
    } else {
        plait_device_box_t sorted = *simple;
        sort_for_turn(&sorted.box);
        choice->is_turned = is_turn(&sorted.box, choice->lane);
        *simple = choice->is_turned ? sorted : *simple;
        choice->kernel = of_lane(
            choice->is_turned ? PLAIT_CUDA_TURN_1 : PLAIT_CUDA_COPY_1, choice->lane);
    }
done:
    return status;
}

/* ---- A box as lanes ------------------------------------------------------------------------- */

static int64_t n_lanes_of(const plait_device_box_t *b, int64_t lane)
{
    return plait_box_bytes(&b->box) / lane;
}

/* For l < 2^31, l magic / 2^(31 + s) with s = ceil(log2 n) exceeds l / n by less than 1 / n. Source: Granlund
 * and Montgomery, Division by invariant integers, PLDI 1994. */
static void set_dim(plait_cuda_box_t *to, int d, int64_t n, int64_t src_stride,
                    int64_t dst_stride)
{
    uint32_t s = 0;

    while ((INT64_C(1) << s) < n) {
        s++;
    }
    to->count[d] = (uint32_t)n;
    to->shift[d] = 31 + s;
    to->magic[d] =
        (uint32_t)(((UINT64_C(1) << (31 + s)) + (uint64_t)n - 1) / (uint64_t)n);
    to->src_stride[d] = src_stride;
    to->dst_stride[d] = dst_stride;
}

static int64_t n_blocks_of(const plait_cuda_box_t *box, const choice_t *c)
{
    const int64_t side = PLAIT_CUDA_SIDE(c->lane);
    const int64_t in_block = PLAIT_CUDA_THREADS * PLAIT_CUDA_LANES;
    int64_t n = ((int64_t)box->n_lanes + in_block - 1) / in_block;

    if (c->is_turned) {
        n = 1;
        for (uint32_t d = 0; d < box->n_dims; d++) {
            bool is_tiled = d + 2 >= box->n_dims;
            n *= is_tiled ? ((int64_t)box->count[d] + side - 1) / side : box->count[d];
        }
    }
    return n;
}

/* Adds a box with few enough dimensions and lanes to the boxes that wait. */
static plait_status_t append(launch_t *l, const plait_device_box_t *b,
                             const choice_t *c)
{
    plait_status_t status = PLAIT_OK;
    const plait_box_copy_t *box = &b->box;
    const int64_t n_row = box->row_bytes / c->lane;
    plait_cuda_box_t *to = NULL;
    int n = box->n_dims;

    if (l->table.n_boxes == PLAIT_CUDA_BOXES) {
        PLAIT_TRY(flush(l));
    }
    to = &l->table.box[l->table.n_boxes];
    memset(to, 0, sizeof(*to));
    to->src = b->src;
    to->dst = b->dst;
    for (int d = 0; d < n; d++) {
        set_dim(to, d, box->count[d], box->src_stride[d], box->dst_stride[d]);
    }
    if (n_row > 1 || n == 0) {
        set_dim(to, n, n_row, c->lane, c->lane);
        n++;
    }
    to->n_dims = (uint32_t)n;
    to->n_lanes = (uint32_t)n_lanes_of(b, c->lane);
    to->first_block = (uint32_t)l->n_blocks;
    l->n_blocks += n_blocks_of(to, c);
    l->table.n_boxes++;
done:
    return status;
}

static plait_status_t emit(launch_t *l, const plait_device_box_t *b, const choice_t *c);

/* The box at index i of its first dimension. */
static plait_device_box_t slice_of(const plait_device_box_t *b, int64_t i)
{
    plait_device_box_t slice = *b;
    const int n = b->box.n_dims - 1;

    slice.src =
        (b->src != NULL) ? (const char *)b->src + i * b->box.src_stride[0] : NULL;
    slice.dst = (char *)b->dst + i * b->box.dst_stride[0];
    slice.box.n_dims = n;
    memmove(slice.box.count, b->box.count + 1, (size_t)n * sizeof(int64_t));
    memmove(slice.box.src_stride, b->box.src_stride + 1, (size_t)n * sizeof(int64_t));
    memmove(slice.box.dst_stride, b->box.dst_stride + 1, (size_t)n * sizeof(int64_t));
    return slice;
}

/* Emits slice after slice. Sums into one place are separate launches, in their order. */
static plait_status_t emit_slices(launch_t *l, const plait_device_box_t *b,
                                  const choice_t *c, bool is_ordered)
{
    plait_status_t status = PLAIT_OK;

    for (int64_t i = 0; i < b->box.count[0]; i++) {
        plait_device_box_t slice = slice_of(b, i);

        PLAIT_TRY(emit(l, &slice, c));
        if (is_ordered) {
            PLAIT_TRY(flush(l));
        }
    }
done:
    return status;
}

/* Emits both halves of the outermost dimension of count > 1, or of the row. */
static plait_status_t emit_halves(launch_t *l, const plait_device_box_t *b,
                                  const choice_t *c)
{
    plait_status_t status = PLAIT_OK;
    plait_device_box_t low = *b, high = *b;
    int64_t src = 0, dst = 0;
    int d = 0;

    while (d < b->box.n_dims && b->box.count[d] == 1) {
        d++;
    }
    if (d < b->box.n_dims) {
        low.box.count[d] = b->box.count[d] / 2;
        high.box.count[d] = b->box.count[d] - low.box.count[d];
        src = low.box.count[d] * b->box.src_stride[d];
        dst = low.box.count[d] * b->box.dst_stride[d];
    } else {
        low.box.row_bytes = b->box.row_bytes / c->lane / 2 * c->lane;
        high.box.row_bytes = b->box.row_bytes - low.box.row_bytes;
        src = low.box.row_bytes;
        dst = low.box.row_bytes;
    }
    high.src = (b->src != NULL) ? (const char *)b->src + src : NULL;
    high.dst = (char *)b->dst + dst;
    PLAIT_TRY(emit(l, &low, c));
    PLAIT_TRY(emit(l, &high, c));
done:
    return status;
}

/* Emits a simple box. Sums into one place have a stride of 0, in the outermost dimension. */
static plait_status_t emit(launch_t *l, const plait_device_box_t *b, const choice_t *c)
{
    plait_status_t status = PLAIT_OK;
    const plait_box_copy_t *box = &b->box;
    bool is_repeated =
        b->kind == PLAIT_DEVICE_ADD && box->n_dims > 0 && box->dst_stride[0] == 0;

    if (is_repeated) {
        PLAIT_TRY(flush(l));
        PLAIT_TRY(emit_slices(l, b, c, true));
    } else if (box->n_dims >= PLAIT_CUDA_DIMS) {
        PLAIT_TRY(emit_slices(l, b, c, false));
    } else if (n_lanes_of(b, c->lane) >= max_lanes) {
        PLAIT_TRY(emit_halves(l, b, c));
    } else {
        PLAIT_TRY(append(l, b, c));
    }
done:
    return status;
}

/* ---- Several boxes -------------------------------------------------------------------------- */

typedef struct {
    uintptr_t low, high; /* empty if equal */
} interval_t;

static bool is_nothing(interval_t i)
{
    return i.low == i.high;
}

static interval_t interval_of(const void *base, const plait_box_copy_t *box,
                              const int64_t stride[])
{
    interval_t i = {(uintptr_t)base, (uintptr_t)base};

    if (base == NULL || plait_box_bytes(box) == 0) {
        return i;
    }
    for (int d = 0; d < box->n_dims; d++) {
        int64_t extent = stride[d] * (box->count[d] - 1);
        i.low -= (extent < 0) ? (uintptr_t)-extent : 0;
        i.high += (extent > 0) ? (uintptr_t)extent : 0;
    }
    i.high += (uintptr_t)box->row_bytes;
    return i;
}

static bool overlaps(interval_t a, interval_t b)
{
    return !is_nothing(a) && !is_nothing(b) && a.low < b.high && b.low < a.high;
}

/* The smallest interval that contains both. */
static interval_t joined(interval_t a, interval_t b)
{
    interval_t both = {(a.low < b.low) ? a.low : b.low,
                       (a.high > b.high) ? a.high : b.high};

    return is_nothing(a) ? b : is_nothing(b) ? a : both;
}

/* What one or several boxes may write and read. */
typedef struct {
    interval_t to, from;
    bool has_sum;
} reach_t;

static reach_t reach_of(const plait_device_box_t *b)
{
    const void *src = (b->kind == PLAIT_DEVICE_ZERO) ? NULL : b->src;

    return (reach_t){.to = interval_of(b->dst, &b->box, b->box.dst_stride),
                     .from = interval_of(src, &b->box, b->box.src_stride),
                     .has_sum = b->kind == PLAIT_DEVICE_ADD};
}

/* Whether b must see a's writes, or may overwrite only when a is done. */
static bool must_follow(const reach_t *b, const reach_t *a)
{
    return ((a->has_sum || b->has_sum) && overlaps(a->to, b->to)) ||
           overlaps(b->from, a->to) || overlaps(b->to, a->from);
}

/* How many of the boxes may be done in any order. A box that does not meet the joint reach of the boxes before
 * it meets none of them. So boxes of an exchange, from one array to another, are not compared in pairs. */
static int64_t stretch_of(int64_t n_boxes, const plait_device_box_t boxes[])
{
    const int64_t limit = plait_min(n_boxes, MAX_STRETCH);
    reach_t reach[MAX_STRETCH], all = reach_of(&boxes[0]);
    int64_t n = 1;
    bool is_free = true;

    reach[0] = all;
    while (n < limit && is_free) {
        reach[n] = reach_of(&boxes[n]);
        bool may_meet = must_follow(&reach[n], &all);
        for (int64_t i = 0; may_meet && i < n && is_free; i++) {
            is_free = !must_follow(&reach[n], &reach[i]);
        }
        all.to = joined(all.to, reach[n].to);
        all.from = joined(all.from, reach[n].from);
        all.has_sum = all.has_sum || reach[n].has_sum;
        n += is_free ? 1 : 0;
    }
    return n;
}

/* Goes kernel by kernel, so that boxes of one kernel share launches. */
static plait_status_t do_stretch(plait_cuda_state_t *state, plait_stream_t stream,
                                 plait_dtype_t dtype, int64_t n_boxes,
                                 const plait_device_box_t boxes[])
{
    plait_status_t status = PLAIT_OK;
    launch_t l = {.state = state, .stream = stream};
    bool is_wanted[PLAIT_CUDA_N_KERNELS] = {false};
    plait_device_box_t simple;
    choice_t choice;

    for (int64_t i = 0; i < n_boxes; i++) {
        PLAIT_TRY(choose(dtype, &boxes[i], &simple, &choice));
        is_wanted[choice.kernel] = true;
    }
    for (int k = 0; k < PLAIT_CUDA_N_KERNELS; k++) {
        l.kernel = (plait_cuda_kernel_t)k;
        for (int64_t i = 0; i < n_boxes && is_wanted[k]; i++) {
            PLAIT_TRY(choose(dtype, &boxes[i], &simple, &choice));
            if ((int)choice.kernel == k && plait_box_bytes(&simple.box) > 0) {
                PLAIT_TRY(emit(&l, &simple, &choice));
            }
        }
        PLAIT_TRY(flush(&l));
    }
done:
    return status;
}

plait_status_t plait_cuda_boxes(plait_device_t *device, plait_stream_t stream,
                                plait_dtype_t dtype, int64_t n_boxes,
                                const plait_device_box_t boxes[])
{
    plait_status_t status = PLAIT_OK;
    int64_t n = 0;

    for (int64_t first = 0; first < n_boxes; first += n) {
        n = stretch_of(n_boxes - first, boxes + first);
        PLAIT_TRY(
            do_stretch(plait_cuda_state(device), stream, dtype, n, boxes + first));
    }
done:
    return status;
}
