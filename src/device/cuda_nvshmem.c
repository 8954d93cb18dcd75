/* NVSHMEM, opened at run time. A process is one PE of one job, which the first communicator that asks for
 * NVSHMEM starts. It stays a PE until the process ends: leaving the job would wait for all other PEs. After
 * the first call that does not end as it should, no further call is made. */
#include "device/cuda_nvshmem.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "device/cuda_load.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { OLDEST = 3020 };          /* 1000 major + 10 minor */
enum { WITH_UNIQUEID = 1 << 3 }; /* NVSHMEMX_INIT_WITH_UNIQUEID */
enum { SIGNAL_SET = 9 };         /* NVSHMEM_SIGNAL_SET */
enum { COMPARE_GE = 5 };         /* NVSHMEM_CMP_GE */
enum { VERSION_1 = 1 << 16 };    /* of a structure; its size is added to this */

/* nvshmemx_init_status_t. MPG: several PEs on one GPU; if limited, PEs have no way to wait. */
enum { NOT_STARTED, WITHOUT_DEVICE, STARTED, LIMITED_MPG };

struct plait_nvshmem_unique {
    int version;
    char internal[124];
};

struct plait_nvshmem_attr {
    int version;
    void *mpi_comm;
    struct {
        int version;
        struct {
            int version;
            const plait_nvshmem_unique_t *id;
            int pe, n_pes;
        } unique;
        char content[96];
    } args;
};

/* As in the library's headers. */
_Static_assert(sizeof(plait_nvshmem_unique_t) == sizeof(plait_nvshmem_id_t), "an id");
_Static_assert(sizeof(plait_nvshmem_attr_t) == 144, "nvshmemx_init_attr_t");
_Static_assert(sizeof(((plait_nvshmem_attr_t *)0)->args) == 128,
               "nvshmemx_init_args_t");
_Static_assert(sizeof(((plait_nvshmem_attr_t *)0)->args.unique) == 24,
               "nvshmemx_uniqueid_args_t");

/* A process has one job; tests have one job for each of their devices. */
enum { MAX_JOBS = 16, WHY_BYTES = 240 };

typedef struct {
    const plait_device_t *device; /* NULL: free */
    plait_nvshmem_job_t job;
    char why[WHY_BYTES]; /* if set, why the job must not be used any more */
} slot_t;

static slot_t slots[MAX_JOBS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. The device's slot, or a free slot for it; NULL: there are too many devices. */
static slot_t *slot_of(const plait_device_t *device)
{
    slot_t *found = NULL;

    for (int i = MAX_JOBS - 1; i >= 0; i--) {
        found = (slots[i].device == NULL) ? &slots[i] : found;
    }
    for (int i = 0; i < MAX_JOBS; i++) {
        found = (slots[i].device == device) ? &slots[i] : found;
    }
    if (found != NULL) {
        found->device = device;
    }
    return found;
}

static plait_status_t find_slot(const plait_device_t *device, slot_t **slot_p)
{
    plait_status_t status = PLAIT_OK;

    (void)pthread_mutex_lock(&lock);
    slot_t *slot = slot_of(device);
    (void)pthread_mutex_unlock(&lock);
    PLAIT_CHECK(slot != NULL, PLAIT_ERR_UNSUPPORTED, "NVSHMEM: too many devices");
    PLAIT_CHECK(slot->why[0] == '\0', PLAIT_ERR_UNSUPPORTED, "%s", slot->why);
    *slot_p = slot;
done:
    return status;
}

/* Under the lock. The slot is not used any more; the thread's error text is the reason. */
static void refuse(slot_t *slot)
{
    (void)snprintf(slot->why, sizeof(slot->why), "%s", plait_error_text());
}

static plait_status_t require(const plait_cuda_t **call_p)
{
    return plait_cuda_require(PLAIT_CUDA_NVSHMEM, call_p);
}

static plait_status_t nvshmem_can(const plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *call = NULL;
    const plait_device_t *other = NULL;
    slot_t *slot = NULL;
    int major = 0, minor = 0, patch = 0;

    PLAIT_TRY(require(&call));
    call->nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    PLAIT_CHECK(1000 * major + 10 * minor >= OLDEST, PLAIT_ERR_UNSUPPORTED,
                "NVSHMEM %d.%d of %s is too old, %d.%d is the least", major, minor,
                plait_cuda_path(PLAIT_CUDA_NVSHMEM), OLDEST / 1000, OLDEST % 1000 / 10);
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_JOBS; i++) {
        bool is_other = slots[i].device != device && slots[i].job.n_pes > 0;
        other = is_other ? slots[i].device : other;
    }
    (void)pthread_mutex_unlock(&lock);
    PLAIT_CHECK(other == NULL, PLAIT_ERR_UNSUPPORTED,
                "NVSHMEM takes one device of a process, here device %d",
                other->ordinal);
    PLAIT_TRY(find_slot(device, &slot));
done:
    return status;
}

static plait_status_t nvshmem_look(const plait_device_t *device,
                                   plait_nvshmem_job_t **job_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *call = NULL;
    slot_t *slot = NULL;

    PLAIT_TRY(require(&call));
    PLAIT_TRY(find_slot(device, &slot));
    if (slot->job.n_pes == 0) {
        int state = call->nvshmemx_init_status();
        PLAIT_CHECK(state != WITHOUT_DEVICE && state != LIMITED_MPG,
                    PLAIT_ERR_UNSUPPORTED, "NVSHMEM was started before plait, %s",
                    (state == LIMITED_MPG) ? "with several processes on one GPU"
                                           : "without a device");
        slot->job.pe = (state != NOT_STARTED) ? call->nvshmem_my_pe() : 0;
        slot->job.n_pes = (state != NOT_STARTED) ? call->nvshmem_n_pes() : 0;
    }
    *job_p = &slot->job;
done:
    return status;
}

