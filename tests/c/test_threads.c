/* Several threads in one rank: the parts of a team, their number, and transforms that give the same bits on any
 * number of threads. */
#include "base/status.h"
#include "base/team.h"
#include "check.h"
#include "device/pool.h"
#include "parts.h"
#include "plait/coll.h"
#include "plait/fft.h"
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* ---- teams */

enum { N_WORDS = 1000 };

typedef struct {
    int64_t word[N_WORDS];
    int failing; /* part */
} sums_t;

static plait_status_t fill(void *context, int i, int n)
{
    sums_t *sums = context;
    plait_status_t status = PLAIT_OK;

    for (int k = N_WORDS * i / n; k < N_WORDS * (i + 1) / n; k++) {
        sums->word[k] += k;
    }
    if (i >= sums->failing) {
        status = plait_fail(PLAIT_ERR_PEER, "part %d of %d failed", i, n);
    }
    return status;
}

static void check_team(int n)
{
    sums_t sums = {.failing = n};
    int n_wrong = 0;

    CHECK(plait_team_run(n, fill, &sums) == PLAIT_OK, "%d threads", n);
    for (int failing = 0; failing < n; failing += 3) {
        char text[64];
        sums.failing = failing;
        (void)snprintf(text, sizeof(text), "part %d of %d failed", failing, n);
        CHECK(plait_team_run(n, fill, &sums) == PLAIT_ERR_PEER &&
                  strcmp(plait_error_text(), text) == 0,
              "%d threads: %s", n, plait_error_text());
    }
    for (int k = 0; k < N_WORDS; k++) {
        n_wrong += sums.word[k] != (1 + (n + 2) / 3) * k;
    }
    CHECK(n_wrong == 0, "%d threads: %d words", n, n_wrong);
}

static void *size_of_bound(void *set)
{
    const pid_t me[] = {getpid()};
    int n = 0;

    CHECK(sched_setaffinity(0, sizeof(cpu_set_t), set) == 0, "affinity");
    CHECK(plait_team_size(1, me, &n) == PLAIT_OK && n == 1, "%d", n);
    return NULL;
}

/* This thread, which others see as its process, is bound to one processor; the thread that asks is bound to
 * another processor. So no process seems to share it. */
static void check_size_of_bound(void)
{
    cpu_set_t all, bound[2];
    pthread_t thread;
    size_t n = 0;

    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0, "affinity");
    for (size_t cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&bound[n]);
            CPU_SET(cpu, &bound[n]);
            n++;
        }
    }
    if (n == 2) {
        CHECK(sched_setaffinity(0, sizeof(all), &bound[0]) == 0, "affinity");
        CHECK(pthread_create(&thread, NULL, size_of_bound, &bound[1]) == 0, "thread");
        (void)pthread_join(thread, NULL);
        CHECK(sched_setaffinity(0, sizeof(all), &all) == 0, "affinity");
    }
}

static void check_size(void)
{
    static const char *const bad[] = {"0", "-1", "65", "some", "2x"};
    const pid_t me[] = {getpid(), getpid()};
    const int64_t balance = plait_alloc_balance();
    int n = 0, half = 0;

    (void)unsetenv("PLAIT_THREADS");
    CHECK(plait_team_size(1, NULL, &n) == PLAIT_OK && n >= 1, "%d", n);
    CHECK(plait_team_size(2, me, &half) == PLAIT_OK && half >= 1 && half <= (n + 1) / 2,
          "%d of %d", half, n);
    CHECK(plait_team_size(1 << 30, NULL, &half) == PLAIT_OK && half == 1, "%d", half);
    check_size_of_bound();
    (void)setenv("PLAIT_THREADS", "5", 1);
    CHECK(plait_team_size(1 << 30, NULL, &n) == PLAIT_OK && n == 5, "%d", n);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        plait_comm_t *comm = NULL, *comms[4];
        (void)setenv("PLAIT_THREADS", bad[i], 1);
        CHECK(plait_comm_self(&comm) == PLAIT_ERR_INVALID && comm == NULL &&
                  strstr(plait_error_text(), "expected auto or a number") != NULL,
              "%s", bad[i]);
        check_refused(plait_comm_threads(4, comms), PLAIT_ERR_INVALID, bad[i]);
        CHECK(comms[0] == NULL && comms[3] == NULL && plait_alloc_balance() == balance,
              "%s: %lld allocations", bad[i], (long long)plait_alloc_balance());
    }
}

