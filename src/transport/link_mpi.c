/* Ranks whose MPI reads and writes device memory, as was proved (gpu_aware.h). MPI moves the data when it is
 * called and knows nothing of streams. So the calling thread waits until all work before an exchange is done.
 *
 * The proof holds for memory that plait allocates. MPI may not know memory of other allocators that cannot be
 * shown to other processes: arrays in such memory are copied on the device.
 *
 * Matched transfers need no agreement with other ranks: MPI moves data of a device here to wherever the partner
 * has its array. */
#include "base/alloc.h"
#include "base/status.h"
#include "device/pool.h"
#include "transport/device_link.h"
#include "transport/gpu_aware.h"
#include "transport/mpi_link.h"

#include <string.h>

typedef struct {
    plait_event_t *ready; /* after all work before an exchange */
} state_t;

bool plait_device_is_of_process(const plait_endpoint_t *end)
{
    return end->transport == &plait_node_transport ||
           end->transport == &plait_cluster_transport ||
           end->transport == &plait_mpi_transport;
}

static unsigned distances_of(const plait_mpi_link_t *link)
{
    unsigned distances = 0;

    for (int r = 0; r < link->size; r++) {
        const int n_near = link->cards[r].node_size;
        distances |= (n_near > 1) ? PLAIT_AWARE_NEAR : 0U;
        distances |= (n_near < link->size) ? PLAIT_AWARE_FAR : 0U;
    }
    return distances;
}

static plait_status_t mpi_can(const plait_endpoint_t *end, const plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(plait_device_is_of_process(end), PLAIT_ERR_UNSUPPORTED,
                "ranks are not MPI processes with a device each");
    PLAIT_TRY(plait_gpu_aware_can(device, distances_of(end->state)));
done:
    return status;
}

static void mpi_close(plait_device_t *device, void *state, bool is_whole)
{
    state_t *link = state;

    (void)is_whole;
    if (link->ready != NULL) {
        device->table->event_destroy(device, link->ready);
    }
    plait_free(link);
}

static plait_status_t mpi_open(plait_device_run_t *run, void **state_p)
{
    plait_status_t status = PLAIT_OK;
    state_t *link = plait_alloc(1, sizeof(*link));

    PLAIT_CHECK(link != NULL, PLAIT_ERR_NO_MEMORY, "no memory for an event");
    PLAIT_TRY(run->device->table->event_create(run->device, &link->ready));
    *state_p = link;
    link = NULL;
done:
    if (link != NULL) {
        mpi_close(run->device, link, true);
    }
    return status;
}

/* ---- an exchange ---- */

/* Messages as MPI gets them, all in one list: the messages that are sent come first. */
typedef struct {
    plait_device_run_t *run;
    int n_sends, n;
    const plait_message_t *given; /* with their places on the device */
    plait_message_t *mail;
    void **copies; /* of each message whose place MPI cannot read; else NULL */
    void *spare;   /* for messages to a rank that has failed */
} exchange_t;

static plait_status_t copy(const plait_device_run_t *run, void *dst, const void *src,
                           int64_t n)
{
    plait_device_t *device = run->device;

    return device->table->copy(device, run->stream, dst, NULL, src, n);
}

/* The place where MPI finds n_bytes, or puts them: `data`, or a copy of it. */
static plait_status_t place(plait_device_run_t *run, void *data, int64_t n_bytes,
                            bool is_send, void **copy_p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = run->device;
    const plait_device_table_t *table = device->table;
    plait_device_shown_t shown;
    plait_status_t is_shown =
        (table->memory_export != NULL && n_bytes > 0)
            ? table->memory_export(device, data, n_bytes, false, &shown)
            : PLAIT_OK;

    if (is_shown == PLAIT_ERR_UNSUPPORTED) {
        PLAIT_TRY(table->take(device, run->stream, n_bytes, copy_p));
        if (is_send) {
            PLAIT_TRY(copy(run, *copy_p, data, n_bytes));
        }
    }
    status = (is_shown == PLAIT_ERR_UNSUPPORTED) ? PLAIT_OK : is_shown;
done:
    return status;
}

/* Waits until MPI may read the data to be sent, and nobody reads any more the memory that MPI will write. */
static plait_status_t prepare(exchange_t *x)
{
    plait_status_t status = PLAIT_OK;
    plait_device_run_t *run = x->run;
    const state_t *link = run->state;

    for (int i = 0; i < x->n; i++) {
        PLAIT_TRY(place(run, x->given[i].data, x->given[i].n_bytes, i < x->n_sends,
                        &x->copies[i]));
        x->mail[i].data = (x->copies[i] != NULL) ? x->copies[i] : x->given[i].data;
    }
    PLAIT_TRY(run->device->table->event_record(run->device, link->ready, run->stream));
    PLAIT_TRY(run->device->table->event_wait(run->device, link->ready));
done:
    return status;
}

