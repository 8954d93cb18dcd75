/* Collectives and matched transfers of arrays on a device, one for each rank that is a thread:
 * values as on the host, bytes of copies, and failures of the device at every one of its calls. */
#include "base/wait.h"
#include "check.h"
#include "check_device.h"
#include "check_device_parts.h"
#include "coll/coll.h"
#include "coll_cases.h"
#include "device/cuda_nccl.h"
#include "device/pool.h"
#include "device_failing.h"
#include "device_matched.h"
#include "nvshmem.h"
#include "on_device.h"
#include "ops/list.h"
#include "plait/coll.h"
#include "plan/launch.h"
#include "team.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Links transfer bytes differently: each run has another part of dtypes and reductions. */
enum { N_PARTS = 4 };

static void cases_rank(plait_comm_t *comm, void *context)
{
    const int *part = context;

    case_part(comm, *part, N_PARTS);
    case_matched(comm);
    CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
}

static void run_cases(int n_ranks)
{
    static int n_runs = 0;
    int part = n_runs++ % N_PARTS;

    team_run(n_ranks, PLAIT_DIRECT_NONE, cases_rank, &part);
}

/* ---- the device itself ---- */

/* Whether the system ends a process that touches these bytes. */
static bool ends_by_fault(char *p)
{
    int how = 0;
    pid_t child = fork();

    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        *(volatile char *)p = 1;
        _exit(0);
    }
    (void)waitpid(child, &how, 0);
    return WIFSIGNALED(how) || (WIFEXITED(how) && WEXITSTATUS(how) != 0);
}

/* A missing order is seen: a box on one stream reads data that another stream brings to the device. */
static void check_planted(void)
{
    enum { N = 4096, TRIES = 200 };
    plait_device_t *device = check_device_create(0);
    const plait_device_table_t *t = device->table;
    void *x = check_device_alloc(device, N);
    void *y = check_device_alloc(device, N);
    char *host = NULL;
    plait_stream_t other = NULL;
    bool is_late = false;
    const plait_device_box_t box = {.src = x, .dst = y, .box = {.row_bytes = N}};

    CHECK(ends_by_fault(x), "the host wrote to the device's memory");
    CHECK(!ends_by_fault(check_device_view(device, x)), "nor may the device");
    CHECK(t->enter(device) == PLAIT_OK &&
              t->host_take(device, N, (void **)&host) == PLAIT_OK &&
              t->stream_create(device, &other) == PLAIT_OK,
          "streams");
    for (int i = 0; i < TRIES; i++) {
        memset(host, i + 1, N);
        (void)t->to_device(device, other, x, host, N);
        (void)t->boxes(device, check_device_stream(device), PLAIT_U8, 1, &box);
        check_device_drain(device);
        (void)t->stream_wait(device, other);
        is_late =
            is_late || ((char *)check_device_view(device, y))[N - 1] != (char)(i + 1);
    }
    CHECK(is_late, "%d times in order, though nobody asked for it", TRIES);
    t->host_give(device, host);
    t->stream_destroy(device, other);
    t->leave(device);
    check_device_free(device, x);
    check_device_free(device, y);
    CHECK(check_device_destroy(&device) == 0, "device");
}

