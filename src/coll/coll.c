#include "coll/coll.h"

#include "base/status.h"

#include <string.h>

/* One box of a slot on this rank; copied from src_slot, or zeroed. */
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

plait_status_t plait_coll_pieces(const plait_plan_t *plan, plait_piece_fn_t piece,
                                 const void *context, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;

    /* each rank begins with another peer, so that not all read from one at once */
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

plait_status_t plait_coll_move(plait_plan_t *plan, const plait_problem_t *problem,
                               plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;

    (void)problem;
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
