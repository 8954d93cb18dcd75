/* What the tests of factorizations have beside dealt.h. */
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
        dealt_sample(dtype, 1, ((i > j) ? i : j) * n + ((i > j) ? j : i));

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
        if (dealt_is_complex(dtype)) {
            t.args[0].whole[j * s->n + j] += 7 * I; /* shall not matter */
        }
    }
    return t;
}

static inline void clear(dealt_run_t *t)
{
    for (int i = 0; i < t->n_args; i++) {
        plait_free(t->args[i].whole);
    }
    for (int i = 0; i < t->n_rets; i++) {
        plait_free(t->rets[i].whole);
    }
}

static inline void refused(plait_status_t status, plait_status_t expected,
                           const char *part)
{
    CHECK(status == expected, "%s: %s", part, plait_status_name(status));
    CHECK(strstr(plait_error_text(), part) != NULL, "no '%s' in the text", part);
}

#endif
