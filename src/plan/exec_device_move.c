/* Moves on a device: one batch of boxes for this rank's own data, one that packs outgoing data, and one that
 * unpacks incoming data. A message that is dense on one side is sent or received in place there. The order of
 * additions is that of exec_move.c: own boxes, then the ranks before this one, nearest first. For moves in
 * place (plait_move_place) own boxes are packed, too, and reach their places last. */
#include "base/checked.h"
#include "base/status.h"
#include "device/box.h"
#include "device/pool.h"
#include "plan/exec_steps.h"

/* Boxes to be enqueued together. */
typedef struct {
    plait_exec_t *exec;
    plait_dtype_t dtype;
    plait_device_box_t *list;
    int64_t n;
} batch_t;

static plait_status_t flush(batch_t *batch)
{
    const plait_device_run_t *run = batch->exec->device;
    int64_t n = batch->n;

    batch->n = 0;
    return (n == 0) ? PLAIT_OK
                    : run->device->table->boxes(run->device, run->stream, batch->dtype,
                                                n, batch->list);
}

/* An ADD box may add to what an earlier box of a batch copies, so additions and copies are not in one batch. */
static plait_status_t put(batch_t *batch, plait_block_kind_t kind,
                          const plait_box_copy_t *box, const char *src, char *dst)
{
    static const plait_device_box_kind_t kinds[] = {
        [PLAIT_BLOCK_COPY] = PLAIT_DEVICE_COPY,
        [PLAIT_BLOCK_ADD] = PLAIT_DEVICE_ADD,
        [PLAIT_BLOCK_ZERO] = PLAIT_DEVICE_ZERO,
    };
    plait_status_t status = PLAIT_OK;
    const bool adds = kind == PLAIT_BLOCK_ADD;

    if (batch->n > 0 && adds != (batch->list[batch->n - 1].kind == PLAIT_DEVICE_ADD)) {
        PLAIT_TRY(flush(batch));
    }
    if (plait_box_bytes(box) > 0 && src != dst) {
        batch->list[batch->n++] = (plait_device_box_t){
            .kind = kinds[kind], .src = src, .dst = dst, .box = *box};
    }
done:
    return status;
}

/* A place in a slot; NULL in a slot without memory, where there is nothing to move. */
static char *at(const plait_exec_t *exec, int slot, int64_t offset)
{
    return (exec->slot[slot] == NULL) ? NULL : exec->slot[slot] + offset;
}

static plait_status_t move_own(batch_t *batch, const plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const plait_exec_t *exec = batch->exec;

    for (int64_t i = 0; i < move->n_in; i++) {
        const plait_block_t *b = &move->in[i];
        if (b->peer == exec->plan->rank) {
            bool is_zero = b->kind == PLAIT_BLOCK_ZERO;
            PLAIT_TRY(put(batch, b->kind, &b->box,
                          is_zero ? NULL : at(exec, b->src_slot, b->src_offset),
                          at(exec, b->dst_slot, b->dst_offset)));
        }
    }
    PLAIT_TRY(flush(batch));
done:
    return status;
}

/* Packs a box from its place to *to_p; the next box goes behind it. */
static plait_status_t pack_box(batch_t *batch, const plait_block_t *b, char **to_p)
{
    plait_status_t status = PLAIT_OK;
    plait_box_copy_t box = b->box;

    plait_box_set_dense(&box, box.dst_stride);
    PLAIT_TRY(put(batch, PLAIT_BLOCK_COPY, &box,
                  at(batch->exec, b->src_slot, b->src_offset), *to_p));
    *to_p += plait_box_bytes(&box);
done:
    return status;
}

/* Packs the rows that go to `peer`. */
static plait_status_t pack(batch_t *batch, const plait_move_t *move, int peer, char *to)
{
    plait_status_t status = PLAIT_OK;

    for (int64_t i = 0; i < move->n_out; i++) {
        if (move->out[i].peer == peer) {
            PLAIT_TRY(pack_box(batch, &move->out[i], &to));
        }
    }
done:
    return status;
}

/* Packs this rank's own data, as if they came from a peer. */
static plait_status_t pack_own(batch_t *batch, const plait_move_t *move, char *to)
{
    plait_status_t status = PLAIT_OK;
    const int rank = batch->exec->plan->rank;

    for (int64_t i = 0; i < move->n_in; i++) {
        if (move->in[i].peer == rank) {
            PLAIT_TRY(pack_box(batch, &move->in[i], &to));
        }
    }
done:
    return status;
}

