/* Ranks that are processes of one node: each copies from the others' device memory, which the system maps into
 * its own process.
 *
 * A block of a peer's memory is opened once and kept. Rank, base and number identify it: if the number has
 * changed, there is another block at the same place. Memory that cannot be shown to other processes, such as
 * that of some allocators, is first copied to memory of plait's own that can be shown.
 *
 * Before the first exchange every pair of ranks proves with real bytes that this works: containers, and parts
 * of a GPU, may refuse it. Virtual memory, which XLA's arrays may have, is proved in the same way: if one pair
 * of ranks cannot open it, the virtual memory of all ranks is copied. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/handover.h"
#include "transport/ipc_pairs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_OPENED = 64, PROBE_BYTES = 4096 };

typedef struct {
    int peer;
    uint64_t base, number;
    char *here;       /* NULL: free */
    int64_t n_latest; /* among all uses, the number of its last use */
} opened_t;

typedef struct {
    plait_event_t *filled, *taken; /* one of each for a rank; others see this rank's */
} events_t;

typedef struct {
    int rank, n_ranks;
    events_t *events;
    bool has_filled, has_taken; /* this rank's event has been recorded */
    bool has_virtual;           /* all ranks open each other's virtual memory */
    opened_t opened[MAX_OPENED];
    int64_t n_uses;
    void **copies; /* of this exchange's messages, in memory that can be shown */
    int n_copies;
    bool has_said; /* the reason for copies was logged */
} ipc_t;

/* What a rank shows the others before the first exchange. */
typedef struct {
    int64_t is_good;
    plait_device_handle_t filled, taken;
    plait_device_shown_t probe;
    uint64_t nonce;
    int64_t has_virtual;
    plait_device_shown_t of_virtual;
} card_t;

static plait_status_t ipc_can(const plait_endpoint_t *end, const plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(end->peers != NULL && !end->caps.is_far, PLAIT_ERR_UNSUPPORTED,
                "ranks are not processes of one node");
    PLAIT_CHECK(device->table->memory_export != NULL, PLAIT_ERR_UNSUPPORTED,
                "memory of %s devices cannot be shown to other processes",
                device->table->name);
done:
    return status;
}

/* ---- blocks of peers ---- */

/* Reads of the block end first, on this stream and on the streams of earlier operations. */
static void drop(plait_device_run_t *run, opened_t *opened)
{
    const ipc_t *ipc = run->state;
    const plait_device_table_t *table = run->device->table;

    if (opened->here != NULL) {
        (void)table->stream_wait(run->device, run->stream);
        if (ipc->has_taken) {
            (void)table->event_wait(run->device,
                                    ipc->events[run->session->end->rank].taken);
        }
        table->memory_drop(run->device, opened->here);
    }
    *opened = (opened_t){.here = NULL};
}

/* The place of a block: where the block is, or was under another number; else a free place, or the place that
 * was not used for the longest time. */
static opened_t *place_of(ipc_t *ipc, int peer, uint64_t base)
{
    opened_t *oldest = &ipc->opened[0];
    opened_t *same = NULL;

    for (int i = 0; i < MAX_OPENED; i++) {
        opened_t *o = &ipc->opened[i];
        same = (o->here != NULL && o->peer == peer && o->base == base) ? o : same;
        oldest = (o->n_latest < oldest->n_latest) ? o : oldest;
    }
    return (same != NULL) ? same : oldest;
}

static plait_status_t open_block(plait_device_run_t *run, int peer,
                                 const plait_device_shown_t *shown, char **here_p)
{
    plait_status_t status = PLAIT_OK;
    ipc_t *ipc = run->state;
    opened_t *o = place_of(ipc, peer, shown->base);
    void *here = NULL;

    if (o->here == NULL || o->peer != peer || o->base != shown->base ||
        o->number != shown->number) {
        drop(run, o);
        PLAIT_TRY(run->device->table->memory_import(run->device, shown, &here));
        *o = (opened_t){peer, shown->base, shown->number, here, 0};
    }
    o->n_latest = ++ipc->n_uses;
    *here_p = o->here;
done:
    return status;
}

/* ---- an exchange ---- */

