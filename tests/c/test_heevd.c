/* Eigendecompositions of dealt Hermitian matrices: plans proven for P = 1..17 in every way of
 * reaching a peer's memory, and executed by threads, judged by their residuals. The triangle that
 * is not to be read is NaN. Without a LAPACK library: skipped, with the reason. */
#include "dense/params.h"
#include "dense/whole.h"
#include "dense_whole.h"
#include "device/pool.h"
#include "kernel/blas.h"

#include <float.h>

enum { SKIPPED = 77 };

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
    LARGE, /* random times 1e150, or 1e30 */
    SMALL,
    N_KINDS
} kind_t;

static const char *const kinds[] = {"random",    "zero",   "identity",  "repeated",
                                    "clustered", "graded", "graded up", "wilkinson",
                                    "laplace",   "large",  "small"};

static bool is_single(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_C64;
}

/* U diag U^H for a unitary U: the product of two reflections, kept Hermitian. */
static void turn(matrix_t *a, plait_dtype_t dtype)
{
    const int64_t n = a->n;

    for (int round = 0; round < 2; round++) {
        matrix_t u = matrix_random(dtype, 77 + (uint64_t)round, n, 1);
        matrix_t p = matrix_make(n, 1);
        double complex inner = 0;
        double square = 0;
        for (int64_t i = 0; i < n; i++) {
            square += creal(u.x[i]) * creal(u.x[i]) + cimag(u.x[i]) * cimag(u.x[i]);
        }
        for (int64_t j = 0; j < n; j++) { /* p = 2 A u / |u|^2 */
            for (int64_t i = 0; i < n; i++) {
                p.x[i] += 2 / square * *at(a, i, j) * u.x[j];
            }
        }
        for (int64_t i = 0; i < n; i++) {
            inner += conj(u.x[i]) * p.x[i] / square;
        }
        for (int64_t j = 0; j < n; j++) {
            for (int64_t i = 0; i < n; i++) {
                *at(a, i, j) -= p.x[i] * conj(u.x[j]) + u.x[i] * conj(p.x[j]) -
                                2 * inner * u.x[i] * conj(u.x[j]);
            }
        }
        matrix_free(&u);
        matrix_free(&p);
    }
}

static double diagonal(kind_t kind, plait_dtype_t dtype, int64_t n, int64_t i)
{
    const double step = (double)(i + 1) / (double)n;

    return (kind == IDENTITY)    ? 1
           : (kind == REPEATED)  ? (double)(i % 3) - 1
           : (kind == CLUSTERED) ? (double)(i / 7) + 0.1 * ulp(dtype) * (double)(i % 7)
           : (kind == GRADED)    ? pow(10, -12 * step)
           : (kind == GRADED_UP) ? pow(10, 12 * step - 12)
           : (kind == WILKINSON) ? fabs((double)(i % 21) - 10)
           : (kind == LAPLACE)   ? 2
                                 : 0;
}

static matrix_t make_matrix(kind_t kind, plait_dtype_t dtype, int64_t n)
{
    const bool is_random = kind == RANDOM || kind == LARGE || kind == SMALL;
    const double power = is_single(dtype) ? 1e30 : 1e150;
    const double factor = (kind == LARGE) ? power : (kind == SMALL) ? 1 / power : 1;
    matrix_t a = matrix_make(n, n);

    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double complex value = (i == j) ? diagonal(kind, dtype, n, i) : 0;
            if (is_random) {
                value = factor * number(dtype, 5, i * n + j);
            } else if ((kind == WILKINSON || kind == LAPLACE) && i == j + 1) {
                value = (kind == LAPLACE) ? -1 : (i % 21 == 0) ? 100 * ulp(dtype) : 1;
            } else if ((kind == GRADED || kind == GRADED_UP) && i != j) {
                value = 0.1 * number(dtype, 6, i * n + j) *
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
            put(dtype, &room, 0, *at(a, i, j));
            double complex value = get(dtype, &room, 0);
            *at(a, i, j) = (i == j) ? creal(value) : value;
            *at(a, j, i) = conj(*at(a, i, j));
        }
    }
}

/* ---- execution ---- */

