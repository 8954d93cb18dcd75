/* NVSHMEM between threads or processes whose devices are check devices (check_device.h): a PE is a
 * device. What is put, and signals, go through memory that PEs map of each other when the stream
 * comes to it; a wait holds the stream up. As of the real one a job is the process' for good, but for
 * the tests' fake_nvshmem_end.
 *
 * PLAIT_FAKE_NVSHMEM_VERSION   1000 major + 10 minor
 * PLAIT_FAKE_NVSHMEM_FAIL      what fails: id, attr, init, device (it starts without one), limited
 *                              (several PEs on a GPU), pe, malloc, hang (the start does not end
 *                              while it is so); with ":1", on PE 1 alone */
#include "check_device_parts.h"
#include "fake_cuda.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

void fake_nvshmem_end(const plait_device_t *device);

enum { MAX_PES = 16, SUCCESS = 0, FAILURE = 1 };
enum { WITH_UNIQUEID = 8, SIGNAL_SET = 9, COMPARE_GE = 5 };
enum { NOT_STARTED, WITHOUT_DEVICE, STARTED, LIMITED_MPG };

/* The state that PEs share, in a file that the id names. */
typedef struct {
    _Atomic int n_joined, n_shown;
    plait_device_handle_t pools[MAX_PES];
} world_t;

typedef struct {
    int version;
    char internal[124];
} unique_t;

typedef struct {
    int version;
    void *mpi_comm;
    int args_version, unused;
    int unique_version;
    const unique_t *id;
    int pe, n_pes;
    char content[96];
} attr_t;

typedef struct {
    const plait_device_t *device; /* NULL: free */
    int status;
    world_t *world;
    int pe, n_pes;
    char *pool; /* as the library sees it */
    size_t n_bytes;
    plait_device_handle_t handles[MAX_PES];
    char *views[MAX_PES]; /* of all pools */
} job_t;

/* Functions of the test's device. */
static struct {
    plait_device_t *(*current)(void);
    void *(*alloc)(plait_device_t *, int64_t);
    void (*release)(plait_device_t *, void *);
    plait_device_handle_t (*show)(plait_device_t *, const void *);
    char *(*open_shown)(const plait_device_handle_t *);
    void (*close_shown)(const plait_device_handle_t *, char *);
    void (*enqueue)(void *, void (*)(plait_device_t *, void *), const void *, size_t);
    void (*fault)(plait_device_t *, const char *, ...);
} test;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static job_t jobs[MAX_PES];
static _Atomic int n_ids;

static void find(const char *name, void *function_p)
{
    void *address = dlsym(RTLD_DEFAULT, name);

    memcpy(function_p, &address, sizeof(address));
}

static void find_test(void)
{
    find("check_device_current", &test.current);
    find("check_device_alloc", &test.alloc);
    find("check_device_free", &test.release);
    find("check_device_show", &test.show);
    find("check_device_open_shown", &test.open_shown);
    find("check_device_close_shown", &test.close_shown);
    find("check_device_enqueue", &test.enqueue);
    find("check_device_fault", &test.fault);
}

/* NULL if there is no job. */
static job_t *job_of(const plait_device_t *device)
{
    job_t *found = NULL;

    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_PES; i++) {
        found = (device != NULL && jobs[i].device == device) ? &jobs[i] : found;
    }
    (void)pthread_mutex_unlock(&mutex);
    return found;
}

static job_t *here(void)
{
    (void)pthread_once(&once, find_test);
    return (test.current != NULL) ? job_of(test.current()) : NULL;
}

static bool fails(const char *name, int pe)
{
    const char *which = getenv("PLAIT_FAKE_NVSHMEM_FAIL");
    const size_t n = strlen(name);

    return which != NULL && strncmp(which, name, n) == 0 &&
           (which[n] == '\0' || (which[n] == ':' && atoi(which + n + 1) == pe));
}

static void nap(void)
{
    const struct timespec time = {.tv_nsec = 20000};

    (void)nanosleep(&time, NULL);
}

