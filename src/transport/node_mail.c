#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "transport/node.h"
#include "transport/node_mail_parts.h"

#include <string.h>
#include <time.h>

/* How long closing waits for copies to be read, and the time between two looks at a partner that may have
 * ended. */
enum { CLOSE_NS = 1000000000, LOOK_EVERY_NS = 50000000 };

/* A message in a ring takes an eighth of the ring at most; for longer messages the receiver's read is as
 * fast. */
enum { MAX_INLINE_BYTES = 4096 };

plait_status_t plait_node_mail_create(plait_mpi_link_t *link,
                                      plait_node_mail_t **mail_p)
{
    plait_status_t status = PLAIT_OK;
    plait_node_mail_t *mail = plait_alloc(1, sizeof(*mail));
    int64_t eighth = (int64_t)link->segment.shape.ring_cells * PLAIT_CELL_BYTES / 8;

    PLAIT_CHECK(mail != NULL, PLAIT_ERR_NO_MEMORY, "no memory for messages");
    mail->link = link;
    mail->letters_end = &mail->letters;
    (void)pthread_mutex_init(&mail->mutex, NULL);
    mail->ring_cells = (uint64_t)link->segment.shape.ring_cells;
    mail->inline_bytes = ((eighth < MAX_INLINE_BYTES) ? eighth : MAX_INLINE_BYTES) -
                         (int64_t)sizeof(plait_mail_cell_t);
    mail->out = plait_alloc(link->size, sizeof(*mail->out));
    mail->in = plait_alloc(link->size, sizeof(*mail->in));
    PLAIT_CHECK(mail->out != NULL && mail->in != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for messages of %d ranks", link->size);
    *mail_p = mail;
    mail = NULL;
done:
    plait_node_mail_destroy(&mail);
    return status;
}

bool plait_node_mail_is_read(plait_node_mail_t *mail)
{
    (void)pthread_mutex_lock(&mail->mutex);
    plait_mail_release(mail);
    const bool is_read = mail->copies == NULL;
    (void)pthread_mutex_unlock(&mail->mutex);
    return is_read;
}

/* Closes the rings to this rank: ranks that have sent more to it need not wait for it. */
static void close_rings(plait_node_mail_t *mail)
{
    for (int i = 0; i < mail->link->size; i++) {
        atomic_store_explicit(&plait_mail_ring(mail, i, mail->link->rank)->is_closed, 1,
                              memory_order_release);
    }
}

bool plait_node_mail_close(plait_node_mail_t *mail)
{
    const struct timespec nap = {.tv_nsec = 100000};
    int64_t start = plait_clock_ns();

    close_rings(mail);
    bool is_read = plait_node_mail_is_read(mail);

    while (!is_read && plait_clock_ns() - start < CLOSE_NS) {
        (void)nanosleep(&nap, NULL);
        is_read = plait_node_mail_is_read(mail);
    }
    if (!is_read) {
        plait_log(PLAIT_LOG_WARN,
                  "rank %d close: %lld bytes sent to rank %d were not received yet",
                  mail->link->rank, (long long)mail->copies->n_bytes,
                  mail->copies->dest);
    }
    if (plait_node_mail_complaint(mail) != PLAIT_OK) {
        plait_log(PLAIT_LOG_ERROR, "rank %d close: %s", mail->link->rank,
                  plait_error_text());
    }
    return is_read;
}

void plait_node_mail_destroy(plait_node_mail_t **mail_p)
{
    plait_node_mail_t *mail = *mail_p;

    *mail_p = NULL;
    if (mail != NULL) {
        while (mail->letters != NULL) {
            plait_node_letter_t *next = mail->letters->next;
            plait_free(mail->letters);
            mail->letters = next;
        }
        (void)pthread_mutex_destroy(&mail->mutex);
        plait_free(mail->out);
        plait_free(mail->in);
        plait_free(mail);
    }
}

static bool any_has_come(const plait_node_mail_t *mail)
{
    bool has_come = false;

    for (int i = 0; i < mail->link->size && !has_come; i++) {
        has_come = plait_mail_has_come(mail, i);
    }
    return has_come;
}

/* Under the mutex. */
static plait_status_t take_all(plait_node_mail_t *mail)
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < mail->link->size; i++) {
        while (plait_mail_has_come(mail, i)) {
            PLAIT_TRY(plait_mail_take(mail, i));
        }
    }