typedef struct {
    char text[200];
    plait_dtype_t dtype;
    int64_t block;
    bool has_vectors;
    matrix_t a; /* its lower triangle counts */
    matrix_t v;
    double *w; /* by rank */
    int32_t info[TEAM_MAX];
} run_t;

static plait_dtype_t real_of(plait_dtype_t dtype)
{
    return is_single(dtype) ? PLAIT_F32 : PLAIT_F64;
}

static void execute(plait_comm_t *comm, void *context)
{
    run_t *run = context;
    const int rank = plait_comm_rank(comm), size = plait_comm_size(comm);
    const int64_t n = run->a.n, width = (n + size - 1) / size;
    const plait_heevd_problem_t problem = {.dtype = run->dtype,
                                           .n = n,
                                           .block = run->block,
                                           .has_vectors = run->has_vectors};
    const plait_dealt_t a = dealt_of(&run->a, run->dtype, run->block, size);
    plait_dealt_t v = dealt_of(&run->v, run->dtype, (width > 0) ? width : 1, size);
    char *in = deal(&run->a, &a, rank), *kept = deal(&run->a, &a, rank);
    char *out = blank(&v);
    char *w = plait_alloc(n + 1, sizeof(double));
    plait_plan_t *plan = NULL;

    CHECK(plait_heevd_plan(comm, &problem, &plan) == PLAIT_OK, "%s", run->text);
    CHECK(plan != NULL &&
              plait_plan_execute(plan, comm, (const void *[]){in},
                                 (void *[]){w, out, &run->info[rank]}) == PLAIT_OK,
          "%s", run->text);
    for (int64_t i = 0; i < n; i++) {
        run->w[rank * n + i] = creal(get(real_of(run->dtype), w, i));
    }
    CHECK(gather(&run->v, &v, rank, out), "%s rank %d: behind", run->text, rank);
    CHECK(is_guarded(&v, out), "%s rank %d: guard", run->text, rank);
    CHECK(memcmp(in, kept,
                 (size_t)(plait_dealt_stored(&a) * plait_dealt_ld_bytes(&a))) == 0,
          "%s rank %d: the operand has changed", run->text, rank);
    plait_plan_destroy(&plan);
    plait_free(in);
    plait_free(kept);
    plait_free(out);
    plait_free(w);
}

/* Frobenius norms, of A V - V diag(w) and V^H V - 1. */
static void residuals(const run_t *run, const matrix_t *a, double scale,
                      double *product_p, double *unit_p)
{
    const int64_t n = a->n;
    double complex *column = plait_alloc(n + 1, sizeof(*column));

    *product_p = *unit_p = 0;
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n; i++) {
            column[i] = -*at(&run->v, i, j) * (run->w[j] * scale);
        }
        for (int64_t k = 0; k < n; k++) {
            for (int64_t i = 0; i < n; i++) {
                column[i] += *at(a, i, k) * scale * *at(&run->v, k, j);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            double complex dot = (i == j) ? -1 : 0;
            for (int64_t k = 0; k < n; k++) {
                dot += conj(*at(&run->v, k, i)) * *at(&run->v, k, j);
            }
            *product_p = hypot(*product_p, cabs(column[i]));
            *unit_p = hypot(*unit_p, cabs(dot));
        }
    }
    plait_free(column);
}

static double norm_of(const matrix_t *a, double scale)
{
    double norm = 0;

    for (int64_t i = 0; i < a->m * a->n; i++) {
        norm = hypot(norm, cabs(a->x[i]) * scale);
    }
    return norm;
}

/* Eigenvalues alone have nothing but their moments: the trace, and the sum of squares. */
static void judge_values(const run_t *run, const matrix_t *a, double scale)
{
    const double bound = 10 * (double)a->n * ulp(run->dtype);
    double trace = 0, squares = 0;
    const double norm = norm_of(a, scale);

    for (int64_t i = 0; i < a->n; i++) {
        trace += creal(*at(a, i, i)) * scale - run->w[i] * scale;
        squares = hypot(squares, run->w[i] * scale);
        CHECK(i == 0 || run->w[i - 1] <= run->w[i], "%s: not ascending", run->text);
    }
    CHECK(fabs(trace) <= bound * norm, "%s: trace %g", run->text, trace);
    CHECK(fabs(squares - norm) <= bound * norm, "%s: norm %g for %g", run->text,
          squares, norm);
}

