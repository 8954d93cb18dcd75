/* Writing to peers' memory: the checker finds its faults, transforms give the same bits with and without it,
 * and nothing is written to a rank that gave up waiting. */
#include "base/status.h"
#include "base/wait.h"
#include "check.h"
#include "device/pool.h"
#include "parts.h"
#include "plait/fft.h"
#include "plan/check.h"
#include "team.h"

#include <stdatomic.h>
#include <string.h>

/* ---- the checker */

enum { N_RANKS = 3, N_PHASES = 3, N_BYTES = 8 };

typedef enum { NOTHING, READS, WRITES } do_t;

/* A rank's act in a phase on the result of another rank, or on its own. */
typedef struct {
    do_t what;
    int owner;
} act_t;

/* Before the first phase every rank writes its own result. */
typedef struct {
    act_t act[N_RANKS][N_PHASES];
    const char *fault; /* NULL: there is none */
} story_t;

static void act_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const act_t *act = params;
    const plait_box_copy_t all = {.row_bytes = N_BYTES};

    touch(context, act->what == WRITES, act->owner, 0, 0, &all);
}

static const plait_kernel_t act_kernel = {.name = "act", .touch = act_touch};

static void add_act(plait_plan_t *plan, act_t act)
{
    if (act.what != NOTHING) {
        CHECK(plait_plan_kernel_copy(plan, &act_kernel, &act, sizeof(act)) == PLAIT_OK,
              "act");
    }
}

static void check_story(const story_t *story, bool can_write)
{
    const int64_t dims[] = {N_BYTES};
    const plait_array_t result = {.dtype = PLAIT_U8, .ndim = 1, .dims = dims};
    const plait_check_t options = {.alias = -1};
    plait_plan_t *plans[N_RANKS] = {NULL};

    for (int r = 0; r < N_RANKS; r++) {
        const plait_problem_t problem = {
            .n_ranks = N_RANKS,
            .rank = r,
            .caps = {.direct = PLAIT_DIRECT_READ, .can_write = can_write},
            .n_rets = 1,
            .rets = &result};
        CHECK(plait_plan_create(&problem, &plans[r], "story") == PLAIT_OK, "plan");
        add_act(plans[r], (act_t){WRITES, PLAIT_ANY});
        for (int p = 0; p < N_PHASES; p++) {
            CHECK(plait_plan_fence(plans[r]) == PLAIT_OK, "fence");
            add_act(plans[r], story->act[r][p]);
        }
    }
    const plait_status_t status = plait_plans_check(plans, N_RANKS, &options);
    if (story->fault == NULL) {
        CHECK(status == PLAIT_OK, "%s", plait_error_text());
    } else {
        CHECK(status == PLAIT_ERR_INTERNAL &&
                  strstr(plait_error_text(), story->fault) != NULL,
              "%s: %s", story->fault, plait_error_text());
    }
    for (int r = 0; r < N_RANKS; r++) {
        plait_plan_destroy(&plans[r]);
    }
}

static void check_stories(void)
{
    static const story_t stories[] = {
        /* all in a round, each to the next; then everybody reads everything */
        {{{{WRITES, 1}, {READS, 0}},
          {{WRITES, 2}, {READS, 0}},
          {{WRITES, 0}, {READS, 1}}},
         NULL},
        {{{{WRITES, 2}, {NOTHING, 0}, {WRITES, 2}},
          {{NOTHING, 0}, {WRITES, 2}},
          {{NOTHING, 0}, {NOTHING, 0}, {NOTHING, 0}}},
         NULL},
        {{{{WRITES, 1}}, {{READS, 1}}}, "in the same phase"},
        {{{{READS, 0}}, {{WRITES, 0}}}, "is read in the same phase"},
        {{{{WRITES, 0}}, {{WRITES, 0}}}, "is written in the same phase"},
        {{{{WRITES, 1}}, {{WRITES, 1}}}, "writes what a peer writes"},
        {{{{WRITES, 2}}, {{WRITES, 2}}}, "is written in the same phase"},
        {{{{WRITES, 2}}, {{READS, 2}}}, "in the same phase"},
        {{{{READS, 2}}, {{WRITES, 2}}}, "is read in the same phase"},
    };
    const story_t put = {{{{WRITES, 1}}}, "writes to a peer"};

    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        check_story(&stories[i], true);
    }
    check_story(&put, false);
}

/* ---- transforms */

