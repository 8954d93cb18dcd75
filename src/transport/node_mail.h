/* Matched transfers between the ranks of one node: messages in rings of the shared segment.
 *
 * A small message is in the ring itself. A buffered send is in a copy that the sender keeps. Larger data stay
 * in place: the receiver reads them there and answers, and the sender waits for the answer. For data in a
 * device's memory the message says where they are. The receiver takes them from there, or asks for the bytes,
 * which are then where the answer says.
 *
 * Partners that exchange small messages say in them what they expect, and do not wait for answers. If a
 * receiver's half does not fit a message whose sender does not wait, the receiver complains to the sender. The
 * sender learns of it in this call if it is the partner of an exchange, otherwise at the end of its next
 * operation. */
#ifndef PLAIT_TRANSPORT_NODE_MAIL_H
#define PLAIT_TRANSPORT_NODE_MAIL_H

#include "transport/transport.h"

#include <stdbool.h>

struct plait_mpi_link;
typedef struct plait_node_mail plait_node_mail_t;

plait_status_t plait_node_mail_create(struct plait_mpi_link *link,
                                      plait_node_mail_t **mail_p);

/* Whether all copies of sent messages were read: receivers do so in this process's memory. */
bool plait_node_mail_is_read(plait_node_mail_t *mail);

/* Waits a bounded time until the copies are read; whether they were. */
bool plait_node_mail_close(plait_node_mail_t *mail);

/* For a mail whose copies were read. */
void plait_node_mail_destroy(plait_node_mail_t **mail_p);

/* Takes in messages that have come, so that senders find room; for waits of other kinds. */
void plait_node_mail_progress(plait_node_mail_t *mail);

/* The failure of an earlier message, if its receiver complained; reported once. */
plait_status_t plait_node_mail_complaint(plait_node_mail_t *mail);

/* See transport.h. */
plait_status_t plait_node_mail_send(plait_node_mail_t *mail, const plait_half_t *send);
plait_status_t plait_node_mail_sendrecv(plait_node_mail_t *mail,
                                        const plait_half_t *send,
                                        const plait_half_t *recv,
                                        plait_matched_t *matched_p);

#endif
