/* Eigendecompositions of dealt Hermitian matrices: plans proven for P = 1..17 in every way of
 * reaching a peer's memory, and executed by threads, judged by their residuals. The triangle that
 * is not to be read is NaN. Without a LAPACK library: skipped, with the reason. */
#include "dense/whole.h"
#include "dense_factor.h"
#include "dense_main.h"
#include "device/cuda_mp.h"
#include "plan/ask_grid.h"
#include "transport/process_grid.h"

#include <float.h>

/* ---- matrices ---- */

typedef enum {
    RANDOM,
    ZERO,
    IDENTITY,
    REPEATED,  /* three eigenvalues */
    CLUSTERED, /* groups that are closer than rounding, across the ranks' shares */
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

static bool is_single(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_C64;
}

/* Square, column-major. */
typedef struct {
    int64_t n;
    double complex *x;
} matrix_t;

static matrix_t matrix_make(int64_t n)
{
    return (matrix_t){n, dealt_matrix(n, n)};
}

static double complex *at(const matrix_t *a, int64_t i, int64_t j)
{
    return &a->x[j * a->n + i];
}

/* U diag U^H for a unitary U: the product of two reflections, kept Hermitian. */
static void turn(matrix_t *a, plait_dtype_t dtype)
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

static double diagonal(kind_t kind, plait_dtype_t dtype, int64_t n, int64_t i)
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

static double faint(plait_dtype_t dtype, int64_t i)
{
    static const double singles[] = {3.16e-23, 1, 3.16e-21, 1e-20, 0};
    static const double doubles[] = {1e-158, 1e-77,  1e-154, 3.16e-155, 1,
                                     1e-158, 3e-157, 1e-154, 3e-157,    0};

    return is_single(dtype) ? singles[i % 5] : doubles[i % 10];
}

static matrix_t make_matrix(kind_t kind, plait_dtype_t dtype, int64_t n)
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

/* As the dtype has it. */
static void round_matrix(matrix_t *a, plait_dtype_t dtype)
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

static plait_dtype_t real_of(plait_dtype_t dtype)
{
    return is_single(dtype) ? PLAIT_F32 : PLAIT_F64;
}

/* What is decomposed, and how. */
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
static dealt_run_t heevd_run(const case_t *c, const char *text,
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

/* As a C program does it. */
static plait_status_t plan_of(const plait_comm_t *comm, const void *problem,
                              plait_plan_t **plan_p)
{
    return plait_heevd_plan(comm, problem, plan_p);
}

static void execute(dealt_run_t *t, const case_t *c)
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

static double w_of(const dealt_run_t *t, int64_t i)
{
    return creal(t->rets[0].whole[i]);
}

/* Frobenius norms, of A V - V diag(w) and V^H V - 1. */
static void residuals(const dealt_run_t *t, const matrix_t *a, const case_t *c,
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

static double norm_of(const matrix_t *a, double scale)
{
    double norm = 0;

    for (int64_t i = 0; i < a->n * a->n; i++) {
        norm = hypot(norm, cabs(a->x[i]) * scale);
    }
    return norm;
}

/* Eigenvalues alone have nothing but their moments: the trace, and the sum of squares. */
static void judge_values(const dealt_run_t *t, const matrix_t *a, double bound,
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

static void judge(const dealt_run_t *t, const matrix_t *a, const case_t *c)
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

static void check_run(const matrix_t *a, const char *kind, const case_t *c)
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

static void check_case(kind_t kind, const case_t *c)
{
    matrix_t a = make_matrix(kind, c->dtype, c->n);

    round_matrix(&a, c->dtype);
    check_run(&a, kinds[kind], c);
    plait_free(a.x);
}

static void check_kind(kind_t kind, plait_dtype_t dtype, int64_t n, int64_t block,
                       bool has_vectors, int n_ranks, plait_direct_t direct)
{
    check_case(kind,
               &(case_t){dtype, n, block, 0, has_vectors ? n : 0, n_ranks, direct});
}

/* Some of the vectors: fewer than ranks, the lowest, the highest, across the merges, a part of a cluster;
 * dealt, and by one rank that has all of them. */
static void check_parts(int n_ranks)
{
    static const int64_t n = 84,
                         parts[][2] = {{0, 1}, {83, 1}, {0, 83}, {1, 83}, {31, 9}};

    for (int i = 0; i < 10; i += is_quick() ? 3 : 1) {
        const case_t c = {.dtype = dealt_dtypes[(i + n_ranks) % 4],
                          .n = n,
                          .block = (i % 3 == 0) ? 64 : 5,
                          .first = parts[i % 5][0],
                          .n_vectors = parts[i % 5][1],
                          .n_ranks = n_ranks,
                          .direct = dealt_directs[(i + n_ranks) % 3]};
        plait_dense_choose_whole((i < 5) ? 0 : n);
        check_case((i % 2 == 0) ? RANDOM : CLUSTERED, &c);
        plait_dense_choose_whole(0);
    }
}

static void execute_all(int n_ranks)
{
    static const int64_t blocks[] = {1, 3, 32, 64, 1000};
    const int64_t sizes[] = {0, 1, 2, 3, n_ranks, n_ranks + 1, 33, 70, 100};
    int turn = n_ranks;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int b = 0; b < 5; b++) {
            for (int d = 0; d < 3; d++, turn++) {
                const bool has_ways = n_ranks <= 2 && team_devices[0] == NULL;
                const bool is_turn = has_ways || d == ((int)s + b) % 3;
                if (!is_turn || (is_quick() && (turn % 2 == 0 || sizes[s] > 70))) {
                    continue;
                }
                check_kind(RANDOM, dealt_dtypes[turn / 2 % 4], sizes[s], blocks[b],
                           turn % 5 != 0, n_ranks, dealt_directs[d]);
            }
        }
    }
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (int d = 0; d < 4; d++, turn++) {
            check_kind((kind_t)kind, dealt_dtypes[d], is_quick() ? 42 : 84, 8, true,
                       n_ranks, dealt_directs[turn % 3]);
        }
    }
    for (int d = 0; d < 8; d++) { /* eigenvalues alone, dealt and by one rank */
        const int64_t n = is_single(dealt_dtypes[d % 4]) ? 5 : 10;
        plait_dense_choose_whole((d < 4) ? 0 : n);
        check_kind(FAINT, dealt_dtypes[d % 4], n, 8, false, n_ranks,
                   dealt_directs[d % 3]);
    }
    plait_dense_choose_whole(0);
}

/* Several panels of reflectors, and levels of merges. */
static void check_larger(void)
{
    const int64_t n = is_quick() ? 90 : 200;

    for (int d = 0; d < (is_quick() ? 1 : 3); d++) { /* long sums are shared out */
        check_kind(RANDOM, PLAIT_C128, 330, 32, d < 2, 8, dealt_directs[d]);
    }
    for (int n_ranks = 2; n_ranks <= 3; n_ranks++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            check_kind((kind_t)kind, dealt_dtypes[kind % 4], n, 64, true, n_ranks,
                       PLAIT_DIRECT_POINTER);
            check_kind((kind_t)kind, PLAIT_F64, n + 1, 100, true, n_ranks,
                       PLAIT_DIRECT_POINTER);
        }
    }
}

