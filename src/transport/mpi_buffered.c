/* Buffered sends: transfers whose sender does not wait. All their bytes leave at once, in messages that every
 * MPI sends without the receiver. Only the receiver's answer is left; the end of each operation looks for
 * answers, for a few transfers at a time. */
#include "base/clock.h"
#include "base/log.h"
#include "base/wait.h"
#include "transport/mpi_transfer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Looks per operation: together they take less than a microsecond. */
enum { LOOKS = 4, DRAIN_NAP_NS = 100000 };

static int64_t held_by(const plait_mpi_transfer_t *t)
{
    return (int64_t)sizeof(*t) + t->buffered.n_bytes;
}

static void line_up(plait_mpi_link_t *link, plait_mpi_transfer_t *t)
{
    (void)pthread_mutex_lock(&link->transfer_lock);
    t->next = NULL;
    *((link->buffered != NULL) ? &link->buffered_last->next : &link->buffered) = t;
    link->buffered_last = t;
    (void)pthread_mutex_unlock(&link->transfer_lock);
}

/* Takes the first transfer in line; no other thread has it then. */
static plait_mpi_transfer_t *next_in_line(plait_mpi_link_t *link)
{
    (void)pthread_mutex_lock(&link->transfer_lock);
    plait_mpi_transfer_t *t = link->buffered;
    if (t != NULL) {
        link->buffered = t->next;
    }
    (void)pthread_mutex_unlock(&link->transfer_lock);
    return t;
}

/* The transfer is over. Its refusal is kept if it is the first, else logged. A rank that sent to itself knows
 * already. Stuck requests keep their memory. */
static void finish(plait_mpi_link_t *link, plait_mpi_transfer_t *t)
{
    bool is_told = (t->status == PLAIT_OK) || (t->buffered.peer == link->rank);

    plait_mpi_end_requests(t);
    (void)pthread_mutex_lock(&link->transfer_lock);
    link->held_bytes -= held_by(t);
    if (!is_told && (link->refused == PLAIT_OK)) {
        link->refused = t->status;
        memcpy(link->refused_text, t->why, sizeof(link->refused_text));
        is_told = true;
        atomic_fetch_add(&link->n_pending, 1);
    }
    (void)pthread_mutex_unlock(&link->transfer_lock);
    if (!is_told) {
        plait_log(PLAIT_LOG_ERROR, "rank %d: a buffered send: %s", link->rank, t->why);
    }
    atomic_fetch_sub(&link->n_pending, 1);
    if (!atomic_load_explicit(&link->is_stuck, memory_order_relaxed)) {
        plait_mpi_transfer_give(t);
    }
}

/* Advances the first transfer in line; whether there was one that is over now. */
static bool look(plait_mpi_link_t *link)
{
    plait_mpi_transfer_t *t = next_in_line(link);
    bool is_over = false;

    if (t != NULL) {
        while (plait_mpi_advance_send(t)) {
        }
        is_over = (t->send_stage == PLAIT_MPI_ENDED);
        if (is_over) {
            finish(link, t);
        } else {
            line_up(link, t);
        }
    }
    return is_over;
}

static bool reserve(plait_mpi_link_t *link, int64_t n_bytes)
{
    (void)pthread_mutex_lock(&link->transfer_lock);
    bool fits = (link->held_bytes + n_bytes <= PLAIT_BUFFERED_BYTES);
    if (fits) {
        link->held_bytes += n_bytes;
    }
    (void)pthread_mutex_unlock(&link->transfer_lock);
    return fits;
}

/* A transfer that holds the message itself. */
static plait_status_t buffer(plait_mpi_link_t *link, const plait_half_t *send,
                             plait_mpi_transfer_t **t_p)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_transfer_t *t = plait_mpi_transfer_take(link);

    PLAIT_CHECK(t != NULL, PLAIT_ERR_NO_MEMORY, "rank %d send: no memory", link->rank);
    plait_mpi_transfer_reset(t, link, send, NULL);
    t->buffered = *send;
    t->send = &t->buffered;
    if (send->n_bytes > PLAIT_MPI_INLINE_BYTES) { /* else the header's message has it */
        PLAIT_CHECK(plait_mpi_transfer_has_copy(t), PLAIT_ERR_NO_MEMORY,
                    "rank %d send: no memory", link->rank);
        memcpy(t->copy, send->data, (size_t)send->n_bytes);
        t->buffered.data = t->copy;
    }
    *t_p = t;
    t = NULL;
