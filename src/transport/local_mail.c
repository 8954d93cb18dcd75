#include "transport/local_mail.h"

#include "base/alloc.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wait.h"
#include "transport/matched.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* On the sender's stack until the receiver has judged it; a letter of a buffered send is allocated. */
struct plait_letter {
    int source, dest, tag;
    const void *data;
    int64_t n_bytes;
    plait_content_t content;
    plait_parcel_t
        *parcel; /* replaces data, which is NULL, until the bytes are wanted */
    bool is_wanted;
    bool is_void; /* the bytes were wanted, but the sender has failed to bring them */
    bool is_buffered;
    bool is_taken;
    bool is_judged;
    plait_status_t verdict;
    char text[160]; /* why the verdict is not OK */
    plait_letter_t *next;
    /* behind a buffered letter: its data */
};

plait_status_t plait_mail_init(plait_mail_t *mail, int n_ranks)
{
    plait_status_t status = PLAIT_OK;

    *mail = (plait_mail_t){0};
    (void)pthread_mutex_init(&mail->mutex, NULL);
    mail->ranks = plait_alloc(n_ranks, sizeof(*mail->ranks));
    PLAIT_CHECK(mail->ranks != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a communicator");
    for (; mail->n_ranks < n_ranks; mail->n_ranks++) {
        plait_cond_init(&mail->ranks[mail->n_ranks].changed);
    }
done:
    return status;
}

static void free_letters(plait_letter_t *list)
{
    while (list != NULL) {
        plait_letter_t *next = list->next;
        plait_log(PLAIT_LOG_WARN,
                  "close: message from rank %d to rank %d with tag %d, %lld bytes: %s",
                  list->source, list->dest, list->tag, (long long)list->n_bytes,
                  list->is_judged ? list->text : "never received");
        plait_free(list);
        list = next;
    }
}

void plait_mail_clear(plait_mail_t *mail)
{
    free_letters(mail->first);
    free_letters(mail->refused);
    for (int r = 0; r < mail->n_ranks; r++) {
        (void)pthread_cond_destroy(&mail->ranks[r].changed);
    }
    plait_free(mail->ranks);
    (void)pthread_mutex_destroy(&mail->mutex);
}

/* All static functions below are called under the mutex. */

static void wake(plait_mail_t *mail, int rank)
{
    (void)pthread_cond_broadcast(&mail->ranks[rank].changed);
}

static void post(plait_mail_t *mail, plait_letter_t *letter)
{
    letter->next = NULL;
    *((mail->first != NULL) ? &mail->last->next : &mail->first) = letter;
    mail->last = letter;
    wake(mail, letter->dest);
}

static void withdraw(plait_mail_t *mail, const plait_letter_t *letter)
{
    plait_letter_t *before = NULL;
    plait_letter_t *at = mail->first;

    while (at != NULL && at != letter) {
        before = at;
        at = at->next;
    }
    if (at != NULL) {
        *((before != NULL) ? &before->next : &mail->first) = at->next;
        mail->last = (mail->last == at) ? before : mail->last;
    }
}

static int64_t held_by(const plait_letter_t *letter)
{
    return (int64_t)sizeof(*letter) + letter->n_bytes;
}

/* A buffered letter that was judged: it is freed, or kept for its sender. A rank that sent to itself knows the
 * verdict already. */
static void file(plait_mail_t *mail, plait_letter_t *letter)
{
    mail->ranks[letter->source].held_bytes -= held_by(letter);
    if (letter->verdict == PLAIT_OK || letter->source == letter->dest) {
        plait_free(letter);
    } else {
        plait_letter_t **place = &mail->refused;
        while (*place != NULL) { /* the first refusal is told first */
            place = &(*place)->next;
        }
        letter->next = NULL;
        *place = letter;
        atomic_fetch_add(&mail->n_refused, 1);
    }
}

static plait_letter_t *find(const plait_mail_t *mail, int rank, int source, int tag)
{
    for (plait_letter_t *l = mail->first; l != NULL; l = l->next) {
        if (!l->is_taken && l->dest == rank &&
            (source == PLAIT_ANY || l->source == source) &&
            (tag == PLAIT_ANY || l->tag == tag)) {
            return l;
        }
    }
    return NULL;
}

/* For this rank's own letter, whose receiver waits: brings the bytes outside the mutex. */
static bool has_brought(plait_mail_t *mail, plait_letter_t *own)
{
    bool is_due = own != NULL && own->is_wanted && own->data == NULL && !own->is_void;
    void *data = NULL;

    if (is_due) {
        (void)pthread_mutex_unlock(&mail->mutex);
        plait_status_t status = own->parcel->stage(own->parcel, &data);
        (void)pthread_mutex_lock(&mail->mutex);
        own->data = (status == PLAIT_OK) ? data : NULL;
        own->is_void = status != PLAIT_OK;
        wake(mail, own->dest);
    }
    return is_due;
}

/* Sleeps until something changes for the rank; now and then asks whether to go on. Meanwhile looks after the
 * rank's own letter, if there is one. */
static plait_status_t wait_for_change(plait_mail_t *mail, int rank, plait_wait_t *wait,
                                      plait_letter_t *own)
{
    struct timespec limit;

    if (has_brought(mail, own)) {
        return PLAIT_OK;
    }

    (void)clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_nsec += 50000000;
    if (limit.tv_nsec >= 1000000000) {
        limit.tv_nsec -= 1000000000;
        limit.tv_sec++;
    }
    int error =
        pthread_cond_timedwait(&mail->ranks[rank].changed, &mail->mutex, &limit);
    return (error == ETIMEDOUT) ? plait_wait_ask(wait) : PLAIT_OK;
}

static plait_status_t judge(const plait_letter_t *letter, const plait_half_t *recv,
                            int rank)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(letter->n_bytes <= recv->n_bytes, PLAIT_ERR_TRUNCATION,
                "rank %d from %d: message truncated, got %lld bytes, room for %lld",
                rank, letter->source, (long long)letter->n_bytes,
                (long long)recv->n_bytes);
    PLAIT_CHECK(letter->content == plait_half_content(recv) &&
                    letter->n_bytes == recv->n_bytes,
                PLAIT_ERR_MISMATCH,
                "rank %d from %d: got %s, %lld bytes; expected %s, %lld bytes%s", rank,
                letter->source, plait_dtype_name(plait_content_dtype(letter->content)),
                (long long)letter->n_bytes, plait_dtype_name(recv->dtype),
                (long long)recv->n_bytes,
                plait_matched_note(letter->content, plait_half_content(recv)));
done:
    return status;
}

