/* Messages between devices through pinned host memory and the transport's own messages. In round k every rank
 * sends to rank + k and receives from rank - k. Messages are cut into chunks. While one chunk comes down from
 * the device, the transport moves the chunk before it, and the chunk before that goes up to the device.
 * Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005 (pairwise exchange). */
#include "transport/staged.h"

#include "base/checked.h"
#include "base/status.h"
#include "device/pool.h"
#include "transport/device_link.h"
#include "transport/gpu_aware.h"

enum {
    ONE_CHUNK = 64 << 10, /* up to this size a copy takes no longer than its start */
    FIRST_CHUNK = 512 << 10,
    MAX_CHUNK = 2 << 20,
    MIN_CHUNKS = 4 /* at least, of larger messages */
};

/* The next chunk of a message of which `at` bytes are done. Between two chunks the transport waits for some
 * calls of the device's library (10 us, at 50 GB/s the time of 512 KiB). It has nothing to do before the first
 * chunk is down, nor while the last chunk goes up. So chunks grow from a small one, and shrink to a small one.
 * All chunks in flight stay in a cache: 6.5 GB/s; with 8 MiB it was 5 (two processes on an H100). */
int64_t plait_staged_chunk(int64_t n_bytes, int64_t at)
{
    const int64_t n_left = n_bytes - at;
    const int64_t least = plait_min(FIRST_CHUNK, n_bytes / MIN_CHUNKS);
    const int64_t size =
        plait_min(MAX_CHUNK, plait_max(least, plait_min(at, n_left / 2)));

    return (n_bytes <= ONE_CHUNK)
               ? n_left
               : plait_min(n_left, (size + ONE_CHUNK - 1) / ONE_CHUNK * ONE_CHUNK);
}

int64_t plait_staged_largest_chunk(int64_t n_bytes)
{
    int64_t largest = 0;

    for (int64_t at = 0; at < n_bytes;) {
        const int64_t chunk = plait_staged_chunk(n_bytes, at);
        largest = plait_max(largest, chunk);
        at += chunk;
    }
    return largest;
}

/* A chunk out and a chunk in, with addresses of the device; n_bytes 0: none. */
typedef struct {
    plait_message_t out, in;
} pair_t;

/* Walks over all pairs of chunks, round after round. */
typedef struct {
    int rank, size, round;
    bool is_begun;         /* the round has begun */
    int64_t out_at, in_at; /* bytes of its messages that are done */
    int n_sends, n_recvs;
    const plait_message_t *sends, *recvs;
    pair_t whole; /* messages of this round */
} walk_t;

static plait_message_t message_with(const plait_message_t messages[], int n, int peer)
{
    plait_message_t found = {.peer = peer};

    for (int i = 0; i < n; i++) {
        found = (messages[i].peer == peer) ? messages[i] : found;
    }
    return found;
}

/* The next chunk of a message. */
static plait_message_t take_chunk(const plait_message_t *message, int64_t *at_p)
{
    const int64_t n_bytes = plait_staged_chunk(message->n_bytes, *at_p);
    const plait_message_t chunk = {.peer = message->peer,
                                   .data = (message->data != NULL && n_bytes > 0)
                                               ? (char *)message->data + *at_p
                                               : NULL,
                                   .n_bytes = n_bytes};

    *at_p += n_bytes;
    return chunk;
}

/* False after the last pair. */
static bool next_pair(walk_t *w, pair_t *pair)
{
    bool is_there = false;

    while (!is_there && w->round < w->size) {
        if (!w->is_begun) {
            w->whole.out =
                message_with(w->sends, w->n_sends, (w->rank + w->round) % w->size);
            w->whole.in = message_with(w->recvs, w->n_recvs,
                                       (w->rank - w->round + w->size) % w->size);
            w->is_begun = true;
        }
        pair->out = take_chunk(&w->whole.out, &w->out_at);
        pair->in = take_chunk(&w->whole.in, &w->in_at);
        is_there = pair->out.n_bytes > 0 || pair->in.n_bytes > 0;
        if (!is_there) {
            w->round++;
            w->is_begun = false;
            w->out_at = 0;
            w->in_at = 0;
        }
    }
    return is_there;
}

/* The largest chunk of all messages. */
static int64_t largest_chunk(int n, const plait_message_t messages[])
{
    int64_t largest = 0;

    for (int i = 0; i < n; i++) {
        largest = plait_max(largest, plait_staged_largest_chunk(messages[i].n_bytes));
    }
    return largest;
}

/* One exchange. It uses the execution's own stream if there is only one pair. */
typedef struct {
    plait_device_run_t *run;
    plait_staging_t *staging; /* NULL after a failure to get one */
    plait_stream_t down, up;
    char *spare; /* for messages without meaning */
    int64_t spare_bytes;
} exchange_t;

static void come_down(exchange_t *x, int i, const pair_t *pair)
{
    plait_status_t status = x->run->failure;

    if (status == PLAIT_OK && x->staging != NULL && pair->out.n_bytes > 0) {
        status = plait_staging_lower(x->staging, x->down, &x->staging->flights[i],
                                     pair->out.data, pair->out.n_bytes);
    }
    (void)plait_device_failed(x->run, status);
}

/* Waits until the flight's chunk is in host memory, and there is a place for the chunk that comes in. */
static void settle(exchange_t *x, int i, const pair_t *pair)
{
    plait_status_t status = x->run->failure;

    if (status == PLAIT_OK) {
        plait_flight_t *flight = &x->staging->flights[i];
        PLAIT_TRY(plait_staging_land(x->staging, flight));
        if (pair->out.n_bytes > 0) {
            PLAIT_TRY(plait_staging_lowered(x->staging, flight));
        }
    }
done:
    (void)plait_device_failed(x->run, status);
}

