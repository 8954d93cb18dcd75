#include "fft/path.h"

#include "fft/four_step.h"

#include <string.h>

static int n_parts(const plait_layout_t *layout, int axis)
{
    int n = 1;

    for (int i = 0; i < layout->axis[axis].n_grid; i++) {
        n *= layout->grid[layout->axis[axis].grid_axis[i]];
    }
    return n;
}

/* Drops splits into one part, so that equal distributions compare equal. Between operand and result, arrays
 * store nothing beyond what ranks own. */
static void normalize(plait_layout_t *layout)
{
    memset(layout->stored, 0, sizeof(layout->stored));
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

bool plait_fft_same_split(const plait_axis_t *a, const plait_axis_t *b)
{
    return a->n_grid == b->n_grid &&
           memcmp(a->grid_axis, b->grid_axis, (size_t)a->n_grid * sizeof(int)) == 0;
}

/* The axis that takes over the split of t: an axis that is whole and needs no transform any more. Best is the
 * axis that `to` wants split in this way, otherwise the longest. -1: none. */
static int choose_taker(const plait_fft_path_t *path, const plait_layout_t *layout,
                        int t, unsigned todo)
{
    int best = -1;

    for (int a = 0; a < layout->ndim; a++) {
        bool is_free = n_parts(layout, a) == 1 && (todo & (1U << a)) == 0;
        if (is_free && plait_fft_same_split(&path->to.axis[a], &layout->axis[t])) {
            return a;
        }
        if (is_free && (best < 0 || layout->shape[a] > layout->shape[best])) {
            best = a;
        }
    }
    return best;
}

/* The split axis to do next: an axis whose split has a place in `to`, otherwise the last. */
static int choose_next(const plait_fft_path_t *path, const plait_layout_t *layout,
                       unsigned todo, unsigned later)
{
    int next = __builtin_ctz(todo);

    for (int t = next; t < layout->ndim; t++) {
        if ((todo & (1U << t)) != 0) {
            int taker = choose_taker(path, layout, t, todo | later);
            next = t;
            if (taker >= 0 &&
                plait_fft_same_split(&path->to.axis[taker], &layout->axis[t])) {
                break;
            }
        }
    }
    return next;
}

/* Without a taker the axis becomes whole on every rank: correct, but not scalable. This happens only if no axis
 * is free and t has no useful factors, or is halved. */
static plait_layout_t move_split(plait_fft_path_t *path, const plait_layout_t *layout,
                                 int t, unsigned todo)
{
    plait_layout_t moved = *layout;
    int taker = choose_taker(path, layout, t, todo);

    if (taker >= 0) {
        bool is_wanted = plait_fft_same_split(&path->to.axis[taker], &layout->axis[t]);
        moved.axis[taker] = is_wanted ? path->to.axis[taker] : layout->axis[t];
        if (!is_wanted && moved.axis[taker].split == PLAIT_SPLIT_CEIL) {
            moved.axis[taker].block = 0; /* block was for the length of axis t */
        }
    } else {
        path->gathered = t;
    }
    moved.axis[t] = (plait_axis_t){.split = PLAIT_SPLIT_WHOLE};
    return moved;
}

plait_fft_stage_t *plait_fft_path_add(plait_fft_path_t *path)
{
    plait_fft_stage_t *stage = &path->stages[path->n_stages++];

    *stage = (plait_fft_stage_t){.t = -1, .slot = -1, .moved = -1};
    return stage;
}

static plait_fft_stage_t *last_stage(plait_fft_path_t *path)
{
    return &path->stages[path->n_stages - 1];
}

/* The transform of axis t, or (t < 0) a move that makes axis `whole` whole. */
static void exchange(plait_fft_path_t *path, plait_layout_t *layout, int t, int whole,
                     unsigned todo)
{
    plait_fft_stage_t *stage = plait_fft_path_add(path);

    *layout = move_split(path, layout, (t >= 0) ? t : whole, todo);
    stage->is_exchange = true;
    stage->t = t;
    stage->layout = *layout;
}

/* The axis closest to the last one, which gives the smallest planes; -1: none. */
static int closest_to_last(unsigned axes, int ndim)
{
    axes &= ~(1U << (ndim - 1));
    return (axes != 0) ? 31 - __builtin_clz(axes) : -1;
}

/* Real rows, with the columns of one axis in the same pass. Returns the axes that are done. */
static unsigned begin_complex(plait_fft_path_t *path, plait_layout_t *layout,
                              unsigned todo)
{
    const int half = path->half.axis;
    plait_fft_stage_t *stage = NULL;
    int t = -1;

    if (n_parts(layout, half) > 1) {
        exchange(path, layout, -1, half, 1U << half);
        last_stage(path)->is_real = true;
    }
    if (half == layout->ndim - 1) {
        t = closest_to_last(todo & whole_axes(layout), layout->ndim);
    }
    layout->shape[half] = path->half.n / 2 + 1;
    stage = plait_fft_path_add(path);
    stage->layout = *layout;
    stage->has_half = true;
    stage->axes = (t >= 0) ? 1U << t : 0;
    return stage->axes | 1U << half;
}

/* The split axis t: in three exchanges (fft/four_step.h) if no axis can take its split well, otherwise in
 * one. */
static void do_split_axis(plait_fft_path_t *path, plait_layout_t *layout, int t,
                          unsigned todo)
{
    int taker = choose_taker(path, layout, t, todo);
    bool is_wanted =
        taker >= 0 && plait_fft_same_split(&path->to.axis[taker], &layout->axis[t]);
    bool is_last = todo == 1U << t;
    int64_t n1 = 0;

    if (!path->is_on_device && !path->is_undivided && !is_wanted &&
        layout->ndim < PLAIT_MAX_NDIM) {
        n1 = plait_four_step_rows(layout->shape[t], n_parts(layout, t),
                                  (taker >= 0) ? layout->shape[taker] : 0);
    }
    if (n1 > 0) {
        const plait_layout_t to = is_last ? path->to : *layout;
        plait_four_step_path(path, layout, t, n1, &to);
    } else {
        exchange(path, layout, t, -1, todo);
    }
}

static bool is_plane_held(const plait_layout_t *layout, int t, int64_t max_plane)
{
    return t >= 0 && t < layout->ndim - 1 &&
           layout->shape[t] * layout->shape[layout->ndim - 1] <= max_plane;
}

/* Real rows in the pass of the last columns, if that pass can do them. */
static void end_real(plait_fft_path_t *path, plait_layout_t *layout, int64_t max_plane)
{
    const int half = path->half.axis;
    plait_fft_stage_t *stage = NULL;
    bool is_last = half == layout->ndim - 1;
    int t = -1;

    if (n_parts(layout, half) > 1) {
        exchange(path, layout, -1, half, 1U << half);
    }
    if (is_last && path->n_stages > 0) {
        stage = last_stage(path);
        t = stage->is_exchange ? stage->t : closest_to_last(stage->axes, layout->ndim);
        t = is_plane_held(layout, t, max_plane) ? t : -1;
    }
    if (t >= 0 && stage->is_exchange && path->half.is_fused) {
        stage->has_half = true;
    } else if (t >= 0 && !stage->is_exchange) {
        stage->axes &= ~(1U << t);
        path->n_stages -= stage->axes == 0;
        stage = plait_fft_path_add(path);
        stage->has_half = true;
        stage->axes = 1U << t;
    } else {
        stage = plait_fft_path_add(path);
        stage->has_half = true;
    }
    layout->shape[half] = path->half.n;
    stage->layout = *layout;
    stage->is_real = true;
}

void plait_fft_path_find(const plait_layout_t *from, const plait_layout_t *to,
                         unsigned axes, const plait_fft_half_t *half, int64_t max_plane,
                         plait_fft_path_t *path)
{
    unsigned todo = axes;

    *path = (plait_fft_path_t){.from = *from,
                               .to = *to,
                               .half = *half,
                               .is_on_device = path->is_on_device,
                               .is_undivided = path->is_undivided,
                               .gathered = -1};
    normalize(&path->from);
    normalize(&path->to);
    plait_layout_t layout = path->from;
    unsigned at_last = (half->axis >= 0 && !half->to_complex) ? 1U << half->axis : 0;
    if (half->axis >= 0 && half->to_complex) {
        todo &= ~begin_complex(path, &layout, todo & ~(1U << half->axis));
    }
    todo &= ~at_last;
    unsigned now = todo & whole_axes(&layout);
    if (now != 0) {
        plait_fft_stage_t *stage = plait_fft_path_add(path);
        stage->axes = now;
        stage->layout = layout;
        todo &= ~now;
    }
    while (todo != 0) {
        int t = choose_next(path, &layout, todo, at_last);
        do_split_axis(path, &layout, t, todo | at_last);
        todo &= ~(1U << t);
    }
    if (at_last != 0) {
        end_real(path, &layout, max_plane);
    }
    /* A donated operand's lone exchange goes through a work buffer. */
    bool is_lone = path->n_stages == 1 && path->stages[0].is_exchange &&
                   half->axis < 0 && !path->is_on_device;
    if (is_lone || !plait_layout_equal(&layout, &path->to)) {
        plait_fft_stage_t *stage = plait_fft_path_add(path);
        stage->is_exchange = true;
        stage->is_real = at_last != 0;
    }
    memcpy(path->from.stored, from->stored, sizeof(from->stored));
    memcpy(path->to.stored, to->stored, sizeof(to->stored));
    last_stage(path)->layout = path->to;
}