/* A letter, the half that receives it, and the letter that the receiving rank has sent in the same call
 * (NULL). */
typedef struct {
    plait_mail_t *mail;
    plait_letter_t *letter, *own;
    const plait_half_t *recv;
    int rank;
} delivery_t;

/* For an offered message whose receiving half takes only bytes. */
static plait_status_t want(const delivery_t *d)
{
    plait_status_t status = PLAIT_OK;
    plait_letter_t *letter = d->letter;
    plait_wait_t wait = plait_wait_begin("sendrecv", letter->source);

    letter->is_wanted = true;
    wake(d->mail, letter->source);
    while (letter->data == NULL && !letter->is_void && status == PLAIT_OK) {
        status = wait_for_change(d->mail, d->rank, &wait, d->own);
    }
    if (letter->is_void) { /* as if it had failed before it was sent */
        letter->n_bytes = 0;
        letter->content = plait_matched_refusing(letter->content);
        status = judge(letter, d->recv, d->rank);
    }
    return status;
}

/* Copies outside the mutex: others go on meanwhile. */
static plait_status_t move(const delivery_t *d)
{
    plait_status_t status = PLAIT_OK;
    plait_letter_t *letter = d->letter;
    plait_parcel_t *out = letter->parcel;
    plait_parcel_t *in = d->recv->parcel;
    void *to = NULL;

    if (out != NULL && in == NULL) {
        PLAIT_TRY(want(d));
    }
    (void)pthread_mutex_unlock(&d->mail->mutex);
    if (out != NULL && in != NULL) {
        status = in->take(in, letter->source, &out->offer);
        out->receipt = in->receipt;
        out->is_taken = status == PLAIT_OK;
    } else {
        status = plait_half_bytes(d->recv, &to);
        if (status == PLAIT_OK) {
            memmove(to, letter->data, (size_t)letter->n_bytes);
        }
    }
    (void)pthread_mutex_lock(&d->mail->mutex);
done:
    return status;
}

/* The verdict for a sender whose receiver has failed itself: it fits no half of any length. */
static void refuse(plait_letter_t *letter, int rank)
{
    letter->verdict = PLAIT_ERR_TRUNCATION;
    (void)snprintf(
        letter->text, sizeof(letter->text),
        "rank %d from %d: message truncated, got %lld bytes, room for 0, since "
        "the receiver has failed",
        rank, letter->source, (long long)letter->n_bytes);
}

