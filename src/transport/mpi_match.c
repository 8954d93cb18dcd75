/* Matched transfers. The sender's header goes out with the user's tag. It has the data by which the receiver
 * judges (dtype, bytes), and also a small message itself, or the place of a message in a device's memory. The
 * receiver answers: done, refused, or "send it" for data that did not fit the header. So both partners end with
 * the same verdict, and no byte is put in its place before the verdict. Data on a device that MPI does not see
 * go in chunks (staged.h), so that copies between device and host are made beside messages. The bytes of a
 * buffered send (mpi_buffered.c) leave at once. */
#include "base/checked.h"
#include "base/wait.h"
#include "transport/matched.h"
#include "transport/mpi_transfer.h"
#include "transport/staged.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

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

/* *is_done_p is also true if there never was such a request. */
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
    if ((status != PLAIT_OK) && (t->status == PLAIT_OK)) {
        t->status = status;
        (void)snprintf(t->why, sizeof(t->why), "%s", plait_error_text());
    }
}

/* A half leaves if its messages fail; the messages that it had posted are given up at the end. */
static void leave_if_failed(plait_mpi_transfer_t *t, plait_mpi_stage_t *stage_p,
                            plait_status_t status)
{
    if (status != PLAIT_OK) {
        note(t, status);
        *stage_p = PLAIT_MPI_ENDED;
    }
}

/* The same text on both sides, unless an earlier failure of this call is reported already. */
static void tell_verdict(plait_mpi_transfer_t *t, plait_status_t verdict,
                         const plait_matched_fault_t *fault)
{
    if ((verdict != PLAIT_OK) && (t->status == PLAIT_OK)) {
        note(t, plait_matched_fail(verdict, fault));
    }
}

/* The length of the next message of n_bytes bytes, of which `at` are done. */
static int64_t chunk_of(int64_t n_bytes, int64_t at, bool is_in_chunks, int64_t longest)
{
    return is_in_chunks ? plait_staged_chunk(n_bytes, at)
                        : plait_min(n_bytes - at, longest);
}

static plait_status_t post_bulk_in(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    plait_parcel_t *parcel = t->recv->parcel;
    const int64_t chunk =
        chunk_of(t->n_bulk_in, t->n_received, t->is_in_chunks, t->bulk_chunk);
    void *to = NULL;

    if (t->is_in_chunks && parcel != NULL) {
        PLAIT_TRY(parcel->next(parcel, &to));
    } else {
        to = t->bulk_in + t->n_received;
    }
    t->n_received += chunk;
    status =
        post_recv(t, PLAIT_MPI_BULK_IN, to, chunk, t->from.source,
                  tag_of(PLAIT_MPI_TAG_BULK, t->in.header.number), t->link->control);
done:
    return status;
}

/* If a device's bytes do not come down, an empty message says so, and is the last message. */
static plait_status_t post_bulk_out(plait_mpi_transfer_t *t)
{
    const plait_half_t *send = t->send;
    const bool is_in_chunks = t->answer_in.send_it == PLAIT_MPI_SEND_CHUNKS;
    const bool is_staged = is_in_chunks && send->parcel != NULL;
    void *from = is_staged ? NULL : (char *)send->data + t->n_sent;
    const plait_status_t come =
        is_staged ? send->parcel->next(send->parcel, &from) : PLAIT_OK;
    int64_t chunk =
        chunk_of(send->n_bytes, t->n_sent, is_in_chunks, t->link->chunk_bytes);

    note(t, come);
    t->n_sent = (come == PLAIT_OK) ? t->n_sent + chunk : send->n_bytes;
    chunk = (come == PLAIT_OK) ? chunk : 0;
    return post_send(t, PLAIT_MPI_BULK_OUT, from, chunk, send->peer,
                     tag_of(PLAIT_MPI_TAG_BULK, t->out.header.number),
                     t->link->control);
}

/* The bytes will come in messages of their own. Pieces come even if the message is refused: then they go where
 * nobody looks. */