static void judge(const run_t *run, const matrix_t *a, int n_ranks)
{
    const int64_t n = a->n;
    const double bound = 10 * (double)n * ulp(run->dtype);
    double largest = 0, product = 0, unit = 0;

    for (int64_t i = 0; i < n * n; i++) {
        largest = fmax(largest, cabs(a->x[i]));
    }
    const double scale = (largest > 0) ? 1 / largest : 1;
    for (int r = 0; r < n_ranks; r++) {
        CHECK(run->info[r] == 0, "%s rank %d: info %d", run->text, r,
              (int)run->info[r]);
        CHECK(memcmp(run->w, run->w + r * n, (size_t)n * sizeof(double)) == 0,
              "%s rank %d: other eigenvalues", run->text, r);
    }
    judge_values(run, a, scale);
    if (run->has_vectors) {
        residuals(run, a, scale, &product, &unit);
        CHECK(product <= bound * norm_of(a, scale), "%s: A V - V w %g of %g", run->text,
              product, bound * norm_of(a, scale));
        CHECK(unit <= bound, "%s: V^H V - 1 %g of %g", run->text, unit, bound);
    }
}

static void check_run(const matrix_t *a, const char *kind, plait_dtype_t dtype,
                      int64_t block, bool has_vectors, int n_ranks,
                      plait_direct_t direct)
{
    const int64_t n = a->n;
    run_t run = {.dtype = dtype,
                 .block = block,
                 .has_vectors = has_vectors,
                 .a = matrix_make(n, n),
                 .v = matrix_make(n, has_vectors ? n : 0),
                 .w = plait_alloc(n * n_ranks + 1, sizeof(double))};

    (void)snprintf(run.text, sizeof(run.text),
                   "heevd %s %s %lld block %lld vectors %d P %d direct %d",
                   plait_dtype_name(dtype), kind, (long long)n, (long long)block,
                   (int)has_vectors, n_ranks, (int)direct);
    memcpy(run.a.x, a->x, (size_t)(n * n) * sizeof(*a->x));
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < j; i++) {
            *at(&run.a, i, j) = (double complex)NAN;
        }
        if (is_complex(dtype)) {
            *at(&run.a, j, j) = CMPLX(creal(*at(a, j, j)), (double)NAN);
        }
    }
    team_run(n_ranks, direct, execute, &run);
    judge(&run, a, n_ranks);
    matrix_free(&run.a);
    matrix_free(&run.v);
    plait_free(run.w);
}

static void check_kind(kind_t kind, plait_dtype_t dtype, int64_t n, int64_t block,
                       bool has_vectors, int n_ranks, plait_direct_t direct)
{
    matrix_t a = make_matrix(kind, dtype, n);

    round_matrix(&a, dtype);
    check_run(&a, kinds[kind], dtype, block, has_vectors, n_ranks, direct);
    matrix_free(&a);
}

static void execute_all(int n_ranks)
{
    static const int64_t blocks[] = {1, 3, 32, 64, 1000};
    const int64_t sizes[] = {0, 1, 2, 3, n_ranks, n_ranks + 1, 33, 70, 100};
    int turn = n_ranks;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int b = 0; b < 5; b++) {
            for (int d = 0; d < 3; d++, turn++) {
                if (is_quick() && (turn % 2 == 0 || sizes[s] > 70)) {
                    continue;
                }
                check_kind(RANDOM, dense_dtypes[turn / 2 % 4], sizes[s], blocks[b],
                           turn % 5 != 0, n_ranks, dense_directs[d]);
            }
        }
    }
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (int d = 0; d < 4; d++, turn++) {
            check_kind((kind_t)kind, dense_dtypes[d], is_quick() ? 42 : 84, 8, true,
                       n_ranks, dense_directs[turn % 3]);
        }
    }
}

