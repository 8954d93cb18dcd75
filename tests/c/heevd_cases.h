/* Eigendecompositions of dealt Hermitian matrices, for tests: many kinds of matrices, with NaN in the triangle
 * that must not be read; runs by threads, judged by their residuals; and proofs of plans. */
#ifndef PLAIT_TESTS_HEEVD_CASES_H
#define PLAIT_TESTS_HEEVD_CASES_H

#include "dense_factor.h"

#include <float.h>

/* ---- matrices ---- */

typedef enum {
    RANDOM,
    ZERO,
    IDENTITY,
    REPEATED,  /* three eigenvalues */
    CLUSTERED, /* groups closer than rounding, across the ranks' shares */
    GRADED,    /* 1 to 1e-12, large entries first or last */
    GRADED_UP,
    WILKINSON, /* 21 x 21 blocks, glued */
    LAPLACE,
    FAINT, /* off-diagonals whose squares are subnormal, beside 1 */
    LARGE, /* random times 1e150, or 1e30 */
    SMALL,
    N_KINDS
} kind_t;

static const char *const kinds[] = {"random",    "zero",   "identity",  "repeated",
                                    "clustered", "graded", "graded up", "wilkinson",
                                    "laplace",   "faint",  "large",     "small"};

static inline bool is_single(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_C64;
}

/* Square, column-major. */
typedef struct {
    int64_t n;
    double complex *x;
} matrix_t;

static inline matrix_t matrix_make(int64_t n)
{
    return (matrix_t){n, dealt_matrix(n, n)};
}

static inline double complex *at(const matrix_t *a, int64_t i, int64_t j)
{
    return &a->x[j * a->n + i];
}

/* U diag U^H for a unitary U: the product of two reflections, kept Hermitian. */
static inline void turn(matrix_t *a, plait_dtype_t dtype)
{
    const int64_t n = a->n;

    for (int round = 0; round < 2; round++) {
        double complex *u = dealt_matrix(n, 1), *p = dealt_matrix(n, 1);
        double complex inner = 0;
        double square = 0;
        for (int64_t i = 0; i < n; i++) {
            u[i] = element_sample(dtype, 77 + (uint64_t)round, i);
            square += creal(u[i]) * creal(u[i]) + cimag(u[i]) * cimag(u[i]);
        }
        for (int64_t j = 0; j < n; j++) { /* p = 2 A u / |u|^2 */
            for (int64_t i = 0; i < n; i++) {
                p[i] += 2 / square * *at(a, i, j) * u[j];
            }
        }
        for (int64_t i = 0; i < n; i++) {
            inner += conj(u[i]) * p[i] / square;
        }
        for (int64_t j = 0; j < n; j++) {
            for (int64_t i = 0; i < n; i++) {
                *at(a, i, j) -= p[i] * conj(u[j]) + u[i] * conj(p[j]) -
                                2 * inner * u[i] * conj(u[j]);
            }
        }
        plait_free(u);
        plait_free(p);
    }
}

static inline double diagonal(kind_t kind, plait_dtype_t dtype, int64_t n, int64_t i)
{
    const double step = (double)(i + 1) / (double)n;

    return (kind == IDENTITY)   ? 1
           : (kind == REPEATED) ? (double)(i % 3) - 1
           : (kind == CLUSTERED)
               ? (double)(i / 7) + 0.1 * element_unit(dtype) * (double)(i % 7)
           : (kind == GRADED)    ? pow(10, -12 * step)
           : (kind == GRADED_UP) ? pow(10, 12 * step - 12)
           : (kind == WILKINSON) ? fabs((double)(i % 21) - 10)
           : (kind == LAPLACE)   ? 2
                                 : 0;
}

static inline double faint(plait_dtype_t dtype, int64_t i)
{
    static const double singles[] = {3.16e-23, 1, 3.16e-21, 1e-20, 0};
    static const double doubles[] = {1e-158, 1e-77,  1e-154, 3.16e-155, 1,
                                     1e-158, 3e-157, 1e-154, 3e-157,    0};

    return is_single(dtype) ? singles[i % 5] : doubles[i % 10];
}

