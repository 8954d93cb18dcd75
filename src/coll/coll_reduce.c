/* Steps of a reduction in which every rank reduces a part of its own.
 *
 * Small operands of the same size on all ranks are published at a fence and reduced from there. With direct
 * access the pieces are read in place. With messages the pieces are collected in work memory and reduced
 * there, one stretch at a time, so that the work memory stays small: a stretch has some MiB of every rank,
 * or a fraction of the part if that is more. On devices one message costs as much time as some MiB: each of
 * 32 stretches of 1 MiB took 0.33 ms, as long as one stretch of 32 MiB (two ranks on an H100). */
#include "base/checked.h"
#include "coll/coll.h"

enum {
    MIN_STRETCH_BYTES = 1 << 20,
    MAX_STRETCHES = 64,
    DEVICE_STRETCH_BYTES = 8 << 20,
    DEVICE_STRETCHES = 16
};

static bool has_piece(const plait_part_t *part, int rank)
{
    return rank >= part->first && rank < part->first + part->n_pieces;
}

/* How many of the elements [at, at + n_stretch) the part has. */
static int64_t n_within(const plait_part_t *part, int64_t at, int64_t n_stretch)
{
    return plait_max(0, plait_min(n_stretch, part->n - at));
}

/* One move: the stretch of all pieces of this rank's part, and the others' stretches of this rank's operand. */
static plait_status_t add_collect(plait_plan_t *plan, const plait_reduction_t *r,
                                  int64_t at, int64_t n_stretch, int work)
{
    plait_status_t status = PLAIT_OK;
    int64_t item = plait_dtype_bytes(r->dtype);
    const plait_part_t *mine = &r->parts[plan->rank];
    int64_t n_mine = n_within(mine, at, n_stretch);
    plait_move_t move = {0};

    for (int peer = 0; peer < plan->n_ranks; peer++) {
        const plait_part_t *theirs = &r->parts[peer];
        const plait_block_t in = {.peer = peer,
                                  .src_slot = r->src_slot,
                                  .dst_slot = work,
                                  .src_offset = mine->offset + at * item,
                                  .dst_offset = (peer - mine->first) * n_mine * item,
                                  .box = {.row_bytes = n_mine * item}};
        const plait_block_t out = {
            .peer = peer,
            .src_slot = r->src_slot,
            .src_offset = theirs->offset + at * item,
            .box = {.row_bytes = n_within(theirs, at, n_stretch) * item}};
        if (has_piece(mine, peer) && in.box.row_bytes > 0) {
            PLAIT_TRY(plait_move_add_in(&move, &in));
        }
        if (peer != plan->rank && has_piece(theirs, plan->rank) &&
            out.box.row_bytes > 0) {
            PLAIT_TRY(plait_move_add_out(&move, &out));
        }
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* Elements of a stretch if the longest part has n elements. */
static int64_t stretch_of(const plait_plan_t *plan, int64_t n, int64_t item)
{
    return (plan->device == NULL)
               ? plait_max(MIN_STRETCH_BYTES / item, n / MAX_STRETCHES)
               : plait_max(DEVICE_STRETCH_BYTES / item, n / DEVICE_STRETCHES);
}

/* All ranks have the same number of stretches: the n-th move of one rank is the n-th of all. */
static plait_status_t add_stretches(plait_plan_t *plan, const plait_reduction_t *r)
{
    plait_status_t status = PLAIT_OK;
    int64_t item = plait_dtype_bytes(r->dtype);
    const plait_part_t *mine = &r->parts[plan->rank];
    int64_t n_longest = 0;
    int64_t n_bytes = 0;
    int work = 0;

    for (int rank = 0; rank < plan->n_ranks; rank++) {
        n_longest = plait_max(n_longest, r->parts[rank].n);
    }
    const int64_t n_stretch = stretch_of(plan, n_longest, item);
    PLAIT_CHECK(
        plait_mul(mine->n_pieces, plait_min(n_stretch, mine->n) * item, &n_bytes),
        PLAIT_ERR_OVERFLOW, "a reduction of more than 2^63 bytes of all ranks");
    PLAIT_TRY(plait_plan_add_work(plan, n_bytes, &work));
    for (int64_t at = 0; at < n_longest; at += plait_min(n_stretch, n_longest - at)) {
        int64_t n = n_within(mine, at, n_stretch);
        const plait_reduce_step_t step = {.op = r->op,
                                          .dtype = r->dtype,
                                          .is_local = true,
                                          .n_pieces = mine->n_pieces,
                                          .n = n,
                                          .src_slot = work,
                                          .dst_slot = r->dst_slot,
                                          .dst_offset = r->dst_offset + at * item,
                                          .piece_stride = n * item};
        PLAIT_TRY(add_collect(plan, r, at, n_stretch, work));
        PLAIT_TRY(plait_plan_reduce(plan, &step));
    }
done:
    return status;
}

/* The fence carries the whole operand. */
static plait_status_t add_published(plait_plan_t *plan, const plait_reduction_t *r)
{
    plait_status_t status = PLAIT_OK;
    const plait_part_t *mine = &r->parts[plan->rank];
    const plait_reduce_step_t step = {.op = r->op,
                                      .dtype = r->dtype,
                                      .first = mine->first,
                                      .n_pieces = mine->n_pieces,
                                      .n = mine->n,
                                      .src_slot = PLAIT_SLOT_PUBLISHED,
                                      .dst_slot = r->dst_slot,
                                      .src_offset = mine->offset,
                                      .dst_offset = r->dst_offset};

    PLAIT_TRY(plait_plan_publish(plan, r->src_slot, 0, plan->slot_bytes[r->src_slot]));
    PLAIT_TRY(plait_plan_reduce(plan, &step));
done:
    return status;
}

static plait_status_t add_direct(plait_plan_t *plan, const plait_reduction_t *r)
{
    plait_status_t status = PLAIT_OK;
    const plait_part_t *mine = &r->parts[plan->rank];
    const plait_reduce_step_t step = {.op = r->op,
                                      .dtype = r->dtype,
                                      .first = mine->first,
                                      .n_pieces = mine->n_pieces,
                                      .n = mine->n,
                                      .src_slot = r->src_slot,
                                      .dst_slot = r->dst_slot,
                                      .src_offset = mine->offset,
                                      .dst_offset = r->dst_offset};

    if (plan->n_ranks > 1) {
        PLAIT_TRY(plait_plan_fence(plan));
    }
    PLAIT_TRY(plait_plan_reduce(plan, &step));
    if (plan->n_ranks > 1) {
        PLAIT_TRY(plait_plan_fence(plan));
    }
done:
    return status;
}

plait_status_t plait_coll_reduce(plait_plan_t *plan, const plait_problem_t *problem,
                                 const plait_reduction_t *reduction)
{
    if (plait_coll_publishes(problem, plan->slot_bytes[reduction->src_slot])) {
        return add_published(plan, reduction);
    }
    return (plan->direct == PLAIT_DIRECT_NONE && plan->n_ranks > 1)
               ? add_stretches(plan, reduction)
               : add_direct(plan, reduction);
}
