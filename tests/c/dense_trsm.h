/* trsm: all triangles, transpositions, diagonals and forms, by the residual. */
#ifndef PLAIT_TESTS_DENSE_TRSM_H
#define PLAIT_TESTS_DENSE_TRSM_H

#include "dense.h"
#include "dense/params.h"
#include "dense/sweep.h"

typedef struct {
    int64_t n, n_rhs, block;
} trsm_shape_t;

static plait_status_t trsm_plan_of(const plait_comm_t *comm, const void *problem,
                                   plait_plan_t **plan_p)
{
    return plait_trsm_plan(comm, problem, plan_p);
}

static dealt_run_t trsm_run(const plait_trsm_problem_t *p,
                            const plait_trsm_params_t *params, int n_ranks,
                            plait_direct_t direct)
{
    static char text[160];

    (void)snprintf(
        text, sizeof(text),
        "trsm %s %lld rhs %lld block %lld uplo %d trans %d diag %d form %d whole "
        "%d P %d direct %d",
        plait_dtype_name(p->dtype), (long long)p->n, (long long)p->n_rhs,
        (long long)p->block, (int)p->uplo, (int)p->trans, (int)p->diag, (int)p->form,
        (int)p->is_whole, n_ranks, (int)direct);
    dealt_run_t t = {.op = &plait_op_trsm,
                     .params = params,
                     .plan = trsm_plan_of,
                     .problem = p,
                     .n_ranks = n_ranks,
                     .direct = direct,
                     .n_args = 2,
                     .n_rets = 1,
                     .args = {matrix_of(p->dtype, p->n, p->n, p->block, n_ranks),
                              matrix_of(p->dtype, p->n, p->n_rhs, p->block, n_ranks)},
                     .rets = {matrix_of(p->dtype, p->n, p->n_rhs, p->block, n_ranks)},
                     .text = text};
    if (p->is_whole) {
        t.args[1] = t.rets[0] =
            matrix_of(p->dtype, p->n, p->n_rhs, (p->n_rhs > 0) ? p->n_rhs : 1, 1);
        t.args[1].is_whole = t.rets[0].is_whole = true;
    }
    return t;
}

/* The part of a that is read, as a form. */
static plait_form_t trsm_form(const plait_trsm_problem_t *p)
{
    static const plait_form_t forms[2][2] = {{PLAIT_FORM_LOWER, PLAIT_FORM_UNIT_LOWER},
                                             {PLAIT_FORM_UPPER, PLAIT_FORM_UNIT_UPPER}};

    return forms[p->uplo][p->diag];
}

/* Entry by entry: |op(a) x - b| <= 10 n eps |op(a)| |x|. */
static void trsm_judge(const plait_trsm_problem_t *p, const dealt_run_t *t)
{
    const double eps = 10 * (double)(p->n + 1) * element_unit(p->dtype);
    const plait_form_t form = trsm_form(p);
    double worst = 0;
    int64_t n_bad = 0;

    for (int64_t j = 0; j < p->n_rhs; j++) {
        for (int64_t i = 0; i < p->n; i++) {
            const bool is_out = p->form == PLAIT_FORM_LOWER && i < j;
            long double complex sum =
                is_out ? 0 : (long double complex) - *at(&t->args[1], i, j);
            double bound = 0;
            for (int64_t l = 0; l < p->n && !is_out; l++) {
                double complex a = form_get(&t->args[0], form, p->trans, i, l);
                double complex y = *at(&t->rets[0], l, j);
                sum += (long double complex)a * (long double complex)y;
                bound += eps * cabs(a) * cabs(y);
            }
            double error = is_out ? cabs(*at(&t->rets[0], i, j)) : (double)cabsl(sum);
            n_bad += !(error <= bound);
            worst = fmax(worst, (bound > 0) ? error / bound : error);
        }
    }
    CHECK(n_bad == 0, "%s: %lld entries, residual %g of the bound", t->text,
          (long long)n_bad, worst);
}

static void trsm_execute(const plait_trsm_problem_t *p, int n_ranks, int direct,
                         bool is_donated)
{
    dealt_run_t t = trsm_run(p, NULL, n_ranks, dealt_directs[direct]);

    t.donates = is_donated;
    dense_begin(&t);
    matrix_fill(&t.args[0], 3);
    matrix_fill(&t.args[1], 4);
    for (int64_t i = 0; i < p->n; i++) { /* x stays as large as b */
        *at(&t.args[0], i, i) += 1 + (double)p->n / 4;
    }
    form_poison(&t.args[0], trsm_form(p));
    form_poison(&t.args[1], p->form);
    dealt_run(&t);
    trsm_judge(p, &t);
    dealt_clear(&t);
}

