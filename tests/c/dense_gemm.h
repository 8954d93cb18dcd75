/* gemm: all transpositions and forms, against sums over whole matrices. */
#ifndef PLAIT_TESTS_DENSE_GEMM_H
#define PLAIT_TESTS_DENSE_GEMM_H

#include "dense.h"
#include "dense/params.h"
#include "dense/sweep.h"

typedef struct {
    int64_t m, n, k, block;
} gemm_shape_t;

static plait_status_t gemm_plan_of(const plait_comm_t *comm, const void *problem,
                                   plait_plan_t **plan_p)
{
    return plait_gemm_plan(comm, problem, plan_p);
}

static dealt_run_t gemm_run(const plait_gemm_problem_t *p,
                            const plait_gemm_params_t *params, int n_ranks,
                            plait_direct_t direct)
{
    static char text[160];
    const bool is_trans = p->trans != PLAIT_TRANS_NONE;

    (void)snprintf(text, sizeof(text),
                   "gemm %s %lldx%lldx%lld block %lld trans %d forms %d %d P %d direct "
                   "%d",
                   plait_dtype_name(p->dtype), (long long)p->m, (long long)p->n,
                   (long long)p->k, (long long)p->block, (int)p->trans, (int)p->form_a,
                   (int)p->form_c, n_ranks, (int)direct);
    return (dealt_run_t){.op = &plait_op_gemm,
                         .params = params,
                         .plan = gemm_plan_of,
                         .problem = p,
                         .n_ranks = n_ranks,
                         .direct = direct,
                         .n_args = 2,
                         .n_rets = 1,
                         .args = {matrix_of(p->dtype, is_trans ? p->k : p->m,
                                            is_trans ? p->m : p->k, p->block, n_ranks),
                                  matrix_of(p->dtype, p->k, p->n, p->block, n_ranks)},
                         .rets = {matrix_of(p->dtype, p->m, p->n, p->block, n_ranks)},
                         .text = text};
}

/* Entry by entry: 10 k eps times the sum of the products' absolute values. */
static void gemm_judge(const plait_gemm_problem_t *p, const dealt_run_t *t)
{
    const double eps = 10 * (double)(p->k + 1) * element_unit(p->dtype);
    double worst = 0;
    int64_t n_bad = 0;

    for (int64_t j = 0; j < p->n; j++) {
        for (int64_t i = 0; i < p->m; i++) {
            const bool is_out = p->form_c == PLAIT_FORM_LOWER && i < j;
            long double complex sum = 0;
            double bound = 0;
            for (int64_t l = 0; l < p->k && !is_out; l++) {
                double complex a = form_get(&t->args[0], p->form_a, p->trans, i, l);
                double complex b = *at(&t->args[1], l, j);
                sum += (long double complex)a * (long double complex)b;
                bound += eps * cabs(a) * cabs(b);
            }
            double error = cabs(*at(&t->rets[0], i, j) - (double complex)sum);
            n_bad += !(error <= bound);
            worst = fmax(worst, (bound > 0) ? error / bound : error);
        }
    }
    CHECK(n_bad == 0, "%s: %lld entries, error %g of the bound", t->text,
          (long long)n_bad, worst);
}

static void gemm_execute(const plait_gemm_problem_t *p, int n_ranks, int direct)
{
    dealt_run_t t = gemm_run(p, NULL, n_ranks, dealt_directs[direct]);

    dense_begin(&t);
    matrix_fill(&t.args[0], 1);
    matrix_fill(&t.args[1], 2);
    form_poison(&t.args[0], p->form_a);
    dealt_run(&t);
    gemm_judge(p, &t);
    dealt_clear(&t);
}

/* Combination `code` of transposition and forms: there are 30. */
enum { GEMM_N_CODES = 30 };

static plait_gemm_problem_t gemm_problem(const gemm_shape_t *s, plait_dtype_t dtype,
                                         int code)
{
    return (plait_gemm_problem_t){.dtype = dtype,
                                  .m = s->m,
                                  .n = s->n,
                                  .k = s->k,
                                  .block = s->block,
                                  .trans = (plait_trans_t)(code % 3),
                                  .form_a = (plait_form_t)(code / 3 % 5),
                                  .form_c = (plait_form_t)(code / 15)};
}