static plait_status_t expect_bulk(plait_mpi_transfer_t *t, bool is_refused,
                                  int64_t chunk)
{
    plait_status_t status = PLAIT_OK;

    t->n_bulk_in = t->in.header.n_bytes;
    t->bulk_chunk = chunk;
    t->bulk_in = t->recv->data;
    if (is_refused) {
        PLAIT_CHECK(plait_mpi_transfer_has_copy(t), PLAIT_ERR_NO_MEMORY,
                    "rank %d recv: no memory", t->link->rank);
        t->bulk_in = t->copy;
    }
    PLAIT_TRY(post_bulk_in(t));
done:
    return status;
}

/* From device to device. A failure here is the receiver's own: to the sender it looks as if the receiver had
 * failed before. */
static void take_offered(plait_mpi_transfer_t *t)
{
    const plait_half_t *recv = t->recv;
    plait_mpi_answer_t *out = &t->answer_out;
    plait_offer_t offer;

    memcpy(&offer, t->in.payload, sizeof(offer));
    plait_status_t status = recv->parcel->take(recv->parcel, t->from.source, &offer);
    out->receipt = recv->parcel->receipt;
    note(t, status);
    if (status != PLAIT_OK) {
        out->status = (int32_t)PLAIT_ERR_TRUNCATION;
        out->n_bytes = 0;
        out->content = plait_matched_refusing(plait_half_content(recv));
    }
}

/* The message is accepted: it is here, or in a peer's device, or asked for. */
static plait_status_t take(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_header_t *header = &t->in.header;
    const plait_half_t *recv = t->recv;

    if ((header->form == PLAIT_MPI_INLINE) && (header->n_bytes > 0)) {
        memcpy(recv->data, t->in.payload, (size_t)header->n_bytes);
    } else if ((header->form == PLAIT_MPI_OFFERED) && (recv->parcel != NULL) &&
               (recv->parcel->take != NULL)) {
        take_offered(t);
    } else if (header->form != PLAIT_MPI_INLINE) {
        t->is_in_chunks =
            (header->form != PLAIT_MPI_AT_SENDER) || (recv->parcel != NULL);
        t->answer_out.send_it =
            t->is_in_chunks ? PLAIT_MPI_SEND_CHUNKS : PLAIT_MPI_SEND_WHOLE;
        PLAIT_TRY(expect_bulk(t, false, t->link->chunk_bytes));
    }
done:
    return status;
}

static plait_status_t post_answer(plait_mpi_transfer_t *t)
{
    return post_send(t, PLAIT_MPI_ANSWER_OUT, &t->answer_out, sizeof(t->answer_out),
                     t->from.source, tag_of(PLAIT_MPI_TAG_ANSWER, t->in.header.number),
                     t->link->control);
}

/* The header came: decides, and answers. If the bytes come in pieces, the answer goes out when they are here;
 * the sender then only gives the transfer's number to others. */
static plait_status_t answer(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_header_t *header = &t->in.header;
    plait_mpi_answer_t *out = &t->answer_out;
    int rank = t->link->rank;

    PLAIT_CHECK((t->from.n_bytes >= (int64_t)sizeof(*header)) &&
                    (header->magic == PLAIT_MPI_MAGIC),
                PLAIT_ERR_INTERNAL,
                "rank %d recv from %d: got a message that plait has not sent", rank,
                t->from.source);
    *out = (plait_mpi_answer_t){.magic = PLAIT_MPI_MAGIC,
                                .number = header->number,
                                .status = (int32_t)plait_matched_judge(
                                    header->n_bytes, header->content, t->recv->n_bytes,
                                    plait_half_content(t->recv)),
                                .n_bytes = t->recv->n_bytes,
                                .content = plait_half_content(t->recv),
                                .rank = rank};
    tell_verdict(t, (plait_status_t)out->status,
                 &(plait_matched_fault_t){t->from.source,
                                          rank,
                                          t->from.tag,
                                          {header->n_bytes, out->n_bytes},
                                          {header->content, out->content},
                                          &t->link->processes[t->from.source]});
    if (header->form == PLAIT_MPI_IN_PIECES) {
        PLAIT_TRY(expect_bulk(t, out->status != PLAIT_OK, PLAIT_MPI_MESSAGE_BYTES));
    } else if (out->status == PLAIT_OK) {
        PLAIT_TRY(take(t));
    }
    if (header->form != PLAIT_MPI_IN_PIECES) {
        PLAIT_TRY(post_answer(t));
    }
    t->recv_stage = (t->n_bulk_in > 0) ? PLAIT_MPI_MOVES_BULK : PLAIT_MPI_CLOSES;
done:
    return status;
}

