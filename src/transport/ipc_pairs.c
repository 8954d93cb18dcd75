#include "transport/ipc_pairs.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/device_vigil.h"
#include "transport/handover.h"

#include <string.h>

/* A rank's two events for another rank: `filled` tells that rank that a message to it is there, `taken` that
 * its message was read. A sender goes on when it has ordered its stream behind `taken`, and sends the next
 * message after that. So neither event is recorded anew before the rank that waits for it has ordered its
 * stream behind it, and no two threads use one pair at once. Records of an event are in order even on several
 * streams: each comes after the one before. */
enum { N_EVENTS = 2, FILLED = 0, TAKEN = 1, MAX_OPENED = 16 };

typedef struct {
    uint64_t base, number;
    char *here;       /* NULL: free */
    int64_t n_latest; /* among all uses, the number of its last use */
} opened_t;

typedef struct {
    plait_event_t *mine[N_EVENTS];
    plait_device_handle_t handles[N_EVENTS]; /* of `mine`, for the peer */
    plait_event_t *theirs[N_EVENTS];
    bool is_recorded[N_EVENTS]; /* mine */
    opened_t opened[MAX_OPENED];
    int64_t n_uses;
} pair_t;

typedef struct {
    int n_ranks;
    bool has_virtual; /* as in the link */
    pair_t *pairs;
} pairs_t;

/* The words of an offer. has_taken: the sender has opened the receiver's event. */
typedef struct {
    plait_device_shown_t shown;
    plait_device_handle_t filled;
    int64_t has_taken;
} letter_t;

_Static_assert(sizeof(letter_t) <= sizeof(plait_offer_t), "an offer");
_Static_assert(sizeof(plait_device_handle_t) <= sizeof(plait_receipt_t), "a receipt");

static plait_status_t pairs_create(const plait_endpoint_t *end, const void *link,
                                   void **state_p)
{
    plait_status_t status = PLAIT_OK;
    pairs_t *p = plait_alloc(1, sizeof(*p));

    PLAIT_CHECK(p != NULL, PLAIT_ERR_NO_MEMORY, "no memory for pairs of ranks");
    p->n_ranks = end->size;
    p->has_virtual = plait_ipc_has_virtual(link);
    p->pairs = plait_alloc(end->size, sizeof(*p->pairs));
    PLAIT_CHECK(p->pairs != NULL, PLAIT_ERR_NO_MEMORY, "no memory for pairs of ranks");
    *state_p = p;
    p = NULL;
done:
    plait_free(p);
    return status;
}

/* Reads of the opened memory end first. */
static void pair_close(plait_device_t *device, pair_t *pair)
{
    const plait_device_table_t *table = device->table;

    if (pair->is_recorded[TAKEN]) {
        (void)table->event_wait(device, pair->mine[TAKEN]);
    }
    for (int i = 0; i < MAX_OPENED; i++) {
        if (pair->opened[i].here != NULL) {
            table->memory_drop(device, pair->opened[i].here);
        }
    }
    for (int i = 0; i < N_EVENTS; i++) {
        if (pair->mine[i] != NULL) {
            table->event_destroy(device, pair->mine[i]);
        }
        if (pair->theirs[i] != NULL) {
            table->event_destroy(device, pair->theirs[i]);
        }
    }
}

static void pairs_destroy(plait_device_t *device, void *state)
{
    pairs_t *p = state;

    for (int r = 0; r < p->n_ranks; r++) {
        pair_close(device, &p->pairs[r]);
    }
    plait_free(p->pairs);
    plait_free(p);
}

/* Makes this rank's event at its first use. */
static plait_status_t need_mine(plait_device_t *device, pair_t *pair, int which)
{
    return (pair->mine[which] != NULL)
               ? PLAIT_OK
               : device->table->event_export(device, &pair->mine[which],
                                             &pair->handles[which]);
}

static plait_status_t need_theirs(plait_device_t *device, pair_t *pair, int which,
                                  const plait_device_handle_t *handle)
{
    return (pair->theirs[which] != NULL)
               ? PLAIT_OK
               : device->table->event_import(device, handle, &pair->theirs[which]);
}

static plait_status_t record(const plait_device_run_t *run, pair_t *pair, int which)
{
    return plait_handover_record(run, pair->mine[which], &pair->is_recorded[which]);
}

/* ---- the sender ---- */

/* Copies to memory that the device can show; given back when the message was taken. */
static plait_status_t copy_aside(plait_sending_t *sending, plait_device_shown_t *shown)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = sending->run;
    plait_device_t *device = run->device;
    const plait_message_t *sent = &sending->sent;

    plait_log(PLAIT_LOG_DEBUG, "rank %d copies what it sends to rank %d: %s",
              run->session->end->rank, sent->peer, plait_error_text());
    PLAIT_TRY(device->table->take(device, run->stream, sent->n_bytes, &sending->copy));
    PLAIT_TRY(device->table->copy(device, run->stream, sending->copy, NULL, sent->data,
                                  sent->n_bytes));
    PLAIT_TRY(device->table->memory_export(device, sending->copy, sent->n_bytes, false,
                                           shown));
