/* Fences, exchanges and native collectives over MPI. No call blocks inside MPI: an operation is posted, then
 * polled under the lock, with turns of base/wait.h in between. */
#include "base/alloc.h"
#include "base/checked.h"
#include "kernel/reduce.h"
#include "transport/mpi_link.h"

#include <string.h>

/* Most bytes of one call of MPI's collectives, whatever MPI's counts are: MPICH 4.0 fails for more than an
 * int. */
enum { COLLECTIVE_BYTES = 1 << 30 };

plait_status_t plait_mpi_begin(plait_session_t *session, bool is_collective)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);

    (void)is_collective; /* MPI matches calls by their order on the communicator */
    session->peers = NULL;
    session->meeting = NULL;
    PLAIT_TRY(plait_mpi_usable("begin"));
    PLAIT_CHECK(!atomic_load_explicit(&link->is_broken, memory_order_relaxed) &&
                    !atomic_load_explicit(&link->is_stuck, memory_order_relaxed),
                PLAIT_ERR_COMM,
                "an earlier operation on this communicator was given up");
done:
    return status;
}

void plait_mpi_end(plait_session_t *session)
{
    session->peers = NULL;
}

void plait_mpi_abandon(plait_session_t *session)
{
    atomic_store(&plait_mpi_link_of(session)->is_broken, true);
}

bool plait_mpi_is_stuck(const plait_endpoint_t *end)
{
    const plait_mpi_link_t *link = end->state;

    return atomic_load(&link->is_stuck);
}

/* For two ranks: one message each way, faster than any collective of MPI. Both buffers belong to the link. */
static plait_status_t swap(plait_mpi_link_t *link, const char *what, int tag,
                           const void *out, void *in, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = link->mpi;
    int peer = 1 - link->rank;
    int64_t n_posted = 0;
    uint64_t requests[2];

    PLAIT_TRY(PLAIT_MPI_CALL(
        link->rank, what,
        mpi->irecv(in, n_bytes, peer, tag, link->control, &requests[0])));
    n_posted = 1;
    PLAIT_TRY(PLAIT_MPI_CALL(
        link->rank, what,
        mpi->isend(out, n_bytes, peer, tag, link->control, &requests[1])));
    n_posted = 0; /* from here on plait_mpi_wait gives them up */
    PLAIT_TRY(plait_mpi_wait(link, what, peer, 1, &n_bytes, 2, requests));
done:
    if (n_posted > 0) {
        plait_mpi_give_up(link, what, n_posted, n_posted, requests);
    }
    return status;
}

static plait_status_t fence_pair(plait_mpi_link_t *link)
{
    link->peers[link->rank] = link->mine;
    return swap(link, PLAIT_WAIT_FENCE, PLAIT_MPI_TAG_FENCE, &link->mine,
                &link->peers[1 - link->rank], sizeof(link->mine));
}

static plait_status_t fence_all(plait_mpi_link_t *link)
{
    plait_status_t status = PLAIT_OK;
    uint64_t request = 0;

    PLAIT_TRY(
        PLAIT_MPI_CALL(link->rank, "fence",
                       link->mpi->iallgather(&link->mine, sizeof(link->mine),
                                             link->peers, link->control, &request)));
    PLAIT_TRY(plait_mpi_wait(link, PLAIT_WAIT_FENCE, PLAIT_ANY, 0, NULL, 1, &request));
done:
    return status;
}

/* Exchanges records with bytes, which happens only after a failure: the same number on every rank. */
static plait_status_t fence_with_bytes(plait_mpi_link_t *link, const void *bytes,
                                       int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    uint64_t request = 0;

    PLAIT_CHECK(n_bytes <= PLAIT_MPI_SAID_BYTES, PLAIT_ERR_INTERNAL,
                "rank %d fence: %lld bytes", link->rank, (long long)n_bytes);
    if (link->said == NULL) {
        link->said = plait_alloc(link->size + 1, sizeof(*link->said));
    }
    PLAIT_CHECK(link->said != NULL, PLAIT_ERR_NO_MEMORY, "rank %d fence: no memory",
                link->rank);
    plait_mpi_said_t *mine = &link->said[link->size];
    plait_record_write(&mine->record, &link->mine, bytes, n_bytes);
    PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "fence",
                             link->mpi->iallgather(mine, sizeof(*mine), link->said,
                                                   link->control, &request)));
    PLAIT_TRY(plait_mpi_wait(link, PLAIT_WAIT_FENCE, PLAIT_ANY, 0, NULL, 1, &request));
done:
    return status;
}