static const gemm_shape_t gemm_shapes[] = {
    {23, 19, 17, 4}, {12, 12, 12, 3}, {9, 5, 14, 2},   {14, 15, 9, 2}, {6, 7, 5, 1},
    {10, 3, 8, 16},  {5, 1, 7, 2},    {1, 9, 1, 2},    {4, 6, 0, 2},   {0, 4, 3, 2},
    {3, 0, 4, 2},    {40, 33, 37, 5}, {16, 16, 32, 4},
};

static void gemm_execute_all(int n_ranks)
{
    const int n_shapes = (int)(sizeof(gemm_shapes) / sizeof(gemm_shapes[0]));

    for (int code = 0; code < GEMM_N_CODES; code++) {
        for (int i = 0; i < dense_n_turns(n_shapes, n_ranks); i++) {
            const gemm_shape_t *s = &gemm_shapes[(code + 5 * i) % n_shapes];
            const plait_gemm_problem_t p =
                gemm_problem(s, dealt_dtypes[(code + i + i / n_shapes) % 4], code);
            gemm_execute(&p, n_ranks, (i + code / 3) % 3);
        }
    }
}

/* One rank, with more than one tile of a lower result. */
static void gemm_execute_tiles(void)
{
    const gemm_shape_t shape = {PLAIT_SWEEP_TILE + 7, PLAIT_SWEEP_TILE + 20,
                                PLAIT_SWEEP_TILE + 2, 3};

    for (int code = GEMM_N_CODES / 2; code < GEMM_N_CODES; code += is_quick() ? 4 : 1) {
        const plait_gemm_problem_t p =
            gemm_problem(&shape, dealt_dtypes[code % 4], code);
        gemm_execute(&p, 1, 0);
    }
}

/* ---- plans ---- */

/* Rows of block columns `first` to `end` that the form does not make zero. */
static int64_t gemm_rows(const plait_gemm_params_t *p, int64_t m, int64_t first,
                         int64_t end)
{
    const bool is_lower =
        p->form_a == PLAIT_FORM_LOWER || p->form_a == PLAIT_FORM_UNIT_LOWER;
    const bool is_upper =
        p->form_a == PLAIT_FORM_UPPER || p->form_a == PLAIT_FORM_UNIT_UPPER;

    return is_lower ? ((first < m) ? m - first : 0) : (is_upper && end < m) ? end : m;
}

/* Every rank with columns of the result that a panel counts for receives it once, but its owner. */
static plait_plan_cost_t gemm_model(const dealt_run_t *t, int rank)
{
    const plait_gemm_params_t *p = t->params;
    const int64_t m = p->trans ? p->k : p->m, n = p->trans ? p->m : p->k;
    const int64_t item = plait_dtype_bytes(t->args[0].d.dtype);
    plait_plan_cost_t cost = {.work_bytes = 2 * m * p->block * item};

    for (int64_t first = 0; first < n; first += p->block) {
        const int64_t end = (first + p->block < n) ? first + p->block : n;
        const int64_t rows = gemm_rows(p, m, first, end);
        const int64_t limit = (p->form_c == 0) ? p->n : p->trans ? end : p->m;
        const int64_t mine = rank * p->block; /* my first column */
        const bool is_read = p->m > 0 && rows > 0 && mine < p->n && mine < limit;
        if (is_read && first / p->block % t->n_ranks != rank) {
            cost.n_messages++;
            cost.message_bytes += rows * (end - first) * item;
        }
    }
    return cost;
}

static void gemm_prove_all(int n_ranks)
{
    static const gemm_shape_t shapes[] = {{7, 6, 5, 1}, {5, 7, 9, 2}, {9, 8, 6, 2},
                                          {6, 3, 4, 9}, {3, 1, 3, 1}, {4, 5, 0, 2},
                                          {0, 3, 2, 2}, {8, 20, 8, 1}};
    const int n_shapes = (int)(sizeof(shapes) / sizeof(shapes[0]));

    for (int code = 0; code < GEMM_N_CODES; code++) {
        for (int s = 0; s < n_shapes; s += is_quick() ? 3 : 1) {
            const plait_gemm_problem_t p = gemm_problem(&shapes[s], PLAIT_F32, code);
            const plait_gemm_params_t params = {.m = p.m,
                                                .n = p.n,
                                                .k = p.k,
                                                .trans = p.trans,
                                                .block = p.block,
                                                .form_a = p.form_a,
                                                .form_c = p.form_c};
            dealt_run_t t = gemm_run(&p, &params, n_ranks, PLAIT_DIRECT_NONE);
            dense_prove(&t, gemm_model);
        }
    }
}