/* Tables of arguments belong to the caller again when a call returns, however late its work is. */
static void check_lent(void)
{
    enum { N = 512, TRIES = 100 };
    const plait_device_fft_t transform = {.kind = PLAIT_DEVICE_FFT_C2C,
                                          .dtype = PLAIT_C128,
                                          .ndim = 1,
                                          .n = {N},
                                          .in_embed = {N},
                                          .in_stride = 1,
                                          .out_embed = {N},
                                          .out_stride = 1,
                                          .n_batch = 1,
                                          .sign = -1};
    plait_device_t *device = check_device_create(0);
    const plait_device_table_t *t = device->table;
    plait_stream_t stream = check_device_stream(device);
    int64_t n_work = 0;

    CHECK(t->enter(device) == PLAIT_OK &&
              t->fft_plan(device, &transform, &n_work) == PLAIT_OK,
          "a plan");
    void *x = check_device_alloc(device, N * 16);
    void *y = check_device_alloc(device, N * 16);
    void *work = check_device_alloc(device, n_work);
    double *in = check_device_view(device, x), *out = check_device_view(device, y);
    for (int i = 0; i < TRIES; i++) {
        plait_device_box_t box = {.src = x, .dst = y, .box = {.row_bytes = N * 16}};
        const void *pieces[] = {x, y, x};
        plait_device_fft_t fft = transform;

        for (int k = 0; k < 2 * N; k++) {
            in[k] = (k % 2 == 0) ? i + 1 : 0;
        }
        CHECK(t->boxes(device, stream, PLAIT_C128, 1, &box) == PLAIT_OK, "boxes");
        box.src = y;
        CHECK(t->reduce(device, stream, PLAIT_SUM, PLAIT_C128, N, 3, pieces, y) ==
                  PLAIT_OK,
              "reduce");
        pieces[0] = y;
        CHECK(t->fft(device, stream, &fft, y, y, work) == PLAIT_OK, "fft");
        fft.n[0] = 1;
        check_device_drain(device);
        CHECK(out[0] == 3.0 * (double)N * (i + 1), "%g", out[0]);
    }
    check_device_free(device, x);
    check_device_free(device, y);
    check_device_free(device, work);
    t->leave(device);
    CHECK(check_device_destroy(&device) == 0, "device");
}

/* ---- copies ---- */

/* Bytes that rank i sends to rank j: none, some, or many chunks. */
static int64_t count_of(int i, int j)
{
    static const int64_t counts[] = {0,      1,       64 << 10, (64 << 10) + 1,
                                     300000, 9 << 20, 777};

    return counts[(3 * i + 5 * j) % 7];
}

static void check_bytes(int rank, const char *where, int64_t n_bytes, int64_t expected)
{
    CHECK(n_bytes == expected, "rank %d: %lld bytes %s, expected %lld", rank,
          (long long)n_bytes, where, (long long)expected);
}

/* Data for other ranks is copied to the host once, data from them to the device once; or data goes across. */
static void copies_rank(plait_comm_t *comm, void *context)
{
    const int me = plait_comm_rank(comm);
    const int size = plait_comm_size(comm);
    plait_device_t *device = comm->end.caps.device;
    int64_t counts[4 * 4];
    int64_t n_x = 0, n_y = 0, n_down = 0, n_up = 0;

    (void)context;
    for (int i = 0; i < size * size; i++) {
        counts[i] = count_of(i / size, i % size);
    }
    for (int q = 0; q < size; q++) {
        n_x += counts[me * size + q];
        n_y += counts[q * size + me];
        n_down += (q != me) ? counts[me * size + q] : 0;
        n_up += (q != me) ? counts[q * size + me] : 0;
    }
    double one = 1, sum = 0;
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &one, &sum) == PLAIT_OK &&
              sum == size,
          "ranks find their way to each other");
    case_t c = case_begin(me, n_x, n_y);
    int64_t at = 0;
    for (int q = 0; q < size; q++) {
        int64_t n = counts[q * size + me];
        expect(&c, at, n, q, sum_before(counts + q * size, me));
        at += n;
    }
    const check_device_counts_t before = check_device_counts(device);
    plait_status_t status = plait_alltoallv(comm, PLAIT_U8, counts, c.x, c.y);
    const check_device_counts_t after = check_device_counts(device);
    const bool is_staged = team_link == &plait_link_staged;
    case_end(&c, comm, status, "chunks", n_x);
    check_bytes(me, "down", after.down_bytes - before.down_bytes,
                is_staged ? n_down : 0);
    check_bytes(me, "up", after.up_bytes - before.up_bytes, is_staged ? n_up : 0);
    check_bytes(me, "across", after.across_bytes - before.across_bytes,
                (is_staged || team_link == &plait_link_nccl) ? 0
                : (team_link == &plait_link_nvshmem)         ? n_down + n_up
                                                             : n_up);
    CHECK(is_staged || team_link == &plait_link_ipc || after.n_waits == before.n_waits,
          "rank %d has waited for its device", me);
}

/* ---- partners that are read when it runs ---- */

/* Sends to the right with the rank as tag; receives from the left, or from any rank. At the end of a line
 * nothing comes, and the template is the result. */
