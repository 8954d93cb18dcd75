/* Ranks of one node. Fences and small messages go through a shared segment; memory of peers is read in one copy
 * if the system permits it; everything else goes through MPI. */
#ifndef PLAIT_TRANSPORT_NODE_H
#define PLAIT_TRANSPORT_NODE_H

#include "transport/transport.h"

/* Functions of the table, see transport.h. */
void plait_node_arrive(plait_session_t *session, const plait_record_t *mine);
plait_status_t plait_node_wait(plait_session_t *session);
plait_status_t plait_node_fence(plait_session_t *session, const plait_record_t *mine,
                                const void *bytes, int64_t n_bytes);

/* Not OK if any rank has left any fence before it was over: that rank's status. */
plait_status_t plait_node_check_given_up(const plait_session_t *session);

#endif