/* An empty message counts as a message of a rank that has failed before. */
static bool is_void(plait_mpi_transfer_t *t)
{
    const plait_mpi_header_t *header = &t->in.header;
    const bool is_empty = t->is_in_chunks && (t->bulk.n_bytes == 0);

    if (is_empty) {
        tell_verdict(t, PLAIT_ERR_MISMATCH,
                     &(plait_matched_fault_t){t->from.source,
                                              t->link->rank,
                                              t->from.tag,
                                              {0, t->recv->n_bytes},
                                              {plait_matched_refusing(header->content),
                                               plait_half_content(t->recv)},
                                              &t->link->processes[t->from.source]});
        t->n_received = t->n_bulk_in;
    }
    return is_empty;
}

/* The answer came. An answer can have this tag and yet be for a transfer of a closed communicator, whose place
 * MPI has given to this one. */
static plait_status_t heed(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    const plait_mpi_answer_t *in = &t->answer_in;
    const plait_mpi_header_t *header = &t->out.header;

    if ((in->magic != PLAIT_MPI_MAGIC) || (in->number != header->number)) {
        PLAIT_TRY(post_recv(t, PLAIT_MPI_ANSWER_IN, &t->answer_in, sizeof(t->answer_in),
                            t->send->peer, tag_of(PLAIT_MPI_TAG_ANSWER, header->number),
                            t->link->control));
        goto done;
    }
    tell_verdict(t, (plait_status_t)in->status,
                 &(plait_matched_fault_t){t->link->rank,
                                          in->rank,
                                          t->send->tag,
                                          {header->n_bytes, in->n_bytes},
                                          {header->content, in->content},
                                          &t->link->processes[in->rank]});
    if (in->send_it != PLAIT_MPI_SEND_NOTHING) {
        PLAIT_TRY(post_bulk_out(t));
    } else if ((in->status == PLAIT_OK) && (t->send->parcel != NULL)) {
        t->send->parcel->receipt = in->receipt;
        t->send->parcel->is_taken = true;
    }
    t->send_stage = (in->send_it != PLAIT_MPI_SEND_NOTHING) ? PLAIT_MPI_MOVES_BULK
                                                            : PLAIT_MPI_CLOSES;
done:
    return status;
}

/* One step of the receiving half, if its message is there; whether it was. */
static bool advance_recv(plait_mpi_transfer_t *t)
{
    static const int awaited[] = {[PLAIT_MPI_AWAITS] = PLAIT_MPI_HEADER_IN,
                                  [PLAIT_MPI_MOVES_BULK] = PLAIT_MPI_BULK_IN,
                                  [PLAIT_MPI_CLOSES] = PLAIT_MPI_ANSWER_OUT};
    plait_status_t status = PLAIT_OK;
    bool is_done = false;

    if (t->recv_stage == PLAIT_MPI_ENDED) {
        return false;
    }
    PLAIT_TRY(poll_request(t, awaited[t->recv_stage], &is_done,
                           (t->recv_stage == PLAIT_MPI_AWAITS)       ? &t->from
                           : (t->recv_stage == PLAIT_MPI_MOVES_BULK) ? &t->bulk
                                                                     : NULL));
    if (is_done && (t->recv_stage == PLAIT_MPI_AWAITS)) {
        PLAIT_TRY(answer(t));
    } else if (is_done && (t->recv_stage == PLAIT_MPI_CLOSES)) {
        t->recv_stage = PLAIT_MPI_ENDED;
    } else if (is_done && (t->recv_stage == PLAIT_MPI_MOVES_BULK) && !is_void(t) &&
               (t->n_received < t->n_bulk_in)) {
        PLAIT_TRY(post_bulk_in(t));
    } else if (is_done) {
        PLAIT_TRY((t->in.header.form == PLAIT_MPI_IN_PIECES) ? post_answer(t)
                                                             : PLAIT_OK);
        t->recv_stage = PLAIT_MPI_CLOSES;
    }
done:
    leave_if_failed(t, &t->recv_stage, status);
    return is_done;
}

