#include "fft/four_step.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "kernel/fft_turn.h"
#include "plan/exec.h"
#include "redist/fold.h"

#include <inttypes.h>
#include <math.h>

/* ------------------------------------------------------------------ where it is worth it */

/* The largest part of an axis of n that a rank has. */
static double share(int64_t n, int n_parts)
{
    int64_t largest = (n + n_parts - 1) / n_parts;

    return (double)largest / (double)n;
}

/* The matrix that is nearest to a square has the longest rows in all three moves, and the shortest transforms.
 * It is used if at least twice as much work is in parallel, and every rank's part has at least n_parts
 * elements, one for each rank: with fewer elements there are only more meetings. */
int64_t plait_four_step_rows(int64_t n, int n_parts, int64_t n_taker)
{
    int64_t n1 = (int64_t)sqrt((double)n);

    while (n1 > 1 && (n1 > n / n1 || n % n1 != 0)) {
        n1--;
    }
    bool is_worth =
        n1 > 1 && n / n_parts >= n_parts &&
        2 * share(n1, n_parts) <= ((n_taker > 0) ? share(n_taker, n_parts) : 1.0);
    return is_worth ? n1 : 0;
}

/* ------------------------------------------------------------------ its stages */

void plait_four_step_path(plait_fft_path_t *path, plait_layout_t *layout, int t,
                          int64_t n1, const plait_layout_t *to)
{
    const int64_t n2 = layout->shape[t] / n1;
    plait_axis_t split = layout->axis[t];
    plait_layout_t matrix = plait_fold_layout(layout, t, n1, n2);
    plait_fft_stage_t *stage = plait_fft_path_add(path);

    split.split = PLAIT_SPLIT_EVEN;
    split.block = 0;
    matrix.axis[t + 1] = split;
    stage->is_exchange = true;
    stage->view = PLAIT_FFT_FOLD;
    stage->folded = t;
    stage->layout = matrix;

    stage = plait_fft_path_add(path);
    stage->axes = 1U << t;
    stage->layout = matrix;

    matrix = plait_fold_layout(layout, t, n2, n1);
    matrix.axis[t] = split;
    stage = plait_fft_path_add(path);
    stage->view = PLAIT_FFT_TURN;
    stage->folded = t;
    stage->layout = matrix;

    matrix.axis[t] = (plait_axis_t){.split = PLAIT_SPLIT_WHOLE};
    matrix.axis[t + 1] = split;
    stage = plait_fft_path_add(path);
    stage->is_exchange = true;
    stage->t = t;
    stage->layout = matrix;

    stage = plait_fft_path_add(path);
    stage->is_exchange = true;
    stage->view = PLAIT_FFT_UNFOLD;
    stage->folded = t;
    stage->layout = *to;
    *layout = *to;
    path->n_four_step++;
}

plait_status_t plait_four_step_move(plait_fft_t *f, const plait_layout_t *from,
                                    int src_slot, const plait_fft_stage_t *stage)
{
    plait_status_t status = PLAIT_OK;
    const bool to_matrix = stage->view == PLAIT_FFT_FOLD;
    const plait_fold_t fold = {.flat = to_matrix ? from : &stage->layout,
                               .matrix = to_matrix ? &stage->layout : from,
                               .axis = stage->folded,
                               .to_matrix = to_matrix,
                               .src_slot = src_slot,
                               .dst_slot = stage->slot,
                               .item_bytes = f->item_bytes};
    plait_move_t move = {0};

    PLAIT_TRY(plait_fold_move(f->plan, &fold, &move));
    PLAIT_TRY(plait_plan_move(f->plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* ------------------------------------------------------------------ the turn */

typedef struct {
    plait_turn_t *turn;
    int rank, src_slot, dst_slot;
    int64_t n_outer, n_rows, first, n_columns, n_inner, item_bytes;
} turn_step_t;

static int64_t plane_bytes(const turn_step_t *s)
{
    return s->n_rows * s->n_columns * s->n_inner * s->item_bytes;
}

static plait_status_t turn_run(const void *params, plait_exec_t *exec)
{
    const turn_step_t *s = params;

    for (int64_t i = 0; i < s->n_outer; i++) {
        plait_turn_run(s->turn, s->n_rows, s->first, s->n_columns, s->n_inner,
                       exec->slot[s->src_slot] + i * plane_bytes(s),
                       exec->slot[s->dst_slot] + i * plane_bytes(s));
    }
    return PLAIT_OK;
}

static void turn_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const turn_step_t *s = params;
    const plait_box_copy_t all = {.row_bytes = s->n_outer * plane_bytes(s)};

    touch(context, false, s->rank, s->src_slot, 0, &all);
    touch(context, true, PLAIT_ANY, s->dst_slot, 0, &all);
}

static void turn_print(const void *params, FILE *file)
{
    const turn_step_t *s = params;

    (void)fprintf(file, "%" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64,
                  s->n_outer, s->n_rows, s->n_columns, s->n_inner);
    (void)fprintf(file,
                  ", roots of unity, rows and columns exchanged (%" PRId64 " bytes)",
                  s->n_outer * plane_bytes(s));
}

static void turn_destroy(void *params)
{
    turn_step_t *s = params;

    plait_turn_destroy(&s->turn);
    plait_free(s);
}

static const plait_kernel_t turn_kernel = {
    .name = "turn",
    .run = turn_run,
    .touch = turn_touch,
    .print = turn_print,
    .destroy = turn_destroy,
};

plait_status_t plait_four_step_turn(plait_fft_t *f, const plait_layout_t *from,
                                    int src_slot, const plait_fft_stage_t *stage)
{
    plait_status_t status = PLAIT_OK;
    const int t = stage->folded;
    int64_t shape[PLAIT_MAX_NDIM];
    turn_step_t *step = plait_alloc(1, sizeof(*step));

    PLAIT_CHECK(step != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    plait_layout_local_shape(from, f->plan->rank, shape);
    *step = (turn_step_t){
        .rank = f->plan->rank,
        .src_slot = src_slot,
        .dst_slot = stage->slot,
        .n_outer = 1,
        .n_rows = shape[t],
        .first = plait_layout_interval(from, f->plan->rank, t + 1, 0, NULL).lo,
        .n_columns = shape[t + 1],
        .n_inner = 1,
        .item_bytes = f->item_bytes};
    for (int a = 0; a < from->ndim; a++) {
        step->n_outer *= (a < t) ? shape[a] : 1;
        step->n_inner *= (a > t + 1) ? shape[a] : 1;
    }
    if (step->n_outer * plane_bytes(step) > 0) {
        PLAIT_TRY(plait_turn_create(from->shape[t] * from->shape[t + 1], f->dtype,
                                    (int)f->p->sign, &step->turn));
        turn_step_t *moved = step;
        step = NULL;
        PLAIT_TRY(plait_plan_kernel(f->plan, &turn_kernel, moved));
    }
done:
    if (step != NULL) {
        turn_destroy(step);
    }
    return status;
}
