/* A fence of ranks on several nodes. A rank fills its box in its node's segment. The leader waits for the boxes
 * of its node, exchanges them with the other leaders, and fills the boxes of the other nodes' ranks. The other
 * ranks wait for all boxes. A node that gives up marks its segment, where all its ranks look while they wait,
 * and its leader tells the other leaders. They learn of it at this fence, or at the next fence if they had
 * already reached the end of this one. */
#include "base/bell.h"
#include "transport/cluster.h"

#include <string.h>

/* Stands for the rank that has given up, while the reason is being written. */
static const uint64_t is_being_written = UINT32_MAX;

void plait_cluster_give_up(const plait_mpi_link_t *link, uint32_t word,
                           const char *reason)
{
    plait_node_header_t *header = plait_node_header(&link->segment);
    uint64_t nobody = 0;

    if (atomic_compare_exchange_strong(&header->given_up, &nobody, is_being_written)) {
        size_t n = strcspn(reason, "\n"); /* a table may follow */
        n = (n < PLAIT_REASON_BYTES) ? n : PLAIT_REASON_BYTES - 1;
        memcpy(header->reason, reason, n); /* the bytes behind it are 0 */
        atomic_store_explicit(&header->given_up, word, memory_order_release);
    }
}

uint32_t plait_cluster_given_up(const plait_mpi_link_t *link)
{
    uint64_t word = atomic_load_explicit(&plait_node_header(&link->segment)->given_up,
                                         memory_order_acquire);

    return (word == is_being_written) ? 0 : (uint32_t)word;
}

plait_status_t plait_cluster_check(const plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    uint32_t word = plait_cluster_given_up(link);

    if (word >> 24 == PLAIT_ERR_PEER) {
        plait_wait_set_lost(); /* the rank that has given up waits in vain */
    } else if (word >> 24 == PLAIT_ERR_TIMEOUT) {
        plait_wait_set_late();
    }
    PLAIT_CHECK(word == 0, (plait_status_t)(word >> 24),
                "rank %d fence: rank %d has given up: %s", link->rank,
                (int)(word & 0xffffff) - 1, plait_node_header(&link->segment)->reason);
done:
    return status;
}

/* A wait for the first n ranks of the list. */
typedef struct {
    const plait_mpi_link_t *link;
    uint64_t number;
    int n;
    int at; /* the first rank that has not come */
} arrival_t;

/* Whether they have come, or nobody will come any more. */
static bool is_over(void *context)
{
    arrival_t *a = context;
    const plait_node_segment_t *segment = &a->link->segment;
    const int *ranks = a->link->cluster->ranks;

    while (a->at < a->n &&
           atomic_load_explicit(
               &plait_node_box(segment, (int)(a->number % 2), ranks[a->at])->number,
               memory_order_acquire) == a->number) {
        a->at++;
    }
    return a->at == a->n || plait_cluster_given_up(a->link) != 0;
}

/* Sleeps, so that the ranks waited for get the core; does not sleep while messages of this rank are under
 * way. */
static plait_status_t sleep_turn(arrival_t *a, plait_wait_t *wait)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_link_t *link = a->link;
    plait_node_header_t *header = plait_node_header(&link->segment);
    plait_bell_t *bell = &plait_node_rank(&link->segment, link->rank)->bell;

    if (atomic_load(&link->n_pending) > 0) {
        plait_mpi_look();
        status = plait_wait_turn(wait);
    } else {
        atomic_fetch_add(&header->n_asleep, 1);
        status = plait_bell_turn(bell, wait, is_over, a);
        atomic_fetch_sub(&header->n_asleep, 1);
    }
    return status;
}

/* A missing rank of this node is known; a missing rank of another node is not. */
static plait_status_t wait_for(const plait_mpi_link_t *link, uint64_t number, int n)
{
    plait_status_t status = PLAIT_OK;
    const plait_cluster_t *cluster = link->cluster;
    arrival_t a = {.link = link, .number = number, .n = n};
    plait_wait_t wait = plait_wait_begin(PLAIT_WAIT_FENCE, PLAIT_ANY);

    while (!is_over(&a)) {
        wait.peer = (a.at < cluster->n_here) ? cluster->ranks[a.at] : PLAIT_ANY;
        PLAIT_TRY(plait_bell_sleeps(&wait) ? sleep_turn(&a, &wait)
                                           : plait_wait_turn(&wait));
    }
    PLAIT_TRY(plait_cluster_check(link));
done:
    return status;
}

/* Rings for the first n ranks of the list, which are of this node, if any of them sleeps. */
static void wake(const plait_mpi_link_t *link, int n)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&plait_node_header(&link->segment)->n_asleep,
                             memory_order_relaxed) > 0) {
        for (int i = 0; i < n; i++) {
            plait_bell_ring(
                &plait_node_rank(&link->segment, link->cluster->ranks[i])->bell);
        }
    }
}

static plait_status_t meet(plait_mpi_link_t *link, uint64_t number)
{
    plait_status_t status = PLAIT_OK;

    if (plait_cluster_leads(link)) {
        PLAIT_TRY(wait_for(link, number, link->cluster->n_here));
        PLAIT_TRY(plait_cluster_exchange(link, number));
        wake(link, link->cluster->n_here);
    } else {
        wake(link, 1); /* the leader */
        PLAIT_TRY(wait_for(link, number, link->size));
    }
    PLAIT_TRY(plait_cluster_check(link));
done:
    return status;
}

plait_status_t plait_cluster_fence(plait_session_t *session, const plait_record_t *mine,
                                   const void *bytes, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    uint64_t number = ++link->n_fences;
    int parity = (int)(number % 2);
    plait_node_box_t *box = plait_node_box(&link->segment, parity, link->rank);

    PLAIT_CHECK(n_bytes <= link->cluster->publish_bytes, PLAIT_ERR_INTERNAL,
                "rank %d fence: %lld bytes", link->rank, (long long)n_bytes);
    plait_record_write(&box->record, mine, bytes, n_bytes);
    atomic_store_explicit(&box->number, number, memory_order_release);
    PLAIT_TRY(meet(link, number));
    session->peers = (const char *)&plait_node_box(&link->segment, parity, 0)->record;
    session->peer_stride = link->segment.shape.box_bytes;
done:
    if (status != PLAIT_OK) {
        plait_cluster_give_up(link, (uint32_t)status << 24 | (uint32_t)(link->rank + 1),
                              plait_error_text());
        if (plait_cluster_leads(link)) {
            plait_cluster_refuse(link, number);
        }
        atomic_store(&link->is_broken, true); /* others may be a fence further */
    }
    return status;
}

const plait_transport_t plait_cluster_transport = {
    .name = "cluster",
    .close = plait_mpi_close,
    .begin = plait_mpi_begin,
    .end = plait_mpi_end,
    .abandon = plait_mpi_abandon,
    .is_stuck = plait_mpi_is_stuck,
    .fence = plait_cluster_fence,
    .exchange = plait_mpi_exchange,
    .allreduce = plait_mpi_allreduce,
    .bcast = plait_mpi_bcast,
    .barrier = plait_mpi_barrier,
    .sendrecv = plait_mpi_sendrecv,
    .send = plait_mpi_send,
    .is_leaving = plait_mpi_is_leaving,
    .refusal = plait_mpi_refusal,
    .farewell = plait_mpi_farewell,
};
