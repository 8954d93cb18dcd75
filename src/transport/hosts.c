#include "transport/hosts.h"

#include "base/alloc.h"
#include "base/status.h"
#include "transport/cluster.h"
#include "transport/local_mail.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* What the ranks of this process share. */
typedef struct {
    plait_mpi_link_t *process; /* among the processes */
    plait_mpi_seat_t *seats;   /* of all ranks        */
    plait_peer_t *peers;
    plait_node_segment_t segment;
    plait_mail_t mail; /* messages between ranks of this process */
    bool has_mail;
    pthread_mutex_t mutex;
    int n_open;
    char why[160];
} hosts_t;

/* One rank. Its link uses the process's duplicates, segment and leader's messages; only what calls count or
 * fill is its own. */
typedef struct {
    plait_mpi_link_t link;
    hosts_t *hosts;
} device_t;

static device_t *device_of(const plait_endpoint_t *end)
{
    return end->state;
}

/* Requests that never ended may still read or write memory here: it is then kept. */
static void hosts_destroy(hosts_t *hosts)
{
    if (hosts != NULL) {
        bool is_stuck =
            hosts->process != NULL && atomic_load(&hosts->process->is_stuck);
        if (hosts->has_mail) {
            plait_mail_clear(&hosts->mail);
        }
        (void)pthread_mutex_destroy(&hosts->mutex);
        plait_mpi_link_destroy(&hosts->process); /* and the leaders' buffers */
        if (!is_stuck) {
            plait_node_segment_destroy(&hosts->segment);
        }
        plait_free(hosts->peers);
        plait_free(hosts->seats);
        plait_free(hosts);
    }
}

/* After a fence that this rank has left, messages of other processes may still come. Then the duplicates are
 * kept, so that MPI gives them to no communicator that would take these messages as its own. */
static void hosts_close(plait_endpoint_t *end)
{
    device_t *device = device_of(end);

    if (device != NULL) {
        hosts_t *hosts = device->hosts;
        bool is_stuck = atomic_load(&device->link.is_stuck);
        bool is_broken = atomic_load(&device->link.is_broken);
        end->state = NULL;
        end->transport = NULL;
        if (!is_stuck) {
            plait_free(device->link.requests);
            plait_free(device);
        }
        (void)pthread_mutex_lock(&hosts->mutex);
        if (is_stuck) {
            atomic_store(&hosts->process->is_stuck, true);
        }
        hosts->process->has_lost = hosts->process->has_lost || is_broken;
        int n_open = --hosts->n_open;
        (void)pthread_mutex_unlock(&hosts->mutex);
        if (n_open == 0) {
            hosts_destroy(hosts);
        }
    }
}

/* Messages to and from ranks of this process, in a separate list: one each, at most. */
enum { NEAR_ROOM = PLAIT_MPI_SEATS };

static plait_status_t list_near(const plait_mpi_link_t *link, int n,
                                const plait_message_t all[], int *n_near_p,
                                plait_message_t near[NEAR_ROOM])
{
    plait_status_t status = PLAIT_OK;

    *n_near_p = 0;
    for (int i = 0; i < n; i++) {
        if (plait_mpi_is_near(link, all[i].peer) && all[i].n_bytes > 0) {
            PLAIT_CHECK(*n_near_p < NEAR_ROOM, PLAIT_ERR_INTERNAL,
                        "rank %d exchange: %d messages at once", link->rank, n);
            near[(*n_near_p)++] = all[i];
        }
    }
done:
    return status;
}

/* Messages of other processes are under way while threads copy from each other. */
static plait_status_t hosts_exchange(plait_session_t *session, int n_sends,
                                     const plait_message_t *sends, int n_recvs,
                                     const plait_message_t *recvs)
{
    plait_status_t status = PLAIT_OK;
    device_t *device = device_of(session->end);
    plait_mpi_link_t *link = &device->link;
    plait_message_t near[2][NEAR_ROOM];
    plait_mpi_posted_t posted = {0};
    int n_near[2];

    PLAIT_TRY(list_near(link, n_sends, sends, &n_near[0], near[0]));
    PLAIT_TRY(list_near(link, n_recvs, recvs, &n_near[1], near[1]));
    PLAIT_TRY(plait_mpi_post(link, n_sends, sends, n_recvs, recvs, &posted));
    if (n_near[0] + n_near[1] > 0) {
        status = plait_mail_exchange(&device->hosts->mail, link->rank, n_near[0],
                                     near[0], n_near[1], near[1]);
    }
    if (status == PLAIT_OK) {
        status = plait_mpi_finish(link, &posted);
    } else {
        atomic_store(&link->is_broken, true);
        plait_mpi_give_up(link, "exchange", posted.n_receives, posted.n,
                          link->requests);
    }
done:
    return status;
}

