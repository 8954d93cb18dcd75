/* Opens endpoints on a communicator. Once the duplicates exist, every rank goes through the same messages,
 * whatever it found, so that all ranks agree on the result. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/number.h"
#include "base/setting.h"
#include "base/team.h"
#include "base/trace.h"
#include "transport/cluster.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"
#include "transport/node_copy.h"
#include "transport/node_mail.h"
#include "transport/node_map.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static plait_status_t check_handle(const plait_mpi_backend_t *mpi, uint64_t comm,
                                   int size, int rank, int *size_p, int *rank_p)
{
    plait_status_t status = PLAIT_OK;
    bool is_inter = false;

    PLAIT_CHECK((comm != 0) && (comm != mpi->comm_null()), PLAIT_ERR_COMM,
                "the communicator is MPI_COMM_NULL");
    status =
        PLAIT_MPI_CALL(rank, "open", mpi->comm_facts(comm, size_p, rank_p, &is_inter));
    status = (status == PLAIT_ERR_TRANSPORT) ? PLAIT_ERR_COMM : status; /* unknown */
    PLAIT_TRY(status);
    PLAIT_CHECK(
        !is_inter, PLAIT_ERR_COMM,
        "the communicator is an inter-communicator; plait takes intra-communicators");
    PLAIT_CHECK(
        ((size == -1) || (size == *size_p)) && ((rank == -1) || (rank == *rank_p)),
        PLAIT_ERR_COMM,
        "the communicator's handle means rank %d of %d here, not rank %d of %d: it "
        "belongs to another communicator or process",
        *rank_p, *size_p, rank, size);
    PLAIT_TRY(plait_mpi_check_user(comm, *rank_p));
done:
    return status;
}

static plait_status_t link_create(const plait_mpi_backend_t *mpi, uint64_t comm,
                                  int size, int rank, plait_mpi_link_t **link_p)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_alloc(1, sizeof(*link));

    PLAIT_CHECK(link != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    link->segment.memory.fd = -1;
    link->mpi = mpi;
    link->user = comm;
    link->size = size;
    link->rank = rank;
    link->matched = mpi->comm_null();
    link->control = mpi->comm_null();
    (void)pthread_mutex_init(&link->transfer_lock, NULL);
    link->max_tag = plait_mpi_max_tag();
    link->chunk_bytes = (mpi->max_count() == INT64_MAX) ? INT64_MAX : INT64_C(1) << 30;
    link->peers = plait_alloc(size, sizeof(*link->peers));
    link->cards = plait_alloc(size, sizeof(*link->cards));
    link->processes = plait_alloc(size, sizeof(*link->processes));
    PLAIT_CHECK((link->peers != NULL) && (link->cards != NULL) &&
                    (link->processes != NULL),
                PLAIT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", size);
    link->nonce = plait_hash_word((uint64_t)plait_clock_ns(), (uint64_t)getpid());
    link->nonce = plait_hash_word(link->nonce, (uint64_t)(uintptr_t)link);
    *link_p = link;
    link = NULL;
done:
    plait_mpi_link_destroy(&link);
    return status;
}

/* For calls that may wait in MPI for other ranks: for ranks of the same node, and in MPICH, when a communicator
 * of one rank is duplicated, for other duplications under way. Threads of one rank open communicators in any
 * order, so no thread may wait in such a call while it holds the lock that others need to go on. MPI of a lower
 * thread level forbids such threads. */
#define CALL_OPENLY(_link, _call)                     \
    (is_multiple(_link) ? call_over((_link), (_call)) \
                        : PLAIT_MPI_CALL((_link)->rank, "open", (_call)))

static bool is_multiple(const plait_mpi_link_t *link)
{
    plait_mpi_level_t level = PLAIT_MPI_SINGLE;

    return PLAIT_MPI_CALL(link->rank, "open", link->mpi->thread_level(&level)) ==
               PLAIT_OK &&
           level == PLAIT_MPI_MULTIPLE;
}

static plait_status_t call_over(const plait_mpi_link_t *link, int code)
{
    return PLAIT_MPI_CALL(link->rank, "open", code);
}

static plait_status_t duplicate(plait_mpi_link_t *link, uint64_t *comm_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = link->mpi;
    uint64_t request = 0;

    link->slot = 0;
    PLAIT_TRY(CALL_OPENLY(link, mpi->comm_idup(link->user, &link->slot, &request)));
    PLAIT_TRY(plait_mpi_wait(link, "open: duplicate the communicator", PLAIT_ANY, 0,
                             NULL, 1, &request));
    *comm_p = mpi->comm_in(&link->slot);
    PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "open", mpi->comm_return_errors(*comm_p)));
