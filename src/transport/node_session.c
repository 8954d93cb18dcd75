#include "transport/mpi_transfer.h"
#include "transport/node.h"
#include "transport/node_copy.h"
#include "transport/node_mail.h"
#include "transport/node_map.h"

static plait_status_t node_read(plait_session_t *session, int peer,
                                const struct iovec *local, int64_t n_local,
                                const struct iovec *remote, int64_t n_remote)
{
    plait_mpi_link_t *link = plait_mpi_link_of(session);

    return plait_node_read(link->rank, peer, link->cards[peer].process.pid, local,
                           n_local, remote, n_remote);
}

/* First says what it is about to do, and then looks whether the peer has given up. The peer does the two in the
 * opposite order (node_fence.c), so one of them sees the other. */
static plait_status_t node_write(plait_session_t *session, int peer,
                                 const struct iovec *local, int64_t n_local,
                                 const struct iovec *remote, int64_t n_remote)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);
    plait_node_rank_t *mine = plait_node_rank(&link->segment, link->rank);

    atomic_fetch_add(&mine->n_writing, 1);
    PLAIT_TRY(plait_node_check_given_up(session));
    status = plait_node_write(link->rank, peer, link->cards[peer].process.pid, local,
                              n_local, remote, n_remote);
done:
    atomic_fetch_sub(&mine->n_writing, 1);
    return status;
}

static char *node_map(plait_session_t *session, int peer, uint64_t token)
{
    plait_mpi_link_t *link = plait_mpi_link_of(session);

    return plait_node_map(link->maps, peer, link->cards[peer].process.pid, token);
}

static void node_unmap(plait_session_t *session, int peer, uint64_t token)
{
    plait_node_unmap(plait_mpi_link_of(session)->maps, peer, token);
}

/* Messages that are not small need reads of the sender's memory. */
static plait_status_t node_sendrecv(plait_session_t *session, const plait_half_t *send,
                                    const plait_half_t *recv,
                                    plait_matched_t *matched_p)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);

    if (!link->is_node) {
        status = plait_mpi_sendrecv(session, send, recv, matched_p);
        goto done;
    }
    if (plait_half_is_given(send)) {
        PLAIT_TRY(plait_mpi_check_half(link, send, false));
    }
    if (plait_half_is_given(recv)) {
        PLAIT_TRY(plait_mpi_check_half(link, recv, true));
    }
    status = plait_node_mail_sendrecv(link->mail, send, recv, matched_p);
done:
    return status;
}

static plait_status_t node_send(plait_session_t *session, const plait_half_t *send)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);

    if (!link->is_node) {
        status = plait_mpi_send(session, send);
        goto done;
    }
    if (plait_half_is_given(send)) {
        PLAIT_TRY(plait_mpi_check_half(link, send, false));
    }
    status = plait_node_mail_send(link->mail, send);
done:
    return status;
}

static plait_status_t node_refusal(plait_session_t *session)
{
    plait_status_t status = PLAIT_OK;
    plait_mpi_link_t *link = plait_mpi_link_of(session);

    if (!link->is_node) {
        status = plait_mpi_refusal(session);
        goto done;
    }
    status = plait_node_mail_complaint(link->mail);
    if (status != PLAIT_OK) {
        plait_error_prefix("a buffered send: ");
    }
done:
    return status;
}

/* Large data that cannot be read go through MPI. */
const plait_transport_t plait_node_transport = {
    .name = "node",
    .close = plait_mpi_close,
    .begin = plait_mpi_begin,
    .end = plait_mpi_end,
    .abandon = plait_mpi_abandon,
    .is_stuck = plait_mpi_is_stuck,
    .fence = plait_node_fence,
    .arrive = plait_node_arrive,
    .wait = plait_node_wait,
    .read = node_read,
    .write = node_write,
    .map = node_map,
    .unmap = node_unmap,
    .exchange = plait_mpi_exchange,
    .allreduce = plait_mpi_allreduce,
    .bcast = plait_mpi_bcast,
    .barrier = plait_mpi_barrier,
    .sendrecv = node_sendrecv,
    .send = node_send,
    .refusal = node_refusal,
};
