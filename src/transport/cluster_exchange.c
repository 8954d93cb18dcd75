/* Leaders exchange what the ranks of their nodes show, in rounds. In each round a leader sends to the node
 * that is 1, 2, 4, ... places before it what it knows so far of the nodes from its own on. Two nodes swap one
 * message. (Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8(11), 1997.) The records go first; a record has
 * the first published bytes and the number of all published bytes. The rest follows only if some rank has
 * more. */
#include "base/checked.h"
#include "base/wait.h"
#include "transport/cluster.h"

#include <string.h>

enum { HEAD_BYTES = sizeof(plait_cluster_head_t), MAX_ROUNDS = 8 };
_Static_assert(PLAIT_CLUSTER_RANKS <= 1 << MAX_ROUNDS, "rounds");

/* Bytes that a record holds of what its rank shows. */
enum { RECORD_ROOM = sizeof(plait_record_t) - offsetof(plait_record_t, slot) };

static int leader_of(const plait_cluster_t *cluster, int node)
{
    return cluster->ranks[cluster->starts[node]];
}

/* The box of the rank at place i of the list. */
static plait_node_box_t *box_of(const plait_mpi_link_t *link, uint64_t number, int i)
{
    return plait_node_box(&link->segment, (int)(number % 2), link->cluster->ranks[i]);
}

/* Bytes that a rank shows beyond its record. */
static int64_t rest_of(const plait_record_t *record)
{
    int64_t n_bytes = (record->n_slots > 0)
                          ? record->n_slots * (int64_t)sizeof(record->slot[0])
                          : -(int64_t)record->n_slots;

    return plait_max(0, n_bytes - RECORD_ROOM);
}

/* Waits for both requests, or until somebody of this node gives up. */
static plait_status_t wait_for_both(plait_mpi_link_t *link, uint64_t requests[2])
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin(PLAIT_WAIT_FENCE, PLAIT_ANY);
    int i = 0;

    while (i < 2) {
        bool is_done = false;
        PLAIT_TRY(plait_mpi_poll(link, "fence", &requests[i], &is_done, NULL));
        i += is_done;
        if (!is_done) {
            PLAIT_TRY(plait_cluster_check(link));
            PLAIT_TRY(plait_wait_turn(&wait));
        }
    }
done:
    if (status != PLAIT_OK) {
        plait_mpi_give_up(link, "fence", i == 0, 2 - i, requests + i);
    }
    return status;
}

/* Sends to one leader and receives from another at once. */
static plait_status_t swap(plait_mpi_link_t *link, int to_rank, int64_t n_out,
                           int from_rank, int64_t n_in)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = link->mpi;
    const plait_cluster_t *cluster = link->cluster;
    int to = plait_mpi_process_of(link, to_rank);
    int from = plait_mpi_process_of(link, from_rank);
    int64_t n_posted = 0;
    uint64_t requests[2];

    PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "fence",
                             mpi->irecv(cluster->in, n_in, from, PLAIT_MPI_TAG_FENCE,
                                        link->control, &requests[0])));
    n_posted = 1;
    PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "fence",
                             mpi->isend(cluster->out, n_out, to, PLAIT_MPI_TAG_FENCE,
                                        link->control, &requests[1])));
    n_posted = 0; /* from here on wait_for_both gives them up */
    PLAIT_TRY(wait_for_both(link, requests));
done:
    if (n_posted > 0) {
        plait_mpi_give_up(link, "fence", n_posted, n_posted, requests);
    }
    return status;
}

/* Checks that the sender of a message has not given up, and is at this rank's fence. */
static plait_status_t check_head(const plait_mpi_link_t *link, uint64_t number)
{
    plait_status_t status = PLAIT_OK;
    plait_cluster_refusal_t said;

    memcpy(&said, link->cluster->in, sizeof(said));
    if (said.head.given_up != 0) {
        said.reason[PLAIT_REASON_BYTES - 1] = '\0';
        plait_cluster_give_up(link, said.head.given_up, said.reason);
        PLAIT_TRY(plait_cluster_check(link));
    }
    PLAIT_CHECK(said.head.number == number, PLAIT_ERR_TRANSPORT,
                "rank %d fence: another node is at fence %llu, not %llu", link->rank,
                (unsigned long long)said.head.number, (unsigned long long)number);
done:
    return status;
}

/* Gathers the nodes' parts, whose sizes all leaders know; this node's part is in place. */
static plait_status_t gather_parts(plait_mpi_link_t *link, uint64_t number)
{
    plait_status_t status = PLAIT_OK;
    const plait_cluster_t *cluster = link->cluster;
    const int64_t *parts = cluster->parts;
    const plait_cluster_head_t head = {.number = number};
    int n = cluster->n_nodes;

    memcpy(cluster->out, &head, HEAD_BYTES);
    for (int d = 1; d < n; d *= 2) {
        int m = (d < n - d) ? d : n - d;
        int64_t n_in = parts[d + m] - parts[d];
        int64_t room = plait_max(HEAD_BYTES + n_in, (int64_t)sizeof(cluster->refusal));
        PLAIT_TRY(swap(link, leader_of(cluster, n - d), HEAD_BYTES + parts[m],
                       leader_of(cluster, d), room));
        PLAIT_TRY(check_head(link, number));
        memcpy(cluster->out + HEAD_BYTES + parts[d], cluster->in + HEAD_BYTES,
               (size_t)n_in);
    }
done:
    return status;
}

