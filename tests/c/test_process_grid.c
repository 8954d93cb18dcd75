/* Devices of several processes that work as one, by stand-ins of cuSOLVERMp and NCCL. Ranks are threads, as if
 * each were a process with a check device. Tests how ranks find out whether their devices work as one, and
 * failures of one rank; test_heevd.c tests the results. */
#include "base/status.h"
#include "base/wait.h"
#include "dense/whole.h"
#include "device/cuda_mp.h"
#include "device/pool.h"
#include "fakes.h"
#include "guard/guard.h"
#include "kernel/blas.h"
#include "on_device.h"
#include "plait/dense.h"
#include "plan/ask_grid.h"
#include "transport/process_grid.h"

#include <math.h>

enum { SKIPPED = 77, N = 12, BLOCK = 2, MOST = 3 };

/* The work of all ranks; the results and errors of each. */
typedef struct {
    const char *mp_fails; /* PLAIT_FAKE_MP_FAIL, or NULL */
    bool fails_asked;     /* while ranks are asked; else in an operation */
    int rank;             /* whose device fails */
    int64_t n;            /* at which call; 0: none */
    bool is_dead;
    int64_t n_calls; /* out: of that device */
    bool has_grid[MOST], is_known[MOST];
    plait_status_t asked[MOST], status[MOST], again[MOST];
    char text[MOST][240];
    double w[MOST][N], v[MOST][N * N];
    int32_t info[MOST];
} work_t;

static pthread_barrier_t all_here;
static _Atomic int n_gone; /* ranks that have left the operation */

static void wait_for_all(void)
{
    (void)pthread_barrier_wait(&all_here);
}

/* Sets a variable of the process, by one of the ranks, between operations. */
static void set(int rank, const char *name, const char *value)
{
    wait_for_all();
    if (rank == 0 && value != NULL) {
        (void)setenv(name, value, 1);
    } else if (rank == 0) {
        (void)unsetenv(name);
    }
    wait_for_all();
}

static double element(int64_t i, int64_t j)
{
    return (i == j) ? (double)i : 1 / (double)(1 + i + j);
}

static plait_status_t ask(plait_comm_t *comm)
{
    plait_device_t *device = comm->end.caps.device;
    const plait_status_t status =
        plait_grid_ask(comm, 0, device, check_device_stream(device));

    comm->end.caps.grid = plait_process_grid(&comm->end, device);
    return status;
}

static plait_status_t plan_of_size(plait_comm_t *comm, int64_t n, plait_plan_t **plan_p)
{
    const plait_heevd_problem_t p = {
        .dtype = PLAIT_F64, .n = n, .block = BLOCK, .n_vectors = n};

    return plait_heevd_plan(comm, &p, plan_p);
}

static plait_status_t plan_of(plait_comm_t *comm, plait_plan_t **plan_p)
{
    return plan_of_size(comm, N, plan_p);
}

static double *operand(int me, int n_ranks)
{
    const int64_t n = plait_dense_columns(N, BLOCK, n_ranks) * N;
    double *a = plait_alloc(n, sizeof(*a));

    for (int64_t i = 0; i < n; i++) {
        const int64_t local = i / N;
        a[i] = element(i % N, (local / BLOCK * n_ranks + me) * BLOCK + local % BLOCK);
    }
    return a;
}

static plait_status_t execute(plait_comm_t *comm, const plait_plan_t *plan, work_t *f)
{
    const int me = comm->end.rank;
    double *a = operand(me, comm->end.size);
    const plait_status_t status = plait_plan_execute(
        plan, comm, (const void *[]){a}, (void *[]){f->w[me], f->v[me], &f->info[me]});

    plait_free(a);
    return status;
}

/* Compares the traces of A and of its square. */
static void judge(const work_t *f, int rank)
{
    double trace = 0, squares = 0;

    for (int64_t i = 0; i < N; i++) {
        trace += f->w[rank][i] - element(i, i);
        squares += f->w[rank][i] * f->w[rank][i];
        for (int64_t j = 0; j < N; j++) {
            squares -= element(i, j) * element(i, j);
        }
    }
    CHECK(f->info[rank] == 0 && fabs(trace) < 1e-11 && fabs(squares) < 1e-9,
          "rank %d: info %d, %g, %g", rank, f->info[rank], trace, squares);
}

