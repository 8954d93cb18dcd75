/* Ranks that NVSHMEM connects. XLA's arrays are not in NVSHMEM's memory. A message therefore goes through an
 * outbox here and an inbox there, in pieces, by copies, puts and waits on the stream; no thread waits.
 *
 * Flow control. A sender and a receiver count the pieces that went between them. The receiver's inbox has
 * slots for each sender. Piece g is put into slot g mod 2 of its sender, after the receiver has said that it
 * has taken piece g - 2; the slot's signal is then g. So at most one update of each signal is under way:
 * NVSHMEM orders two updates only by a fence ("Memory Ordering"). In an exchange all first pieces are sent,
 * then all first pieces are received, then the same with the second pieces. So a peer has enqueued what a
 * stream waits for behind pieces of earlier rounds only, and streams of ranks that do the same exchanges make
 * progress.
 *
 * A rank that has failed takes no part in the exchange, and its peers' streams wait. At the fence at the end
 * of the operation all ranks learn of the failure, and each sets its own signals so high that nothing waits
 * for them. Peers' last puts may lower a signal again, so this is repeated until the stream is empty. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/wait.h"
#include "transport/nvshmem_link.h"

#include <stdio.h>

/* For a stream that is released although a rank that it might wait for is gone. */
static const int64_t grace_ns = INT64_C(2000000000);

static plait_status_t link_can(const plait_endpoint_t *end,
                               const plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(device->table->nvshmem != NULL, PLAIT_ERR_UNSUPPORTED,
                "NVSHMEM knows no %s devices", device->table->name);
    PLAIT_CHECK(plait_device_is_of_process(end), PLAIT_ERR_UNSUPPORTED,
                "ranks are not MPI processes with a device each");
    PLAIT_TRY(device->table->nvshmem->can(device));
done:
    return status;
}

/* ---- places ---- */

/* The address by which put and signal know a place in a rank's part. */
static char *at(const plait_nvshmem_link_t *link, int rank, int64_t offset)
{
    return link->job->pool + link->peers[rank].offset + offset;
}

/* A signal in the part of `of`: the latest piece that `from` has put into the slot of piece g there; or that it
 * has taken. */
static uint64_t *signal_at(const plait_nvshmem_link_t *link, int of, int from,
                           uint64_t g, bool is_taken)
{
    const int64_t i = plait_nvshmem_signal(link->n_ranks, from, g, is_taken);

    return (uint64_t *)(void *)at(link, of, i * (int64_t)sizeof(uint64_t));
}

/* The slot in the part of `of` for piece g of `from`. */
static char *slot_at(const plait_nvshmem_link_t *link, int of, int from, uint64_t g)
{
    const int64_t i = (int64_t)(from - (from > of)) * PLAIT_NVSHMEM_SLOTS +
                      (int64_t)(g % PLAIT_NVSHMEM_SLOTS);

    return at(link, of,
              plait_nvshmem_inbox_at(link->n_ranks) + i * link->peers[of].slot_bytes);
}

static char *outbox(const plait_nvshmem_link_t *link)
{
    const int64_t i = plait_nvshmem_n_slots(link->n_ranks) - 1;

    return at(link, link->rank,
              plait_nvshmem_inbox_at(link->n_ranks) +
                  i * link->peers[link->rank].slot_bytes);
}

/* ---- an exchange ---- */

static plait_status_t copy(plait_device_run_t *run, void *dst, const void *src,
                           int64_t n_bytes)
{
    return run->device->table->copy(run->device, run->stream, dst, NULL, src, n_bytes);
}

static plait_status_t send_piece(plait_device_run_t *run, plait_nvshmem_link_t *link,
                                 int to, const char *data, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_nvshmem_peer_t *peer = &link->peers[to];
    const uint64_t g = ++peer->n_sent;

    if (g > PLAIT_NVSHMEM_SLOTS) {
        link->call->await(run->stream, signal_at(link, link->rank, to, g, true),
                          g - PLAIT_NVSHMEM_SLOTS);
    }
    PLAIT_TRY(copy(run, outbox(link), data, n_bytes));
    link->call->put(run->stream, peer->pe, slot_at(link, to, link->rank, g),
                    outbox(link), n_bytes, signal_at(link, to, link->rank, g, false),
                    g);
done:
    return status;
}