static plait_status_t take(const delivery_t *d, plait_matched_t *matched_p)
{
    plait_letter_t *letter = d->letter;
    const int source = letter->source; /* it may wait for the verdict, or for room */
    plait_status_t status = judge(letter, d->recv, d->rank);
    const bool is_refused = status != PLAIT_OK;

    letter->is_taken = true;
    *matched_p = (plait_matched_t){
        .source = letter->source, .tag = letter->tag, .n_bytes = letter->n_bytes};
    if (!is_refused && letter->n_bytes > 0) {
        status = move(d);
    }
    letter->verdict = status;
    if (is_refused || letter->is_void) {
        (void)strncpy(letter->text, plait_error_text(), sizeof(letter->text) - 1);
    } else if (status != PLAIT_OK) {
        refuse(letter, d->rank);
    }
    letter->is_judged = true;
    withdraw(d->mail, letter);
    if (letter->is_buffered) {
        file(d->mail, letter);
    }
    wake(d->mail, source);
    return status;
}

static plait_status_t receive(plait_mail_t *mail, const plait_half_t *recv, int rank,
                              plait_letter_t *own, plait_matched_t *matched_p)
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin("sendrecv", recv->peer);
    wait.is_receive = true;
    delivery_t d = {.mail = mail,
                    .letter = find(mail, rank, recv->peer, recv->tag),
                    .own = own,
                    .recv = recv,
                    .rank = rank};

    while (d.letter == NULL && status == PLAIT_OK) {
        status = wait_for_change(mail, rank, &wait, own);
        d.letter = find(mail, rank, recv->peer, recv->tag);
    }
    return (d.letter != NULL) ? take(&d, matched_p) : status;
}

/* Waits for the verdict on a posted letter. A sender that gives up withdraws the letter, but never while it is
 * being copied. */
static plait_status_t await_verdict(plait_mail_t *mail, plait_letter_t *letter)
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin("sendrecv", letter->dest);

    while (!letter->is_judged && (status == PLAIT_OK || letter->is_taken)) {
        plait_status_t asked = wait_for_change(mail, letter->source, &wait, letter);
        status = (status == PLAIT_OK) ? asked : status;
    }
    if (letter->is_judged) {
        status = (letter->verdict == PLAIT_OK)
                     ? PLAIT_OK
                     : plait_fail(letter->verdict, "%s", letter->text);
    } else {
        withdraw(mail, letter);
    }
    return status;
}

plait_status_t plait_mail_sendrecv(plait_mail_t *mail, int rank,
                                   const plait_half_t *send, const plait_half_t *recv,
                                   plait_matched_t *matched_p)
{
    plait_status_t status = PLAIT_OK;
    plait_status_t sent = PLAIT_OK;
    bool sends = send->peer != PLAIT_NO_RANK;
    plait_letter_t letter = {.source = rank,
                             .dest = send->peer,
                             .tag = send->tag,
                             .data = send->data,
                             .n_bytes = send->n_bytes,
                             .content = plait_half_content(send),
                             .parcel = send->parcel};

    (void)pthread_mutex_lock(&mail->mutex);
    if (sends) {
        post(mail, &letter);
    }
    if (recv->peer != PLAIT_NO_RANK) {
        status = receive(mail, recv, rank, sends ? &letter : NULL, matched_p);
    }
    if (sends) { /* the letter lives on this stack: always await its end */
        sent = await_verdict(mail, &letter);
    }
    (void)pthread_mutex_unlock(&mail->mutex);
    return (status != PLAIT_OK) ? status : sent;
}

