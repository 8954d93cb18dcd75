#include "transport/self.h"

#include "base/status.h"

#include <string.h>

static void self_close(plait_endpoint_t *end)
{
    end->state = NULL;
}

static plait_status_t self_begin(plait_session_t *session, bool is_collective)
{
    (void)session;
    (void)is_collective;
    return PLAIT_OK;
}

static void self_end(plait_session_t *session)
{
    (void)session;
}

/* One record, kept for the thread: sessions of one thread do not overlap. Nothing is
 * published: the only rank has all it needs. */
static plait_status_t self_fence(plait_session_t *session, const plait_record_t *mine,
                                 const void *bytes, int64_t n_bytes)
{
    static _Thread_local plait_record_t record;

    (void)bytes;
    (void)n_bytes;
    record = *mine;
    session->peers = (const char *)&record;
    session->peer_stride = sizeof(record);
    return PLAIT_OK;
}

static plait_status_t self_sendrecv(plait_session_t *session, const plait_half_t *send,
                                    const plait_half_t *recv,
                                    plait_matched_t *matched_p)
{
    plait_status_t status = PLAIT_OK;
    bool sends = send->peer != PLAIT_NO_RANK;
    bool receives = recv->peer != PLAIT_NO_RANK;

    (void)session;
    PLAIT_CHECK(sends == receives, PLAIT_ERR_MISMATCH,
                "rank 0 of 1 would wait for ever: it %s itself only",
                sends ? "sends to" : "receives from");
    if (!sends) {
        goto done;
    }
    PLAIT_CHECK(recv->tag == PLAIT_ANY || recv->tag == send->tag, PLAIT_ERR_MISMATCH,
                "rank 0 of 1 would wait for ever: it sends tag %d and receives tag %d",
                send->tag, recv->tag);
    PLAIT_CHECK(send->n_bytes <= recv->n_bytes, PLAIT_ERR_TRUNCATION,
                "message truncated, got %lld bytes, room for %lld",
                (long long)send->n_bytes, (long long)recv->n_bytes);
    PLAIT_CHECK(send->dtype == recv->dtype && send->n_bytes == recv->n_bytes,
                PLAIT_ERR_MISMATCH, "sent %s of %lld bytes, expected %s of %lld bytes",
                plait_dtype_name(send->dtype), (long long)send->n_bytes,
                plait_dtype_name(recv->dtype), (long long)recv->n_bytes);
    if (send->n_bytes > 0) {
        memmove(recv->data, send->data, (size_t)send->n_bytes);
    }
    *matched_p =
        (plait_matched_t){.source = 0, .tag = send->tag, .n_bytes = send->n_bytes};
done:
    return status;
}

static const plait_transport_t self_transport = {
    .name = "self",
    .close = self_close,
    .begin = self_begin,
    .end = self_end,
    .fence = self_fence,
    .sendrecv = self_sendrecv,
};

void plait_self_open(plait_endpoint_t *end)
{
    *end = (plait_endpoint_t){
        .transport = &self_transport,
        .rank = 0,
        .size = 1,
        .caps = {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = -1}};
}