static plait_status_t nvshmem_id(plait_nvshmem_id_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *call = NULL;
    plait_nvshmem_unique_t id = {.version = VERSION_1 + (int)sizeof(id)};

    PLAIT_TRY(require(&call));
    int result = call->nvshmemx_get_uniqueid(&id);
    PLAIT_CHECK(result == 0, PLAIT_ERR_TRANSPORT, "NVSHMEM: making an id failed (%d)",
                result);
    memcpy(id_p, &id, sizeof(id));
done:
    return status;
}

/* NVSHMEM reports success even if it found no device, or no device that it can use. */
static plait_status_t judge_start(const plait_cuda_t *call, int result, int n_pes,
                                  int pe)
{
    plait_status_t status = PLAIT_OK;
    const int state = (result == 0) ? call->nvshmemx_init_status() : NOT_STARTED;

    PLAIT_CHECK(result == 0 && state >= STARTED, PLAIT_ERR_UNSUPPORTED,
                "NVSHMEM does not start (%d, status %d): NVSHMEM_DEBUG=INFO tells why",
                result, state);
    PLAIT_CHECK(state != LIMITED_MPG, PLAIT_ERR_UNSUPPORTED,
                "NVSHMEM: several processes share a GPU");
    PLAIT_CHECK(call->nvshmem_my_pe() == pe && call->nvshmem_n_pes() == n_pes,
                PLAIT_ERR_UNSUPPORTED, "NVSHMEM: PE %d of %d, and not %d of %d",
                call->nvshmem_my_pe(), call->nvshmem_n_pes(), pe, n_pes);
done:
    return status;
}

static plait_status_t nvshmem_start(const plait_device_t *device,
                                    const plait_nvshmem_id_t *id, int n_pes, int pe)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *call = NULL;
    plait_nvshmem_unique_t unique;
    plait_nvshmem_attr_t attr = {.version = VERSION_1 + (int)sizeof(attr)};
    slot_t *slot = NULL;

    PLAIT_TRY(require(&call));
    PLAIT_TRY(find_slot(device, &slot));
    memcpy(&unique, id, sizeof(unique));
    attr.args.version = VERSION_1 + (int)sizeof(attr.args);
    attr.args.unique.version = VERSION_1 + (int)sizeof(attr.args.unique);
    int result = call->nvshmemx_set_attr_uniqueid_args(pe, n_pes, &unique, &attr);
    if (result == 0) {
        result = call->nvshmemx_hostlib_init_attr(WITH_UNIQUEID, &attr);
    }
    status = judge_start(call, result, n_pes, pe);
    (void)pthread_mutex_lock(&lock);
    if (status == PLAIT_OK) {
        slot->job.pe = pe;
        slot->job.n_pes = n_pes;
        slot->job.number = plait_hash_bytes(PLAIT_HASH_SEED, id, sizeof(*id)) | 1;
    } else {
        refuse(slot);
    }
    (void)pthread_mutex_unlock(&lock);
done:
    return status;
}

static plait_status_t nvshmem_allocate(const plait_device_t *device, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *call = NULL;
    slot_t *slot = NULL;

    PLAIT_TRY(require(&call));
    PLAIT_TRY(find_slot(device, &slot));
    void *pool = call->nvshmem_malloc((size_t)n_bytes);
    (void)pthread_mutex_lock(&lock);
    if (pool == NULL) {
        status = plait_fail(PLAIT_ERR_UNSUPPORTED,
                            "NVSHMEM has no %lld bytes (PLAIT_NVSHMEM_BYTES, "
                            "NVSHMEM_SYMMETRIC_SIZE)",
                            (long long)n_bytes);
        refuse(slot);
    } else {
        slot->job.pool = pool;
        slot->job.pool_bytes = n_bytes;
    }
    (void)pthread_mutex_unlock(&lock);
done:
    return status;
}

/* ---- on a stream: a job is there, so the library is ---- */

static const plait_cuda_t *library(void)
{
    const plait_cuda_t *call = NULL;

    (void)require(&call);
    return call;
}

static void nvshmem_put(plait_stream_t stream, int pe, void *dst, const void *src,
                        int64_t n_bytes, uint64_t *signal, uint64_t value)
{
    library()->nvshmemx_putmem_signal_on_stream(dst, src, (size_t)n_bytes, signal,
                                                value, SIGNAL_SET, pe, stream);
}

static void nvshmem_signal(plait_stream_t stream, int pe, uint64_t *signal,
                           uint64_t value)
{
    library()->nvshmemx_signal_op_on_stream(signal, value, SIGNAL_SET, pe, stream);
}

static void nvshmem_await(plait_stream_t stream, uint64_t *signal, uint64_t value)
{
    library()->nvshmemx_signal_wait_until_on_stream(signal, COMPARE_GE, value, stream);
}

static void nvshmem_quiet(plait_stream_t stream)
{
    library()->nvshmemx_quiet_on_stream(stream);
}

const plait_device_nvshmem_t plait_cuda_nvshmem = {
    .can = nvshmem_can,
    .look = nvshmem_look,
    .id = nvshmem_id,
    .start = nvshmem_start,
    .allocate = nvshmem_allocate,
    .put = nvshmem_put,
    .signal = nvshmem_signal,
    .await = nvshmem_await,
    .quiet = nvshmem_quiet,
};

void plait_cuda_nvshmem_forget(void)
{
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_JOBS; i++) {
        plait_free(slots[i].job.book);
        slots[i] = (slot_t){.device = NULL};
    }
    (void)pthread_mutex_unlock(&lock);
}