done:
    return status;
}

/* All ranks meet, with the same duplicates, before any rank waits in one of MPI's own calls, which nothing can
 * end: a rank that came late would have a duplicate that another rank had given up. */
static plait_status_t meet(plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    uint64_t request = 0;

    PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "open",
                             link->mpi->ibarrier(link->control, &request)));
    PLAIT_TRY(plait_mpi_wait(link, "open: meet", PLAIT_ANY, 0, NULL, 1, &request));
done:
    return status;
}

plait_status_t plait_mpi_show(plait_mpi_link_t *link, const char *what,
                              const void *mine, void *every, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    uint64_t request = 0;

    PLAIT_TRY(PLAIT_MPI_CALL(
        link->rank, "open",
        link->mpi->iallgather(mine, n_bytes, every, link->control, &request)));
    PLAIT_TRY(plait_mpi_wait(link, what, PLAIT_ANY, 0, NULL, 1, &request));
done:
    return status;
}

static plait_status_t show_cards(plait_mpi_link_t *link)
{
    return plait_mpi_show(link, "open: agree", &link->card, link->cards,
                          sizeof(link->card));
}

enum { ON, OFF, READ };

static const char *const shared_names[] = {"on", "off", NULL};
static const char *const direct_names[] = {"on", "off", "read", NULL};

static void fill_card(plait_mpi_link_t *link, int64_t id, int node_size, int node_first)
{
    plait_mpi_card_t *mine = &link->card;
    const int direct = plait_setting("PLAIT_DIRECT", direct_names, ON);
    int n_threads = 0;

    mine->id = id;
    mine->status = (int32_t)plait_team_wish(&n_threads);
    if (mine->status != PLAIT_OK) {
        (void)snprintf(mine->said, sizeof(mine->said), "%s", plait_error_text());
    }
    mine->is_off = direct == OFF;
    mine->is_read_only = direct == READ;
    mine->is_apart = plait_setting("PLAIT_SHARED", shared_names, ON) == OFF;
    mine->fd = -1;
    mine->node_size = node_size;
    mine->node_first = node_first;
    mine->process = plait_process_card();
    mine->unreadable = PLAIT_ANY;
    plait_mpi_native_masks(link->size, mine->native);
    mine->nonce = link->nonce;
    mine->nonce_address = (uint64_t)(uintptr_t)&link->nonce;
    mine->mark_address = (uint64_t)(uintptr_t)&link->mark;
}

/* Whether segments are switched off, in the view of all ranks. */
static bool is_apart(plait_mpi_link_t *link)
{
    for (int i = 0; i < link->size; i++) {
        if (link->cards[i].is_apart != 0) {
            (void)snprintf(link->why, sizeof(link->why),
                           "off: PLAIT_SHARED is off in the environment of rank %d", i);
            return true;
        }
    }
    return false;
}

/* Whether there is more than one node; if so, writes to why what that means for `how`. */
static bool is_spread(plait_mpi_link_t *link, const char *how)
{
    for (int i = 0; i < link->size; i++) {
        if (link->cards[i].node_size != link->size) {
            (void)snprintf(
                link->why, sizeof(link->why),
                "off: the ranks are on several nodes (%d of %d share one with "
                "rank %d)%s",
                link->cards[i].node_size, link->size, i, how);
            return true;
        }
    }
    return false;
}

/* Whether reads of peers' memory are switched off. */
static bool is_switched_off(plait_mpi_link_t *link)
{
    for (int i = 0; i < link->size; i++) {
        if (link->cards[i].is_off != 0) {
            (void)snprintf(link->why, sizeof(link->why),
                           "off: PLAIT_DIRECT is off in the environment of rank %d", i);
            return true;
        }
    }
    return false;
}

