/* Devices of one process that work as one: how ranks meet for a joint call and leave, whatever fails.
 * test_heevd.c tests the results. */
#include "base/status.h"
#include "base/trace.h"
#include "base/wait.h"
#include "comm/registry.h"
#include "dense/params.h"
#include "dense/whole.h"
#include "device/find.h"
#include "device/pool.h"
#include "guard/guard.h"
#include "kernel/blas.h"
#include "on_device.h"
#include "ops/list.h"
#include "plait/config.h"
#include "plait/dense.h"
#include "plan/joint.h"
#include "plan/launch.h"

#include <math.h>
#include <time.h>

enum { SKIPPED = 77, N = 12, BLOCK = 2, MOST = 4 };

/* ---- An eigendecomposition ---- */

/* The work of all ranks; the results and errors of each. */
typedef struct {
    int rank;  /* whose device fails */
    int64_t n; /* at which call; 0: none */
    bool is_dead;
    int64_t n_calls; /* out: of that device */
    plait_status_t status[MOST];
    char text[MOST][160];
    double w[MOST][N], v[MOST][N * N];
    int32_t info[MOST];
} work_t;

static pthread_barrier_t
    have_planned; /* all ranks, for which the first device is called */

static double element(int64_t i, int64_t j)
{
    return (i == j) ? (double)i : 1 / (double)(1 + i + j);
}

static plait_status_t plan_of(plait_comm_t *comm, int64_t n, plait_plan_t **plan_p)
{
    const plait_heevd_problem_t p = {
        .dtype = PLAIT_F64, .n = n, .block = BLOCK, .n_vectors = n};

    return plait_heevd_plan(comm, &p, plan_p);
}

static void work_rank(plait_comm_t *comm, void *context)
{
    work_t *f = context;
    const int me = comm->end.rank, n_ranks = comm->end.size;
    plait_device_t *device = comm->end.caps.device;
    const int64_t n = plait_dense_columns(N, BLOCK, n_ranks) * N;
    double *a = plait_alloc(n, sizeof(*a));
    plait_plan_t *plan = NULL;

    for (int64_t i = 0; i < n; i++) {
        const int64_t local = i / N;
        a[i] = element(i % N, (local / BLOCK * n_ranks + me) * BLOCK + local % BLOCK);
    }
    CHECK(plan_of(comm, N, &plan) == PLAIT_OK, "plan");
    (void)pthread_barrier_wait(&have_planned);
    const int64_t before = check_device_counts(device).n_calls;
    if (me == f->rank) {
        check_device_fail_at(device, f->n, f->is_dead);
    }
    f->status[me] = plait_plan_execute(plan, comm, (const void *[]){a},
                                       (void *[]){f->w[me], f->v[me], &f->info[me]});
    (void)snprintf(f->text[me], sizeof(f->text[me]), "%s",
                   (f->status[me] != PLAIT_OK) ? plait_error_text() : "");
    if (me == f->rank) {
        f->n_calls = check_device_counts(device).n_calls - before;
        check_device_fail_at(device, 0, false);
    }
    plait_plan_destroy(&plan);
    plait_free(a);
}

static void work(int n_ranks, work_t *f)
{
    (void)pthread_barrier_init(&have_planned, NULL, (unsigned)n_ranks);
    team_run(n_ranks, PLAIT_DIRECT_POINTER, work_rank, f);
    (void)pthread_barrier_destroy(&have_planned);
}

/* Each call of one rank's device fails in turn: all ranks end, and know the failure. */
static void check_failing(int n_ranks, int rank)
{
    static work_t f;

    f = (work_t){.rank = rank};
    work(n_ranks, &f);
    const int64_t n_calls = f.n_calls;
    CHECK(n_calls > 8, "%lld calls", (long long)n_calls);
    for (int64_t i = 2; i < 2 * (n_calls + 1); i += is_quick() ? 3 : 1) {
        f.n = i / 2;
        f.is_dead = i % 2 != 0;
        work(n_ranks, &f);
        for (int r = 0; r < n_ranks; r++) {
            CHECK(f.status[r] == ((r == rank) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER) &&
                      strstr(f.text[r], "check device") != NULL,
                  "%d ranks, call %lld of %lld: rank %d has %d, %s", n_ranks,
                  (long long)f.n, (long long)n_calls, r, (int)f.status[r], f.text[r]);
        }
    }
}