static void begin_failing(const work_t *f, plait_device_t *device, int me)
{
    set(me, "PLAIT_FAKE_MP_FAIL", f->mp_fails);
    if (me == f->rank) {
        check_device_fail_at(device, f->n, f->is_dead);
    }
}

static void end_failing(const work_t *f, plait_device_t *device, int me)
{
    if (me == f->rank) {
        check_device_fail_at(device, 0, false);
    }
    set(me, "PLAIT_FAKE_MP_FAIL", NULL);
}

/* Asks, plans, executes; if the ranks are together afterwards, does so once more without a failure. */
static void work_rank(plait_comm_t *comm, void *context)
{
    work_t *f = context;
    const int me = comm->end.rank;
    plait_device_t *device = comm->end.caps.device;
    plait_plan_t *plan = NULL;

    wait_for_all();
    const int64_t before = check_device_counts(device).n_calls;
    if (f->fails_asked) {
        begin_failing(f, device, me);
    }
    f->asked[me] = ask(comm);
    (void)snprintf(f->text[me], sizeof(f->text[me]), "%s",
                   (f->asked[me] != PLAIT_OK) ? plait_error_text() : "");
    if (f->fails_asked) {
        end_failing(f, device, me);
    }
    const int64_t between = check_device_counts(device).n_calls;
    f->has_grid[me] = comm->end.caps.grid != NULL;
    CHECK(plan_of(comm, &plan) == PLAIT_OK, "plan: %s", plait_error_text());
    const int64_t planned = check_device_counts(device).n_calls;
    if (!f->fails_asked) {
        begin_failing(f, device, me);
    }
    f->status[me] = execute(comm, plan, f);
    (void)atomic_fetch_add(&n_gone, 1);
    if (f->status[me] != PLAIT_OK) {
        (void)snprintf(f->text[me], sizeof(f->text[me]), "%s", plait_error_text());
    } else if (f->info[me] == 0) {
        judge(f, me);
    }
    if (!f->fails_asked) {
        end_failing(f, device, me);
    }
    if (me == f->rank) {
        f->n_calls = f->fails_asked ? between - before
                                    : check_device_counts(device).n_calls - planned;
    }
    f->is_known[me] = plait_process_grid_is_known(&comm->end);
    wait_for_all();
    plait_plan_destroy(&plan);
}

/* The operation after a failure on all ranks. */
static void again_rank(plait_comm_t *comm, void *context)
{
    work_t *f = context;
    const int me = comm->end.rank;
    plait_plan_t *plan = NULL;

    work_rank(comm, context);
    f->again[me] = f->is_known[me] ? PLAIT_OK : ask(comm);
    if (f->again[me] == PLAIT_OK) {
        CHECK(plan_of(comm, &plan) == PLAIT_OK, "plan: %s", plait_error_text());
        f->again[me] = execute(comm, plan, f);
        judge(f, me);
    }
    wait_for_all();
    plait_plan_destroy(&plan);
}

static void work(int n_ranks, team_fn_t fn, work_t *f)
{
    (void)pthread_barrier_init(&all_here, NULL, (unsigned)n_ranks);
    team_run(n_ranks, PLAIT_DIRECT_POINTER, fn, f);
    (void)pthread_barrier_destroy(&all_here);
}

static bool text_says(const work_t *f, int rank, const char *word)
{
    return strstr(f->text[rank], word) != NULL;
}

/* ---- Whether they do ---- */

/* The devices do not work as one: all ranks know, and one device does all the work. */
static void check_without(int n_ranks, const char *mp_fails, const char *why)
{
    static work_t f;

    f = (work_t){.rank = -1, .fails_asked = true, .mp_fails = mp_fails};
    work(n_ranks, work_rank, &f);
    for (int r = 0; r < n_ranks; r++) {
        CHECK(f.asked[r] == PLAIT_OK && f.is_known[r] && !f.has_grid[r] &&
                  f.status[r] == PLAIT_OK,
              "%s: rank %d: %d, known %d, has %d, %d, %s", why, r, (int)f.asked[r],
              (int)f.is_known[r], (int)f.has_grid[r], (int)f.status[r], f.text[r]);
    }
    plait_cuda_grid_release();
}

/* The reason why this device cannot take part. */
static void check_why(const char *expected)
{
    plait_device_t *device = team_devices[0];
    plait_process_grid_t *grid = NULL;

    CHECK(device->table->enter(device) == PLAIT_OK, "enter");
    CHECK(plait_cuda_grid.create(device, check_device_stream(device), &grid) ==
                  PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), expected) != NULL,
          "%s: %s", expected, plait_error_text());
    device->table->leave(device);
    check_without(2, NULL, expected);
}