/* ---- transforms */

enum { MAX_RANKS = 3 };

typedef struct {
    plait_fft_kind_t kind;
    plait_layout_t from, to;
    char *y[MAX_RANKS]; /* results by rank */
    int64_t n_bytes[MAX_RANKS];
} job_t;

static void transform(plait_comm_t *comm, void *context)
{
    static const int axes[] = {0, 1, 2};
    job_t *job = context;
    int rank = plait_comm_rank(comm);
    bool from_real = job->kind == PLAIT_FFT_REAL_TO_COMPLEX;
    bool to_real = job->kind == PLAIT_FFT_COMPLEX_TO_REAL;
    int64_t n_in = n_local(&job->from, rank) * (from_real ? 1 : 2);
    const plait_fft_problem_t problem = {.dtype = PLAIT_C128,
                                         .from = &job->from,
                                         .to = &job->to,
                                         .n_axes = 3,
                                         .axes = axes,
                                         .sign = to_real ? 1 : -1,
                                         .scale = 1,
                                         .kind = job->kind};
    double *x = plait_alloc(n_in, sizeof(double));
    plait_plan_t *plan = NULL;

    for (int64_t i = 0; i < n_in; i++) {
        x[i] = sample((uint64_t)rank, (uint64_t)i);
    }
    job->n_bytes[rank] = n_local(&job->to, rank) * (to_real ? 8 : 16);
    job->y[rank] = plait_alloc(job->n_bytes[rank], 1);
    CHECK(plait_fft_plan(comm, &problem, &plan) == PLAIT_OK, "plan");
    CHECK(plait_plan_execute(plan, comm, (const void *[]){x},
                             (void *[]){job->y[rank]}) == PLAIT_OK,
          "execute");
    plait_plan_destroy(&plan);
    plait_free(x);
}

static void check_transforms(int n_ranks, plait_fft_kind_t kind, plait_direct_t direct)
{
    static const char *const n_threads[] = {"1", "2", "3", "7"};
    /* of 2 MB and more, so that it is worth several threads */
    const int64_t n[] = {is_quick() ? 36 : 66, 48, 50};
    const int grid[] = {n_ranks};
    job_t jobs[4] = {0};
    int64_t from[] = {n[0], n[1], n[2]}, to[] = {n[0], n[1], n[2]};

    from[2] = (kind == PLAIT_FFT_COMPLEX_TO_REAL) ? n[2] / 2 + 1 : n[2];
    to[2] = (kind == PLAIT_FFT_REAL_TO_COMPLEX) ? n[2] / 2 + 1 : n[2];
    for (int i = 0; i < 4; i++) {
        (void)setenv("PLAIT_THREADS", n_threads[i], 1);
        jobs[i].kind = kind;
        CHECK(plait_layout_pencil(3, from, 1, grid, (const int[]){0, -1, -1},
                                  PLAIT_SPLIT_EVEN, &jobs[i].from) == PLAIT_OK &&
                  plait_layout_pencil(3, to, 1, grid, (const int[]){-1, 0, -1},
                                      PLAIT_SPLIT_EVEN, &jobs[i].to) == PLAIT_OK,
              "layouts");
        team_run(n_ranks, direct, transform, &jobs[i]);
        for (int r = 0; r < n_ranks; r++) {
            CHECK(memcmp(jobs[i].y[r], jobs[0].y[r], (size_t)jobs[0].n_bytes[r]) == 0,
                  "kind %d, %s threads in rank %d of %d differ from one", (int)kind,
                  n_threads[i], r, n_ranks);
        }
    }
    for (int i = 0; i < 4 * MAX_RANKS; i++) {
        plait_free(jobs[i / MAX_RANKS].y[i % MAX_RANKS]);
    }
    (void)unsetenv("PLAIT_THREADS");
}

