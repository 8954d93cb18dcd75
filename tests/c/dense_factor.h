/* For the tests of factorizations, in addition to dealt.h. */
#ifndef PLAIT_TESTS_DENSE_FACTOR_H
#define PLAIT_TESTS_DENSE_FACTOR_H

#include "base/checked.h"
#include "dealt.h"
#include "dense/params.h"
#include "plait/dense.h"

typedef struct {
    int64_t m, n, block;
} shape_t;

static inline const char *text_of(const char *op, plait_dtype_t dtype, const shape_t *s,
                                  int n_ranks, plait_direct_t direct)
{
    static _Thread_local char line[120];

    (void)snprintf(line, sizeof(line),
                   "%s %s %lldx%lld blocks of %lld, %d ranks, access %d", op,
                   plait_dtype_name(dtype), (long long)s->m, (long long)s->n,
                   (long long)s->block, n_ranks, (int)direct);
    return line;
}

static inline dealt_array_t matrix_of(plait_dtype_t dtype, const shape_t *s,
                                      int n_ranks)
{
    return (dealt_array_t){.d = {.m = s->m,
                                 .n = s->n,
                                 .block = s->block,
                                 .n_ranks = n_ranks,
                                 .dtype = dtype},
                           .whole = dealt_matrix(s->m, s->n)};
}

static inline dealt_array_t vector_of(plait_dtype_t dtype, int64_t n)
{
    return (dealt_array_t){.d = {.n = n},
                           .is_replicated = true,
                           .dtype = dtype,
                           .whole = dealt_matrix(n, 1)};
}

static inline double complex definite(plait_dtype_t dtype, int64_t n, int64_t i,
                                      int64_t j)
{
    double complex low =
        element_sample(dtype, 1, ((i > j) ? i : j) * n + ((i > j) ? j : i));

    return (i == j) ? (double)n : (i > j) ? low : conj(low);
}

/* bad: index of a diagonal element that makes the matrix indefinite; -1: none. */
static inline dealt_run_t potrf_run(plait_dtype_t dtype, const shape_t *s, int n_ranks,
                                    plait_direct_t direct, int64_t bad,
                                    double complex value,
                                    const plait_potrf_params_t *params)
{
    dealt_run_t t = {.op = &plait_op_potrf,
                     .params = params,
                     .n_ranks = n_ranks,
                     .direct = direct,
                     .n_args = 1,
                     .n_rets = 2,
                     .args = {matrix_of(dtype, s, n_ranks)},
                     .rets = {matrix_of(dtype, s, n_ranks), vector_of(PLAIT_S32, 1)},
                     .text = text_of("potrf", dtype, s, n_ranks, direct)};

    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t i = 0; i < s->n; i++) {
            bool is_read = i >= j;
            t.args[0].whole[j * s->n + i] = !is_read ? NAN
                                            : (i == j && i == bad)
                                                ? value
                                                : definite(dtype, s->n, i, j);
        }
        if (plait_is_complex(dtype)) {
            t.args[0].whole[j * s->n + j] += 7 * I; /* must not matter */
        }
    }
    return t;
}

/* bad: a column that becomes zero; -1: none. */
static inline double complex general(plait_dtype_t dtype, const shape_t *s, int64_t bad,
                                     int64_t i, int64_t j)
{
    return (j == bad) ? 0 : element_sample(dtype, 3, j * s->m + i);
}

static inline double complex *general_matrix(plait_dtype_t dtype, const shape_t *s,
                                             int64_t bad)
{
    double complex *a = dealt_matrix(s->m, s->n);

    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t i = 0; i < s->m; i++) {
            a[j * s->m + i] = general(dtype, s, bad, i, j);
        }
    }
    return a;
}

static inline dealt_run_t panels_run(const plait_op_t *op, plait_dtype_t dtype,
                                     const shape_t *s, int n_ranks,
                                     plait_direct_t direct, int64_t bad,
                                     const plait_panels_params_t *params)
{
    const int64_t n = plait_min(s->m, s->n);
    dealt_run_t t = {.op = op,
                     .params = params,
                     .n_ranks = n_ranks,
                     .direct = direct,
                     .donates = n_ranks % 2 == 1,
                     .n_args = 1,
                     .n_rets = op->n_rets,
                     .text = text_of(op->name, dtype, s, n_ranks, direct)};

    t.args[0] = matrix_of(dtype, s, n_ranks);
    plait_free(t.args[0].whole);
    t.args[0].whole = general_matrix(dtype, s, bad);
    t.rets[0] = matrix_of(dtype, s, n_ranks);
    t.rets[1] = vector_of((op->n_rets == 3) ? PLAIT_S32 : dtype, n);
    if (op->n_rets == 3) {
        t.rets[2] = vector_of(PLAIT_S32, 1);
    }
    return t;
}

#endif