/* Libraries that are absent, too old, or not what their names say. */
static void check_libraries(void)
{
    static const char *const there[] = {"libcuda.so.1", "libcublas.so.13",
                                        "libcusolver.so.12", "libnccl.so.2"};

    on_device_begin(2);
    for (int i = 0; i < 4; i++) {
        put_fake(there[i], folder_of("without"), there[i]);
        put_fake(there[i], folder_of("partial"), there[i]);
        if (i < 3) {
            put_fake(there[i], folder_of("no-nccl"), there[i]);
        }
    }
    put_fake("libpartial.so", folder_of("partial"), "libcusolverMp.so.0");
    put_fake("libcusolverMp.so.0", folder_of("no-nccl"), "libcusolverMp.so.0");
    look_in(folder_of("without"));
    check_why("CUDA's cuSOLVERMp was not found:");
    look_in(folder_of("partial"));
    check_why("has no cusolverMpCreate: it is too old");
    look_in(folder_of("no-nccl"));
    check_why("CUDA's NCCL was not found:");
    CHECK(strstr(plait_cuda_say(PLAIT_CUDA_CUSOLVER_MP), "cuSOLVERMp wants NCCL: ") !=
              NULL,
          "%s", plait_cuda_say(PLAIT_CUDA_CUSOLVER_MP));
    (void)setenv("PLAIT_FAKE_NCCL_VERSION", "22809", 1);
    look_in(FAKES_DIR);
    check_why("is too old for cuSOLVERMp, 2.29.2 is the least");
    CHECK(strncmp(plait_cuda_say(PLAIT_CUDA_CUSOLVER_MP), "NCCL 2.28.9 of ", 15) == 0,
          "%s", plait_cuda_say(PLAIT_CUDA_CUSOLVER_MP));
    (void)unsetenv("PLAIT_FAKE_NCCL_VERSION");
    look_in(FAKES_DIR);
    (void)setenv("PLAIT_FAKE_MP_VERSION", "900", 1);
    check_why("is too old, 0.9.1 is the least");
    (void)unsetenv("PLAIT_FAKE_MP_VERSION");
    check_device_use_grid(NULL);
    check_without(2, NULL, "a device that knows none");
    check_device_use_grid(&plait_cuda_grid);
    on_device_end(2);
}

/* If one rank cannot take part, no rank does. */
static void check_one_without(int n_ranks)
{
    char fails[60];

    (void)snprintf(fails, sizeof(fails), "cusolverMpCreate:2:%d", n_ranks - 1);
    check_without(n_ranks, fails, fails);
    check_without(n_ranks, "cusolverMpGetVersion:7:0", "a version");
    check_without(n_ranks, "cusolverMpCreateDeviceGrid:7:1", "a grid");
    (void)setenv("PLAIT_FAKE_NCCL_FAIL", "ncclGetUniqueId", 1);
    check_without(n_ranks, NULL, "an id");
    (void)setenv("PLAIT_FAKE_NCCL_FAIL", "ncclCommInitRankConfig", 1);
    check_without(n_ranks, NULL, "a communicator");
    (void)unsetenv("PLAIT_FAKE_NCCL_FAIL");
}

/* ---- Plans ---- */

/* Whether the plan says that all devices work at once, which is the only blocking step. */
static bool is_at_once(const plait_plan_t *plan)
{
    char text[4000] = "";
    FILE *file = fmemopen(text, sizeof(text), "w");

    plait_plan_print(plan, file);
    (void)fclose(file);
    const bool is = strstr(text, "by all processes' devices at once: ") != NULL;
    CHECK(is == (strstr(text, ", blocking\n") != NULL), "%s", text);
    return is;
}