static plait_status_t receive_piece(plait_device_run_t *run, plait_nvshmem_link_t *link,
                                    int from, char *data, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_nvshmem_peer_t *peer = &link->peers[from];
    const uint64_t g = ++peer->n_received;

    link->call->await(run->stream, signal_at(link, link->rank, from, g, false), g);
    PLAIT_TRY(copy(run, data, slot_at(link, link->rank, from, g), n_bytes));
    link->call->signal(run->stream, peer->pe,
                       signal_at(link, from, link->rank, g, true), g);
done:
    return status;
}

/* The message's piece in this round: n_bytes 0 if there is no piece left. */
static int64_t piece_of(const plait_nvshmem_link_t *link, const plait_message_t *m,
                        int64_t round, int64_t *offset_p)
{
    const int64_t piece = link->peers[m->peer].piece;
    const int64_t left = m->n_bytes - round * piece;

    *offset_p = round * piece;
    return (left <= 0) ? 0 : (left < piece) ? left : piece;
}

plait_status_t plait_nvshmem_exchange(plait_device_run_t *run,
                                      plait_nvshmem_link_t *link, int n_sends,
                                      const plait_message_t sends[], int n_recvs,
                                      const plait_message_t recvs[])
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = run->device->table;
    int64_t offset = 0;
    bool has_more = true;

    if (link->stream != run->stream) { /* one outbox, one order */
        PLAIT_TRY(table->event_order(run->device, link->latest, run->stream));
        link->stream = run->stream;
    }
    for (int64_t round = 0; has_more; round++) {
        has_more = false;
        for (int i = 0; i < n_sends; i++) {
            int64_t n = piece_of(link, &sends[i], round, &offset);
            if (n > 0) {
                const char *data = (const char *)sends[i].data + offset;
                PLAIT_TRY(send_piece(run, link, sends[i].peer, data, n));
                has_more = true;
            }
        }
        for (int i = 0; i < n_recvs; i++) {
            int64_t n = piece_of(link, &recvs[i], round, &offset);
            if (n > 0) {
                char *data = (char *)recvs[i].data + offset;
                PLAIT_TRY(receive_piece(run, link, recvs[i].peer, data, n));
                has_more = true;
            }
        }
    }
    PLAIT_TRY(table->event_record(run->device, link->latest, run->stream));
done:
    return status;
}

static plait_status_t link_exchange(plait_device_run_t *run, int n_sends,
                                    const plait_message_t sends[], int n_recvs,
                                    const plait_message_t recvs[])
{
    run->is_held = true;
    return (run->failure != PLAIT_OK)
               ? run->failure
               : plait_device_failed(run,
                                     plait_nvshmem_exchange(run, run->state, n_sends,
                                                            sends, n_recvs, recvs));
}

static plait_status_t link_wait(plait_device_run_t *run)
{
    plait_status_t status = PLAIT_OK;
    const plait_nvshmem_link_t *link = run->state;

    PLAIT_TRY(run->device->table->event_record(run->device, link->latest, run->stream));
    PLAIT_TRY(plait_device_await(run->device, link->latest, "NVSHMEM", INT64_MAX));
done:
    return status;
}

/* ---- its end ---- */

plait_status_t plait_nvshmem_await_aside(plait_device_t *device,
                                         plait_nvshmem_link_t *link)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(device->table->event_record(device, link->apart, link->aside));
    PLAIT_TRY(plait_device_await(device, link->apart, "NVSHMEM", INT64_MAX));
done:
    return status;
}

void plait_nvshmem_free(plait_device_t *device, plait_nvshmem_link_t *link)
{
    const plait_device_table_t *table = device->table;

    if (link->latest != NULL) {
        table->event_destroy(device, link->latest);
    }
    if (link->apart != NULL) {
        table->event_destroy(device, link->apart);
    }
    if (link->aside != NULL) {
        table->stream_destroy(device, link->aside);
    }
    if (link->pinned != NULL) {
        table->host_give(device, link->pinned);
    }
    plait_free(link->peers);
    plait_free(link);
}