/* Right-hand sides on all ranks. */
static void few_execute_all(int n_ranks)
{
    static const trsm_shape_t shapes[] = {
        {19, 3, 4}, {12, 1, 3}, {7, 15, 2}, {14, 2, 1}, {6, 6, 9}, {1, 2, 2},
        {5, 0, 2},  {0, 4, 2},  {37, 1, 5}, {33, 2, 2}, {24, 5, 2}};
    const int n_shapes = (int)(sizeof(shapes) / sizeof(shapes[0]));

    for (int i = 0; i < 12 * dense_n_turns(n_shapes, n_ranks); i++) {
        const trsm_shape_t *s = &shapes[(i % 12 + 5 * (i / 12)) % n_shapes];
        const plait_trsm_problem_t p = {.dtype = dealt_dtypes[(i + i / 12) % 4],
                                        .n = s->n,
                                        .n_rhs = s->n_rhs,
                                        .block = s->block,
                                        .uplo = (plait_uplo_t)(i % 2),
                                        .trans = (plait_trans_t)(i / 2 % 3),
                                        .diag = (plait_diag_t)(i / 6 % 2),
                                        .is_whole = true};
        trsm_execute(&p, n_ranks, (i / 12 + i / 4) % 3, (i / 12 + i / 3) % 2 == 1);
    }
}

/* Combination `code` of triangle, transposition and diagonal, and of the form if it may be lower. There are 24
 * codes, of which 6 are no combination. */
enum { TRSM_N_CODES = 24 };

static bool trsm_problem(const trsm_shape_t *s, plait_dtype_t dtype, int code,
                         plait_trsm_problem_t *p)
{
    *p = (plait_trsm_problem_t){.dtype = dtype,
                                .n = s->n,
                                .n_rhs = s->n_rhs,
                                .block = s->block,
                                .uplo = (plait_uplo_t)(code % 2),
                                .trans = (plait_trans_t)(code / 2 % 3),
                                .diag = (plait_diag_t)(code / 6 % 2),
                                .form = (plait_form_t)(code / 12)};
    return p->form == PLAIT_FORM_GENERAL ||
           (p->uplo == PLAIT_UPLO_LOWER) == (p->trans == PLAIT_TRANS_NONE);
}

static const trsm_shape_t trsm_shapes[] = {
    {19, 23, 4}, {12, 12, 3}, {7, 15, 2}, {14, 5, 2}, {6, 6, 1},   {9, 10, 16},
    {13, 1, 3},  {1, 8, 2},   {5, 0, 2},  {0, 4, 2},  {37, 29, 5}, {16, 40, 4},
};

static void trsm_execute_all(int n_ranks)
{
    const int n_shapes = (int)(sizeof(trsm_shapes) / sizeof(trsm_shapes[0]));
    plait_trsm_problem_t p;

    for (int code = 0; code < TRSM_N_CODES; code++) {
        for (int i = 0; i < dense_n_turns(n_shapes, n_ranks); i++) {
            const trsm_shape_t *s = &trsm_shapes[(code + 5 * i) % n_shapes];
            const plait_dtype_t dtype = dealt_dtypes[(code + i + i / n_shapes) % 4];
            if (trsm_problem(s, dtype, code, &p)) {
                trsm_execute(&p, n_ranks, (i + code / 4) % 3, (i + code / 3) % 2 == 1);
            }
        }
    }
}

/* One rank with more than one tile: a lower result, and a single column. */
static void trsm_execute_tiles(void)
{
    const trsm_shape_t shape = {PLAIT_SWEEP_TILE + 20, PLAIT_SWEEP_TILE + 7, 3};
    plait_trsm_problem_t p;

    for (int code = TRSM_N_CODES / 2; code < TRSM_N_CODES; code++) {
        if (trsm_problem(&shape, dealt_dtypes[code % 2], code, &p)) {
            p.diag = PLAIT_DIAG_NON_UNIT; /* otherwise x grows beyond all bounds */
            trsm_execute(&p, 1, 0, code % 2 == 1);
        }
        if (trsm_problem(&shape, dealt_dtypes[code % 4], code - TRSM_N_CODES / 2, &p)) {
            p.n_rhs = 1;
            p.diag = PLAIT_DIAG_NON_UNIT;
            trsm_execute(&p, 1, 0, code % 2 == 1);
        }
    }
}