static void meet(_Atomic int *n_there, int n)
{
    (void)atomic_fetch_add(n_there, 1);
    while (atomic_load(n_there) < n) {
        nap();
    }
}

void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch)
{
    const int version = number_of_environment("PLAIT_FAKE_NVSHMEM_VERSION", 3040);

    *major = version / 1000;
    *minor = version % 1000 / 10;
    *patch = 5;
}

int nvshmemx_init_status(void)
{
    const job_t *job = here();

    return (job != NULL) ? job->status : NOT_STARTED;
}

int nvshmem_my_pe(void)
{
    const job_t *job = here();

    return (job != NULL) ? job->pe + fails("pe", job->pe) : -1;
}

int nvshmem_n_pes(void)
{
    const job_t *job = here();

    return (job != NULL) ? job->n_pes : -1;
}

int nvshmemx_get_uniqueid(plait_nvshmem_unique_t *id_p)
{
    unique_t id;

    memcpy(&id, id_p, sizeof(id));
    if (fails("id", 0) || id.version != (1 << 16) + 128) {
        return FAILURE;
    }
    (void)snprintf(id.internal, sizeof(id.internal), "/plait-fake-nvshmem-%d-%d",
                   (int)getpid(), atomic_fetch_add(&n_ids, 1));
    memcpy(id_p, &id, sizeof(id));
    return SUCCESS;
}

int nvshmemx_set_attr_uniqueid_args(int pe, int n_pes, const plait_nvshmem_unique_t *id,
                                    plait_nvshmem_attr_t *attr_p)
{
    attr_t attr;

    memcpy(&attr, attr_p, sizeof(attr));
    const void *given = id;
    attr.id = given;
    attr.pe = pe;
    attr.n_pes = n_pes;
    memcpy(attr_p, &attr, sizeof(attr));
    return fails("attr", pe) ? FAILURE : SUCCESS;
}

static world_t *map_world(const char *name)
{
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    world_t *world = NULL;

    if (fd >= 0 && ftruncate(fd, sizeof(*world)) == 0) {
        world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return (world == MAP_FAILED) ? NULL : world;
}

int nvshmemx_hostlib_init_attr(unsigned flags, plait_nvshmem_attr_t *attr_p)
{
    attr_t attr;
    job_t *job = NULL;

    memcpy(&attr, attr_p, sizeof(attr));
    (void)pthread_once(&once, find_test);
    if (flags != WITH_UNIQUEID || sizeof(attr) != 144 ||
        attr.version != (1 << 16) + 144 || attr.args_version != (1 << 16) + 128 ||
        attr.unique_version != (1 << 16) + 24 || attr.n_pes > MAX_PES ||
        here() != NULL || test.current() == NULL) {
        return FAILURE;
    }
    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_PES; i++) {
        job = (jobs[i].device == NULL) ? &jobs[i] : job;
    }
    *job = (job_t){.device = test.current(), .pe = attr.pe, .n_pes = attr.n_pes};
    (void)pthread_mutex_unlock(&mutex);
    while (fails("hang", attr.pe)) {
        nap();
    }
    job->world = map_world(attr.id->internal);
    meet(&job->world->n_joined, attr.n_pes);
    (void)shm_unlink(attr.id->internal);
    job->status = fails("limited", attr.pe)  ? LIMITED_MPG
                  : fails("device", attr.pe) ? WITHOUT_DEVICE
                                             : STARTED;
    return fails("init", attr.pe) ? FAILURE : SUCCESS;
}

void *nvshmem_malloc(size_t n)
{
    job_t *job = here();
    plait_device_t *device = test.current();

    if (!fails("malloc", job->pe)) {
        job->pool = test.alloc(device, (int64_t)n);
        job->n_bytes = n;
        job->world->pools[job->pe] = test.show(device, job->pool);
    }
    meet(&job->world->n_shown, job->n_pes);
    for (int r = 0; r < job->n_pes && job->pool != NULL; r++) {
        job->handles[r] = job->world->pools[r];
        job->views[r] = test.open_shown(&job->handles[r]);
    }
    return job->pool;
}

