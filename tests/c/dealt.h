/* For tests of dense operations: matrices of any dtype as double complex, dealt out and gathered, and plans of
 * operations that threads run or that are proven on shadow memory. */
#ifndef PLAIT_TESTS_DEALT_H
#define PLAIT_TESTS_DEALT_H

#include "dense/dealt.h"
#include "elements.h"
#include "ops/list.h"
#include "plan/check.h"
#include "plan/launch.h"
#include "team.h"

#include <stdlib.h>
#include <string.h>

enum { DEALT_MAX_RANKS = 17, DEALT_GUARD = 64 };

static const plait_dtype_t dealt_dtypes[] = {PLAIT_F32, PLAIT_F64, PLAIT_C64,
                                             PLAIT_C128};
static const plait_direct_t dealt_directs[] = {PLAIT_DIRECT_POINTER, PLAIT_DIRECT_READ,
                                               PLAIT_DIRECT_NONE};

/* One operand or result: a dealt matrix, or n replicated elements (is_replicated), gathered from rank `take`.
 * whole is column-major, m x n. */
typedef struct {
    plait_dealt_t d;
    bool is_replicated;
    bool is_whole;       /* a matrix that all ranks have, dealt out to one rank */
    plait_dtype_t dtype; /* of a replicated array */
    double complex *whole;
    bool is_set;    /* some rank has given a replicated result */
    bool differs;   /* a replicated result is not the same on all ranks */
    bool has_trash; /* a dealt result has data behind its columns */
} dealt_array_t;

enum { DEALT_MAX_ARRAYS = 4 };

typedef struct {
    const plait_op_t *op;
    const void *params;
    int n_ranks;
    plait_direct_t direct;
    bool donates; /* result 0 takes the memory of the operand that it may take */
    /* Makes the plan as a C program does; NULL: the operation's row makes it. */
    plait_status_t (*plan)(const plait_comm_t *comm, const void *problem,
                           plait_plan_t **plan_p);
    const void *problem;
    plait_plan_cost_t cost[DEALT_MAX_RANKS]; /* by dealt_prove */
    int n_args, n_rets;
    dealt_array_t args[DEALT_MAX_ARRAYS], rets[DEALT_MAX_ARRAYS];
    const char *text;
} dealt_run_t;

static inline plait_dtype_t dealt_dtype(const dealt_array_t *a)
{
    return a->is_replicated ? a->dtype : a->d.dtype;
}

static inline int64_t dealt_n_local(const dealt_array_t *a)
{
    return a->is_replicated ? a->d.n : plait_dealt_stored(&a->d) * a->d.m;
}

/* Global index of local element i, -1 in the padding. */
static inline int64_t dealt_global(const dealt_array_t *a, int rank, int64_t i)
{
    const plait_dealt_t *d = &a->d;
    int64_t at = i;

    if (!a->is_replicated) {
        int64_t local = i / d->m;
        int64_t column =
            (local / d->block * d->n_ranks + (a->is_whole ? 0 : rank)) * d->block +
            local % d->block;
        at = (column < d->n) ? column * d->m + i % d->m : -1;
    }
    return at;
}

static inline void dealt_describe(dealt_array_t *a, int64_t dims[2],
                                  plait_array_t *array)
{
    dims[0] = a->is_replicated ? a->d.n : plait_dealt_stored(&a->d);
    dims[1] = a->d.m;
    *array = (plait_array_t){
        .dtype = dealt_dtype(a), .ndim = a->is_replicated ? 1 : 2, .dims = dims};
}

/* Fills in all arrays of a problem; dims has one pair for each. */
static inline void dealt_problem(dealt_run_t *t, int64_t dims[][2],
                                 plait_array_t args[], plait_array_t rets[])
{
    for (int i = 0; i < t->n_args; i++) {
        dealt_describe(&t->args[i], dims[i], &args[i]);
    }
    for (int i = 0; i < t->n_rets; i++) {
        dealt_describe(&t->rets[i], dims[DEALT_MAX_ARRAYS + i], &rets[i]);
    }
}

/* Also true for equal parts that are NaN. */
static inline bool dealt_is_same(double complex a, double complex b)
{
    const double re[] = {creal(a), creal(b)}, im[] = {cimag(a), cimag(b)};

    return (re[0] == re[1] || (isnan(re[0]) && isnan(re[1]))) &&
           (im[0] == im[1] || (isnan(im[0]) && isnan(im[1])));
}

static inline void dealt_gather(dealt_array_t *a, int rank, const void *local)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int64_t n = dealt_n_local(a);

    (void)pthread_mutex_lock(&lock);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = dealt_global(a, rank, i);
        double complex value = plait_is_complex(dealt_dtype(a)) || !a->is_replicated ||
                                       dealt_dtype(a) != PLAIT_S32
                                   ? plait_scalar_get(dealt_dtype(a), local, i)
                                   : (double)((const int32_t *)local)[i];
        if (at < 0) {
            a->has_trash = a->has_trash || value != 0;
        } else if ((a->is_replicated || a->is_whole) && a->is_set) {
            a->differs = a->differs || !dealt_is_same(a->whole[at], value);
        } else {
            a->whole[at] = value;
        }
    }
    a->is_set = true;
    (void)pthread_mutex_unlock(&lock);
}