/* ---- plans ---- */

static plait_plan_cost_t trsm_model(const dealt_run_t *t, int rank)
{
    const plait_trsm_params_t *p = t->params;
    const int64_t item = plait_dtype_bytes(t->args[0].d.dtype);
    plait_plan_cost_t cost = {.work_bytes = 2 * p->n * p->block * item};

    for (int64_t first = 0; first < p->n; first += p->block) {
        const int64_t end = (first + p->block < p->n) ? first + p->block : p->n;
        const int64_t rows = (p->uplo == PLAIT_UPLO_LOWER) ? p->n - first : end;
        const int64_t mine = rank * p->block; /* my first column */
        const bool is_read = mine < p->n_rhs && (p->form == 0 || mine < end);
        if (is_read && first / p->block % t->n_ranks != rank) {
            cost.n_messages++;
            cost.message_bytes += rows * (end - first) * item;
        }
    }
    return cost;
}

static void trsm_prove_all(int n_ranks)
{
    static const trsm_shape_t shapes[] = {{7, 6, 1}, {9, 5, 2}, {6, 9, 2}, {4, 3, 9},
                                          {3, 1, 1}, {4, 0, 2}, {0, 3, 2}, {8, 20, 1}};
    const int n_shapes = (int)(sizeof(shapes) / sizeof(shapes[0]));
    plait_trsm_problem_t p;

    for (int code = 0; code < TRSM_N_CODES; code++) {
        for (int s = 0; s < n_shapes; s += is_quick() ? 3 : 1) {
            if (trsm_problem(&shapes[s], PLAIT_F32, code, &p)) {
                const plait_trsm_params_t params = {.n = p.n,
                                                    .n_rhs = p.n_rhs,
                                                    .block = p.block,
                                                    .uplo = p.uplo,
                                                    .trans = p.trans,
                                                    .diag = p.diag,
                                                    .form = p.form};
                dealt_run_t t = trsm_run(&p, &params, n_ranks, PLAIT_DIRECT_NONE);
                dense_prove(&t, trsm_model);
            }
        }
    }
}

/* Bytes that a rank takes: of x what others solve for, once, and without transposition others' sums
 * for its own rows, of each that has any. */
static int64_t few_bytes(const plait_trsm_params_t *p, int n_ranks, int rank,
                         int64_t item)
{
    const int64_t n_blocks = (p->n + p->block - 1) / p->block;
    int64_t n = 0;

    for (int64_t t = 0; t < n_blocks; t++) {
        const bool is_forward = (p->uplo == 0) == (p->trans == 0);
        const int64_t k = is_forward ? t : n_blocks - 1 - t;
        const int64_t end = (k + 1) * p->block;
        const int64_t width = p->block - ((end > p->n) ? end - p->n : 0);
        const int64_t others = (t < n_ranks - 1) ? t : n_ranks - 1;
        n += (k % n_ranks != rank) ? width : (p->trans == 0) ? others * width : 0;
    }
    return n * p->n_rhs * item;
}

static void few_prove_all(int n_ranks)
{
    static const trsm_shape_t shapes[] = {{17, 2, 2}, {9, 5, 3}, {40, 1, 1},
                                          {4, 3, 9},  {4, 0, 2}, {0, 3, 2}};
    const int n_shapes = (int)(sizeof(shapes) / sizeof(shapes[0]));

    for (int i = 0; i < 12 * n_shapes; i += is_quick() ? 5 : 1) {
        const trsm_shape_t *s = &shapes[i / 12];
        const plait_trsm_params_t params = {.n = s->n,
                                            .n_rhs = s->n_rhs,
                                            .block = s->block,
                                            .uplo = i % 2,
                                            .trans = i / 2 % 3,
                                            .diag = i / 6 % 2,
                                            .whole = 1};
        const plait_trsm_problem_t p = {.dtype = PLAIT_C64,
                                        .n = s->n,
                                        .n_rhs = s->n_rhs,
                                        .block = s->block,
                                        .uplo = (plait_uplo_t)params.uplo,
                                        .trans = (plait_trans_t)params.trans,
                                        .diag = (plait_diag_t)params.diag,
                                        .is_whole = true};
        dealt_run_t t = trsm_run(&p, &params, n_ranks, PLAIT_DIRECT_NONE);
        for (int d = (n_ranks > 8) ? i % 3 : 0; d < 3; d += (n_ranks > 8) ? 3 : 1) {
            t.direct = dealt_directs[d];
            (void)dealt_prove(&t);
            for (int r = 0; r < n_ranks; r++) {
                const int64_t want = few_bytes(&params, n_ranks, r, 8);
                CHECK(t.cost[r].message_bytes == want,
                      "%s access %d rank %d: %lld, "
                      "expected %lld",
                      t.text, d, r, (long long)t.cost[r].message_bytes,
                      (long long)want);
            }
        }
    }
}

