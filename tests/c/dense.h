/* What the tests of dense operations share: whole matrices of any of the four dtypes, dealing them
 * out and gathering them, an operation executed by threads, and the proof of its plans. */
#ifndef PLAIT_TESTS_DENSE_H
#define PLAIT_TESTS_DENSE_H

#include "check.h"
#include "dense/dealt.h"
#include "ops/list.h"
#include "plait/dense.h"
#include "plan/check.h"
#include "plan/launch.h"
#include "team.h"

#include <complex.h>
#include <math.h>
#include <string.h>

enum { DENSE_MAX_P = 17, DENSE_MAX_ARRAYS = 3, DENSE_GUARD = 64 };

static const plait_dtype_t dense_dtypes[] = {PLAIT_F64, PLAIT_C128, PLAIT_F32,
                                             PLAIT_C64};
static const plait_direct_t dense_directs[] = {PLAIT_DIRECT_POINTER, PLAIT_DIRECT_READ,
                                               PLAIT_DIRECT_NONE};

/* ---- numbers ---- */

static inline double complex get(plait_dtype_t dtype, const void *x, int64_t i)
{
    return (dtype == PLAIT_F32)   ? (double)((const float *)x)[i]
           : (dtype == PLAIT_F64) ? ((const double *)x)[i]
           : (dtype == PLAIT_C64) ? (double complex)((const float complex *)x)[i]
                                  : ((const double complex *)x)[i];
}

static inline void put(plait_dtype_t dtype, void *x, int64_t i, double complex value)
{
    if (dtype == PLAIT_F32) {
        ((float *)x)[i] = (float)creal(value);
    } else if (dtype == PLAIT_F64) {
        ((double *)x)[i] = creal(value);
    } else if (dtype == PLAIT_C64) {
        ((float complex *)x)[i] = (float complex)value;
    } else {
        ((double complex *)x)[i] = value;
    }
}

static inline bool is_complex(plait_dtype_t dtype)
{
    return dtype == PLAIT_C64 || dtype == PLAIT_C128;
}

/* Distance from 1 to the next number. */
static inline double ulp(plait_dtype_t dtype)
{
    return (dtype == PLAIT_F32 || dtype == PLAIT_C64) ? 0x1p-23 : 0x1p-52;
}

/* Pseudo-random, and the same in every dtype but for the imaginary part. */
static inline double complex number(plait_dtype_t dtype, uint64_t seed, int64_t i)
{
    double re = rint(0x1p12 * sample(seed, (uint64_t)i)) * 0x1p-12;
    double im = rint(0x1p12 * sample(seed + 1000, (uint64_t)i)) * 0x1p-12;

    return is_complex(dtype) ? re + im * I : re;
}

/* ---- whole matrices ---- */

typedef struct {
    int64_t m, n;
    double complex *x; /* column-major */
} matrix_t;

static inline matrix_t matrix_make(int64_t m, int64_t n)
{
    return (matrix_t){m, n, plait_alloc(m * n + 1, sizeof(double complex))};
}

static inline void matrix_free(matrix_t *a)
{
    plait_free(a->x);
    *a = (matrix_t){0};
}

static inline double complex *at(const matrix_t *a, int64_t i, int64_t j)
{
    return &a->x[j * a->m + i];
}

static inline matrix_t matrix_random(plait_dtype_t dtype, uint64_t seed, int64_t m,
                                     int64_t n)
{
    matrix_t a = matrix_make(m, n);

    for (int64_t i = 0; i < m * n; i++) {
        a.x[i] = number(dtype, seed, i);
    }
    return a;
}