/* The address at a PE that matches an address of the pool here; a fault if the address is not in the pool. */
static char *view_of(const job_t *job, int pe, const void *address, size_t n)
{
    const ptrdiff_t at = (const char *)address - job->pool;

    if (at < 0 || (size_t)at + n > job->n_bytes || pe < 0 || pe >= job->n_pes) {
        test.fault((plait_device_t *)(uintptr_t)job->device,
                   "%zu bytes at %td of the pool, of PE %d", n, at, pe);
        return NULL;
    }
    return (job->views[pe] == NULL) ? NULL : job->views[pe] + at;
}

typedef struct {
    void *dst;
    const void *src; /* NULL: the signal alone */
    size_t n;
    uint64_t *signal, value;
    int pe; /* -1: this one's signal is waited for */
} work_t;

static void run_put(plait_device_t *device, void *argument)
{
    const work_t *work = argument;
    const job_t *job = job_of(device);

    if (work->src != NULL) {
        char *dst = view_of(job, work->pe, work->dst, work->n);
        const char *src = view_of(job, job->pe, work->src, work->n);
        if (dst != NULL && src != NULL) {
            memcpy(dst, src, work->n);
        }
    }
    char *signal = view_of(job, work->pe, work->signal, sizeof(work->value));
    if (signal != NULL) {
        __atomic_store_n((uint64_t *)(void *)signal, work->value, __ATOMIC_SEQ_CST);
    }
}

static void run_wait(plait_device_t *device, void *argument)
{
    const work_t *work = argument;
    const job_t *job = job_of(device);
    const char *signal = view_of(job, job->pe, work->signal, sizeof(work->value));

    while (signal != NULL && __atomic_load_n((const uint64_t *)(const void *)signal,
                                             __ATOMIC_SEQ_CST) < work->value) {
        nap();
    }
}

void nvshmemx_putmem_signal_on_stream(void *dst, const void *src, size_t n,
                                      uint64_t *signal, uint64_t value, int operation,
                                      int pe, plait_cu_stream_t stream)
{
    const work_t work = {dst,    src,   n,
                         signal, value, (operation == SIGNAL_SET) ? pe : -1};

    test.enqueue(stream, run_put, &work, sizeof(work));
}

void nvshmemx_signal_op_on_stream(uint64_t *signal, uint64_t value, int operation,
                                  int pe, plait_cu_stream_t stream)
{
    const work_t work = {NULL,   NULL,  0,
                         signal, value, (operation == SIGNAL_SET) ? pe : -1};

    test.enqueue(stream, run_put, &work, sizeof(work));
}

void nvshmemx_signal_wait_until_on_stream(uint64_t *signal, int compare, uint64_t value,
                                          plait_cu_stream_t stream)
{
    const work_t work = {.signal = signal,
                         .value = (compare == COMPARE_GE) ? value : UINT64_MAX};

    test.enqueue(stream, run_wait, &work, sizeof(work));
}

/* Puts are complete when the stream goes on. */
void nvshmemx_quiet_on_stream(plait_cu_stream_t stream)
{
    (void)stream;
}

void fake_nvshmem_end(const plait_device_t *device)
{
    job_t *job = job_of(device);

    if (job != NULL) {
        for (int r = 0; r < job->n_pes; r++) {
            if (job->views[r] != NULL) {
                test.close_shown(&job->handles[r], job->views[r]);
            }
        }
        if (job->pool != NULL) {
            test.release((plait_device_t *)(uintptr_t)device, job->pool);
        }
        (void)munmap(job->world, sizeof(*job->world));
        (void)pthread_mutex_lock(&mutex);
        *job = (job_t){.device = NULL};
        (void)pthread_mutex_unlock(&mutex);
    }
}
