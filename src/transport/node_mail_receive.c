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
            to->dtypes[i] = (int32_t)fault->dtypes[i];
        }
        atomic_store(&to->state, PLAIT_COMPLAINT_MADE);
    }
}

/* False: the sender has given up, and what was read may not be what it sent. */
static bool give_answer(const plait_node_mail_t *mail,
                        const plait_node_letter_t *letter, plait_status_t verdict,
                        const plait_half_t *recv)
{
    plait_node_answer_t *answer =
        plait_mail_answer(mail, letter->source, letter->header.answer);
    uint64_t awaited = letter->header.number << 2 | PLAIT_ANSWER_AWAITED;

    if (atomic_load(&answer->word) != awaited) {
        return false;
    }
    answer->status = (int32_t)verdict;
    answer->n_bytes = recv->n_bytes;
    answer->dtype = (int32_t)recv->dtype;
    return atomic_compare_exchange_strong(
        &answer->word, &awaited, letter->header.number << 2 | PLAIT_ANSWER_GIVEN);
}

/* Reads what the header says is in the sender's memory. */
static plait_status_t fetch(const plait_node_mail_t *mail,
                            const plait_node_letter_t *letter, void *to)
{
    const plait_mpi_link_t *link = mail->link;
    const struct iovec local = {.iov_base = to,
                                .iov_len = (size_t)letter->header.n_bytes};
    const struct iovec remote = {.iov_base = (void *)(uintptr_t)letter->header.address,
                                 .iov_len = (size_t)letter->header.n_bytes};

    return plait_node_read(link->rank, letter->source,
                           link->cards[letter->source].process.pid, &local, 1, &remote,
                           1);
}

/* A message and the half that it is for meet. */
static void deliver(plait_node_mail_t *mail, const plait_node_letter_t *letter,
                    plait_posted_t *posted)
{
    const plait_mail_header_t *h = &letter->header;
    const plait_half_t *recv = posted->recv;
    plait_status_t status = plait_matched_judge(h->n_bytes, (plait_dtype_t)h->dtype,
                                                recv->n_bytes, recv->dtype);
    bool is_verdict = status != PLAIT_OK;

    posted->matched = (plait_matched_t){letter->source, h->tag, h->n_bytes};
    posted->fault = (plait_matched_fault_t){letter->source,
                                            mail->link->rank,
                                            h->tag,
                                            {h->n_bytes, recv->n_bytes},
                                            {(plait_dtype_t)h->dtype, recv->dtype},
                                            &mail->link->processes[letter->source]};
    if (status == PLAIT_OK && letter->data != NULL) {
        memcpy(recv->data, letter->data, (size_t)h->n_bytes);
    } else if (status == PLAIT_OK && h->n_bytes > 0) {
        status = fetch(mail, letter, recv->data);
    }
    if (h->answer != PLAIT_NO_ANSWER) {
        if (!give_answer(mail, letter, status, recv) && status == PLAIT_OK) {
            status = plait_fail(PLAIT_ERR_PEER, "rank %d gave up sending to rank %d",
                                letter->source, mail->link->rank);
        }
        plait_mail_wake(mail, letter->source);
    } else if (is_verdict) {
        complain(mail, letter->source, status, &posted->fault);
    }
    if (status != PLAIT_OK && !is_verdict) {
        (void)snprintf(posted->text, sizeof(posted->text), "%s", plait_error_text());
    }
    posted->status = status;
    posted->partner = *h;
    /* last: the half is on the stack of its call, which may return now */
    atomic_store_explicit(&posted->is_done, true, memory_order_release);
}

static bool fits(const plait_half_t *recv, int source, int tag)
{
    return (recv->peer == PLAIT_ANY || recv->peer == source) &&
           (recv->tag == PLAIT_ANY || recv->tag == tag);
}

/* The first half that waits for such a message waits no more. */
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

/* Nobody waits for it yet: it is taken out of the ring with its bytes, unless its sender
 * waits with them. */
static plait_status_t put_aside(plait_node_mail_t *mail,
                                const plait_node_letter_t *seen)
{
    plait_status_t status = PLAIT_OK;
    bool has_data = seen->kind != PLAIT_MAIL_AT && seen->header.n_bytes > 0;
    int64_t n_bytes = has_data ? seen->header.n_bytes : 0;
    plait_node_letter_t **end = &mail->letters;
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
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = letter;
    letter = NULL;
done:
    plait_free(letter);
    return status;
}

/* Its cells go back to the sender, with nothing in them that looks like a message: the first word of
 * the first one is an older number than any to come, and stays, since writing it would take the
 * line from the sender once more. */
static void give_back(plait_node_mail_t *mail, int source, uint64_t n_cells)
{
    plait_mail_place_t *in = &mail->in[source];
    plait_node_ring_t *ring = plait_mail_ring(mail, source, mail->link->rank);
    uint64_t quarter = mail->ring_cells / 4;
    uint64_t before = in->n_cells;

    for (uint64_t i = 1; i < n_cells; i++) {
        atomic_store_explicit(&plait_mail_cell(mail, ring, before + i)->first, 0,
                              memory_order_relaxed);
    }
    in->n_cells += n_cells;
    in->number++;
    atomic_store_explicit(&ring->n_consumed, in->n_cells, memory_order_release);
    if (before / quarter != in->n_cells / quarter) {
        plait_mail_wake(mail, source); /* it may wait for room */
    }
}

bool plait_mail_has_come(const plait_node_mail_t *mail, int source)
{
    const plait_mail_place_t *in = &mail->in[source];
    const plait_mail_cell_t *cell = plait_mail_cell(
        mail, plait_mail_ring(mail, source, mail->link->rank), in->n_cells);
    uint64_t first = atomic_load_explicit(&cell->first, memory_order_acquire);

    return first >> PLAIT_MAIL_KIND_BITS == in->number + 1;
}

plait_status_t plait_mail_take(plait_node_mail_t *mail, int source)
{
    plait_status_t status = PLAIT_OK;
    uint64_t at = mail->in[source].n_cells;
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
        bool is_inline = seen.kind == PLAIT_MAIL_INLINE;
        n_cells = plait_mail_cells_of(is_inline ? seen.header.n_bytes : 0);
        seen.data = is_inline ? cell->bytes : NULL;
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