/* Whether all work of this rank on the stream is done. */
static bool release(plait_device_run_t *run, plait_nvshmem_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = run->device;
    const plait_device_table_t *table = device->table;
    const int64_t n_bytes = plait_nvshmem_signal_bytes(link->n_ranks);
    plait_wait_t wait = plait_wait_begin("NVSHMEM", -1);
    int64_t limit_ns = 0;
    bool is_over = false;
    bool is_written = true; /* the copy enqueued aside */

    PLAIT_TRY(table->event_record(device, link->latest, run->stream));
    link->call->quiet(
        run->stream); /* if the device is lost, this would end the process */
    PLAIT_TRY(table->event_record(device, link->latest, run->stream));
    while (!(is_over && is_written) && (limit_ns == 0 || plait_clock_ns() < limit_ns)) {
        if (is_written) {
            is_written = false;
            PLAIT_TRY(table->to_device(device, link->aside,
                                       link->job->pool + link->part.offset,
                                       link->released, n_bytes));
            PLAIT_TRY(table->event_record(device, link->apart, link->aside));
        }
        PLAIT_TRY(table->event_ask(device, link->apart, &is_written));
        PLAIT_TRY(table->event_ask(device, link->latest, &is_over));
        if (!(is_over && is_written) && plait_wait_turn(&wait) != PLAIT_OK &&
            limit_ns == 0) {
            limit_ns = plait_clock_ns() + grace_ns;
        }
    }
done:
    if (status == PLAIT_OK && !is_written) {
        link->pinned = NULL; /* must not be reused while it may still be read */
    }
    return is_over && is_written;
}

void plait_nvshmem_abandon(plait_device_run_t *run, plait_nvshmem_link_t *link)
{
    char text[400]; /* of the failure that is the reason */
    plait_pes_t pes = {{0}};

    (void)snprintf(text, sizeof(text), "%s", plait_error_text());
    if (!link->is_used) {
        plait_part_give(link->job, &link->part);
    } else {
        for (int r = 0; r < link->n_ranks; r++) {
            plait_pes_add(&pes, link->peers[r].pe);
        }
        bool is_over = run->is_inside && release(run, link);
        plait_part_retire(link->job, &link->part, is_over ? &pes : NULL);
    }
    plait_nvshmem_free(run->device, link);
    (void)plait_fail(PLAIT_ERR_INTERNAL, "%s", text);
}

static void link_abandon(plait_device_run_t *run, void *state)
{
    plait_nvshmem_abandon(run, state);
}

/* Whether a peer has taken the last pieces, one for each slot, according to signals that were read: then no
 * signal of the peer is under way. */
static bool has_taken(const plait_nvshmem_link_t *link, int rank)
{
    const uint64_t n_sent = link->peers[rank].n_sent;
    bool has_all = true;

    for (uint64_t back = 0; back < PLAIT_NVSHMEM_SLOTS && back < n_sent; back++) {
        const uint64_t g = n_sent - back;
        has_all = has_all &&
                  link->pinned[plait_nvshmem_signal(link->n_ranks, rank, g, true)] >= g;
    }
    return has_all;
}

/* Waits until peers have taken all that was put, and will write nothing more here. */
static plait_status_t settle(plait_device_t *device, plait_nvshmem_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = device->table;
    plait_wait_t wait = plait_wait_begin("NVSHMEM", -1);
    bool is_over = false;

    PLAIT_TRY(plait_device_await(device, link->latest, "NVSHMEM", INT64_MAX));
    while (!is_over) {
        PLAIT_TRY(table->to_host(device, link->aside, link->pinned,
                                 at(link, link->rank, 0),
                                 plait_nvshmem_signal_bytes(link->n_ranks)));
        PLAIT_TRY(plait_nvshmem_await_aside(device, link));
        is_over = true;
        for (int r = 0; r < link->n_ranks; r++) {
            is_over = is_over && has_taken(link, r);
        }
        if (!is_over) {
            PLAIT_TRY(plait_wait_turn(&wait));
        }
    }
done:
    return status;
}

static void link_close(plait_device_t *device, void *state, bool is_whole)
{
    plait_nvshmem_link_t *link = state;

    if (is_whole && settle(device, link) == PLAIT_OK) {
        plait_part_give(link->job, &link->part);
    } else {
        plait_part_retire(link->job, &link->part, NULL);
    }
    plait_nvshmem_free(device, link);
}

const plait_device_link_t plait_link_nvshmem = {
    .name = "nvshmem",
    .can = link_can,
    .open = plait_nvshmem_open,
    .close = link_close,
    .abandon = link_abandon,
    .exchange = link_exchange,
    .wait = link_wait,
};
