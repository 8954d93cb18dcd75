/* Matched transfers. The sender's header goes out with the user's tag; it carries what
 * the receiver judges by (dtype, bytes), and a small message itself. The receiver
 * answers: done, refused, or "send it" for data that neither fitted nor could be read
 * directly. So both partners end with the same verdict, and no byte moves before it is
 * given. */
#include "base/alloc.h"
#include "base/wait.h"
#include "transport/matched.h"
#include "transport/mpi_link.h"
#include "transport/node_read.h"

#include <string.h>

/* A header must stay below the eager limit of every MPI: Open MPI's shared memory takes
 * 4096 bytes with its own header in them. */
enum { MESSAGE_BYTES = 4032, MAGIC = 0x706c6169 };

typedef struct {
    uint32_t magic;
    uint32_t number; /* of the transfer, the sender's */
    int64_t n_bytes;
    uint64_t address; /* where the bytes are, in the sender's memory */
    int32_t dtype;
    int32_t is_inline; /* they follow here */
} header_t;

enum { INLINE_BYTES = MESSAGE_BYTES - sizeof(header_t) };

typedef struct {
    header_t header;
    char payload[INLINE_BYTES];
} message_t;

typedef struct {
    uint32_t magic;
    uint32_t number;
    int32_t status; /* verdict: the sender ends with it */
    int32_t send_it;
    int64_t n_bytes; /* what the receiver expected */
    int32_t dtype;
    int32_t rank;
} answer_t;

/* Requests of a transfer, receives first. */
enum { HEADER_IN, ANSWER_IN, BULK_IN, HEADER_OUT, ANSWER_OUT, BULK_OUT, N_REQUESTS };
enum { N_RECEIVES = HEADER_OUT };

/* Of either half: header or answer is awaited; bulk is under way; my own last message
 * is. */
typedef enum { AWAITS, MOVES_BULK, CLOSES, ENDED } stage_t;

/* One call of sendrecv. */
struct plait_mpi_transfer {
    struct plait_mpi_transfer *next; /* idle ones */
    plait_mpi_link_t *link;
    const plait_half_t *send; /* NULL: nothing to send */
    const plait_half_t *recv;
    stage_t send_stage;
    stage_t recv_stage;
    plait_status_t status; /* the first failure */
    bool is_active[N_REQUESTS];
    uint64_t requests[N_REQUESTS];
    int64_t n_sent; /* bulk bytes that are through */
    int64_t n_received;
    plait_mpi_envelope_t from; /* of the header that came */
    answer_t answer_in;
    answer_t answer_out;
    message_t out;
    message_t in;
};

static plait_mpi_transfer_t *transfer_take(plait_mpi_link_t *link)
{
    (void)pthread_mutex_lock(&link->idle_lock);
    plait_mpi_transfer_t *transfer = link->idle;
    if (transfer != NULL) {
        link->idle = transfer->next;
    }
    (void)pthread_mutex_unlock(&link->idle_lock);
    return (transfer != NULL) ? transfer : plait_alloc(1, sizeof(*transfer));
}

static void transfer_give(plait_mpi_transfer_t *transfer)
{
    plait_mpi_link_t *link = transfer->link;

    (void)pthread_mutex_lock(&link->idle_lock);
    transfer->next = link->idle;
    link->idle = transfer;
    (void)pthread_mutex_unlock(&link->idle_lock);
}

void plait_mpi_transfers_free(plait_mpi_link_t *link)
{
    while (link->idle != NULL) {
        plait_mpi_transfer_t *transfer = link->idle;
        link->idle = transfer->next;
        plait_free(transfer);
    }
}

static int tag_of(int base, uint32_t number)
{
    return base + (int)(number % PLAIT_MPI_N_NUMBERS);
}

static plait_status_t post_send(plait_mpi_transfer_t *t, int which, const void *data,
                                int64_t n_bytes, int peer, int tag, uint64_t comm)
{
    plait_status_t status = PLAIT_MPI_CALL(
        t->link->rank, "sendrecv",
        t->link->mpi->isend(data, n_bytes, peer, tag, comm, &t->requests[which]));

    t->is_active[which] = (status == PLAIT_OK);
    return status;
}

static plait_status_t post_recv(plait_mpi_transfer_t *t, int which, void *data,
                                int64_t n_bytes, int peer, int tag, uint64_t comm)
{
    plait_status_t status = PLAIT_MPI_CALL(
        t->link->rank, "sendrecv",
        t->link->mpi->irecv(data, n_bytes, peer, tag, comm, &t->requests[which]));

    t->is_active[which] = (status == PLAIT_OK);
    return status;
}