/* All ranks have the library's outcome. */
static void check_outcome(int n_ranks)
{
    static work_t f;
    int n_wrong = 0;

    f = (work_t){.rank = -1};
    check_device_order_joint(7);
    work(n_ranks, &f);
    check_device_order_joint(0);
    for (int r = 0; r < n_ranks; r++) {
        CHECK(f.status[r] == PLAIT_OK && f.info[r] == 7, "rank %d: %d, info %d", r,
              (int)f.status[r], f.info[r]);
        for (int i = 0; i < N; i++) {
            n_wrong += !isnan(f.w[r][i]);
        }
        for (int64_t i = 0; i < N / n_ranks * N; i++) {
            n_wrong += !isnan(f.v[r][i]);
        }
    }
    CHECK(n_wrong == 0, "%d numbers", n_wrong);
}

/* ---- As XLA calls it: ranks know devices by their numbers ---- */

typedef struct {
    int64_t id; /* of the communicator */
    int rank, n_ranks;
    int32_t info;
    plait_status_t status;
    char text[160];
} call_t;

enum { FIRST_ORDINAL = 5 };

static int n_made;        /* communicators */
static bool has_lost_one; /* the last device is not found by its number */

static plait_status_t find_device(int ordinal, plait_device_t **device_p)
{
    plait_status_t status = PLAIT_OK;
    const int i = ordinal - FIRST_ORDINAL;

    PLAIT_CHECK(i >= 0 && i < MOST && team_devices[i] != NULL &&
                    !(has_lost_one && (i + 1 == MOST || team_devices[i + 1] == NULL)),
                PLAIT_ERR_UNSUPPORTED, "no device %d", ordinal);
    *device_p = team_devices[i];
done:
    return status;
}

/* A diagonal matrix, whose diagonal is in descending order. */
static void *call_main(void *argument)
{
    call_t *c = argument;
    const int64_t stored = plait_dense_columns(N, BLOCK, c->n_ranks);
    const int64_t width = (N + c->n_ranks - 1) / c->n_ranks;
    const int64_t dims[] = {stored, N}, dims_v[] = {width, N}, n = N, one = 1;
    const plait_heevd_params_t params = {N, BLOCK, 0, N};
    double *a = plait_alloc(stored * N, sizeof(*a));
    double w[N], v[N * N];
    plait_call_t call = {
        .op = &plait_op_heevd,
        .params = &params,
        .run = 3,
        .device = team_devices[c->rank],
        .args = {{.dtype = PLAIT_F64, .ndim = 2, .dims = dims, .data = a}},
        .rets = {{.dtype = PLAIT_F64, .ndim = 1, .dims = &n, .data = w},
                 {.dtype = PLAIT_F64, .ndim = 2, .dims = dims_v, .data = v},
                 {.dtype = PLAIT_S32, .ndim = 1, .dims = &one, .data = &c->info}}};

    for (int64_t k = c->rank; k < N / BLOCK; k += c->n_ranks) {
        for (int64_t j = 0; j < BLOCK; j++) {
            const int64_t column = k * BLOCK + j;
            a[(k / c->n_ranks * BLOCK + j) * N + column] = (double)(N - column);
        }
    }
    CHECK(plait_registry_find(c->id, FIRST_ORDINAL + c->rank, &call.comm) == PLAIT_OK,
          "rank %d", c->rank);
    c->status = plait_op_run(&call);
    (void)snprintf(c->text, sizeof(c->text), "%s", plait_error_text());
    for (int i = 0; i < N && c->info == 0; i++) {
        CHECK(fabs(w[i] - (i + 1)) <= 1e-13 * (double)N, "w[%d] %g", i, w[i]);
    }
    plait_free(a);
    return NULL;
}