/* No rank has the whole matrix; work memory includes the library's. */
static void plan_rank(plait_comm_t *comm, void *context)
{
    const int64_t n_ranks = comm->end.size;
    const int64_t sizes[] = {8192, 8193, 64 * n_ranks, n_ranks - 1};

    (void)context;
    CHECK(ask(comm) == PLAIT_OK && comm->end.caps.grid != NULL, "%s",
          plait_error_text());
    for (int i = 0; i < 4; i++) {
        plait_plan_t *plan = NULL;
        const int64_t n = sizes[i];
        CHECK(plan_of_size(comm, n, &plan) == PLAIT_OK, "%s", plait_error_text());
        const bool is = is_at_once(plan);
        CHECK(is == (i == 1 || i == 2), "%lld", (long long)n);
        const plait_plan_cost_t cost = plait_plan_cost(plan);
        CHECK(!is || (cost.work_bytes < 3 * n * n / n_ranks * 8 + 256 * n * 8 &&
                      cost.scratch_bytes >= 24 * n + 8 * comm->end.rank + 256),
              "%lld: %lld bytes of work, %lld of scratch", (long long)n,
              (long long)cost.work_bytes, (long long)cost.scratch_bytes);
        plait_plan_destroy(&plan);
        wait_for_all();
        if (comm->end.rank == 0 && i == 1) { /* else as it is chosen without a word */
            plait_dense_choose_whole(0);
        }
        wait_for_all();
    }
}

static void check_plans(int n_ranks)
{
    static work_t f;

    plait_dense_choose_whole(-1);
    work(n_ranks, plan_rank, &f);
    plait_cuda_grid_release();
}

/* ---- Failures of the library ---- */

/* Failures before the call: no rank makes the call, all ranks know, and the grid stays usable. */
static void check_failing_before(int n_ranks)
{
    static const char *const functions[] = {"cusolverMpCreateMatrixDesc",
                                            "cusolverMpSyevd_bufferSize",
                                            "cusolverMpSetStream"};
    static work_t f;
    char fails[60];

    for (int i = 0; i < 3; i++) {
        const int bad = i % n_ranks;
        (void)snprintf(fails, sizeof(fails), "%s:6:%d", functions[i], bad);
        f = (work_t){.rank = -1, .mp_fails = fails};
        work(n_ranks, again_rank, &f);
        for (int r = 0; r < n_ranks; r++) {
            CHECK(f.status[r] == ((r == bad) ? PLAIT_ERR_TRANSPORT : PLAIT_ERR_PEER) &&
                      text_says(&f, r, "cuSOLVERMp: ") &&
                      text_says(&f, r, "execution failed (6)") && f.is_known[r] &&
                      f.again[r] == PLAIT_OK,
                  "%s: rank %d: %d, known %d, %d, %s", fails, r, (int)f.status[r],
                  (int)f.is_known[r], (int)f.again[r], f.text[r]);
        }
    }
    plait_cuda_grid_release();
}

/* As the guard does when it sees that a rank has left. */
static plait_status_t end_waits(const plait_wait_t *wait)
{
    return (atomic_load(&n_gone) > 0)
               ? plait_fail(PLAIT_ERR_PEER, "%s: a rank has left", wait->what)
               : PLAIT_OK;
}

/* Failures in the call: the failing rank waits for nobody, and the grid is given up. */
static void check_failing_in(int n_ranks)
{
    static work_t f;

    plait_wait_set_hook(end_waits);
    for (int which = -1; which < n_ranks; which++) {
        char fails[60];
        (void)snprintf(fails, sizeof(fails), "cusolverMpSyevd:6:%d", which);
        f = (work_t){.rank = -1, .mp_fails = fails};
        atomic_store(&n_gone, 0);
        work(n_ranks, work_rank, &f);
        for (int r = 0; r < n_ranks; r++) {
            const bool is_bad = which < 0 || r == which;
            CHECK(f.status[r] != PLAIT_OK && !f.is_known[r] &&
                      (!is_bad ||
                       (f.status[r] == PLAIT_ERR_TRANSPORT &&
                        text_says(&f, r, "cuSOLVERMp: syevd: execution failed"))),
                  "%s: rank %d: %d, known %d, %s", fails, r, (int)f.status[r],
                  (int)f.is_known[r], f.text[r]);
        }
    }
    plait_wait_set_hook(plait_guard_look);
    plait_cuda_grid_release();
}