/* ---- what ranks that disagree are told */

typedef struct {
    int64_t n; /* counts, or edges */
    const char *here, *there;
} lists_t;

static bool is_said(const lists_t *lists)
{
    const char *text = plait_error_text();

    return strstr(text, lists->here) != NULL && strstr(text, lists->there) != NULL;
}

/* The last rank has one row more than the others state. */
static void differ_in_counts(plait_comm_t *comm, void *context)
{
    const lists_t *lists = context;
    const int n_ranks = plait_comm_size(comm);
    const int is_odd = plait_comm_rank(comm) == n_ranks - 1;
    int64_t counts[TEAM_MAX];
    double x[2] = {0};
    double y[2 * TEAM_MAX];

    for (int r = 0; r < n_ranks; r++) {
        counts[r] = 1 + (is_odd && r == n_ranks - 1);
    }
    CHECK(plait_allgatherv(comm, PLAIT_F64, counts, x, y) == PLAIT_ERR_MISMATCH &&
              is_said(lists),
          "%s", plait_error_text());
}

/* The last rank has another block. */
static void differ_in_edges(plait_comm_t *comm, void *context)
{
    const lists_t *lists = context;
    const int n_ranks = plait_comm_size(comm);
    const int is_odd = plait_comm_rank(comm) == n_ranks - 1;
    plait_edge_t edges[TEAM_MAX];
    double x = 0;
    double y[2] = {0};

    for (int r = 0; r < n_ranks; r++) {
        edges[r] = (plait_edge_t){.source = r, .dest = (r + 1) % n_ranks};
    }
    edges[n_ranks - 1].dest_block = is_odd;
    CHECK(plait_route(comm, lists->n, edges, PLAIT_F64, 1, 1, &x, 2, y) ==
                  PLAIT_ERR_MISMATCH &&
              is_said(lists),
          "%s", plait_error_text());
}

/* A list that does not fit ends in a number, which differs. */
static void check_lists(void)
{
    lists_t few = {.here = "rank 2: allgather(float64(2,), counts [1, 1, 2])",
                   .there = "rank 0, 1: allgather(float64(1,), counts [1, 1, 1])"};
    lists_t many = {.here = "1, 1, ...] #", .there = "rank 31: allgather(float64(2,)"};
    lists_t edges = {.n = 3,
                     .here = "rank 2: route(float64(1, 1), edges [0-1, 1-2, 2-0.1])",
                     .there = "rank 0, 1: route(float64(1, 1), edges [0-1, 1-2, 2-0])"};

    team_run(3, PLAIT_DIRECT_POINTER, differ_in_counts, &few);
    team_run(32, PLAIT_DIRECT_POINTER, differ_in_counts, &many);
    team_run(3, PLAIT_DIRECT_POINTER, differ_in_edges, &edges);
}

int main(void)
{
    static const plait_direct_t directs[] = {PLAIT_DIRECT_POINTER, PLAIT_DIRECT_READ,
                                             PLAIT_DIRECT_NONE};

    check_lists();
    for (int n = 1; n <= 16; n += 5) {
        check_team(n);
    }
    check_team(PLAIT_MAX_THREADS);
    check_size();
    for (int kind = PLAIT_FFT_COMPLEX; kind <= PLAIT_FFT_COMPLEX_TO_REAL; kind++) {
        for (int n_ranks = 1; n_ranks <= MAX_RANKS; n_ranks++) {
            for (int d = 0; d < 3; d++) {
                check_transforms(n_ranks, (plait_fft_kind_t)kind, directs[d]);
            }
        }
    }
    (void)plait_pool_trim();
    return report("test_threads");
}