/* expected: the outcome that the library is ordered to find, or 0 without an order. */
static void check_calls(int n_ranks, int32_t expected)
{
    int32_t ordinals[MOST];
    call_t calls[MOST];
    pthread_t threads[MOST];
    int64_t id = 0;

    for (int r = 0; r < n_ranks; r++) {
        ordinals[r] = FIRST_ORDINAL + r;
    }
    CHECK(plait_registry_add_local(n_ranks, ordinals, "test_joint.c", &id) == PLAIT_OK,
          "registry");
    for (int r = 0; r < n_ranks; r++) {
        calls[r] = (call_t){.id = id, .rank = r, .n_ranks = n_ranks, .info = -1};
        CHECK(pthread_create(&threads[r], NULL, call_main, &calls[r]) == 0, "thread");
    }
    for (int r = 0; r < n_ranks; r++) {
        (void)pthread_join(threads[r], NULL);
        CHECK(calls[r].status == PLAIT_OK && calls[r].info == expected,
              "rank %d: %d, info %d, %s", r, (int)calls[r].status, calls[r].info,
              calls[r].text);
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    n_made++;
}

static void check_by_number(int n_ranks)
{
    plait_device_set_finder(find_device);
    check_calls(n_ranks, 0);
    check_device_order_joint(9);
    check_calls(n_ranks, 9);
    has_lost_one = true;
    check_calls(n_ranks, 0);
    has_lost_one = false;
    check_device_order_joint(0);
    plait_device_set_finder(NULL);
}

/* ---- Plans ---- */

/* The plan's own description. */
static void say(const plait_plan_t *plan, char text[], size_t n_bytes)
{
    FILE *file = fmemopen(text, n_bytes, "w");

    plait_plan_print(plan, file);
    (void)fclose(file);
}

static bool is_joint(plait_comm_t *comm, int64_t n)
{
    char text[4000] = "";
    plait_plan_t *plan = NULL;

    CHECK(plan_of(comm, n, &plan) == PLAIT_OK, "plan");
    say(plan, text, sizeof(text));
    const bool is = strstr(text, "by all devices at once: ") != NULL;
    CHECK(is == (strstr(text, ", blocking\n") != NULL), "%s", text);
    plait_plan_destroy(&plan);
    return is;
}

/* No rank has the whole matrix; work memory includes the library's. */
static void plan_rank(plait_comm_t *comm, void *context)
{
    const int64_t n_ranks = comm->end.size, n = 64 * n_ranks;
    plait_device_t *const *devices = comm->end.caps.devices;
    plait_plan_t *plan = NULL;

    (void)context;
    CHECK(is_joint(comm, n), "the rule");
    CHECK(!is_joint(comm, n_ranks - 1), "a rank without columns");
    CHECK(plan_of(comm, n, &plan) == PLAIT_OK, "plan");
    const plait_plan_cost_t cost = plait_plan_cost(plan);
    CHECK(cost.work_bytes < 2 * n * n / n_ranks * (int64_t)sizeof(double),
          "rank %d of %lld: %lld bytes of work", comm->end.rank, (long long)n_ranks,
          (long long)cost.work_bytes);
    CHECK(cost.scratch_bytes >= 16 * n + 48 * n_ranks, "%lld bytes of scratch",
          (long long)cost.scratch_bytes);
    plait_plan_destroy(&plan);
    comm->end.caps.devices = NULL;
    CHECK(!is_joint(comm, n), "devices that are not known");
    comm->end.caps.devices = devices;
}

static void rule_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    CHECK(!is_joint(comm, 8192), "what one device does alone");
    CHECK(is_joint(comm, 8193), "what it does not");
}

/* The chosen library works for any extent at which each rank has a block; else the plan fails. */
static void chosen_rank(plait_comm_t *comm, void *context)
{
    const bool is_library = strcmp(context, "cuSolverMg") == 0;
    const int64_t n_ranks = comm->end.size;
    plait_device_t *const *devices = comm->end.caps.devices;
    plait_plan_t *plan = NULL;

    CHECK(is_joint(comm, 8193) == is_library, "%s: beyond the bound", (char *)context);
    CHECK(is_joint(comm, n_ranks) == is_library, "%s: a block for each",
          (char *)context);
    CHECK(!is_joint(comm, n_ranks - 1), "%s: a rank without columns", (char *)context);
    comm->end.caps.devices = NULL;
    const plait_status_t status = plan_of(comm, 64, &plan);
    CHECK(is_library
              ? status == PLAIT_ERR_UNSUPPORTED &&
                    strstr(plait_error_text(), "dense_backend is cuSolverMg: ") != NULL
              : status == PLAIT_OK,
          "%s: %d, %s", (char *)context, (int)status, plait_error_text());
    comm->end.caps.devices = devices;
    plait_plan_destroy(&plan);
}