static void exchange_of(plait_comm_t *comm, int64_t n, bool is_line, bool is_any)
{
    const plait_exchange_params_t params = {.status = 0};
    const int me = plait_comm_rank(comm);
    const int size = plait_comm_size(comm);
    const bool sends = !is_line || me + 1 < size;
    const bool receives = !is_line || me > 0;
    const int left = (me + size - 1) % size;
    const int32_t to[] = {sends ? (me + 1) % size : PLAIT_NO_RANK, me};
    const int32_t from[] = {!receives ? PLAIT_NO_RANK
                            : is_any  ? PLAIT_ANY
                                      : left,
                            is_any ? PLAIT_ANY : left};
    int32_t matched[] = {-7, -7};
    double *x = plait_alloc(n, sizeof(*x));
    double *template = plait_alloc(n, sizeof(*template));
    double *y = plait_alloc(n, sizeof(*y));
    const int64_t two = 2;
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < n; i++) {
        x[i] = me + 10.0 * (double)i;
        template[i] = -1;
    }
    const plait_array_t pair = {PLAIT_S32, 1, &two, NULL};
    const plait_array_t array = {PLAIT_F64, 1, &n, NULL};
    plait_array_t args[] = {array, array, pair, pair};
    plait_array_t rets[] = {array, pair};
    args[0].data = x;
    args[1].data = template;
    args[2].data = (void *)(uintptr_t)to;
    args[3].data = (void *)(uintptr_t)from;
    rets[0].data = y;
    rets[1].data = matched;
    CHECK(plait_op_launch(&plait_op_exchange, &params, comm, args, rets) == PLAIT_OK,
          "exchange of %lld", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        n_wrong += y[i] != (receives ? left + 10.0 * (double)i : -1);
    }
    CHECK(n_wrong == 0, "exchange, rank %d of %d, line %d: %lld of %lld wrong", me,
          size, is_line, (long long)n_wrong, (long long)n);
    CHECK(matched[0] == (receives ? left : PLAIT_NO_RANK) &&
              matched[1] == (receives ? left : PLAIT_ANY),
          "exchange, rank %d of %d: %d, %d", me, size, matched[0], matched[1]);
    plait_free(x);
    plait_free(template);
    plait_free(y);
}

static void exchange_rank(plait_comm_t *comm, void *context)
{
    static const int64_t sizes[] = {0, 1, 1000, 100000};

    (void)context;
    matched_open(comm);
    for (int i = 0; i < 4 * 4; i++) {
        exchange_of(comm, sizes[i / 4], i % 2 != 0, i / 2 % 2 != 0);
        CHECK(plait_barrier(comm) == PLAIT_OK, "any source is of this exchange");
    }
}

/* ---- ranks that differ ---- */

static void mismatch_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    case_mismatch(comm);
}

static void matched_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    matched_all(comm, team_link == NULL || team_link->matched != NULL);
}

/* All cases by one link. */
static void check_link(const plait_device_link_t *link, int n_ranks)
{
    team_link = link;
    on_device_begin(n_ranks);
    run_cases(n_ranks);
    team_run(n_ranks, PLAIT_DIRECT_NONE, copies_rank, NULL);
    team_run(n_ranks, PLAIT_DIRECT_NONE, exchange_rank, NULL);
    team_run(n_ranks, PLAIT_DIRECT_NONE, matched_rank, NULL);
    if (n_ranks > 1) {
        team_run(n_ranks, PLAIT_DIRECT_NONE, mismatch_rank, NULL);
        check_failures(n_ranks);
    }
    nvshmem_end(n_ranks, team_devices);
    on_device_end(n_ranks);
}

/* Arrays that are shown to nobody are copied to memory that can be shown. If no memory is shown, all ranks
 * learn why. */
static void refused_rank(plait_comm_t *comm, void *context)
{
    double x[4] = {1};
    double y[4] = {0};

    (void)context;
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 4, x, y) == PLAIT_ERR_UNSUPPORTED,
          "nothing is shown");
    CHECK(strstr(plait_error_text(),
                 "ipc: rank 1: check device 1: this memory is shown "
                 "to nobody") != NULL,
          "%s", plait_error_text());
}

static void matched_aside_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    matched_open(comm);
    matched_transfers(comm);
}