static inline void *dealt_scatter(const dealt_array_t *a, int rank)
{
    int64_t n = dealt_n_local(a);
    void *local = plait_alloc(n + 1, plait_dtype_bytes(dealt_dtype(a)));

    for (int64_t i = 0; i < n; i++) {
        int64_t at = dealt_global(a, rank, i);
        plait_scalar_put(dealt_dtype(a), local, i, (at < 0) ? NAN : a->whole[at]);
    }
    return local;
}

/* Memory for a result, with a guard behind it that must not change. */
static inline char *dealt_blank(const dealt_array_t *a)
{
    int64_t n_bytes = dealt_n_local(a) * plait_dtype_bytes(dealt_dtype(a));
    char *local = plait_alloc(n_bytes + DEALT_GUARD, 1);

    memset(local, 0xff, (size_t)(n_bytes + DEALT_GUARD)); /* NaN */
    return local;
}

static inline bool dealt_is_guarded(const dealt_array_t *a, const char *local)
{
    const char *guard = local + dealt_n_local(a) * plait_dtype_bytes(dealt_dtype(a));
    bool is = true;

    for (int i = 0; i < DEALT_GUARD; i++) {
        is = is && guard[i] == (char)0xff;
    }
    return is;
}

/* Whether a rank's operand is unchanged. */
static inline bool dealt_is_kept(const dealt_array_t *a, int rank, const void *local)
{
    void *was = dealt_scatter(a, rank);
    bool is =
        memcmp(was, local,
               (size_t)(dealt_n_local(a) * plait_dtype_bytes(dealt_dtype(a)))) == 0;

    plait_free(was);
    return is;
}

static pthread_barrier_t dealt_barrier; /* no rank gathers before all have scattered */

static inline void dealt_rank(plait_comm_t *comm, void *context)
{
    dealt_run_t *t = context;
    int rank = comm->end.rank;
    int64_t dims[2 * DEALT_MAX_ARRAYS][2];
    plait_array_t args[DEALT_MAX_ARRAYS];
    plait_array_t rets[DEALT_MAX_ARRAYS];
    void *in[DEALT_MAX_ARRAYS] = {NULL};
    void *out[DEALT_MAX_ARRAYS] = {NULL};
    dealt_run_t mine = *t;
    plait_plan_t *plan = NULL;

    dealt_problem(&mine, dims, args, rets);
    for (int i = 0; i < t->n_args; i++) {
        in[i] = dealt_scatter(&t->args[i], rank);
    }
    for (int i = 0; i < t->n_rets; i++) {
        out[i] = (i == 0 && t->donates) ? in[t->op->alias] : dealt_blank(&t->rets[i]);
    }
    (void)pthread_barrier_wait(&dealt_barrier);
    plait_status_t status =
        (t->plan != NULL)
            ? t->plan(comm, t->problem, &plan)
            : plait_op_plan(t->op, t->params, &comm->end, args, rets, &plan);
    CHECK(status == PLAIT_OK, "%s rank %d of %d", t->text, rank, t->n_ranks);
    for (int round = 0; round < (t->donates ? 1 : 2) && plan != NULL; round++) {
        CHECK(plait_plan_execute(plan, comm, (const void *const *)in, out) == PLAIT_OK,
              "%s rank %d of %d", t->text, rank, t->n_ranks);
    }
    for (int i = 0; i < t->n_rets; i++) {
        dealt_gather(&t->rets[i], rank, out[i]);
    }
    (void)pthread_barrier_wait(&dealt_barrier);
    plait_plan_destroy(&plan);
    for (int i = t->donates ? 1 : 0; i < t->n_rets; i++) {
        CHECK(dealt_is_guarded(&t->rets[i], out[i]), "%s rank %d of %d: result %d",
              t->text, rank, t->n_ranks, i);
        plait_free(out[i]);
    }
    for (int i = 0; i < t->n_args; i++) {
        CHECK((t->donates && i == t->op->alias) ||
                  dealt_is_kept(&t->args[i], rank, in[i]),
              "%s rank %d of %d: operand %d has changed", t->text, rank, t->n_ranks, i);
        plait_free(in[i]);
    }
}

/* Runs the operation on threads, twice unless it donates, and fills `whole` of all results. */
static inline void dealt_run(dealt_run_t *t)
{
    (void)pthread_barrier_init(&dealt_barrier, NULL, (unsigned)t->n_ranks);
    team_run(t->n_ranks, t->direct, dealt_rank, t);
    (void)pthread_barrier_destroy(&dealt_barrier);
    for (int i = 0; i < t->n_rets; i++) {
        CHECK(!t->rets[i].differs, "%s: result %d differs from rank to rank", t->text,
              i);
        CHECK(!t->rets[i].has_trash, "%s: result %d is not zero behind its columns",
              t->text, i);
    }
}