static plait_status_t exchange_records(plait_mpi_link_t *link, uint64_t number)
{
    plait_status_t status = PLAIT_OK;
    plait_cluster_t *cluster = link->cluster;
    const int64_t n_bytes = sizeof(plait_record_t);
    char *records = cluster->out + HEAD_BYTES;

    for (int k = 0; k <= cluster->n_nodes; k++) {
        cluster->parts[k] = cluster->starts[k] * n_bytes;
    }
    for (int i = 0; i < cluster->n_here; i++) {
        memcpy(records + i * n_bytes, &box_of(link, number, i)->record,
               sizeof(plait_record_t));
    }
    PLAIT_TRY(gather_parts(link, number));
    for (int i = cluster->n_here; i < link->size; i++) {
        plait_record_t *record = &box_of(link, number, i)->record;
        memcpy(record, records + i * n_bytes, sizeof(*record));
        PLAIT_CHECK(record->n_slots <= PLAIT_MAX_SLOTS &&
                        record->n_slots >= -cluster->publish_bytes,
                    PLAIT_ERR_TRANSPORT, "rank %d fence: rank %d shows %d bytes",
                    link->rank, cluster->ranks[i], -record->n_slots);
    }
done:
    return status;
}

/* Sets the sizes of the parts beyond the records; false if there is nothing. */
static bool measure_rest(const plait_mpi_link_t *link, uint64_t number)
{
    plait_cluster_t *cluster = link->cluster;
    int64_t n_bytes = 0;

    for (int k = 0; k < cluster->n_nodes; k++) {
        cluster->parts[k] = n_bytes;
        for (int i = cluster->starts[k]; i < cluster->starts[k + 1]; i++) {
            n_bytes += rest_of(&box_of(link, number, i)->record);
        }
    }
    cluster->parts[cluster->n_nodes] = n_bytes;
    return n_bytes > 0;
}

static plait_status_t exchange_rest(plait_mpi_link_t *link, uint64_t number)
{
    plait_status_t status = PLAIT_OK;
    const plait_cluster_t *cluster = link->cluster;
    char *at = cluster->out + HEAD_BYTES;

    for (int i = 0; i < cluster->n_here; i++) {
        const plait_record_t *record = &box_of(link, number, i)->record;
        memcpy(at, (const char *)record + sizeof(*record), (size_t)rest_of(record));
        at += rest_of(record);
    }
    PLAIT_TRY(gather_parts(link, number));
    for (int i = cluster->n_here; i < link->size; i++) {
        plait_record_t *record = &box_of(link, number, i)->record;
        memcpy((char *)record + sizeof(*record), at, (size_t)rest_of(record));
        at += rest_of(record);
    }
done:
    return status;
}

plait_status_t plait_cluster_exchange(plait_mpi_link_t *link, uint64_t number)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(exchange_records(link, number));
    if (measure_rest(link, number)) {
        PLAIT_TRY(exchange_rest(link, number));
    }
    for (int i = link->cluster->n_here; i < link->size; i++) {
        atomic_store_explicit(&box_of(link, number, i)->number, number,
                              memory_order_release);
    }
done:
    return status;
}

/* Goes to all leaders that may expect a message from this one. Such a leader takes it in place of that message,
 * now or at the next fence, and tells others. */
void plait_cluster_refuse(plait_mpi_link_t *link, uint64_t number)
{
    plait_cluster_t *cluster = link->cluster;
    plait_cluster_refusal_t *refusal = &cluster->refusal;
    uint64_t requests[MAX_ROUNDS];
    int n = 0;

    refusal->head.number = number;
    refusal->head.given_up = plait_cluster_given_up(link);
    memcpy(refusal->reason, plait_node_header(&link->segment)->reason,
           PLAIT_REASON_BYTES);
    for (int d = 1; d < cluster->n_nodes; d *= 2) {
        int to = leader_of(cluster, cluster->n_nodes - d);
        if (!plait_mpi_has_left(link, to) && plait_mpi_lock()) {
            n += link->mpi->isend(refusal, sizeof(*refusal),
                                  plait_mpi_process_of(link, to), PLAIT_MPI_TAG_FENCE,
                                  link->control, &requests[n]) == 0;
            (void)plait_mpi_unlock(link->rank, "fence", 0);
        }
    }
    plait_mpi_give_up(link, "fence", 0, n, requests);
}