/* ---- one rank, a zero on the diagonal, refusals ---- */

static void trsm_alone(plait_comm_t *comm, void *unused)
{
    const plait_trsm_problem_t p = {
        .dtype = PLAIT_F64, .n = 40, .n_rhs = 30, .block = 5};
    plait_plan_t *plan = NULL;

    (void)unused;
    CHECK(plait_trsm_plan(comm, &p, &plan) == PLAIT_OK, "alone");
    CHECK(n_kernels(plan, "triangle") == 1 && n_kernels(plan, "gemm") == 0 &&
              n_kernels(plan, NULL) == 2,
          "%d steps", n_kernels(plan, NULL));
    plait_plan_destroy(&plan);
}

static void trsm_singular(plait_comm_t *comm, void *unused)
{
    const plait_trsm_problem_t p = {.dtype = PLAIT_F64, .n = 2, .n_rhs = 2, .block = 1};
    const int rank = plait_comm_rank(comm);
    const double a[] = {(rank == 0) ? 1 : NAN, 0}, b[] = {3, 4};
    double x[] = {0, 0};
    plait_plan_t *plan = NULL;

    (void)unused;
    CHECK(plait_trsm_plan(comm, &p, &plan) == PLAIT_OK, "singular");
    CHECK(plait_plan_execute(plan, comm, (const void *[]){a, b}, (void *[]){x}) ==
              PLAIT_OK,
          "singular");
    CHECK(x[0] == 3 && !isfinite(x[1]), "%g %g", x[0], x[1]);
    plait_plan_destroy(&plan);
}

static void trsm_refusals(plait_comm_t *comm, void *unused)
{
    const plait_trsm_problem_t good = {
        .dtype = PLAIT_F64, .n = 4, .n_rhs = 3, .block = 2};
    plait_trsm_problem_t p = good;
    plait_plan_t *plan = NULL;

    (void)unused;
    check_refused(plait_trsm_plan(NULL, &p, &plan), PLAIT_ERR_COMM, "NULL");
    p.uplo = (plait_uplo_t)2;
    check_refused(plait_trsm_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "uplo is 2");
    p = good;
    p.trans = (plait_trans_t)3;
    check_refused(plait_trsm_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "trans is 3");
    p = good;
    p.diag = (plait_diag_t)2;
    check_refused(plait_trsm_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "diag is 2");
    p = good;
    p.form = PLAIT_FORM_LOWER;
    p.trans = PLAIT_TRANS_ADJOINT;
    check_refused(plait_trsm_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "form is 1, expected 0, or 1 where op(a) is lower");
    p = good;
    p.form = PLAIT_FORM_LOWER;
    p.is_whole = true;
    check_refused(plait_trsm_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "whole is 1, expected 0, or 1 for a general right-hand side");
    p = good;
    p.n_rhs = -2;
    check_refused(plait_trsm_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "trsm operand b has shape 4 x -2");
    p = good;
    p.block = -1;
    check_refused(plait_trsm_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "blocks of -1 columns");
    p = good;
    p.dtype = PLAIT_BOOL;
    check_refused(plait_trsm_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "trsm operand a is bool");
    CHECK(plan == NULL, "no plan");
}

/* An array whose shape does not fit the parameters. */
static void trsm_wrong_array(plait_comm_t *comm, void *unused)
{
    const plait_trsm_params_t params = {.n = 4, .n_rhs = 3, .block = 2};
    const int64_t a_dims[] = {2, 4}, b_dims[] = {4, 4};
    const plait_array_t args[] = {{.dtype = PLAIT_F64, .ndim = 2, .dims = a_dims},
                                  {.dtype = PLAIT_F64, .ndim = 2, .dims = b_dims}};
    plait_plan_t *plan = NULL;

    (void)unused;
    check_refused(plait_op_plan(&plait_op_trsm, &params, &comm->end, args, args, &plan),
                  PLAIT_ERR_INVALID,
                  "trsm operand b: the part of a 4 x 3 matrix dealt out in blocks of 2 "
                  "to 2 ranks "
                  "is 2 x 4");
}

#endif