/* *is_done_p also if there never was such a request. */
static plait_status_t poll_request(plait_mpi_transfer_t *t, int which, bool *is_done_p,
                                   plait_mpi_envelope_t *envelope_p)
{
    plait_status_t status = PLAIT_OK;

    *is_done_p = true;
    if (t->is_active[which]) {
        status = plait_mpi_poll(t->link, "sendrecv", &t->requests[which], is_done_p,
                                envelope_p);
        t->is_active[which] = !*is_done_p;
    }
    return status;
}

static void note(plait_mpi_transfer_t *t, plait_status_t status)
{
    if (t->status == PLAIT_OK) {
        t->status = status;
    }
}

/* A half whose messages fail leaves; what it had posted is given up at the end. */
static void leave_if_failed(plait_mpi_transfer_t *t, stage_t *stage_p,
                            plait_status_t status)
{
    if (status != PLAIT_OK) {
        note(t, status);
        *stage_p = ENDED;
    }
}

/* The same text on both sides, unless an earlier failure of this call is told already.
 */
static void tell_verdict(plait_mpi_transfer_t *t, plait_status_t verdict,
                         const plait_matched_fault_t *fault)
{
    if ((verdict != PLAIT_OK) && (t->status == PLAIT_OK)) {
        t->status = plait_matched_fail(verdict, fault);
    }
}

static plait_status_t post_bulk_in(plait_mpi_transfer_t *t)
{
    int64_t n_left = t->recv->n_bytes - t->n_received;
    int64_t chunk = (n_left < t->link->chunk_bytes) ? n_left : t->link->chunk_bytes;
    char *to = (char *)t->recv->data + t->n_received;

    t->n_received += chunk;
    return post_recv(t, BULK_IN, to, chunk, t->from.source,
                     tag_of(PLAIT_MPI_TAG_BULK, t->in.header.number), t->link->control);
}

static plait_status_t post_bulk_out(plait_mpi_transfer_t *t)
{
    int64_t n_left = t->send->n_bytes - t->n_sent;
    int64_t chunk = (n_left < t->link->chunk_bytes) ? n_left : t->link->chunk_bytes;
    const char *from = (const char *)t->send->data + t->n_sent;

    t->n_sent += chunk;
    return post_send(t, BULK_OUT, from, chunk, t->send->peer,
                     tag_of(PLAIT_MPI_TAG_BULK, t->out.header.number),
                     t->link->control);
}

/* Takes the message where it can be had at once; false: it has to be sent. */
static bool take_now(plait_mpi_transfer_t *t)
{
    const header_t *header = &t->in.header;
    int source = t->from.source;
    bool is_here = (header->is_inline != 0);

    if (is_here && (header->n_bytes > 0)) {
        memcpy(t->recv->data, t->in.payload, (size_t)header->n_bytes);
    }
    if (!is_here && t->link->is_node) {
        struct iovec to = {.iov_base = t->recv->data,
                           .iov_len = (size_t)header->n_bytes};
        struct iovec from = {.iov_base = (void *)(uintptr_t)header->address,
                             .iov_len = (size_t)header->n_bytes};
        /* Memory that cannot be read this way (a device's) can still be sent. */
        is_here = (plait_node_read(t->link->rank, source, t->link->cards[source].pid,
                                   &to, 1, &from, 1) == PLAIT_OK);
    }
    return is_here;
}

/* The header came: decide, and answer. */
static plait_status_t answer(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    const header_t *header = &t->in.header;
    answer_t *out = &t->answer_out;
    int rank = t->link->rank;

    PLAIT_CHECK(
        (t->from.n_bytes >= (int64_t)sizeof(*header)) && (header->magic == MAGIC),
        PLAIT_ERR_INTERNAL, "rank %d recv from %d: a message that is not plait's", rank,
        t->from.source);
    *out = (answer_t){.magic = MAGIC,
                      .number = header->number,
                      .status = (int32_t)plait_matched_judge(
                          header->n_bytes, (plait_dtype_t)header->dtype,
                          t->recv->n_bytes, t->recv->dtype),
                      .n_bytes = t->recv->n_bytes,
                      .dtype = (int32_t)t->recv->dtype,
                      .rank = rank};
    tell_verdict(t, (plait_status_t)out->status,
                 &(plait_matched_fault_t){
                     t->from.source,
                     rank,
                     t->from.tag,
                     {header->n_bytes, out->n_bytes},
                     {(plait_dtype_t)header->dtype, (plait_dtype_t)out->dtype}});
    if ((out->status == PLAIT_OK) && !take_now(t)) {
        out->send_it = 1;
        PLAIT_TRY(post_bulk_in(t));
    }
    PLAIT_TRY(post_send(t, ANSWER_OUT, out, sizeof(*out), t->from.source,
                        tag_of(PLAIT_MPI_TAG_ANSWER, header->number),
                        t->link->control));
    t->recv_stage = (out->send_it != 0) ? MOVES_BULK : CLOSES;
done:
    return status;
}

