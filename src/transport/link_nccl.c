/* Ranks that NCCL connects. All messages of an exchange are one group on the stream, and no thread waits for
 * it. A rank that has failed takes no part in the exchange. All ranks learn of the failure at the fence at the
 * end of the operation; they then end everything that waits for this rank, and make another NCCL communicator
 * before the next operation.
 *
 * NCCL connects two ranks at their first message, and waits for the connection on the host. So all pairs
 * exchange a message when the link is opened, while ranks still tell each other what fails. */
#include "base/alloc.h"
#include "base/status.h"
#include "base/wait.h"
#include "transport/device_link.h"

#include <stdio.h>

typedef struct {
    plait_nccl_t *nccl;
    plait_event_t *latest; /* behind the last exchange */
} link_t;

typedef struct {
    int64_t is_good;
    plait_nccl_id_t id;
} card_t;

static plait_status_t link_can(const plait_endpoint_t *end,
                               const plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;

    (void)end;
    PLAIT_CHECK(device->table->nccl != NULL, PLAIT_ERR_UNSUPPORTED,
                "NCCL knows no %s devices", device->table->name);
    PLAIT_TRY(device->table->nccl->can());
done:
    return status;
}

/* Waits until the call is over, for as long as the ranks waited for may still come. */
static plait_status_t wait_for(const plait_device_nccl_t *call, plait_nccl_t *nccl)
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin("NCCL", -1);
    bool is_over = false;

    wait.is_begun = true;
    PLAIT_TRY(call->ask(nccl, &is_over));
    while (!is_over) {
        PLAIT_TRY(plait_wait_turn(&wait));
        PLAIT_TRY(call->ask(nccl, &is_over));
    }
done:
    return status;
}

static void end_link(plait_device_t *device, link_t *link, bool is_whole)
{
    const plait_device_nccl_t *call = device->table->nccl;

    if (link->nccl != NULL && is_whole) {
        (void)device->table->event_wait(device, link->latest);
        call->close(link->nccl);
    } else if (link->nccl != NULL) {
        call->abort(link->nccl);
    }
    if (link->latest != NULL) {
        device->table->event_destroy(device, link->latest);
    }
    plait_free(link);
}

static void link_close(plait_device_t *device, void *state, bool is_whole)
{
    end_link(device, state, is_whole);
}

static void link_abandon(plait_device_run_t *run, void *state)
{
    end_link(run->device, state, false);
}

/* Each rank says whether it is ready to go on; card: the first rank's when this returns. */
static plait_status_t share_card(plait_device_run_t *run, plait_status_t ready,
                                 card_t *card)
{
    plait_status_t status = PLAIT_OK;
    const int size = run->session->end->size;
    card_t *all = plait_alloc(size, sizeof(*all));
    char why[200];

    (void)snprintf(why, sizeof(why), "%s",
                   (ready != PLAIT_OK) ? plait_error_text() : "");
    card->is_good = ready == PLAIT_OK;
    run->is_lost = run->is_lost || all == NULL;
    PLAIT_CHECK(all != NULL, PLAIT_ERR_NO_MEMORY, "no memory for an id");
    PLAIT_TRY(plait_device_share(run, card, sizeof(*card), all));
    PLAIT_CHECK(ready == PLAIT_OK, ready, "%s", why);
    for (int r = 0; r < size; r++) {
        PLAIT_CHECK(all[r].is_good != 0, PLAIT_ERR_PEER, "rank %d cannot", r);
    }
    *card = all[0];
done:
    plait_free(all);
    return status;
}

/* Ends the group even if a part of it was refused. */
static plait_status_t begin_group(plait_device_run_t *run, const link_t *link,
                                  int n_sends, const plait_message_t sends[],
                                  int n_recvs, const plait_message_t recvs[])
{
    plait_status_t status = PLAIT_OK;
    const plait_device_nccl_t *call = run->device->table->nccl;
    char why[200];

    PLAIT_TRY(call->begin(link->nccl));
    for (int i = 0; i < n_sends && status == PLAIT_OK; i++) {
        status = call->send(link->nccl, run->stream, sends[i].peer, sends[i].data,
                            sends[i].n_bytes);
    }
    for (int i = 0; i < n_recvs && status == PLAIT_OK; i++) {
        status = call->recv(link->nccl, run->stream, recvs[i].peer, recvs[i].data,
                            recvs[i].n_bytes);
    }
    if (status == PLAIT_OK) {
        status = call->end(link->nccl);
    } else {
        (void)snprintf(why, sizeof(why), "%s", plait_error_text());
        (void)call->end(link->nccl);
        status = plait_fail(status, "%s", why);
    }
done:
    return status;
}

/* ---- before the first exchange ---- */

/* On the device, and the same in pinned memory: for each rank a byte to it, then a byte from it. */
typedef struct {
    plait_device_run_t *run;
    link_t *link;
    card_t card;
    char *bytes, *pinned;
} opening_t;

/* Not 0, which is there before. */
static char byte_of(const opening_t *o, int from, int to)
{
    enum { N_VALUES = 127 };

    return (char)(1 + (from * o->run->session->end->size + to) % N_VALUES);
}