/* The cost of one rank's plan, for any number of ranks. */
static inline plait_plan_cost_t dealt_cost(dealt_run_t *t, int rank)
{
    int64_t dims[2 * DEALT_MAX_ARRAYS][2];
    plait_array_t args[DEALT_MAX_ARRAYS];
    plait_array_t rets[DEALT_MAX_ARRAYS];
    plait_plan_t *plan = NULL;
    plait_plan_cost_t cost = {0};

    dealt_problem(t, dims, args, rets);
    const plait_problem_t problem = {
        .n_ranks = t->n_ranks,
        .rank = rank,
        .caps = {.direct = t->direct, .publish_bytes = PLAIT_PUBLISH_BYTES},
        .n_args = t->n_args,
        .n_rets = t->n_rets,
        .args = args,
        .rets = rets};
    CHECK(t->op->plan(t->params, &problem, &plan) == PLAIT_OK, "%s rank %d of %d",
          t->text, rank, t->n_ranks);
    if (plan != NULL) {
        cost = plait_plan_cost(plan);
    }
    plait_plan_destroy(&plan);
    return cost;
}

/* The grid of plans that are proven; NULL: ranks' devices do not work as one. */
static plait_process_grid_t *dealt_grid;

/* Whether the transport reduces. */
static bool dealt_has_native;

/* The capabilities of plans: only messages if ranks have devices, since all plans are for these then. */
static inline plait_caps_t dealt_caps(const dealt_run_t *t)
{
    plait_device_t *device = team_devices[0];

    return (plait_caps_t){.direct = (device != NULL) ? PLAIT_DIRECT_NONE : t->direct,
                          .publish_bytes = (device != NULL) ? -1 : PLAIT_PUBLISH_BYTES,
                          .has_native = dealt_has_native,
                          .native_reduce = {~0U, ~0U, ~0U, ~0U},
                          .device = device,
                          .devices = team_knows_devices ? team_devices : NULL,
                          .grid = dealt_grid};
}

/* Proves the plans of all ranks, with results in memory of their own and in an operand's where the operation
 * takes it. Returns messages and bytes of all ranks together; t->cost: of each rank. */
static inline plait_plan_cost_t dealt_prove(dealt_run_t *t)
{
    int64_t dims[2 * DEALT_MAX_ARRAYS][2];
    plait_array_t args[DEALT_MAX_ARRAYS];
    plait_array_t rets[DEALT_MAX_ARRAYS];
    plait_plan_t *plans[DEALT_MAX_RANKS] = {NULL};
    plait_plan_cost_t sum = {0};
    plait_status_t status = PLAIT_OK;

    dealt_problem(t, dims, args, rets);
    for (int r = 0; r < t->n_ranks && status == PLAIT_OK; r++) {
        const plait_problem_t problem = {.n_ranks = t->n_ranks,
                                         .rank = r,
                                         .caps = dealt_caps(t),
                                         .choices = plait_choices_now(t->op->family),
                                         .n_args = t->n_args,
                                         .n_rets = t->n_rets,
                                         .args = args,
                                         .rets = rets};
        status = t->op->plan(t->params, &problem, &plans[r]);
        CHECK(status == PLAIT_OK, "%s rank %d of %d", t->text, r, t->n_ranks);
        if (plans[r] != NULL) {
            t->cost[r] = plait_plan_cost(plans[r]);
            sum.n_messages += t->cost[r].n_messages;
            sum.message_bytes += t->cost[r].message_bytes;
        }
    }
    const bool is_proved =
        status == PLAIT_OK && !finds_races(); /* the proof has one thread */
    for (int alias = -1; alias <= t->op->alias && is_proved; alias++) {
        if (alias >= 0 && alias < t->op->alias) {
            continue;
        }
        CHECK(plait_plans_check(plans, t->n_ranks, &(plait_check_t){.alias = alias}) ==
                  PLAIT_OK,
              "%s, %d ranks, access %d, donated %d", t->text, t->n_ranks,
              (int)t->direct, alias);
    }
    for (int r = 0; r < t->n_ranks; r++) {
        plait_plan_destroy(&plans[r]);
    }
    return sum;
}

/* ---- Matrices, column-major ---- */

static inline double complex *dealt_matrix(int64_t m, int64_t n)
{
    return plait_alloc(m * n + 1, sizeof(double complex));
}

/* Largest column sum of magnitudes. */
static inline double dealt_norm(const double complex *a, int64_t m, int64_t n)
{
    double norm = 0;

    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < m; i++) {
            sum += cabs(a[j * m + i]);
        }
        norm = (sum > norm || isnan(sum)) ? sum : norm;
    }
    return norm;
}

/* Frees the matrices of a run. */
static inline void dealt_clear(dealt_run_t *t)
{
    for (int i = 0; i < t->n_args; i++) {
        plait_free(t->args[i].whole);
    }
    for (int i = 0; i < t->n_rets; i++) {
        plait_free(t->rets[i].whole);
    }
}

#endif