static inline matrix_t make_matrix(kind_t kind, plait_dtype_t dtype, int64_t n)
{
    const bool is_random = kind == RANDOM || kind == LARGE || kind == SMALL;
    const double power = is_single(dtype) ? 1e30 : 1e150;
    const double factor = (kind == LARGE) ? power : (kind == SMALL) ? 1 / power : 1;
    matrix_t a = matrix_make(n);

    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double complex value = (i == j) ? diagonal(kind, dtype, n, i) : 0;
            if (is_random) {
                value = factor * element_sample(dtype, 5, i * n + j);
            } else if ((kind == WILKINSON || kind == LAPLACE) && i == j + 1) {
                value = (kind == LAPLACE) ? -1
                        : (i % 21 == 0)   ? 100 * element_unit(dtype)
                                          : 1;
            } else if (kind == FAINT && i == j + 1) {
                value = faint(dtype, j);
            } else if ((kind == GRADED || kind == GRADED_UP) && i != j) {
                value = 0.1 * element_sample(dtype, 6, i * n + j) *
                        fmin(diagonal(kind, dtype, n, i), diagonal(kind, dtype, n, j));
            }
            *at(&a, i, j) = (i == j) ? creal(value) : value;
            *at(&a, j, i) = conj(*at(&a, i, j));
        }
    }
    if (kind == REPEATED || kind == CLUSTERED) {
        turn(&a, dtype);
    }
    return a;
}

/* Rounds the matrix to its dtype. */
static inline void round_matrix(matrix_t *a, plait_dtype_t dtype)
{
    for (int64_t j = 0; j < a->n; j++) {
        for (int64_t i = j; i < a->n; i++) {
            double complex room = 0;
            plait_scalar_put(dtype, &room, 0, *at(a, i, j));
            double complex value = plait_scalar_get(dtype, &room, 0);
            *at(a, i, j) = (i == j) ? creal(value) : value;
            *at(a, j, i) = conj(*at(a, i, j));
        }
    }
}

/* ---- execution ---- */

static inline plait_dtype_t real_of(plait_dtype_t dtype)
{
    return is_single(dtype) ? PLAIT_F32 : PLAIT_F64;
}

/* The matrix to decompose, and how. */
typedef struct {
    plait_dtype_t dtype;
    int64_t n, block;
    int64_t first, n_vectors;
    int n_ranks;
    plait_direct_t direct;
} case_t;

static const char *describe(const case_t *c, const char *kind)
{
    static _Thread_local char line[200];

    (void)snprintf(line, sizeof(line),
                   "heevd %s %s %lld block %lld vectors %lld from %lld P %d direct %d",
                   plait_dtype_name(c->dtype), kind, (long long)c->n,
                   (long long)c->block, (long long)c->n_vectors, (long long)c->first,
                   c->n_ranks, (int)c->direct);
    return line;
}

/* The results are w, V and info. The operand is zero. */
static inline dealt_run_t heevd_run(const case_t *c, const char *text,
                                    const plait_heevd_params_t *params)
{
    const int64_t width = plait_max(1, (c->n_vectors + c->n_ranks - 1) / c->n_ranks);
    const shape_t of_a = {c->n, c->n, c->block};
    const shape_t of_v = {c->n, c->n_vectors, width};

    return (dealt_run_t){.op = &plait_op_heevd,
                         .params = params,
                         .n_ranks = c->n_ranks,
                         .direct = c->direct,
                         .n_args = 1,
                         .n_rets = 3,
                         .args = {matrix_of(c->dtype, &of_a, c->n_ranks)},
                         .rets = {vector_of(real_of(c->dtype), c->n),
                                  matrix_of(c->dtype, &of_v, c->n_ranks),
                                  vector_of(PLAIT_S32, 1)},
                         .text = text};
}

