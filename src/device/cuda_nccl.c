/* NCCL, opened at run time. Communicators for messages do not block: plait asks whether a call is done, so
 * that a thread that waits for a rank that does not come can give up. */
#include "device/cuda_nccl.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/wait.h"
#include "device/cuda_load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { SUCCESS = 0, IN_PROGRESS = 7, UINT8 = 1, OLDEST = 21800 };
enum { CONFIG_VERSION = 21400 };

/* The beginning of ncclConfig_t since 2.14. NCCL fills in members beyond this size or newer than this
 * version. */
struct plait_nccl_config {
    size_t n_bytes;
    unsigned magic, version;
    int blocking;
};

struct plait_nccl {
    const plait_cuda_t *call;
    plait_nccl_comm_t comm;
    int rank;
};

_Static_assert(sizeof(plait_nccl_unique_t) == sizeof(plait_nccl_id_t), "an id");

static plait_status_t must(const plait_cuda_t *call, plait_nccl_comm_t comm, int result,
                           const char *what)
{
    plait_status_t status = PLAIT_OK;
    const char *last = NULL;

    if (result != SUCCESS && result != IN_PROGRESS) {
        last = call->ncclGetLastError(comm);
        status = plait_fail(PLAIT_ERR_TRANSPORT, "NCCL: %s: %s (%d)%s%s", what,
                            call->ncclGetErrorString(result), result,
                            (last != NULL && last[0] != '\0') ? ", " : "",
                            (last != NULL) ? last : "");
    }
    return status;
}

static plait_status_t nccl_can(void)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *call = NULL;
    int version = 0;

    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_NCCL, &call));
    PLAIT_TRY(must(call, NULL, call->ncclGetVersion(&version), "asking its version"));
    PLAIT_CHECK(version >= OLDEST, PLAIT_ERR_UNSUPPORTED,
                "NCCL %d.%d of %s is too old, %d.%d is the least", version / 10000,
                version / 100 % 100, plait_cuda_path(PLAIT_CUDA_NCCL), OLDEST / 10000,
                OLDEST / 100 % 100);
done:
    return status;
}

static plait_status_t nccl_id(plait_nccl_id_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *call = NULL;
    plait_nccl_unique_t id;

    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_NCCL, &call));
    PLAIT_TRY(must(call, NULL, call->ncclGetUniqueId(&id), "making an id"));
    memcpy(id_p, &id, sizeof(id));
done:
    return status;
}

/* ---- its end ---- */

/* NCCL ends or aborts a communicator only when all its ranks of the node do so. Until then the call waits, and
 * nothing can end the wait. So a thread of its own makes the call. */
typedef struct {
    plait_nccl_t *nccl;
    bool is_whole;
    atomic_bool is_over;
    /* the thread and its waiter: the last one frees this */
    atomic_int n_holders;
} leaving_t;

/* How long to wait for a whole communicator: its peers end it, too. */
#define CLOSE_NS (INT64_C(10) * 1000000000)

static void release(leaving_t *l)
{
    if (atomic_fetch_sub(&l->n_holders, 1) == 1) {
        plait_free(l);
    }
}

static void leave(plait_nccl_t *nccl, bool is_whole)
{
    if (is_whole) {
        (void)nccl->call->ncclCommDestroy(nccl->comm);
    } else {
        (void)nccl->call->ncclCommAbort(nccl->comm);
    }
    plait_free(nccl);
}

static void *leave_main(void *argument)
{
    leaving_t *l = argument;

    leave(l->nccl, l->is_whole);
    atomic_store(&l->is_over, true);
    release(l);
    return NULL;
}

/* Without memory or a thread, this thread makes the call and may wait for peers. */
static void leave_aside(plait_nccl_t *nccl, bool is_whole, int64_t limit_ns)
{
    const int64_t latest_ns = plait_clock_ns() + limit_ns;
    plait_wait_t wait = plait_wait_begin("NCCL", -1);
    leaving_t *l = plait_alloc(1, sizeof(*l));
    pthread_t thread;

    if (l != NULL) {
        *l = (leaving_t){.nccl = nccl, .is_whole = is_whole};
        atomic_store(&l->n_holders, 2);
    }
    if (l == NULL || pthread_create(&thread, NULL, leave_main, l) != 0) {
        plait_free(l);
        leave(nccl, is_whole);
        return;
    }
    (void)pthread_detach(thread);
    while (!atomic_load(&l->is_over) && plait_clock_ns() < latest_ns &&
           plait_wait_turn(&wait) == PLAIT_OK) {
    }
    release(l);
}