plait_status_t plait_mail_exchange(plait_mail_t *mail, int rank, int n_sends,
                                   const plait_message_t *sends, int n_recvs,
                                   const plait_message_t *recvs)
{
    enum { FEW = 8 };
    plait_status_t status = PLAIT_OK;
    plait_letter_t few[FEW];
    plait_letter_t *many = (n_sends > FEW) ? plait_alloc(n_sends, sizeof(*many)) : NULL;
    plait_letter_t *letters = (n_sends > FEW) ? many : few;
    plait_matched_t matched;

    PLAIT_CHECK(letters != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %d messages",
                n_sends);
    (void)pthread_mutex_lock(&mail->mutex);
    for (int i = 0; i < n_sends; i++) {
        letters[i] = (plait_letter_t){.source = rank,
                                      .dest = sends[i].peer,
                                      .data = sends[i].data,
                                      .n_bytes = sends[i].n_bytes,
                                      .content = PLAIT_U8};
        post(mail, &letters[i]);
    }
    for (int i = 0; i < n_recvs; i++) {
        const plait_half_t recv = {.peer = recvs[i].peer,
                                   .data = recvs[i].data,
                                   .n_bytes = recvs[i].n_bytes,
                                   .dtype = PLAIT_U8};
        plait_status_t got = receive(mail, &recv, rank, NULL, &matched);
        status = (status == PLAIT_OK) ? got : status;
    }
    for (int i = 0; i < n_sends; i++) {
        plait_status_t sent = await_verdict(mail, &letters[i]);
        status = (status == PLAIT_OK) ? sent : status;
    }
    (void)pthread_mutex_unlock(&mail->mutex);
done:
    plait_free(many);
    return status;
}

bool plait_mail_has(plait_mail_t *mail, int rank, const plait_half_t *recv)
{
    (void)pthread_mutex_lock(&mail->mutex);
    bool has = find(mail, rank, recv->peer, recv->tag) != NULL;
    (void)pthread_mutex_unlock(&mail->mutex);
    return has;
}

static bool fits(const plait_mail_t *mail, int rank, int64_t n_bytes)
{
    return mail->ranks[rank].held_bytes + (int64_t)sizeof(plait_letter_t) + n_bytes <=
           PLAIT_BUFFERED_BYTES;
}

bool plait_mail_has_room(plait_mail_t *mail, int rank, int64_t n_bytes)
{
    (void)pthread_mutex_lock(&mail->mutex);
    bool has = fits(mail, rank, n_bytes);
    (void)pthread_mutex_unlock(&mail->mutex);
    return has;
}

static plait_status_t make_letter(int rank, const plait_half_t *send,
                                  plait_letter_t **letter_p)
{
    plait_status_t status = PLAIT_OK;
    plait_letter_t *letter = plait_alloc(1, (int64_t)sizeof(*letter) + send->n_bytes);

    PLAIT_CHECK(letter != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a message");
    letter->source = rank;
    letter->dest = send->peer;
    letter->tag = send->tag;
    letter->n_bytes = send->n_bytes;
    letter->content = plait_half_content(send);
    letter->is_buffered = true;
    letter->data = letter + 1;
    if (send->n_bytes > 0) {
        memcpy(letter + 1, send->data, (size_t)send->n_bytes);
    }
    *letter_p = letter;
done:
    return status;
}

plait_status_t plait_mail_send(plait_mail_t *mail, int rank, const plait_half_t *send)
{
    plait_status_t status = PLAIT_OK;
    plait_wait_t wait = plait_wait_begin("send", send->peer);
    plait_letter_t *letter = NULL;

    PLAIT_TRY(make_letter(rank, send, &letter));
    (void)pthread_mutex_lock(&mail->mutex);
    while (status == PLAIT_OK && !fits(mail, rank, send->n_bytes)) {
        status = wait_for_change(mail, rank, &wait, NULL);
    }
    if (status == PLAIT_OK) {
        mail->ranks[rank].held_bytes += held_by(letter);
        post(mail, letter);
        letter = NULL;
    }
    (void)pthread_mutex_unlock(&mail->mutex);
done:
    plait_free(letter);
    return status;
}

plait_status_t plait_mail_refusal(plait_mail_t *mail, int rank)
{
    plait_status_t status = PLAIT_OK;
    plait_letter_t *letter = NULL;

    if (atomic_load_explicit(&mail->n_refused, memory_order_relaxed) == 0) {
        return PLAIT_OK;
    }
    (void)pthread_mutex_lock(&mail->mutex);
    plait_letter_t **place = &mail->refused;
    while (*place != NULL && (*place)->source != rank) {
        place = &(*place)->next;
    }
    letter = *place;
    if (letter != NULL) {
        *place = letter->next;
        atomic_fetch_sub(&mail->n_refused, 1);
    }
    (void)pthread_mutex_unlock(&mail->mutex);
    PLAIT_CHECK(letter == NULL, letter->verdict, "a buffered send with tag %d: %s",
                letter->tag, letter->text);
done:
    plait_free(letter);
    return status;
}
