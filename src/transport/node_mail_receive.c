#include "base/alloc.h"
#include "base/status.h"
#include "transport/node_copy.h"
#include "transport/node_mail_parts.h"

#include <stdio.h>
#include <string.h>

static void complain(const plait_node_mail_t *mail, int source, plait_status_t verdict,
                     const plait_matched_fault_t *fault)
{
    plait_node_complaint_t *to =
        &plait_node_rank(&mail->link->segment, source)->complaint;
    uint32_t none = PLAIT_COMPLAINT_NONE;

    if (atomic_compare_exchange_strong(&to->state, &none, PLAIT_COMPLAINT_WRITES)) {
        to->status = (int32_t)verdict;
        to->dest = fault->dest;
        to->tag = fault->tag;
        for (int i = 0; i < 2; i++) {
            to->n_bytes[i] = fault->n_bytes[i];
            to->contents[i] = fault->contents[i];
        }
        atomic_store(&to->state, PLAIT_COMPLAINT_MADE);
    }
}

static plait_node_answer_t *answer_to(const plait_node_mail_t *mail,
                                      const plait_node_letter_t *letter)
{
    return plait_mail_answer(mail, letter->source,
                             plait_mail_answer_cell(&letter->header));
}

/* False: the sender has given up. */
static bool turn_answer(const plait_node_mail_t *mail,
                        const plait_node_letter_t *letter, int from, int to)
{
    uint64_t word = plait_mail_word(plait_mail_answer_number(&letter->header), from);

    return atomic_compare_exchange_strong(
        &answer_to(mail, letter)->word, &word,
        plait_mail_word(plait_mail_answer_number(&letter->header), to));
}

/* False: the sender has given up, and the bytes read may not be what it sent. The sender does not give up while
 * the answer is written: it might need the cell for its next message. */
static bool give_answer(const plait_node_mail_t *mail,
                        const plait_node_letter_t *letter, int from,
                        plait_status_t verdict, int64_t n_bytes,
                        plait_content_t content)
{
    plait_node_answer_t *answer = answer_to(mail, letter);

    if (from != PLAIT_ANSWER_TAKING &&
        !turn_answer(mail, letter, from, PLAIT_ANSWER_TAKING)) {
        return false;
    }
    answer->status = (int32_t)verdict;
    answer->n_bytes = n_bytes;
    answer->content = content;
    return turn_answer(mail, letter, PLAIT_ANSWER_TAKING, PLAIT_ANSWER_GIVEN);
}

static plait_status_t fetch_from(const plait_node_mail_t *mail,
                                 const plait_node_letter_t *letter, uint64_t address,
                                 void *to)
{
    const plait_mpi_link_t *link = mail->link;
    const struct iovec local = {.iov_base = to,
                                .iov_len = (size_t)letter->header.n_bytes};
    const struct iovec remote = {.iov_base = (void *)(uintptr_t)address,
                                 .iov_len = (size_t)letter->header.n_bytes};

    return plait_node_read(link->rank, letter->source,
                           link->cards[letter->source].process.pid, &local, 1, &remote,
                           1);
}

/* Reads the bytes that are in the sender's memory at the header's address. */
static plait_status_t fetch(const plait_node_mail_t *mail,
                            const plait_node_letter_t *letter, void *to)
{
    return fetch_from(mail, letter, letter->header.address, to);
}

static plait_status_t fail_given_up(const plait_node_mail_t *mail,
                                    const plait_node_letter_t *letter)
{
    return plait_fail(PLAIT_ERR_PEER, "rank %d gave up sending to rank %d",
                      letter->source, mail->link->rank);
}

/* Called last: the half is on the stack of its call, which may return now. */
static void end_posted(plait_posted_t *posted, const plait_mail_header_t *header,
                       plait_status_t status, bool is_verdict)
{
    if (status != PLAIT_OK && !is_verdict) {
        (void)snprintf(posted->text, sizeof(posted->text), "%s", plait_error_text());
    }
    posted->status = status;
    posted->partner = *header;
    atomic_store_explicit(&posted->is_done, true, memory_order_release);
}

/* Leaves the message to the thread of the call. It has more bytes than a ring or a copy takes. */
static void leave_to_call(const plait_node_letter_t *letter, plait_posted_t *posted)
{
    posted->letter = *letter;
    if (letter->kind == PLAIT_MAIL_OFFER) {
        memcpy(&posted->offer, letter->data, sizeof(posted->offer));
    }
    atomic_store_explicit(&posted->has_come, true, memory_order_release);
}

