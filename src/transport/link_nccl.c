/* Ranks that NCCL connects. All messages of an exchange are one group on the stream, and nobody
 * waits for it. A rank that has failed takes no part in it: when all ranks know of that, at the
 * fence at the end of the operation, they end what waits for it and make another communicator before the
 * next one. */
#include "base/alloc.h"
#include "base/status.h"
#include "base/wait.h"
#include "transport/device_link.h"

#include <stdio.h>

typedef struct {
    plait_nccl_t *nccl;
    plait_event_t *latest; /* the last exchange */
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

/* Until what was begun is over; for as long as those who are waited for may still come. */
static plait_status_t wait_for(const plait_device_nccl_t *call, plait_nccl_t *nccl)
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin("NCCL", -1);
    bool is_over = false;

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

static void link_close(plait_device_t *device, void *state)
{
    end_link(device, state, true);
}

static void link_abandon(plait_device_run_t *run, void *state)
{
    end_link(run->device, state, false);
}

/* Each says whether it is ready to go on; card: the first rank's when it returns. */
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

static plait_status_t prepare(plait_device_run_t *run, link_t *link)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;

    PLAIT_CHECK(link != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(table->event_create(run->device, &link->latest));
    PLAIT_TRY(table->event_record(run->device, link->latest, run->stream));
done:
    return status;
}

static plait_status_t link_open(plait_device_run_t *run, void **state_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_endpoint_t *end = run->session->end;
    const plait_device_nccl_t *call = run->device->table->nccl;
    link_t *link = plait_alloc(1, sizeof(*link));
    card_t card = {.is_good = 0};
    plait_status_t ready = prepare(run, link);

    if (ready == PLAIT_OK && end->rank == 0) {
        ready = call->id(&card.id);
    }
    PLAIT_TRY(share_card(run, ready, &card));
    /* once more: nobody calls MPI while NCCL is polled, and without that an id may not arrive */
    ready = call->open(&card.id, end->size, end->rank, &link->nccl);
    PLAIT_TRY(share_card(run, ready, &card));
    PLAIT_TRY(wait_for(call, link->nccl));
    *state_p = link;
    link = NULL;
done:
    if (link != NULL) {
        link_abandon(run, link);
    }
    return status;
}

/* A group is ended also where a part of it was refused. */
static plait_status_t exchange(plait_device_run_t *run, int n_sends,
                               const plait_message_t sends[], int n_recvs,
                               const plait_message_t recvs[])
{
    plait_status_t status = PLAIT_OK;
    const plait_device_nccl_t *call = run->device->table->nccl;
    link_t *link = run->state;

    run->is_held = true;
    PLAIT_TRY(call->begin(link->nccl));
    for (int i = 0; i < n_sends && status == PLAIT_OK; i++) {
        status = call->send(link->nccl, run->stream, sends[i].peer, sends[i].data,
                            sends[i].n_bytes);
    }
    for (int i = 0; i < n_recvs && status == PLAIT_OK; i++) {
        status = call->recv(link->nccl, run->stream, recvs[i].peer, recvs[i].data,
                            recvs[i].n_bytes);
    }
    if (status != PLAIT_OK) {
        (void)plait_device_failed(run, status);
        (void)call->end(link->nccl);
        goto done;
    }
    PLAIT_TRY(call->end(link->nccl));
    PLAIT_TRY(wait_for(call, link->nccl));
    PLAIT_TRY(run->device->table->event_record(run->device, link->latest, run->stream));
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