/* A mesh numbers its devices, while messages by tag are between the ranks of programs. */
static plait_status_t refuse_matched(const plait_session_t *session)
{
    return plait_fail(
        PLAIT_ERR_UNSUPPORTED,
        "rank %d: send and recv are not possible between devices of several "
        "processes; use a collective, such as permute",
        session->end->rank);
}

static plait_status_t hosts_sendrecv(plait_session_t *session, const plait_half_t *send,
                                     const plait_half_t *recv,
                                     plait_matched_t *matched_p)
{
    (void)send;
    (void)recv;
    (void)matched_p;
    return refuse_matched(session);
}

static plait_status_t hosts_send(plait_session_t *session, const plait_half_t *send)
{
    (void)send;
    return refuse_matched(session);
}

static plait_status_t hosts_refusal(plait_session_t *session)
{
    (void)session; /* nothing was sent that could be refused */
    return PLAIT_OK;
}

static const plait_transport_t hosts_transport = {
    .name = "hosts",
    .close = hosts_close,
    .begin = plait_mpi_begin,
    .end = plait_mpi_end,
    .abandon = plait_mpi_abandon,
    .is_stuck = plait_mpi_is_stuck,
    .fence = plait_cluster_fence,
    .exchange = hosts_exchange,
    .sendrecv = hosts_sendrecv,
    .send = hosts_send,
    .refusal = hosts_refusal,
    .farewell = plait_mpi_farewell,
};

