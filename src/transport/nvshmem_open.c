/* Opens the link `nvshmem`. The first communicator that asks for it starts NVSHMEM, with its ranks as PEs, and
 * allocates the pool. Later communicators, whose ranks have to be among these PEs, take parts of the pool.
 * Ranks meet after each step that may fail, so that no rank waits in a step that another rank does not
 * reach. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "transport/nvshmem_link.h"
#include "transport/nvshmem_together.h"

#include <stdio.h>
#include <string.h>

/* Least bytes of a slot. */
enum { LEAST_SLOT_BYTES = 4096 };

typedef struct {
    int64_t is_good;
    int pe, n_pes;
    uint64_t number;
    int64_t has_pool, is_clean;
    int64_t pool_bytes; /* size that the pool is to have */
    plait_part_t part;
    int64_t slot_bytes;
    uint64_t nonce;
    plait_nvshmem_id_t id;
} card_t;

typedef struct {
    plait_device_run_t *run;
    plait_nvshmem_link_t *link;
    card_t mine, *all;
    void *probe; /* words for peers, then words from them */
} opening_t;

/* Each rank says whether it is ready to go on; not OK on one rank is not OK on all. */
static plait_status_t meet(opening_t *o, plait_status_t ready)
{
    plait_status_t status = PLAIT_OK;
    char why[200];

    (void)snprintf(why, sizeof(why), "%s",
                   (ready != PLAIT_OK) ? plait_error_text() : "");
    o->mine.is_good = ready == PLAIT_OK;
    PLAIT_CHECK(!o->run->is_lost, ready, "%s", why);
    PLAIT_TRY(plait_device_share(o->run, &o->mine, sizeof(o->mine), o->all));
    PLAIT_CHECK(ready == PLAIT_OK, ready, "%s", why);
    for (int r = 0; r < o->link->n_ranks; r++) {
        PLAIT_CHECK(o->all[r].is_good != 0, PLAIT_ERR_PEER, "rank %d cannot", r);
    }
done:
    return status;
}

/* ---- the job ---- */

static plait_status_t prepare(opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = o->run->device;
    const plait_device_table_t *table = device->table;
    plait_nvshmem_link_t *link = o->link;
    void *pinned = NULL;

    PLAIT_CHECK(link->peers != NULL, PLAIT_ERR_NO_MEMORY, "no memory for peers");
    PLAIT_TRY(plait_together_can());
    PLAIT_TRY(plait_nvshmem_bytes(&o->mine.pool_bytes));
    PLAIT_TRY(table->event_create(device, &link->latest));
    PLAIT_TRY(table->event_record(device, link->latest, o->run->stream));
    /* Work that the program has begun may take long: none of that time is NVSHMEM's. */
    PLAIT_TRY(table->event_wait(device, link->latest));
    PLAIT_TRY(table->stream_create(device, &link->aside));
    PLAIT_TRY(table->event_create(device, &link->apart));
    PLAIT_TRY(table->host_take(device, 2 * plait_nvshmem_signal_bytes(link->n_ranks),
                               &pinned));
    link->pinned = pinned;
    link->released = link->pinned + plait_nvshmem_n_signals(link->n_ranks);
    for (int64_t i = 0; i < plait_nvshmem_n_signals(link->n_ranks); i++) {
        link->released[i] = PLAIT_NVSHMEM_RELEASED;
    }
    PLAIT_TRY(link->call->look(device, &link->job));
    o->mine.pe = link->job->pe;
    o->mine.n_pes = link->job->n_pes;
    o->mine.number = link->job->number;
    o->mine.has_pool = link->job->pool != NULL;
    o->mine.is_clean = plait_part_is_clean(link->job);
    if (link->rank == 0 && link->job->n_pes == 0) {
        PLAIT_TRY(link->call->id(&o->mine.id));
    }
done:
    return status;
}

/* Fails, and names a rank that differs from rank 0. */
static plait_status_t refuse(const opening_t *o)
{
    const card_t *first = &o->all[0];
    int r = 1;

    while (r < o->link->n_ranks - 1 && o->all[r].number == first->number &&
           o->all[r].n_pes == first->n_pes && o->all[r].has_pool == first->has_pool) {
        r++;
    }
    return plait_fail(PLAIT_ERR_UNSUPPORTED,
                      "NVSHMEM's PEs are the ranks that %s: rank 0 is one of %d, rank "
                      "%d one of %d%s",
                      (first->n_pes != 0 && first->number == 0)
                          ? "somebody else has started it with"
                          : "first asked for it",
                      first->n_pes, r, o->all[r].n_pes,
                      (first->n_pes == o->all[r].n_pes) ? " others" : "");
}