/* Copies to memory that the device can show; given back when the exchange is over. */
static plait_status_t copy_aside(plait_device_run_t *run,
                                 const plait_message_t *message,
                                 plait_device_shown_t *shown)
{
    plait_status_t status = PLAIT_OK;
    ipc_t *ipc = run->state;
    plait_device_t *device = run->device;
    void **place = &ipc->copies[ipc->n_copies];

    if (!ipc->has_said) {
        plait_log(PLAIT_LOG_INFO, "rank %d copies what it sends: %s",
                  run->session->end->rank, plait_error_text());
        ipc->has_said = true;
    }
    PLAIT_TRY(device->table->take(device, run->stream, message->n_bytes, place));
    ipc->n_copies++;
    PLAIT_TRY(device->table->copy(device, run->stream, *place, NULL, message->data,
                                  message->n_bytes));
    PLAIT_TRY(
        device->table->memory_export(device, *place, message->n_bytes, false, shown));
done:
    return status;
}

static plait_status_t ipc_offer(plait_device_run_t *run, const plait_message_t *message,
                                plait_offer_t *offer)
{
    plait_device_shown_t shown = {.offset = 0};
    const ipc_t *ipc = run->state;
    plait_status_t status = run->device->table->memory_export(
        run->device, message->data, message->n_bytes, ipc->has_virtual, &shown);

    if (status == PLAIT_ERR_UNSUPPORTED) {
        status = copy_aside(run, message, &shown);
    }
    memcpy(offer->words, &shown, sizeof(shown));
    return status;
}

static plait_status_t ipc_ready(plait_device_run_t *run)
{
    ipc_t *ipc = run->state;

    return plait_handover_record(run, ipc->events[run->session->end->rank].filled,
                                 &ipc->has_filled);
}

static plait_status_t ipc_take(plait_device_run_t *run, int peer,
                               const plait_offer_t *offer, void *dst, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const ipc_t *ipc = run->state;
    const plait_device_table_t *table = run->device->table;
    plait_device_shown_t shown;
    char *here = NULL;

    memcpy(&shown, offer->words, sizeof(shown));
    PLAIT_TRY(open_block(run, peer, &shown, &here));
    PLAIT_TRY(table->event_order(run->device, ipc->events[peer].filled, run->stream));
    PLAIT_TRY(
        table->copy(run->device, run->stream, dst, NULL, here + shown.offset, n_bytes));
done:
    return status;
}

static plait_status_t ipc_receipt(plait_device_run_t *run, uint64_t *word_p)
{
    ipc_t *ipc = run->state;

    *word_p = 0;
    return plait_handover_record(run, ipc->events[run->session->end->rank].taken,
                                 &ipc->has_taken);
}

static plait_status_t ipc_settle(plait_device_run_t *run, int peer, uint64_t word)
{
    const ipc_t *ipc = run->state;

    (void)word;
    return run->device->table->event_order(run->device, ipc->events[peer].taken,
                                           run->stream);
}

static void give_copies(ipc_t *ipc, plait_device_t *device, plait_stream_t stream)
{
    for (int i = 0; i < ipc->n_copies; i++) {
        device->table->give(device, stream, ipc->copies[i]);
    }
    ipc->n_copies = 0;
}

/* After a failure peers may still read the copies, until all have met. */
static void ipc_finish(plait_device_run_t *run)
{
    if (run->failure == PLAIT_OK) {
        give_copies(run->state, run->device, run->stream);
    }
}

static plait_status_t ipc_exchange(plait_device_run_t *run, int n_sends,
                                   const plait_message_t sends[], int n_recvs,
                                   const plait_message_t recvs[])
{
    static const plait_handover_t by = {.offer = ipc_offer,
                                        .ready = ipc_ready,
                                        .take = ipc_take,
                                        .receipt = ipc_receipt,
                                        .settle = ipc_settle,
                                        .finish = ipc_finish};

    run->is_held = true;
    if (run->failure == PLAIT_OK) {
        give_copies(run->state, run->device, run->stream); /* of a failed exchange */
    }
    return plait_handover(run, &by, n_sends, sends, n_recvs, recvs);
}

/* ---- before the first one ---- */

/* Whether this rank's last copy from peers is over: a result that nobody looks at may still be on its way. It
 * arrives, unless peers were given up. */
static bool is_brought(plait_device_t *device, const ipc_t *ipc, bool is_whole)
{
    const plait_device_table_t *table = device->table;
    bool is_over = !ipc->has_taken;

    if (!is_over && is_whole) {
        is_over = table->event_wait(device, ipc->events[ipc->rank].taken) == PLAIT_OK;
    } else if (!is_over) {
        plait_event_t *taken = ipc->events[ipc->rank].taken;
        (void)plait_device_await(device, taken, "memory of peers",
                                 plait_clock_ns() + PLAIT_DEVICE_DRAIN_NS);
        is_over = table->event_ask(device, taken, &is_over) == PLAIT_OK && is_over;
    }
    return is_over;
}

