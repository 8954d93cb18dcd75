/* Where a pass writes: to this rank's memory, to peers' memory at its addresses, or to a scratch, from which
 * rows of several planes go to peers at once. */
#include "base/checked.h"
#include "fft/pass_work.h"

/* Data for a peer's memory are collected in scratch until their rows are this long, or this much is there. They
 * go past the cache if this rank's results do: through the cache they would drive out more (Zen 4: 256^3
 * complex128 in 69 ms; 78 and 88 with all of them in the cache). */
enum { BOX_ROW_BYTES = 64 << 10, BOX_BYTES = 8 << 20 };

/* Whether the target's memory cannot be written at its address. */
static bool is_boxed(const plait_target_t *target, const plait_plan_t *plan)
{
    return target->peer != plan->rank && plan->direct == PLAIT_DIRECT_READ;
}

/* The first target at a peer with the same rows. Such targets share scratch, since in every plane a row has
 * only one target. */
static int first_alike(const plait_pass_t *pass, const plait_plan_t *plan, int i)
{
    int first = 0;

    while (!is_boxed(&pass->targets[first], plan) ||
           pass->targets[first].t_lo != pass->targets[i].t_lo) {
        first++;
    }
    return first;
}

void plait_scatter_plan(plait_pass_t *pass, const plait_plan_t *plan)
{
    for (int i = 0; i < pass->n_targets; i++) {
        if (is_boxed(&pass->targets[i], plan)) {
            const int first = first_alike(pass, plan, i);
            pass->targets[i].box_row =
                (first < i) ? pass->targets[first].box_row : pass->n_box_rows;
            pass->n_box_rows += (first < i) ? 0 : pass->targets[i].n_t;
        }
    }
}

/* Planes are collected only if rows of adjacent planes are next to each other at the peer. */
int64_t plait_scatter_planes(const plait_pass_t *pass)
{
    const int last = pass->n_outer - 1;
    const int64_t row_bytes = pass->n_w * pass->item_bytes;
    int64_t n = plait_min(BOX_BYTES / plait_max(pass->n_box_rows * row_bytes, 1),
                          (BOX_ROW_BYTES + row_bytes - 1) / plait_max(row_bytes, 1));
    bool is_near = last >= 0;

    for (int i = 0; i < pass->n_targets && is_near; i++) {
        is_near = pass->targets[i].outer_stride[last] == row_bytes;
    }
    return is_near ? plait_max(1, plait_min(n, pass->outer_count[last])) : 1;
}

/* Whether the plane has rows for the target. */
static bool is_met(const plait_pass_work_t *w, const plait_target_t *target)
{
    bool is_met = true;

    for (int d = 0; d < w->pass->n_outer && is_met; d++) {
        is_met = w->index[d] >= target->outer_lo[d] &&
                 w->index[d] < target->outer_lo[d] + target->n_outer[d];
    }
    return is_met;
}

/* Bytes from the beginning of a target's buffer to row t_lo of the plane. */
static int64_t offset_of(const plait_pass_work_t *w, const plait_target_t *target)
{
    return target->offset + target->t_lo * target->t_stride +
           plait_pass_outer_at(w->pass, w->index, target->outer_stride);
}

/* Where this row is collected, for the first plane. */
static char *box_of(const plait_pass_work_t *w, const plait_target_t *target)
{
    return w->area + w->scratch.box + target->box_row * w->scratch.box_row;
}

bool plait_scatter_place(const plait_pass_work_t *w, const plait_target_t *target,
                         char **place_p, int64_t *stride_p)
{
    const plait_pass_t *pass = w->pass;
    const char *slot = NULL;

    if (is_boxed(target, w->exec->plan)) {
        *place_p = box_of(w, target) + w->box_plane * pass->n_w * pass->item_bytes;
        *stride_p = w->scratch.box_row;
    } else {
        slot = plait_exec_peer(w->exec, target->peer, pass->dst_slot);
        *place_p = (char *)(uintptr_t)slot + offset_of(w, target);
        *stride_p = target->t_stride;
    }
    return is_met(w, target);
}

void plait_scatter_out(plait_pass_work_t *w)
{
    for (int i = 0; i < w->pass->n_targets; i++) {
        const plait_target_t *target = &w->pass->targets[i];
        char *place = NULL;
        int64_t stride = 0;
        if (plait_scatter_place(w, target, &place, &stride)) {
            for (int64_t t = 0; t < target->n_t; t++) {
                w->out[target->t_lo + t] = place + t * stride;
            }
        }
    }
}

plait_status_t plait_scatter_write(plait_pass_work_t *w, int64_t at, int64_t n_planes)
{
    plait_status_t status = PLAIT_OK;
    const plait_pass_t *pass = w->pass;
    const int64_t row_bytes = pass->n_w * pass->item_bytes;
    const int last = pass->n_outer - 1;

    for (int i = 0; i < pass->n_targets; i++) {
        const plait_target_t *target = &pass->targets[i];
        int64_t lo = at;
        int64_t end = at + n_planes;
        int64_t step = 0;
        if (last >= 0) {
            lo = plait_max(lo, target->outer_lo[last]);
            end = plait_min(end, target->outer_lo[last] + target->n_outer[last]);
            step = target->outer_stride[last];
            w->index[last] = lo;
        }
        if (is_boxed(target, w->exec->plan) && lo < end && is_met(w, target)) {
            plait_box_copy_t box = {.n_dims = 2,
                                    .count = {target->n_t, end - lo},
                                    .src_stride = {w->scratch.box_row, row_bytes},
                                    .dst_stride = {target->t_stride, step},
                                    .row_bytes = row_bytes};
            plait_box_simplify(&box);
            PLAIT_TRY(plait_exec_write_box(w->exec, target->peer, pass->dst_slot,
                                           offset_of(w, target), &box,
                                           box_of(w, target) + (lo - at) * row_bytes));
        }
    }
done:
    return status;
}
