#include "transport/self.h"

#include "base/alloc.h"
#include "base/status.h"
#include "transport/local_mail.h"
#include "transport/matched.h"

#include <string.h>

/* The state holds messages that wait for this rank itself. */
static void self_close(plait_endpoint_t *end)
{
    if (end->state != NULL) {
        plait_mail_clear(end->state);
        plait_free(end->state);
        end->state = NULL;
    }
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

/* One record, kept for the thread: sessions of one thread do not overlap. Nothing is published: the only rank
 * has everything it needs. */
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

static plait_mail_t *mail_of(const plait_session_t *session)
{
    return session->end->state;
}

/* Nobody else could make room, so this does not wait for it. */
static plait_status_t self_send(plait_session_t *session, const plait_half_t *send)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(send->n_bytes <= PLAIT_SEND_BYTES &&
                    plait_mail_has_room(mail_of(session), 0, send->n_bytes),
                PLAIT_ERR_MISMATCH,
                "rank 0 of 1 would wait for ever: it sends itself %lld bytes and "
                "receives nothing before; %d bytes at once and %d in all are kept",
                (long long)send->n_bytes, PLAIT_SEND_BYTES, PLAIT_BUFFERED_BYTES);
    PLAIT_TRY(plait_mail_send(mail_of(session), 0, send));
done:
    return status;
}

static plait_status_t self_refusal(plait_session_t *session)
{
    (void)session; /* this rank itself was the receiver */
    return PLAIT_OK;
}

/* Both halves at once, straight from operand to result. */
static plait_status_t pass_on(const plait_half_t *send, const plait_half_t *recv,
                              plait_matched_t *matched_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(recv->tag == PLAIT_ANY || recv->tag == send->tag, PLAIT_ERR_MISMATCH,
                "rank 0 of 1 would wait for ever: it sends tag %d and receives tag %d",
                send->tag, recv->tag);
    PLAIT_CHECK(send->n_bytes <= recv->n_bytes, PLAIT_ERR_TRUNCATION,
                "message truncated, got %lld bytes, room for %lld",
                (long long)send->n_bytes, (long long)recv->n_bytes);
    PLAIT_CHECK(plait_half_content(send) == plait_half_content(recv) &&
                    send->n_bytes == recv->n_bytes,
                PLAIT_ERR_MISMATCH,
                "sent %s of %lld bytes, expected %s of %lld bytes%s",
                plait_dtype_name(send->dtype), (long long)send->n_bytes,
                plait_dtype_name(recv->dtype), (long long)recv->n_bytes,
                plait_matched_note(plait_half_content(send), plait_half_content(recv)));
    if (send->n_bytes > 0) {
        memmove(recv->data, send->data, (size_t)send->n_bytes);
    }
    *matched_p =
        (plait_matched_t){.source = 0, .tag = send->tag, .n_bytes = send->n_bytes};
done:
    return status;
}

/* Earlier messages are received first. */
static plait_status_t self_sendrecv(plait_session_t *session, const plait_half_t *send,
                                    const plait_half_t *recv,
                                    plait_matched_t *matched_p)
{
    static const plait_half_t none = {.peer = PLAIT_NO_RANK};
    plait_status_t status = PLAIT_OK;
    bool sends = send->peer != PLAIT_NO_RANK;
    bool receives = recv->peer != PLAIT_NO_RANK;

    if (receives && plait_mail_has(mail_of(session), 0, recv)) {
        if (sends) {
            PLAIT_TRY(self_send(session, send));
        }
        PLAIT_TRY(plait_mail_sendrecv(mail_of(session), 0, &none, recv, matched_p));
    } else if (sends || receives) {
        PLAIT_CHECK(sends == receives, PLAIT_ERR_MISMATCH,
                    "rank 0 of 1 would wait for ever: it %s itself only",
                    sends ? "sends to" : "receives from");
        PLAIT_TRY(pass_on(send, recv, matched_p));
    }
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
    .send = self_send,
    .refusal = self_refusal,
};

plait_status_t plait_self_open(plait_endpoint_t *end)
{
    plait_status_t status = PLAIT_OK;
    plait_mail_t *mail = plait_alloc(1, sizeof(*mail));

    PLAIT_CHECK(mail != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    PLAIT_TRY(plait_mail_init(mail, 1));
    *end = (plait_endpoint_t){
        .transport = &self_transport,
        .rank = 0,
        .size = 1,
        .caps = {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = -1},
        .state = mail};
    mail = NULL;
done:
    plait_free(mail);
    return status;
}
