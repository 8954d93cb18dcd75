/* Closing of endpoints: messages that no rank receives any more are taken out before duplicates are freed. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "transport/cluster.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"
#include "transport/node_mail.h"
#include "transport/node_map.h"

enum { DRAIN_LOOKS = 100 };

/* Takes out one message that nobody will receive any more: true if there was one. */
static bool drain_one(plait_mpi_link_t *link, uint64_t comm, int64_t room, char *bin)
{
    const plait_mpi_backend_t *mpi = link->mpi;
    plait_mpi_envelope_t from = {0};
    bool is_there = false;
    uint64_t request = 0;

    (void)PLAIT_MPI_CALL(link->rank, "close",
                         mpi->iprobe(comm, PLAIT_ANY, &is_there, &from));
    if (!is_there || (from.n_bytes > room) ||
        (PLAIT_MPI_CALL(link->rank, "close",
                        mpi->irecv(bin, from.n_bytes, from.source, from.tag, comm,
                                   &request)) != PLAIT_OK)) {
        return false;
    }
    plait_mpi_give_up(link, "close", 0, 1, &request); /* waits a bounded time */
    return !atomic_load(&link->is_stuck);
}

/* After a wait that was given up, here or at a peer, messages may be left over. MPICH 5 aborts in MPI_Comm_free
 * if it finds one, whatever the error handler. Short messages are taken out, in several looks, since each look
 * also lets MPI bring in messages under way. */
static void free_duplicate(plait_mpi_link_t *link, uint64_t comm)
{
    bool leads = link->cluster != NULL && link->cluster->in != NULL;
    char *bin = leads ? link->cluster->in : (char *)link->small;
    int64_t room = leads ? link->cluster->message_bytes : (int64_t)sizeof(link->small);

    if (comm == link->mpi->comm_null()) {
        return;
    }
    for (int look = 0; look < DRAIN_LOOKS; look++) {
        while (drain_one(link, comm, room, bin)) {
        }
    }
    if (!atomic_load(&link->is_stuck)) {
        (void)PLAIT_MPI_CALL(link->rank, "close", link->mpi->comm_free(comm));
    }
}

static void free_link(plait_mpi_link_t *link)
{
    plait_node_mail_destroy(&link->mail);
    plait_node_segment_destroy(&link->segment);
    plait_mpi_transfers_free(link);
    (void)pthread_mutex_destroy(&link->transfer_lock);
    plait_free(link->requests);
    plait_free(link->cards);
    plait_free(link->processes);
    plait_free(link->peers);
    plait_free(link->said);
    plait_free(link);
}

/* Links that are closed, except that receivers may still read messages in this process's memory. */
static plait_mpi_link_t *unread;
static pthread_mutex_t unread_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_unread(plait_mpi_link_t *link)
{
    (void)pthread_mutex_lock(&unread_lock);
    link->next = unread;
    unread = link;
    (void)pthread_mutex_unlock(&unread_lock);
}

/* Frees the links whose messages were read meanwhile. */
static void free_read(void)
{
    (void)pthread_mutex_lock(&unread_lock);
    for (plait_mpi_link_t **place = &unread; *place != NULL;) {
        plait_mpi_link_t *link = *place;
        if (plait_node_mail_is_read(link->mail)) {
            *place = link->next;
            free_link(link);
        } else {
            place = &link->next;
        }
    }
    (void)pthread_mutex_unlock(&unread_lock);
}

void plait_mpi_link_destroy(plait_mpi_link_t **link_p)
{
    plait_mpi_link_t *link = *link_p;

    *link_p = NULL;
    if (link == NULL) {
        return;
    }
    plait_mpi_unwatch(link);
    plait_mpi_drain(link, plait_clock_ns() + PLAIT_MPI_DRAIN_NS);
    if (atomic_load(&link->is_stuck)) {
        plait_log(PLAIT_LOG_WARN,
                  "rank %d close: memory of requests that never ended is kept",
                  link->rank);
        return;
    }
    if (!link->has_lost) {
        free_duplicate(link, link->matched);
        free_duplicate(link, link->control);
    }
    if (atomic_load(&link->is_stuck)) {
        return;
    }
    plait_node_maps_destroy(&link->maps);
    plait_cluster_destroy(&link->cluster);
    free_read();
    if (link->mail == NULL || plait_node_mail_close(link->mail)) {
        free_link(link);
    } else {
        keep_unread(link);
    }
}

void plait_mpi_close(plait_endpoint_t *end)
{
    if (end != NULL) {
        plait_mpi_link_t *link = end->state;
        end->state = NULL;
        end->transport = NULL;
        plait_mpi_link_destroy(&link);
    }
}