static void check_chosen(int n_ranks)
{
    char *const backends[] = {"plait", "cuSolverMg", "auto"};

    plait_device_set_finder(find_device);
    for (int i = 0; i < 3; i++) {
        CHECK(plait_config_set("dense_backend", backends[i]) == PLAIT_OK, "%s",
              plait_error_text());
        if (i < 2) {
            team_run(n_ranks, PLAIT_DIRECT_POINTER, chosen_rank, backends[i]);
        }
    }
}

/* A device fails while a plan is made: the error names the device, and nothing is left of the plan. */
static void plan_failing_rank(plait_comm_t *comm, void *unused)
{
    plait_device_t *first = team_devices[0];
    plait_plan_t *plan = NULL;
    plait_status_t status = PLAIT_ERR_INTERNAL;
    int64_t n = 0;

    (void)unused;
    while (comm->end.rank == 0 && status != PLAIT_OK) {
        check_device_fail_at(first, ++n, false);
        status = plan_of(comm, N, &plan);
        CHECK((status == PLAIT_OK) == (plan != NULL) &&
                  (status == PLAIT_OK || (status == PLAIT_ERR_INTERNAL &&
                                          strstr(plait_error_text(), "fails") != NULL)),
              "call %lld: %d, %s", (long long)n, (int)status, plait_error_text());
    }
    if (comm->end.rank == 0) {
        check_device_fail_at(first, 0, false);
        CHECK(n > 4, "%lld calls", (long long)n);
    }
    plait_plan_destroy(&plan);
}

/* ---- Meetings ---- */

/* A plan of one joint call, on one word for each rank. */
typedef struct {
    _Atomic int n_gone; /* ranks that have left */
    int n_ranks;
    bool is_late,
        differs; /* the last rank comes when all others have left; ranks do not the same */
    atomic_bool was_called, is_over;
    plait_status_t status[MOST];
    char text[MOST][160];
} meeting_t;

static meeting_t *meeting; /* of the kernels */

static const struct timespec nap = {.tv_nsec = 2000000};

static plait_status_t late_run(const void *params, plait_exec_t *exec)
{
    (void)params;
    while (meeting->is_late && exec->plan->rank == meeting->n_ranks - 1 &&
           atomic_load(&meeting->n_gone) < meeting->n_ranks - 1) {
        (void)nanosleep(&nap, NULL);
    }
    return PLAIT_OK;
}

static plait_status_t call(const void *params, plait_exec_t *exec,
                           const plait_joint_part_t parts[])
{
    (void)params;
    (void)exec;
    for (int r = 0; r < meeting->n_ranks; r++) {
        CHECK(parts[r].found == 10 + r, "rank %d has brought %d", r, parts[r].found);
    }
    atomic_store(&meeting->was_called, true);
    for (int i = 0; i < 50; i++) {
        (void)nanosleep(&nap, NULL);
    }
    atomic_store(&meeting->is_over, true);
    return PLAIT_OK;
}

static plait_status_t joint_run(const void *params, plait_exec_t *exec)
{
    const int slot = plait_slot_arg(exec->plan, 0);
    const plait_joint_slots_t slots = {slot, -1, slot};
    const plait_status_t status = plait_exec_joint(exec, &slots, call, params);

    CHECK(!atomic_load(&meeting->was_called) || atomic_load(&meeting->is_over),
          "rank %d has left a call that was not over", exec->plan->rank);
    return status;
}

static void touch_nothing(const void *params, plait_touch_fn_t touch, void *context)
{
    (void)params;
    (void)touch;
    (void)context;
}

static void print_nothing(const void *params, FILE *file)
{
    (void)params;
    (void)file;
}

static const plait_kernel_t late_kernel = {.name = "late",
                                           .run_device = late_run,
                                           .touch = touch_nothing,
                                           .print = print_nothing};
static const plait_kernel_t joint_kernel = {.name = "joint",
                                            .run_device = joint_run,
                                            .is_blocking = true,
                                            .touch = touch_nothing,
                                            .print = print_nothing};

/* Ends every wait inside a call and, if a rank does not come, waits at fences. */
static plait_status_t end_waits(const plait_wait_t *wait)
{
    const bool is_fence = strcmp(wait->what, "fence") == 0;
    const bool is_ended = meeting->is_late && is_fence;

    return (is_ended || strcmp(wait->what, "a call on all devices") == 0)
               ? plait_fail(PLAIT_ERR_TIMEOUT, "%s: nobody came", wait->what)
               : PLAIT_OK;
}