/* Brings together a message and its half. */
static void deliver(plait_node_mail_t *mail, const plait_node_letter_t *letter,
                    plait_posted_t *posted)
{
    const plait_mail_header_t *h = &letter->header;
    const plait_half_t *recv = posted->recv;
    plait_status_t status = plait_matched_judge(h->n_bytes, h->content, recv->n_bytes,
                                                plait_half_content(recv));
    bool is_verdict = status != PLAIT_OK;

    posted->matched = (plait_matched_t){letter->source, h->tag, h->n_bytes};
    posted->fault = (plait_matched_fault_t){letter->source,
                                            mail->link->rank,
                                            h->tag,
                                            {h->n_bytes, recv->n_bytes},
                                            {h->content, plait_half_content(recv)},
                                            &mail->link->processes[letter->source]};
    if (status == PLAIT_OK && h->n_bytes > 0 &&
        (letter->kind == PLAIT_MAIL_OFFER || recv->parcel != NULL)) {
        leave_to_call(letter, posted);
        return;
    }
    if (status == PLAIT_OK && h->n_bytes > 0 && letter->data != NULL) {
        memcpy(recv->data, letter->data, (size_t)h->n_bytes);
    } else if (status == PLAIT_OK && h->n_bytes > 0) {
        status = fetch(mail, letter, recv->data);
    }
    if (plait_mail_answer_cell(h) != PLAIT_NO_ANSWER) {
        if (!give_answer(mail, letter, PLAIT_ANSWER_AWAITED, status, recv->n_bytes,
                         plait_half_content(recv)) &&
            status == PLAIT_OK) {
            status = fail_given_up(mail, letter);
        }
        plait_mail_wake(mail, letter->source);
    } else if (is_verdict) {
        complain(mail, letter->source, status, &posted->fault);
    }
    end_posted(posted, h, status, is_verdict);
}

static bool fits(const plait_half_t *recv, int source, int tag)
{
    return (recv->peer == PLAIT_ANY || recv->peer == source) &&
           (recv->tag == PLAIT_ANY || recv->tag == tag);
}

/* Takes the first waiting half that fits the message out of the list. */
static plait_posted_t *take_posted(plait_node_mail_t *mail, int source, int tag)
{
    plait_posted_t **place = &mail->posted;
    plait_posted_t *posted = NULL;

    while (*place != NULL && !fits((*place)->recv, source, tag)) {
        place = &(*place)->next;
    }
    posted = *place;
    if (posted != NULL) {
        *place = posted->next;
    }
    return posted;
}

void plait_mail_post(plait_node_mail_t *mail, plait_posted_t *posted)
{
    plait_node_letter_t **place = &mail->letters;
    plait_posted_t **end = &mail->posted;

    while (*place != NULL &&
           !fits(posted->recv, (*place)->source, (*place)->header.tag)) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        plait_node_letter_t *letter = *place;
        *place = letter->next;
        mail->letters_end = (letter->next == NULL) ? place : mail->letters_end;
        deliver(mail, letter, posted);
        plait_free(letter);
    } else {
        while (*end != NULL) {
            end = &(*end)->next;
        }
        posted->next = NULL;
        *end = posted;
    }
}

void plait_mail_unpost(plait_node_mail_t *mail, const plait_posted_t *posted)
{
    plait_posted_t **place = &mail->posted;

    while (*place != NULL && *place != posted) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = posted->next;
    }
}

/* Nobody waits for the message yet: it is taken out of the ring with its bytes, unless its sender waits with
 * them. */
static plait_status_t put_aside(plait_node_mail_t *mail,
                                const plait_node_letter_t *seen)
{
    plait_status_t status = PLAIT_OK;
    bool has_data = seen->kind != PLAIT_MAIL_AT && seen->header.n_bytes > 0;
    int64_t n_bytes = (seen->kind == PLAIT_MAIL_OFFER) ? (int64_t)sizeof(plait_offer_t)
                      : has_data                       ? seen->header.n_bytes
                                                       : 0;
    plait_node_letter_t *letter = plait_alloc(1, (int64_t)sizeof(*letter) + n_bytes);

    PLAIT_CHECK(letter != NULL, PLAIT_ERR_NO_MEMORY,
                "rank %d: no memory for a message of %lld bytes from rank %d",
                mail->link->rank, (long long)n_bytes, seen->source);
    *letter = *seen;
    letter->next = NULL;
    letter->data = has_data ? (char *)(letter + 1) : NULL;
    if (has_data && seen->data != NULL) {
        memcpy(letter->data, seen->data, (size_t)n_bytes);
    } else if (has_data) {
        PLAIT_TRY(fetch(mail, letter, letter->data));
    }
    *mail->letters_end = letter;
    mail->letters_end = &letter->next;
    letter = NULL;
done:
    plait_free(letter);
    return status;
}

