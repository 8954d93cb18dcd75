/* Matched transfers between the ranks of one node: messages in rings of the shared segment.
 *
 * A small message is in the ring itself, a buffered send in a copy that the sender keeps, and
 * what is larger stays where it is: the receiver reads it there and answers, and the sender
 * waits for the answer. It does not wait for the answer to a small message with which it
 * receives one from elsewhere: a receiver whose half does not fit then complains to the
 * sender, who learns of it at the end of its next operation, or, where both are partners of
 * one sendrecv, in this one. */
#ifndef PLAIT_TRANSPORT_NODE_MAIL_H
#define PLAIT_TRANSPORT_NODE_MAIL_H

#include "transport/transport.h"

struct plait_mpi_link;
typedef struct plait_node_mail plait_node_mail_t;

plait_status_t plait_node_mail_create(struct plait_mpi_link *link,
                                      plait_node_mail_t **mail_p);

/* Waits a bounded time until the copies of sent messages were read. */
void plait_node_mail_destroy(plait_node_mail_t **mail_p);

/* Takes in what has come, so that senders find room; for waits of other kinds. */
void plait_node_mail_progress(plait_node_mail_t *mail);

/* The failure of a message sent earlier, if a receiver complained; told once. */
plait_status_t plait_node_mail_complaint(plait_node_mail_t *mail);

/* See transport.h. */
plait_status_t plait_node_mail_send(plait_node_mail_t *mail, const plait_half_t *send);
plait_status_t plait_node_mail_sendrecv(plait_node_mail_t *mail,
                                        const plait_half_t *send,
                                        const plait_half_t *recv,
                                        plait_matched_t *matched_p);

#endif
