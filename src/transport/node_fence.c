/* Fences of the ranks of one node, through the shared segment. At fence k a rank fills its box for k's parity
 * and then writes k into the box. The fence is over when all boxes say k. A box is filled again only two fences
 * later, when all ranks have left fence k, so it needs no other protection. A few published bytes fit in the
 * cache line that says k: one transfer from core to core. */
#include "base/process.h"
#include "transport/mpi_link.h"
#include "transport/node.h"
#include "transport/node_mail.h"

#include <time.h>

typedef struct {
    const plait_mpi_link_t *link;
    uint64_t number;
    int peer; /* the first rank that has not come */
} fence_t;

static const plait_node_box_t *box_of(const fence_t *fence, int rank)
{
    return plait_node_box(&fence->link->segment, (int)(fence->number % 2), rank);
}

/* Whether all ranks have come; starts at the rank that it found missing last. */
static bool is_over(void *context)
{
    fence_t *fence = context;

    while (fence->peer < fence->link->size &&
           atomic_load_explicit(&box_of(fence, fence->peer)->number,
                                memory_order_acquire) == fence->number) {
        fence->peer++;
    }
    return fence->peer == fence->link->size;
}

/* Sleeps; takes in messages meanwhile: the rank waited for may be the sender of a message that finds no
 * room. */
static plait_status_t sleep_turn(fence_t *fence, plait_wait_t *wait)
{
    const plait_mpi_link_t *link = fence->link;
    plait_node_header_t *header = plait_node_header(&link->segment);

    atomic_fetch_add(&header->n_asleep, 1);
    plait_status_t status = plait_bell_turn(
        &plait_node_rank(&link->segment, link->rank)->bell, wait, is_over, fence);
    atomic_fetch_sub(&header->n_asleep, 1);
    plait_node_mail_progress(link->mail);
    return status;
}

/* Messages through MPI move only while MPI is called: looks into MPI instead of sleeping. */
static plait_status_t nap_turn(plait_wait_t *wait)
{
    plait_mpi_look();
    return plait_wait_turn(wait);
}

static plait_status_t wait_for_all(fence_t *fence)
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin(PLAIT_WAIT_FENCE, PLAIT_ANY);

    while (!is_over(fence)) {
        wait.peer = fence->peer;
        if (!plait_bell_sleeps(&wait)) {
            PLAIT_TRY(plait_wait_turn(&wait));
        } else {
            PLAIT_TRY(fence->link->is_node ? sleep_turn(fence, &wait)
                                           : nap_turn(&wait));
        }
    }
done:
    return status;
}

/* Only the last rank to come needs to wake others, and a rank that finds that all have come may have been the
 * last. The memory fence orders its write of the box before the look for sleepers. */
static void wake_others(const plait_mpi_link_t *link)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&plait_node_header(&link->segment)->n_asleep,
                             memory_order_relaxed) > 0) {
        for (int i = 0; i < link->size; i++) {
            plait_bell_ring(&plait_node_rank(&link->segment, i)->bell);
        }
    }
}

/* Waits until no peer is in the middle of a write, perhaps to this rank, whose memory is about to be freed; no
 * peer begins another write. A peer that was stopped in a write may stay there for long; a peer that is gone
 * does not. */
static void outlast_writes(const plait_mpi_link_t *link)
{
    static const struct timespec nap = {.tv_nsec = 100000};

    for (int i = 0; i < link->size; i++) {
        const plait_node_rank_t *rank = plait_node_rank(&link->segment, i);
        const plait_process_t *process = plait_process_find(&link->cards[i].process);
        while (atomic_load(&rank->n_writing) > 0 && process != NULL &&
               !plait_process_is_gone(process)) {
            (void)nanosleep(&nap, NULL);
        }
    }
}

/* A rank that leaves a fence before it is over tells ranks that come later: they would find its box filled. */
static void give_up(const plait_mpi_link_t *link, plait_status_t status)
{
    uint64_t nobody = 0;

    (void)atomic_compare_exchange_strong(
        &plait_node_header(&link->segment)->given_up, &nobody,
        link->n_fences << 32 | (uint64_t)status << 24 | (uint64_t)(link->rank + 1));
    outlast_writes(link);
}

static plait_status_t fail_late(const plait_mpi_link_t *link, uint64_t word)
{
    return plait_fail((plait_status_t)(word >> 24 & 0xff),
                      "rank %d comes too late: rank %d has given up waiting",
                      link->rank, (int)(word & 0xffffff) - 1);
}

plait_status_t plait_node_check_given_up(const plait_session_t *session)
{
    const plait_mpi_link_t *link = plait_mpi_link_of(session);
    const uint64_t word = atomic_load(&plait_node_header(&link->segment)->given_up);

    return (word == 0) ? PLAIT_OK : fail_late(link, word);
}

/* A rank that was slow to see that all have come may find the next fence given up already: this fence is still
 * over for all. */
static plait_status_t judge(const plait_mpi_link_t *link, uint64_t number)
{
    const uint64_t word = atomic_load(&plait_node_header(&link->segment)->given_up);
    const bool is_later = (int32_t)((uint32_t)(word >> 32) - (uint32_t)number) > 0;

    return (word == 0 || is_later) ? PLAIT_OK : fail_late(link, word);
}

static void show(plait_mpi_link_t *link, const plait_record_t *mine, const void *bytes,
                 int64_t n_bytes)
{
    uint64_t number = ++link->n_fences;
    plait_node_box_t *box =
        plait_node_box(&link->segment, (int)(number % 2), link->rank);

    plait_record_write(&box->record, mine, bytes, n_bytes);
    atomic_store_explicit(&box->number, number, memory_order_release);
}

void plait_node_arrive(plait_session_t *session, const plait_record_t *mine)
{
    plait_mpi_link_t *link = plait_mpi_link_of(session);

    show(link, mine, NULL, 0);
    wake_others(link); /* a sleeping rank waits for this one, perhaps for it alone */
}

plait_status_t plait_node_wait(plait_session_t *session)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    fence_t fence = {.link = link, .number = link->n_fences};
    int parity = (int)(fence.number % 2);

    PLAIT_TRY(wait_for_all(&fence));
    wake_others(link);
    PLAIT_TRY(judge(link, fence.number));
    session->peers = (const char *)&plait_node_box(&link->segment, parity, 0)->record;
    session->peer_stride = PLAIT_NODE_BOX_BYTES;
done:
    if (status != PLAIT_OK) {
        give_up(link, status);
        atomic_store(&link->is_broken, true); /* others may be a fence further */
    }
    return status;
}

plait_status_t plait_node_fence(plait_session_t *session, const plait_record_t *mine,
                                const void *bytes, int64_t n_bytes)
{
    show(plait_mpi_link_of(session), mine, bytes, n_bytes);
    return plait_node_wait(session);
}