static uint64_t word_of(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Gives the message's cells back to the sender, with nothing in them that looks like a message. The first word
 * of the first cell is an older number than any to come, and stays: writing it would take the line from the
 * sender once more. */
static void give_back(plait_node_mail_t *mail, int source, uint64_t n_cells)
{
    plait_mail_taken_t *in = &mail->in[source];
    plait_node_ring_t *ring = plait_mail_ring(mail, source, mail->link->rank);
    uint64_t quarter = mail->ring_cells / 4;
    uint64_t before = word_of(&in->n_cells);
    uint64_t after = before + n_cells;

    for (uint64_t i = 1; i < n_cells; i++) {
        atomic_store_explicit(&plait_mail_cell(mail, ring, before + i)->first, 0,
                              memory_order_relaxed);
    }
    atomic_store_explicit(&in->n_cells, after, memory_order_relaxed);
    atomic_store_explicit(&in->number, word_of(&in->number) + 1, memory_order_relaxed);
    atomic_store_explicit(&ring->n_consumed, after, memory_order_release);
    if (before / quarter != after / quarter) {
        plait_mail_wake(mail, source); /* it may wait for room */
    }
}

/* A hint if another thread takes messages meanwhile: then the two words may belong to two messages, and the
 * caller looks again under the mutex. */
bool plait_mail_has_come(const plait_node_mail_t *mail, int source)
{
    const plait_mail_taken_t *in = &mail->in[source];
    const plait_mail_cell_t *cell = plait_mail_cell(
        mail, plait_mail_ring(mail, source, mail->link->rank), word_of(&in->n_cells));
    uint64_t first = atomic_load_explicit(&cell->first, memory_order_acquire);

    return first >> PLAIT_MAIL_KIND_BITS == word_of(&in->number) + 1;
}

plait_status_t plait_mail_take(plait_node_mail_t *mail, int source)
{
    plait_status_t status = PLAIT_OK;
    uint64_t at = word_of(&mail->in[source].n_cells);
    plait_mail_cell_t *cell =
        plait_mail_cell(mail, plait_mail_ring(mail, source, mail->link->rank), at);
    uint64_t first = atomic_load_explicit(&cell->first, memory_order_relaxed);
    plait_node_letter_t seen = {
        .kind = (plait_mail_kind_t)(first & ((1U << PLAIT_MAIL_KIND_BITS) - 1)),
        .source = source,
        .header = cell->header};
    uint64_t n_cells = mail->ring_cells - at % mail->ring_cells; /* of a pad */

    if (seen.kind != PLAIT_MAIL_PAD) {
        plait_posted_t *posted = take_posted(mail, source, seen.header.tag);
        const int64_t n_bytes = (seen.kind == PLAIT_MAIL_OFFER)
                                    ? (int64_t)sizeof(plait_offer_t)
                                : (seen.kind == PLAIT_MAIL_INLINE) ? seen.header.n_bytes
                                                                   : 0;
        const bool is_here =
            seen.kind == PLAIT_MAIL_OFFER || seen.kind == PLAIT_MAIL_INLINE;
        n_cells = plait_mail_cells_of(n_bytes);
        seen.data = is_here ? cell->bytes : NULL;
        if (posted != NULL) {
            deliver(mail, &seen, posted);
        } else {
            PLAIT_TRY(put_aside(mail, &seen));
        }
    }
    give_back(mail, source, n_cells);
done:
    return status;
}

/* ---- messages that the thread of the call brings to their places ---- */

static int answer_state(const plait_node_mail_t *mail,
                        const plait_node_letter_t *letter)
{
    const uint64_t word =
        atomic_load_explicit(&answer_to(mail, letter)->word, memory_order_acquire);
    const bool is_this =
        word >> PLAIT_ANSWER_STATE_BITS == plait_mail_answer_number(&letter->header);

    return is_this ? (int)(word & ((1U << PLAIT_ANSWER_STATE_BITS) - 1))
                   : PLAIT_ANSWER_GIVEN_UP;
}

bool plait_mail_can_fetch(const plait_node_mail_t *mail, const plait_posted_t *posted)
{
    return atomic_load_explicit(&posted->has_come, memory_order_acquire) &&
           !atomic_load_explicit(&posted->is_done, memory_order_relaxed) &&
           !(posted->is_wanted &&
             answer_state(mail, &posted->letter) == PLAIT_ANSWER_WANTED);
}

/* Gives the sender the same answer as a receiver that failed before the transfer began. */
static bool give_refusal(const plait_node_mail_t *mail, const plait_posted_t *posted,
                         int from)
{
    return give_answer(mail, &posted->letter, from, PLAIT_ERR_TRUNCATION, 0,
                       plait_matched_refusing(plait_half_content(posted->recv)));
}

/* is_verdict: the fault is the message's. */
static void answer_call(plait_node_mail_t *mail, plait_posted_t *posted, int from,
                        plait_status_t status, bool is_verdict)
{
    const plait_half_t *recv = posted->recv;
    const bool is_heard = (status == PLAIT_OK || is_verdict)
                              ? give_answer(mail, &posted->letter, from, status,
                                            recv->n_bytes, plait_half_content(recv))
                              : give_refusal(mail, posted, from);

    if (!is_heard && status == PLAIT_OK) {
        status = fail_given_up(mail, &posted->letter);
    }
    plait_mail_wake(mail, posted->letter.source);
    end_posted(posted, &posted->letter.header, status, is_verdict);
}

/* Takes an offered message from device to device. */
static void take_offer(plait_node_mail_t *mail, plait_posted_t *posted)
{
    const plait_node_letter_t *letter = &posted->letter;
    plait_parcel_t *parcel = posted->recv->parcel;

    if (!turn_answer(mail, letter, PLAIT_ANSWER_AWAITED, PLAIT_ANSWER_TAKING)) {
        end_posted(posted, &letter->header, fail_given_up(mail, letter), false);
        return;
    }
    plait_status_t status = parcel->take(parcel, letter->source, &posted->offer);
    answer_to(mail, letter)->receipt = parcel->receipt;
    answer_call(mail, posted, PLAIT_ANSWER_TAKING, status, false);
}

/* Takes bytes in the sender's host memory. */
static void take_bytes(plait_node_mail_t *mail, plait_posted_t *posted, int from,
                       uint64_t address)
{
    plait_status_t status = PLAIT_OK;
    void *to = NULL;

    PLAIT_TRY(plait_half_bytes(posted->recv, &to));
    PLAIT_TRY(fetch_from(mail, &posted->letter, address, to));
done:
    answer_call(mail, posted, from, status, false);
}

/* The sender could not bring the bytes: its message counts as one from a rank that has failed before. */
static void take_nothing(plait_node_mail_t *mail, plait_posted_t *posted)
{
    posted->fault.n_bytes[0] = 0;
    posted->fault.contents[0] = plait_matched_refusing(posted->fault.contents[0]);
    answer_call(mail, posted, PLAIT_ANSWER_BROUGHT, PLAIT_ERR_MISMATCH, true);
}

void plait_mail_fetch(plait_node_mail_t *mail, plait_posted_t *posted)
{
    const plait_node_letter_t *letter = &posted->letter;
    const bool is_offer = letter->kind == PLAIT_MAIL_OFFER;

    if (posted->is_wanted) {
        const int state = answer_state(mail, letter);
        const uint64_t address = answer_to(mail, letter)->address;
        if (state != PLAIT_ANSWER_BROUGHT) {
            end_posted(posted, &letter->header, fail_given_up(mail, letter), false);
        } else if (address == 0) {
            take_nothing(mail, posted);
        } else {
            take_bytes(mail, posted, PLAIT_ANSWER_BROUGHT, address);
        }
    } else if (is_offer && posted->recv->parcel != NULL) {
        take_offer(mail, posted);
    } else if (!is_offer) {
        take_bytes(mail, posted, PLAIT_ANSWER_AWAITED, letter->header.address);
    } else if (turn_answer(mail, letter, PLAIT_ANSWER_AWAITED, PLAIT_ANSWER_WANTED)) {
        posted->is_wanted = true;
        plait_mail_wake(mail, letter->source);
    } else {
        end_posted(posted, &letter->header, fail_given_up(mail, letter), false);
    }
}

void plait_mail_refuse(plait_node_mail_t *mail, plait_posted_t *posted)
{
    const int from[] = {PLAIT_ANSWER_AWAITED, PLAIT_ANSWER_WANTED,
                        PLAIT_ANSWER_BROUGHT};

    for (int i = 0; i < 3; i++) {
        (void)give_refusal(mail, posted, from[i]);
    }
    plait_mail_wake(mail, posted->letter.source);
}