/* Makes the plan as a C program does. */
static inline plait_status_t plan_of(const plait_comm_t *comm, const void *problem,
                                     plait_plan_t **plan_p)
{
    return plait_heevd_plan(comm, problem, plan_p);
}

static inline void execute(dealt_run_t *t, const case_t *c)
{
    const plait_heevd_problem_t problem = {.dtype = c->dtype,
                                           .n = c->n,
                                           .block = c->block,
                                           .n_vectors = c->n_vectors,
                                           .first = c->first};

    t->plan = plan_of;
    t->problem = &problem;
    dealt_run(t);
    t->problem = NULL;
}

static inline double w_of(const dealt_run_t *t, int64_t i)
{
    return creal(t->rets[0].whole[i]);
}

/* Frobenius norms, of A V - V diag(w) and V^H V - 1. */
static inline void residuals(const dealt_run_t *t, const matrix_t *a, const case_t *c,
                             double scale, double *product_p, double *unit_p)
{
    const int64_t n = a->n;
    const matrix_t v = {n, t->rets[1].whole};
    double complex *column = dealt_matrix(n, 1);

    *product_p = *unit_p = 0;
    for (int64_t j = 0; j < c->n_vectors; j++) {
        for (int64_t i = 0; i < n; i++) {
            column[i] = -*at(&v, i, j) * (w_of(t, c->first + j) * scale);
        }
        for (int64_t k = 0; k < n; k++) {
            for (int64_t i = 0; i < n; i++) {
                column[i] += *at(a, i, k) * scale * *at(&v, k, j);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            *product_p = hypot(*product_p, cabs(column[i]));
        }
        for (int64_t i = 0; i < c->n_vectors; i++) {
            double complex dot = (i == j) ? -1 : 0;
            for (int64_t k = 0; k < n; k++) {
                dot += conj(*at(&v, k, i)) * *at(&v, k, j);
            }
            *unit_p = hypot(*unit_p, cabs(dot));
        }
    }
    plait_free(column);
}

static inline double norm_of(const matrix_t *a, double scale)
{
    double norm = 0;

    for (int64_t i = 0; i < a->n * a->n; i++) {
        norm = hypot(norm, cabs(a->x[i]) * scale);
    }
    return norm;
}

/* Without vectors only moments can be checked: the trace, and the sum of squares. */
static inline void judge_values(const dealt_run_t *t, const matrix_t *a, double bound,
                                double scale)
{
    double trace = 0, squares = 0;
    const double norm = norm_of(a, scale);

    for (int64_t i = 0; i < a->n; i++) {
        trace += creal(*at(a, i, i)) * scale - w_of(t, i) * scale;
        squares = hypot(squares, w_of(t, i) * scale);
        CHECK(i == 0 || w_of(t, i - 1) <= w_of(t, i), "%s: %.9g before %.9g", t->text,
              w_of(t, i - 1), w_of(t, i));
    }
    CHECK(fabs(trace) <= bound * norm, "%s: trace %g", t->text, trace);
    CHECK(fabs(squares - norm) <= bound * norm, "%s: norm %g for %g", t->text, squares,
          norm);
}

static inline void judge(const dealt_run_t *t, const matrix_t *a, const case_t *c)
{
    const double bound = 10 * (double)a->n * element_unit(c->dtype);
    double largest = 0, product = 0, unit = 0;

    for (int64_t i = 0; i < a->n * a->n; i++) {
        largest = fmax(largest, cabs(a->x[i]));
    }
    const double scale = (largest > 0) ? 1 / largest : 1;
    CHECK(creal(t->rets[2].whole[0]) == 0, "%s: info %g", t->text,
          creal(t->rets[2].whole[0]));
    judge_values(t, a, bound, scale);
    if (c->n_vectors > 0) {
        residuals(t, a, c, scale, &product, &unit);
        CHECK(product <= bound * norm_of(a, scale), "%s: A V - V w %g of %g", t->text,
              product, bound * norm_of(a, scale));
        CHECK(unit <= bound, "%s: V^H V - 1 %g of %g", t->text, unit, bound);
    }
}

static inline void check_run(const matrix_t *a, const char *kind, const case_t *c)
{
    dealt_run_t t = heevd_run(c, describe(c, kind), NULL);

    for (int64_t j = 0; j < c->n; j++) {
        for (int64_t i = 0; i < c->n; i++) {
            t.args[0].whole[j * c->n + i] =
                (i < j) ? (double complex)NAN : *at(a, i, j);
        }
        if (plait_is_complex(c->dtype)) {
            const double parts[] = {creal(*at(a, j, j)), (double)NAN};
            memcpy(&t.args[0].whole[j * c->n + j], parts, sizeof(parts));
        }
    }
    execute(&t, c);
    judge(&t, a, c);
    dealt_clear(&t);
}

static inline void check_case(kind_t kind, const case_t *c)
{
    matrix_t a = make_matrix(kind, c->dtype, c->n);

    round_matrix(&a, c->dtype);
    check_run(&a, kinds[kind], c);
    plait_free(a.x);
}

static inline void check_kind(kind_t kind, plait_dtype_t dtype, int64_t n,
                              int64_t block, bool has_vectors, int n_ranks,
                              plait_direct_t direct)
{
    check_case(kind,
               &(case_t){dtype, n, block, 0, has_vectors ? n : 0, n_ranks, direct});
}

/* A number that is not finite, at any place: all ranks report it and get NaN. */
static inline void check_not_finite(int n_ranks, plait_direct_t direct)
{
    const double bad[] = {(double)NAN, (double)INFINITY};
    const int64_t n = 40;

    for (int i = 0; i < 8; i++) {
        const case_t c = {dealt_dtypes[i % 4], n, 6, 0, n, n_ranks, direct};
        char kind[32];
        (void)snprintf(kind, sizeof(kind), "not finite %d", i);
        dealt_run_t t = heevd_run(&c, describe(&c, kind), NULL);
        matrix_t a = make_matrix(RANDOM, c.dtype, n);
        int64_t n_wrong = 0;
        *at(&a, (i < 4) ? n - 1 : 20, (i % 2) ? 20 : n - 1 - 19 * (i / 4)) = bad[i % 2];
        *at(&a, 30, 17 + i % 3) = bad[i / 4];
        memcpy(t.args[0].whole, a.x, (size_t)(n * n) * sizeof(*a.x));
        execute(&t, &c);
        CHECK(creal(t.rets[2].whole[0]) == (double)(n + 1), "%s: info %g", t.text,
              creal(t.rets[2].whole[0]));
        for (int64_t k = 0; k < n * n; k++) {
            n_wrong += !isnan(creal(t.rets[1].whole[k])) || !isnan(w_of(&t, k % n));
        }
        CHECK(n_wrong == 0, "%s: %lld numbers", t.text, (long long)n_wrong);
        plait_free(a.x);
        dealt_clear(&t);
    }
}

/* ---- plans ---- */

static inline void prove_part(int n_ranks, int64_t n, int64_t block, int64_t first,
                              int64_t n_vectors, plait_dtype_t dtype)
{
    const plait_heevd_params_t params = {n, block, first, n_vectors};

    for (int d = 0; d < 3; d++) {
        const case_t c = {dtype, n, block, first, n_vectors, n_ranks, dealt_directs[d]};
        dealt_run_t t = heevd_run(&c, describe(&c, "proof"), &params);
        (void)dealt_prove(&t);
        const int64_t n_collected = t.cost[0].n_messages;
        dealt_has_native = true;
        (void)dealt_prove(&t);
        dealt_has_native = false;
        CHECK(t.cost[0].n_messages <= n_collected, "%s: sums by the transport", t.text);
        dealt_clear(&t);
    }
}

#endif
