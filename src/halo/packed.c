/* Reading a peer's memory costs about 0.1 us per row, however short the row is. Rows that are cheaper to copy
 * twice are packed by their owner, one behind the other, for one reader after the other. So each reader finds
 * its place by going through the readers before it.  Source: own. */
#include "halo/packed.h"

#include "base/checked.h"
#include "device/box.h"

/* Two copies of this many bytes, in a cache that yields about 10 GB/s, take as long as reading one row. */
enum { PACKED_ROW_BYTES = 512, MIN_PACKED_ROWS = 16 };

static bool is_packed(const plait_block_t *block)
{
    const plait_box_copy_t *box = &block->box;

    return box->row_bytes > 0 && box->row_bytes < PACKED_ROW_BYTES &&
           plait_box_bytes(box) / box->row_bytes >= MIN_PACKED_ROWS;
}

/* Bytes that `from` packs for `to`. */
static plait_status_t packed_bytes(const plait_flow_t *flow, int from, int to,
                                   int64_t *n_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_block_t block = {.peer = from};
    plait_move_t found = {0};

    *n_bytes_p = 0;
    PLAIT_TRY(flow->blocks(flow->context, from, to, &block, &found));
    for (int64_t i = 0; i < found.n_in; i++) {
        *n_bytes_p += is_packed(&found.in[i]) ? plait_box_bytes(&found.in[i].box) : 0;
    }
done:
    plait_move_clear(&found);
    return status;
}

/* What `to` reads from this rank, packed from *at_p on. */
static plait_status_t pack_for(const plait_plan_t *plan, const plait_flow_t *flow,
                               int to, const plait_block_t *block, int64_t *at_p,
                               plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t found = {0};

    PLAIT_TRY(flow->blocks(flow->context, plan->rank, to, block, &found));
    for (int64_t i = 0; i < found.n_in; i++) {
        plait_block_t b = found.in[i];
        if (is_packed(&b)) {
            b.kind = PLAIT_BLOCK_COPY;
            b.dst_offset = *at_p;
            plait_box_set_dense(&b.box, b.box.dst_stride);
            *at_p += plait_box_bytes(&b.box);
            PLAIT_TRY(plait_move_add_in(move, &b));
        }
    }
done:
    plait_move_clear(&found);
    return status;
}

plait_status_t plait_packed_fill(plait_plan_t *plan, const plait_flow_t *flow,
                                 const plait_block_t *block, int *work_p)
{
    plait_status_t status = PLAIT_OK;
    plait_block_t own = *block;
    plait_move_t move = {0};
    int64_t n_bytes = 0;

    own.peer = plan->rank;
    own.dst_slot = plait_plan_n_slots(plan); /* the work that is about to be added */
    for (int to = 0; to < plan->n_ranks; to++) {
        if (to != plan->rank) {
            PLAIT_TRY(pack_for(plan, flow, to, &own, &n_bytes, &move));
        }
    }
    PLAIT_TRY(plait_plan_add_work(plan, n_bytes, work_p));
    plait_plan_show_work(plan);
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_packed_take(const plait_plan_t *plan, const plait_flow_t *flow,
                                 int peer, int work, const plait_block_t *block,
                                 plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t found = {0};
    int64_t at = 0;
    bool any = false;

    PLAIT_TRY(flow->blocks(flow->context, peer, plan->rank, block, &found));
    for (int64_t i = 0; i < found.n_in; i++) {
        any = any || is_packed(&found.in[i]);
    }
    for (int to = 0; any && to < plan->rank; to++) {
        int64_t n_bytes = 0;
        if (to != peer) {
            PLAIT_TRY(packed_bytes(flow, peer, to, &n_bytes));
        }
        at += n_bytes;
    }
    for (int64_t i = 0; i < found.n_in; i++) {
        plait_block_t b = found.in[i];
        if (is_packed(&b)) {
            b.src_slot = work;
            b.src_offset = at;
            plait_box_set_dense(&b.box, b.box.src_stride);
            at += plait_box_bytes(&b.box);
        }
        PLAIT_TRY(plait_move_add_in(move, &b));
    }
done:
    plait_move_clear(&found);
    return status;
}
