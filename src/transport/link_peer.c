/* Ranks that are devices of one process: each copies from the others' memory by its address. An event of the
 * sender says when the memory is filled, an event of the receiver says when it was read. */
#include "base/alloc.h"
#include "base/status.h"
#include "transport/handover.h"

/* Both events are recorded anew in every exchange. A wait for an event is for its last record. This record is
 * of the same exchange or, if its rank has gone ahead, of a later exchange of the same operation, which depends
 * on nothing that the waiting rank has not enqueued yet. When another operation records the events, perhaps on
 * another stream, a fence came before, and nobody is about to wait for them. */
typedef struct {
    plait_event_t *filled, *taken;
    bool has_filled, has_taken; /* been recorded */
} peer_t;

static plait_status_t peer_can(const plait_endpoint_t *end,
                               const plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(end->peers == NULL, PLAIT_ERR_UNSUPPORTED,
                "ranks are not devices of one process");
    PLAIT_CHECK(device->table->copy != NULL, PLAIT_ERR_UNSUPPORTED,
                "%s devices do not copy from each other", device->table->name);
done:
    return status;
}

static void peer_close(plait_device_t *device, void *state, bool is_whole)
{
    peer_t *peer = state;

    (void)is_whole;
    if (peer->filled != NULL) {
        device->table->event_destroy(device, peer->filled);
    }
    if (peer->taken != NULL) {
        device->table->event_destroy(device, peer->taken);
    }
    plait_free(peer);
}

static plait_status_t peer_open(plait_device_run_t *run, void **state_p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = run->device;
    peer_t *peer = plait_alloc(1, sizeof(*peer));

    PLAIT_CHECK(peer != NULL, PLAIT_ERR_NO_MEMORY, "no memory for events");
    PLAIT_TRY(device->table->event_create(device, &peer->filled));
    PLAIT_TRY(device->table->event_create(device, &peer->taken));
    *state_p = peer;
    peer = NULL;
done:
    if (peer != NULL) {
        peer_close(device, peer, true);
    }
    return status;
}

static uint64_t word_of(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

static void *address_of(uint64_t word)
{
    return (void *)(uintptr_t)word;
}

static plait_status_t peer_ready(plait_device_run_t *run)
{
    peer_t *mine = run->state;

    return plait_handover_record(run, mine->filled, &mine->has_filled);
}

static plait_status_t peer_offer(plait_device_run_t *run,
                                 const plait_message_t *message, plait_offer_t *offer)
{
    const peer_t *mine = run->state;

    offer->words[0] = word_of(run->device);
    offer->words[1] = word_of(message->data);
    offer->words[2] = word_of(mine->filled);
    return PLAIT_OK;
}

static plait_status_t peer_take(plait_device_run_t *run, int peer,
                                const plait_offer_t *offer, void *dst, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;

    (void)peer;
    PLAIT_TRY(
        table->event_order(run->device, address_of(offer->words[2]), run->stream));
    PLAIT_TRY(table->copy(run->device, run->stream, dst, address_of(offer->words[0]),
                          address_of(offer->words[1]), n_bytes));
done:
    return status;
}

static plait_status_t peer_receipt(plait_device_run_t *run, uint64_t *word_p)
{
    peer_t *mine = run->state;

    *word_p = word_of(mine->taken);
    return plait_handover_record(run, mine->taken, &mine->has_taken);
}

static plait_status_t peer_settle(plait_device_run_t *run, int peer, uint64_t word)
{
    (void)peer;
    return run->device->table->event_order(run->device, address_of(word), run->stream);
}

static plait_status_t peer_exchange(plait_device_run_t *run, int n_sends,
                                    const plait_message_t sends[], int n_recvs,
                                    const plait_message_t recvs[])
{
    static const plait_handover_t by = {.ready = peer_ready,
                                        .offer = peer_offer,
                                        .take = peer_take,
                                        .receipt = peer_receipt,
                                        .settle = peer_settle};

    return plait_handover(run, &by, n_sends, sends, n_recvs, recvs);
}

/* ---- matched transfers ---- */

/* Each transfer has its own events: one of the sender, which the receiver no longer needs when it answers, and
 * one of the receiver, which the answer hands to the sender. */

static bool matched_can(const plait_endpoint_t *end, const plait_device_t *device)
{
    return end->peers == NULL && end->size > 1 && device->table->copy != NULL;
}

static plait_status_t matched_offer(plait_sending_t *sending, plait_offer_t *offer)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = sending->run->device;

    PLAIT_TRY(device->table->event_create(device, &sending->filled));
    PLAIT_TRY(
        device->table->event_record(device, sending->filled, sending->run->stream));
    offer->words[0] = word_of(device);
    offer->words[1] = word_of(sending->sent.data);
    offer->words[2] = word_of(sending->filled);
done:
    return status;
}

static plait_status_t matched_take(plait_device_run_t *run, void *state, int source,
                                   const plait_offer_t *offer, void *dst,
                                   int64_t n_bytes, plait_receipt_t *receipt)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;
    plait_event_t *taken = NULL;

    (void)state;
    PLAIT_TRY(table->event_create(run->device, &taken));
    PLAIT_TRY(peer_take(run, source, offer, dst, n_bytes));
    PLAIT_TRY(table->event_record(run->device, taken, run->stream));
    receipt->words[0] = word_of(run->device);
    receipt->words[1] = word_of(taken);
    taken = NULL;
done:
    if (taken != NULL) {
        table->event_destroy(run->device, taken);
    }
    return status;
}

/* If this rank's own device fails, the thread waits by the receiver's device. */
static plait_status_t matched_settle(plait_sending_t *sending,
                                     const plait_receipt_t *receipt)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = sending->run->device->table;

    if (receipt != NULL) {
        plait_device_t *receiver = address_of(receipt->words[0]);
        plait_event_t *taken = address_of(receipt->words[1]);
        status = table->event_order(sending->run->device, taken, sending->run->stream);
        if (status != PLAIT_OK) { /* the memory is being read, and will be given back */
            (void)receiver->table->event_wait(receiver, taken);
        }
        receiver->table->event_destroy(receiver, taken);
    }
    if (sending->filled != NULL) {
        table->event_destroy(sending->run->device, sending->filled);
    }
    return status;
}

static const plait_matched_link_t matched = {.can = matched_can,
                                             .offer = matched_offer,
                                             .take = matched_take,
                                             .settle = matched_settle};

const plait_device_link_t plait_link_peer = {
    .name = "peer",
    .is_known = true,
    .can = peer_can,
    .open = peer_open,
    .close = peer_close,
    .exchange = peer_exchange,
    .matched = &matched,
};