typedef struct {
    int ndim;
    int64_t shape[3]; /* of complex numbers */
    int n_grid;
    int grid[2];
    int over[3]; /* before and after */
    plait_fft_kind_t kind;
    plait_dtype_t dtype;
} natural_t;

typedef struct {
    const natural_t *natural;
    bool can_write;
    char *result[TEAM_MAX]; /* by rank */
    int64_t n_bytes[TEAM_MAX];
    bool is_put[TEAM_MAX];
} natural_run_t;

static int64_t layouts(const natural_t *n, plait_layout_t *from, plait_layout_t *to)
{
    int64_t real[3] = {n->shape[0], n->shape[1], n->shape[2]};
    const bool is_real = n->kind == PLAIT_FFT_COMPLEX_TO_REAL;

    real[n->ndim - 1] = is_real ? 2 * (n->shape[n->ndim - 1] - 1) : real[n->ndim - 1];
    CHECK(plait_layout_pencil(n->ndim, n->shape, n->n_grid, n->grid, n->over,
                              PLAIT_SPLIT_EVEN, from) == PLAIT_OK &&
              plait_layout_pencil(n->ndim, real, n->n_grid, n->grid, n->over,
                                  PLAIT_SPLIT_EVEN, to) == PLAIT_OK,
          "layouts");
    return plait_dtype_bytes(n->dtype) / (is_real ? 2 : 1);
}

static bool prints_put(const plait_plan_t *plan)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);

    plait_plan_print(plan, file);
    (void)fclose(file);
    bool is_put = strstr(text, ", put to ") != NULL;
    free(text);
    return is_put;
}

static void run_natural(plait_comm_t *comm, void *context)
{
    static const int axes[] = {0, 1, 2};
    natural_run_t *run = context;
    const natural_t *n = run->natural;
    const int rank = comm->end.rank;
    plait_layout_t from, to;
    plait_plan_t *plan = NULL;
    const int64_t item = layouts(n, &from, &to);
    const int64_t n_x = 2 * n_local(&from, rank);
    const int64_t n_bytes = n_local(&to, rank) * item;
    const bool is_single = n->dtype == PLAIT_C64;
    char *x = malloc((size_t)n_x * sizeof(double) + 1);
    char *y = malloc((size_t)n_bytes + 1);

    comm->end.caps.can_write = run->can_write;
    for (int64_t i = 0; i < n_x; i++) {
        double value = (double)((i * 7919 + rank * 131) % 1009) / 1009 - 0.5;
        if (is_single) {
            ((float *)(void *)x)[i] = (float)value;
        } else {
            ((double *)(void *)x)[i] = value;
        }
    }
    const plait_fft_problem_t problem = {.dtype = n->dtype,
                                         .kind = n->kind,
                                         .from = &from,
                                         .to = &to,
                                         .n_axes = n->ndim,
                                         .axes = axes,
                                         .sign = 1,
                                         .scale = 0.5};
    CHECK(plait_fft_plan(comm, &problem, &plan) == PLAIT_OK, "plan");
    run->is_put[rank] = prints_put(plan);
    memset(y, 77, (size_t)n_bytes);
    CHECK(plait_plan_execute(plan, comm, (const void *[]){x}, (void *[]){y}) ==
              PLAIT_OK,
          "%s", plait_error_text());
    run->result[rank] = y;
    run->n_bytes[rank] = n_bytes;
    plait_plan_destroy(&plan);
    free(x);
}

static void check_natural(const natural_t *n)
{
    static const plait_direct_t ways[] = {PLAIT_DIRECT_READ, PLAIT_DIRECT_READ,
                                          PLAIT_DIRECT_POINTER, PLAIT_DIRECT_NONE};
    const int n_ranks = n->grid[0] * ((n->n_grid > 1) ? n->grid[1] : 1);
    natural_run_t plain = {.natural = n};

    team_run(n_ranks, PLAIT_DIRECT_READ, run_natural, &plain);
    for (int way = 1; way < 4; way++) {
        natural_run_t run = {.natural = n, .can_write = true};
        bool is_put = false;
        team_run(n_ranks, ways[way], run_natural, &run);
        for (int r = 0; r < n_ranks; r++) {
            CHECK(memcmp(run.result[r], plain.result[r], (size_t)run.n_bytes[r]) == 0,
                  "%lld x %lld x %lld over %d, way %d, rank %d", (long long)n->shape[0],
                  (long long)n->shape[1], (long long)n->shape[2], n_ranks, way, r);
            CHECK(!plain.is_put[r], "writes to peers without leave");
            is_put = is_put || run.is_put[r];
            free(run.result[r]);
        }
        CHECK(is_put == (ways[way] != PLAIT_DIRECT_NONE), "way %d: put %d", way,
              is_put);
    }
    for (int r = 0; r < n_ranks; r++) {
        free(plain.result[r]);
    }
}

