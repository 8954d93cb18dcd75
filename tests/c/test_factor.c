/* Factorizations of dealt matrices: plans proven for up to 17 ranks, and executed by threads in
 * every way of reaching a peer's memory, against backward errors. */
#include "dealt.h"
#include "dense/params.h"
#include "device/pool.h"
#include "kernel/blas.h"

enum { SKIPPED = 77 };

typedef struct {
    int64_t m, n, block;
} shape_t;

static const char *text_of(const char *op, plait_dtype_t dtype, const shape_t *s,
                           int n_ranks, plait_direct_t direct)
{
    static _Thread_local char line[120];

    (void)snprintf(line, sizeof(line),
                   "%s %s %lldx%lld blocks of %lld, %d ranks, access %d", op,
                   plait_dtype_name(dtype), (long long)s->m, (long long)s->n,
                   (long long)s->block, n_ranks, (int)direct);
    return line;
}

static dealt_array_t matrix_of(plait_dtype_t dtype, const shape_t *s, int n_ranks)
{
    return (dealt_array_t){.d = {.m = s->m,
                                 .n = s->n,
                                 .block = s->block,
                                 .n_ranks = n_ranks,
                                 .dtype = dtype},
                           .whole = dealt_matrix(s->m, s->n)};
}

static dealt_array_t vector_of(plait_dtype_t dtype, int64_t n)
{
    return (dealt_array_t){.d = {.n = n},
                           .is_replicated = true,
                           .dtype = dtype,
                           .whole = dealt_matrix(n, 1)};
}

static void clear(dealt_run_t *t)
{
    for (int i = 0; i < t->n_args; i++) {
        plait_free(t->args[i].whole);
    }
    for (int i = 0; i < t->n_rets; i++) {
        plait_free(t->rets[i].whole);
    }
}

/* ---------------------------------------------------------------- potrf */

static double complex definite(plait_dtype_t dtype, int64_t n, int64_t i, int64_t j)
{
    double complex low =
        dealt_sample(dtype, 1, ((i > j) ? i : j) * n + ((i > j) ? j : i));

    return (i == j) ? (double)n : (i > j) ? low : conj(low);
}

/* bad: index of a diagonal element that makes the matrix indefinite; -1: none. */
static dealt_run_t potrf_run(plait_dtype_t dtype, const shape_t *s, int n_ranks,
                             plait_direct_t direct, int64_t bad, double complex value,
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

static void check_potrf(const dealt_run_t *t, int64_t n, plait_dtype_t dtype)
{
    const double complex *l = t->rets[0].whole;
    double worst = 0;

    CHECK(creal(t->rets[1].whole[0]) == 0, "%s: info %g", t->text,
          creal(t->rets[1].whole[0]));
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < j; i++) {
            worst = (l[j * n + i] == 0) ? worst : INFINITY;
        }
        for (int64_t i = j; i < n; i++) {
            double complex sum = -definite(dtype, n, i, j);
            for (int64_t k = 0; k <= j; k++) {
                sum += l[k * n + i] * conj(l[k * n + j]);
            }
            worst = (cabs(sum) > worst || isnan(cabs(sum))) ? cabs(sum) : worst;
        }
    }
    CHECK(worst <= 10 * (double)n * (double)n * dealt_unit(dtype), "%s: error %g",
          t->text, worst);
}

static void potrf_case(plait_dtype_t dtype, const shape_t *s, int n_ranks,
                       plait_direct_t direct, int64_t bad, double complex value)
{
    const plait_potrf_params_t params = {s->n, s->block};
    dealt_run_t t = potrf_run(dtype, s, n_ranks, direct, bad, value, &params);

    t.donates = n_ranks % 2 == 0;
    dealt_run(&t);
    if (bad < 0) {
        check_potrf(&t, s->n, dtype);
    } else {
        CHECK(creal(t.rets[1].whole[0]) == (double)(bad + 1),
              "%s: info %g, expected %lld", t.text, creal(t.rets[1].whole[0]),
              (long long)bad + 1);
        for (int64_t j = 0; j < s->n; j++) {
            CHECK(isnan(creal(t.rets[0].whole[j * s->n + s->n - 1])), "%s: no NaN",
                  t.text);
        }
    }
    clear(&t);
}

static const shape_t squares[] = {
    {0, 0, 4},   {1, 1, 1},   {2, 2, 1},   {5, 5, 2},     {7, 7, 64},    {12, 12, 2},
    {33, 33, 3}, {33, 33, 5}, {64, 64, 8}, {100, 100, 7}, {100, 100, 32}};
static const int teams[] = {1, 2, 3, 4, 7};

static void check_potrf_all(void)
{
    for (size_t s = 0; s < sizeof(squares) / sizeof(*squares); s++) {
        for (size_t r = 0; r < sizeof(teams) / sizeof(*teams); r++) {
            for (int a = 0; a < 3; a++) {
                for (int d = 0; d < 4; d++) {
                    if (is_quick() && (d % 2 == (int)s % 2)) {
                        continue;
                    }
                    potrf_case(dealt_dtypes[d], &squares[s], teams[r], dealt_directs[a],
                               -1, 0);
                }
                const int64_t n = squares[s].n;
                const int64_t bad[] = {0, n / 2, n - 1};
                for (int b = 0; b < 3 && n > 0; b++) {
                    potrf_case(PLAIT_F64, &squares[s], teams[r], dealt_directs[a],
                               bad[b], -1);
                    potrf_case(PLAIT_C64, &squares[s], teams[r], dealt_directs[a],
                               bad[b], (b == 1) ? NAN : INFINITY);
                }
            }
        }
    }
}

static void prove_potrf(void)
{
    static const shape_t shapes[] = {
        {0, 0, 4}, {1, 1, 2}, {6, 6, 1}, {11, 11, 2}, {20, 20, 3}};

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks++) {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
            for (int a = 0; a < 3; a++) {
                const plait_potrf_params_t params = {shapes[s].n, shapes[s].block};
                dealt_run_t t = potrf_run(PLAIT_F32, &shapes[s], n_ranks,
                                          dealt_directs[a], -1, 0, &params);
                (void)dealt_prove(&t);
                clear(&t);
            }
        }
    }
}

int main(void)
{
    if (plait_blas_require() != PLAIT_OK) {
        printf("test_factor: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    prove_potrf();
    check_potrf_all();
    (void)plait_pool_trim();
    return report("test_factor");
}