/* The answer came. Answers to transfers that were given up long ago can have its tag.
 */
static plait_status_t heed(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    const answer_t *in = &t->answer_in;
    const header_t *header = &t->out.header;

    if ((in->magic != MAGIC) || (in->number != header->number)) {
        PLAIT_TRY(post_recv(t, ANSWER_IN, &t->answer_in, sizeof(t->answer_in),
                            t->send->peer, tag_of(PLAIT_MPI_TAG_ANSWER, header->number),
                            t->link->control));
        goto done;
    }
    tell_verdict(t, (plait_status_t)in->status,
                 &(plait_matched_fault_t){
                     t->link->rank,
                     in->rank,
                     t->send->tag,
                     {header->n_bytes, in->n_bytes},
                     {(plait_dtype_t)header->dtype, (plait_dtype_t)in->dtype}});
    if (in->send_it != 0) {
        PLAIT_TRY(post_bulk_out(t));
    }
    t->send_stage = (in->send_it != 0) ? MOVES_BULK : CLOSES;
done:
    return status;
}

/* One step of the receiving half, if its message is there; whether there was one. */
static bool advance_recv(plait_mpi_transfer_t *t)
{
    static const int awaited[] = {
        [AWAITS] = HEADER_IN, [MOVES_BULK] = BULK_IN, [CLOSES] = ANSWER_OUT};
    plait_status_t status = PLAIT_OK;
    bool is_done = false;

    if (t->recv_stage == ENDED) {
        return false;
    }
    PLAIT_TRY(poll_request(t, awaited[t->recv_stage], &is_done,
                           (t->recv_stage == AWAITS) ? &t->from : NULL));
    if (is_done && (t->recv_stage == AWAITS)) {
        PLAIT_TRY(answer(t));
    } else if (is_done && (t->recv_stage == CLOSES)) {
        t->recv_stage = ENDED;
    } else if (is_done && (t->n_received < t->recv->n_bytes)) {
        PLAIT_TRY(post_bulk_in(t));
    } else if (is_done) {
        t->recv_stage = CLOSES;
    }
done:
    leave_if_failed(t, &t->recv_stage, status);
    return is_done;
}

/* The same for the sending half. */
static bool advance_send(plait_mpi_transfer_t *t)
{
    static const int awaited[] = {
        [AWAITS] = ANSWER_IN, [MOVES_BULK] = BULK_OUT, [CLOSES] = HEADER_OUT};
    plait_status_t status = PLAIT_OK;
    bool is_done = false;

    if (t->send_stage == ENDED) {
        return false;
    }
    PLAIT_TRY(poll_request(t, awaited[t->send_stage], &is_done, NULL));
    if (is_done && (t->send_stage == AWAITS)) {
        PLAIT_TRY(heed(t));
    } else if (is_done && (t->send_stage == CLOSES)) {
        t->send_stage = ENDED;
    } else if (is_done && (t->n_sent < t->send->n_bytes)) {
        PLAIT_TRY(post_bulk_out(t));
    } else if (is_done) {
        t->send_stage = CLOSES;
    }
done:
    leave_if_failed(t, &t->send_stage, status);
    return is_done;
}

static plait_status_t start_recv(plait_mpi_transfer_t *t)
{
    const plait_half_t *recv = t->recv;

    t->recv_stage = AWAITS;
    return post_recv(t, HEADER_IN, &t->in, sizeof(t->in),
                     (recv->peer == PLAIT_ANY) ? PLAIT_MPI_ANY_RANK : recv->peer,
                     (recv->tag == PLAIT_ANY) ? PLAIT_MPI_ANY_TAG : recv->tag,
                     t->link->matched);
}

static plait_status_t start_send(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    const plait_half_t *send = t->send;
    bool is_inline = (send->n_bytes <= INLINE_BYTES);
    int64_t n_bytes = (int64_t)sizeof(header_t) + (is_inline ? send->n_bytes : 0);

    t->send_stage = AWAITS;
    t->out.header = (header_t){.magic = MAGIC,
                               .number = atomic_fetch_add(&t->link->n_transfers, 1),
                               .n_bytes = send->n_bytes,
                               .address = (uint64_t)(uintptr_t)send->data,
                               .dtype = (int32_t)send->dtype,
                               .is_inline = is_inline};
    if (is_inline && (send->n_bytes > 0)) {
        memcpy(t->out.payload, send->data, (size_t)send->n_bytes);
    }
    PLAIT_TRY(post_recv(t, ANSWER_IN, &t->answer_in, sizeof(t->answer_in), send->peer,
                        tag_of(PLAIT_MPI_TAG_ANSWER, t->out.header.number),
                        t->link->control));
    PLAIT_TRY(post_send(t, HEADER_OUT, &t->out, n_bytes, send->peer, send->tag,
                        t->link->matched));
done:
    return status;
}

