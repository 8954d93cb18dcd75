/* For the tests of gemm, trsm and the like, in addition to dealt.h: matrices of which only a part is read,
 * costs of plans, plans that are refused. */
#ifndef PLAIT_TESTS_DENSE_H
#define PLAIT_TESTS_DENSE_H

#include "dealt.h"
#include "plait/dense.h"

/* An m x n matrix of a test; matrix_fill makes its numbers, or it is a result. */
static inline dealt_array_t matrix_of(plait_dtype_t dtype, int64_t m, int64_t n,
                                      int64_t block, int n_ranks)
{
    return (dealt_array_t){
        .d = {.m = m, .n = n, .block = block, .n_ranks = n_ranks, .dtype = dtype}};
}

static inline double complex *at(const dealt_array_t *a, int64_t i, int64_t j)
{
    return &a->whole[j * a->d.m + i];
}

static inline void matrix_fill(dealt_array_t *a, uint64_t seed)
{
    for (int64_t i = 0; i < a->d.m * a->d.n; i++) {
        a->whole[i] = element_sample(a->d.dtype, seed, i);
    }
}

/* Problems of each combination: every shape, in the smallest teams with two dtypes. */
static inline int dense_n_turns(int n_shapes, int n_ranks)
{
    return is_quick() ? 3 : (n_ranks <= 2) ? 2 * n_shapes : n_shapes;
}

/* Memory for all matrices of a run. */
static inline void dense_begin(dealt_run_t *t)
{
    for (int i = 0; i < t->n_args; i++) {
        t->args[i].whole = dealt_matrix(t->args[i].d.m, t->args[i].d.n);
    }
    for (int i = 0; i < t->n_rets; i++) {
        t->rets[i].whole = dealt_matrix(t->rets[i].d.m, t->rets[i].d.n);
    }
}

/* op(a)[i, j] of one triangle of a, or of all of it. */
static inline double complex form_get(const dealt_array_t *a, plait_form_t form,
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

/* Writes NaN where the form says that nothing is read. */
static inline void form_poison(dealt_array_t *a, plait_form_t form)
{
    bool is_unit = form >= PLAIT_FORM_UNIT_LOWER;
    bool is_upper = form == PLAIT_FORM_UPPER || form == PLAIT_FORM_UNIT_UPPER;

    for (int64_t j = 0; j < a->d.n; j++) {
        for (int64_t i = 0; i < a->d.m && form != PLAIT_FORM_GENERAL; i++) {
            if ((is_upper ? i > j : i < j) || (is_unit && i == j)) {
                *at(a, i, j) = (double complex)NAN;
            }
        }
    }
}

/* The cost that a formula independent of the plan expects of a rank: messages, bytes, and the most work. */
typedef plait_plan_cost_t (*dense_model_t)(const dealt_run_t *t, int rank);

/* What is addressed where it is are the parts of a panel that are used, each a message. */
static inline void dense_judge_cost(const dealt_run_t *t, int rank,
                                    plait_plan_cost_t want)
{
    const plait_plan_cost_t cost = t->cost[rank];
    const bool is_here = t->n_ranks == 1 || t->direct == PLAIT_DIRECT_POINTER;

    CHECK(is_here ? cost.message_bytes <= want.message_bytes && cost.work_bytes == 0
                  : cost.n_messages == want.n_messages &&
                        cost.message_bytes == want.message_bytes &&
                        cost.work_bytes <= want.work_bytes,
          "%s rank %d: %lld messages, %lld bytes, work %lld; expected %lld, %lld, at "
          "most %lld",
          t->text, rank, (long long)cost.n_messages, (long long)cost.message_bytes,
          (long long)cost.work_bytes, (long long)want.n_messages,
          (long long)want.message_bytes, (long long)want.work_bytes);
}

/* With every access, of more than 8 ranks in turns: the plans of all ranks fit together and cost what
 * the model says. */
static inline void dense_prove(dealt_run_t *t, dense_model_t model)
{
    static int turn;
    const bool is_large = t->n_ranks > 8;

    turn++;
    for (int d = is_large ? turn % 3 : 0; d < 3; d += is_large ? 3 : 1) {
        t->direct = dealt_directs[d];
        (void)dealt_prove(t);
        for (int r = 0; r < t->n_ranks; r++) {
            dense_judge_cost(t, r, model(t, r));
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

#endif