/* Every rank needs the records of all ranks, so showing them is the barrier as well. caps.publish_bytes is -1,
 * but a few bytes are shown after a failure. */
static plait_status_t session_fence(plait_session_t *session,
                                    const plait_record_t *mine, const void *bytes,
                                    int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    bool has_bytes = bytes != NULL && n_bytes > 0;

    link->mine = *mine;
    PLAIT_TRY(has_bytes           ? fence_with_bytes(link, bytes, n_bytes)
              : (link->size == 2) ? fence_pair(link)
                                  : fence_all(link));
    session->peers = has_bytes ? (const char *)link->said : (const char *)link->peers;
    session->peer_stride = has_bytes ? sizeof(*link->said) : sizeof(*link->peers);
done:
    if (status != PLAIT_OK) {
        atomic_store(&link->is_broken, true);
    }
    return status;
}

static int64_t count_chunks(const plait_mpi_link_t *link, int n,
                            const plait_message_t list[])
{
    int64_t n_chunks = 0;

    for (int i = 0; i < n; i++) {
        if (!plait_mpi_is_near(link, list[i].peer)) {
            n_chunks += list[i].n_bytes / link->chunk_bytes;
            n_chunks += (list[i].n_bytes % link->chunk_bytes != 0);
        }
    }
    return n_chunks;
}

/* Tells messages between two processes apart by their sending and receiving threads. */
static int tag_of(const plait_mpi_link_t *link, int from, int to)
{
    return (link->seats == NULL)
               ? PLAIT_MPI_TAG_EXCHANGE
               : PLAIT_MPI_TAG_SEATS + link->seats[from].slot * PLAIT_MPI_SEATS +
                     link->seats[to].slot;
}

/* The memory is kept and grown: once the first runs are over, an exchange allocates nothing. */
static plait_status_t reserve_requests(plait_mpi_link_t *link, int64_t n)
{
    plait_status_t status = PLAIT_OK;

    if (n > link->n_requests_room) {
        uint64_t *requests =
            plait_alloc(2 * n, sizeof(*requests) + sizeof(*link->lengths));
        PLAIT_CHECK(requests != NULL, PLAIT_ERR_NO_MEMORY,
                    "rank %d exchange: no memory for %lld requests", link->rank,
                    (long long)n);
        plait_free(link->requests);
        link->requests = requests;
        link->lengths = (int64_t *)(requests + 2 * n);
        link->n_requests_room = 2 * n;
    }
done:
    return status;
}

/* Posts the messages in order, each in chunks, and empty messages if there are no data; *n_p counts the
 * requests. */
static plait_status_t post_all(plait_mpi_link_t *link, bool is_send, int n,
                               const plait_message_t list[], int64_t *n_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_backend_t *mpi = link->mpi;

    for (int i = 0; i < n; i++) {
        const plait_message_t *m = &list[i];
        bool is_near = plait_mpi_is_near(link, m->peer);
        int peer = plait_mpi_process_of(link, m->peer);
        int tag = is_send ? tag_of(link, link->rank, m->peer)
                          : tag_of(link, m->peer, link->rank);
        for (int64_t at = 0; at < m->n_bytes && !is_near;) {
            int64_t chunk = plait_min(m->n_bytes - at, link->chunk_bytes);
            char *data = (m->data != NULL) ? (char *)m->data + at : NULL;
            int64_t n_bytes = (data != NULL) ? chunk : 0;
            uint64_t *request_p = &link->requests[*n_p];
            link->lengths[*n_p] = n_bytes;
            PLAIT_TRY(PLAIT_MPI_CALL(
                link->rank, "exchange",
                is_send
                    ? mpi->isend(data, n_bytes, peer, tag, link->control, request_p)
                    : mpi->irecv(data, n_bytes, peer, tag, link->control, request_p)));
            (*n_p)++;
            at += chunk;
        }
    }
done:
    return status;
}

plait_status_t plait_mpi_post(plait_mpi_link_t *link, int n_sends,
                              const plait_message_t *sends, int n_recvs,
                              const plait_message_t *recvs, plait_mpi_posted_t *posted)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_receives = count_chunks(link, n_recvs, recvs);
    int64_t n_posted = 0;

    PLAIT_TRY(reserve_requests(link, n_receives + count_chunks(link, n_sends, sends)));
    status = post_all(link, false, n_recvs, recvs, &n_posted);
    if (status == PLAIT_OK) {
        status = post_all(link, true, n_sends, sends, &n_posted);
    }
    *posted = (plait_mpi_posted_t){n_receives, n_posted};
    if (status != PLAIT_OK) {
        plait_mpi_give_up(link, "exchange", plait_min(n_receives, n_posted), n_posted,
                          link->requests);
    }