/* All ranks have the library's outcome. */
static void check_outcomes(int n_ranks)
{
    static work_t f;

    (void)setenv("PLAIT_FAKE_MP_INFO", "5", 1);
    f = (work_t){.rank = -1};
    work(n_ranks, work_rank, &f);
    for (int r = 0; r < n_ranks; r++) {
        int n_wrong = 0;
        for (int i = 0; i < N; i++) {
            n_wrong += !isnan(f.w[r][i]);
        }
        for (int i = 0; i < N / n_ranks * N; i++) {
            n_wrong += !isnan(f.v[r][i]);
        }
        CHECK(f.status[r] == PLAIT_OK && f.info[r] == 5 && n_wrong == 0,
              "rank %d: %d, info %d, %d numbers", r, (int)f.status[r], f.info[r],
              n_wrong);
    }
    (void)setenv("PLAIT_FAKE_MP_INFO", "-4", 1);
    f = (work_t){.rank = -1};
    work(n_ranks, work_rank, &f);
    for (int r = 0; r < n_ranks; r++) {
        CHECK(f.status[r] == PLAIT_ERR_INTERNAL &&
                  text_says(&f, r, "argument 4 is wrong"),
              "rank %d: %d, %s", r, (int)f.status[r], f.text[r]);
    }
    (void)unsetenv("PLAIT_FAKE_MP_INFO");
    plait_cuda_grid_release();
}

/* The library wants more memory than at planning. */
static void more_rank(plait_comm_t *comm, void *context)
{
    work_t *f = context;
    const int me = comm->end.rank;
    plait_plan_t *plan = NULL;

    CHECK(ask(comm) == PLAIT_OK && plan_of(comm, &plan) == PLAIT_OK, "%s",
          plait_error_text());
    set(me, "PLAIT_FAKE_MP_MORE", "1");
    CHECK(execute(comm, plan, f) == PLAIT_ERR_INTERNAL &&
              strstr(plait_error_text(), "when it was planned") != NULL,
          "rank %d: %s", me, plait_error_text());
    set(me, "PLAIT_FAKE_MP_MORE", NULL);
    CHECK(execute(comm, plan, f) == PLAIT_OK, "%s", plait_error_text());
    plait_plan_destroy(&plan);
}

/* ---- Failures of a device ---- */

/* Each call of one rank's device fails in turn: all ranks end, and know the failure; the next operation finds
 * all ranks together. */
static void check_failing_device(int n_ranks, int rank, bool fails_asked, int step)
{
    static work_t f;

    f = (work_t){.rank = rank, .fails_asked = fails_asked};
    work(n_ranks, work_rank, &f);
    const int64_t n_calls = f.n_calls;
    CHECK(n_calls > (fails_asked ? 3 : 8), "%lld calls", (long long)n_calls);
    for (int64_t i = 2; i < 2 * (n_calls + 1); i += step) {
        f = (work_t){.rank = rank,
                     .fails_asked = fails_asked,
                     .n = i / 2,
                     .is_dead = i % 2 != 0};
        work(n_ranks, again_rank, &f);
        for (int r = 0; r < n_ranks; r++) {
            const plait_status_t status = fails_asked ? f.asked[r] : f.status[r];
            const plait_status_t expected =
                (r == rank) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER;
            const bool is_refused = fails_asked && status == PLAIT_OK &&
                                    f.is_known[r] &&
                                    !f.has_grid[r]; /* it could not take its seat */
            CHECK((is_refused ||
                   (status == expected && text_says(&f, r, "check device"))) &&
                      f.again[r] == PLAIT_OK,
                  "call %lld of %lld%s: rank %d has %d, then %d, %s", (long long)f.n,
                  (long long)n_calls, fails_asked ? ", asked" : "", r, (int)status,
                  (int)f.again[r], f.text[r]);
        }
    }
    plait_cuda_grid_release();
}

int main(void)
{
    if (plait_blas_require() != PLAIT_OK) {
        printf("test_process_grid: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    plait_dense_choose_whole(0);
    check_device_use_grid(&plait_cuda_grid);
    check_libraries();
    look_in(FAKES_DIR);
    for (int n_ranks = 2; n_ranks <= MOST; n_ranks++) {
        static work_t f;
        on_device_begin(n_ranks);
        check_one_without(n_ranks);
        check_plans(n_ranks);
        check_failing_before(n_ranks);
        check_failing_in(n_ranks);
        check_outcomes(n_ranks);
        work(n_ranks, more_rank, &f);
        check_failing_device(n_ranks, n_ranks - 1, true, 1);
        check_failing_device(n_ranks, n_ranks - 2, false, is_quick() ? 5 : 3);
        plait_cuda_grid_release();
        on_device_end(n_ranks);
    }
    plait_dense_choose_whole(-1);
    look_in(NULL);
    remove_fakes();
    (void)plait_pool_trim();
    return report("test_process_grid");
}