/* op(a)[i, j] of one triangle of a, or of all of it. */
static inline double complex form_get(const matrix_t *a, plait_form_t form,
                                      plait_trans_t trans, int64_t i, int64_t j)
{
    int64_t row = (trans == PLAIT_TRANS_NONE) ? i : j;
    int64_t column = (trans == PLAIT_TRANS_NONE) ? j : i;
    bool is_unit = form >= PLAIT_FORM_UNIT_LOWER;
    bool is_upper = form == PLAIT_FORM_UPPER || form == PLAIT_FORM_UNIT_UPPER;
    double complex value = 0;

    if (is_unit && row == column) {
        value = 1;
    } else if (form == PLAIT_FORM_GENERAL ||
               (is_upper ? row <= column : row >= column)) {
        value = *at(a, row, column);
    }
    return (trans == PLAIT_TRANS_ADJOINT) ? conj(value) : value;
}

/* NaN where the form says that nothing is read. */
static inline void form_poison(matrix_t *a, plait_form_t form)
{
    bool is_unit = form >= PLAIT_FORM_UNIT_LOWER;
    bool is_upper = form == PLAIT_FORM_UPPER || form == PLAIT_FORM_UNIT_UPPER;

    for (int64_t j = 0; j < a->n; j++) {
        for (int64_t i = 0; i < a->m && form != PLAIT_FORM_GENERAL; i++) {
            if ((is_upper ? i > j : i < j) || (is_unit && i == j)) {
                *at(a, i, j) = (double complex)NAN;
            }
        }
    }
}

/* ---- dealt matrices ---- */

static inline plait_dealt_t dealt_of(const matrix_t *a, plait_dtype_t dtype,
                                     int64_t block, int n_ranks)
{
    return (plait_dealt_t){
        .m = a->m, .n = a->n, .block = block, .n_ranks = n_ranks, .dtype = dtype};
}

/* Column j of the whole matrix in its owner's array, counted by the definition. */
static inline int64_t place_of(const plait_dealt_t *d, int64_t j, int *owner_p)
{
    int64_t k = j / d->block;

    *owner_p = (int)(k % d->n_ranks);
    return k / d->n_ranks * d->block + j % d->block;
}

/* A rank's array, with NaN behind its columns. */
static inline char *deal(const matrix_t *a, const plait_dealt_t *d, int rank)
{
    int64_t n_local = plait_dealt_stored(d) * d->m;
    char *local = plait_alloc(n_local + 1, plait_dealt_item(d));
    int owner = 0;

    for (int64_t i = 0; i < n_local; i++) {
        put(d->dtype, local, i, (double complex)NAN);
    }
    for (int64_t j = 0; j < d->n; j++) {
        int64_t to = place_of(d, j, &owner);
        for (int64_t i = 0; i < d->m && owner == rank; i++) {
            put(d->dtype, local, to * d->m + i, *at(a, i, j));
        }
    }
    return local;
}

/* Puts a rank's columns into the whole matrix; whether what is behind them is zero. */
static inline bool gather(matrix_t *a, const plait_dealt_t *d, int rank,
                          const char *local)
{
    int64_t n_local = plait_dealt_stored(d) * d->m;
    bool *is_owned = plait_alloc(n_local + 1, sizeof(*is_owned));
    bool is_zero = true;
    int owner = 0;

    for (int64_t j = 0; j < d->n; j++) {
        int64_t from = place_of(d, j, &owner);
        for (int64_t i = 0; i < d->m && owner == rank; i++) {
            *at(a, i, j) = get(d->dtype, local, from * d->m + i);
            is_owned[from * d->m + i] = true;
        }
    }
    for (int64_t i = 0; i < n_local; i++) {
        is_zero = is_zero && (is_owned[i] || get(d->dtype, local, i) == 0);
    }
    plait_free(is_owned);
    return is_zero;
}

/* ---- execution ---- */

/* An operation on dealt matrices of one block. The results are made by dense_run. */
typedef struct {
    const char *text;
    plait_dtype_t dtype;
    int64_t block;
    plait_status_t (*plan)(const plait_comm_t *comm, const void *problem,
                           plait_plan_t **plan_p);
    const void *problem;
    int n_args, n_rets;
    matrix_t args[DENSE_MAX_ARRAYS], rets[DENSE_MAX_ARRAYS];
    int donated; /* operand whose memory result 0 takes; -1 */
} dense_run_t;

