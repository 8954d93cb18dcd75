/* The transport's own collectives, and matched transfers. */
#include "base/status.h"
#include "plan/exec_steps.h"
#include "transport/matched.h"

#include <string.h>

static plait_status_t run_bcast(plait_exec_t *exec, const plait_native_step_t *n)
{
    int64_t n_bytes = n->n * plait_dtype_bytes(n->dtype);
    char *src = exec->slot[n->src_slot];
    char *dst = exec->slot[n->dst_slot];

    if (exec->plan->rank == n->root && src != dst && n_bytes > 0) {
        memcpy(dst, src, (size_t)n_bytes);
    }
    return exec->session.end->transport->bcast(&exec->session, n->root, dst, n_bytes);
}

/* Without a source the result is the template. */
static plait_status_t run_sendrecv(plait_exec_t *exec, const plait_native_step_t *n)
{
    plait_status_t status = PLAIT_OK;
    char *dst = (n->dst_slot >= 0) ? exec->slot[n->dst_slot] : NULL;
    int64_t n_recv_bytes = n->n_recv * plait_dtype_bytes(n->recv_dtype);
    const plait_half_t send = {.peer = n->dest,
                               .tag = n->send_tag,
                               .data =
                                   (n->src_slot >= 0) ? exec->slot[n->src_slot] : NULL,
                               .n_bytes = n->n * plait_dtype_bytes(n->dtype),
                               .dtype = n->dtype};
    const plait_half_t recv = {.peer = n->source,
                               .tag = n->recv_tag,
                               .data = dst,
                               .n_bytes = n_recv_bytes,
                               .dtype = n->recv_dtype};
    plait_matched_t matched = {.source = PLAIT_NO_RANK, .tag = PLAIT_ANY};

    if (n->source == PLAIT_NO_RANK && n->dst_slot >= 0 && n->template_slot >= 0) {
        /* a failure is a device's; the steps that follow tell the partner */
        (void)plait_exec_copy(exec, n->dst_slot, n->template_slot, n_recv_bytes);
    }
    PLAIT_TRY(plait_exec_sendrecv(exec, n->is_buffered, &send, &recv, &matched));
    if (n->status_id != 0) {
        plait_matched_report(n->status_id, &matched);
    }
    if (exec->matched != NULL) {
        *exec->matched = matched;
    }
done:
    return status;
}

plait_status_t plait_exec_native(plait_exec_t *exec, const plait_native_step_t *n)
{
    const plait_transport_t *transport = exec->session.end->transport;

    switch (n->native) {
    case PLAIT_NATIVE_ALLREDUCE:
        return transport->allreduce(&exec->session, n->op, n->dtype, n->n,
                                    exec->slot[n->src_slot] + n->src_offset,
                                    exec->slot[n->dst_slot] + n->dst_offset);
    case PLAIT_NATIVE_BCAST:
        return run_bcast(exec, n);
    case PLAIT_NATIVE_BARRIER:
        return transport->barrier(&exec->session);
    case PLAIT_NATIVE_SENDRECV:
        return run_sendrecv(exec, n);
    }
    return PLAIT_OK;
}