/* After a failure: what is still active comes to an end, or the link is stuck. */
static void end_requests(plait_mpi_transfer_t *t)
{
    uint64_t active[N_REQUESTS];
    int64_t n_receives = 0;
    int64_t n = 0;

    for (int i = 0; i < N_REQUESTS; i++) {
        if (t->is_active[i]) {
            active[n++] = t->requests[i];
            n_receives += (i < N_RECEIVES);
        }
    }
    if (n > 0) {
        plait_mpi_give_up(t->link, "sendrecv", n_receives, n, active);
    }
}

plait_status_t plait_mpi_check_half(const plait_mpi_link_t *link,
                                    const plait_half_t *half, bool is_recv)
{
    plait_status_t status = PLAIT_OK;
    const char *name = is_recv ? "recv" : "send";

    PLAIT_CHECK((is_recv && (half->peer == PLAIT_ANY)) ||
                    ((half->peer >= 0) && (half->peer < link->size)),
                PLAIT_ERR_INVALID, "rank %d %s: there is no rank %d among %d",
                link->rank, name, half->peer, link->size);
    PLAIT_CHECK((is_recv && (half->tag == PLAIT_ANY)) ||
                    ((half->tag >= 0) && (half->tag <= PLAIT_MPI_TAG_MAX)),
                PLAIT_ERR_INVALID, "rank %d %s: tag %d is outside 0 to %d", link->rank,
                name, half->tag, PLAIT_MPI_TAG_MAX);
    PLAIT_CHECK(half->n_bytes >= 0, PLAIT_ERR_INVALID, "rank %d %s: negative size",
                link->rank, name);
done:
    return status;
}

static void transfer_reset(plait_mpi_transfer_t *t, plait_mpi_link_t *link,
                           const plait_half_t *send, const plait_half_t *recv)
{
    t->next = NULL;
    t->link = link;
    t->send = plait_half_is_given(send) ? send : NULL;
    t->recv = plait_half_is_given(recv) ? recv : NULL;
    t->send_stage = ENDED;
    t->recv_stage = ENDED;
    t->status = PLAIT_OK;
    memset(t->is_active, 0, sizeof(t->is_active));
    t->n_sent = 0;
    t->n_received = 0;
    t->from = (plait_mpi_envelope_t){.source = PLAIT_NO_RANK};
}

/* Both halves advance in turn, so that partners never wait for each other's other half.
 */
static void run(plait_mpi_transfer_t *t)
{
    const plait_half_t *waits_for = (t->recv != NULL) ? t->recv : t->send;
    plait_wait_t wait =
        plait_wait_begin("sendrecv", (waits_for != NULL) ? waits_for->peer : 0);

    if (t->recv != NULL) {
        leave_if_failed(t, &t->recv_stage, start_recv(t));
    }
    if ((t->send != NULL) && (t->status == PLAIT_OK)) {
        leave_if_failed(t, &t->send_stage, start_send(t));
    }
    while ((t->recv_stage != ENDED) || (t->send_stage != ENDED)) {
        bool has_moved = advance_recv(t);
        has_moved = advance_send(t) || has_moved;
        plait_status_t turn = has_moved ? PLAIT_OK : plait_wait_turn(&wait);
        if (turn != PLAIT_OK) {
            note(t, turn);
            break;
        }
    }
}

plait_status_t plait_mpi_sendrecv(plait_session_t *session, const plait_half_t *send,
                                  const plait_half_t *recv, plait_matched_t *matched_p)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    plait_mpi_transfer_t *t = NULL;

    if (plait_half_is_given(send)) {
        PLAIT_TRY(plait_mpi_check_half(link, send, false));
    }
    if (plait_half_is_given(recv)) {
        PLAIT_TRY(plait_mpi_check_half(link, recv, true));
    }
    t = transfer_take(link);
    PLAIT_CHECK(t != NULL, PLAIT_ERR_NO_MEMORY, "rank %d sendrecv: no memory",
                link->rank);
    transfer_reset(t, link, send, recv);
    run(t);
    end_requests(t);
    PLAIT_TRY(t->status);
    if (matched_p != NULL) {
        *matched_p =
            (plait_matched_t){.source = t->from.source,
                              .tag = t->from.tag,
                              .n_bytes = (t->recv != NULL) ? t->recv->n_bytes : 0};
    }
done:
    if ((t != NULL) && !atomic_load_explicit(&link->is_stuck, memory_order_relaxed)) {
        transfer_give(t);
    }
    return status;
}