/* Eigenvectors that are not real: a conjugated result is no solution. */
static void check_conjugation(int n_ranks)
{
    matrix_t a = matrix_make(2);

    *at(&a, 0, 0) = *at(&a, 1, 1) = 2;
    *at(&a, 0, 1) = I;
    *at(&a, 1, 0) = -I;
    check_run(&a, "2 i -i 2",
              &(case_t){PLAIT_C128, 2, 1, 0, 2, n_ranks, PLAIT_DIRECT_POINTER});
    check_run(&a, "2 i -i 2",
              &(case_t){PLAIT_C64, 2, 2, 0, 2, n_ranks, PLAIT_DIRECT_NONE});
    plait_free(a.x);
}

/* What is not finite, wherever it stands: all ranks say so, and have NaN. */
static void check_not_finite(int n_ranks, plait_direct_t direct)
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

static void prove_part(int n_ranks, int64_t n, int64_t block, int64_t first,
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

static void prove(int n_ranks, int64_t n, int64_t block, bool has_vectors,
                  plait_dtype_t dtype)
{
    prove_part(n_ranks, n, block, 0, has_vectors ? n : 0, dtype);
}

/* Whole on one rank where the matrix is not larger than that. */
static void prove_all(int n_ranks)
{
    static const int64_t blocks[] = {1, 3, 32, 64};

    plait_dense_choose_whole(40);
    prove(n_ranks, 37, blocks[n_ranks % 4], true, dealt_dtypes[n_ranks % 4]);
    prove(n_ranks, 4, blocks[n_ranks % 4], false, dealt_dtypes[n_ranks % 3]);
    prove_part(n_ranks, 31, blocks[n_ranks % 4], n_ranks, 3, dealt_dtypes[n_ranks % 4]);
    plait_dense_choose_whole(0);
    prove_part(n_ranks, 31, blocks[n_ranks % 4], 12, 7, dealt_dtypes[n_ranks % 4]);
    prove_part(n_ranks, 31, blocks[n_ranks % 4], 30, 1, dealt_dtypes[n_ranks % 3]);
    for (int b = 0; b < 4; b++) {
        for (int64_t n = 0; n < 4; n++) {
            prove(n_ranks, n, blocks[b], true, dealt_dtypes[n % 4]);
        }
    }
    prove(n_ranks, 37, blocks[n_ranks % 3], true, dealt_dtypes[n_ranks % 4]);
    prove(n_ranks, 21, 4, false, dealt_dtypes[n_ranks / 2 % 4]);
    if (n_ranks == 8 && !is_quick()) { /* sums of long vectors are shared out */
        prove(n_ranks, 270, 16, false, PLAIT_C128);
    }
}

static void check_refusals(plait_comm_t *comm, void *context)
{
    plait_heevd_problem_t problem = {.dtype = PLAIT_F64, .n = 4, .block = 2};
    const plait_heevd_params_t params = {4, 2, 0, 4};
    const int64_t three = 3, dims[] = {4, 4}, one = 1;
    plait_array_t a = {.dtype = PLAIT_F64, .ndim = 2, .dims = dims};
    plait_array_t rets[] = {{.dtype = PLAIT_F64, .ndim = 1, .dims = &three},
                            {.dtype = PLAIT_F64, .ndim = 2, .dims = dims},
                            {.dtype = PLAIT_S32, .ndim = 1, .dims = &one}};
    const plait_endpoint_t end = {.size = 1, .caps = {.publish_bytes = -1}};
    plait_plan_t *plan = NULL;

    (void)context;
    CHECK(plait_op_plan(&plait_op_heevd, &params, &end, &a, rets, &plan) ==
              PLAIT_ERR_INVALID,
          "w");
    rets[0].dims = dims;
    rets[1].dtype = PLAIT_F32;
    CHECK(plait_op_plan(&plait_op_heevd, &params, &end, &a, rets, &plan) ==
              PLAIT_ERR_INVALID,
          "v");
    rets[1].dtype = PLAIT_F64;
    rets[2].dims = &three;
    CHECK(plait_op_plan(&plait_op_heevd, &params, &end, &a, rets, &plan) ==
              PLAIT_ERR_INVALID,
          "info");
    problem.dtype = PLAIT_S32;
    check_refused(plait_heevd_plan(comm, &problem, &plan), PLAIT_ERR_INVALID,
                  "heevd: a is int32");
    problem.dtype = PLAIT_F64;
    problem.block = 0;
    check_refused(plait_heevd_plan(comm, &problem, &plan), PLAIT_ERR_INVALID,
                  "blocks of 0 columns");
    problem.block = 2;
    problem.first = 2;
    problem.n_vectors = 3;
    check_refused(plait_heevd_plan(comm, &problem, &plan), PLAIT_ERR_INVALID,
                  "3 eigenvectors from 2 on; there are 4");
    problem.n_vectors = INT64_MAX;
    check_refused(plait_heevd_plan(comm, &problem, &plan), PLAIT_ERR_INVALID,
                  "9223372036854775807 eigenvectors");
    check_refused(plait_heevd_plan(NULL, &problem, &plan), PLAIT_ERR_COMM,
                  "communicator");
}

/* By all devices at once: ranks know each other's. Blocks as they are, or moved to others. */
static void check_at_once(int n_ranks)
{
    static const int64_t blocks[] = {1, 5, 32, 1030};

    team_knows_devices = true;
    plait_dense_choose_whole(0);
    for (int b = 0; b < 4; b++) {
        prove(n_ranks, n_ranks, blocks[b], true, dealt_dtypes[b]);
        prove(n_ranks, 37, blocks[b], b % 2 == 0, dealt_dtypes[(b + n_ranks) % 4]);
    }
    prove(n_ranks, 2200, 1030, true, PLAIT_F32);
    execute_all(n_ranks);
    check_kind(RANDOM, PLAIT_F64, 33 * n_ranks + 5, 33, true, n_ranks,
               PLAIT_DIRECT_POINTER);
    check_conjugation(n_ranks);
    check_parts(n_ranks);
    check_not_finite(n_ranks, PLAIT_DIRECT_POINTER);
    plait_dense_choose_whole(-1);
    team_knows_devices = false;
}

/* ---- ranks as if they were processes ---- */

static void take_seat(plait_comm_t *comm, void *context)
{
    plait_device_t *device = comm->end.caps.device;

    (void)context;
    CHECK(plait_grid_ask(comm, 0, device, check_device_stream(device)) == PLAIT_OK,
          "%s", plait_error_text());
    comm->end.caps.grid = plait_process_grid(&comm->end, device);
    CHECK(comm->end.caps.grid != NULL, "rank %d has no seat", comm->end.rank);
}

static plait_status_t plan_nothing(plait_process_grid_t *grid,
                                   const plait_joint_problem_t *heevd,
                                   int64_t *work_bytes_p)
{
    (void)grid;
    *work_bytes_p = 16 * heevd->n;
    return PLAIT_OK;
}

/* By devices of all processes at once, each of which makes the call: blocks that are powers of two stay,
 * others are moved. */
static void check_by_processes(int n_ranks)
{
    static const plait_device_grid_t of_plans = {.heevd_plan = plan_nothing};
    static const int64_t blocks[] = {1, 32, 33, 4};

    plait_dense_choose_whole(0);
    check_device_use_grid(&of_plans);
    dealt_grid = (void *)team_devices; /* any address */
    for (int b = 0; b < 4; b++) {
        prove(n_ranks, n_ranks + b, blocks[b], true, dealt_dtypes[b]);
        prove(n_ranks, 70, blocks[b], b % 2 == 0, dealt_dtypes[(b + n_ranks) % 4]);
    }
    dealt_grid = NULL;
    check_device_use_grid(&plait_cuda_grid);
    team_before = take_seat;
    for (int i = 0; i < 16; i++) {
        const int64_t sizes[] = {n_ranks, 7, 13, 33 * n_ranks + 2};
        check_kind(RANDOM, dealt_dtypes[i % 4], sizes[i / 4], blocks[i % 3], i % 5 != 0,
                   n_ranks, PLAIT_DIRECT_POINTER);
    }
    check_conjugation(n_ranks);
    check_parts(n_ranks);
    check_not_finite(n_ranks, PLAIT_DIRECT_POINTER);
    team_before = NULL;
    plait_cuda_grid_release();
    check_device_use_grid(NULL);
    plait_dense_choose_whole(-1);
}

static void check_on_devices(void)
{
    if (on_device_n_cuda == 0) {
        (void)setenv("PLAIT_CUDA_DIR", FAKES_DIR, 1);
    }
    for (int n_ranks = 1; n_ranks <= 4; n_ranks += is_quick() ? 2 : 1) {
        on_device_begin(n_ranks);
        for (int n = n_ranks; n <= DEALT_MAX_RANKS; n += 4) {
            prove_all(n);
        }
        execute_all(n_ranks);
        check_conjugation(n_ranks);
        check_parts(n_ranks);
        check_not_finite(n_ranks, PLAIT_DIRECT_POINTER);
        if (n_ranks > 1 && on_device_n_cuda == 0) {
            check_at_once(n_ranks);
            check_by_processes(n_ranks);
        }
        on_device_end(n_ranks);
    }
}

static void check_on_host(void)
{
    static const int sizes[] = {1, 2, 3, 4, 7};

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks += is_quick() ? 4 : 1) {
        prove_all(n_ranks);
    }
    plait_dense_choose_whole(0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i += is_quick() ? 2 : 1) {
        execute_all(sizes[i]);
        check_conjugation(sizes[i]);
        check_parts(sizes[i]);
        for (int d = 0; d < 3; d++) {
            check_not_finite(sizes[i], dealt_directs[d]);
        }
    }
    check_larger();
    plait_dense_choose_whole(-1);
    execute_all(1);
    execute_all(2);
    check_not_finite(2, PLAIT_DIRECT_READ);
    team_run(1, PLAIT_DIRECT_POINTER, check_refusals, NULL);
}

int main(int n_arguments, char **arguments)
{
#ifdef __SANITIZE_THREAD__ /* does not see how the library's own threads meet */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
#endif
    return dense_main("test_heevd", n_arguments, arguments, check_on_devices,
                      check_on_host);
}