/* Peers wait for messages of a rank that has failed: it sends empty messages, and receives into host memory. */
static plait_status_t prepare_nothing(exchange_t *x)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_bytes = 0;
    char *at = NULL;

    for (int i = x->n_sends; i < x->n; i++) {
        n_bytes += x->given[i].n_bytes;
    }
    PLAIT_TRY(plait_pool_take(n_bytes, &x->spare));
    at = x->spare;
    for (int i = 0; i < x->n; i++) {
        x->mail[i].data = (i < x->n_sends) ? NULL : at;
        at += (i < x->n_sends) ? 0 : x->given[i].n_bytes;
    }
done:
    return status;
}

static plait_status_t bring(const exchange_t *x)
{
    plait_status_t status = PLAIT_OK;

    for (int i = x->n_sends; i < x->n; i++) {
        if (x->copies[i] != NULL) {
            PLAIT_TRY(
                copy(x->run, x->given[i].data, x->copies[i], x->given[i].n_bytes));
        }
    }
done:
    return status;
}

static void swap(exchange_t *x)
{
    plait_device_run_t *run = x->run;
    plait_status_t status = run->failure;

    if (status == PLAIT_OK) {
        status = plait_device_failed(run, prepare(x));
    }
    if (status != PLAIT_OK) {
        status = prepare_nothing(x);
    }
    if (status == PLAIT_OK) {
        status = plait_mpi_exchange(run->session, x->n_sends, x->mail,
                                    x->n - x->n_sends, x->mail + x->n_sends);
    }
    run->is_lost = status != PLAIT_OK;
    (void)plait_device_failed(run, status);
    if (run->failure == PLAIT_OK) {
        (void)plait_device_failed(run, bring(x));
    }
}

/* If a message never ended, MPI may still write to the memory that it was given: that memory is kept. */
static void finish(exchange_t *x)
{
    plait_device_t *device = x->run->device;

    if (!plait_endpoint_is_stuck(x->run->session->end)) {
        for (int i = 0; i < x->n; i++) {
            if (x->copies[i] != NULL) {
                device->table->give(device, x->run->stream, x->copies[i]);
            }
        }
        plait_pool_give(x->spare);
    }
}

static plait_status_t mpi_exchange(plait_device_run_t *run, int n_sends,
                                   const plait_message_t sends[], int n_recvs,
                                   const plait_message_t recvs[])
{
    plait_status_t status = PLAIT_OK;
    const size_t n = (size_t)n_sends + (size_t)n_recvs;
    exchange_t x = {.run = run, .n_sends = n_sends, .n = n_sends + n_recvs};
    void *memory = NULL;

    if (run->is_lost || n == 0) {
        return run->failure;
    }
    status = plait_pool_take((int64_t)(n * (2 * sizeof(*x.mail) + sizeof(*x.copies))),
                             &memory);
    if (status != PLAIT_OK) {
        run->is_lost = true;
        return plait_device_failed(run, status);
    }
    plait_message_t *given = memory;
    x.mail = given + n;
    x.copies = (void **)(void *)(x.mail + n);
    for (size_t i = 0; i < n; i++) {
        given[i] = (i < (size_t)n_sends) ? sends[i] : recvs[i - (size_t)n_sends];
        x.mail[i] = given[i];
        x.copies[i] = NULL;
    }
    x.given = given;
    swap(&x);
    finish(&x);
    plait_pool_give(memory);
    return run->failure;
}

/* ---- matched transfers ---- */

/* Asked only once: the answer is in a file. */
static bool matched_can(const plait_endpoint_t *end, const plait_device_t *device)
{
    plait_mpi_link_t *link = end->moves_chunks ? end->state : NULL;

    if (link != NULL && atomic_load(&link->is_aware) == PLAIT_MPI_NOT_ASKED) {
        atomic_store(&link->is_aware, (mpi_can(end, device) == PLAIT_OK)
                                          ? PLAIT_MPI_AWARE
                                          : PLAIT_MPI_UNAWARE);
    }
    return link != NULL && atomic_load(&link->is_aware) == PLAIT_MPI_AWARE;
}

static plait_status_t matched_place(plait_device_run_t *run, const plait_half_t *half,
                                    bool is_send, void **data_p)
{
    void *aside = NULL;
    plait_status_t status = place(run, half->data, half->n_bytes, is_send, &aside);

    *data_p = (aside != NULL) ? aside : half->data;
    return status;
}

static plait_status_t matched_displace(plait_device_run_t *run,
                                       const plait_half_t *half, void *data,
                                       bool is_brought)
{
    plait_status_t status = PLAIT_OK;

    if (data != half->data) {
        if (is_brought) {
            status = copy(run, half->data, data, half->n_bytes);
        }
        if (!plait_endpoint_is_stuck(run->session->end)) {
            run->device->table->give(run->device, run->stream, data);
        }
    }
    return status;
}

static const plait_matched_link_t matched = {
    .can = matched_can,
    .place = matched_place,
    .displace = matched_displace,
};

const plait_device_link_t plait_link_mpi = {
    .name = "mpi",
    .is_blocking = true,
    .can = mpi_can,
    .open = mpi_open,
    .close = mpi_close,
    .exchange = mpi_exchange,
    .matched = &matched,
};