/* ---- one rank, refusals ---- */

static void gemm_alone(plait_comm_t *comm, void *unused)
{
    plait_gemm_problem_t p = {
        .dtype = PLAIT_F64, .m = 40, .n = 30, .k = 20, .block = 5};
    plait_plan_t *plan = NULL;

    (void)unused;
    CHECK(plait_gemm_plan(comm, &p, &plan) == PLAIT_OK, "alone");
    CHECK(n_kernels(plan, "gemm") == 1 && n_kernels(plan, NULL) == 1, "%d steps",
          n_kernels(plan, NULL));
    plait_plan_destroy(&plan);
    p.form_a = PLAIT_FORM_LOWER;
    p.m = p.k = 30;
    CHECK(plait_gemm_plan(comm, &p, &plan) == PLAIT_OK, "alone");
    CHECK(n_kernels(plan, "triangle") == 1 && n_kernels(plan, NULL) == 1, "%d steps",
          n_kernels(plan, NULL));
    plait_plan_destroy(&plan);
}

static void gemm_refusals(plait_comm_t *comm, void *unused)
{
    const plait_gemm_problem_t good = {
        .dtype = PLAIT_F64, .m = 4, .n = 3, .k = 2, .block = 2};
    plait_gemm_problem_t p = good;
    plait_plan_t *plan = NULL;

    (void)unused;
    check_refused(plait_gemm_plan(NULL, &p, &plan), PLAIT_ERR_COMM, "NULL");
    p.trans = (plait_trans_t)3;
    check_refused(plait_gemm_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "trans is 3");
    p = good;
    p.form_a = (plait_form_t)5;
    check_refused(plait_gemm_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "form_a is 5");
    p = good;
    p.form_c = PLAIT_FORM_UPPER;
    check_refused(plait_gemm_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "form_c is 2");
    p = good;
    p.block = 0;
    check_refused(plait_gemm_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "gemm operand a: blocks of 0 columns");
    p = good;
    p.n = -1;
    check_refused(plait_gemm_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "gemm operand b has shape 2 x -1");
    p = good;
    p.m = INT64_MAX;
    check_refused(plait_gemm_plan(comm, &p, &plan), PLAIT_ERR_OVERFLOW, "too large");
    p = good;
    p.dtype = PLAIT_S32;
    check_refused(plait_gemm_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "gemm operand a is int32");
    CHECK(plan == NULL, "no plan");
    CHECK(plait_dense_columns(7, 2, 3) == 4 && plait_dense_columns(0, 2, 3) == 0 &&
              plait_dense_columns(3, 0, 3) == 0 && plait_dense_columns(3, 5, 2) == 5,
          "columns");
}

/* Ranks that plan different products get an error and write nothing. */
static void gemm_mismatch(plait_comm_t *comm, void *unused)
{
    const int rank = plait_comm_rank(comm);
    const plait_gemm_problem_t p = {.dtype = PLAIT_F64,
                                    .m = 2,
                                    .n = 2,
                                    .k = 2,
                                    .block = 1,
                                    .trans = (rank == 1) ? PLAIT_TRANS_PLAIN
                                                         : PLAIT_TRANS_NONE};
    const double x[] = {1, 2};
    double y[] = {7, 8};
    plait_plan_t *plan = NULL;

    (void)unused;
    CHECK(plait_gemm_plan(comm, &p, &plan) == PLAIT_OK, "mismatch");
    CHECK(plait_plan_execute(plan, comm, (const void *[]){x, x}, (void *[]){y}) ==
                  PLAIT_ERR_MISMATCH &&
              y[0] == 7 && y[1] == 8,
          "rank %d", rank);
    plait_plan_destroy(&plan);
}

#endif
