#include "dense/pieces.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "dense/dealt.h"
#include "dense/fan.h"

/* If more ranks than MAX_SUMMING would each read at least MIN_BYTES to sum everything, each rank sums a part
 * instead: the reads take longer than one more fence. */
enum { MAX_SUMMING = 4, MIN_BYTES = 32 << 10 };

/* Elements. Sizes of parts are multiples of it. */
enum { GRAIN = 8 };

static bool is_worth_sharing(int n_ranks, int64_t n, int64_t item)
{
    return n_ranks > MAX_SUMMING && n >= GRAIN * n_ranks &&
           n * item >= MIN_BYTES / n_ranks;
}

static int64_t part_start(const plait_plan_t *plan, int64_t n, int rank)
{
    return (rank == plan->n_ranks) ? n : n / GRAIN * rank / plan->n_ranks * GRAIN;
}

/* Elements [from, to) of a sum. */
typedef struct {
    int64_t from, to;
} span_t;

/* For messages: brings all ranks' pieces of the elements that a rank sums to this rank, side by side. */
static plait_status_t collect(plait_plan_t *plan, const plait_reduce_step_t *r,
                              const span_t spans[])
{
    plait_status_t status = PLAIT_OK;
    const int64_t item = plait_dtype_bytes(r->dtype);
    plait_move_t move = {0};

    for (int peer = 0; peer < plan->n_ranks; peer++) {
        const span_t mine = spans[plan->rank], theirs = spans[peer];
        const int64_t from = r->src_offset + peer * r->piece_stride + mine.from * item;
        const plait_block_t in = {.peer = peer,
                                  .src_slot = r->src_slot,
                                  .dst_slot = r->src_slot,
                                  .src_offset = from,
                                  .dst_offset = from,
                                  .box = {.row_bytes = (mine.to - mine.from) * item}};
        const plait_block_t out = {
            .peer = peer,
            .src_slot = r->src_slot,
            .src_offset =
                r->src_offset + plan->rank * r->piece_stride + theirs.from * item,
            .box = {.row_bytes = (theirs.to - theirs.from) * item}};
        if (peer != plan->rank && in.box.row_bytes > 0) {
            PLAIT_TRY(plait_move_add_in(&move, &in));
        }
        if (peer != plan->rank && out.box.row_bytes > 0) {
            PLAIT_TRY(plait_move_add_out(&move, &out));
        }
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* Brings each rank's part of the sum to all other ranks. */
static plait_status_t share(plait_plan_t *plan, const plait_reduce_step_t *r,
                            const span_t spans[])
{
    plait_status_t status = PLAIT_OK;
    const int64_t item = plait_dtype_bytes(r->dtype);
    const plait_group_t everyone = {.stride = 1, .n = plan->n_ranks};
    plait_move_t parts = {0};

    for (int owner = 0; owner < plan->n_ranks; owner++) {
        const int64_t at = r->dst_offset + spans[owner].from * item;
        PLAIT_TRY(plait_dealt_share(owner, r->dst_slot, at,
                                    (spans[owner].to - spans[owner].from) * item,
                                    &parts));
    }
    PLAIT_TRY(plait_fan_out(plan, &everyone, false, &parts));
done:
    plait_move_clear(&parts);
    return status;
}

plait_status_t plait_pieces_reduce(plait_plan_t *plan, bool is_collected,
                                   const plait_reduce_step_t *reduce)
{
    plait_status_t status = PLAIT_OK;
    const int n_ranks = plan->n_ranks;
    const int64_t n = reduce->n, item = plait_dtype_bytes(reduce->dtype);
    const bool is_shared = is_worth_sharing(n_ranks, n, item);
    plait_reduce_step_t r = *reduce;
    span_t *spans = plait_alloc(n_ranks, sizeof(*spans));

    PLAIT_CHECK(spans != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    for (int rank = 0; rank < n_ranks; rank++) {
        spans[rank] = is_shared ? (span_t){part_start(plan, n, rank),
                                           part_start(plan, n, rank + 1)}
                                : (span_t){0, n};
    }
    PLAIT_TRY(plait_plan_fence(plan));
    if (is_collected) {
        PLAIT_TRY(collect(plan, reduce, spans));
    }
    r.is_local = is_collected;
    r.n_pieces = n_ranks;
    r.n = spans[plan->rank].to - spans[plan->rank].from;
    r.src_offset += spans[plan->rank].from * item;
    r.dst_offset += spans[plan->rank].from * item;
    PLAIT_TRY(plait_plan_reduce(plan, &r));
    if (is_shared) {
        PLAIT_TRY(plait_plan_fence(plan));
        PLAIT_TRY(share(plan, reduce, spans));
    }
done:
    plait_free(spans);
    return status;
}