/* Slots number the ranks of each process; every process has at least one. */
static plait_status_t take_seats(hosts_t *hosts, int n_ranks,
                                 const plait_place_t places[])
{
    plait_status_t status = PLAIT_OK;
    int n_processes = hosts->process->size;
    int *counts = plait_alloc(n_processes, sizeof(*counts));

    PLAIT_CHECK(counts != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %d ranks", n_ranks);
    for (int r = 0; r < n_ranks; r++) {
        int process = places[r].process;
        PLAIT_CHECK(process >= 0 && process < n_processes, PLAIT_ERR_INVALID,
                    "rank %d is in process %d of %d", r, process, n_processes);
        hosts->seats[r] = (plait_mpi_seat_t){process, counts[process]++};
        PLAIT_CHECK(counts[process] <= PLAIT_MPI_SEATS, PLAIT_ERR_UNSUPPORTED,
                    "process %d has more than %d devices of one communicator", process,
                    PLAIT_MPI_SEATS);
        hosts->peers[r] =
            (plait_peer_t){hosts->process->cards[process].process, places[r].track};
    }
    for (int p = 0; p < n_processes; p++) {
        PLAIT_CHECK(counts[p] > 0, PLAIT_ERR_INVALID, "process %d of %d has no rank", p,
                    n_processes);
    }
done:
    plait_free(counts);
    return status;
}

/* The first rank in the process of a rank. */
static int first_of(const hosts_t *hosts, int rank)
{
    int first = 0;

    while (hosts->seats[first].process != hosts->seats[rank].process) {
        first++;
    }
    return first;
}

/* The memory in which this process's ranks meet, and the buffers that their leader exchanges with others. */
static plait_status_t make_room(hosts_t *hosts, int n_ranks)
{
    plait_status_t status = PLAIT_OK;
    const plait_node_shape_t shape = plait_cluster_shape(n_ranks);
    int *leaders = plait_alloc(n_ranks, sizeof(*leaders));
    int own = 0;

    PLAIT_CHECK(leaders != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %d ranks",
                n_ranks);
    for (int r = 0; r < n_ranks; r++) {
        leaders[r] = first_of(hosts, r);
        own = (hosts->seats[r].process == hosts->process->rank) ? leaders[r] : own;
    }
    PLAIT_TRY(plait_node_segment_own(&shape, &hosts->segment));
    PLAIT_TRY(plait_cluster_create(n_ranks, own, leaders, &hosts->process->cluster));
    PLAIT_TRY(plait_mail_init(&hosts->mail, n_ranks));
    hosts->has_mail = true;
done:
    plait_free(leaders);
    return status;
}

static plait_status_t hosts_create(uint64_t comm_bits, int n_ranks,
                                   const plait_place_t places[], int64_t id,
                                   hosts_t **hosts_p)
{
    plait_status_t status = PLAIT_OK;
    hosts_t *hosts = plait_alloc(1, sizeof(*hosts));

    PLAIT_CHECK(hosts != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    (void)pthread_mutex_init(&hosts->mutex, NULL);
    hosts->segment.memory.fd = -1;
    hosts->seats = plait_alloc(n_ranks, sizeof(*hosts->seats));
    hosts->peers = plait_alloc(n_ranks, sizeof(*hosts->peers));
    PLAIT_CHECK(hosts->seats != NULL && hosts->peers != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a communicator of %d ranks", n_ranks);
    PLAIT_TRY(plait_mpi_link_open(comm_bits, -1, -1, &id, &hosts->process));
    plait_mpi_set_open(hosts->process, true);
    PLAIT_CHECK(hosts->process->size <= PLAIT_CLUSTER_RANKS, PLAIT_ERR_UNSUPPORTED,
                "devices of %d processes, at most %d", hosts->process->size,
                PLAIT_CLUSTER_RANKS);
    PLAIT_TRY(take_seats(hosts, n_ranks, places));
    PLAIT_TRY(make_room(hosts, n_ranks));
    (void)snprintf(hosts->why, sizeof(hosts->why),
                   "off: %d devices of %d processes; those of one copy from each other",
                   n_ranks, hosts->process->size);
    *hosts_p = hosts;
    hosts = NULL;
done:
    hosts_destroy(hosts);
    return status;
}

/* The endpoint of one rank of this process. */
static plait_status_t open_device(hosts_t *hosts, int n_ranks, int rank,
                                  plait_endpoint_t *end)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_link_t *process = hosts->process;
    device_t *device = plait_alloc(1, sizeof(*device));

    PLAIT_CHECK(device != NULL, PLAIT_ERR_NO_MEMORY, "no memory for an endpoint");
    device->hosts = hosts;
    device->link.mpi = process->mpi;
    device->link.matched = process->matched;
    device->link.control = process->control;
    device->link.chunk_bytes = process->chunk_bytes;
    device->link.id = process->id;
    device->link.process = hosts->process;
    device->link.seats = hosts->seats;
    device->link.cluster = process->cluster;
    device->link.segment = hosts->segment;
    device->link.rank = rank;
    device->link.size = n_ranks;
    hosts->n_open++;
    *end = (plait_endpoint_t){.transport = &hosts_transport,
                              .rank = rank,
                              .size = n_ranks,
                              .caps = {.direct = PLAIT_DIRECT_NONE,
                                       .publish_bytes = process->cluster->publish_bytes,
                                       .is_far = true},
                              .peers = hosts->peers,
                              .why = hosts->why,
                              .freed_p = &hosts->process->is_freed,
                              .state = device};
done:
    return status;
}

plait_status_t plait_hosts_open(uint64_t comm_bits, int n_ranks,
                                const plait_place_t places[], int64_t id,
                                plait_endpoint_t ends[])
{
    plait_status_t status = PLAIT_OK;
    hosts_t *hosts = NULL;
    int n_made = 0;

    PLAIT_TRY(hosts_create(comm_bits, n_ranks, places, id, &hosts));
    for (int r = 0; r < n_ranks; r++) {
        if (hosts->seats[r].process == hosts->process->rank) {
            PLAIT_TRY(open_device(hosts, n_ranks, r, &ends[n_made]));
            n_made++;
        }
    }
    hosts = NULL; /* the endpoints have it now */
done:
    for (int i = 0; status != PLAIT_OK && i < n_made; i++) {
        hosts = NULL; /* closing the last endpoint frees it */
        hosts_close(&ends[i]);
    }
    hosts_destroy(hosts);
    return status;
}