/* Blocks of peers that may still be read stay open. */
static void ipc_close(plait_device_t *device, void *state, bool is_whole)
{
    ipc_t *ipc = state;
    plait_stream_t stream = NULL;

    if (ipc->n_copies > 0 &&
        device->table->stream_create(device, &stream) == PLAIT_OK) {
        give_copies(ipc, device, stream);
        device->table->stream_destroy(device, stream);
    }
    const bool is_over = is_brought(device, ipc, is_whole);
    for (int i = 0; i < MAX_OPENED && is_over; i++) {
        if (ipc->opened[i].here != NULL) {
            device->table->memory_drop(device, ipc->opened[i].here);
        }
    }
    for (int r = 0; ipc->events != NULL && r < ipc->n_ranks; r++) {
        if (ipc->events[r].filled != NULL) {
            device->table->event_destroy(device, ipc->events[r].filled);
        }
        if (ipc->events[r].taken != NULL) {
            device->table->event_destroy(device, ipc->events[r].taken);
        }
    }
    plait_free(ipc->events);
    plait_free(ipc->copies);
    plait_free(ipc);
}

/* The bytes that prove that memory read from a peer is the peer's. */
static void fill(char bytes[], uint64_t nonce)
{
    for (int i = 0; i < PROBE_BYTES; i++) {
        bytes[i] = (char)(nonce >> (8 * (i % 8)) ^ (uint64_t)i);
    }
}

/* The proof on all pairs. Memory: this rank's probe, and room for a peer's probe. */
typedef struct {
    plait_device_run_t *run;
    ipc_t *ipc;
    void *probe, *of_virtual;
    char *pinned;
    card_t mine, *all;
} proof_t;

static plait_status_t say_without(int rank)
{
    plait_log(PLAIT_LOG_INFO, "rank %d takes part in no virtual memory: %s", rank,
              plait_error_text());
    return PLAIT_OK;
}

/* The same bytes in virtual memory. Without virtual memory none is shown, and nothing has failed. */
static plait_status_t show_virtual(proof_t *p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = p->run->device;
    const plait_device_table_t *table = device->table;

    if (table->virtual_take != NULL) {
        PLAIT_TRY(table->virtual_take(device, PROBE_BYTES, &p->of_virtual));
        PLAIT_TRY(table->memory_export(device, p->of_virtual, PROBE_BYTES, true,
                                       &p->mine.of_virtual));
        PLAIT_TRY(table->to_device(device, p->run->stream, p->of_virtual, p->pinned,
                                   PROBE_BYTES));
        p->mine.has_virtual = 1;
    }
done:
    return (status == PLAIT_ERR_UNSUPPORTED) ? say_without(p->ipc->rank) : status;
}

static plait_status_t show(proof_t *p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = p->run->device;
    const plait_device_table_t *table = device->table;
    events_t *events = &p->ipc->events[p->ipc->rank];
    void *pinned = NULL;

    PLAIT_TRY(table->event_export(device, &events->filled, &p->mine.filled));
    PLAIT_TRY(table->event_export(device, &events->taken, &p->mine.taken));
    PLAIT_TRY(table->take(device, p->run->stream, 2 * PROBE_BYTES, &p->probe));
    PLAIT_TRY(
        table->memory_export(device, p->probe, PROBE_BYTES, false, &p->mine.probe));
    PLAIT_TRY(table->host_take(device, 2 * PROBE_BYTES, &pinned));
    p->pinned = pinned;
    p->mine.nonce =
        (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)p->ipc ^ (uint64_t)p->ipc->rank;
    fill(p->pinned, p->mine.nonce);
    PLAIT_TRY(
        table->to_device(device, p->run->stream, p->probe, p->pinned, PROBE_BYTES));
    PLAIT_TRY(show_virtual(p));
    PLAIT_TRY(table->event_record(device, events->filled, p->run->stream));
    PLAIT_TRY(table->stream_wait(device, p->run->stream));
    p->mine.is_good = 1;
done:
    return status;
}

static plait_status_t read_probe(const proof_t *p, int peer,
                                 const plait_device_shown_t *shown)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = p->run->device;
    const plait_device_table_t *table = device->table;
    char *room = (char *)p->probe + PROBE_BYTES;
    char *found = p->pinned + PROBE_BYTES;
    char expected[PROBE_BYTES];
    void *base = NULL;

    PLAIT_TRY(table->memory_import(device, shown, &base));
    PLAIT_TRY(table->event_order(device, p->ipc->events[peer].filled, p->run->stream));
    PLAIT_TRY(table->copy(device, p->run->stream, room, NULL,
                          (char *)base + shown->offset, PROBE_BYTES));
    PLAIT_TRY(table->to_host(device, p->run->stream, found, room, PROBE_BYTES));
    PLAIT_TRY(table->stream_wait(device, p->run->stream));
    fill(expected, p->all[peer].nonce);
    PLAIT_CHECK(memcmp(found, expected, PROBE_BYTES) == 0, PLAIT_ERR_UNSUPPORTED,
                "memory of rank %d's device does not hold what that has written", peer);