/* Memory of a rank's result: what is not written stays NaN, and so does the guard behind it. */
static inline char *blank(const plait_dealt_t *d)
{
    int64_t n_bytes = plait_dealt_stored(d) * plait_dealt_ld_bytes(d);
    char *local = plait_alloc(n_bytes + DENSE_GUARD, 1);

    memset(local, 0xff, (size_t)(n_bytes + DENSE_GUARD));
    return local;
}

static inline bool is_guarded(const plait_dealt_t *d, const char *local)
{
    const char *guard = local + plait_dealt_stored(d) * plait_dealt_ld_bytes(d);
    bool is = true;

    for (int i = 0; i < DENSE_GUARD; i++) {
        is = is && guard[i] == (char)0xff;
    }
    return is;
}

static inline void dense_rank(plait_comm_t *comm, void *context)
{
    dense_run_t *run = context;
    const int rank = plait_comm_rank(comm), size = plait_comm_size(comm);
    plait_dealt_t args[DENSE_MAX_ARRAYS], rets[DENSE_MAX_ARRAYS];
    char *in[DENSE_MAX_ARRAYS] = {NULL}, *kept[DENSE_MAX_ARRAYS] = {NULL};
    char *out[DENSE_MAX_ARRAYS] = {NULL};
    plait_plan_t *plan = NULL;

    for (int i = 0; i < run->n_args; i++) {
        args[i] = dealt_of(&run->args[i], run->dtype, run->block, size);
        in[i] = deal(&run->args[i], &args[i], rank);
        kept[i] = deal(&run->args[i], &args[i], rank);
    }
    for (int i = 0; i < run->n_rets; i++) {
        rets[i] = dealt_of(&run->rets[i], run->dtype, run->block, size);
        out[i] = (i == 0 && run->donated >= 0) ? in[run->donated] : blank(&rets[i]);
    }
    CHECK(run->plan(comm, run->problem, &plan) == PLAIT_OK, "%s", run->text);
    if (plan != NULL) {
        CHECK(plait_plan_execute(plan, comm, (const void *const *)in,
                                 (void *const *)out) == PLAIT_OK,
              "%s", run->text);
    }
    for (int i = 0; i < run->n_rets; i++) {
        CHECK(gather(&run->rets[i], &rets[i], rank, out[i]), "%s rank %d: behind",
              run->text, rank);
        if (i > 0 || run->donated < 0) {
            CHECK(is_guarded(&rets[i], out[i]), "%s rank %d: guard", run->text, rank);
            plait_free(out[i]);
        }
    }
    for (int i = 0; i < run->n_args; i++) {
        CHECK(i == run->donated ||
                  memcmp(in[i], kept[i],
                         (size_t)(plait_dealt_stored(&args[i]) *
                                  plait_dealt_ld_bytes(&args[i]))) == 0,
              "%s rank %d: operand %d has changed", run->text, rank, i);
        plait_free(in[i]);
        plait_free(kept[i]);
    }
    plait_plan_destroy(&plan);
}

/* By n_ranks threads; run->rets are the whole results then. */
static inline void dense_run(dense_run_t *run, int n_ranks, plait_direct_t direct)
{
    team_run(n_ranks, direct, dense_rank, run);
}

/* ---- plans ---- */

/* A row of the list with its parameters, on dealt matrices of which only the extents matter. */
typedef struct {
    const char *text;
    const plait_op_t *op;
    const void *params;
    plait_dtype_t dtype;
    int64_t block;
    matrix_t args[DENSE_MAX_ARRAYS], rets[DENSE_MAX_ARRAYS];
} dense_plans_t;