static void nccl_abort(plait_nccl_t *nccl)
{
    leave_aside(nccl, false, 0);
}

static void nccl_close(plait_nccl_t *nccl)
{
    leave_aside(nccl, true, CLOSE_NS);
}

plait_status_t plait_cuda_nccl_open(const plait_nccl_id_t *id, int n_ranks, int rank,
                                    bool is_blocking, plait_nccl_t **nccl_p)
{
    plait_status_t status = PLAIT_OK;
    plait_nccl_config_t config = {.n_bytes = sizeof(config),
                                  .magic = 0xcafebeef,
                                  .version = CONFIG_VERSION,
                                  .blocking = is_blocking};
    plait_nccl_t *nccl = plait_alloc(1, sizeof(*nccl));
    plait_nccl_unique_t unique;

    PLAIT_CHECK(nccl != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for an NCCL communicator");
    memcpy(&unique, id, sizeof(unique));
    nccl->rank = rank;
    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_NCCL, &nccl->call));
    PLAIT_TRY(must(
        nccl->call, NULL,
        nccl->call->ncclCommInitRankConfig(&nccl->comm, n_ranks, unique, rank, &config),
        "making a communicator"));
    *nccl_p = nccl;
    nccl = NULL;
done:
    plait_free(nccl);
    return status;
}

static plait_status_t nccl_open(const plait_nccl_id_t *id, int n_ranks, int rank,
                                plait_nccl_t **nccl_p)
{
    return plait_cuda_nccl_open(id, n_ranks, rank, false, nccl_p);
}

plait_nccl_comm_t plait_cuda_nccl_comm(const plait_nccl_t *nccl)
{
    return nccl->comm;
}

static plait_status_t nccl_ask(plait_nccl_t *nccl, bool *is_over_p)
{
    plait_status_t status = PLAIT_OK;
    int state = SUCCESS;

    *is_over_p = true;
    PLAIT_TRY(must(nccl->call, nccl->comm,
                   nccl->call->ncclCommGetAsyncError(nccl->comm, &state),
                   "asking how it is"));
    PLAIT_TRY(must(nccl->call, nccl->comm, state, "an operation"));
    *is_over_p = state == SUCCESS;
done:
    return status;
}

static plait_status_t nccl_begin(plait_nccl_t *nccl)
{
    return must(nccl->call, nccl->comm, nccl->call->ncclGroupStart(), "a group");
}

static plait_status_t nccl_send(plait_nccl_t *nccl, plait_stream_t stream, int peer,
                                const void *data, int64_t n_bytes)
{
    return must(
        nccl->call, nccl->comm,
        nccl->call->ncclSend(data, (size_t)n_bytes, UINT8, peer, nccl->comm, stream),
        "a send");
}

static plait_status_t nccl_recv(plait_nccl_t *nccl, plait_stream_t stream, int peer,
                                void *data, int64_t n_bytes)
{
    return must(
        nccl->call, nccl->comm,
        nccl->call->ncclRecv(data, (size_t)n_bytes, UINT8, peer, nccl->comm, stream),
        "a receive");
}

static plait_status_t nccl_end(plait_nccl_t *nccl)
{
    return must(nccl->call, nccl->comm, nccl->call->ncclGroupEnd(), "a group");
}

const plait_device_nccl_t plait_cuda_nccl = {
    .can = nccl_can,
    .id = nccl_id,
    .open = nccl_open,
    .ask = nccl_ask,
    .begin = nccl_begin,
    .send = nccl_send,
    .recv = nccl_recv,
    .end = nccl_end,
    .close = nccl_close,
    .abort = nccl_abort,
};