done:
    if (base != NULL) {
        if (status != PLAIT_OK) {
            (void)table->stream_wait(device, p->run->stream);
        }
        table->memory_drop(device, base);
    }
    return status;
}

/* can_p: whether its virtual memory can be read, too, or may still turn out so. */
static plait_status_t read_peer(const proof_t *p, int peer, bool *can_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = p->run->device->table;
    const card_t *card = &p->all[peer];
    events_t *events = &p->ipc->events[peer];

    PLAIT_TRY(table->event_import(p->run->device, &card->filled, &events->filled));
    PLAIT_TRY(table->event_import(p->run->device, &card->taken, &events->taken));
    PLAIT_TRY(read_probe(p, peer, &card->probe));
    *can_p = *can_p && card->has_virtual != 0;
    if (*can_p) {
        status = read_probe(p, peer, &card->of_virtual);
        *can_p = status == PLAIT_OK;
        status = (status == PLAIT_ERR_UNSUPPORTED) ? say_without(p->ipc->rank) : status;
    }
done:
    return status;
}

/* No rank gives its probe back before all have read it. */
static plait_status_t prove(proof_t *p)
{
    plait_status_t status = PLAIT_OK;
    plait_status_t found = show(p);
    bool can = p->mine.has_virtual != 0;
    char why[200] = "";
    char over = 0;

    if (found != PLAIT_OK) {
        (void)snprintf(why, sizeof(why), "%s", plait_error_text());
    }
    PLAIT_TRY(plait_device_share(p->run, &p->mine, sizeof(p->mine), p->all));
    for (int r = 0; r < p->ipc->n_ranks && found == PLAIT_OK; r++) {
        if (r != p->ipc->rank && p->all[r].is_good != 0) {
            found = read_peer(p, r, &can);
        }
        if (found != PLAIT_OK) {
            (void)snprintf(why, sizeof(why), "%s", plait_error_text());
        }
    }
    over = can ? 1 : 0;
    PLAIT_TRY(plait_device_share(p->run, &over, sizeof(over), p->all));
    p->ipc->has_virtual = memchr(p->all, 0, (size_t)p->ipc->n_ranks) == NULL;
    PLAIT_CHECK(found == PLAIT_OK, found, "%s", why);
done:
    return status;
}

static plait_status_t ipc_open(plait_device_run_t *run, void **state_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;
    const int n_ranks = run->session->end->size;
    ipc_t *ipc = plait_alloc(1, sizeof(*ipc));
    proof_t proof = {.run = run, .ipc = ipc};

    PLAIT_CHECK(ipc != NULL, PLAIT_ERR_NO_MEMORY, "no memory for peers' events");
    ipc->rank = run->session->end->rank;
    ipc->n_ranks = n_ranks;
    ipc->events = plait_alloc(n_ranks, sizeof(*ipc->events));
    ipc->copies = plait_alloc(n_ranks, sizeof(*ipc->copies));
    proof.all = plait_alloc(n_ranks, sizeof(*proof.all));
    PLAIT_CHECK(ipc->events != NULL && ipc->copies != NULL && proof.all != NULL,
                PLAIT_ERR_NO_MEMORY, "no memory for peers' events");
    PLAIT_TRY(prove(&proof));
    *state_p = ipc;
    ipc = NULL;
done:
    run->is_lost = run->is_lost || proof.all == NULL;
    if (proof.pinned != NULL) {
        if (status != PLAIT_OK) {
            (void)table->stream_wait(run->device, run->stream);
        }
        table->host_give(run->device, proof.pinned);
    }
    if (proof.of_virtual != NULL) {
        table->virtual_give(run->device, proof.of_virtual);
    }
    if (proof.probe != NULL) {
        table->give(run->device, run->stream, proof.probe);
    }
    plait_free(proof.all);
    if (ipc != NULL) {
        ipc_close(run->device, ipc, !run->is_lost);
    }
    return status;
}

bool plait_ipc_has_virtual(const void *state)
{
    const ipc_t *ipc = state;

    return ipc->has_virtual;
}

const plait_device_link_t plait_link_ipc = {
    .name = "ipc",
    .can = ipc_can,
    .open = ipc_open,
    .close = ipc_close,
    .exchange = ipc_exchange,
    .matched = &plait_ipc_pairs,
};
