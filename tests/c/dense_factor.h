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
