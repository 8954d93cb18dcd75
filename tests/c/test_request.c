/* Plans that are started and waited for (plait/plan.h), by ranks that are threads: beside each other, beside
 * plain operations, with a rank that starts late, and wrong plans; results are compared with the same plans
 * executed. */
#include "check.h"
#include "device/pool.h"
#include "parts.h"
#include "plait/coll.h"
#include "plait/fft.h"
#include "plait/halo.h"
#include "plait/redist.h"
#include "plan/launch.h"
#include "plan/plan.h"
#include "plan/started.h"
#include "team.h"

#include <sched.h>

enum { N_PLANS = 3, N_ROUNDS = 4 };

static const int64_t shape[] = {13, 9, 11};

/* A plan, and its results for the operands of a round. */
typedef struct {
    plait_plan_t *plan;
    int64_t n_x, n_y;
    double *x[N_ROUNDS], *y[N_ROUNDS], *want[N_ROUNDS];
} work_t;

static plait_plan_t *plan_of(const plait_comm_t *comm, int i)
{
    static const int64_t widths[] = {2, 1, 0};
    static const int axes[] = {0, 1, 2};
    const plait_layout_t from = split_along(0, shape, plait_comm_size(comm));
    const plait_layout_t to = split_along(1, shape, plait_comm_size(comm));
    const plait_halo_problem_t halo = {
        .dtype = PLAIT_F64, .cells = &from, .before = widths};
    const plait_fft_problem_t fft = {.dtype = PLAIT_C128,
                                     .from = &from,
                                     .to = &to,
                                     .n_axes = 3,
                                     .axes = axes,
                                     .sign = -1,
                                     .scale = 1};
    plait_plan_t *plan = NULL;

    check_good((i == 0)   ? plait_halo_pad_plan(comm, &halo, &plan)
               : (i == 1) ? plait_fft_plan(comm, &fft, &plan)
                          : plait_redist_plan(comm, PLAIT_F64, &from, &to, &plan));
    return plan;
}

static plait_status_t execute(const work_t *w, plait_comm_t *comm, const double *x,
                              double *y)
{
    return plait_plan_execute(w->plan, comm, (const void *[]){x}, (void *[]){y});
}

static plait_request_t start(const work_t *w, plait_comm_t *comm, int round)
{
    plait_request_t request = {-1};

    check_good(plait_plan_start(w->plan, comm, (const void *[]){w->x[round]},
                                (void *[]){w->y[round]}, &request));
    CHECK(request.number > 0, "number %lld", (long long)request.number);
    return request;
}

static work_t begin(plait_comm_t *comm, int i)
{
    work_t w = {.plan = plan_of(comm, i)};

    w.n_x = w.plan->slot_bytes[0] / 8;
    w.n_y = w.plan->slot_bytes[1] / 8;
    for (int round = 0; round < N_ROUNDS; round++) {
        w.x[round] = plait_alloc(w.n_x + 1, 8);
        w.y[round] = plait_alloc(w.n_y + 1, 8);
        w.want[round] = plait_alloc(w.n_y + 1, 8);
        for (int64_t k = 0; k < w.n_x; k++) {
            w.x[round][k] = (double)((k * 13 + plait_comm_rank(comm) * 5 + round) % 29);
        }
        check_good(execute(&w, comm, w.x[round], w.want[round]));
    }
    return w;
}

static void end(work_t *w)
{
    for (int round = 0; round < N_ROUNDS; round++) {
        plait_free(w->x[round]);
        plait_free(w->y[round]);
        plait_free(w->want[round]);
    }
    plait_plan_destroy(&w->plan);
}

static void compare(const work_t *w, int round)
{
    CHECK(memcmp(w->y[round], w->want[round], (size_t)w->n_y * 8) == 0, "%s: round %d",
          w->plan->title, round);
}

/* All plans at once, with other operations between; the last plan is waited for first. */
static void check_beside(plait_comm_t *comm, const work_t works[N_PLANS])
{
    const int size = plait_comm_size(comm);
    const int rank = plait_comm_rank(comm);
    plait_request_t requests[N_ROUNDS][N_PLANS];
    double one = 1;
    double sum = 0;
    double got = -1;
    const double mine = rank;

    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < N_PLANS; i++) {
            requests[round][i] = start(&works[i], comm, round);
        }
        check_good(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &one, &sum));
        CHECK(sum == size, "%g", sum);
        check_good(plait_sendrecv(comm, (rank + 1) % size, 1, PLAIT_F64, 1, &mine,
                                  (rank + size - 1) % size, 1, PLAIT_F64, 1, &got,
                                  NULL));
        CHECK(got == (rank + size - 1) % size, "%g", got);
    }
    for (int round = N_ROUNDS - 1; round >= 0; round--) {
        for (int i = N_PLANS - 1; i >= 0; i--) {
            check_good(plait_request_wait(&requests[round][i]));
            CHECK(requests[round][i].number == 0, "still a number");
            compare(&works[i], round);
        }
    }
}