static void check_aside(int n_ranks)
{
    team_link = &plait_link_ipc;
    on_device_begin(n_ranks);
    check_device_refuse(team_devices[0], CHECK_DEVICE_SHOWS_OWN);
    run_cases(n_ranks);
    team_run(n_ranks, PLAIT_DIRECT_NONE, matched_aside_rank, NULL);
    check_failures(n_ranks);
    check_device_refuse(team_devices[1], CHECK_DEVICE_SHOWS_NONE);
    team_run(n_ranks, PLAIT_DIRECT_NONE, refused_rank, NULL);
    on_device_end(n_ranks);
}

/* Arrays in virtual memory are shown as they are. If one rank cannot open those of others, all ranks copy
 * first. */
static void copied_rank(plait_comm_t *comm, void *context)
{
    const bool *is_copied = context;
    const int me = plait_comm_rank(comm);
    plait_device_t *device = comm->end.caps.device;

    matched_open(comm);
    const check_device_counts_t before = check_device_counts(device);
    CHECK(call_alltoall(comm, failing_arrays[0][me], failing_arrays[1][me]) == PLAIT_OK,
          "%s", plait_error_text());
    const check_device_counts_t after = check_device_counts(device);
    const int64_t n_bytes = N_FAILING / plait_comm_size(comm) * 8;
    const int n_others = plait_comm_size(comm) - 1;
    check_bytes(me, "across", after.across_bytes - before.across_bytes,
                n_others * n_bytes * (*is_copied ? 2 : 1));
}

static void check_virtual(int n_ranks, bool is_copied)
{
    team_link = &plait_link_ipc;
    on_device_begin(n_ranks);
    for (int r = 0; r < n_ranks; r++) {
        check_device_refuse(team_devices[r], CHECK_DEVICE_SHOWS_VIRTUAL);
    }
    if (is_copied) {
        check_device_refuse(team_devices[1], CHECK_DEVICE_OPENS_OWN);
    }
    team_run(n_ranks, PLAIT_DIRECT_NONE, copied_rank, &is_copied);
    run_cases(n_ranks);
    team_run(n_ranks, PLAIT_DIRECT_NONE, matched_aside_rank, NULL);
    check_failures(n_ranks);
    on_device_end(n_ranks);
}

static void run_nap(plait_device_t *device, void *argument)
{
    const struct timespec nap = {.tv_nsec = 30000000};

    (void)device;
    (void)argument;
    (void)nanosleep(&nap, NULL);
}

/* A result that nobody waits for: the communicator is destroyed before the result is there. New addresses are
 * used, so that the arrays displace no block, which would wait. */
static void left_rank(plait_comm_t *comm, void *context)
{
    enum { N_BEFORE = 1 << 20 };
    const int me = plait_comm_rank(comm);
    void **before = context;

    matched_open(comm);
    before[me] = check_device_alloc(team_devices[me], N_BEFORE);
    check_device_enqueue(check_device_stream(team_devices[me]), run_nap, "", 1);
    on_device_leaves = true;
    CHECK(call_alltoall(comm, failing_arrays[0][me], failing_arrays[1][me]) == PLAIT_OK,
          "%s", plait_error_text());
    on_device_leaves = false;
}

static void check_left(const plait_device_link_t *link, int n_ranks)
{
    void *before[TEAM_MAX] = {NULL};

    team_link = link;
    on_device_begin(n_ranks);
    team_run(n_ranks, PLAIT_DIRECT_NONE, left_rank, before);
    on_device_drop(n_ranks);
    for (int r = 0; r < n_ranks; r++) {
        check_device_free(team_devices[r], before[r]);
    }
    on_device_end(n_ranks);
}

/* A failure of NCCL on all ranks alike is named; the next operation opens NCCL anew. */
static void failing_rank(plait_comm_t *comm, void *context)
{
    const char *expected = context;
    double x[4] = {1};
    double y[4] = {0};

    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 4, x, y) == PLAIT_OK, "first");
    CHECK(plait_barrier(comm) == PLAIT_OK, "nobody is in it any more");
    if (plait_comm_rank(comm) == 0) {
        (void)setenv("PLAIT_FAKE_NCCL_FAIL", expected, 1);
    }
    CHECK(plait_barrier(comm) == PLAIT_OK, "all know");
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 4, x, y) == PLAIT_ERR_TRANSPORT,
          "%s", expected);
    CHECK(strstr(plait_error_text(), "system error (2), as it was told to") != NULL,
          "%s: %s", expected, plait_error_text());
    CHECK(plait_barrier(comm) == PLAIT_OK, "all have failed");
    if (plait_comm_rank(comm) == 0) {
        (void)unsetenv("PLAIT_FAKE_NCCL_FAIL");
    }
    CHECK(plait_barrier(comm) == PLAIT_OK, "all know");
    case_movement(comm, PLAIT_F64, 13);
}