/* Several panels of reflectors, and levels of merges. */
static void check_larger(void)
{
    const int64_t n = is_quick() ? 90 : 200;

    for (int d = 0; d < (is_quick() ? 1 : 3); d++) { /* long sums are shared out */
        check_kind(RANDOM, dense_dtypes[d], 330, 32, d < 2, 5, dense_directs[d]);
    }
    for (int n_ranks = 2; n_ranks <= 3; n_ranks++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            check_kind((kind_t)kind, dense_dtypes[kind % 4], n, 64, true, n_ranks,
                       PLAIT_DIRECT_POINTER);
            check_kind((kind_t)kind, PLAIT_F64, n + 1, 100, true, n_ranks,
                       PLAIT_DIRECT_POINTER);
        }
    }
}

/* Eigenvectors that are not real: a conjugated result is no solution. */
static void check_conjugation(int n_ranks)
{
    matrix_t a = matrix_make(2, 2);

    *at(&a, 0, 0) = *at(&a, 1, 1) = 2;
    *at(&a, 0, 1) = I;
    *at(&a, 1, 0) = -I;
    check_run(&a, "2 i -i 2", PLAIT_C128, 1, true, n_ranks, PLAIT_DIRECT_POINTER);
    check_run(&a, "2 i -i 2", PLAIT_C64, 2, true, n_ranks, PLAIT_DIRECT_NONE);
    matrix_free(&a);
}

/* What is not finite, wherever it stands: all ranks say so, and have NaN. */
static void check_not_finite(int n_ranks, plait_direct_t direct)
{
    const double bad[] = {(double)NAN, (double)INFINITY};
    const int64_t n = 40;

    for (int i = 0; i < 8; i++) {
        const plait_dtype_t dtype = dense_dtypes[i % 4];
        run_t run = {.dtype = dtype,
                     .block = 6,
                     .has_vectors = true,
                     .a = make_matrix(RANDOM, dtype, n),
                     .v = matrix_make(n, n),
                     .w = plait_alloc(n * n_ranks, sizeof(double))};
        int64_t n_wrong = 0;
        (void)snprintf(run.text, sizeof(run.text), "heevd not finite %d P %d direct %d",
                       i, n_ranks, (int)direct);
        *at(&run.a, (i < 4) ? n - 1 : 20, (i % 2) ? 20 : n - 1 - 19 * (i / 4)) =
            bad[i % 2];
        *at(&run.a, 30, 17 + i % 3) = bad[i / 4];
        team_run(n_ranks, direct, execute, &run);
        for (int r = 0; r < n_ranks; r++) {
            CHECK(run.info[r] == n + 1, "%s: info %d", run.text, (int)run.info[r]);
            for (int64_t k = 0; k < n; k++) {
                n_wrong += !isnan(run.w[r * n + k]);
            }
        }
        for (int64_t k = 0; k < n * n; k++) {
            n_wrong += !isnan(creal(run.v.x[k]));
        }
        CHECK(n_wrong == 0, "%s: %lld numbers", run.text, (long long)n_wrong);
        matrix_free(&run.a);
        matrix_free(&run.v);
        plait_free(run.w);
    }
}

/* ---- plans ---- */

static plait_status_t plan_for(plait_dtype_t dtype, const plait_heevd_params_t *p,
                               int n_ranks, int rank, plait_direct_t direct,
                               plait_plan_t **plan_p)
{
    const plait_endpoint_t end = {
        .rank = rank,
        .size = n_ranks,
        .caps = {.direct = direct, .publish_bytes = -1, .n_threads = 1}};
    const int64_t width = (p->n + n_ranks - 1) / n_ranks, one = 1;
    const int64_t a_dims[] = {plait_dense_columns(p->n, p->block, n_ranks), p->n};
    const int64_t v_dims[] = {p->vectors ? width : 0, p->n};
    const plait_array_t a = {.dtype = dtype, .ndim = 2, .dims = a_dims};
    const plait_array_t rets[] = {{.dtype = real_of(dtype), .ndim = 1, .dims = &p->n},
                                  {.dtype = dtype, .ndim = 2, .dims = v_dims},
                                  {.dtype = PLAIT_S32, .ndim = 1, .dims = &one}};

    return plait_op_plan(&plait_op_heevd, p, &end, &a, rets, plan_p);
}