plait_status_t plait_mpi_poll_out(plait_mpi_transfer_t *t, bool *is_done_p)
{
    plait_status_t status = poll_request(t, PLAIT_MPI_HEADER_OUT, is_done_p, NULL);

    for (int i = 0; (i < PLAIT_MPI_MAX_PIECES) && (status == PLAIT_OK) && *is_done_p;
         i++) {
        status = poll_request(t, PLAIT_MPI_PIECES_OUT + i, is_done_p, NULL);
    }
    return status;
}

bool plait_mpi_advance_send(plait_mpi_transfer_t *t)
{
    static const int awaited[] = {[PLAIT_MPI_AWAITS] = PLAIT_MPI_ANSWER_IN,
                                  [PLAIT_MPI_MOVES_BULK] = PLAIT_MPI_BULK_OUT};
    plait_status_t status = PLAIT_OK;
    bool is_done = false;

    if (t->send_stage == PLAIT_MPI_ENDED) {
        return false;
    }
    PLAIT_TRY((t->send_stage == PLAIT_MPI_CLOSES)
                  ? plait_mpi_poll_out(t, &is_done)
                  : poll_request(t, awaited[t->send_stage], &is_done, NULL));
    if (is_done && (t->send_stage == PLAIT_MPI_AWAITS)) {
        PLAIT_TRY(heed(t));
    } else if (is_done && (t->send_stage == PLAIT_MPI_CLOSES)) {
        t->send_stage = PLAIT_MPI_ENDED;
        plait_mpi_number_give(t->link, t->out.header.number);
    } else if (is_done && (t->n_sent < t->send->n_bytes)) {
        PLAIT_TRY(post_bulk_out(t));
    } else if (is_done) {
        t->send_stage = PLAIT_MPI_CLOSES;
    }
done:
    leave_if_failed(t, &t->send_stage, status);
    return is_done;
}

static plait_status_t start_recv(plait_mpi_transfer_t *t)
{
    const plait_half_t *recv = t->recv;

    t->recv_stage = PLAIT_MPI_AWAITS;
    return post_recv(t, PLAIT_MPI_HEADER_IN, &t->in, sizeof(t->in),
                     (recv->peer == PLAIT_ANY) ? PLAIT_MPI_ANY_RANK : recv->peer,
                     (recv->tag == PLAIT_ANY) ? PLAIT_MPI_ANY_TAG : recv->tag,
                     t->link->matched);
}

static plait_status_t post_pieces(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    const plait_half_t *send = t->send;
    int which = PLAIT_MPI_PIECES_OUT;

    for (int64_t at = 0; at < send->n_bytes; at += PLAIT_MPI_MESSAGE_BYTES) {
        int64_t n_left = send->n_bytes - at;
        PLAIT_TRY(post_send(
            t, which, (const char *)send->data + at,
            (n_left < PLAIT_MPI_MESSAGE_BYTES) ? n_left : PLAIT_MPI_MESSAGE_BYTES,
            send->peer, tag_of(PLAIT_MPI_TAG_BULK, t->out.header.number),
            t->link->control));
        which++;
    }
done:
    return status;
}

static plait_status_t post_header(plait_mpi_transfer_t *t)
{
    plait_status_t status = PLAIT_OK;
    const plait_half_t *send = t->send;
    bool is_offer = (send->parcel != NULL) && send->parcel->is_offered;
    bool is_inline = (send->n_bytes <= PLAIT_MPI_INLINE_BYTES);
    bool is_buffered = (send == &t->buffered);
    const void *payload = is_offer ? (const void *)&send->parcel->offer : send->data;
    int64_t n_payload = is_offer    ? (int64_t)sizeof(send->parcel->offer)
                        : is_inline ? send->n_bytes
                                    : 0;
    uint32_t number = 0;

    PLAIT_TRY(plait_mpi_number_take(t->link, &number));
    t->out.header =
        (plait_mpi_header_t){.magic = PLAIT_MPI_MAGIC,
                             .number = number,
                             .n_bytes = send->n_bytes,
                             .content = plait_half_content(send),
                             .form = is_offer                 ? PLAIT_MPI_OFFERED
                                     : (send->parcel != NULL) ? PLAIT_MPI_STAGED
                                     : is_inline              ? PLAIT_MPI_INLINE
                                     : is_buffered            ? PLAIT_MPI_IN_PIECES
                                                              : PLAIT_MPI_AT_SENDER};
    if (n_payload > 0) {
        memcpy(t->out.payload, payload, (size_t)n_payload);
    }
    PLAIT_TRY(post_recv(t, PLAIT_MPI_ANSWER_IN, &t->answer_in, sizeof(t->answer_in),
                        send->peer, tag_of(PLAIT_MPI_TAG_ANSWER, t->out.header.number),
                        t->link->control));
    PLAIT_TRY(post_send(t, PLAIT_MPI_HEADER_OUT, &t->out,
                        (int64_t)sizeof(plait_mpi_header_t) + n_payload, send->peer,
                        send->tag, t->link->matched));
    if (t->out.header.form == PLAIT_MPI_IN_PIECES) {
        PLAIT_TRY(post_pieces(t));
    }
done:
    return status;
}

