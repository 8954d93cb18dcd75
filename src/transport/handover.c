#include "transport/handover.h"

#include "base/status.h"
#include "device/pool.h"

typedef struct {
    int64_t is_good; /* 0: the rank has failed, and the message means nothing */
    plait_offer_t offer;
} letter_t;

typedef struct {
    int64_t is_good;
    uint64_t word;
} receipt_t;

typedef struct {
    plait_device_run_t *run;
    const plait_handover_t *by;
    int n_sends, n_recvs;
    const plait_message_t *sends, *recvs;
    plait_message_t *out, *in; /* what ranks tell each other, not what they copy */
    letter_t *mine, *theirs;
    receipt_t receipt, *receipts;
} handover_t;

/* Takes all arrays in one buffer. */
static plait_status_t take_memory(handover_t *h, void **memory_p)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n = h->n_sends + h->n_recvs;

    PLAIT_TRY(plait_pool_take(
        n * (int64_t)(sizeof(plait_message_t) + sizeof(letter_t) + sizeof(receipt_t)),
        memory_p));
    h->mine = *memory_p;
    h->theirs = h->mine + h->n_sends;
    h->receipts = (receipt_t *)(void *)(h->theirs + h->n_recvs);
    h->out = (plait_message_t *)(void *)(h->receipts + h->n_sends);
    h->in = h->out + n;
done:
    return status;
}

static void swap(handover_t *h, int n_out, int n_in)
{
    plait_session_t *session = h->run->session;
    plait_status_t status =
        session->end->transport->exchange(session, n_out, h->out, n_in, h->in);

    h->run->is_lost = h->run->is_lost || status != PLAIT_OK;
    (void)plait_device_failed(h->run, status);
}

/* A rank that fails in the middle of its offers withdraws them all. */
static void make_offers(handover_t *h)
{
    plait_status_t status = h->run->failure;

    for (int i = 0; i < h->n_sends; i++) {
        h->mine[i] = (letter_t){.is_good = 0};
        if (status == PLAIT_OK) {
            status = h->by->offer(h->run, &h->sends[i], &h->mine[i].offer);
        }
        h->out[i] =
            (plait_message_t){h->sends[i].peer, &h->mine[i], sizeof(h->mine[i])};
    }
    if (status == PLAIT_OK && h->n_sends > 0) {
        status = h->by->ready(h->run);
    }
    for (int i = 0; i < h->n_recvs; i++) {
        h->in[i] =
            (plait_message_t){h->recvs[i].peer, &h->theirs[i], sizeof(h->theirs[i])};
    }
    for (int i = 0; i < h->n_sends; i++) {
        h->mine[i].is_good = status == PLAIT_OK;
    }
    (void)plait_device_failed(h->run, status);
}

/* After a failure, enqueued copies end before the senders are told that they have their memory back. */
static void take_offers(handover_t *h)
{
    plait_status_t status = h->run->failure;
    plait_device_run_t *run = h->run;
    const bool could_begin = status == PLAIT_OK;

    for (int i = 0; i < h->n_recvs && status == PLAIT_OK; i++) {
        const plait_message_t *m = &h->recvs[i];
        if (h->theirs[i].is_good != 0) {
            status =
                h->by->take(run, m->peer, &h->theirs[i].offer, m->data, m->n_bytes);
        }
    }
    if (status == PLAIT_OK && h->n_recvs > 0) {
        status = h->by->receipt(run, &h->receipt.word);
    }
    h->receipt.is_good = status == PLAIT_OK;
    (void)plait_device_failed(run, status);
    if (could_begin && status != PLAIT_OK) {
        (void)run->device->table->stream_wait(run->device, run->stream);
    }
}

static void give_receipts(handover_t *h)
{
    int n_out = 0, n_in = 0;

    for (int i = 0; i < h->n_recvs; i++) {
        h->out[n_out++] =
            (plait_message_t){h->recvs[i].peer, &h->receipt, sizeof(h->receipt)};
    }
    h->in = h->out + n_out;
    for (int i = 0; i < h->n_sends; i++) {
        h->in[n_in++] =
            (plait_message_t){h->sends[i].peer, &h->receipts[i], sizeof(receipt_t)};
    }
    swap(h, n_out, n_in);
}

/* Also after a failure, since a peer may be about to read this rank's memory. */
static void settle(handover_t *h)
{
    for (int i = 0; i < h->n_sends; i++) {
        if (h->mine[i].is_good != 0 && h->receipts[i].is_good != 0) {
            (void)plait_device_failed(
                h->run, h->by->settle(h->run, h->sends[i].peer, h->receipts[i].word));
        }
    }
}

plait_status_t plait_handover_record(const plait_device_run_t *run,
                                     plait_event_t *event, bool *is_recorded)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;

    if (*is_recorded) {
        PLAIT_TRY(table->event_order(run->device, event, run->stream));
    }
    PLAIT_TRY(table->event_record(run->device, event, run->stream));
    *is_recorded = true;
done:
    return status;
}

plait_status_t plait_handover(plait_device_run_t *run, const plait_handover_t *by,
                              int n_sends, const plait_message_t sends[], int n_recvs,
                              const plait_message_t recvs[])
{
    plait_status_t status = PLAIT_OK;
    handover_t h = {.run = run,
                    .by = by,
                    .n_sends = n_sends,
                    .n_recvs = n_recvs,
                    .sends = sends,
                    .recvs = recvs};
    void *memory = NULL;

    if (run->is_lost) {
        goto done;
    }
    status = take_memory(&h, &memory);
    if (status != PLAIT_OK) {
        run->is_lost = true;
        (void)plait_device_failed(run, status);
        goto done;
    }
    h.in = h.out + n_sends;
    make_offers(&h);
    swap(&h, n_sends, n_recvs);
    if (!run->is_lost) {
        take_offers(&h);
        give_receipts(&h);
    }
    if (!run->is_lost) {
        settle(&h);
    }
    if (by->finish != NULL && run->state != NULL) {
        by->finish(run);
    }
done:
    plait_pool_give(memory);
    return run->failure;
}
