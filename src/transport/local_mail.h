/* Messages between threads: a list of posted sends from which receivers take. The receiver copies straight from
 * the sender's memory and then tells the sender the verdict, so that both partners know of a mismatch. A
 * buffered send leaves a copy instead. If the receiver refuses the copy, the refusal is kept until the sender
 * asks for it. */
#ifndef PLAIT_TRANSPORT_LOCAL_MAIL_H
#define PLAIT_TRANSPORT_LOCAL_MAIL_H

#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct plait_letter plait_letter_t;

/* For one rank. Only its own threads sleep here: changes for other ranks do not wake them. */
typedef struct {
    pthread_cond_t changed;
    int64_t held_bytes; /* of its buffered letters */
} plait_mail_rank_t;

typedef struct {
    pthread_mutex_t mutex;
    plait_mail_rank_t *ranks;
    int n_ranks;
    plait_letter_t *first; /* oldest first */
    plait_letter_t *last;
    plait_letter_t *refused; /* buffered ones, until their senders know */
    _Atomic int n_refused;
} plait_mail_t;

/* After a failure there is nothing to clear, though clearing does no harm. */
plait_status_t plait_mail_init(plait_mail_t *mail, int n_ranks);

/* Logs messages that were never received, and refusals that no sender learnt of. */
void plait_mail_clear(plait_mail_t *mail);

/* Like the functions of the same name in transport.h. */
plait_status_t plait_mail_exchange(plait_mail_t *mail, int rank, int n_sends,
                                   const plait_message_t *sends, int n_recvs,
                                   const plait_message_t *recvs);
plait_status_t plait_mail_sendrecv(plait_mail_t *mail, int rank,
                                   const plait_half_t *send, const plait_half_t *recv,
                                   plait_matched_t *matched_p);
plait_status_t plait_mail_send(plait_mail_t *mail, int rank, const plait_half_t *send);
plait_status_t plait_mail_refusal(plait_mail_t *mail, int rank);

/* Whether a message for this receiving half is ready; whether a buffered send of n_bytes would not wait. */
bool plait_mail_has(plait_mail_t *mail, int rank, const plait_half_t *recv);
bool plait_mail_has_room(plait_mail_t *mail, int rank, int64_t n_bytes);

#endif
