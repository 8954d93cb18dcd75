#include "coll/coll.h"

#include "base/checked.h"
#include "base/status.h"

#include <string.h>

bool plait_coll_publishes(const plait_problem_t *problem, int64_t n_bytes)
{
    enum { MAX_READ = 256 << 10 };

    return problem->n_ranks > 1 && n_bytes <= problem->caps.publish_bytes &&
           n_bytes * problem->n_ranks <= MAX_READ;
}

/* Copies n_bytes from src_slot to dst_slot on this rank, or zeroes them. */
static plait_status_t add_own(plait_plan_t *plan, plait_block_kind_t kind, int src_slot,
                              int dst_slot, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};
    const plait_block_t block = {.peer = plan->rank,
                                 .kind = kind,
                                 .src_slot = src_slot,
                                 .dst_slot = dst_slot,
                                 .box = {.row_bytes = n_bytes}};

    PLAIT_TRY(plait_move_add_in(&move, &block));
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_coll_copy(plait_plan_t *plan, int src_slot, int dst_slot,
                               int64_t n_bytes)
{
    return add_own(plan, PLAIT_BLOCK_COPY, src_slot, dst_slot, n_bytes);
}

plait_status_t plait_coll_elsewhere(plait_plan_t *plan, bool is_operand)
{
    int y = plait_slot_ret(plan, 0);

    return add_own(plan, is_operand ? PLAIT_BLOCK_COPY : PLAIT_BLOCK_ZERO,
                   is_operand ? plait_slot_arg(plan, 0) : y, y, plan->slot_bytes[y]);
}

/* The move in which each rank has at most one piece from each rank. */
static plait_status_t add_pieces(const plait_plan_t *plan, plait_piece_fn_t piece,
                                 const void *context, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;

    /* each rank begins with another peer, so that not all ranks read from one at once */
    for (int i = 0; i < plan->n_ranks; i++) {
        int peer = (plan->rank + i) % plan->n_ranks;
        plait_piece_t in = piece(context, peer, plan->rank);
        plait_piece_t out = piece(context, plan->rank, peer);
        plait_block_t block = {.peer = peer,
                               .src_slot = plait_slot_arg(plan, 0),
                               .dst_slot = plait_slot_ret(plan, 0)};
        if (in.n_bytes > 0) {
            block.src_offset = in.src_offset;
            block.dst_offset = in.dst_offset;
            block.box.row_bytes = in.n_bytes;
            PLAIT_TRY(plait_move_add_in(move, &block));
        }
        if (plan->direct == PLAIT_DIRECT_NONE && i > 0 && out.n_bytes > 0) {
            block.src_offset = out.src_offset;
            block.dst_offset = out.dst_offset;
            block.box.row_bytes = out.n_bytes;
            PLAIT_TRY(plait_move_add_out(move, &block));
        }
    }
done:
    return status;
}

/* Bytes of a rank's operand 0 up to the last byte that any rank wants. */
static int64_t wanted_bytes(plait_piece_fn_t piece, const void *context, int n_ranks,
                            int rank)
{
    int64_t n_bytes = 0;

    for (int to = 0; to < n_ranks; to++) {
        plait_piece_t p = piece(context, rank, to);
        n_bytes =
            (p.n_bytes > 0) ? plait_max(n_bytes, p.src_offset + p.n_bytes) : n_bytes;
    }
    return n_bytes;
}

plait_status_t plait_coll_exchange(plait_plan_t *plan, const plait_problem_t *problem,
                                   plait_piece_fn_t piece, const void *context)
{
    enum {
        MAX_RANKS = 64
    }; /* more ranks do not publish enough each to be worth finding out */
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};
    plait_share_t share = {.n_most = -1};

    if (plan->n_ranks <= MAX_RANKS && problem->caps.publish_bytes >= 0) {
        share.n_mine = wanted_bytes(piece, context, plan->n_ranks, plan->rank);
        for (int r = 0; r < plan->n_ranks; r++) {
            share.n_most =
                plait_max(share.n_most, wanted_bytes(piece, context, plan->n_ranks, r));
        }
    }
    PLAIT_TRY(add_pieces(plan, piece, context, &move));
    PLAIT_TRY(plait_coll_move(plan, problem, &share, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* The same move, read from what its fence publishes. No second fence is needed. */
static plait_status_t add_published(plait_plan_t *plan, int64_t n_mine,
                                    plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    int x = plait_slot_arg(plan, 0);

    move->is_published = true;
    move->n_out = 0;
    for (int64_t i = 0; i < move->n_in; i++) {
        plait_block_t *block = &move->in[i];
        block->src_slot =
            (block->src_slot == x) ? PLAIT_SLOT_PUBLISHED : block->src_slot;
    }
    PLAIT_TRY(plait_plan_publish(plan, x, 0, n_mine));
    PLAIT_TRY(plait_plan_move(plan, move));
done:
    return status;
}

plait_status_t plait_coll_move(plait_plan_t *plan, const plait_problem_t *problem,
                               const plait_share_t *share, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;

    if (share->n_most >= 0 && plait_coll_publishes(problem, share->n_most)) {
        status = add_published(plan, share->n_mine, move);
        goto done;
    }
    if (plan->n_ranks > 1) {
        PLAIT_TRY(plait_plan_fence(plan));
    }
    PLAIT_TRY(plait_plan_move(plan, move));
    if (plan->n_ranks > 1) {
        PLAIT_TRY(plait_plan_fence(plan));
    }
done:
    plait_move_clear(move);
    return status;
}