static inline plait_status_t dense_plan(const dense_plans_t *p, int n_ranks, int rank,
                                        plait_direct_t direct, plait_plan_t **plan_p)
{
    const plait_endpoint_t end = {
        .rank = rank,
        .size = n_ranks,
        .caps = {.direct = direct, .publish_bytes = -1, .n_threads = 1}};
    int64_t dims[2 * DENSE_MAX_ARRAYS][2];
    plait_array_t arrays[2 * DENSE_MAX_ARRAYS];

    for (int i = 0; i < p->op->n_args + p->op->n_rets; i++) {
        const matrix_t *a =
            (i < p->op->n_args) ? &p->args[i] : &p->rets[i - p->op->n_args];
        dims[i][0] = plait_dense_columns(a->n, p->block, n_ranks);
        dims[i][1] = a->m;
        arrays[i] = (plait_array_t){.dtype = p->dtype, .ndim = 2, .dims = dims[i]};
    }
    return plait_op_plan(p->op, p->params, &end, arrays, arrays + p->op->n_args,
                         plan_p);
}

/* What an operation is to cost a rank, by a formula of its own. */
typedef plait_plan_cost_t (*dense_model_t)(const dense_plans_t *p, int n_ranks,
                                           int rank);

/* What is addressed where it is are the parts of a panel that are used, each a message. */
static inline void dense_judge_cost(const dense_plans_t *p, int n_ranks,
                                    const plait_plan_t *plan, plait_plan_cost_t want)
{
    const plait_plan_cost_t cost = plait_plan_cost(plan);
    const bool is_here = n_ranks == 1 || plan->direct == PLAIT_DIRECT_POINTER;

    CHECK(is_here ? cost.message_bytes <= want.message_bytes && cost.work_bytes == 0
                  : cost.n_messages == want.n_messages &&
                        cost.message_bytes == want.message_bytes &&
                        cost.work_bytes <= want.work_bytes,
          "%s P %d rank %d direct %d: %lld messages, %lld bytes, work %lld; expected "
          "%lld, %lld, at most %lld",
          p->text, n_ranks, plan->rank, (int)plan->direct, (long long)cost.n_messages,
          (long long)cost.message_bytes, (long long)cost.work_bytes,
          (long long)want.n_messages, (long long)want.message_bytes,
          (long long)want.work_bytes);
}

/* With every access: the plans of all ranks fit together, also with a donated operand, and cost
 * what the model says. */
static inline void dense_prove(const dense_plans_t *p, int n_ranks, dense_model_t model)
{
    for (int d = 0; d < 3; d++) {
        plait_plan_t *plans[DENSE_MAX_P] = {NULL};
        const plait_direct_t direct = dense_directs[d];
        plait_status_t status = PLAIT_OK;

        for (int r = 0; r < n_ranks && status == PLAIT_OK; r++) {
            status = dense_plan(p, n_ranks, r, direct, &plans[r]);
        }
        CHECK(status == PLAIT_OK, "%s P %d direct %d", p->text, n_ranks, d);
        for (int r = 0; r < n_ranks && status == PLAIT_OK && model != NULL; r++) {
            dense_judge_cost(p, n_ranks, plans[r], model(p, n_ranks, r));
        }
        for (int alias = -1; alias <= p->op->alias && status == PLAIT_OK;
             alias += p->op->alias + 1) {
            const plait_check_t options = {.alias = alias};
            CHECK(plait_plans_check(plans, n_ranks, &options) == PLAIT_OK,
                  "%s P %d direct %d alias %d", p->text, n_ranks, d, alias);
            if (alias == p->op->alias) {
                break;
            }
        }
        for (int r = 0; r < n_ranks; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

/* Kernels of that name in a plan; NULL: steps of any kind. */
static inline int n_kernels(const plait_plan_t *plan, const char *name)
{
    int n = 0;

    for (int i = 0; i < plan->n_steps; i++) {
        const plait_step_t *step = &plan->steps[i];
        n += name == NULL || (step->kind == PLAIT_STEP_KERNEL &&
                              strcmp(step->u.kernel.kernel->name, name) == 0);
    }
    return n;
}

/* A plan that is refused, with part of the text. */
static inline void dense_refused(plait_status_t status, plait_status_t expected,
                                 const char *part)
{
    CHECK(status == expected, "%s: %s", part, plait_status_name(status));
    CHECK(strstr(plait_error_text(), part) != NULL, "no '%s' in the text", part);
}

#endif
