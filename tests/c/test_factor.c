/* LU and QR factorizations of dealt matrices, and products with Q: plans proven for up to 17 ranks, and
 * executed by threads in every way of reaching a peer's memory, against backward errors. */
#include "dense/whole.h"
#include "dense_factor.h"
#include "dense_main.h"

/* The same plans as a C program makes them. */
static plait_status_t getrf_plan_of(const plait_comm_t *comm, const void *problem,
                                    plait_plan_t **plan_p)
{
    return plait_getrf_plan(comm, problem, plan_p);
}

static plait_status_t geqrf_plan_of(const plait_comm_t *comm, const void *problem,
                                    plait_plan_t **plan_p)
{
    return plait_geqrf_plan(comm, problem, plan_p);
}

static plait_status_t ormqr_plan_of(const plait_comm_t *comm, const void *problem,
                                    plait_plan_t **plan_p)
{
    return plait_ormqr_plan(comm, problem, plan_p);
}

/* ---------------------------------------------------------------- getrf */

static const int teams[] = {1, 2, 3, 4, 7};

/* P A - L U, with multipliers that are at most 1. */
static void check_lu(const dealt_run_t *t, plait_dtype_t dtype, const shape_t *s,
                     int64_t bad)
{
    const int64_t n = plait_min(s->m, s->n);
    const double complex *lu = t->rets[0].whole;
    double complex *a = general_matrix(dtype, s, bad);
    double worst = 0;
    double largest = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t p = (int64_t)creal(t->rets[1].whole[i]);
        CHECK(p >= i && p < s->m, "%s: pivot %lld is %lld", t->text, (long long)i,
              (long long)p);
        for (int64_t j = 0; j < s->n && p >= i && p < s->m; j++) {
            double complex swap = a[j * s->m + i];
            a[j * s->m + i] = a[j * s->m + p];
            a[j * s->m + p] = swap;
        }
    }
    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t i = 0; i < s->m; i++) {
            double complex sum = -a[j * s->m + i];
            for (int64_t k = 0; k <= plait_min(i, j) && k < n; k++) {
                sum += ((k == i) ? 1 : lu[k * s->m + i]) * lu[j * s->m + k];
            }
            worst = (cabs(sum) > worst || isnan(cabs(sum))) ? cabs(sum) : worst;
            largest = (i > j && cabs(lu[j * s->m + i]) > largest)
                          ? cabs(lu[j * s->m + i])
                          : largest;
        }
    }
    CHECK(worst <= 10 * (double)(s->m + s->n) * element_unit(dtype) *
                       (1 + dealt_norm(a, s->m, s->n)),
          "%s: error %g", t->text, worst);
    /* LAPACK compares |re| + |im| */
    CHECK(largest <= 1.42, "%s: a multiplier of %g", t->text, largest);
    CHECK(creal(t->rets[2].whole[0]) == (double)((bad < n) ? bad + 1 : 0),
          "%s: info %g", t->text, creal(t->rets[2].whole[0]));
    plait_free(a);
}

static void getrf_case(plait_dtype_t dtype, const shape_t *s, int n_ranks,
                       plait_direct_t direct, int64_t bad)
{
    const plait_panels_params_t params = {s->m, s->n, s->block};
    dealt_run_t t =
        panels_run(&plait_op_getrf, dtype, s, n_ranks, direct, bad, &params);

    t.plan = getrf_plan_of;
    t.problem = &(plait_panels_problem_t){
        .dtype = dtype, .m = s->m, .n = s->n, .block = s->block};
    dealt_run(&t);
    check_lu(&t, dtype, s, bad);
    dealt_clear(&t);
}

/* ---------------------------------------------------------------- geqrf, ormqr */