done:
    return status;
}

void plait_node_mail_progress(plait_node_mail_t *mail)
{
    if (any_has_come(mail)) {
        (void)pthread_mutex_lock(&mail->mutex);
        (void)take_all(mail); /* a message that finds no memory stays in its ring */
        (void)pthread_mutex_unlock(&mail->mutex);
    }
}

plait_status_t plait_node_mail_complaint(plait_node_mail_t *mail)
{
    plait_status_t status = PLAIT_OK;
    plait_node_complaint_t *from =
        &plait_node_rank(&mail->link->segment, mail->link->rank)->complaint;

    if (atomic_load_explicit(&from->state, memory_order_acquire) ==
        PLAIT_COMPLAINT_MADE) {
        status = plait_matched_fail(
            (plait_status_t)from->status,
            &(plait_matched_fault_t){mail->link->rank,
                                     from->dest,
                                     from->tag,
                                     {from->n_bytes[0], from->n_bytes[1]},
                                     {from->contents[0], from->contents[1]},
                                     NULL}); /* it was some time ago */
        atomic_store(&from->state, PLAIT_COMPLAINT_NONE);
    }
    return status;
}

/* ---------------------------------------------------------------- one call */

static bool has_received(const plait_mail_call_t *call)
{
    return call->posted.recv == NULL ||
           atomic_load_explicit(&call->posted.is_done, memory_order_acquire);
}

/* The partner says in its own message that its half will not fit this message. This call waits until the
 * partner has seen the message, for its complaint. */
static bool expects_other(const plait_mail_call_t *call)
{
    const plait_mail_header_t *partner = &call->posted.partner;

    return call->send != NULL && call->is_sent && call->posted.recv != NULL &&
           has_received(call) && partner->expects_bytes != PLAIT_NOTHING &&
           (partner->expects_tag == PLAIT_ANY ||
            partner->expects_tag == call->send->tag) &&
           plait_matched_judge(call->send->n_bytes, plait_half_content(call->send),
                               partner->expects_bytes,
                               partner->expects_content) != PLAIT_OK;
}

static bool is_consumed(const plait_mail_call_t *call)
{
    const plait_node_mail_t *mail = call->mail;

    return atomic_load_explicit(
               &plait_mail_ring(mail, mail->link->rank, call->send->peer)->n_consumed,
               memory_order_acquire) >= call->end;
}

static bool is_answered(const plait_mail_call_t *call, int state)
{
    const plait_node_mail_t *mail = call->mail;

    return call->answer != PLAIT_NO_ANSWER &&
           atomic_load_explicit(
               &plait_mail_answer(mail, mail->link->rank, call->answer)->word,
               memory_order_acquire) == plait_mail_word(call->number, state);
}

static bool is_complete(const plait_mail_call_t *call)
{
    bool has_sent =
        call->send == NULL || call->is_sent || is_answered(call, PLAIT_ANSWER_GIVEN);

    return has_sent && has_received(call) &&
           (!expects_other(call) || is_consumed(call));
}

/* Whether the receiver wants the bytes of what was offered to it. */
static bool has_to_bring(const plait_mail_call_t *call)
{
    return call->send != NULL && call->send->parcel != NULL &&
           is_answered(call, PLAIT_ANSWER_WANTED);
}

/* Without the mutex. A failure is the half's own, and the call goes on. */
static void bring(plait_mail_call_t *call)
{
    const plait_node_mail_t *mail = call->mail;
    plait_node_answer_t *answer =
        plait_mail_answer(mail, mail->link->rank, call->answer);
    uint64_t word = plait_mail_word(call->number, PLAIT_ANSWER_WANTED);
    void *data = NULL;
    plait_status_t status = plait_half_bytes(call->send, &data);

    answer->address = (status == PLAIT_OK) ? (uint64_t)(uintptr_t)data : 0;
    call->has_brought = true;
    (void)atomic_compare_exchange_strong(
        &answer->word, &word, plait_mail_word(call->number, PLAIT_ANSWER_BROUGHT));
    plait_mail_wake(mail, call->send->peer);
}