/* Each rank reads and writes the memory of all others, so that every pair is tried in both directions. */
static void probe_all(plait_mpi_link_t *link)
{
    plait_mpi_card_t *mine = &link->card;

    for (int i = 0; (i < link->size) && (mine->unreadable == PLAIT_ANY); i++) {
        const plait_mpi_card_t *card = &link->cards[i];
        int error =
            plait_node_probe(card->process.pid, card->nonce_address, card->nonce);
        if (error != 0) {
            mine->unreadable = i;
            mine->error = error;
        }
        mine->is_read_only =
            mine->is_read_only != 0 || error != 0 ||
            !plait_node_probe_write(card->process.pid, card->mark_address, card->nonce);
    }
}

static bool all_writable(const plait_mpi_link_t *link)
{
    bool is_writable = true;

    for (int i = 0; i < link->size; i++) {
        is_writable = is_writable && link->cards[i].is_read_only == 0;
    }
    return is_writable;
}

static bool all_readable(plait_mpi_link_t *link)
{
    for (int i = 0; i < link->size; i++) {
        const plait_mpi_card_t *card = &link->cards[i];
        if (card->unreadable != PLAIT_ANY) {
            (void)snprintf(link->why, sizeof(link->why),
                           "off: rank %d cannot read the memory of rank %d: %s", i,
                           card->unreadable,
                           (card->error > 0)
                               ? strerror(card->error)
                               : "another process has its process number here "
                                 "(the ranks are in containers without a common "
                                 "process namespace)");
            return false;
        }
    }
    (void)snprintf(link->why, sizeof(link->why),
                   "on: all %d ranks share a node and read each other's memory",
                   link->size);
    return true;
}

/* The first rank of a node makes the segment, the others open it. Either all ranks have it, or none. */
static plait_status_t share_segment(plait_mpi_link_t *link,
                                    const plait_node_shape_t *shape)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_card_t *mine = &link->card;
    const plait_mpi_card_t *first = &link->cards[mine->node_first];
    bool is_first = mine->node_first == link->rank;

    if (is_first &&
        plait_node_segment_create(shape, link->nonce, &link->segment) == PLAIT_OK) {
        mine->fd = link->segment.memory.fd;
    }
    PLAIT_TRY(show_cards(link));
    if (!is_first && first->fd >= 0) {
        (void)plait_node_segment_attach(first->process.pid, first->fd, shape,
                                        first->nonce, &link->segment);
    }
    mine->is_missing = (link->segment.memory.base == NULL);
    if (mine->is_missing) {
        plait_log(PLAIT_LOG_INFO, "rank %d: no shared segment: %s", link->rank,
                  plait_error_text());
    }
    PLAIT_TRY(show_cards(link));
    for (int i = 0; i < link->size; i++) {
        if (link->cards[i].is_missing != 0) {
            (void)snprintf(link->why, sizeof(link->why),
                           "off: rank %d has no access to the shared segment", i);
            plait_node_segment_destroy(&link->segment);
        }
    }
    plait_node_segment_seal(&link->segment);
done:
    return status;
}

/* If there are few processes, they are looked up now: then their last words can be read even after they are
 * gone. */
static void know_processes(plait_mpi_link_t *link)
{
    enum { FEW = 128 };

    for (int i = 0; i < link->size; i++) {
        link->processes[i] = (plait_peer_t){.process = link->cards[i].process};
        if (link->size <= FEW) {
            (void)plait_process_find(&link->cards[i].process);
        }
    }
}

/* One node: its segment, messages through it, and whether all ranks can read each other's memory. */
static plait_status_t join_node(plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    const plait_node_shape_t shape = plait_node_shape(link->size);

    PLAIT_TRY(share_segment(link, &shape));
    if (link->segment.memory.base != NULL && !is_switched_off(link)) {
        probe_all(link);
        PLAIT_TRY(show_cards(link));
        link->is_node = all_readable(link);
        link->can_write = link->is_node && all_writable(link);
    }
    if (link->is_node) {
        link->max_tag = INT_MAX; /* messages are in the segment: node_session.c */
        PLAIT_TRY(plait_node_maps_create(link->size, &link->maps));
    }
    if (link->segment.memory.base != NULL) {
        PLAIT_TRY(plait_node_mail_create(link, &link->mail));
    }
done:
    return status;
}