/* Q or Q^H times a matrix, with the factors from geqrf. */
static void multiply(dealt_run_t *qr, plait_dtype_t dtype, const shape_t *s,
                     bool is_adjoint, int64_t n, double complex *c)
{
    const plait_ormqr_params_t params = {s->m, s->n, n, is_adjoint, s->block};
    const shape_t of_c = {s->m, n, s->block};
    dealt_run_t t = {.op = &plait_op_ormqr,
                     .params = &params,
                     .n_ranks = qr->n_ranks,
                     .direct = qr->direct,
                     .donates = is_adjoint,
                     .n_args = 3,
                     .n_rets = 1,
                     .text = text_of(is_adjoint ? "ormqr adjoint" : "ormqr", dtype, s,
                                     qr->n_ranks, qr->direct)};

    t.plan = ormqr_plan_of;
    t.problem = &(plait_ormqr_problem_t){.dtype = dtype,
                                         .m = s->m,
                                         .k = s->n,
                                         .n = n,
                                         .block = s->block,
                                         .is_adjoint = is_adjoint};
    t.args[0] = qr->rets[0];
    t.args[1] = qr->rets[1];
    t.args[2] = matrix_of(dtype, &of_c, qr->n_ranks);
    t.rets[0] = matrix_of(dtype, &of_c, qr->n_ranks);
    memcpy(t.args[2].whole, c, (size_t)(s->m * n) * sizeof(*c));
    dealt_run(&t);
    memcpy(c, t.rets[0].whole, (size_t)(s->m * n) * sizeof(*c));
    plait_free(t.args[2].whole);
    plait_free(t.rets[0].whole);
}

/* A - Q R, and Q^H Q - I by computing Q^H (Q I). */
static void geqrf_case(plait_dtype_t dtype, const shape_t *s, int n_ranks,
                       plait_direct_t direct)
{
    const plait_panels_params_t params = {s->m, s->n, s->block};
    dealt_run_t t = panels_run(&plait_op_geqrf, dtype, s, n_ranks, direct, -1, &params);
    const double bound = 10 * (double)(s->m + s->n + 1) * element_unit(dtype);

    t.plan = geqrf_plan_of;
    t.problem = &(plait_panels_problem_t){
        .dtype = dtype, .m = s->m, .n = s->n, .block = s->block};
    dealt_run(&t);
    double complex *qr = dealt_matrix(s->m, s->n);
    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t i = 0; i <= j && i < s->m; i++) {
            qr[j * s->m + i] = t.rets[0].whole[j * s->m + i];
        }
    }
    multiply(&t, dtype, s, false, s->n, qr);
    double complex *a = general_matrix(dtype, s, -1);
    double norm = dealt_norm(a, s->m, s->n);
    for (int64_t i = 0; i < s->m * s->n; i++) {
        qr[i] -= a[i];
    }
    CHECK(dealt_norm(qr, s->m, s->n) <= bound * norm, "%s: A - QR is %g", t.text,
          dealt_norm(qr, s->m, s->n));
    double complex *q = dealt_matrix(s->m, s->m);
    for (int64_t i = 0; i < s->m; i++) {
        q[i * s->m + i] = 1;
    }
    multiply(&t, dtype, s, false, s->m, q);
    multiply(&t, dtype, s, true, s->m, q);
    for (int64_t i = 0; i < s->m; i++) {
        q[i * s->m + i] -= 1;
    }
    CHECK(dealt_norm(q, s->m, s->m) <= bound * (double)(s->m + 1),
          "%s: Q^H Q - I is %g", t.text, dealt_norm(q, s->m, s->m));
    plait_free(q);
    plait_free(a);
    plait_free(qr);
    dealt_clear(&t);
}

static const shape_t rectangles[] = {
    {0, 0, 2},  {0, 3, 2},   {3, 0, 2},   {1, 1, 4},   {9, 4, 2},   {4, 9, 2},
    {5, 12, 3}, {30, 7, 64}, {7, 30, 64}, {33, 33, 5}, {40, 64, 8}, {64, 40, 7}};

static void check_panels_all(void)
{
    for (size_t s = 0; s < sizeof(rectangles) / sizeof(*rectangles); s++) {
        for (size_t r = 0; r < sizeof(teams) / sizeof(*teams); r++) {
            for (int a = 0; a < 3; a++) {
                for (int d = 0; d < 4; d++) {
                    const shape_t *shape = &rectangles[s];
                    if (is_quick() && (d % 2 == (int)s % 2)) {
                        continue;
                    }
                    getrf_case(dealt_dtypes[d], shape, teams[r], dealt_directs[a], -1);
                    geqrf_case(dealt_dtypes[d], shape, teams[r], dealt_directs[a]);
                    if (plait_min(shape->m, shape->n) > 1) {
                        getrf_case(dealt_dtypes[d], shape, teams[r], dealt_directs[a],
                                   plait_min(shape->m, shape->n) / 2);
                    }
                }
            }
        }
    }
}