done:
    if (t != NULL) {
        plait_mpi_transfer_give(t);
    }
    return status;
}

plait_status_t plait_mpi_send(plait_session_t *session, const plait_half_t *send)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    plait_wait_t wait = plait_wait_begin("send", PLAIT_ANY);
    plait_mpi_transfer_t *t = NULL;
    int64_t n_bytes = (int64_t)sizeof(*t) + send->n_bytes;

    PLAIT_TRY(plait_mpi_check_half(link, send, false));
    PLAIT_CHECK(send->n_bytes <= PLAIT_SEND_BYTES, PLAIT_ERR_INTERNAL,
                "rank %d send: %lld bytes are too many for a buffer", link->rank,
                (long long)send->n_bytes);
    while (!reserve(link, n_bytes)) {
        if (!look(link)) {
            PLAIT_TRY(plait_wait_turn(&wait));
        }
    }
    status = buffer(link, send, &t);
    if (status == PLAIT_OK) {
        atomic_fetch_add(&link->n_pending, 1);
        plait_mpi_start_send(t);
        status = t->status;
    }
    if (status == PLAIT_OK) {
        line_up(link, t);
    } else if (t != NULL) {
        t->status = PLAIT_OK; /* reported by this call */
        finish(link, t);
    } else {
        (void)pthread_mutex_lock(&link->transfer_lock);
        link->held_bytes -= n_bytes;
        (void)pthread_mutex_unlock(&link->transfer_lock);
    }
done:
    return status;
}

bool plait_mpi_is_leaving(const plait_endpoint_t *end)
{
    plait_mpi_link_t *link = end->state;
    bool is_leaving = false;

    (void)pthread_mutex_lock(&link->transfer_lock);
    for (plait_mpi_transfer_t *t = link->buffered; t != NULL && !is_leaving;
         t = t->next) {
        bool has_left = true;
        is_leaving = plait_mpi_poll_out(t, &has_left) == PLAIT_OK && !has_left;
    }
    (void)pthread_mutex_unlock(&link->transfer_lock);
    return is_leaving;
}

plait_status_t plait_mpi_refusal(plait_session_t *session)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    char text[sizeof(link->refused_text)];

    if (atomic_load_explicit(&link->n_pending, memory_order_relaxed) == 0) {
        return PLAIT_OK;
    }
    for (int i = 0; i < LOOKS; i++) {
        (void)look(link);
    }
    (void)pthread_mutex_lock(&link->transfer_lock);
    status = link->refused;
    memcpy(text, link->refused_text, sizeof(text));
    link->refused = PLAIT_OK;
    (void)pthread_mutex_unlock(&link->transfer_lock);
    if (status != PLAIT_OK) {
        atomic_fetch_sub(&link->n_pending, 1);
        (void)plait_fail(status, "a buffered send: %s", text);
    }
    return status;
}

/* No receiver has answered in time. If MPI gave the number of these duplicates to another communicator, the
 * message could be taken for one of that communicator; as long as this rank keeps the duplicates, MPI does
 * not. */
static void give_up(plait_mpi_link_t *link, plait_mpi_transfer_t *t)
{
    link->has_lost = true;
    plait_log(PLAIT_LOG_WARN,
              "rank %d close: the message to rank %d with tag %d, %lld bytes, was not "
              "received yet",
              link->rank, t->buffered.peer, t->buffered.tag,
              (long long)t->buffered.n_bytes);
    t->status = PLAIT_OK;
    finish(link, t);
}

void plait_mpi_drain(plait_mpi_link_t *link, int64_t until_ns)
{
    const struct timespec nap = {.tv_nsec = DRAIN_NAP_NS};
    plait_mpi_transfer_t *t = NULL;

    while ((link->buffered != NULL) && (plait_clock_ns() < until_ns)) {
        if (!look(link)) {
            (void)nanosleep(&nap, NULL);
        }
    }
    while ((t = next_in_line(link)) != NULL) {
        give_up(link, t);
    }
    if (link->refused != PLAIT_OK) {
        plait_log(PLAIT_LOG_ERROR, "rank %d close: a buffered send: %s", link->rank,
                  link->refused_text);
        link->refused = PLAIT_OK;
        atomic_fetch_sub(&link->n_pending, 1);
    }
}