static plait_status_t prepare(opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = o->run->device;
    const plait_device_table_t *table = device->table;
    const plait_endpoint_t *end = o->run->session->end;
    void *bytes = NULL, *pinned = NULL;

    PLAIT_CHECK(o->link != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(table->event_create(device, &o->link->latest));
    PLAIT_TRY(table->event_record(device, o->link->latest, o->run->stream));
    /* Work that the program has begun may take long: none of that time is NCCL's. */
    PLAIT_TRY(table->event_wait(device, o->link->latest));
    PLAIT_TRY(table->take(device, o->run->stream, 2 * end->size, &bytes));
    o->bytes = bytes;
    PLAIT_TRY(table->host_take(device, 2 * end->size, &pinned));
    o->pinned = pinned;
    for (int r = 0; r < end->size; r++) {
        o->pinned[r] = byte_of(o, end->rank, r);
        o->pinned[end->size + r] = 0;
    }
    PLAIT_TRY(
        table->to_device(device, o->run->stream, o->bytes, o->pinned, 2 * end->size));
    if (end->rank == 0) {
        PLAIT_TRY(table->nccl->id(&o->card.id));
    }
done:
    return status;
}

static plait_status_t send_bytes(const opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    const plait_endpoint_t *end = o->run->session->end;
    plait_message_t *sends = plait_alloc(2 * end->size, sizeof(*sends));
    plait_message_t *recvs = sends + end->size;
    int n = 0;

    PLAIT_CHECK(sends != NULL, PLAIT_ERR_NO_MEMORY, "no memory for messages");
    for (int r = 0; r < end->size; r++) {
        if (r != end->rank) {
            sends[n] = (plait_message_t){r, o->bytes + r, 1};
            recvs[n++] = (plait_message_t){r, o->bytes + end->size + r, 1};
        }
    }
    PLAIT_TRY(begin_group(o->run, o->link, n, sends, n, recvs));
done:
    plait_free(sends);
    return status;
}

/* Waits until all pairs are connected. */
static plait_status_t bring_bytes(const opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    plait_device_run_t *run = o->run;
    const plait_device_table_t *table = run->device->table;

    PLAIT_TRY(wait_for(table->nccl, o->link->nccl));
    PLAIT_TRY(table->to_host(run->device, run->stream, o->pinned, o->bytes,
                             2 * run->session->end->size));
    PLAIT_TRY(table->event_record(run->device, o->link->latest, run->stream));
done:
    return status;
}

static plait_status_t look_at_bytes(const opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    const plait_endpoint_t *end = o->run->session->end;

    PLAIT_TRY(plait_device_await(o->run->device, o->link->latest, "NCCL", INT64_MAX));
    for (int r = 0; r < end->size; r++) {
        PLAIT_CHECK(r == end->rank ||
                        o->pinned[end->size + r] == byte_of(o, r, end->rank),
                    PLAIT_ERR_UNSUPPORTED,
                    "what rank %d has sent by NCCL is not what is here", r);
    }
done:
    return status;
}

/* Nobody calls MPI while NCCL is polled, and a message of the last meeting may wait for a call of MPI. So
 * NCCL's collective steps are begun between two meetings, and waited for after the second: by then all ranks
 * have begun them, and NCCL's own threads go on with them. */
static plait_status_t go(opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    plait_device_run_t *run = o->run;
    const plait_endpoint_t *end = run->session->end;
    const plait_device_nccl_t *call = run->device->table->nccl;

    PLAIT_TRY(share_card(run, prepare(o), &o->card));
    PLAIT_TRY(share_card(
        run, call->open(&o->card.id, end->size, end->rank, &o->link->nccl), &o->card));
    PLAIT_TRY(share_card(run, wait_for(call, o->link->nccl), &o->card));
    PLAIT_TRY(share_card(run, send_bytes(o), &o->card));
    PLAIT_TRY(share_card(run, bring_bytes(o), &o->card)); /* else streams wait */
    PLAIT_TRY(look_at_bytes(o));
done:
    return status;
}

static plait_status_t link_open(plait_device_run_t *run, void **state_p)
{
    const plait_device_table_t *table = run->device->table;
    opening_t o = {.run = run, .link = plait_alloc(1, sizeof(link_t))};
    plait_status_t status = go(&o);
    char why[200];

    if (status == PLAIT_OK) {
        *state_p = o.link;
    } else if (o.link != NULL) {
        (void)snprintf(why, sizeof(why), "%s", plait_error_text());
        link_abandon(run, o.link);
        (void)table->stream_wait(run->device, run->stream);
        status = plait_fail(status, "%s", why);
    }
    if (o.pinned != NULL) {
        table->host_give(run->device, o.pinned);
    }
    if (o.bytes != NULL) {
        table->give(run->device, run->stream, o.bytes);
    }
    return status;
}

/* ---- an exchange ---- */

static plait_status_t exchange(plait_device_run_t *run, int n_sends,
                               const plait_message_t sends[], int n_recvs,
                               const plait_message_t recvs[])
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;
    link_t *link = run->state;

    run->is_held = true;
    PLAIT_TRY(begin_group(run, link, n_sends, sends, n_recvs, recvs));
    PLAIT_TRY(wait_for(table->nccl, link->nccl));
    PLAIT_TRY(table->event_record(run->device, link->latest, run->stream));
done:
    return status;
}

static plait_status_t link_exchange(plait_device_run_t *run, int n_sends,
                                    const plait_message_t sends[], int n_recvs,
                                    const plait_message_t recvs[])
{
    return (run->failure != PLAIT_OK)
               ? run->failure
               : plait_device_failed(run,
                                     exchange(run, n_sends, sends, n_recvs, recvs));
}

static plait_status_t link_wait(plait_device_run_t *run)
{
    plait_status_t status = PLAIT_OK;
    const link_t *link = run->state;

    PLAIT_TRY(run->device->table->event_record(run->device, link->latest, run->stream));
    PLAIT_TRY(plait_device_await(run->device, link->latest, "NCCL", INT64_MAX));
done:
    return status;
}

const plait_device_link_t plait_link_nccl = {
    .name = "nccl",
    .can = link_can,
    .open = link_open,
    .close = link_close,
    .abandon = link_abandon,
    .exchange = link_exchange,
    .wait = link_wait,
};
