/* Matched transfers of arrays on a device. The host's messages match and are judged as always. The data go in
 * one of three ways:
 *   - the message says where the bytes are, by a link that can do that;
 *   - MPI is given the addresses on the device;
 *   - the bytes are staged: in chunks if the transport moves chunks; in one piece if a receiver reads the
 *     sender's memory, and if they are few. */
#include "base/checked.h"
#include "base/status.h"
#include "transport/device_link.h"
#include "transport/matched.h"
#include "transport/staged_half.h"

#include <stddef.h>

/* One half: as it is on the device, and as the transport has it. */
typedef struct {
    plait_parcel_t parcel; /* the first member: its functions get it */
    plait_device_run_t *run;
    const plait_matched_link_t *by; /* NULL: staged */
    void *state;
    bool is_send;
    plait_half_t here;  /* addresses of the device */
    plait_half_t there; /* with addresses of the host, or the library's */
    plait_sending_t sending;
    bool is_in_chunks;
    plait_staged_half_t chunks;
    void *pinned; /* for a message staged in one piece */
    void *placed;
} side_t;

static side_t *side_of(plait_parcel_t *parcel)
{
    void *side = parcel;

    return side;
}

static bool has_bytes(const side_t *side)
{
    return plait_half_is_given(&side->here) && side->here.n_bytes > 0;
}

/* A partner that is sent such a half, or sends to it, learns of the failure. */
static plait_half_t refused_half(const plait_half_t *half)
{
    plait_half_t refused = *half;

    refused.data = NULL;
    refused.n_bytes = 0;
    refused.dtype = (plait_dtype_t)plait_matched_refusing(plait_half_content(half));
    refused.tree = 0;
    return refused;
}

/* Takes pinned memory. When sending, fills it with the bytes, for which the thread waits. */
static plait_status_t stage(plait_parcel_t *parcel, void **data_p)
{
    side_t *side = side_of(parcel);
    plait_device_run_t *run = side->run;
    const plait_device_table_t *table = run->device->table;
    plait_status_t status = run->failure;

    PLAIT_TRY(status);
    PLAIT_TRY(table->host_take(run->device, side->here.n_bytes, &side->pinned));
    if (side->is_send) {
        PLAIT_TRY(table->to_host(run->device, run->stream, side->pinned,
                                 side->here.data, side->here.n_bytes));
        PLAIT_TRY(table->stream_wait(run->device, run->stream));
    }
    *data_p = side->pinned;
done:
    return plait_device_failed(run, status);
}

/* Copies that have begun end before the source has its memory back. */
static plait_status_t take(plait_parcel_t *parcel, int source,
                           const plait_offer_t *offer)
{
    side_t *side = side_of(parcel);
    plait_device_run_t *run = side->run;
    plait_status_t status = run->failure;

    if (status == PLAIT_OK) {
        status = side->by->take(run, side->state, source, offer, side->here.data,
                                side->here.n_bytes, &parcel->receipt);
        (void)plait_device_failed(run, status);
        if (status != PLAIT_OK) {
            (void)run->device->table->stream_wait(run->device, run->stream);
        }
    }
    return status;
}

static plait_status_t next(plait_parcel_t *parcel, void **data_p)
{
    return plait_staged_half_next(&side_of(parcel)->chunks, data_p);
}

static bool is_placed(const side_t *side)
{
    return side->by != NULL && side->by->place != NULL;
}

static plait_status_t offer(side_t *side)
{
    side->sending = (plait_sending_t){
        .run = side->run,
        .state = side->state,
        .sent = {side->here.peer, side->here.data, side->here.n_bytes}};
    side->parcel.is_offered = true;
    return side->by->offer(&side->sending, &side->parcel.offer);
}

static plait_status_t prepare(side_t *side)
{
    plait_status_t status = side->run->failure;

    PLAIT_TRY(status);
    if (is_placed(side)) {
        PLAIT_TRY(
            side->by->place(side->run, &side->here, side->is_send, &side->placed));
        side->there.data = side->placed;
    } else if (side->by != NULL || side->is_in_chunks) {
        side->parcel.take = (side->by != NULL) ? take : NULL;
        side->there.parcel = &side->parcel;
        side->there.data = NULL;
        if (side->by == NULL) {
            PLAIT_TRY(plait_staged_half_begin(&side->chunks));
        } else if (side->is_send) {
            PLAIT_TRY(offer(side));
        }
    } else if (has_bytes(side)) {
        PLAIT_TRY(stage(&side->parcel, &side->there.data));
    }
done:
    return plait_device_failed(side->run, status);
}