void plait_mpi_start_send(plait_mpi_transfer_t *t)
{
    t->send_stage = PLAIT_MPI_AWAITS;
    leave_if_failed(t, &t->send_stage, post_header(t));
}

void plait_mpi_end_requests(plait_mpi_transfer_t *t)
{
    uint64_t active[PLAIT_MPI_N_REQUESTS];
    int64_t n_receives = 0;
    int64_t n = 0;

    for (int i = 0; i < PLAIT_MPI_N_REQUESTS; i++) {
        if (t->is_active[i]) {
            active[n++] = t->requests[i];
            n_receives += (i < PLAIT_MPI_N_RECEIVES);
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
                PLAIT_ERR_INVALID, "rank %d %s: there is no rank %d among the %d ranks",
                link->rank, name, half->peer, link->size);
    PLAIT_CHECK((is_recv && (half->tag == PLAIT_ANY)) ||
                    ((half->tag >= 0) && (half->tag <= link->max_tag)),
                PLAIT_ERR_INVALID, "rank %d %s: tag %d is outside 0..%d%s", link->rank,
                name, half->tag, link->max_tag,
                (link->max_tag < INT_MAX) ? ", the tags of this MPI (MPI_TAG_UB)" : "");
    PLAIT_CHECK(half->n_bytes >= 0, PLAIT_ERR_INVALID, "rank %d %s: negative size",
                link->rank, name);
done:
    return status;
}

static int peer_of_send(const plait_mpi_transfer_t *t)
{
    return (t->send != NULL) ? t->send->peer : PLAIT_ANY;
}

/* Both halves advance in turn, so that no partner waits for the other's other half. */
static void run(plait_mpi_transfer_t *t)
{
    plait_wait_t wait = plait_wait_begin("sendrecv", 0);

    if (t->recv != NULL) {
        leave_if_failed(t, &t->recv_stage, start_recv(t));
    }
    if ((t->send != NULL) && (t->status == PLAIT_OK)) {
        plait_mpi_start_send(t);
    }
    while ((t->recv_stage != PLAIT_MPI_ENDED) || (t->send_stage != PLAIT_MPI_ENDED)) {
        bool has_moved = advance_recv(t);
        has_moved = plait_mpi_advance_send(t) || has_moved;
        wait.is_receive = t->recv_stage != PLAIT_MPI_ENDED;
        wait.peer = wait.is_receive ? t->recv->peer : peer_of_send(t);
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
    t = plait_mpi_transfer_take(link);
    PLAIT_CHECK(t != NULL, PLAIT_ERR_NO_MEMORY, "rank %d sendrecv: no memory",
                link->rank);
    plait_mpi_transfer_reset(t, link, send, recv);
    run(t);
    plait_mpi_end_requests(t);
    PLAIT_TRY(t->status);
    if (matched_p != NULL) {
        *matched_p =
            (plait_matched_t){.source = t->from.source,
                              .tag = t->from.tag,
                              .n_bytes = (t->recv != NULL) ? t->recv->n_bytes : 0};
    }
done:
    if ((t != NULL) && !atomic_load_explicit(&link->is_stuck, memory_order_relaxed)) {
        plait_mpi_transfer_give(t);
    }
    return status;
}