/* Unpacks the rows that came from `peer`. */
static plait_status_t unpack(batch_t *batch, const plait_move_t *move, int peer,
                             const char *from)
{
    plait_status_t status = PLAIT_OK;

    for (int64_t i = 0; i < move->n_in; i++) {
        const plait_block_t *b = &move->in[i];
        plait_box_copy_t box = b->box;
        if (b->peer == peer) {
            plait_box_set_dense(&box, box.src_stride);
            PLAIT_TRY(put(batch, b->kind, &box, from,
                          at(batch->exec, b->dst_slot, b->dst_offset)));
            from += plait_box_bytes(&box);
        }
    }
done:
    return status;
}

/* All messages of a move, nearest ranks first. Packed messages lie one after the other in scratch; in a move in
 * place, this rank's own data follow. After a failure messages have no addresses. */
typedef struct {
    int n_out, n_in;
    plait_message_t *out, *in;
    char *own;
} mail_t;

static void add_message(const plait_exec_t *exec, const plait_move_t *move, int peer,
                        bool is_out, char **scratch_p, mail_t *mail)
{
    const plait_block_t *place = plait_move_place(move, peer, is_out);
    plait_message_t message = {.peer = peer,
                               .n_bytes = plait_move_bytes(move, peer, is_out)};

    if (message.n_bytes == 0) {
        return;
    }
    if (exec->device->failure != PLAIT_OK) {
        message.data = NULL;
    } else if (place != NULL) {
        message.data = is_out ? exec->slot[place->src_slot] + place->src_offset
                              : exec->slot[place->dst_slot] + place->dst_offset;
    } else {
        message.data = *scratch_p;
        *scratch_p += plait_device_padded(message.n_bytes);
    }
    if (is_out) {
        mail->out[mail->n_out++] = message;
    } else {
        mail->in[mail->n_in++] = message;
    }
}

static void set_mail(const plait_exec_t *exec, const plait_move_t *move, mail_t *mail)
{
    const plait_plan_t *plan = exec->plan;
    char *scratch = exec->scratch;

    for (int round = 1; round < plan->n_ranks; round++) {
        add_message(exec, move, (plan->rank + round) % plan->n_ranks, true, &scratch,
                    mail);
        add_message(exec, move, (plan->rank - round + plan->n_ranks) % plan->n_ranks,
                    false, &scratch, mail);
    }
    mail->own = scratch;
}

/* The work before the messages: own boxes, and packing. */
static plait_status_t send_off(batch_t *batch, const plait_move_t *move,
                               const mail_t *mail)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(move->is_in_place ? pack_own(batch, move, mail->own)
                                : move_own(batch, move));
    for (int i = 0; i < mail->n_out; i++) {
        int peer = mail->out[i].peer;
        if (plait_move_place(move, peer, true) == NULL) {
            PLAIT_TRY(pack(batch, move, peer, mail->out[i].data));
        }
    }
    PLAIT_TRY(flush(batch));
done:
    return status;
}

static plait_status_t take_in(batch_t *batch, const plait_move_t *move,
                              const mail_t *mail)
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < mail->n_in; i++) {
        int peer = mail->in[i].peer;
        if (plait_move_place(move, peer, false) == NULL) {
            PLAIT_TRY(unpack(batch, move, peer, mail->in[i].data));
        }
    }
    if (move->is_in_place) {
        PLAIT_TRY(unpack(batch, move, batch->exec->plan->rank, mail->own));
    }
    PLAIT_TRY(flush(batch));
done:
    return status;
}

plait_status_t plait_exec_device_move(plait_exec_t *exec, const plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_device_run_t *run = exec->device;
    const int64_t n_boxes = move->n_in + move->n_out;
    const int64_t n_ranks = exec->plan->n_ranks;
    batch_t batch = {.exec = exec, .dtype = move->dtype};
    mail_t mail = {0};
    void *memory = NULL;

    status = plait_pool_take(n_boxes * (int64_t)sizeof(*batch.list) +
                                 2 * n_ranks * (int64_t)sizeof(*mail.out),
                             &memory);
    if (plait_device_failed(run, status) != PLAIT_OK && memory == NULL) {
        run->is_lost = true;
        goto done;
    }
    batch.list = memory;
    mail.out = (plait_message_t *)(void *)(batch.list + n_boxes);
    mail.in = mail.out + n_ranks;
    set_mail(exec, move, &mail);
    if (run->failure == PLAIT_OK) {
        (void)plait_device_failed(run, send_off(&batch, move, &mail));
    }
    if (mail.n_out + mail.n_in > 0) {
        (void)run->link->exchange(run, mail.n_out, mail.out, mail.n_in, mail.in);
    }
    if (run->failure == PLAIT_OK) {
        (void)plait_device_failed(run, take_in(&batch, move, &mail));
    }
done:
    plait_pool_give(memory);
    return run->failure;
}
