/* Moves. With direct access each box is copied once, from the peer's memory to its place. With one-copy reads
 * exec_reach.c brings it. With messages the exchange is pairwise: in round k every rank sends to rank + k and
 * receives from rank - k. A message that is dense on one side is sent or received in place there; others are
 * packed.
 * Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005 (pairwise exchange). */
#include "base/checked.h"
#include "device/box.h"
#include "kernel/reduce.h"
#include "plan/exec_steps.h"

#include <limits.h>
#include <string.h>

void plait_exec_apply(const plait_block_t *block, const plait_move_t *move,
                      const plait_box_copy_t *box, const char *src, char *dst)
{
    if (block->kind == PLAIT_BLOCK_ZERO) {
        plait_host_zero_box(box, dst);
    } else if (block->kind == PLAIT_BLOCK_ADD) {
        plait_reduce_box(plait_reduce_find(PLAIT_SUM, move->dtype),
                         plait_dtype_bytes(move->dtype), box, src, dst);
    } else if (src != dst) { /* equal: the result aliases an operand */
        plait_host_copy_part(box, src, dst, move->in_bytes);
    }
}

static plait_status_t take_block(plait_exec_t *exec, const plait_block_t *block,
                                 const plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    char *dst = exec->slot[block->dst_slot] + block->dst_offset;

    if (plait_box_bytes(&block->box) == 0) {
        goto done; /* pointers of empty arrays may be anything */
    }
    if (!plait_exec_reaches(exec, block->peer, block->src_slot)) {
        status = plait_exec_take(exec, block, move);
    } else {
        plait_exec_apply(block, move, &block->box,
                         plait_exec_peer(exec, block->peer, block->src_slot) +
                             block->src_offset,
                         dst);
    }
done:
    return status;
}

/* Packs the data that go to `peer`; returns the bytes. */
static int64_t pack(const plait_exec_t *exec, const plait_move_t *move, int peer,
                    char *to)
{
    int64_t at = 0;

    for (int64_t i = 0; i < move->n_out; i++) {
        const plait_block_t *block = &move->out[i];
        plait_box_copy_t box = block->box;
        if (block->peer != peer) {
            continue;
        }
        plait_box_set_dense(&box, box.dst_stride);
        plait_host_copy_box(&box, exec->slot[block->src_slot] + block->src_offset,
                            to + at);
        at += plait_box_bytes(&box);
    }
    return at;
}

static void unpack(const plait_exec_t *exec, const plait_move_t *move, int peer,
                   const char *from)
{
    int64_t at = 0;

    for (int64_t i = 0; i < move->n_in; i++) {
        const plait_block_t *block = &move->in[i];
        plait_box_copy_t box = block->box;
        if (block->peer != peer || plait_box_bytes(&box) == 0) {
            continue;
        }
        plait_box_set_dense(&box, box.src_stride);
        plait_exec_apply(block, move, &box, from + at,
                         exec->slot[block->dst_slot] + block->dst_offset);
        at += plait_box_bytes(&box);
    }
}

static plait_message_t message_to(const plait_exec_t *exec, const plait_move_t *move,
                                  int peer, char *staging)
{
    const plait_block_t *whole = plait_move_whole(move->out, move->n_out, peer, true);
    plait_message_t message = {.peer = peer, .data = staging};

    if (whole != NULL) {
        message.data = exec->slot[whole->src_slot] + whole->src_offset;
        message.n_bytes = plait_box_bytes(&whole->box);
    } else {
        message.n_bytes = pack(exec, move, peer, staging);
    }
    return message;
}

static plait_message_t message_from(const plait_exec_t *exec, const plait_move_t *move,
                                    int peer, char *staging)
{
    const plait_block_t *whole = plait_move_whole(move->in, move->n_in, peer, false);
    plait_message_t message = {.peer = peer, .data = staging};

    if (whole != NULL) {
        message.data = exec->slot[whole->dst_slot] + whole->dst_offset;
        message.n_bytes = plait_box_bytes(&whole->box);
    } else {
        message.n_bytes = plait_move_bytes(move, peer, false);
    }
    return message;
}

static plait_status_t move_by_messages(plait_exec_t *exec, const plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const plait_plan_t *plan = exec->plan;
    char *send_to = exec->scratch;
    char *recv_to = exec->scratch + plan->scratch_bytes / 2 / 64 * 64;

    for (int round = 1; round < plan->n_ranks; round++) {
        int to = (plan->rank + round) % plan->n_ranks;
        int from = (plan->rank - round + plan->n_ranks) % plan->n_ranks;
        plait_message_t send = message_to(exec, move, to, send_to);
        plait_message_t recv = message_from(exec, move, from, recv_to);
        if (send.n_bytes > 0 || recv.n_bytes > 0) {
            PLAIT_TRY(exec->session.end->transport->exchange(
                &exec->session, send.n_bytes > 0, &send, recv.n_bytes > 0, &recv));
        }
        if (recv.data == recv_to) {
            unpack(exec, move, from, recv_to);
        }
    }
done:
    return status;
}

plait_status_t plait_exec_move(plait_exec_t *exec, const plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    bool is_direct = exec->plan->direct != PLAIT_DIRECT_NONE || move->is_published;

    for (int64_t i = 0; i < move->n_in; i++) {
        if (is_direct || move->in[i].peer == exec->plan->rank) {
            PLAIT_TRY(take_block(exec, &move->in[i], move));
        }
    }
    if (!is_direct) {
        PLAIT_TRY(move_by_messages(exec, move));
    }
done:
    return status;
}