static void prove(int n_ranks, int64_t n, int64_t block, bool has_vectors,
                  plait_dtype_t dtype)
{
    const plait_heevd_params_t params = {n, block, has_vectors};
    const plait_check_t options = {.alias = -1};

    for (int d = 0; d < 3; d++) {
        plait_plan_t *plans[DENSE_MAX_P] = {NULL};
        plait_status_t status = PLAIT_OK;
        for (int r = 0; r < n_ranks && status == PLAIT_OK; r++) {
            status = plan_for(dtype, &params, n_ranks, r, dense_directs[d], &plans[r]);
        }
        CHECK(status == PLAIT_OK &&
                  plait_plans_check(plans, n_ranks, &options) == PLAIT_OK,
              "heevd %s n %lld block %lld vectors %d P %d direct %d",
              plait_dtype_name(dtype), (long long)n, (long long)block, (int)has_vectors,
              n_ranks, d);
        for (int r = 0; r < n_ranks; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

/* Whole on one rank where the matrix is not larger than that. */
static void prove_all(int n_ranks)
{
    static const int64_t blocks[] = {1, 3, 32, 64};

    plait_dense_choose_whole(40);
    prove(n_ranks, 37, blocks[n_ranks % 4], true, dense_dtypes[n_ranks % 4]);
    prove(n_ranks, 4, blocks[n_ranks % 4], false, dense_dtypes[n_ranks % 3]);
    plait_dense_choose_whole(0);
    for (int b = 0; b < 4; b++) {
        for (int64_t n = 0; n < 4; n++) {
            prove(n_ranks, n, blocks[b], true, dense_dtypes[n % 4]);
        }
    }
    prove(n_ranks, 37, blocks[n_ranks % 3], true, dense_dtypes[n_ranks % 4]);
    prove(n_ranks, 21, 4, false, dense_dtypes[n_ranks / 2 % 4]);
    if (n_ranks == 5 && !is_quick()) { /* sums of long vectors are shared out */
        prove(n_ranks, 64 * n_ranks + 3, 16, false, PLAIT_F32);
    }
}

static void refused(plait_comm_t *comm, const plait_heevd_problem_t *problem,
                    plait_status_t expected, const char *part)
{
    plait_plan_t *plan = NULL;
    plait_status_t status = plait_heevd_plan(comm, problem, &plan);

    CHECK(status == expected && plan == NULL &&
              strstr(plait_error_text(), part) != NULL,
          "%s: %s", part, plait_status_name(status));
    plait_plan_destroy(&plan);
}

static void check_refusals(plait_comm_t *comm, void *context)
{
    plait_heevd_problem_t problem = {.dtype = PLAIT_F64, .n = 4, .block = 2};
    const plait_heevd_params_t params = {4, 2, 1};
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
    refused(comm, &problem, PLAIT_ERR_INVALID, "heevd: a is int32");
    problem.dtype = PLAIT_F64;
    problem.block = 0;
    refused(comm, &problem, PLAIT_ERR_INVALID, "blocks of 0 columns");
    refused(NULL, &problem, PLAIT_ERR_COMM, "communicator");
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 4, 7};

#ifdef __SANITIZE_THREAD__ /* does not see how the library's own threads meet */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
#endif
    if (plait_blas_require() != PLAIT_OK) {
        printf("test_heevd: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    for (int n_ranks = 1; n_ranks <= DENSE_MAX_P; n_ranks += is_quick() ? 4 : 1) {
        prove_all(n_ranks);
    }
    plait_dense_choose_whole(0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        execute_all(sizes[i]);
        check_conjugation(sizes[i]);
        for (int d = 0; d < 3; d++) {
            check_not_finite(sizes[i], dense_directs[d]);
        }
    }
    check_larger();
    plait_dense_choose_whole(-1);
    execute_all(1);
    execute_all(2);
    check_not_finite(2, PLAIT_DIRECT_READ);
    team_run(1, PLAIT_DIRECT_POINTER, check_refusals, NULL);
    (void)plait_pool_trim();
    return report("test_heevd");
}