/* A rank that gives up alone leaves at once: it does not wait for NCCL's abort, which waits for peers. */
static _Thread_local bool gives_up;
static atomic_bool has_left;

static plait_status_t end_wait(const plait_wait_t *wait)
{
    return gives_up ? plait_fail(PLAIT_ERR_TIMEOUT, "given up: %s", wait->what)
                    : PLAIT_OK;
}

static void leaving_rank(plait_comm_t *comm, void *context)
{
    const double x = 1;
    double sum = 0;

    (void)context;
    comm->end.caps.is_far = true; /* ranks agree once, not always */
    for (int i = 0; i < 2; i++) {
        CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, &sum) == PLAIT_OK,
              "%s", plait_error_text());
    }
    if (plait_comm_rank(comm) == 0) {
        gives_up = true;
        CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, &sum) ==
                  PLAIT_ERR_TIMEOUT,
              "%s", plait_error_text());
        gives_up = false;
        atomic_store(&has_left, true);
    } else {
        for (int i = 0; i < 20000 && !atomic_load(&has_left); i++) {
            (void)usleep(1000);
        }
        CHECK(atomic_load(&has_left), "it waits for this rank, which is elsewhere");
    }
}

static void check_leaving(int n_ranks)
{
    team_link = &plait_link_nccl;
    on_device_begin(n_ranks);
    plait_wait_set_hook(end_wait);
    team_run(n_ranks, PLAIT_DIRECT_NONE, leaving_rank, NULL);
    plait_wait_set_hook(NULL);
    on_device_end(n_ranks);
}

static void check_nccl(int n_ranks)
{
    static char functions[][20] = {"ncclSend", "ncclRecv", "ncclGroupEnd", "async"};

    team_link = &plait_link_nccl;
    on_device_begin(n_ranks);
    for (int i = 0; i < 4; i++) {
        team_run(n_ranks, PLAIT_DIRECT_NONE, failing_rank, functions[i]);
    }
    (void)setenv("PLAIT_FAKE_NCCL_LATE", "3", 1);
    run_cases(n_ranks);
    (void)unsetenv("PLAIT_FAKE_NCCL_LATE");
    on_device_end(n_ranks);
    (void)setenv("PLAIT_FAKE_NCCL_VERSION", "21703", 1);
    CHECK(plait_cuda_nccl.can() == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), "NCCL 2.17 of ") != NULL &&
              strstr(plait_error_text(), "is too old, 2.18 is the least") != NULL,
          "%s", plait_error_text());
    (void)unsetenv("PLAIT_FAKE_NCCL_VERSION");
}

int main(void)
{
    const int most = is_quick() ? 3 : 4;

    (void)setenv("PLAIT_CUDA_DIR", FAKES_DIR, 1);
    (void)setenv("PLAIT_NVSHMEM_BYTES", "1000000", 1); /* less than messages have */
    check_device_use_nccl(&plait_cuda_nccl);
    check_device_use_nvshmem(&plait_cuda_nvshmem);
    if (!finds_races()) { /* or they find this one */
        check_planted();
    }
    check_lent();
    for (int n = 1; n <= most; n += is_quick() ? 2 : 1) {
        check_link(&plait_link_staged, n);
        check_link(NULL, n); /* peers by address */
        if (n == most || (n == 2 && !is_quick())) {
            check_link(&plait_link_ipc, n);
            check_link(&plait_link_nccl, n);
            check_link(&plait_link_nvshmem, n);
        }
    }
    check_nccl(3);
    check_leaving(2);
    check_aside(2);
    check_virtual(3, false);
    check_virtual(2, true);
    check_left(&plait_link_ipc, 3);
    check_left(&plait_link_nccl, 2);
    (void)plait_pool_trim();
    return report("test_device");
}