/* Whether another turn can get further; wakes a sleeping call. */
static bool can_go_on(void *context)
{
    const plait_mail_call_t *call = context;
    const plait_node_mail_t *mail = call->mail;

    return is_complete(call) || any_has_come(mail) || has_to_bring(call) ||
           plait_mail_can_fetch(mail, &call->posted) ||
           (call->send != NULL && !call->is_written &&
            mail->out[call->send->peer].n_consumed !=
                atomic_load(&plait_mail_ring(mail, mail->link->rank, call->send->peer)
                                 ->n_consumed));
}

/* Under the mutex: does everything that is possible now. */
static plait_status_t go_on(plait_mail_call_t *call)
{
    plait_status_t status = PLAIT_OK;

    if (call->send != NULL && !call->is_written) {
        call->is_written = plait_mail_write(call);
    }
    PLAIT_TRY(take_all(call->mail));
done:
    return status;
}

/* The rank waited for: the sender, or the receiver. */
static int partner_of(const plait_mail_call_t *call)
{
    if (call->send != NULL && !call->is_written) {
        return PLAIT_ANY; /* for room, which messages to others may take */
    }
    return (!has_received(call) && call->posted.is_wanted) ? call->posted.letter.source
           : (!has_received(call) || call->send == NULL)   ? call->posted.recv->peer
                                                           : call->send->peer;
}

static plait_status_t wait_for_call(plait_mail_call_t *call)
{
    /* Spins before the partner is woken, which costs a memory fence: mostly the partner is awake, and its
     * message on the way. */
    enum { SPINS_BEFORE_WAKE = 64 };
    plait_status_t status = PLAIT_OK;
    plait_node_mail_t *mail = call->mail;
    plait_bell_t *bell = &plait_node_rank(&mail->link->segment, mail->link->rank)->bell;
    plait_wait_t wait = plait_wait_begin("sendrecv", PLAIT_ANY);

    while (!is_complete(call)) {
        if (has_to_bring(call)) {
            bring(call);
        } else if (plait_mail_can_fetch(mail, &call->posted)) {
            plait_mail_fetch(mail, &call->posted);
        } else if (can_go_on(call)) {
            (void)pthread_mutex_lock(&mail->mutex);
            status = go_on(call);
            (void)pthread_mutex_unlock(&mail->mutex);
        } else {
            wait.peer = partner_of(call);
            wait.is_receive = !has_received(call);
            if (call->send != NULL && wait.n_polls == SPINS_BEFORE_WAKE) {
                plait_mail_wake(mail, call->send->peer);
            }
            status = plait_bell_turn(bell, &wait, can_go_on, call);
            if (status == PLAIT_OK && call->send != NULL && !call->is_written) {
                (void)pthread_mutex_lock(&mail->mutex);
                status = go_on(call);
                (void)pthread_mutex_unlock(&mail->mutex);
            }
        }
        PLAIT_TRY(status);
    }
done:
    return status;
}

/* Takes the message back: nobody reads it any more. Waits while the receiver takes it from a device or writes
 * the answer, which is soon over, unless the receiver is gone. False: it was answered. */
static bool take_back(const plait_mail_call_t *call, plait_node_answer_t *answer)
{
    const uint64_t given = plait_mail_word(call->number, PLAIT_ANSWER_GIVEN);
    const uint64_t taking = plait_mail_word(call->number, PLAIT_ANSWER_TAKING);
    plait_wait_t wait = plait_wait_begin("sendrecv", call->send->peer);
    uint64_t word = atomic_load(&answer->word);
    bool is_taken_back = false;

    while (word != given && !is_taken_back) {
        if (word != taking || plait_wait_turn(&wait) != PLAIT_OK) {
            is_taken_back = atomic_compare_exchange_strong(
                &answer->word, &word,
                plait_mail_word(call->number, PLAIT_ANSWER_GIVEN_UP));
        } else {
            word = atomic_load(&answer->word);
        }
    }
    return is_taken_back;
}

/* Gets the receiver's verdict on a message that waited in this rank's memory. A call that failed takes the
 * message back, unless the receiver has it by now. */
