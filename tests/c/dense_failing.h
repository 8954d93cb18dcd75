/* Operations on devices of which one fails, while the plan runs or is made. Either one definite matrix serves
 * as matrix, factor and right-hand side, or the operation takes rows. */
#ifndef PLAIT_TESTS_DENSE_FAILING_H
#define PLAIT_TESTS_DENSE_FAILING_H

#include "check_device.h"
#include "dealt.h"
#include "plait/dense.h"

enum { FAILING_N = 12, FAILING_BLOCK = 2 };

typedef plait_status_t (*failing_plan_t)(const plait_comm_t *comm,
                                         plait_plan_t **plan_p);

static inline plait_status_t failing_potrf(const plait_comm_t *comm,
                                           plait_plan_t **plan_p)
{
    const plait_potrf_problem_t p = {
        .dtype = PLAIT_F64, .n = FAILING_N, .block = FAILING_BLOCK};

    return plait_potrf_plan(comm, &p, plan_p);
}

static inline plait_status_t failing_potrs(const plait_comm_t *comm,
                                           plait_plan_t **plan_p)
{
    const plait_potrs_problem_t p = {
        .dtype = PLAIT_F64, .n = FAILING_N, .n_rhs = FAILING_N, .block = FAILING_BLOCK};

    return plait_potrs_plan(comm, &p, plan_p);
}

static inline plait_status_t failing_potri(const plait_comm_t *comm,
                                           plait_plan_t **plan_p)
{
    const plait_potri_problem_t p = {
        .dtype = PLAIT_F64, .n = FAILING_N, .block = FAILING_BLOCK};

    return plait_potri_plan(comm, &p, plan_p);
}

/* Of two columns. */
static inline plait_status_t failing_tsqr(const plait_comm_t *comm,
                                          plait_plan_t **plan_p)
{
    const plait_tsqr_problem_t p = {.dtype = PLAIT_F64, .m = FAILING_N, .n = 2};

    return plait_tsqr_plan(comm, &p, plan_p);
}

/* One call of one rank's device fails while the plan runs. */
typedef struct {
    failing_plan_t plan;
    int rank;
    int64_t n; /* the call; 0: none */
    bool is_dead;
    int64_t n_calls; /* out: of that device */
    plait_status_t status[TEAM_MAX];
    char text[TEAM_MAX][100];
} failing_t;

static inline void failing_rank(plait_comm_t *comm, void *context)
{
    failing_t *f = context;
    const int me = comm->end.rank;
    plait_device_t *device = comm->end.caps.device;
    const int64_t n =
        plait_dense_columns(FAILING_N, FAILING_BLOCK, comm->end.size) * FAILING_N;
    double *a = plait_alloc(n, sizeof(*a)), *l = plait_alloc(n, sizeof(*l));
    double side[4] = {0}; /* an outcome, or a triangle of two columns */
    plait_plan_t *plan = NULL;

    for (int64_t i = 0; i < n; i++) {
        const int64_t local = i / FAILING_N;
        const int64_t column =
            (local / FAILING_BLOCK * comm->end.size + me) * FAILING_BLOCK +
            local % FAILING_BLOCK;
        a[i] = (i % FAILING_N == column) ? (double)FAILING_N
                                         : creal(element_sample(PLAIT_F64, 1, i));
    }
    CHECK(f->plan(comm, &plan) == PLAIT_OK, "plan");
    const int64_t before = check_device_counts(device).n_calls;
    if (me == f->rank) {
        check_device_fail_at(device, f->n, f->is_dead);
    }
    f->status[me] =
        plait_plan_execute(plan, comm, (const void *[]){a, a}, (void *[]){l, side});
    (void)snprintf(f->text[me], sizeof(f->text[me]), "%s",
                   (f->status[me] != PLAIT_OK) ? plait_error_text() : "");
    if (me == f->rank) {
        f->n_calls = check_device_counts(device).n_calls - before;
        check_device_fail_at(device, 0, false);
    }
    plait_plan_destroy(&plan);
    plait_free(a);
    plait_free(l);
}

/* Lets every call of a device fail in turn: all ranks end, and learn of it. */
static inline void check_failing(int n_ranks, failing_plan_t plan)
{
    failing_t f = {.plan = plan, .rank = n_ranks / 2};

    team_run(n_ranks, PLAIT_DIRECT_POINTER, failing_rank, &f);
    const int64_t n_calls = f.n_calls;
    for (int64_t i = 2; i < 2 * (n_calls + 1); i += is_quick() ? 7 : 1) {
        f.n = i / 2;
        f.is_dead = i % 2 != 0;
        team_run(n_ranks, PLAIT_DIRECT_POINTER, failing_rank, &f);
        for (int r = 0; r < n_ranks; r++) {
            CHECK(f.status[r] ==
                          ((r == f.rank) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER) &&
                      strstr(f.text[r], "check device") != NULL,
                  "%d ranks, call %lld of %lld: rank %d has %d, %s", n_ranks,
                  (long long)f.n, (long long)n_calls, r, (int)f.status[r], f.text[r]);
        }
    }
}

/* A device that fails while a plan is made: the error names it, and nothing is left of the plan. */
static inline void plan_failing_rank(plait_comm_t *comm, void *context)
{
    const failing_plan_t *plan_of = context;
    plait_device_t *device = comm->end.caps.device;
    plait_plan_t *plan = NULL;
    plait_status_t status = PLAIT_ERR_INTERNAL;
    int64_t n = 0;

    while (status != PLAIT_OK) {
        check_device_fail_at(device, ++n, false);
        status = (*plan_of)(comm, &plan);
        CHECK((status == PLAIT_OK) == (plan != NULL) &&
                  (status == PLAIT_OK || (status == PLAIT_ERR_INTERNAL &&
                                          strstr(plait_error_text(), "fails") != NULL)),
              "call %lld: %d, %s", (long long)n, (int)status, plait_error_text());
    }
    check_device_fail_at(device, 0, false);
    CHECK(n > 4, "%lld calls", (long long)n); /* three kernels at least, each entered */
    plait_plan_destroy(&plan);
}

#endif