static void prove_panels(void)
{
    static const shape_t shapes[] = {
        {0, 4, 4}, {1, 1, 2}, {7, 6, 1}, {4, 11, 2}, {20, 9, 3}};
    static const plait_op_t *const ops[] = {&plait_op_getrf, &plait_op_geqrf};

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks++) {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
            for (int i = 0; i < 2 * 3; i++) {
                const plait_panels_params_t params = {shapes[s].m, shapes[s].n,
                                                      shapes[s].block};
                dealt_run_t t = panels_run(ops[i % 2], PLAIT_F32, &shapes[s], n_ranks,
                                           dealt_directs[i / 2], -1, &params);
                dealt_prove(&t);
                dealt_clear(&t);
            }
        }
    }
}

static void prove_ormqr(void)
{
    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks++) {
        for (int i = 0; i < 2 * 3; i++) {
            const shape_t of_qr = {12, 9, 2};
            const shape_t of_c = {12, 7, 2};
            const plait_ormqr_params_t params = {12, 9, 7, i % 2, 2};
            dealt_run_t t = {.op = &plait_op_ormqr,
                             .params = &params,
                             .n_ranks = n_ranks,
                             .direct = dealt_directs[i / 2],
                             .n_args = 3,
                             .n_rets = 1,
                             .args = {matrix_of(PLAIT_C64, &of_qr, n_ranks),
                                      vector_of(PLAIT_C64, 9),
                                      matrix_of(PLAIT_C64, &of_c, n_ranks)},
                             .rets = {matrix_of(PLAIT_C64, &of_c, n_ranks)},
                             .text = "ormqr"};
            dealt_prove(&t);
            dealt_clear(&t);
        }
    }
}

/* ---------------------------------------------------------------- wrong input */

static void check_refusals(plait_comm_t *comm, void *unused)
{
    plait_plan_t *plan = NULL;
    plait_potrf_problem_t p = {.dtype = PLAIT_S32, .n = 4, .block = 2};

    (void)unused;
    check_refused(plait_potrf_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "expected float32, float64, complex64 or complex128");
    p.dtype = PLAIT_F64;
    p.block = 0;
    check_refused(plait_potrf_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "expected 1 or more");
    p.block = 1;
    p.n = -3;
    check_refused(plait_potrf_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "-3 x -3");
    check_refused(plait_potrf_plan(NULL, &p, &plan), PLAIT_ERR_COMM, "NULL");
    plait_ormqr_problem_t q = {.dtype = PLAIT_F32, .m = 4, .k = 2, .n = -1, .block = 1};
    check_refused(plait_ormqr_plan(comm, &q, &plan), PLAIT_ERR_INVALID, "4 x -1");
    const plait_panels_problem_t r = {.dtype = PLAIT_F32, .m = -2, .n = 2, .block = 1};
    check_refused(plait_getrf_plan(comm, &r, &plan), PLAIT_ERR_INVALID, "-2 x 2");
    check_refused(plait_geqrf_plan(comm, &r, &plan), PLAIT_ERR_INVALID, "-2 x 2");
}

/* Plans are plans for messages, however threads reach each other. */
static void check_on_devices(int n_ranks)
{
    const int n_shapes = sizeof(rectangles) / sizeof(*rectangles);
    const plait_direct_t direct = PLAIT_DIRECT_POINTER;

    on_device_begin(n_ranks);
    if (n_ranks == 1) { /* plans of any number of ranks */
        prove_panels();
        prove_ormqr();
    }
    for (int i = 0; i < 4 * n_shapes; i++) {
        const shape_t *s = &rectangles[i / 4];
        const plait_dtype_t dtype = dealt_dtypes[i % 4];
        if (is_quick() && (i + i / 4) % 3 != 0) {
            continue;
        }
        getrf_case(dtype, s, n_ranks, direct, -1);
        geqrf_case(dtype, s, n_ranks, direct);
        if (plait_min(s->m, s->n) > 1) {
            getrf_case(dtype, s, n_ranks, direct, plait_min(s->m, s->n) / 2);
        }
    }
    on_device_end(n_ranks);
}

static void check_on_host(void)
{
    prove_ormqr();
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        plait_dense_choose_whole(is_whole ? INT64_MAX : 0);
        prove_panels();
        check_panels_all();
    }
    team_run(2, PLAIT_DIRECT_POINTER, check_refusals, NULL);
}

static void check_on_all_devices(void)
{
    for (int i = 0; i < 2 * (is_quick() ? 3 : 4); i++) {
        plait_dense_choose_whole((i % 2 == 0) ? 0 : INT64_MAX);
        check_on_devices(i / 2 + 1);
    }
}

int main(int n_arguments, char **arguments)
{
    return dense_main("test_factor", n_arguments, arguments, check_on_all_devices,
                      check_on_host);
}
