/* Messages between threads: a list of posted sends that receivers take from. The receiver
 * copies straight from the sender's memory and then tells it the verdict, so both partners
 * know of a mismatch. */
#ifndef PLAIT_TRANSPORT_LOCAL_MAIL_H
#define PLAIT_TRANSPORT_LOCAL_MAIL_H

#include "transport/transport.h"

#include <pthread.h>

typedef struct plait_letter plait_letter_t;

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    plait_letter_t *first; /* oldest first */
} plait_mail_t;

void plait_mail_init(plait_mail_t *mail);
void plait_mail_clear(plait_mail_t *mail);

/* As the functions of the same name in transport.h. */
plait_status_t plait_mail_exchange(plait_mail_t *mail, int rank, int n_sends,
                                   const plait_message_t *sends, int n_recvs,
                                   const plait_message_t *recvs);
plait_status_t plait_mail_sendrecv(plait_mail_t *mail, int rank,
                                   const plait_half_t *send, const plait_half_t *recv,
                                   plait_matched_t *matched_p);

#endif