/* The other ranks start after a message that is sent once the first rank has started: its start must not wait
 * for them. One of them executes the plan. */
static void check_late(plait_comm_t *comm, const work_t *w)
{
    const int rank = plait_comm_rank(comm);
    double word = 3;
    plait_request_t request = {0};

    memset(w->y[0], 0, (size_t)w->n_y * 8);
    if (rank == 0) {
        request = start(w, comm, 0);
        CHECK(plait_comm_size(comm) == 1 || !plait_request_is_done(&request),
              "done without the others");
    }
    for (int r = 1; r < plait_comm_size(comm) && rank == 0; r++) {
        check_good(plait_send(comm, r, 2, PLAIT_F64, 1, &word));
    }
    if (rank > 0) {
        check_good(plait_recv(comm, 0, 2, PLAIT_F64, 1, &word, NULL));
    }
    if (rank == 1) {
        check_good(execute(w, comm, w->x[0], w->y[0]));
    } else if (rank > 1) {
        request = start(w, comm, 0);
    }
    while (!plait_request_is_done(&request)) {
        (void)sched_yield();
    }
    check_good(plait_request_wait(&request));
    compare(w, 0);
}

static void check_refusals(plait_comm_t *comm, const work_t *w)
{
    const void *args[] = {w->x[0]};
    void *rets[] = {w->y[0]};
    const void *no_args[] = {NULL};
    plait_request_t request = {-1};

    CHECK(plait_plan_start(NULL, comm, args, rets, &request) == PLAIT_ERR_COMM &&
              request.number == 0,
          "no plan");
    CHECK(plait_plan_start(w->plan, NULL, args, rets, &request) == PLAIT_ERR_COMM,
          "no communicator");
    check_refused(plait_plan_start(w->plan, comm, args, rets, NULL), PLAIT_ERR_INVALID,
                  "request_p is NULL");
    check_refused(plait_plan_start(w->plan, comm, no_args, rets, &request),
                  PLAIT_ERR_INVALID, "args[0] is NULL");
    char place[64];
    (void)snprintf(place, sizeof(place), "rank %d of communicator #",
                   plait_comm_rank(comm));
    check_refused(plait_plan_execute(w->plan, comm, no_args, rets), PLAIT_ERR_INVALID,
                  place);
    CHECK(plait_comm_rank(NULL) == -1 && plait_comm_size(NULL) == 0 &&
              plait_comm_transport(NULL)[0] == '\0' &&
              plait_comm_direct(NULL)[0] == '\0' &&
              plait_plan_cost(NULL).n_messages == 0,
          "of NULL");
    check_good(plait_request_wait(&request)); /* none */
    CHECK(plait_request_is_done(&request) && plait_request_is_done(NULL), "none");
    check_refused(plait_request_wait(NULL), PLAIT_ERR_INVALID, "request is NULL");
    request = start(w, comm, 0);
    plait_request_t copy = request;
    check_good(plait_request_wait(&request));
    CHECK(plait_request_is_done(&copy), "it is done");
    check_refused(plait_request_wait(&copy), PLAIT_ERR_INVALID, "it was waited for");
}

/* Ranks that start different plans are told when they wait. */
static void check_mismatch(plait_comm_t *comm, const work_t works[N_PLANS])
{
    const int i = (plait_comm_rank(comm) == 0) ? 0 : 2;
    plait_request_t request = start(&works[i], comm, 0);

    check_refused(plait_request_wait(&request), PLAIT_ERR_MISMATCH, "rank");
    request = start(&works[1], comm, 1);
    check_good(plait_request_wait(&request));
    compare(&works[1], 1);
}

static void run_rank(plait_comm_t *comm, void *context)
{
    work_t works[N_PLANS];

    (void)context;
    for (int i = 0; i < N_PLANS; i++) {
        works[i] = begin(comm, i);
    }
    check_beside(comm, works);
    check_late(comm, &works[0]);
    check_late(comm, &works[1]);
    check_refusals(comm, &works[0]);
    if (plait_comm_size(comm) > 1) {
        check_mismatch(comm, works);
    }
    check_good(plait_barrier(comm));
    for (int i = 0; i < N_PLANS; i++) {
        end(&works[i]);
    }
}

/* A communicator is destroyed before the wait: destroying waits, and the results are there. */
static void check_destroyed(void)
{
    plait_comm_t *comm = NULL;

    check_good(plait_comm_self(&comm));
    work_t w = begin(comm, 1);
    plait_request_t request = start(&w, comm, 2);
    plait_comm_destroy(&comm);
    CHECK(plait_request_is_done(&request), "under way");
    check_good(plait_request_wait(&request));
    compare(&w, 2);
    end(&w);
}

int main(void)
{
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++) {
        team_run(n_ranks, PLAIT_DIRECT_POINTER, run_rank, NULL);
        team_run(n_ranks, PLAIT_DIRECT_NONE, run_rank, NULL);
    }
    check_destroyed();
    CHECK(plait_started_count() == 0 && plait_in_flight() == 0, "left");
    (void)plait_pool_trim();
    return report("test_request");
}