/* Whether all ranks, and no other processes, are the PEs of an NVSHMEM that somebody else has started. */
static bool are_all_pes(const opening_t *o)
{
    plait_pes_t seen = {{0}};
    bool are_all = true;

    for (int r = 0; r < o->link->n_ranks && are_all; r++) {
        const card_t *card = &o->all[r];
        are_all = card->number == 0 && card->has_pool == 0 &&
                  card->n_pes == o->link->n_ranks && card->n_pes <= PLAIT_MAX_PES &&
                  card->pe >= 0 && card->pe < card->n_pes &&
                  (seen.bits[card->pe / 64] >> (card->pe % 64) & 1) == 0;
        if (are_all) {
            plait_pes_add(&seen, card->pe);
        }
    }
    return are_all;
}

/* Decides the same on all ranks. has_pool_p: the ranks share a pool already. */
static plait_status_t judge(const opening_t *o, bool *starts_p, bool *has_pool_p)
{
    plait_status_t status = PLAIT_OK;
    const card_t *first = &o->all[0];
    bool starts = true;
    bool has_pool = true;

    for (int r = 0; r < o->link->n_ranks; r++) {
        const card_t *card = &o->all[r];
        starts = starts && card->n_pes == 0;
        has_pool = has_pool && card->has_pool != 0 && card->number == first->number;
        PLAIT_CHECK(card->pool_bytes == first->pool_bytes, PLAIT_ERR_UNSUPPORTED,
                    "PLAIT_NVSHMEM_BYTES is %lld on rank 0, %lld on rank %d",
                    (long long)first->pool_bytes, (long long)card->pool_bytes, r);
    }
    PLAIT_CHECK(o->link->n_ranks <= PLAIT_MAX_PES, PLAIT_ERR_UNSUPPORTED,
                "%d ranks are more than the %d PEs that there may be", o->link->n_ranks,
                PLAIT_MAX_PES);
    if (!starts && !has_pool && !are_all_pes(o)) {
        PLAIT_TRY(refuse(o));
    }
    *starts_p = starts;
    *has_pool_p = has_pool;
done:
    return status;
}

/* A message of the last meeting may come to a peer only when this rank looks into its transport again. Until
 * then this rank must not wait for that peer inside the library, so a separate thread does. The ranks meet when
 * all have such a thread, and again when all threads have begun. */
static plait_status_t do_together(opening_t *o, int64_t pool_bytes)
{
    const plait_nvshmem_job_call_t what = {.call = o->link->call,
                                           .device = o->run->device,
                                           .id = o->all[0].id,
                                           .pe = o->link->rank,
                                           .n_pes = o->link->n_ranks,
                                           .pool_bytes = pool_bytes};
    plait_together_t *together = NULL;
    plait_status_t status = meet(o, plait_together_begin(&what, &together));

    if (status == PLAIT_OK) {
        plait_together_go(together);
        status = meet(o, PLAIT_OK);
    }
    plait_status_t ended = plait_together_end(together);
    return (status != PLAIT_OK) ? status : ended;
}

static plait_status_t start_job(opening_t *o)
{
    plait_status_t status = do_together(o, 0);

    o->mine.pe = o->link->rank;
    return status;
}

/* ---- this communicator's part ---- */

static plait_status_t take_part(opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = o->run->device;
    const plait_device_table_t *table = device->table;
    plait_nvshmem_link_t *link = o->link;
    const int64_t n_slots = plait_nvshmem_n_slots(link->n_ranks);
    const int64_t inbox = plait_nvshmem_inbox_at(link->n_ranks);
    const int64_t n_bytes = plait_nvshmem_signal_bytes(link->n_ranks);
    plait_pes_t pes = {{0}};
    bool is_clean = true;

    for (int r = 0; r < link->n_ranks; r++) {
        plait_pes_add(&pes, o->all[r].pe);
        is_clean = is_clean && o->all[r].is_clean != 0;
    }
    if (is_clean) {
        plait_part_reclaim(link->job, &pes);
    }
    PLAIT_TRY(
        plait_part_take(link->job, inbox + n_slots * LEAST_SLOT_BYTES, &link->part));
    memset(link->pinned, 0, (size_t)n_bytes);
    PLAIT_TRY(table->to_device(device, link->aside, link->job->pool + link->part.offset,
                               link->pinned, n_bytes));
    PLAIT_TRY(plait_nvshmem_await_aside(device, link));
    o->mine.part = link->part;
    o->mine.slot_bytes =
        (link->part.n_bytes - inbox) / n_slots / PLAIT_PART_GRAIN * PLAIT_PART_GRAIN;
    o->mine.nonce = (uint64_t)plait_clock_ns();
done:
    return status;
}