done:
    return status;
}

plait_status_t plait_mpi_finish(plait_mpi_link_t *link,
                                const plait_mpi_posted_t *posted)
{
    return plait_mpi_wait(link, "exchange", PLAIT_ANY, posted->n_receives,
                          link->lengths, posted->n, link->requests);
}

plait_status_t plait_mpi_exchange(plait_session_t *session, int n_sends,
                                  const plait_message_t *sends, int n_recvs,
                                  const plait_message_t *recvs)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    plait_mpi_posted_t posted;

    PLAIT_TRY(plait_mpi_post(link, n_sends, sends, n_recvs, recvs, &posted));
    PLAIT_TRY(plait_mpi_finish(link, &posted));
done:
    return status;
}

/* Few bytes of two ranks: swapped and combined here, in the order of ranks on both. Takes half the time of
 * MPI's nonblocking allreduce, which is made for more ranks and bytes. */
static plait_status_t allreduce_pair(plait_mpi_link_t *link, plait_reduce_fn_t combine,
                                     int64_t n, int64_t n_bytes, const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const char *low = (link->rank == 0) ? link->small[0] : link->small[1];
    const char *high = (link->rank == 0) ? link->small[1] : link->small[0];

    memcpy(link->small[0], x, (size_t)n_bytes);
    PLAIT_TRY(swap(link, "allreduce", PLAIT_MPI_TAG_REDUCE, link->small[0],
                   link->small[1], n_bytes));
    combine(n, y, low, high);
done:
    return status;
}

plait_status_t plait_mpi_allreduce(plait_session_t *session, plait_reduce_t op,
                                   plait_dtype_t dtype, int64_t n, const void *x,
                                   void *y)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    int64_t size = plait_dtype_bytes(dtype);
    uint64_t request = 0;

    PLAIT_CHECK(plait_caps_reduce(&session->end->caps, op, dtype), PLAIT_ERR_INTERNAL,
                "rank %d allreduce: MPI does not reduce %s this way", link->rank,
                plait_dtype_name(dtype));
    if ((link->size == 2) && (n > 0) && (n <= PLAIT_MPI_SMALL_BYTES / size)) {
        PLAIT_TRY(
            allreduce_pair(link, plait_reduce_find(op, dtype), n, n * size, x, y));
        goto done;
    }
    op = plait_mpi_op(op, dtype);
    for (int64_t at = 0; at < n;) {
        int64_t chunk = plait_min(n - at, COLLECTIVE_BYTES / size);
        PLAIT_TRY(PLAIT_MPI_CALL(
            link->rank, "allreduce",
            link->mpi->iallreduce((const char *)x + at * size, (char *)y + at * size,
                                  chunk, dtype, op, link->matched, &request)));
        PLAIT_TRY(plait_mpi_wait(link, "allreduce", PLAIT_ANY, 0, NULL, 1, &request));
        at += chunk;
    }
done:
    return status;
}

plait_status_t plait_mpi_bcast(plait_session_t *session, int root, void *data,
                               int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    const int peer = (root == link->rank) ? PLAIT_ANY : root;
    uint64_t request = 0;

    for (int64_t at = 0; at < n_bytes;) {
        int64_t chunk = plait_min(n_bytes - at, COLLECTIVE_BYTES);
        PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "bcast",
                                 link->mpi->ibcast((char *)data + at, chunk, root,
                                                   link->matched, &request)));
        PLAIT_TRY(plait_mpi_wait(link, "bcast", peer, 0, NULL, 1, &request));
        at += chunk;
    }
done:
    return status;
}

plait_status_t plait_mpi_barrier(plait_session_t *session)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    uint64_t request = 0;

    if (link->size == 2) {
        PLAIT_TRY(swap(link, "barrier", PLAIT_MPI_TAG_REDUCE, link->small[0],
                       link->small[1], 1));
        goto done;
    }
    PLAIT_TRY(PLAIT_MPI_CALL(link->rank, "barrier",
                             link->mpi->ibarrier(link->matched, &request)));
    PLAIT_TRY(plait_mpi_wait(link, "barrier", PLAIT_ANY, 0, NULL, 1, &request));
done:
    return status;
}

const plait_transport_t plait_mpi_transport = {
    .name = "mpi",
    .close = plait_mpi_close,
    .begin = plait_mpi_begin,
    .end = plait_mpi_end,
    .abandon = plait_mpi_abandon,
    .is_stuck = plait_mpi_is_stuck,
    .fence = session_fence,
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