/* Several nodes: a segment on each. */
static plait_status_t join_cluster(plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    const plait_node_shape_t shape = plait_cluster_shape(link->size);

    int *leaders = plait_alloc(link->size, sizeof(*leaders));

    PLAIT_CHECK(leaders != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a communicator of %d ranks", link->size);
    for (int r = 0; r < link->size; r++) {
        leaders[r] = link->cards[r].node_first;
    }
    PLAIT_TRY(share_segment(link, &shape));
    if (link->segment.memory.base != NULL) {
        PLAIT_TRY(
            plait_cluster_create(link->size, link->rank, leaders, &link->cluster));
        (void)is_spread(link, "; small collectives share memory within a node");
    }
done:
    plait_free(leaders);
    return status;
}

/* The largest number on any card. */
static int64_t largest_id(const plait_mpi_link_t *link)
{
    int64_t id = 0;

    for (int i = 0; i < link->size; i++) {
        id = (link->cards[i].id > id) ? link->cards[i].id : id;
    }
    return id;
}

/* A number that is free on all ranks: the largest that any rank has taken, unless other threads of a rank have
 * meanwhile taken a larger one for their communicators. Then the ranks try again; the next numbers are larger,
 * so this ends. */
static plait_status_t agree_on_id(plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_card_t *mine = &link->card;
    int64_t id = 0;
    bool is_free = false;

    while (!is_free) {
        mine->id = plait_number_take();
        PLAIT_TRY(show_cards(link));
        id = largest_id(link);
        mine->id = (id == mine->id || plait_number_claim(id)) ? id : 0;
        PLAIT_TRY(show_cards(link));
        is_free = true;
        for (int i = 0; i < link->size; i++) {
            is_free = is_free && link->cards[i].id == id;
        }
    }
done:
    return status;
}

/* A problem on one rank counts for all ranks, or the others would wait for this rank later. */
static plait_status_t check_cards(const plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_card_t *mine = &link->card;

    PLAIT_CHECK(mine->status == PLAIT_OK, (plait_status_t)mine->status, "%s",
                mine->said);
    for (int i = 0; i < link->size; i++) {
        PLAIT_CHECK(link->cards[i].status == PLAIT_OK, PLAIT_ERR_PEER,
                    "rank %d failed: %s", i, link->cards[i].said);
    }
done:
    return status;
}

/* Ranks learn who the others are, and agree on the id. */
static plait_status_t introduce(plait_mpi_link_t *link, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    int node_size = 0;
    int node_first = 0;

    PLAIT_TRY(CALL_OPENLY(link, link->mpi->comm_node(link->control, link->rank,
                                                     &node_size, &node_first)));
    plait_node_expose();
    PLAIT_TRY(plait_mpi_prove(link, node_first,
                              plait_setting("PLAIT_DIRECT", direct_names, ON) == OFF));
    fill_card(link, *id_p, node_size, node_first);
    if (*id_p == PLAIT_NUMBER_NEW) {
        PLAIT_TRY(agree_on_id(link));
    } else {
        PLAIT_TRY(show_cards(link));
    }
    *id_p = largest_id(link);
    link->id = *id_p;
    know_processes(link);
    PLAIT_TRY(check_cards(link));
done:
    return status;
}

/* Sets why, the segment, and whether all ranks can read each other's memory. */
static plait_status_t join(plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;

    if (!is_apart(link) && !is_spread(link, "")) {
        PLAIT_TRY(join_node(link));
    } else if (!is_apart(link) && plait_cluster_is_for(link)) {
        PLAIT_TRY(join_cluster(link));
    }
done:
    return status;
}

/* Sets what planning may count on, and the functions for it. */
static void fill_end(const plait_mpi_link_t *link, plait_endpoint_t *end)
{
    bool is_alone = link->segment.memory.base == NULL; /* without shared memory */

    end->transport = is_alone                  ? &plait_mpi_transport
                     : (link->cluster == NULL) ? &plait_node_transport
                                               : &plait_cluster_transport;
    end->caps.direct = link->is_node ? PLAIT_DIRECT_READ : PLAIT_DIRECT_NONE;
    end->caps.can_write = link->can_write;
    end->caps.publish_bytes = is_alone                  ? -1
                              : (link->cluster == NULL) ? PLAIT_PUBLISH_BYTES
                                                        : link->cluster->publish_bytes;
    end->caps.is_far = link->cluster != NULL;
    end->caps.has_native = true;
    end->moves_chunks = !link->is_node;
    if (end->transport == &plait_node_transport) {
        plait_node_show_entered(&link->segment, end);
    }
    end->rank = link->rank;
    end->size = link->size;
    end->peers = link->processes;
    end->freed_p = &link->is_freed;
}

/* The reductions that every rank's MPI can do: libraries choose their loops by the CPU. */
static void common_native(const plait_mpi_link_t *link,
                          uint32_t masks[PLAIT_REDUCE_COUNT])
{
    for (int op = 0; op < PLAIT_REDUCE_COUNT; op++) {
        masks[op] = UINT32_MAX;
        for (int i = 0; i < link->size; i++) {
            masks[op] &= link->cards[i].native[op];
        }
    }
}

plait_status_t plait_mpi_link_open(uint64_t comm_bits, int size, int rank,
                                   int64_t *id_p, plait_mpi_link_t **link_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = plait_mpi_started();
    plait_mpi_link_t *link = NULL;
    int64_t id = *id_p;
    int n_ranks = 0;
    int my_rank = -1;
    bool is_making = false;

    PLAIT_TRY(plait_mpi_usable("open"));
    PLAIT_TRY(check_handle(mpi, comm_bits, size, rank, &n_ranks, &my_rank));
    plait_trace_make(n_ranks);
    is_making = true;
    PLAIT_TRY(link_create(mpi, comm_bits, n_ranks, my_rank, &link));
    PLAIT_TRY(plait_mpi_watch(link));
    PLAIT_TRY(duplicate(link, &link->matched));
    PLAIT_TRY(duplicate(link, &link->control));
    PLAIT_TRY(meet(link));
    PLAIT_TRY(introduce(link, &id));
    *id_p = id;
    *link_p = link;
    link = NULL;
done:
    if (is_making) {
        plait_trace_make(0);
    }
    if (link != NULL && atomic_load(&link->is_broken)) {
        plait_mpi_give_up_user(link);
    }
    plait_mpi_link_destroy(&link);
    return status;
}

plait_status_t plait_mpi_members(uint64_t comm_bits, int *n_p, int32_t **members_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = plait_mpi_started();
    int32_t *ranks = NULL;
    int32_t *members = NULL;
    int n_ranks = 0;
    int my_rank = -1;

    PLAIT_TRY(plait_mpi_usable("open"));
    PLAIT_TRY(check_handle(mpi, comm_bits, -1, -1, &n_ranks, &my_rank));
    ranks = plait_alloc(n_ranks, sizeof(*ranks));
    members = plait_alloc(n_ranks, sizeof(*members));
    PLAIT_CHECK(ranks != NULL && members != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for %d ranks", n_ranks);
    for (int r = 0; r < n_ranks; r++) {
        ranks[r] = r;
    }
    PLAIT_TRY(PLAIT_MPI_CALL(my_rank, "open",
                             mpi->comm_members(comm_bits, n_ranks, ranks, members)));
    *n_p = n_ranks;
    *members_p = members;
    members = NULL;
done:
    plait_free(ranks);
    plait_free(members);
    return status;
}

plait_status_t plait_mpi_open(uint64_t comm_bits, int size, int rank, int64_t *id_p,
                              plait_endpoint_t *end, const char **why_p)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = NULL;
    int64_t id = *id_p;

    PLAIT_TRY(plait_mpi_link_open(comm_bits, size, rank, &id, &link));
    status = join(link);
    if (status != PLAIT_OK) {
        plait_trace_give_up(id); /* others may have it by now */
        goto done;
    }
    plait_mpi_set_open(link, !link->is_node);
    fill_end(link, end);
    common_native(link, end->caps.native_reduce);
    end->state = link;
    *id_p = id;
    *why_p = link->why;
    link = NULL;
done:
    plait_mpi_link_destroy(&link);
    return status;
}

void plait_mpi_set_tracks(const plait_endpoint_t *end, const int tracks[])
{
    const plait_mpi_link_t *link = end->state;

    for (int r = 0; r < link->size; r++) {
        link->processes[r].track = tracks[r];
    }
}