static void meet_peers(opening_t *o)
{
    plait_nvshmem_link_t *link = o->link;

    for (int r = 0; r < link->n_ranks; r++) {
        const card_t *card = &o->all[r];
        bool is_less = card->slot_bytes < o->mine.slot_bytes;
        link->peers[r] = (plait_nvshmem_peer_t){.pe = card->pe,
                                                .offset = card->part.offset,
                                                .slot_bytes = card->slot_bytes,
                                                .piece = is_less ? card->slot_bytes
                                                                 : o->mine.slot_bytes};
    }
}

/* ---- the proof ---- */

static uint64_t word_of(const opening_t *o, int from, int to)
{
    return plait_hash_word(o->all[from].nonce,
                           (uint64_t)from << 32 | (uint64_t)(unsigned)to);
}

/* Sends a word from each rank to each other rank, which loads all kernels that NVSHMEM has for this. The order
 * of an exchange enqueues them before any stream waits for work that is not enqueued yet. */
static plait_status_t send_words(opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = o->run->device;
    const plait_device_table_t *table = device->table;
    plait_nvshmem_link_t *link = o->link;
    const int n = link->n_ranks;
    const int64_t n_bytes = n * (int64_t)sizeof(uint64_t);
    plait_message_t *sends = plait_alloc(2 * n, sizeof(*sends));
    plait_message_t *recvs = sends + n;
    int n_peers = 0;

    PLAIT_CHECK(sends != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a proof");
    PLAIT_TRY(table->take(device, o->run->stream, 2 * n_bytes, &o->probe));
    uint64_t *words = o->probe;
    for (int r = 0; r < n; r++) {
        link->pinned[r] = word_of(o, link->rank, r);
        if (r != link->rank) {
            sends[n_peers] = (plait_message_t){r, words + r, sizeof(*words)};
            recvs[n_peers++] = (plait_message_t){r, words + n + r, sizeof(*words)};
        }
    }
    PLAIT_TRY(table->to_device(device, o->run->stream, words, link->pinned, n_bytes));
    PLAIT_TRY(plait_nvshmem_exchange(o->run, link, n_peers, sends, n_peers, recvs));
done:
    plait_free(sends);
    return status;
}

static plait_status_t look_at_words(opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = o->run->device;
    const plait_device_table_t *table = device->table;
    plait_nvshmem_link_t *link = o->link;
    const int n = link->n_ranks;
    const uint64_t *words = o->probe;

    PLAIT_TRY(plait_device_await(device, link->latest, "NVSHMEM", INT64_MAX));
    PLAIT_TRY(table->to_host(device, link->aside, link->pinned, words + n,
                             n * (int64_t)sizeof(*words)));
    PLAIT_TRY(plait_nvshmem_await_aside(device, link));
    for (int r = 0; r < n; r++) {
        PLAIT_CHECK(r == link->rank || link->pinned[r] == word_of(o, r, link->rank),
                    PLAIT_ERR_UNSUPPORTED,
                    "what rank %d has put by NVSHMEM is not what is here", r);
    }
done:
    return status;
}

/* ---- all of it ---- */

static plait_status_t go(opening_t *o)
{
    plait_status_t status = PLAIT_OK;
    bool starts = false;
    bool has_pool = false;

    PLAIT_TRY(meet(o, prepare(o)));
    PLAIT_TRY(judge(o, &starts, &has_pool));
    if (starts) {
        PLAIT_TRY(meet(o, start_job(o)));
    }
    if (!has_pool) {
        PLAIT_TRY(meet(o, do_together(o, o->mine.pool_bytes)));
    }
    status = meet(o, take_part(o));
    o->link->is_used =
        o->link->part.n_bytes > 0 && (status == PLAIT_OK || o->run->is_lost);
    PLAIT_TRY(status);
    meet_peers(o);
    PLAIT_TRY(meet(o, send_words(o)));
    PLAIT_TRY(look_at_words(o));
done:
    return status;
}

plait_status_t plait_nvshmem_open(plait_device_run_t *run, void **state_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_endpoint_t *end = run->session->end;
    opening_t o = {.run = run,
                   .link = plait_alloc(1, sizeof(plait_nvshmem_link_t)),
                   .all = plait_alloc(end->size, sizeof(card_t))};

    run->is_lost = run->is_lost || o.link == NULL || o.all == NULL;
    PLAIT_CHECK(!run->is_lost, PLAIT_ERR_NO_MEMORY, "no memory for cards of ranks");
    o.link->call = run->device->table->nvshmem;
    o.link->rank = end->rank;
    o.link->n_ranks = end->size;
    o.link->stream = run->stream;
    o.link->peers = plait_alloc(end->size, sizeof(*o.link->peers));
    PLAIT_TRY(go(&o));
    *state_p = o.link;
    o.link = NULL;
done:
    if (o.link != NULL) {
        plait_nvshmem_abandon(run, o.link);
    }
    if (o.probe != NULL) {
        run->device->table->give(run->device, run->stream, o.probe);
    }
    plait_free(o.all);
    return status;
}
