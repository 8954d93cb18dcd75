#include "base/alloc.h"
#include "transport/node_mail_parts.h"

#include <string.h>

static uint64_t room(plait_node_mail_t *mail, int dest, uint64_t n_wanted)
{
    plait_mail_place_t *out = &mail->out[dest];
    uint64_t n_room = mail->ring_cells - (out->n_cells - out->n_consumed);

    if (n_room < n_wanted) {
        out->n_consumed = atomic_load_explicit(
            &plait_mail_ring(mail, mail->link->rank, dest)->n_consumed,
            memory_order_acquire);
        n_room = mail->ring_cells - (out->n_cells - out->n_consumed);
    }
    return n_room;
}

/* The first word is written last. */
static void put(plait_node_mail_t *mail, int dest, plait_mail_kind_t kind,
                const plait_mail_header_t *header, const void *data, int64_t n_inline,
                uint64_t n_cells)
{
    plait_mail_place_t *out = &mail->out[dest];
    plait_mail_cell_t *cell = plait_mail_cell(
        mail, plait_mail_ring(mail, mail->link->rank, dest), out->n_cells);

    out->number++;
    out->n_cells += n_cells;
    cell->header = *header;
    if (n_inline > 0) {
        memcpy(cell->bytes, data, (size_t)n_inline);
    }
    atomic_store_explicit(&cell->first,
                          out->number << PLAIT_MAIL_KIND_BITS | (uint64_t)kind,
                          memory_order_release);
}

/* Frees copies whose messages were taken out of their rings, or never will be. */
void plait_mail_release(plait_node_mail_t *mail)
{
    plait_mail_copy_t **place = &mail->copies;

    while (*place != NULL) {
        plait_mail_copy_t *copy = *place;
        plait_node_ring_t *ring = plait_mail_ring(mail, mail->link->rank, copy->dest);
        bool is_closed = atomic_load_explicit(&ring->is_closed, memory_order_acquire);
        uint64_t n_consumed =
            atomic_load_explicit(&ring->n_consumed, memory_order_acquire);
        if (n_consumed >= copy->end || is_closed) {
            *place = copy->next;
            mail->copies_bytes -= copy->n_bytes;
            plait_free(copy);
        } else {
            place = &copy->next;
        }
    }
}

static plait_mail_copy_t *keep_copy(plait_node_mail_t *mail, const plait_half_t *send)
{
    plait_mail_copy_t *copy = NULL;

    plait_mail_release(mail);
    if (mail->copies_bytes + send->n_bytes <= PLAIT_BUFFERED_BYTES) {
        copy = plait_alloc(1, (int64_t)sizeof(*copy) + send->n_bytes);
    }
    if (copy != NULL) {
        copy->dest = send->peer;
        copy->n_bytes = send->n_bytes;
        memcpy(copy->data, send->data, (size_t)send->n_bytes);
        copy->next = mail->copies;
        mail->copies = copy;
        mail->copies_bytes += send->n_bytes;
    }
    return copy;
}

static bool take_answer(plait_node_mail_t *mail, plait_mail_call_t *call)
{
    for (int i = 0; i < PLAIT_NODE_ANSWERS; i++) {
        if ((mail->answers_taken >> i & 1) == 0) {
            plait_node_answer_t *answer = plait_mail_answer(mail, mail->link->rank, i);
            mail->answers_taken |= 1U << i;
            call->answer = i;
            call->number = ++mail->n_answers;
            atomic_store_explicit(&answer->word,
                                  plait_mail_word(call->number, PLAIT_ANSWER_AWAITED),
                                  memory_order_relaxed);
            return true;
        }
    }
    return false; /* this many threads wait already: later */
}

/* How the message goes: its bytes in the ring, or its offer; in a copy if the send is buffered; else the bytes
 * stay in place. An answer is requested if the bytes stay, and if no message comes from the receiver in the
 * same call. False: not yet. */