static void meeting_rank(plait_comm_t *comm, void *context)
{
    meeting_t *m = context;
    const int me = comm->end.rank;
    const int64_t one = 1;
    const int32_t word = 10 + me;
    const plait_array_t array = {.dtype = PLAIT_S32, .ndim = 1, .dims = &one};
    const plait_problem_t problem = {.n_ranks = m->n_ranks,
                                     .rank = me,
                                     .caps = {.device = comm->end.caps.device},
                                     .n_args = 1,
                                     .args = &array};
    plait_plan_t *plan = NULL;
    char params = 0;

    CHECK(plait_plan_create(&problem, &plan, "a meeting") == PLAIT_OK, "plan");
    plan->title_ref = plait_trace_text(plan->title);
    plait_plan_agree(plan, m->differs ? (uint64_t)me : 0);
    CHECK(plait_plan_kernel_copy(plan, &late_kernel, &params, 1) == PLAIT_OK, "late");
    CHECK(plait_plan_kernel_copy(plan, &joint_kernel, &params, 1) == PLAIT_OK, "joint");
    m->status[me] = plait_plan_execute(plan, comm, (const void *[]){&word}, NULL);
    (void)snprintf(m->text[me], sizeof(m->text[me]), "%s", plait_error_text());
    (void)atomic_fetch_add(&m->n_gone, 1);
    plait_plan_destroy(&plan);
}

static void run_meeting(meeting_t *m)
{
    meeting = m;
    team_run(m->n_ranks, PLAIT_DIRECT_NONE, meeting_rank, m);
}

static void check_meetings(int n_ranks)
{
    meeting_t all = {.n_ranks = n_ranks}, late = {.n_ranks = n_ranks, .is_late = true};
    meeting_t differs = {.n_ranks = n_ranks, .differs = true};

    plait_wait_set_hook(end_waits);
    run_meeting(&all); /* nobody leaves, whatever the hook says */
    run_meeting(&late);
    run_meeting(&differs);
    for (int r = 0; r < n_ranks; r++) {
        CHECK(all.status[r] == PLAIT_OK, "rank %d: %s", r, all.text[r]);
        CHECK(late.status[r] == PLAIT_ERR_TIMEOUT &&
                  strstr(late.text[r],
                         (r < n_ranks - 1) ? "nobody came" : "comes too late") != NULL,
              "rank %d: %d, %s", r, (int)late.status[r], late.text[r]);
        CHECK(differs.status[r] == PLAIT_ERR_MISMATCH &&
                  strstr(differs.text[r], "another operation") != NULL,
              "rank %d: %d, %s", r, (int)differs.status[r], differs.text[r]);
    }
    CHECK(atomic_load(&all.is_over) && !atomic_load(&late.was_called) &&
              !atomic_load(&differs.was_called),
          "calls");
    plait_wait_set_hook(plait_guard_look);
}

int main(void)
{
    if (plait_blas_require() != PLAIT_OK) {
        printf("test_joint: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    team_knows_devices = true;
    for (int n_ranks = 2; n_ranks <= (is_quick() ? 2 : MOST); n_ranks++) {
        on_device_begin(n_ranks);
        team_run(n_ranks, PLAIT_DIRECT_POINTER, rule_rank, NULL);
        check_chosen(n_ranks);
        plait_dense_choose_whole(0);
        team_run(n_ranks, PLAIT_DIRECT_POINTER, plan_rank, NULL);
        team_run(n_ranks, PLAIT_DIRECT_POINTER, plan_failing_rank, NULL);
        check_outcome(n_ranks);
        check_failing(n_ranks, 0);
        check_failing(n_ranks, n_ranks - 1);
        check_by_number(n_ranks);
        plait_dense_choose_whole(-1);
        check_meetings(n_ranks);
        on_device_end(n_ranks);
    }
    (void)plait_pool_trim();
    /* A page of the registry and the entries with their labels stay for ever. */
    CHECK(plait_alloc_balance() == 1 + n_made, "balance %lld",
          (long long)plait_alloc_balance());
    printf("test_joint: %d checks, %d failed\n", n_checked, n_failed);
    return n_failed != 0;
}