/* Waits for the stream: a library that gets addresses of the device knows no streams. */
static plait_status_t settle_places(const side_t *out, const side_t *in)
{
    plait_device_run_t *run = out->run;
    plait_status_t status = run->failure;

    if (status == PLAIT_OK && (is_placed(out) || is_placed(in))) {
        status = run->device->table->stream_wait(run->device, run->stream);
    }
    return plait_device_failed(run, status);
}

/* Small messages are staged in one piece, and so are messages to this rank itself. */
static side_t make_side(plait_staged_call_t *call, const plait_half_t *half,
                        bool is_send)
{
    const plait_half_t none = {.peer = PLAIT_NO_RANK};
    const plait_half_t *given = plait_half_is_given(half) ? half : &none;
    const plait_endpoint_t *end = call->run->session->end;
    side_t side = {.parcel = {.stage = stage, .next = next},
                   .run = call->run,
                   .is_send = is_send,
                   .here = *given,
                   .there = *given,
                   .chunks = {.call = call,
                              .is_send = is_send,
                              .data = given->data,
                              .n_bytes = given->n_bytes}};

    if (given->n_bytes > PLAIT_MATCHED_STAGED_BYTES && given->peer != end->rank) {
        side.by = plait_device_matched_way(call->run, &side.state);
        side.is_in_chunks = side.by == NULL && end->moves_chunks;
        call->room = plait_max(call->room, plait_staged_largest_chunk(given->n_bytes));
    }
    return side;
}

/* Copies the bytes that came to the host up to the device. */
static plait_status_t bring(side_t *recv)
{
    plait_status_t status = plait_staged_half_bring(&recv->chunks);
    const plait_device_run_t *run = recv->run;
    const plait_device_table_t *table = run->device->table;

    PLAIT_TRY(status);
    if (recv->pinned != NULL) {
        PLAIT_TRY(table->to_device(run->device, run->stream, recv->here.data,
                                   recv->pinned, recv->here.n_bytes));
        PLAIT_TRY(table->stream_wait(run->device, run->stream));
    }
done:
    return status;
}

/* Also called after a failure. */
static void finish(side_t *side)
{
    const plait_device_run_t *run = side->run;
    const plait_parcel_t *parcel = &side->parcel;

    plait_staged_half_finish(&side->chunks);
    if (side->placed != NULL) {
        const bool is_brought = !side->is_send && run->failure == PLAIT_OK;
        (void)plait_device_failed(
            side->run,
            side->by->displace(side->run, &side->here, side->placed, is_brought));
    }
    if (side->is_send && side->sending.run != NULL) {
        (void)plait_device_failed(
            side->run, side->by->settle(&side->sending,
                                        parcel->is_taken ? &parcel->receipt : NULL));
    }
    if (side->pinned != NULL) {
        if (run->failure != PLAIT_OK) {
            (void)run->device->table->stream_wait(run->device, run->stream);
        }
        if (!plait_endpoint_is_stuck(run->session->end)) {
            run->device->table->host_give(run->device, side->pinned);
        }
    }
}

plait_status_t plait_device_sendrecv(plait_device_run_t *run, bool is_buffered,
                                     const plait_half_t *send, const plait_half_t *recv,
                                     plait_matched_t *matched_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_transport_t *transport = run->session->end->transport;
    plait_staged_call_t call = {.run = run};
    side_t out = make_side(&call, send, true);
    side_t in = make_side(&call, recv, false);

    if (prepare(&in) != PLAIT_OK || prepare(&out) != PLAIT_OK ||
        settle_places(&out, &in) != PLAIT_OK) {
        out.there = refused_half(&out.here);
        in.there = refused_half(&in.here);
    }
    status = (run->failure != PLAIT_OK && !plait_half_is_given(&out.here) &&
              !plait_half_is_given(&in.here))
                 ? run->failure
             : is_buffered
                 ? transport->send(run->session, &out.there)
                 : transport->sendrecv(run->session, &out.there, &in.there, matched_p);
    PLAIT_TRY(plait_device_failed(run, status));
    status = bring(&in);
done:
    (void)plait_device_failed(run, status);
    finish(&out);
    finish(&in);
    plait_staged_call_finish(&call);
    return run->failure;
}