static plait_status_t end_answer(plait_mail_call_t *call, plait_status_t status)
{
    plait_node_mail_t *mail = call->mail;
    plait_node_answer_t *answer =
        plait_mail_answer(mail, mail->link->rank, call->answer);
    const bool is_taken_back = take_back(call, answer);
    plait_status_t verdict = is_taken_back ? PLAIT_OK : (plait_status_t)answer->status;
    plait_parcel_t *parcel = call->send->parcel;

    if (parcel != NULL && !is_taken_back && !call->has_brought && verdict == PLAIT_OK) {
        parcel->receipt = answer->receipt;
        parcel->is_taken = true;
    }
    if (status == PLAIT_OK && verdict != PLAIT_OK) {
        const plait_half_t *send = call->send;
        status = plait_matched_fail(
            verdict,
            &(plait_matched_fault_t){mail->link->rank,
                                     send->peer,
                                     send->tag,
                                     {send->n_bytes, answer->n_bytes},
                                     {plait_half_content(send), answer->content},
                                     &mail->link->processes[send->peer]});
    }
    (void)pthread_mutex_lock(&mail->mutex);
    mail->answers_taken &= ~(1U << call->answer);
    (void)pthread_mutex_unlock(&mail->mutex);
    return status;
}

/* The failure of the receiving half. */
static plait_status_t end_posted(const plait_posted_t *posted)
{
    if (posted->recv == NULL || posted->status == PLAIT_OK) {
        return PLAIT_OK;
    }
    return (posted->text[0] != 0) ? plait_fail(posted->status, "%s", posted->text)
                                  : plait_matched_fail(posted->status, &posted->fault);
}

/* Of several failures, the receiving half's is reported. */
static plait_status_t end_call(plait_mail_call_t *call, plait_status_t status)
{
    plait_node_mail_t *mail = call->mail;

    if (!has_received(call)) {
        (void)pthread_mutex_lock(&mail->mutex);
        plait_mail_unpost(mail, &call->posted);
        (void)pthread_mutex_unlock(&mail->mutex);
        if (call->posted.has_come && !call->posted.is_done) {
            plait_mail_refuse(mail, &call->posted);
        }
    }
    if (call->answer != PLAIT_NO_ANSWER) {
        status = end_answer(call, status);
    }
    if (status == PLAIT_OK && expects_other(call)) {
        status = plait_node_mail_complaint(mail);
    }
    if (call->posted.is_done && call->posted.status != PLAIT_OK) {
        status = end_posted(&call->posted);
    }
    if (call->send != NULL) {
        plait_mail_wake(mail, call->send->peer);
    }
    return status;
}

static plait_status_t run_call(plait_mail_call_t *call)
{
    plait_status_t status = PLAIT_OK;
    plait_node_mail_t *mail = call->mail;

    (void)pthread_mutex_lock(&mail->mutex);
    if (call->posted.recv != NULL) {
        plait_mail_post(mail, &call->posted);
    }
    status = go_on(call);
    (void)pthread_mutex_unlock(&mail->mutex);
    if (status == PLAIT_OK) {
        status = wait_for_call(call);
    }
    return end_call(call, status);
}

plait_status_t plait_node_mail_send(plait_node_mail_t *mail, const plait_half_t *send)
{
    plait_mail_call_t call = {.mail = mail,
                              .send = plait_half_is_given(send) ? send : NULL,
                              .is_buffered = true,
                              .answer = PLAIT_NO_ANSWER};

    return run_call(&call);
}

plait_status_t plait_node_mail_sendrecv(plait_node_mail_t *mail,
                                        const plait_half_t *send,
                                        const plait_half_t *recv,
                                        plait_matched_t *matched_p)
{
    plait_mail_call_t call = {
        .mail = mail,
        .send = plait_half_is_given(send) ? send : NULL,
        .answer = PLAIT_NO_ANSWER,
        .posted = {.recv = plait_half_is_given(recv) ? recv : NULL,
                   .partner = {.expects_bytes = PLAIT_NOTHING},
                   .matched = {.source = PLAIT_NO_RANK, .tag = PLAIT_ANY}}};
    plait_status_t status = run_call(&call);

    if (matched_p != NULL) {
        *matched_p = call.posted.matched;
    }
    return status;
}
