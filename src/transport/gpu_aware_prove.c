/* The proof that MPI reads and writes device memory, by the link that will use it. Both ranks send and receive
 * at the same time, short and long messages, each twice, since libraries remember memory that they have
 * seen. */
#include "base/status.h"
#include "device/find.h"
#include "transport/device_link.h"
#include "transport/gpu_aware.h"
#include "transport/mpi.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LONG_BYTES = 1 << 20, N_ROUNDS = 2 };

static const int64_t sizes[] = {64, LONG_BYTES};

/* Buffers of LONG_BYTES each: for sending and for receiving. */
typedef struct {
    plait_device_run_t *run;
    char *sent, *received; /* on the device */
    char *host[2];         /* the same on the host */
} proof_t;

/* The bytes that a rank sends in a round; any two texts differ at every place. */
static char byte_of(int rank, int round, int64_t i)
{
    return (char)(i % 53 + 64 * (2 * (round % 2) + rank));
}

static plait_status_t check(const proof_t *p, int peer, int round, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_wrong = 0;

    PLAIT_CHECK(p->host[1] != NULL, PLAIT_ERR_INTERNAL, "nowhere to look for bytes");
    for (int64_t i = 0; i < n_bytes; i++) {
        n_wrong += p->host[1][i] != byte_of(peer, round, i);
    }
    PLAIT_CHECK(n_wrong == 0, PLAIT_ERR_UNSUPPORTED,
                "%lld of %lld bytes from device memory of rank %d are wrong",
                (long long)n_wrong, (long long)n_bytes, peer);
done:
    return status;
}

/* The receive buffer first holds this rank's own bytes. */
static plait_status_t fill(const proof_t *p, int round, int64_t n_bytes)
{
    plait_status_t status = p->run->failure;
    plait_device_run_t *run = p->run;
    plait_device_t *device = run->device;
    const plait_device_table_t *table = device->table;

    PLAIT_TRY(status);
    PLAIT_CHECK(p->host[0] != NULL, PLAIT_ERR_INTERNAL, "nowhere to put bytes");
    for (int64_t i = 0; i < n_bytes; i++) {
        p->host[0][i] = byte_of(run->session->end->rank, round, i);
    }
    PLAIT_TRY(table->to_device(device, run->stream, p->sent, p->host[0], n_bytes));
    PLAIT_TRY(table->to_device(device, run->stream, p->received, p->host[0], n_bytes));
done:
    return plait_device_failed(run, status);
}

/* Called even if this rank has failed, since the other rank waits for its messages. */
static plait_status_t exchange(const proof_t *p, int round, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_device_run_t *run = p->run;
    const plait_device_table_t *table = run->device->table;
    const int peer = 1 - run->session->end->rank;
    const plait_message_t out = {peer, p->sent, n_bytes};
    const plait_message_t in = {peer, p->received, n_bytes};

    (void)fill(p, round, n_bytes);
    PLAIT_TRY(run->link->exchange(run, 1, &out, 1, &in));
    PLAIT_TRY(
        table->to_host(run->device, run->stream, p->host[1], p->received, n_bytes));
    PLAIT_TRY(table->stream_wait(run->device, run->stream));
    PLAIT_TRY(check(p, peer, round, n_bytes));
done:
    return status;
}

static plait_status_t exchange_all(const proof_t *p)
{
    plait_status_t status = PLAIT_OK;
    char why[256] = ""; /* as much as a run keeps */

    for (int i = 0; i < 2 * N_ROUNDS && !p->run->is_lost; i++) {
        plait_status_t now = exchange(p, i, sizes[i / N_ROUNDS]);
        if (status == PLAIT_OK && now != PLAIT_OK) {
            status = now;
            (void)snprintf(why, sizeof(why), "%s",
                           (p->run->failure != PLAIT_OK) ? p->run->why
                                                         : plait_error_text());
        }
    }
    return (status == PLAIT_OK) ? PLAIT_OK : plait_fail(status, "%s", why);
}

static plait_status_t begin(proof_t *p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_run_t *run = p->run;
    const plait_device_table_t *table = run->device->table;
    void *memory = NULL, *host = NULL;

    PLAIT_TRY(table->enter(run->device));
    run->is_inside = true;
    PLAIT_TRY(table->stream_create(run->device, &run->stream));
    PLAIT_TRY(run->link->open(run, &run->state));
    PLAIT_TRY(table->take(run->device, run->stream, 2 * LONG_BYTES, &memory));
    p->sent = memory;
    p->received = p->sent + LONG_BYTES;
    PLAIT_TRY(table->host_take(run->device, 2 * LONG_BYTES, &host));
    p->host[0] = host;
    p->host[1] = p->host[0] + LONG_BYTES;
done:
    return plait_device_failed(run, status);
}

static void end(const proof_t *p)
{
    plait_device_run_t *run = p->run;
    const plait_device_table_t *table = run->device->table;

    if (run->stream != NULL) {
        (void)table->stream_wait(run->device, run->stream);
    }
    if (p->host[0] != NULL) {
        table->host_give(run->device, p->host[0]);
    }
    if (p->sent != NULL) {
        table->give(run->device, run->stream, p->sent);
    }
    if (run->state != NULL) {
        run->link->close(run->device, run->state, true);
    }
    if (run->stream != NULL) {
        table->stream_destroy(run->device, run->stream);
    }
    if (run->is_inside) {
        table->leave(run->device);
    }
}

plait_status_t plait_gpu_aware_prove(int ordinal)
{
    plait_status_t status = PLAIT_OK;
    plait_endpoint_t endpoint = {.rank = 0};
    plait_session_t session = {.end = &endpoint};
    plait_device_run_t run = {.session = &session, .link = &plait_link_mpi};
    proof_t proof = {.run = &run};
    uint64_t world = 0;
    int64_t id = 0;
    const char *why = NULL;

    PLAIT_TRY(plait_device_find(ordinal, &run.device));
    PLAIT_TRY(plait_mpi_world(&world));
    PLAIT_TRY(plait_mpi_open(world, 2, -1, &id, &endpoint, &why));
    PLAIT_TRY(endpoint.transport->begin(&session, true));
    (void)begin(&proof);
    status = exchange_all(&proof);
    end(&proof);
    endpoint.transport->end(&session);
done:
    if (endpoint.transport != NULL) {
        endpoint.transport->close(&endpoint);
    }
    return status;
}