static bool choose_way(plait_mail_call_t *call, plait_mail_header_t *header,
                       plait_mail_kind_t *kind_p, plait_mail_copy_t **copy_p)
{
    plait_node_mail_t *mail = call->mail;
    const plait_half_t *send = call->send;
    bool is_inline = send->n_bytes <= mail->inline_bytes;
    const plait_half_t *recv = call->posted.recv;
    bool has_partner =
        recv != NULL && recv->peer == send->peer; /* its message says what it expects */
    bool wants_answer = !call->is_buffered && !(is_inline && has_partner);
    bool has_way = true;

    *kind_p = (send->parcel != NULL) ? PLAIT_MAIL_OFFER
              : is_inline            ? PLAIT_MAIL_INLINE
                                     : PLAIT_MAIL_AT;
    *copy_p = NULL;
    header->address = (uint64_t)(uintptr_t)send->data;
    if (wants_answer) {
        has_way = take_answer(mail, call);
        header->answer =
            call->number << PLAIT_ANSWER_CELL_BITS | (uint64_t)(unsigned)call->answer;
    } else if (!is_inline) {
        *copy_p = keep_copy(mail, send);
        has_way = *copy_p != NULL;
        *kind_p = PLAIT_MAIL_COPY;
        header->address = has_way ? (uint64_t)(uintptr_t)(*copy_p)->data : 0;
    }
    return has_way;
}

static plait_mail_header_t header_of(const plait_mail_call_t *call)
{
    const plait_half_t *send = call->send;
    const plait_half_t *recv = call->posted.recv;
    plait_mail_header_t header = {.tag = send->tag,
                                  .content = plait_half_content(send),
                                  .answer = PLAIT_NO_ANSWER,
                                  .n_bytes = send->n_bytes,
                                  .expects_bytes = PLAIT_NOTHING};

    if (recv != NULL && recv->peer == send->peer) {
        header.expects_bytes = recv->n_bytes;
        header.expects_tag = recv->tag;
        header.expects_content = plait_half_content(recv);
    }
    return header;
}

static bool write_now(plait_mail_call_t *call)
{
    plait_node_mail_t *mail = call->mail;
    const plait_half_t *send = call->send;
    plait_mail_place_t *out = &mail->out[send->peer];
    const bool is_offer = send->parcel != NULL;
    const bool is_inline = send->n_bytes <= mail->inline_bytes;
    const void *data = is_offer ? (const void *)&send->parcel->offer : send->data;
    int64_t n_bytes = is_offer    ? (int64_t)sizeof(send->parcel->offer)
                      : is_inline ? send->n_bytes
                                  : 0;
    uint64_t n_cells = plait_mail_cells_of(n_bytes);
    uint64_t n_left = mail->ring_cells - out->n_cells % mail->ring_cells;
    uint64_t n_pad = (n_left < n_cells) ? n_left : 0;
    plait_mail_header_t header = header_of(call);
    plait_mail_kind_t kind = PLAIT_MAIL_INLINE;
    plait_mail_copy_t *copy = NULL;
    bool is_written = room(mail, send->peer, n_pad + n_cells) >= n_pad + n_cells &&
                      choose_way(call, &header, &kind, &copy);

    if (is_written) {
        if (n_pad > 0) {
            put(mail, send->peer, PLAIT_MAIL_PAD, &(plait_mail_header_t){0}, NULL, 0,
                n_pad);
        }
        put(mail, send->peer, kind, &header, data, n_bytes, n_cells);
        call->end = out->n_cells;
        call->is_sent = plait_mail_answer_cell(&header) == PLAIT_NO_ANSWER;
        if (copy != NULL) {
            copy->end = call->end;
        }
    }
    return is_written;
}

/* Whether the receiver has given back more cells than this rank had seen; notes them as seen. */
static bool see_more(plait_node_mail_t *mail, int dest)
{
    plait_mail_place_t *out = &mail->out[dest];
    const uint64_t n_consumed =
        atomic_load_explicit(&plait_mail_ring(mail, mail->link->rank, dest)->n_consumed,
                             memory_order_acquire);
    const bool is_more = n_consumed != out->n_consumed;

    out->n_consumed = n_consumed;
    return is_more;
}

/* Cells that have not been seen when this returns false let a waiting call try again at once, whatever it is
 * short of: they must have come back after the last attempt. */
bool plait_mail_write(plait_mail_call_t *call)
{
    bool is_written = write_now(call);

    while (!is_written && see_more(call->mail, call->send->peer)) {
        is_written = write_now(call);
    }
    return is_written;
}