static void check_naturals(void)
{
    static const natural_t naturals[] = {
        {3, {12, 10, 9}, 1, {2}, {0, -1, -1}, PLAIT_FFT_COMPLEX, PLAIT_C128},
        {3, {13, 7, 20}, 1, {3}, {0, -1, -1}, PLAIT_FFT_COMPLEX, PLAIT_C64},
        {3, {3, 2, 5}, 1, {4}, {0, -1, -1}, PLAIT_FFT_COMPLEX, PLAIT_C128},
        {3, {64, 48, 40}, 1, {2}, {1, 0, -1}, PLAIT_FFT_COMPLEX, PLAIT_C64},
        {3, {11, 9, 10}, 2, {2, 2}, {0, 1, -1}, PLAIT_FFT_COMPLEX, PLAIT_C128},
        {3, {8, 12, 7}, 2, {3, 2}, {1, 0, -1}, PLAIT_FFT_COMPLEX, PLAIT_C64},
        {3, {12, 10, 9}, 1, {2}, {0, -1, -1}, PLAIT_FFT_COMPLEX_TO_REAL, PLAIT_C128},
        {3, {9, 14, 6}, 1, {3}, {0, -1, -1}, PLAIT_FFT_COMPLEX_TO_REAL, PLAIT_C64},
    };

    for (size_t i = 0; i < sizeof(naturals) / sizeof(naturals[0]); i++) {
        natural_t n = naturals[i];
        for (int a = 0; a < 3; a++) {
            n.over[a] = (n.over[a] < n.n_grid) ? n.over[a] : -1;
        }
        check_natural(&n);
    }
}

/* ---- a rank that gives up */

typedef struct {
    _Atomic bool has_given_up;
} leave_t;

static _Thread_local bool is_impatient;

static plait_status_t end_wait(const plait_wait_t *wait)
{
    (void)wait;
    return is_impatient ? plait_fail(PLAIT_ERR_TIMEOUT, "impatient") : PLAIT_OK;
}

/* Rank 0 gives up a fence that rank 1 has reached; rank 2 comes only afterwards. Both learn of it there, and
 * neither uses what rank 0 had shown. The next meeting works as usual. */
static void leave(plait_comm_t *comm, void *context)
{
    leave_t *l = context;
    plait_session_t session = {.end = &comm->end, .run = 1};
    const plait_transport_t *transport = comm->end.transport;
    const plait_record_t mine = {.n_slots = 0};
    const int rank = comm->end.rank;

    CHECK(transport->begin(&session, true) == PLAIT_OK, "begin");
    CHECK(transport->fence(&session, &mine, NULL, 0) == PLAIT_OK, "fence");
    while (rank == 2 && !atomic_load(&l->has_given_up)) {
    }
    is_impatient = rank == 0;
    plait_status_t status = transport->fence(&session, &mine, NULL, 0);
    is_impatient = false;
    CHECK(status == PLAIT_ERR_TIMEOUT, "rank %d: %d", rank, (int)status);
    CHECK(strstr(plait_error_text(),
                 (rank == 0) ? "impatient" : "rank 0 has given up") != NULL,
          "rank %d: %s", rank, plait_error_text());
    transport->end(&session);
    if (rank == 0) {
        atomic_store(&l->has_given_up, true);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(transport->begin(&session, true) == PLAIT_OK, "begin");
        CHECK(transport->fence(&session, &mine, NULL, 0) == PLAIT_OK, "then");
        CHECK(transport->fence(&session, &mine, NULL, 0) == PLAIT_OK, "then");
        transport->end(&session);
    }
}

int main(void)
{
    check_stories();
    check_naturals();
    plait_wait_set_hook(end_wait);
    for (int i = 0; i < 20; i++) {
        leave_t l = {false};
        team_run(3, PLAIT_DIRECT_POINTER, leave, &l);
    }
    plait_wait_set_hook(NULL);
    (void)plait_pool_trim();
    return report("test_put");
}