done:
    return status;
}

static plait_status_t pairs_offer(plait_sending_t *sending, plait_offer_t *offer)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = sending->run->device;
    const pairs_t *p = sending->state;
    pair_t *pair = &p->pairs[sending->sent.peer];
    letter_t letter = {.has_taken = pair->theirs[TAKEN] != NULL};

    PLAIT_TRY(need_mine(device, pair, FILLED));
    plait_status_t is_shown =
        device->table->memory_export(device, sending->sent.data, sending->sent.n_bytes,
                                     p->has_virtual, &letter.shown);
    PLAIT_TRY((is_shown == PLAIT_ERR_UNSUPPORTED) ? copy_aside(sending, &letter.shown)
                                                  : is_shown);
    PLAIT_TRY(record(sending->run, pair, FILLED));
    letter.filled = pair->handles[FILLED];
    memcpy(offer->words, &letter, sizeof(letter));
done:
    return status;
}

/* A receiver whose event was not opened yet has waited for its copy. */
static plait_status_t pairs_settle(plait_sending_t *sending,
                                   const plait_receipt_t *receipt)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = sending->run;
    const plait_device_table_t *table = run->device->table;
    const pairs_t *p = sending->state;
    pair_t *pair = &p->pairs[sending->sent.peer];
    plait_device_handle_t handle;

    if (receipt != NULL && pair->theirs[TAKEN] == NULL) {
        memcpy(&handle, receipt->words, sizeof(handle));
        status = need_theirs(run->device, pair, TAKEN, &handle);
    } else if (receipt != NULL) {
        sending->run->is_held = true;
        status = table->event_order(run->device, pair->theirs[TAKEN], run->stream);
        if (status != PLAIT_OK) {
            (void)table->event_wait(run->device, pair->theirs[TAKEN]);
        }
    }
    if (sending->copy != NULL) {
        table->give(run->device, run->stream, sending->copy);
    }
    return status;
}

/* ---- the receiver ---- */

/* The place of a block: where the block is, or was under another number; else a free place, or the place that
 * was not used for the longest time. */
static opened_t *place_of(pair_t *pair, uint64_t base)
{
    opened_t *oldest = &pair->opened[0];
    opened_t *same = NULL;

    for (int i = 0; i < MAX_OPENED; i++) {
        opened_t *o = &pair->opened[i];
        same = (o->here != NULL && o->base == base) ? o : same;
        oldest = (o->n_latest < oldest->n_latest) ? o : oldest;
    }
    return (same != NULL) ? same : oldest;
}

/* Reads of a block that gives up its place end first: all messages of the peer until now. */
static plait_status_t open_block(plait_device_t *device, pair_t *pair,
                                 const plait_device_shown_t *shown, char **here_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = device->table;
    opened_t *o = place_of(pair, shown->base);
    void *here = NULL;

    if (o->here != NULL && (o->base != shown->base || o->number != shown->number)) {
        PLAIT_TRY(table->event_wait(device, pair->mine[TAKEN]));
        table->memory_drop(device, o->here);
        *o = (opened_t){.here = NULL};
    }
    if (o->here == NULL) {
        PLAIT_TRY(table->memory_import(device, shown, &here));
        *o = (opened_t){shown->base, shown->number, here, 0};
    }
    o->n_latest = ++pair->n_uses;
    *here_p = o->here;
done:
    return status;
}

static plait_status_t pairs_take(plait_device_run_t *run, void *state, int source,
                                 const plait_offer_t *offer, void *dst, int64_t n_bytes,
                                 plait_receipt_t *receipt)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;
    const pairs_t *p = state;
    pair_t *pair = &p->pairs[source];
    letter_t letter;
    char *here = NULL;

    memcpy(&letter, offer->words, sizeof(letter));
    run->is_held = true;
    PLAIT_TRY(need_mine(run->device, pair, TAKEN));
    PLAIT_TRY(need_theirs(run->device, pair, FILLED, &letter.filled));
    PLAIT_TRY(open_block(run->device, pair, &letter.shown, &here));
    PLAIT_TRY(table->event_order(run->device, pair->theirs[FILLED], run->stream));
    PLAIT_TRY(table->copy(run->device, run->stream, dst, NULL,
                          here + letter.shown.offset, n_bytes));
    PLAIT_TRY(record(run, pair, TAKEN));
    if (letter.has_taken == 0) {
        PLAIT_TRY(plait_vigil_note(run));
        PLAIT_TRY(table->event_wait(run->device, pair->mine[TAKEN]));
    }
    memcpy(receipt->words, &pair->handles[TAKEN], sizeof(pair->handles[TAKEN]));
done:
    return status;
}

const plait_matched_link_t plait_ipc_pairs = {
    .create = pairs_create,
    .destroy = pairs_destroy,
    .offer = pairs_offer,
    .take = pairs_take,
    .settle = pairs_settle,
};