static void go_up(exchange_t *x, int i, const pair_t *pair)
{
    plait_status_t status = x->run->failure;

    if (status == PLAIT_OK && pair->in.n_bytes > 0) {
        status = plait_staging_raise(x->staging, x->up, &x->staging->flights[i],
                                     pair->in.data, pair->in.n_bytes);
    }
    (void)plait_device_failed(x->run, status);
}

/* A rank that has failed sends and receives in ordinary memory: copies may still use the staging's memory. If
 * there is not even that, the peers will wait. */
static plait_status_t need_spare(exchange_t *x)
{
    plait_status_t status = PLAIT_OK;
    void *spare = NULL;

    if (x->run->failure != PLAIT_OK && x->spare == NULL) {
        PLAIT_TRY(plait_pool_take(2 * x->spare_bytes, &spare));
        x->spare = spare;
    }
done:
    return status;
}

/* Sends and receives over the transport, whatever the flight has. */
static plait_status_t swap(exchange_t *x, int i, const pair_t *pair)
{
    plait_status_t status = PLAIT_OK;
    plait_session_t *session = x->run->session;
    plait_message_t out = pair->out;
    plait_message_t in = pair->in;

    PLAIT_TRY(need_spare(x));
    bool has_failed = x->run->failure != PLAIT_OK;
    out.data = has_failed ? x->spare : x->staging->flights[i].out;
    in.data = has_failed ? x->spare + x->spare_bytes : x->staging->flights[i].in;
    PLAIT_TRY(session->end->transport->exchange(session, out.n_bytes > 0, &out,
                                                in.n_bytes > 0, &in));
done:
    return status;
}

/* Copies begin after the work on the stream. */
static void begin(exchange_t *x, bool is_alone, int64_t n_bytes)
{
    plait_status_t status = x->run->failure;
    plait_device_run_t *run = x->run;

    if (status == PLAIT_OK) {
        PLAIT_TRY(plait_staging_take(run->device, n_bytes, &x->staging));
        x->down = is_alone ? run->stream : x->staging->down;
        x->up = is_alone ? run->stream : x->staging->up;
        if (!is_alone) {
            PLAIT_TRY(plait_staging_part(x->staging, run->stream));
        }
    }
done:
    (void)plait_device_failed(run, status);
}

/* The stream goes on when everything is there. */
static void end(exchange_t *x)
{
    plait_status_t status = x->run->failure;
    plait_device_run_t *run = x->run;

    if (status == PLAIT_OK && x->staging != NULL && x->up != run->stream) {
        status = plait_staging_join(x->staging, run->stream);
    }
    (void)plait_device_failed(run, status);
    if (status != PLAIT_OK && x->staging != NULL && x->up == run->stream) {
        (void)run->device->table->stream_wait(run->device,
                                              run->stream); /* as destroy does */
    }
    if (!plait_endpoint_is_stuck(run->session->end)) {
        plait_staging_give(x->staging, status == PLAIT_OK);
        plait_pool_give(x->spare);
    }
}

static bool is_one_pair(walk_t walk)
{
    pair_t pair;

    return next_pair(&walk, &pair) && !next_pair(&walk, &pair);
}

static plait_status_t staged_exchange(plait_device_run_t *run, int n_sends,
                                      const plait_message_t sends[], int n_recvs,
                                      const plait_message_t recvs[])
{
    const plait_endpoint_t *self = run->session->end;
    walk_t walk = {.rank = self->rank,
                   .size = self->size,
                   .round = 1,
                   .n_sends = n_sends,
                   .n_recvs = n_recvs,
                   .sends = sends,
                   .recvs = recvs};
    pair_t pairs[PLAIT_STAGED_FLIGHTS];
    exchange_t x = {.run = run,
                    .spare_bytes = plait_max(largest_chunk(n_sends, sends),
                                             largest_chunk(n_recvs, recvs))};
    int64_t n_begun = 0;
    bool is_more = x.spare_bytes > 0 && !run->is_lost;

    if (!is_more) {
        return run->failure;
    }
    begin(&x, is_one_pair(walk), x.spare_bytes);
    for (int64_t n_done = 0; is_more || n_done < n_begun; n_done++) {
        while (is_more && n_begun - n_done < PLAIT_STAGED_FLIGHTS) {
            int i = (int)(n_begun % PLAIT_STAGED_FLIGHTS);
            is_more = next_pair(&walk, &pairs[i]);
            if (is_more) {
                come_down(&x, i, &pairs[i]);
                n_begun++;
            }
        }
        int i = (int)(n_done % PLAIT_STAGED_FLIGHTS);
        if (n_done < n_begun && !run->is_lost) {
            settle(&x, i, &pairs[i]);
            plait_status_t swapped = swap(&x, i, &pairs[i]);
            run->is_lost = swapped != PLAIT_OK;
            (void)plait_device_failed(run, swapped);
            go_up(&x, i, &pairs[i]);
        }
    }
    end(&x);
    return run->failure;
}

static plait_status_t staged_can(const plait_endpoint_t *end,
                                 const plait_device_t *device)
{
    (void)end;
    (void)device;
    return plait_gpu_aware_may_stage();
}

const plait_device_link_t plait_link_staged = {
    .name = "staged",
    .is_blocking = true,
    .can = staged_can,
    .exchange = staged_exchange,
};
